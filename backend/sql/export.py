"""Rows as a file: CSV, Parquet, Arrow or JSON, made piece by piece as they are read.

Rule: memory is that of one piece, nothing is written to disk, and no format changes a value's digits. Parquet and Arrow
hold the values as they are. JSON is a list of objects, each value as `json_value` has it. CSV has nested values as
JSON, binary as base64, null as an empty cell, and no text that a spreadsheet would take for a formula: such text gets
an apostrophe in front, a number kept as text (a decimal) stays one.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from backend.cells import cell, row_cells
from backend.sql.values import json_value

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_FORMULA = f"^[{''.join(_FORMULA_STARTS).replace('-', chr(92) + '-')}]"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)$"
PIECE_ROWS, PIECE_BYTES = 65_536, 16 << 20
_JSON_ROWS = 1_000  # as Python values they take many times their size
_TEXT_DAYS = 11_000_000  # since 1970, some 30,000 years
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # a spreadsheet takes the file for UTF-8


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


def _arrow(sink: io.RawIOBase, schema: pa.Schema) -> _Writer:
    writer: _Writer = pa.ipc.new_file(sink, schema)
    return writer


FORMATS: Mapping[str, Format] = {
    "csv": Format("csv", "CSV", "text/csv; charset=utf-8", _Csv),
    "parquet": Format("parquet", "Parquet", "application/vnd.apache.parquet", _parquet),
    "arrow": Format("arrow", "Arrow", "application/vnd.apache.arrow.file", _arrow),
    "json": Format("json", "JSON", "application/json", _Json),
}


def encoded(rows: pa.RecordBatchReader, form: Format) -> Iterator[tuple[int, bytes]]:
    """The file in pieces, each with the rows that it adds; closing the iterator closes the rows too."""
    sink, schema = _Tap(), pa.schema([field.with_type(_plain(field.type)) for field in rows.schema])
    pieces = _pieces(rows)
    piece = next(pieces, None)  # what cannot be read at all is known before the first byte
    writer = form.open(sink, schema)
    try:
        while piece is not None:
            writer.write_table(piece.cast(schema))
            yield piece.num_rows, sink.take()
            piece = next(pieces, None)
        writer.close()
        yield 0, sink.take()
    finally:
        pieces.close()  # type: ignore[attr-defined]


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        step = max(1, PIECE_BYTES * batch.num_rows // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, step):
            part = batch.slice(start, step)
            if waiting and (rows + part.num_rows > PIECE_ROWS or size + part.nbytes > PIECE_BYTES):
                yield pa.Table.from_batches(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
    if waiting:
        yield pa.Table.from_batches(waiting)


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


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pt.is_dictionary(kind) else kind


def _csv_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pt.is_nested(column.type) or _is_binary(column.type):
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


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind))


def _json(scalar: pa.Scalar) -> str | None:
    value = json_value(cell(scalar))
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
