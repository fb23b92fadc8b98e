"""The reading in the background: what has arrived is shown, nobody waits for a big lake, one reading serves all."""

import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import pytest

from app.ui.lake import SMALL_LAKE, LakeReader, LakeReading
from backend.errors import StorageError
from backend.lake.catalog import Listing
from backend.lake.model import TableCard, TableRef, UnreadableTable
from tests.worlds.processes import wait_until

NOW = datetime(2026, 11, 20, tzinfo=UTC)


class Stub:
    """A catalog whose tables arrive one for each `more()`."""

    def __init__(self, number: int) -> None:
        self.refs = [TableRef(f"/lake/t{n:04d}", f"t{n:04d}", "/lake") for n in range(number)]
        self.problems: tuple[UnreadableTable, ...] = ()
        self.error: Exception | None = None
        self.passes = 0
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
            assert self._gate.acquire(timeout=60)
            yield TableCard(ref, self.passes, 1, 1, 1, 0, NOW, "WRITE")


def reader(stub: Stub, *, refresh_s: float = 60.0) -> LakeReader:
    return LakeReader(stub, refresh_s=refresh_s, now=lambda: NOW)


def until(reader: LakeReader, number: int) -> LakeReading:
    wait_until(lambda: reader.reading().num_read == number, f"{number} tables have arrived")
    return reader.reading()


def test_a_big_lake_is_shown_as_it_arrives() -> None:
    stub = Stub(SMALL_LAKE + 50)
    lake = reader(stub)
    first = lake.reading()  # while no table can be read yet
    assert (first.num_read, first.num_found, first.is_complete) == (0, SMALL_LAKE + 50, False)
    stub.more(7)
    some = until(lake, 7)
    assert [table.ref.name for table in some.tables] == [f"t{n:04d}" for n in range(7)] and not some.is_complete
    stub.more(SMALL_LAKE + 43)
    assert until(lake, SMALL_LAKE + 50).is_complete
    assert stub.passes == 1


def test_a_small_lake_is_whole_at_once_with_what_could_not_be_listed() -> None:
    stub = Stub(3)
    stub.problems = (UnreadableTable(TableRef("/lake/x", "x", "/lake"), "no permission", ""),)
    stub.more(3)
    found = reader(stub).reading()
    assert found.is_complete and found.names == ("t0000", "t0001", "t0002", "x") and found.num_read == 4


def test_viewers_share_one_reading() -> None:
    stub = Stub(5)
    lake = reader(stub)
    seen: list[LakeReading] = []
    viewers = [threading.Thread(target=lambda: seen.append(lake.reading())) for _ in range(8)]
    for viewer in viewers:
        viewer.start()
    stub.more(5)
    for viewer in viewers:
        viewer.join(60)
    assert stub.passes == 1 and len(seen) == 8 and all(each.is_complete for each in seen)


def test_a_later_pass_keeps_what_is_known_and_drops_what_is_gone() -> None:
    stub = Stub(3)
    stub.more(3)
    lake = reader(stub, refresh_s=0.0)
    assert lake.reading().num_read == 3
    del stub.refs[0]
    stub.more(1)
    wait_until(lambda: lake.reading() and stub.passes == 2, "the next pass, after the rest that the first one earned")
    kept = lake.reading()
    assert kept.is_complete and kept.names == ("t0001", "t0002")
    stub.more(1)


def test_a_pass_that_fails_is_told_and_tried_again() -> None:
    stub = Stub(1)
    stub.error = StorageError("the bucket does not answer")
    lake = reader(stub, refresh_s=0.01)
    with pytest.raises(StorageError, match="does not answer"):
        lake.reading()
    stub.error = None
    stub.more(1)
    wait_until(lambda: is_read(lake), "the next pass")
    assert lake.reading().num_read == 1


def is_read(lake: LakeReader) -> bool:
    try:
        lake.reading()
    except StorageError:
        return False
    return True
