"""Diffs of real tables by every method, which all agree; which method answers where others cannot or are not believed.

Rule: states are read by deltalake, whole, and compared row by row in plain Python; nothing of the diff is used for it.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from backend.changes.key import key_memory
from backend.changes.model import DiffMethod, FilesDiff, KeySource, Limits, NetCounts, RowKind, VersionDiff
from backend.errors import DataFileMissingError, DiffError, QueryError, VersionNotFoundError
from backend.sql.session import CancelToken
from backend.work import Stopped
from tests.worlds.cases import few, soak
from tests.worlds.lake.builders import CHANGE_FEED, HandLog, add, commit_info, metadata, protocol, remove
from tests.worlds.lake.diff_lakes import ByDeltalake, Told
from tests.worlds.lake.diffs import asked, compare, diff, lake_at, prepare
from tests.worlds.lake.histories import History

FEED, KEY, ROWS = DiffMethod.CHANGE_FEED, DiffMethod.KEY_JOIN, DiffMethod.MULTISET
Row = tuple[tuple[str, Any], ...]


def state_at(path: Path, version: int, columns: tuple[str, ...]) -> Counter[Row]:
    rows = pa.table(DeltaTable(path, version=version).scan().read_all()).to_pylist()
    return Counter(tuple((name, plain(row.get(name))) for name in columns) for row in rows)


def plain(value: Any) -> Any:
    """NaN as a text: it equals itself then."""
    return "nan" if value != value else value


def applied(state: Counter[Row], found: VersionDiff) -> Counter[Row]:
    result = Counter(state)
    for row in found.changes.rows:
        for cells, sign in ((row.before, -1), (row.after, 1)):
            if cells is not None:
                result[tuple((name, plain(cells[name])) for name in found.changes.columns)] += sign * row.copies
    assert all(count >= 0 for count in result.values()), "took away a row that was not there"
    return +result


def by_key(state: Counter[Row]) -> dict[Any, Row]:
    return {dict(row)["id"]: row for row in state}


@pytest.mark.parametrize("seed", few(4, range(14)))
def test_every_method_carries_one_state_to_the_other_and_all_agree(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    history = History(tmp_path, random, has_key=seed % 3 != 0)
    for _ in range(random.randint(2, 6)):
        history.grow()
    last = DeltaTable(history.path).version()
    lake = lake_at(tmp_path)
    (ref,) = lake.tables()
    first, second = sorted(random.sample(range(last + 1), 2)) if seed % 2 else random.sample(range(last + 1), 2)
    key = ("id",) if history.has_key else None
    found = {
        method: diff(lake, ref, first, second, key=key, method=method, row_limit=10_000)
        for method in prepare(lake, ref, first, second, key=key).plan.methods[:-1]
    }
    columns = found[ROWS].changes.columns
    before, after = (state_at(history.path, version, columns) for version in (first, second))
    counted = {tuple((c.inserted, c.updated, c.deleted) for c in each.commits) for each in found.values()}
    assert len(counted) == 1, "commits are counted alike, whether the feed's rows are read or not"
    assert not any(c.is_reported for c in found[ROWS].commits)
    for method, answer in found.items():
        assert answer.method is method
        assert applied(before, answer) == after, method
        assert answer.num_rows == (before.total(), after.total())
    came, went = (after - before).total(), (before - after).total()
    assert (found[ROWS].changes.net.inserted, found[ROWS].changes.net.deleted) == (came, went)
    if key:
        old, new = by_key(before), by_key(after)
        both = old.keys() & new.keys()
        net = NetCounts(len(new.keys() - both), sum(old[k] != new[k] for k in both), len(old.keys() - both))
        assert {answer.changes.net for method, answer in found.items() if method is not ROWS} == {net}
        assert found[KEY].unchanged == len(both) - (net.updated or 0)
        for answer in found.values():
            if answer.method is not ROWS:
                assert answer.changes.changed_cells == found[KEY].changes.changed_cells
                assert answer.changes.common == found[KEY].changes.common


def differ(before: Row, after: Row, tolerance: float) -> bool:
    """Whether two rows with one key do, floats beyond the tolerance."""
    return any(
        x != y and not (isinstance(x, float) and isinstance(y, float) and abs(x - y) <= tolerance)
        for (_, x), (_, y) in zip(before, after, strict=True)
    )


@pytest.mark.parametrize("seed", few(2, range(8)))
def test_of_a_history_every_method_tells_what_is_wanted(tmp_path: Path, seed: int) -> None:
    """A condition on rows and a tolerance, against a recount."""
    random = Random(100 + seed)
    history = History(tmp_path, random, has_key=True)
    for _ in range(5):
        history.grow()
    last = DeltaTable(history.path).version()
    lake = lake_at(tmp_path)
    (ref,) = lake.tables()
    first, second = random.sample(range(last + 1), 2)
    prepared = prepare(lake, ref, first, second, key=("id",))
    old, new = (by_key(state_at(history.path, v, prepared.columns)) for v in (first, second))
    both = old.keys() & new.keys()
    for where, value, tolerance in (("v = 'z'", "z", 1.0), (None, None, 1.0), ("v < 'b'", "a", 0.0)):
        updated = {key for key in both if differ(old[key], new[key], tolerance)}
        kept = {key for side in (old, new) for key, row in side.items() if where is None or dict(row)["v"] == value}
        net = NetCounts(len(kept & new.keys() - both), len(kept & updated), len(kept & old.keys() - both))
        for method in {*prepared.plan.methods[:-1]} - {ROWS}:
            options = asked(key=("id",), method=method, where=where, tolerance=tolerance, row_limit=1_000)
            answer = diff(lake, ref, first, second, **options)
            assert (answer.method, answer.changes.net) == (method, net), (where, tolerance)
            assert len(answer.changes.rows) == net.total


@pytest.mark.parametrize("seed", few(1, [2, 3, 0, 1, 4, 5]))
def test_keys_that_are_null_or_in_several_rows_are_set_apart_alike(tmp_path: Path, seed: int) -> None:
    """By the files that DuckDB reads itself, at once and in parts, by those that deltalake reads, and by the feed."""
    random = Random(200 + seed)
    history = History(tmp_path, random, has_key=True)
    for _ in range(3):
        history.repeat()
        history.grow()
    lake = lake_at(tmp_path)
    (ref,) = lake.tables()
    first, second = random.sample(range(DeltaTable(history.path).version() + 1), 2)
    options = {"key": ("id",), "row_limit": 1_000, "tolerance": random.choice([0.0, 1.0])}
    for where in (None, "v <> 'a'"):
        answers = [
            diff(reader, ref, first, second, method=KEY, where=where, limits=limits, **options)  # type: ignore[arg-type]
            for reader, limits in ((lake, Limits()), (lake, Limits(values_at_once=30)), (ByDeltalake(lake), Limits()))
        ]
        assert len({str(found) for found in answers}) == 1
        if FEED in prepare(lake, ref, first, second, **options).plan.methods:
            fed = diff(lake, ref, first, second, where=where, **options)
            if fed.method is FEED:  # whole, so far as can be told
                assert (fed.changes.net, fed.changes.apart) == (answers[0].changes.net, answers[0].changes.apart)


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    """v0 five rows · v1 one float moved a little and one a lot · v2 a row · v3 compaction."""
    path = tmp_path / "t"
    rows = {"id": [1, 2, 3, 4, 5], "price": [1.0, 2.0, 3.0, 4.0, float("nan")], "note": ["n"] * 5}
    write_deltalake(path, pa.table(rows))
    DeltaTable(path).update(updates={"price": "price + CASE id WHEN 1 THEN 0.001 ELSE 1.0 END"}, predicate="id <= 2")
    write_deltalake(path, pa.table({"id": [6], "price": [6.0], "note": ["n"]}), mode="append")
    DeltaTable(path).optimize.compact()
    return tmp_path


def test_a_compaction_alone_changes_files_and_no_row(prices: Path) -> None:
    found = compare(prices, 2, 3, key=("id",))
    assert (found.changes.net, found.exact, found.changes.rows) == (NetCounts(0, 0, 0), True, ())
    assert (found.log.files.added, found.log.files.removed) == (1, 2)


def test_only_files_that_differ_are_opened(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for start in range(0, 50, 10):
        write_deltalake(path, pa.table({"id": list(range(start, start + 10))}), mode="append")
    DeltaTable(path).delete("id = 25")
    common = set(DeltaTable(path).file_uris()) & set(DeltaTable(path, version=4).file_uris())
    assert len(common) == 4
    for uri in common:
        Path(uri).unlink()
    found = compare(tmp_path, 4, 5, key=("id",))
    assert (found.method, found.changes.net) == (KEY, NetCounts(0, 0, 1))


def test_a_plan_says_what_would_be_read(prices: Path) -> None:
    lake = lake_at(prices)
    (ref,) = lake.tables()
    plan = prepare(lake, ref, 0, 1, key=("id",)).plan
    sizes = sum(Path(uri).stat().st_size for v in (0, 1) for uri in DeltaTable(prices / "t", version=v).file_uris())
    assert (plan.method, plan.bytes_to_read, plan.rows_to_read) == (KEY, sizes, 10)
    assert plan.methods == (KEY, ROWS, DiffMethod.LOG_ONLY)


def test_another_type_leaves_its_column_out(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"id": [1, 2], "v": ["1", "2"], "w": [1, 1]}))
    new = pa.table({"id": [1, 2], "v": [1.5, 2.5], "w": [1, 7]})
    write_deltalake(path, new, mode="overwrite", schema_mode="overwrite")
    found = compare(tmp_path, 0, 1, key=("id",))
    assert (found.changes.columns, found.changes.net) == (("id", "w"), NetCounts(0, 1, 0))
    assert any("another type" in reason and reason.endswith("v") for reason in found.reasons)
    assert not found.exact
    write_deltalake(path, new.append_column("x", [[0, 0]]), mode="append", schema_mode="merge")
    assert [field.path for field in compare(tmp_path, 1, 2).log.schema.added] == ["x"]


def test_two_tables_are_compared_by_key(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "a", pa.table({"id": [1, 2, 3], "v": ["x", "y", "z"], "only": [1, 1, 1]}))
    write_deltalake(tmp_path / "b", pa.table({"id": [2, 3, 4], "v": ["y", "Z", "w"]}))
    lake = lake_at(tmp_path)
    a, b = lake.tables()
    found = diff(lake, a, 0, 0, key=("id",), against=b)
    assert (found.method, found.changes.net, found.unchanged) == (KEY, NetCounts(1, 1, 1), 1)
    assert found.question.against == b and not found.commits
    assert diff(lake, a, 0, 0, against=b).changes.net == NetCounts(2, None, 2)


@pytest.mark.parametrize("keyed", ["a", "b"])
def test_two_tables_go_by_the_key_that_either_declares(tmp_path: Path, keyed: str) -> None:
    for name, value in (("a", "x"), ("b", "y")):
        write_deltalake(tmp_path / name, pa.table({"id": [1], "v": [value]}))
    names = {"weir.primaryKey": "id"}
    DeltaTable(tmp_path / keyed).alter.set_table_properties(names, raise_if_not_exists=False)
    lake = lake_at(tmp_path)
    a, b = lake.tables()
    found = diff(lake, a, lake.latest_version(a), lake.latest_version(b), against=b)
    assert (found.method, found.changes.net) == (KEY, NetCounts(0, 1, 0))


def test_a_computation_that_nobody_waits_for_ends(prices: Path) -> None:
    lake = lake_at(prices)
    (ref,) = lake.tables()
    token = CancelToken()
    token.stop()
    with pytest.raises(Stopped):
        diff(lake, ref, 0, 1, key=("id",), token=token)
    with pytest.raises(DiffError, match="longer than"):
        diff(lake, ref, 0, 1, key=("id",), token=CancelToken(time_limit_s=0.0))


@pytest.mark.parametrize(("columns", "key"), [(500, ()), *soak((3_000, ()), (3_000, ("c0",)))])
def test_many_columns_are_compared(tmp_path: Path, columns: int, key: tuple[str, ...]) -> None:
    names = [f"c{number}" for number in range(columns)]
    write_deltalake(tmp_path / "wide", pa.table({name: [1, 2] for name in names}))
    write_deltalake(tmp_path / "wide", pa.table({name: [3] for name in names}), mode="append")
    found = compare(tmp_path, 0, 1, key=key or None)
    assert (found.method, found.changes.net) == (KEY if key else ROWS, NetCounts(1, 0, 0))
    assert found.changes.columns == tuple(names) and len(found.changes.rows) == 1


def test_files_differ_by_path_and_deletion_vector(tmp_path: Path) -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}
    marked = vector | {"cardinality": 1}
    log = HandLog(tmp_path / "t").start().commit(add("a", size=1), add("b", size=10), add("c", size=100), commit_info())
    log.commit(remove("b"), add("b", size=10, dv=marked), remove("c"), add("d", size=1_000), commit_info())
    log.commit(remove("a"), add("a", size=1), commit_info("RESTORE"))
    there = FilesDiff(2, 2, 1_010, 110, new_deletion_vectors=1, rows_added=19, rows_removed=20, vectors_added=1)
    back = FilesDiff(2, 2, 110, 1_010, new_deletion_vectors=1, rows_added=20, rows_removed=19, vectors_removed=1)
    assert compare(tmp_path, 1, 2).log.files == there
    assert compare(tmp_path, 2, 1).log.files == back
    assert compare(tmp_path, 2, 3).log.files == FilesDiff()
    whole = compare(tmp_path, 0, 3).log.files
    (log.log / f"{2:020d}.json").rename(log.log / "gone")
    log.checkpoint(3, [protocol(), metadata(), add("a", size=1), add("b", size=10, dv=marked), add("d", size=1_000)])
    assert compare(tmp_path, 0, 3).log.files == whole == FilesDiff(3, 0, 1_011, 0, rows_added=29, vectors_added=1)


def test_plain_files_read_by_duckdb_give_what_deltalake_gives(tmp_path: Path) -> None:
    path = tmp_path / "t"
    at = datetime(2026, 1, 1, 12, 30, 0, 123456, tzinfo=UTC)
    rows = {
        "id": pa.array(range(6), pa.int64()),
        'odd "name': pa.array(["a", None, "", "é", "'", '"']),
        "n": pa.array([1, -1, None, 126, 0, 5], pa.int8()),
        "f": pa.array([float("nan"), -0.0, None, 1.5, float("inf"), 0.0], pa.float32()),
        "raw": pa.array([b"", b"\xff", None, b"a", b"b", b"c"]),
        "day": pa.array([at.date()] * 5 + [None]),
        "at": pa.array([at, None, at, at, at, at], pa.timestamp("us", "UTC")),
        "local": pa.array([at.replace(tzinfo=None)] * 6, pa.timestamp("us")),
        "yes": pa.array([True, False, None, True, True, True]),
    }
    write_deltalake(path, pa.table(rows))
    DeltaTable(path).update(updates={"n": "n + 1", "f": "0.0"}, predicate="id > 1 AND id < 5")
    DeltaTable(path).delete("id = 5")
    lake = lake_at(tmp_path)
    (ref,) = lake.tables()
    told = Told(lake)
    by_duckdb = diff(told, ref, 0, 2, key=("id",))
    assert not told.by_deltalake
    by_deltalake = diff(ByDeltalake(lake), ref, 0, 2, key=("id",))
    assert by_duckdb.changes.net == by_deltalake.changes.net == NetCounts(0, 3, 1)
    assert str(by_duckdb) == str(by_deltalake)


def test_rich_types_survive_the_feed(tmp_path: Path) -> None:
    at = datetime(2026, 1, 1, 12, 30, 0, 123456, tzinfo=UTC)
    nested = pa.struct([("xs", pa.list_(pa.float64())), ("s", pa.string())])
    types = {"id": pa.int64(), "big": pa.int64(), "money": pa.decimal128(30, 9), "f": pa.float64()}
    schema = pa.schema(types | {"bin": pa.binary(), "at": pa.timestamp("us", "UTC"), "nested": nested})
    row = {"id": 1, "big": 2**63 - 2, "money": Decimal("1234567890.000000001"), "f": float("nan")}
    row |= {"bin": b"\x00\xff", "at": at, "nested": {"xs": [1.0, float("nan")], "s": None}}
    write_deltalake(tmp_path / "t", pa.Table.from_pylist([row], schema), configuration=CHANGE_FEED)
    merge(tmp_path / "t", pa.Table.from_pylist([row | {"big": 2**63 - 1}, row | {"id": 2}], schema))
    found = compare(tmp_path, 0, 1)
    assert (found.method, found.changes.net) == (FEED, NetCounts(1, 1, 0))
    (update,) = [change for change in found.changes.rows if change.kind is RowKind.UPDATE]
    assert update.changed == ("big",) and update.after is not None
    assert (update.after["big"], update.after["money"], update.after["at"]) == (2**63 - 1, row["money"], at)


def test_a_torn_file_is_no_difference(prices: Path) -> None:
    for uri in DeltaTable(prices / "t", version=1).file_uris():
        Path(uri).write_bytes(b"PAR1 torn PAR1")
    found = compare(prices, 0, 1, key=("id",))
    assert found.method is DiffMethod.LOG_ONLY
    assert any(reason.startswith("not by a join by key") for reason in found.reasons)


def table(ids: Sequence[int | None], values: Sequence[str | None]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.string())})


def merge(path: Path, rows: pa.Table) -> None:
    started = DeltaTable(path).merge(rows, predicate="t.id = s.id", source_alias="s", target_alias="t")
    started.when_matched_update_all().when_not_matched_insert_all().execute()


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """v0 create · v1 append · v2 update · v3 merge · v4 compaction · v5 delete."""
    path = tmp_path / "orders"
    write_deltalake(path, table([1, 2, 3], ["a", "b", "c"]), configuration=CHANGE_FEED)
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
    back = compare(orders, 5, 0)
    assert (back.is_reverse, back.changes.net) == (True, NetCounts(1, 2, 3))
    assert [c.commit.version for c in back.commits] == [c.commit.version for c in found.commits]
    same = compare(orders, 3, 3)
    assert (same.method, same.changes.net, same.commits) == (DiffMethod.SAME_VERSION, NetCounts(0, 0, 0), ())


@pytest.mark.parametrize(("first", "last"), [(0, 6), (99, 1), (-1, 2)])
def test_a_missing_version_is_not_found(orders: Path, first: int, last: int) -> None:
    with pytest.raises(VersionNotFoundError):
        compare(orders, first, last)


def test_a_key_and_the_columns_to_compare_can_be_given(orders: Path) -> None:
    by_value = compare(orders, 0, 1, key=("v",))
    assert by_value.key is not None
    assert (by_value.key.source, by_value.changes.net) == (KeySource.GIVEN, NetCounts(2, 0, 0))
    found = compare(orders, 1, 2, columns=("id",))
    assert (found.changes.columns, found.changes.net) == (("id",), NetCounts(0, 0, 0))
    assert any("left out" in reason and "v" in reason for reason in found.reasons)


def test_without_a_key_rows_are_a_multiset_and_it_says_so(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, table([1, 1, 2], ["a", "a", "b"]), configuration=CHANGE_FEED)
    DeltaTable(path).update(updates={"v": "'z'"}, predicate="id = 1")
    write_deltalake(path, table([3], ["c"]), mode="append")
    DeltaTable(path).delete("id = 2")
    found = compare(tmp_path, 0, 3)
    assert (found.key, found.exact) == (None, False)
    assert found.changes.net == NetCounts(3, None, 3)
    assert any("pair" in reason for reason in found.reasons)
    [repeated] = [row for row in found.changes.rows if row.before == {"id": 1, "v": "a"}]
    assert (repeated.kind, repeated.copies) == (RowKind.DELETE, 2)


def test_a_feed_that_was_switched_on_later_says_from_where_it_covers(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, table([1], ["a"]))
    write_deltalake(path, table([2], ["b"]), mode="append")
    DeltaTable(path).alter.set_table_properties(CHANGE_FEED)
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


def test_a_vacuumed_change_file_leaves_the_next_method_and_a_reason(orders: Path) -> None:
    whole = compare(orders, 0, 5)
    gone = list((orders / "orders" / "_change_data").glob("*.parquet"))
    assert gone, "the update left no change files"
    for file in gone:
        file.unlink()
    found = compare(orders, 0, 5)
    assert (found.method, found.changes.net) == (DiffMethod.KEY_JOIN, whole.changes.net)
    assert any("not by the change feed" in reason and "is gone" in reason for reason in found.reasons)
    with pytest.raises(DataFileMissingError, match="is gone") as refused:
        compare(orders, 0, 5, method=DiffMethod.CHANGE_FEED)
    assert "bring the file back" in refused.value.hint


def test_vacuumed_data_leaves_the_log(orders: Path) -> None:
    for file in (orders / "orders").rglob("*.parquet"):
        file.unlink()
    found = compare(orders, 0, 5)
    assert (found.method, found.changes.net) == (DiffMethod.LOG_ONLY, NetCounts(None, None, None))
    assert sum("is gone" in reason for reason in found.reasons) >= 2
    assert found.num_rows == (3, 5)
    with pytest.raises(DiffError, match="not possible"):
        compare(orders, 0, 5, method=DiffMethod.KEY_JOIN)


def test_a_feed_that_leaves_rows_out_is_not_believed(tmp_path: Path) -> None:
    """deltalake's UPDATE does not record the row that becomes what another one was."""
    path = tmp_path / "t"
    write_deltalake(path, table([0], ["a"]), configuration=CHANGE_FEED)
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
    write_deltalake(path, table([1, 2, 3], ["a", "b", "c"]), configuration=CHANGE_FEED)
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
    write_deltalake(path, table([1, 2], ["a", "b"]), configuration=CHANGE_FEED if feed else None)
    DeltaTable(path).update(updates={"v": "'z'"}, predicate="id = 1")
    half = compare(tmp_path, 0, 1, where="v = 'z'")
    assert (half.method is DiffMethod.CHANGE_FEED, half.changes.net, half.exact) == (feed, NetCounts(1, None, 0), False)
    assert half.unchanged is None and any("v = 'z'" in reason for reason in half.reasons)
    assert compare(tmp_path, 0, 1, where="v = 'z' OR v = 'a'").changes.net == NetCounts(1, None, 1)
    assert compare(tmp_path, 0, 1, where="v = 'b'").changes.net == NetCounts(0, 0, 0)
    assert compare(tmp_path, 0, 1, where="v = 'z'", key=("id",)).changes.net == NetCounts(0, 1, 0)
    with pytest.raises(QueryError, match="gives BIGINT, not true or false"):
        compare(tmp_path, 0, 1, where="id")
    with pytest.raises(QueryError, match="names no column"):
        compare(tmp_path, 0, 1, where="1 = 1")
