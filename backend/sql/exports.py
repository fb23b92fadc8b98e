"""Exports that pages offer: how large the file will be, and a link of its own for each, which works once.

Rule: a link is a random ticket and says nothing itself: what it gives was fixed by a page that could read it. A ticket
that was used, is too old or was never given out gives nothing. A number of rows that the log counts is exact; else it
is estimated from sampled files that were read whole, or unknown.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backend.caches import Lru
from backend.errors import ExportError, LakehouseError, fault
from backend.lake.model import FILE_COLUMNS, Snapshot
from backend.lake.rows.filters import RowFilter
from backend.lake.rows.rows import candidates
from backend.lake.storage.paths import is_remote
from backend.sql.export import FORMATS, Format, encoded
from backend.sql.filters import ended_by
from backend.sql.session import CancelToken
from backend.work import Stopped

MOST_OFFERED = 256
AT_ONCE = 4  # each keeps a core busy
VALID_S = 600.0


class RowsReader(Protocol):
    """The part of `backend.lake.lake.Lake` that an export reads by."""

    def read_files(
        self,
        snapshot: Snapshot,
        files: pa.Table | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: RowFilter | None = None,
    ) -> pa.RecordBatchReader: ...


class Exported(Protocol):
    """What a file is made of. `source` names it in the log."""

    @property
    def source(self) -> str: ...
    @property
    def file_name(self) -> str: ...
    @property
    def form(self) -> Format: ...
    def opened(self, lake: RowsReader, token: CancelToken) -> AbstractContextManager[pa.RecordBatchReader]:
        """The rows while they are read; `token` ends it from another thread."""
        ...


class ExportState(StrEnum):
    OFFERED = "offered"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ExportedRows:
    """Which rows of a table, in which format."""

    snapshot: Snapshot
    columns: tuple[str, ...]
    where: RowFilter | None
    form: Format

    @property
    def source(self) -> str:
        return self.snapshot.ref.name

    @property
    def file_name(self) -> str:
        own = self.snapshot.ref.name.rstrip("/").rpartition("/")[2]
        some = "_filtered" if self.where is not None else ""
        return f"{own}_v{self.snapshot.version}{some}.{self.form.suffix}"

    def opened(self, lake: RowsReader, token: CancelToken) -> AbstractContextManager[pa.RecordBatchReader]:
        where = ended_by(token, self.where)
        return nullcontext(lake.read_files(self.snapshot, columns=self.columns, where=where))


@dataclass(slots=True)
class Export:
    """One file on its way. One thread reads `pieces`; others look, and `stop` it."""

    rows: Exported
    viewer: str = ""
    ticket: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    state: ExportState = ExportState.OFFERED
    num_rows: int = 0
    size_bytes: int = 0
    problem: LakehouseError | None = None
    end_reason: str = ""
    offered_at: float = field(default_factory=time.monotonic)
    _token: CancelToken = field(default_factory=CancelToken)

    def pieces(self, lake: RowsReader) -> Iterator[bytes]:
        """The file in pieces; raises `Stopped`, or what the rows fail with. Left early, it is cancelled."""
        try:
            with self.rows.opened(lake, self._token) as rows:
                checked = pa.RecordBatchReader.from_batches(rows.schema, self._checked(rows))
                for num_rows, piece in encoded(checked, self.rows.form):
                    self._token.check()
                    self.num_rows, self.size_bytes = self.num_rows + num_rows, self.size_bytes + len(piece)
                    yield piece
            self.state = ExportState.DONE
        except (LakehouseError, Stopped) as exc:
            if isinstance(exc, LakehouseError):
                self.state, self.problem = ExportState.FAILED, exc
            raise
        except Exception as exc:
            self.state, self.problem = ExportState.FAILED, fault(exc)
            raise self.problem from exc
        finally:
            if self.state is ExportState.RUNNING:
                self.state = ExportState.CANCELLED

    def stop(self, reason: str = "cancelled") -> None:
        """End it; the file that a browser has so far is no whole one, and the browser is told so."""
        self.end_reason = self.end_reason or reason
        self._token.stop()
        if self.state in (ExportState.OFFERED, ExportState.RUNNING):
            self.state = ExportState.CANCELLED

    def _checked(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            self._token.check()
            yield batch


class Exports:
    """The exports of this process. Thread-safe."""

    def __init__(
        self, *, at_once: int = AT_ONCE, per_viewer: int = AT_ONCE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._at_once, self._per_viewer, self._clock = at_once, per_viewer, clock
        self._lock = threading.Lock()
        self._offered: Lru[str, Export] = Lru(MOST_OFFERED)
        self._taken: list[Export] = []

    def offer(self, rows: Exported, viewer: str = "") -> Export:
        """A new export, whose ticket can be taken once within `VALID_S`."""
        export = Export(rows, viewer, offered_at=self._clock())
        self._offered.put(export.ticket, export)
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
            self._offered.drop(ticket)
            self._taken.append(export)
            export.state = ExportState.RUNNING
        return export


# how large a file will be, from a sample of its rows ------------------------------------------------------------

SAMPLE_ROWS, SAMPLE_FILES, SAMPLE_S = 20_000, 8, 1.0


@dataclass(frozen=True, slots=True)
class SizeEstimate:
    """`rows`: None where it is unknown. `sizes_bytes`: by format, None where a size is. `sampled_files` is None where
    the sample are the rows that a page shows."""

    rows: int | None
    is_counted: bool
    sizes_bytes: Mapping[str, int | None]
    sampled_rows: int
    sampled_files: int | None


@dataclass(frozen=True, slots=True)
class _Sample:
    """`whole_rows` of files that were read to their end, which are `whole_bytes` large."""

    rows: pa.Table
    files: int
    whole_rows: int
    whole_bytes: int


def estimated_from(seen: pa.Table, rows: int | None) -> SizeEstimate:
    """By rows that a page has read, which are all where there are as many; `rows` is None where nobody counted."""
    return SizeEstimate(rows, rows is not None, _sizes(seen, rows), seen.num_rows, None)


def estimated(
    lake: RowsReader, snapshot: Snapshot, columns: Sequence[str], where: RowFilter | None, *, seen: pa.Table
) -> SizeEstimate:
    """Reads some rows (at most `SAMPLE_S` or so); on an object store `seen` is the sample, which a page has read."""
    counted = snapshot.num_rows if where is None else None
    if is_remote(snapshot.ref.uri):
        return estimated_from(seen, counted)
    numbers = candidates(snapshot, where)
    files = snapshot.rows_at(numbers, FILE_COLUMNS)
    sample = _sample(lake, snapshot, files, columns, where)
    rows = counted
    if rows is None and not len(numbers):
        rows = 0
    elif rows is None and sample.whole_bytes:
        rows = round(sample.whole_rows * (pc.sum(files["size_bytes"]).as_py() / sample.whole_bytes))
    is_counted = counted is not None or (sample.files == len(numbers) and sample.whole_rows == sample.rows.num_rows)
    return SizeEstimate(rows, is_counted, _sizes(sample.rows, rows), sample.rows.num_rows, sample.files)


def _sample(
    lake: RowsReader, snapshot: Snapshot, files: pa.Table, columns: Sequence[str], where: RowFilter | None
) -> _Sample:
    """Rows of files that are evenly spread."""
    until = time.monotonic() + SAMPLE_S
    chosen = sorted({round(n) for n in np.linspace(0, max(0, len(files) - 1), min(SAMPLE_FILES, len(files)))})
    batches: list[pa.RecordBatch] = []
    found = opened = whole_rows = whole_bytes = 0
    schema = lake.read_files(snapshot, files.slice(0, 0), columns=columns).schema
    for number in chosen:
        of_file, is_whole = 0, True
        for batch in lake.read_files(snapshot, files.slice(number, 1), columns=columns, where=where):
            batches.append(batch)
            of_file += batch.num_rows
            if found + of_file >= SAMPLE_ROWS or time.monotonic() > until:
                is_whole = False
                break
        found, opened = found + of_file, opened + 1
        if is_whole:
            whole_rows, whole_bytes = whole_rows + of_file, whole_bytes + files["size_bytes"][number].as_py()
        if not is_whole or time.monotonic() > until:
            break
    return _Sample(pa.Table.from_batches(batches, schema), opened, whole_rows, whole_bytes)


def _sizes(sample: pa.Table, rows: int | None) -> dict[str, int | None]:
    if rows is None or (rows and not sample.num_rows):
        return dict.fromkeys(FORMATS)
    part = sample.slice(0, SAMPLE_ROWS)
    found: dict[str, int | None] = {}
    for name, form in FORMATS.items():
        size = sum(len(piece) for _, piece in encoded(part.to_reader(), form))
        found[name] = round(size * rows / part.num_rows) if part.num_rows else size
    return found
