"""Rows of a change feed as they are: as deltalake's own reader has them, cut at a limit, refused without a feed."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from backend.changes.feed_rows import FEED_COLUMNS, FeedRows, feed_rows
from backend.errors import DiffError
from backend.lake.lake import Lake
from tests.worlds.lake.builders import CHANGE_FEED, write


@pytest.fixture
def orders(root: Path) -> Path:
    """v0 three rows, v1 two more, v2 a column added with a row of it, v3 an update, v4 a compaction, v5 a delete of
    four, v6 forty rows."""
    path = root / "orders"
    write(path, {"id": [1, 2, 3], "status": ["new"] * 3}, configuration=CHANGE_FEED)
    write(path, {"id": [4, 5], "status": ["new"] * 2})
    write(path, {"id": [6], "status": ["new"], "note": ["x"]}, schema_mode="merge")
    DeltaTable(str(path)).update(updates={"status": "'paid'"}, predicate="id = 2")
    DeltaTable(str(path)).optimize.compact()
    DeltaTable(str(path)).delete("id <= 4")
    write(path, {"id": list(range(100, 140)), "status": ["new"] * 40, "note": ["y"] * 40})
    return path


def lines(found: FeedRows) -> list[tuple[object, ...]]:
    return [(row["_commit_version"], row["_change_type"], row["id"], row["status"]) for row in found.rows.to_pylist()]


def test_every_row_is_there_by_version_as_the_feed_holds_it(orders: Path, open_lake) -> None:
    lake: Lake = open_lake()
    found = feed_rows(lake, lake.find("orders"), (0, 6), limit=1_000)
    theirs = pa.table(DeltaTable(str(orders)).load_cdf(starting_version=1, ending_version=6).read_all()).to_pylist()
    want = [(row["_commit_version"], row["_change_type"], row["id"], row["status"]) for row in theirs]
    assert sorted(lines(found)) == sorted(want) and len(want) == 2 + 1 + 2 + 4 + 40
    assert [line[0] for line in lines(found)] == sorted(line[0] for line in want)
    assert found.rows.column_names == [*FEED_COLUMNS, "id", "status", "note"]
    assert not found.truncated


def test_its_times_are_those_of_the_commits_not_what_writers_reported(orders: Path, open_lake) -> None:
    started = datetime(2026, 1, 1, tzinfo=UTC)
    of_files = dict(enumerate((0, 60, 120, 30, 180, 240, 300)))  # v3 by a clock that was late
    for version, seconds in of_files.items():
        moment = started.timestamp() + seconds
        os.utime(orders / "_delta_log" / f"{version:020}.json", (moment, moment))
    lake: Lake = open_lake()
    found = feed_rows(lake, lake.find("orders"), (0, 6), limit=1_000)
    moments = {row["_commit_version"]: row["_commit_timestamp"] for row in found.rows.to_pylist()}
    want = {version: started + timedelta(seconds=of_files[version]) for version in (1, 2, 5, 6)}
    assert moments == want | {3: want[2] + timedelta(milliseconds=1)}


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 4, 5, 8, 9, 10, 48, 49, 50])
def test_a_limit_keeps_the_first_by_version_and_says_that_it_cut(orders: Path, open_lake, limit: int) -> None:
    lake: Lake = open_lake()
    ref = lake.find("orders")
    versions = [line[0] for line in lines(feed_rows(lake, ref, (0, 6), limit=1_000))]
    found = feed_rows(lake, ref, (0, 6), limit=limit)
    assert [line[0] for line in lines(found)] == versions[:limit]
    assert found.truncated is (limit < 49)


def test_a_range_that_the_feed_does_not_cover_is_refused(root: Path, open_lake) -> None:
    write(root / "plain", {"id": [1]})
    write(root / "plain", {"id": [2]})
    lake: Lake = open_lake()
    with pytest.raises(DiffError, match="the change feed was off") as refused:
        feed_rows(lake, lake.find("plain"), (0, 1), limit=10)
    assert "delta.enableChangeDataFeed=true" in refused.value.hint
    with pytest.raises(DiffError, match="no range"):
        feed_rows(lake, lake.find("plain"), (1, 1), limit=10)
