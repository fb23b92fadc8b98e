"""Diffs of real tables: by key and without, against a naive recount of the feed, and where the feed is not."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from backend.changes.key import key_memory
from backend.changes.model import (
    DiffMethod,
    KeySource,
    NetCounts,
    RowKind,
    VersionDiff,
)
from backend.errors import DataFileMissingError, DiffError, QueryError, VersionNotFoundError
from backend.lake.lake import Lake
from backend.settings import load_settings
from tests.worlds.cases import drawn
from tests.worlds.lake.builders import HandLog, add, commit_info, metadata, protocol, remove
from tests.worlds.lake.diffs import diff

FEED = {"delta.enableChangeDataFeed": "true"}
SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "tables"


def lake_at(root: Path) -> Lake:
    return Lake(load_settings(home=root / "home", lake={"roots": [str(root)], "refresh_s": 0.001}))


def compare(root: Path, first: int, last: int, **options: Any) -> VersionDiff:
    lake = lake_at(root)
    (ref,) = lake.tables()
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    return diff(lake, ref, first, last, **options)


def table(ids: Sequence[int | None], values: Sequence[str | None]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.string())})


def merge(path: Path, rows: pa.Table, predicate: str = "t.id = s.id") -> None:
    (
        DeltaTable(path)
        .merge(rows, predicate=predicate, source_alias="s", target_alias="t")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """v0 create · v1 append · v2 update · v3 merge · v4 compaction · v5 delete."""
    path = tmp_path / "orders"
    write_deltalake(path, table([1, 2, 3], ["a", "b", "c"]), configuration=FEED)
    write_deltalake(path, table([4, 5], ["d", "e"]), mode="append")
    DeltaTable(path).update(updates={"v": "'z'"}, predicate="id < 3")
    merge(path, table([1, 9], ["m", "n"]))
    DeltaTable(path).optimize.compact()
    DeltaTable(path).delete("id = 3")
    return tmp_path


def test_every_commit_gross_and_the_whole_net(orders: Path) -> None:
    found = compare(orders, 0, 5)
    assert (found.method, found.exact) == (DiffMethod.CHANGE_FEED, True)
    assert found.key is not None
    assert (found.key.columns, found.key.source) == (("id",), KeySource.MERGE)
    assert found.changes.net == NetCounts(3, 2, 1)
    gross = {c.commit.version: (c.commit.operation, c.inserted, c.updated, c.deleted) for c in found.commits}
    assert gross == {
        1: ("WRITE", 2, 0, 0),
        2: ("UPDATE", 0, 2, 0),
        3: ("MERGE", 1, 1, 0),
        4: ("OPTIMIZE", 0, 0, 0),
        5: ("DELETE", 0, 0, 1),
    }
    updates = {
        row.key["id"]: (row.before, row.after) for row in found.changes.rows if row.kind is RowKind.UPDATE and row.key
    }
    assert updates == {1: ({"id": 1, "v": "a"}, {"id": 1, "v": "m"}), 2: ({"id": 2, "v": "b"}, {"id": 2, "v": "z"})}
    assert found.log.files.added and found.log.files.removed and found.log.files.bytes_added


def test_reverse_is_what_going_back_would_change(orders: Path) -> None:
    there, back = compare(orders, 1, 5), compare(orders, 5, 1)
    assert back.is_reverse
    assert back.changes.net == NetCounts(
        there.changes.net.deleted, there.changes.net.updated, there.changes.net.inserted
    )
    assert (back.log.files.added, back.log.files.bytes_removed) == (
        there.log.files.removed,
        there.log.files.bytes_added,
    )
    swapped = {(str(row.before), str(row.after)) for row in back.changes.rows}
    assert swapped == {(str(row.after), str(row.before)) for row in there.changes.rows}
    assert [c.commit.version for c in back.commits] == [c.commit.version for c in there.commits]


def test_equal_versions_have_no_difference(orders: Path) -> None:
    found = compare(orders, 3, 3)
    assert (found.method, found.changes.net, found.commits, found.exact) == (
        DiffMethod.SAME_VERSION,
        NetCounts(0, 0, 0),
        (),
        True,
    )


@pytest.mark.parametrize(("first", "last"), [(0, 6), (99, 1), (-1, 2)])
def test_a_missing_version_is_not_found(orders: Path, first: int, last: int) -> None:
    with pytest.raises(VersionNotFoundError):
        compare(orders, first, last)


def test_a_key_can_be_given_and_a_wrong_one_is_refused(orders: Path) -> None:
    by_value = compare(orders, 0, 1, key=["v"])
    assert by_value.key is not None
    assert (by_value.key.source, by_value.changes.net) == (KeySource.GIVEN, NetCounts(2, 0, 0))
    with pytest.raises(DiffError, match="nope"):
        compare(orders, 0, 1, key=["nope"])


def test_only_some_columns_can_be_compared(orders: Path) -> None:
    found = compare(orders, 1, 2, columns=["id"])
    assert (found.changes.columns, found.changes.net) == (("id",), NetCounts(0, 0, 0))
    assert any("left out" in reason and "v" in reason for reason in found.reasons)
    with pytest.raises(DiffError, match="nope"):
        compare(orders, 1, 2, columns=["nope"])


def test_the_limit_cuts_rows_but_not_counts(orders: Path) -> None:
    found = compare(orders, 0, 5, row_limit=2)
    assert (len(found.changes.rows), found.changes.truncated, found.changes.net) == (2, True, NetCounts(3, 2, 1))


def test_a_declared_key_wins_over_merges(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, table([1], ["a"]), configuration=FEED)
    DeltaTable(path).alter.set_table_properties({"weir.primaryKey": "v"}, raise_if_not_exists=False)
    merge(path, table([1], ["b"]))
    found = compare(tmp_path, 1, 2)
    assert found.key is not None
    assert (found.key.source, found.changes.net) == (KeySource.PROPERTY, NetCounts(1, 0, 1))


def test_without_a_key_rows_are_a_multiset_and_it_says_so(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, table([1, 1, 2], ["a", "a", "b"]), configuration=FEED)
    DeltaTable(path).update(updates={"v": "'z'"}, predicate="id = 1")
    write_deltalake(path, table([3], ["c"]), mode="append")
    DeltaTable(path).delete("id = 2")
    found = compare(tmp_path, 0, 3)
    assert (found.key, found.exact) == (None, False)
    assert found.changes.net == NetCounts(3, None, 3)
    assert any("pair" in reason for reason in found.reasons)
    copies = Counter({(row.kind, str(row.before or row.after)): row.copies for row in found.changes.rows})
    assert copies[RowKind.DELETE, "{'id': 1, 'v': 'a'}"] == 2


def test_duplicate_and_null_keys_of_a_real_table(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, table([1], ["a"]), configuration=FEED)
    write_deltalake(path, table([2, 2, None, 3], ["a", "b", "c", "d"]), mode="append")
    found = compare(tmp_path, 0, 1, key=["id"])
    assert found.changes.net == NetCounts(4, 0, 0)
    assert (found.changes.apart.duplicate_keys, found.changes.apart.null_inserted, found.exact) == (1, 1, False)


def test_an_added_column_is_compared_and_an_earlier_row_has_null_there(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, table([1, 2], ["a", "b"]), configuration=FEED)
    wide = pa.table({"id": [3], "v": ["c"], "w": [1.5]})
    write_deltalake(path, wide, mode="append", schema_mode="merge")
    DeltaTable(path).update(updates={"w": "2.0"}, predicate="id = 1")
    found = compare(tmp_path, 0, 2, key=["id"])
    assert [f.path for f in found.log.schema.added] == ["w"]
    (update,) = [row for row in found.changes.rows if row.kind is RowKind.UPDATE]
    assert (update.before, update.changed) == ({"id": 1, "v": "a", "w": None}, ("w",))


def test_a_feed_that_was_switched_on_later_says_from_where_it_covers(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, table([1], ["a"]))
    write_deltalake(path, table([2], ["b"]), mode="append")
    DeltaTable(path).alter.set_table_properties(FEED)
    write_deltalake(path, table([3], ["c"]), mode="append")
    found = compare(tmp_path, 0, 3, method=DiffMethod.LOG_ONLY)
    assert (found.method, found.changes.net) == (DiffMethod.LOG_ONLY, NetCounts(None, None, None))
    assert found.log.first_covered_version is not None
    assert str(found.log.first_covered_version) in found.hint
    assert [p.key for p in found.log.properties if p.key.startswith("delta.")] == ["delta.enableChangeDataFeed"]
    assert found.log.files.added == 2
    covered = compare(tmp_path, found.log.first_covered_version, 3)
    assert (covered.method, covered.changes.net) == (DiffMethod.CHANGE_FEED, NetCounts(1, 0, 0))
    earlier = compare(tmp_path, found.log.first_covered_version - 1, 3)
    assert (earlier.method, earlier.changes.net) == (DiffMethod.MULTISET, NetCounts(2, 0, 0))


def test_a_table_without_feed_is_compared_by_the_files_that_differ(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", table([1], ["a"]))
    write_deltalake(tmp_path / "t", table([2], ["b"]), mode="append")
    found = compare(tmp_path, 0, 1)
    assert (found.method, found.changes.net, found.unchanged) == (DiffMethod.MULTISET, NetCounts(1, 0, 0), 1)
    assert [(c.commit.version, c.inserted, c.is_reported) for c in found.commits] == [(1, 1, True)]
    assert [reason for reason in found.reasons if reason.startswith("not by the change feed")]


def test_a_table_that_was_replaced_is_refused_with_both_ids(tmp_path: Path) -> None:
    log = HandLog(tmp_path / "t").start(table_id="one").commit(add("a"), commit_info())
    log.commit(metadata(table_id="two"), add("b"), commit_info())
    found = compare(tmp_path, 1, 2)
    assert found.method is DiffMethod.LOG_ONLY
    assert "one" in found.reasons[0] and "two" in found.reasons[0]


def test_a_vacuumed_change_file_leaves_the_next_method_and_a_reason(orders: Path) -> None:
    whole = compare(orders, 0, 5)
    gone = list((orders / "orders" / "_change_data").glob("*.parquet"))
    assert gone, "the update left no change files"
    for file in gone:
        file.unlink()
    found = compare(orders, 0, 5)
    assert (found.method, found.changes.net) == (DiffMethod.KEY_JOIN, whole.changes.net)
    assert any("not by the change feed" in reason and "is gone" in reason for reason in found.reasons)
    with pytest.raises(DataFileMissingError):
        compare(orders, 0, 5, method=DiffMethod.CHANGE_FEED)


def test_vacuumed_data_leaves_the_log(orders: Path) -> None:
    for file in (orders / "orders").rglob("*.parquet"):
        file.unlink()
    found = compare(orders, 0, 5)
    assert (found.method, found.changes.net) == (DiffMethod.LOG_ONLY, NetCounts(None, None, None))
    assert sum("is gone" in reason for reason in found.reasons) >= 2
    assert found.num_rows == (3, 5)
    with pytest.raises(DiffError, match="not possible"):
        compare(orders, 0, 5, method=DiffMethod.KEY_JOIN)


def test_rich_types_survive(tmp_path: Path) -> None:
    path = tmp_path / "t"
    at = datetime(2026, 1, 1, 12, 30, 0, 123456, tzinfo=UTC)
    row: dict[str, Any] = {
        "id": 1,
        "big": 2**63 - 2,
        "money": Decimal("1234567890.000000001"),
        "f": float("nan"),
        "bin": b"\x00\xff",
        "at": at,
        "nested": {"xs": [1.0, float("nan")], "s": None},
    }
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("big", pa.int64()),
            ("money", pa.decimal128(30, 9)),
            ("f", pa.float64()),
            ("bin", pa.binary()),
            ("at", pa.timestamp("us", "UTC")),
            ("nested", pa.struct([("xs", pa.list_(pa.float64())), ("s", pa.string())])),
        ]
    )
    write_deltalake(path, pa.Table.from_pylist([row], schema), configuration=FEED)
    merge(path, pa.Table.from_pylist([row | {"big": 2**63 - 1}, row | {"id": 2}], schema))
    found = compare(tmp_path, 0, 1)
    assert found.changes.net == NetCounts(1, 1, 0)
    (update,) = [r for r in found.changes.rows if r.kind is RowKind.UPDATE]
    assert update.changed == ("big",)
    assert update.after is not None
    assert (update.after["big"], update.after["money"], update.after["at"]) == (2**63 - 1, row["money"], at)


# -- agreement with a naive recount -----------------------------------------------------------------------------------


def naive(path: Path, first: int, last: int) -> tuple[Counter[tuple[int, str]], Counter[str]]:
    """Gross counts and the net multiset, from load_cdf row by row."""
    rows = pa.table(DeltaTable(path).load_cdf(first + 1, last).read_all()).to_pylist()
    gross, net = Counter[tuple[int, str]](), Counter[str]()
    for row in rows:
        kind, version = row.pop("_change_type"), row.pop("_commit_version")
        row.pop("_commit_timestamp")
        gross[version, kind] += 1
        net[str(row)] += 1 if kind in ("insert", "update_postimage") else -1
    return gross, Counter({row: count for row, count in net.items() if count})


def assert_agrees(path: Path, found: VersionDiff) -> None:
    gross, net = naive(path, found.question.from_version, found.question.to_version)
    for changes in found.commits:
        version = changes.commit.version
        expected = (gross[version, "insert"], gross[version, "update_postimage"], gross[version, "delete"])
        assert (changes.inserted, changes.updated, changes.deleted) == expected
    ours = Counter[str]()
    for row in found.changes.rows:
        for cells, sign in ((row.before, -1), (row.after, 1)):
            if cells is not None:
                ours[str(dict(cells))] += sign * row.copies
    assert Counter({row: count for row, count in ours.items() if count}) == net


def test_agrees_with_a_recount_of_the_feed(orders: Path) -> None:
    for first in range(5):
        for last in range(first + 1, 6):
            assert_agrees(orders / "orders", compare(orders, first, last))


@pytest.mark.skipif(not (SHARED / "cdf_table").is_dir(), reason="the shared tables are not here")
def test_agrees_on_a_table_that_spark_wrote() -> None:
    lake = Lake(load_settings(home=SHARED / "nowhere", lake={"roots": [str(SHARED)]}))
    ref = lake.find("cdf_table")
    found = diff(lake, ref, 0, 3, row_limit=100)
    assert_agrees(SHARED / "cdf_table", found)
    assert (found.key, found.changes.net) == (None, NetCounts(0, 5, 1))
    by_id = diff(lake, ref, 0, 3, key=("id",), row_limit=100)
    assert_agrees(SHARED / "cdf_table", by_id)
    assert (by_id.changes.net, by_id.exact, dict(by_id.changes.changed_cells)) == (
        NetCounts(0, 5, 1),
        True,
        {"birthday": 5},
    )


# -- property: net changes of a → b applied to a give b, on tables that deltalake wrote -------------------------------

State = Counter[tuple[int | None, str | None]]
Step = Callable[[Path], None]
small_rows = st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc")), min_size=1, max_size=4)


def append(rows: list[tuple[int, str]]) -> Step:
    return lambda path: write_deltalake(path, table([i for i, _ in rows], [v for _, v in rows]), mode="append")


def overwrite(rows: list[tuple[int, str]]) -> Step:
    return lambda path: write_deltalake(path, table([i for i, _ in rows], [v for _, v in rows]), mode="overwrite")


def update(pair: tuple[int, str]) -> Step:
    return lambda path: DeltaTable(path).update(updates={"v": f"'{pair[1]}'"}, predicate=f"id >= {pair[0]}") and None


def delete(number: int) -> Step:
    return lambda path: DeltaTable(path).delete(f"id = {number}") and None


def upsert(rows: list[tuple[int, str]]) -> Step:
    unique = dict(rows)
    return lambda path: merge(path, table(list(unique), list(unique.values())))


def compact(_: int) -> Step:
    return lambda path: DeltaTable(path).optimize.compact() and None


steps = st.one_of(
    small_rows.map(append),
    small_rows.map(overwrite),
    st.tuples(st.integers(0, 5), st.sampled_from("xyz")).map(update),
    st.integers(0, 5).map(delete),
    small_rows.map(upsert),
    st.integers(0, 0).map(compact),
)


def state_at(path: Path, version: int) -> State:
    rows = pa.table(DeltaTable(path, version=version).scan().read_all()).to_pylist()
    return Counter((row["id"], row["v"]) for row in rows)


@drawn(5)
@given(small_rows, st.lists(steps, min_size=1, max_size=5), st.sampled_from([None, ["id"]]))
def test_net_changes_applied_to_the_first_state_give_the_last(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, str]], then: list[Step], key: list[str] | None
) -> None:
    root = tmp_path_factory.mktemp("history")
    path = root / "t"
    write_deltalake(path, table([i for i, _ in rows], [v for _, v in rows]), configuration=FEED)
    for step in then:
        step(path)
    last = DeltaTable(path).version()
    found = compare(root, 0, last, key=key)
    state = state_at(path, 0)
    for row in found.changes.rows:
        for cells, sign in ((row.before, -1), (row.after, 1)):
            if cells is not None:
                state[cells["id"], cells["v"]] += sign * row.copies
    assert {row: count for row, count in state.items() if count} == dict(state_at(path, last))


def test_a_feed_that_leaves_rows_out_is_not_believed(tmp_path: Path) -> None:
    """deltalake's UPDATE does not record the row that becomes what another one was."""
    path = tmp_path / "t"
    write_deltalake(path, table([0], ["a"]), configuration=FEED)
    write_deltalake(path, table([0], ["x"]), mode="append")
    DeltaTable(path).update(updates={"v": "'x'"}, predicate="id = 0")
    recorded = pa.table(DeltaTable(path).load_cdf(starting_version=2))["_change_type"].to_pylist()
    assert recorded == ["update_preimage"], "the writer has mended its feed: delete this test"
    found = compare(tmp_path, 1, 2)
    assert (found.method, found.changes.net) == (DiffMethod.MULTISET, NetCounts(1, None, 1))
    assert any("feed of v2 is not complete: rows before updates 1, after them 0" in reason for reason in found.reasons)
    [commit] = found.commits
    assert (commit.is_reported, commit.updated) == (True, 2)
    named = compare(tmp_path, 1, 2, method=DiffMethod.CHANGE_FEED)
    assert not named.exact and "not complete" in named.reasons[-1]


def test_a_feed_that_does_not_add_up_to_the_row_counts_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, table([1, 2, 3], ["a", "b", "c"]), configuration=FEED)
    DeltaTable(path).delete("id < 3")
    assert compare(tmp_path, 0, 1).method is DiffMethod.CHANGE_FEED
    [recorded] = path.rglob("_change_data/*.parquet")
    size = recorded.stat().st_size
    pq.write_table(pq.read_table(recorded).slice(1), recorded)
    commit = path / "_delta_log" / f"{1:020d}.json"
    commit.write_text(commit.read_text().replace(f'"size":{size},', f'"size":{recorded.stat().st_size},'))
    found = compare(tmp_path, 0, 1)
    assert (found.method, found.changes.net, found.exact) == (DiffMethod.MULTISET, NetCounts(0, 0, 2), True)
    assert any(reason.endswith("does not add up to the row counts of the two versions") for reason in found.reasons)
    kept = compare(tmp_path, 0, 1, where="v <> 'b'")  # of which the feed has as many as the states
    assert (kept.method, kept.changes.net) == (DiffMethod.MULTISET, NetCounts(0, None, 1))
    named = compare(tmp_path, 0, 1, method=DiffMethod.CHANGE_FEED)
    assert (named.changes.net, named.unchanged) == (NetCounts(0, 0, 1), None)
    assert any("row counts do not agree" in reason for reason in named.reasons)


def test_a_key_that_was_given_is_used_again_when_it_told_rows_apart(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, table([1, 2, 2], ["a", "b", "b"]))
    DeltaTable(path).update(updates={"v": "'c'"}, predicate="id = 1")
    DeltaTable(path).update(updates={"v": "'d'"})
    keys = key_memory(tmp_path / "home")
    by_id = compare(tmp_path, 0, 1, key=("id",))
    assert (by_id.changes.net, keys.known(by_id.question.ref)) == (NetCounts(0, 1, 0), None)
    keys.learn(compare(tmp_path, 0, 2, key=("id",)))  # id 2 is there twice: it names no row
    assert keys.known(by_id.question.ref) is None
    keys.learn(by_id)
    remembered = keys.known(by_id.question.ref)
    found = compare(tmp_path, 0, 1, remembered_key=remembered)
    assert (found.method, found.changes.net) == (DiffMethod.KEY_JOIN, NetCounts(0, 1, 0))
    assert found.key and found.key.source is KeySource.REMEMBERED
    assert "key `id`: given when the table was last compared" in found.reasons
    keys.learn(found)
    assert compare(tmp_path, 0, 1, remembered_key=("gone",)).method is DiffMethod.MULTISET
    next((tmp_path / "home").rglob("*.json")).write_text("{")
    assert keys.known(by_id.question.ref) is None


def test_files_only_rewritten_are_those_of_commits_that_say_no_row_changed(tmp_path: Path) -> None:
    """By `dataChange`, whatever the operation is called; a commit that says it of some files only is none."""
    log = HandLog(tmp_path / "t").start().commit(add("a"), add("b"), add("c"), commit_info())
    log.commit(remove("a", dataChange=False), remove("b", dataChange=False), add("d", dataChange=False), commit_info())
    log.commit(remove("d", dataChange=False), remove("c"), add("e", dataChange=False), commit_info("OPTIMIZE"))
    log.commit(add("f", dataChange=False), commit_info("OPTIMIZE"))
    assert compare(tmp_path, 1, 4).log.rewritten == {2: 2}
    assert compare(tmp_path, 4, 1).log.rewritten == {2: 2}
    assert compare(tmp_path, 2, 4).log.rewritten == {}
    base = [protocol(), metadata()]
    log.checkpoint(1, [*base, add("a"), add("b"), add("c")]).checkpoint(2, [*base, add("c"), add("d")])
    (log.log / f"{2:020d}.json").unlink()
    assert compare(tmp_path, 1, 4).log.rewritten is None


@pytest.mark.parametrize("feed", [True, False])
def test_half_an_update_that_a_condition_lets_through_is_not_called_an_insert(tmp_path: Path, feed: bool) -> None:
    """Without a key its other half is out of sight; with one the update is kept whole."""
    path = tmp_path / "t"
    write_deltalake(path, table([1, 2], ["a", "b"]), configuration=FEED if feed else None)
    DeltaTable(path).update(updates={"v": "'z'"}, predicate="id = 1")
    half = compare(tmp_path, 0, 1, where="v = 'z'")
    assert (half.method is DiffMethod.CHANGE_FEED, half.changes.net, half.exact) == (feed, NetCounts(1, None, 0), False)
    assert compare(tmp_path, 0, 1, where="v = 'z' OR v = 'a'").changes.net == NetCounts(1, None, 1)
    assert compare(tmp_path, 0, 1, where="v = 'b'").changes.net == NetCounts(0, 0, 0)
    assert compare(tmp_path, 0, 1, where="v = 'z'", key=("id",)).changes.net == NetCounts(0, 1, 0)
    with pytest.raises(QueryError, match="gives BIGINT, not true or false"):
        compare(tmp_path, 0, 1, where="id")
    with pytest.raises(QueryError, match="names no column"):
        compare(tmp_path, 0, 1, where="1 = 1")
