"""Net changes out of a change feed; a feed counted without its rows; the rows of a feed as they are."""

import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from backend.changes.commits import FEED_COLUMNS, FeedRows, counted_by_feed, feed_rows, sum_up
from backend.changes.model import CommitChanges, NetCounts, Question, RowChanges, RowKind
from backend.errors import DataFileMissingError, DiffError, TableCorruptError
from backend.lake.lake import Lake
from backend.lake.model import Commit, OperationMetrics, TableRef
from backend.sql.session import CancelToken
from backend.work import Stopped
from tests.worlds.cases import drawn
from tests.worlds.lake.builders import CHANGE_FEED, HandLog, add, commit_info, metadata, protocol, remove, write
from tests.worlds.lake.diffs import NOWHERE, lake_at

Event = tuple[int, str, tuple[Any, ...]]
INS, PRE, POST, DEL = "insert", "update_preimage", "update_postimage", "delete"


def feed(events: list[Event]) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    table = pa.Table.from_pylist([{"id": number, "v": value} for _, _, (number, value) in events], schema)
    table = table.append_column("_change_type", pa.array([kind for _, kind, _ in events], pa.string()))
    table = table.append_column("_commit_version", pa.array([version for version, _, _ in events], pa.uint64()))
    stamps = pa.array([datetime(2026, 1, 1)] * len(events), pa.timestamp("ms"))
    return table.append_column("_commit_timestamp", stamps)


def summed(events: list[Event], key: tuple[str, ...] = ("id",)) -> RowChanges:
    changes, _, _ = sum_up(feed(events), key, Question(NOWHERE, 0, 1, row_limit=1_000), CancelToken())
    return changes


def updated(version: int, old: Any, new: Any) -> list[Event]:
    return [(version, PRE, old), (version, POST, new)]


@pytest.mark.parametrize(
    ("events", "net"),
    [
        ([(1, INS, (1, "a")), (2, DEL, (2, "b"))], NetCounts(1, 0, 1)),
        ([*updated(1, (1, "a"), (1, "b")), (2, DEL, (2, "b"))], NetCounts(1, None, 2)),
        ([*updated(1, (1, "a"), (1, "b")), (2, INS, (2, "c"))], NetCounts(2, None, 1)),
        ([*updated(1, (1, "a"), (1, "b")), (1, INS, (2, "c")), (2, DEL, (3, "d"))], NetCounts(2, None, 2)),
    ],
)
def test_without_a_key_counts_are_of_the_rows_that_are_listed(events: list[Event], net: NetCounts) -> None:
    answer = summed(events, key=())
    assert answer.net == net
    assert {row.kind for row in answer.rows} <= {RowKind.INSERT, RowKind.DELETE}
    assert all(row.key is None for row in answer.rows)
    assert Counter(row.kind for row in answer.rows) == {RowKind.INSERT: net.inserted, RowKind.DELETE: net.deleted}
    repeated = summed([(1, INS, (1, "a"))] * 3 + [(2, DEL, (1, "a"))], key=())
    assert [(row.kind, row.copies) for row in repeated.rows] == [(RowKind.INSERT, 2)]


def test_an_unknown_change_type_is_an_error() -> None:
    with pytest.raises(DiffError, match="unknown change type"):
        summed([(3, "truncate", (1, "a"))])


def test_what_an_operation_cannot_do_is_zero_where_its_writer_leaves_it_out() -> None:
    def counts(operation: str, metrics: OperationMetrics, **parameters: Any) -> tuple[int | None, ...]:
        commit = Commit(1, None, operation, parameters, metrics, {}, None, None, None)
        reported = CommitChanges.reported(commit)
        assert reported.is_reported
        return reported.inserted, reported.updated, reported.deleted

    assert counts("UPDATE", OperationMetrics(rows_updated=3)) == (0, 3, 0)
    assert counts("DELETE", OperationMetrics(rows_deleted=2)) == (0, 0, 2)
    assert counts("DELETE", OperationMetrics()) == (None, None, None)
    assert counts("WRITE", OperationMetrics(rows_inserted=5), mode="Append") == (5, 0, 0)
    assert counts("STREAMING UPDATE", OperationMetrics(rows_inserted=5), outputMode="Append") == (5, 0, 0)
    assert counts("WRITE", OperationMetrics(rows_inserted=5), mode="Overwrite") == (5, None, None)
    assert counts("MERGE", OperationMetrics(rows_inserted=5)) == (5, None, None)


# -- property: replaying net changes of a → b over a gives b ----------------------------------------------------------

Row = tuple[int | None, str | None]
rows_st = st.tuples(st.one_of(st.none(), st.integers(0, 6)), st.one_of(st.none(), st.sampled_from("abc")))


@st.composite
def histories(draw: st.DrawFn, *, unique: bool) -> tuple[list[Row], list[Row], list[Event]]:
    """A first state, the state after some commits, and the feed they leave, its rows shuffled inside the commit."""
    first = draw(st.lists(rows_st, max_size=6))
    if unique:
        first = list({row[0]: row for row in first if row[0] is not None}.values())
    state, events = list(first), list[Event]()
    for version in range(1, draw(st.integers(1, 4)) + 1):
        commit = list[Event]()
        for index in reversed(range(len(state))):
            what = draw(st.sampled_from(["keep", "keep", "update", "delete"]))
            old = state[index]
            if what == "update":
                state[index] = (old[0], draw(rows_st)[1]) if unique else draw(rows_st)
                commit += updated(version, old, state[index])
            elif what == "delete":
                del state[index]
                commit.append((version, DEL, old))
        for row in draw(st.lists(rows_st, max_size=3)):
            if not unique or (row[0] is not None and all(row[0] != other[0] for other in state)):
                state.append(row)
                commit.append((version, INS, row))
        events += draw(st.permutations(commit))
    return first, state, events


@pytest.mark.parametrize(("unique", "key"), [(True, ("id",)), (False, ("id",)), (False, ())])
@drawn(15)
@given(data=st.data())
def test_net_changes_carry_the_first_state_to_the_last(data: st.DataObject, unique: bool, key: tuple[str, ...]) -> None:
    first, last, events = data.draw(histories(unique=unique))
    answer = summed(events, key)
    state = Counter(first)
    for row in answer.rows:
        for cells, sign in ((row.before, -1), (row.after, 1)):
            if cells is not None:
                state[cells["id"], cells["v"]] += sign * row.copies
    assert all(count >= 0 for count in state.values()), "took away a row that was not there"
    assert +state == Counter(last)
    if unique:
        before, after = dict(first), dict(last)
        common = before.keys() & after.keys()
        changed = sum(before[number] != after[number] for number in common)
        assert answer.net == NetCounts(len(after.keys() - common), changed, len(before.keys() - common))
        assert answer.apart.rows == 0


# counted without its rows ---------------------------------------------------------------------------------------------


VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}


def counted(lake: Lake, ref: TableRef, first: int, last: int) -> dict[tuple[int, str], int]:
    counts = {version: lake.change_counts(ref, version) for version in range(first + 1, last + 1)}
    return {(version, kind): rows for version, kinds in counts.items() for kind, rows in kinds.items() if rows}


@pytest.fixture
def log(tmp_path: Path) -> HandLog:
    """v0 the feed is on, v1 a file of ten rows with two of them marked as deleted."""
    log = HandLog(tmp_path / "t").commit(protocol(), metadata(configuration=CHANGE_FEED), commit_info())
    pq.write_table(pa.table({"id": list(range(10))}), tmp_path / "t" / "a")
    return log.commit(add("a", dv=VECTOR | {"cardinality": 2}), commit_info())


def change_file(log: HandLog, name: str, types: list[str | None]) -> dict[str, object]:
    path = log.table / "_change_data" / name
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": [1] * len(types), "_change_type": pa.array(types, pa.string())}), path)
    return {"cdc": {"path": f"_change_data/{name}", "partitionValues": {}, "size": 1, "dataChange": False}}


def test_vectors_are_counted_and_not_read_where_deltalake_misreads_them(log: HandLog) -> None:
    """A file that goes with its vector: `load_cdf` would give the two rows that the vector marks."""
    log.commit(remove("a", dv=VECTOR | {"cardinality": 2}), add("a", dv=VECTOR | {"cardinality": 5, "offset": 9}))
    log.commit(remove("a", dv=VECTOR | {"cardinality": 5, "offset": 9}), commit_info("DELETE"))
    lake = lake_at(log.table.parent)
    (ref,) = lake.tables()
    assert counted(lake, ref, 0, 3) == {(1, "insert"): 8, (2, "delete"): 3, (3, "delete"): 5}
    assert lake.cdf_support(ref, 1, 2).covered
    for first, last in ((2, 3), (0, 1)):
        support = lake.cdf_support(ref, first, last)
        assert not support.covered and f"commit {last} removes or adds whole files with deletion" in support.reason


def test_what_cannot_be_counted_is_told(log: HandLog) -> None:
    log.commit(change_file(log, "torn", ["insert", None]), commit_info())
    log.commit(remove("a", dv=VECTOR | {"cardinality": 2}), add("a"), commit_info("RESTORE"))
    log.commit(change_file(log, "deletes", ["delete"] * 3), remove("a"), commit_info())
    log.commit(metadata(), commit_info())
    lake = lake_at(log.table.parent)
    (ref,) = lake.tables()
    with pytest.raises(TableCorruptError, match="rows without a change type"):
        lake.change_counts(ref, 2)
    with pytest.raises(DiffError, match="commit 3 brings back rows of a"):
        lake.change_counts(ref, 3)
    assert lake.change_counts(ref, 4) == {"delete": 3}, "one type a file is known from its statistics"
    with pytest.raises(DiffError, match="was off at version 5"):
        lake.change_counts(ref, 5)
    (log.table / "_change_data" / "torn").unlink()
    with pytest.raises(DataFileMissingError, match=r"_change_data/torn .* is gone"):
        lake.change_counts(ref, 2)
    token = CancelToken()
    token.stop()
    with pytest.raises(Stopped):
        counted_by_feed(lake, ref, lake.history(ref), token)


# its rows -------------------------------------------------------------------------------------------------------------


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


def test_every_row_is_there_by_version_or_the_first_ones_where_that_is_said(orders: Path, lake: Lake) -> None:
    found = feed_rows(lake, lake.find("orders"), (0, 6), limit=1_000)
    theirs = pa.table(DeltaTable(str(orders)).load_cdf(starting_version=1, ending_version=6).read_all()).to_pylist()
    want = [(row["_commit_version"], row["_change_type"], row["id"], row["status"]) for row in theirs]
    assert sorted(lines(found)) == sorted(want) and len(want) == 2 + 1 + 2 + 4 + 40
    assert [line[0] for line in lines(found)] == sorted(line[0] for line in want)
    assert found.rows.column_names == [*FEED_COLUMNS, "id", "status", "note"]
    assert not found.truncated
    versions = [line[0] for line in lines(found)]
    for limit in (0, 1, 2, 5, 9, 48, 49, 50):
        cut = feed_rows(lake, lake.find("orders"), (0, 6), limit=limit)
        assert [line[0] for line in lines(cut)] == versions[:limit]
        assert cut.truncated is (limit < 49)


def test_its_times_are_those_of_the_commits_not_what_writers_reported(orders: Path, lake: Lake) -> None:
    started = datetime(2026, 1, 1, tzinfo=UTC)
    of_files = dict(enumerate((0, 60, 120, 30, 180, 240, 300)))  # v3 by a clock that was late
    for version, seconds in of_files.items():
        moment = started.timestamp() + seconds
        os.utime(orders / "_delta_log" / f"{version:020}.json", (moment, moment))
    found = feed_rows(lake, lake.find("orders"), (0, 6), limit=1_000)
    moments = {row["_commit_version"]: row["_commit_timestamp"] for row in found.rows.to_pylist()}
    want = {version: started + timedelta(seconds=of_files[version]) for version in (1, 2, 5, 6)}
    assert moments == want | {3: want[2] + timedelta(milliseconds=1)}


def test_a_range_that_the_feed_does_not_cover_is_refused(root: Path, lake: Lake) -> None:
    write(root / "plain", {"id": [1]})
    write(root / "plain", {"id": [2]})
    with pytest.raises(DiffError, match="the change feed was off") as refused:
        feed_rows(lake, lake.find("plain"), (0, 1), limit=10)
    assert "delta.enableChangeDataFeed=true" in refused.value.hint
    with pytest.raises(DiffError, match="no range"):
        feed_rows(lake, lake.find("plain"), (1, 1), limit=10)
