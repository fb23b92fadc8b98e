"""A lake whose tables arrive when the test says so."""

import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from backend.lake.catalog import Listing
from backend.lake.model import TableCard, TableRef, UnreadableTable

NOW = datetime(2026, 11, 20, tzinfo=UTC)


class ArrivingLake:
    """A catalog of so many tables; `more(7)` lets seven arrive."""

    def __init__(self, number: int, committed_at: datetime = NOW) -> None:
        self.refs = [TableRef(f"/lake/t{n:04d}", f"t{n:04d}", "/lake") for n in range(number)]
        self.problems: tuple[UnreadableTable, ...] = ()
        self.error: Exception | None = None
        self.passes = 0
        self.committed_at = committed_at
        self._gate = threading.Semaphore(0)

    def more(self, number: int) -> None:
        self._gate.release(number)

    def found(self) -> Listing:
        self.passes += 1
        if self.error:
            raise self.error
        return Listing(tuple(self.refs), self.problems)

    def read_cards(self, refs: Sequence[TableRef]) -> Iterator[TableCard]:
        for ref in refs:
            assert self._gate.acquire(timeout=600)
            yield TableCard(ref, self.passes, 1, 1, 1, 0, self.committed_at, "WRITE")
