"""The reading in the background: what has arrived is shown, nobody waits for a big lake, one reading serves all."""

import threading
from contextlib import suppress

import pytest

from app.ui.lake import SMALL_LAKE, LakeReader, LakeReading
from backend.errors import StorageError
from backend.lake.model import TableRef, UnreadableTable
from tests.worlds.pages.arriving import NOW, ArrivingLake
from tests.worlds.processes import wait_until


def reader(stub: ArrivingLake, *, refresh_s: float = 60.0) -> LakeReader:
    return LakeReader(stub, refresh_s=refresh_s, now=lambda: NOW)


def until(reader: LakeReader, number: int) -> LakeReading:
    wait_until(lambda: reader.reading().num_read == number, f"{number} tables have arrived")
    return reader.reading()


def test_a_big_lake_is_shown_as_it_arrives() -> None:
    stub = ArrivingLake(SMALL_LAKE + 50)
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
    stub = ArrivingLake(3)
    stub.problems = (UnreadableTable(TableRef("/lake/x", "x", "/lake"), "no permission", ""),)
    stub.more(3)
    found = reader(stub).reading()
    assert found.is_complete and found.names == ("t0000", "t0001", "t0002", "x") and found.num_read == 4


def test_viewers_share_one_reading() -> None:
    stub = ArrivingLake(5)
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
    stub = ArrivingLake(3)
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
    def is_read() -> bool:
        with suppress(StorageError):
            return lake.reading().num_read == 1
        return False

    stub = ArrivingLake(1)
    stub.error = StorageError("the bucket does not answer")
    lake = reader(stub, refresh_s=0.01)
    with pytest.raises(StorageError, match="does not answer"):
        lake.reading()
    stub.error = None
    stub.more(1)
    wait_until(is_read, "the next pass")
