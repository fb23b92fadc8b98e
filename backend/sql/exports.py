"""Exports that pages offer: each has a link of its own, which works once.

Rule: a link is a random ticket and says nothing itself: what it gives was fixed by a page that could read it. A ticket
that was used, is too old or was never given out gives nothing.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import pyarrow as pa

from backend.errors import ExportError, LakehouseError
from backend.lake.model import Snapshot
from backend.lake.rows.filters import Node
from backend.lru import Lru
from backend.sql.export import Format, encoded
from backend.work import Stopped

MOST_OFFERED = 256
AT_ONCE = 4  # each keeps a core busy
VALID_S = 600.0


class RowsReader(Protocol):
    """The part of `backend.lake.lake.Lake` that an export reads by."""

    def all_rows(
        self, snapshot: Snapshot, columns: Sequence[str], where: Node | None = None
    ) -> pa.RecordBatchReader: ...


class ExportState(StrEnum):
    OFFERED = "offered"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ExportedRows:
    """Which rows, in which format."""

    snapshot: Snapshot
    columns: tuple[str, ...]
    where: Node | None
    form: Format

    @property
    def file_name(self) -> str:
        own = self.snapshot.ref.name.rstrip("/").rpartition("/")[2]
        some = "_filtered" if self.where is not None else ""
        return f"{own}_v{self.snapshot.version}{some}.{self.form.suffix}"


@dataclass(slots=True)
class Export:
    """One file on its way. One thread reads `pieces`; others look, and `stop` it."""

    rows: ExportedRows
    ticket: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    state: ExportState = ExportState.OFFERED
    num_rows: int = 0
    size_bytes: int = 0
    problem: LakehouseError | None = None
    offered_at: float = field(default_factory=time.monotonic)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def pieces(self, lake: RowsReader) -> Iterator[bytes]:
        """The file in pieces; raises `Stopped`, or what the rows fail with. Left early, it is cancelled."""
        wanted = self.rows
        try:
            rows = lake.all_rows(wanted.snapshot, wanted.columns, wanted.where)
            checked = pa.RecordBatchReader.from_batches(rows.schema, self._checked(rows))
            for num_rows, piece in encoded(checked, wanted.form):
                self._check()
                self.num_rows, self.size_bytes = self.num_rows + num_rows, self.size_bytes + len(piece)
                yield piece
            self.state = ExportState.DONE
        except LakehouseError as exc:
            self.state, self.problem = ExportState.FAILED, exc
            raise
        finally:
            if self.state is ExportState.RUNNING:
                self.state = ExportState.CANCELLED

    def stop(self) -> None:
        """End it; the file that a browser has so far is no whole one, and the browser is told so."""
        self._stopped.set()
        if self.state in (ExportState.OFFERED, ExportState.RUNNING):
            self.state = ExportState.CANCELLED

    def _checked(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            self._check()
            yield batch

    def _check(self) -> None:
        if self._stopped.is_set():
            raise Stopped("cancelled")


class Exports:
    """The exports of this process. Thread-safe."""

    def __init__(self, *, at_once: int = AT_ONCE, clock: Callable[[], float] = time.monotonic) -> None:
        self._at_once, self._clock = at_once, clock
        self._lock = threading.Lock()
        self._offered: Lru[str, Export] = Lru(MOST_OFFERED)
        self._taken: list[Export] = []

    def offer(self, rows: ExportedRows) -> Export:
        """A new export, whose ticket can be taken once within `VALID_S`."""
        export = Export(rows, offered_at=self._clock())
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
            self._taken = [each for each in self._taken if each.state is ExportState.RUNNING]
            if len(self._taken) >= self._at_once:
                raise ExportError(f"{self._at_once} exports run already", hint="wait for one to end, or cancel it")
            self._offered.drop(ticket)
            self._taken.append(export)
            export.state = ExportState.RUNNING
        return export
