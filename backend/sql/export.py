"""Rows as a file (CSV, Parquet, Arrow or JSON), made piece by piece as they are read; and the tickets by which a
browser fetches one.

Why not DuckDB's COPY: it writes whole files to a disk, has no Arrow without an extension, writes nested values as its
own text and decimals in JSON as doubles. Rule: memory is that of one piece, nothing is written to disk, and no format
changes a value's digits. Parquet and Arrow hold the values as they are. JSON is a list of objects, each value as
`json_value` has it. CSV has nested values as JSON, binary as base64, null as an empty cell, and no text that a
spreadsheet would take for a formula: such text gets an apostrophe in front, a number kept as text (a decimal) stays
one. A ticket is random and says nothing itself: what it gives was fixed by a page that could read it.
"""

import io
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from backend.cells import cell, row_cells
from backend.errors import ExportError, LakehouseError, fault
from backend.lake.model import Snapshot
from backend.lake.rows.filters import RowFilter
from backend.sql.filters import ended_by
from backend.sql.session import CancelToken, regrouped
from backend.sql.values import json_value
from backend.work import Stopped

if TYPE_CHECKING:
    from backend.lake.lake import Lake

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_FORMULA = f"^[{''.join(_FORMULA_STARTS).replace('-', chr(92) + '-')}]"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)$"
PIECE_ROWS, PIECE_BYTES = 65_536, 16 << 20
_JSON_ROWS = 1_000  # as Python values they take many times their size
_TEXT_DAYS = 11_000_000  # since 1970, some 30,000 years
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # a spreadsheet takes the file for UTF-8
MOST_OFFERED = 256
AT_ONCE = 4  # each keeps a core busy
VALID_S = 600.0


class _Writer(Protocol):
    def write_table(self, table: pa.Table) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file. `open` gives what writes rows of a schema into a file."""

    suffix: str
    label: str
    media_type: str
    open: Callable[[Any, pa.Schema], _Writer]


class _Csv:
    """Rows as text: one piece is one batch of lines."""

    def __init__(self, sink: io.RawIOBase, schema: pa.Schema) -> None:
        import pyarrow.csv

        self._sink = sink
        self._names = _safe_texts(pa.chunked_array([pa.array(schema.names, pa.string())])).to_pylist()
        sink.write(_BYTE_ORDER_MARK)
        no_rows = [pa.array([], pa.string())] * len(self._names)
        pyarrow.csv.write_csv(pa.Table.from_arrays(no_rows, self._names), sink)

    def write_table(self, table: pa.Table) -> None:
        import pyarrow.csv

        rows = pa.Table.from_arrays(list(map(_csv_column, table.columns)), self._names)
        pyarrow.csv.write_csv(rows, self._sink, pyarrow.csv.WriteOptions(include_header=False))

    def close(self) -> None:
        """Every piece is whole."""


class _Json:
    """A list of rows, one a line."""

    def __init__(self, sink: io.RawIOBase, schema: pa.Schema) -> None:  # noqa: ARG002  as the others are opened
        self._sink, self._before_row = sink, b"[\n"

    def write_table(self, table: pa.Table) -> None:
        for batch in table.to_batches(max_chunksize=_JSON_ROWS):
            for row in row_cells(batch):
                self._sink.write(self._before_row + orjson.dumps(json_value(row)))
                self._before_row = b",\n"

    def close(self) -> None:
        self._sink.write(b"[]\n" if self._before_row == b"[\n" else b"\n]\n")


def _parquet(sink: io.RawIOBase, schema: pa.Schema) -> _Writer:
    import pyarrow.parquet as pq

    writer: _Writer = pq.ParquetWriter(sink, schema, compression="zstd")
    return writer


FORMATS: Mapping[str, Format] = {
    "csv": Format("csv", "CSV", "text/csv; charset=utf-8", _Csv),
    "parquet": Format("parquet", "Parquet", "application/vnd.apache.parquet", _parquet),
    "arrow": Format("arrow", "Arrow", "application/vnd.apache.arrow.file", pa.ipc.new_file),
    "json": Format("json", "JSON", "application/json", _Json),
}


def encoded(rows: pa.RecordBatchReader, form: Format) -> Iterator[tuple[int, bytes]]:
    """The file in pieces, each with the rows that it adds; closing the iterator closes the rows too."""
    kinds = [kind.value_type if pt.is_dictionary(kind) else kind for kind in rows.schema.types]
    sink, schema = _Tap(), pa.schema([field.with_type(kind) for field, kind in zip(rows.schema, kinds, strict=True)])
    groups = regrouped(rows, most_rows=PIECE_ROWS, most_bytes=PIECE_BYTES)
    group = next(groups, None)  # what cannot be read at all is known before the first byte
    writer = form.open(sink, schema)
    try:
        while group is not None:
            piece = pa.Table.from_batches(group).cast(schema)
            writer.write_table(piece)
            yield piece.num_rows, sink.take()
            group = next(groups, None)
        writer.close()
        yield 0, sink.take()
    finally:
        groups.close()  # type: ignore[attr-defined]


class _Tap(io.RawIOBase):
    """A file that is taken away while it is written."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._written = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, data: Any) -> int:
        held = bytes(data)
        self._held.append(held)
        self._written += len(held)
        return len(held)

    def take(self) -> bytes:
        held, self._held = b"".join(self._held), []
        return held


def _csv_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pt.is_nested(column.type) or pt.is_binary(column.type) or pt.is_large_binary(column.type):
        return pa.chunked_array([pa.array(map(_json, column), pa.string())])
    if pt.is_date(column.type) or pt.is_timestamp(column.type):
        return _far_as_text(column)
    return _safe_texts(column) if pt.is_string(column.type) or pt.is_large_string(column.type) else column


def _far_as_text(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Those that Arrow would write as another day, or as none, as Weir's texts; the others as Arrow writes them."""
    days = times.cast(pa.date32(), safe=False).cast(pa.int32())
    is_far = pc.or_(pc.less(days, -_TEXT_DAYS), pc.greater(days, _TEXT_DAYS))
    if not pc.any(is_far).as_py():
        return times
    far = pa.chunked_array([pa.array(map(_json, pc.if_else(is_far, times, None)), pa.string())])
    return pc.coalesce(far, pc.if_else(is_far, None, times).cast(pa.string()))


def _safe_texts(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts that no spreadsheet takes for a formula; null stays null."""
    if not pc.any(odd := pc.match_substring_regex(texts, _FORMULA)).as_py():
        return texts
    odd = pc.and_(odd, pc.invert(pc.match_substring_regex(texts, _NUMBER)))
    return pc.if_else(odd, pc.binary_join_element_wise("'", texts, ""), texts)


def _json(scalar: pa.Scalar) -> str | None:
    value = json_value(cell(scalar))
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()


# files that pages offer, each by a ticket that works once -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Exported:
    """What a file is made of. `source` names it in the log; `opened`: the rows while they are read, which another
    thread ends by the token."""

    source: str
    file_name: str
    form: Format
    opened: Callable[[CancelToken], AbstractContextManager[pa.RecordBatchReader]]


class ExportState(StrEnum):
    OFFERED = "offered"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


def exported_rows(
    lake: "Lake", snapshot: Snapshot, columns: Sequence[str], where: RowFilter | None, form: Format
) -> Exported:
    """The rows of a version that a filter lets through."""
    own = snapshot.ref.name.rstrip("/").rpartition("/")[2]
    some = "_filtered" if where is not None else ""

    def opened(token: CancelToken) -> AbstractContextManager[pa.RecordBatchReader]:
        return nullcontext(lake.read_files(snapshot, columns=columns, where=ended_by(token, where)))

    return Exported(snapshot.ref.name, f"{own}_v{snapshot.version}{some}.{form.suffix}", form, opened)


@dataclass(slots=True)
class Export:
    """One file on its way. One thread reads `pieces`; others look, and `stop` it."""

    rows: Exported
    viewer: str = ""
    ticket: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    state: ExportState = ExportState.OFFERED
    num_rows: int = 0
    size_bytes: int = 0
    end_reason: str = ""
    offered_at: float = field(default_factory=time.monotonic)
    _token: CancelToken = field(default_factory=CancelToken)

    def pieces(self) -> Iterator[bytes]:
        """The file in pieces; raises `Stopped`, or what the rows fail with. Left early, it is cancelled."""
        try:
            with self.rows.opened(self._token) as rows:
                for num_rows, piece in encoded(self._token.counted(rows), self.rows.form):
                    self._token.check()
                    self.num_rows, self.size_bytes = self.num_rows + num_rows, self.size_bytes + len(piece)
                    yield piece
            self.state = ExportState.DONE
        except (LakehouseError, Stopped) as exc:
            if isinstance(exc, LakehouseError):
                self.state = ExportState.FAILED
            raise
        except Exception as exc:
            self.state = ExportState.FAILED
            raise fault(exc) from exc
        finally:
            if self.state is ExportState.RUNNING:
                self.state = ExportState.CANCELLED

    def stop(self, reason: str = "cancelled") -> None:
        """End it; the file that a browser has so far is no whole one, and the browser is told so."""
        self.end_reason = self.end_reason or reason
        self._token.stop()
        if self.state in (ExportState.OFFERED, ExportState.RUNNING):
            self.state = ExportState.CANCELLED


class Exports:
    """The exports of this process. Thread-safe."""

    def __init__(
        self, *, at_once: int = AT_ONCE, per_viewer: int = AT_ONCE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._at_once, self._per_viewer, self._clock = at_once, per_viewer, clock
        self._lock = threading.Lock()
        self._offered: dict[str, Export] = {}  # by ticket
        self._taken: list[Export] = []

    def offer(self, rows: Exported, viewer: str = "") -> Export:
        """A new export, whose ticket can be taken once within `VALID_S`."""
        export = Export(rows, viewer, offered_at=self._clock())
        with self._lock:
            offered = [*self._offered.values(), export][-MOST_OFFERED:]
            self._offered = {other.ticket: other for other in offered if self.is_valid(other)}
        return export

    def is_valid(self, export: Export) -> bool:
        """Whether its ticket can still be taken."""
        return export.state is ExportState.OFFERED and self._clock() - export.offered_at < VALID_S

    def take(self, ticket: str) -> Export:
        """The export of a ticket, running from now on; raises `ExportError`."""
        with self._lock:
            export = self._offered.get(ticket)
            if export is None or not self.is_valid(export):
                raise ExportError("this link was used, or is too old", hint="ask for the file on the page again")
            self._taken = [taken for taken in self._taken if taken.state is ExportState.RUNNING]
            if len(self._taken) >= self._at_once:
                raise ExportError(f"{self._at_once} exports run already", hint="wait for one to end, or cancel it")
            if sum(taken.viewer == export.viewer for taken in self._taken) >= self._per_viewer:
                raise ExportError(f"{self._per_viewer} exports of yours run already", hint="wait, or cancel one")
            del self._offered[ticket]
            self._taken.append(export)
            export.state = ExportState.RUNNING
        return export
