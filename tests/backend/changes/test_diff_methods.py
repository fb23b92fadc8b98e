"""Diffs of real tables by every method, which all agree; which method answers where others cannot or are not believed.

Rule: states are read by deltalake, whole, and compared row by row in plain Python; nothing of the diff is used for it.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from backend.changes.changed_rows import exported
from backend.changes.key import key_memory
from backend.changes.model import DiffMethod, FilesDiff, KeySource, NetCounts, RowKind, SetApart, VersionDiff
from backend.errors import DataFileMissingError, DiffError, QueryError, TableError
from backend.lake.lake import Lake
from backend.sql.export import FORMATS
from tests.worlds.cases import few, soak
from tests.worlds.lake.builders import CHANGE_FEED, HandLog, add, commit_info, metadata, protocol, remove
from tests.worlds.lake.diff_lakes import ByDeltalake
from tests.worlds.lake.diffs import asked, compare, diff, differ, in_a_file, lake_at, prepare
from tests.worlds.lake.histories import History
from tests.worlds.lake.vectors import write_vector

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


def values(row: Row) -> list[Any]:
    return [value for _, value in row]


@pytest.mark.parametrize("seed", few(2, range(14)))
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
        few_rows, rows = in_a_file(lake, ref, (first, second), key=key, method=method)
        assert (few_rows.changes.net, few_rows.changes.apart) == (answer.changes.net, answer.changes.apart)
        held = json.loads(exported(answer, FORMATS["json"]))
        assert sorted(map(json.dumps, rows)) == sorted(map(json.dumps, held)), method
        if answer.key and not answer.changes.apart.rows:
            assert rows == held, "in the order of the key"
    came, went = (after - before).total(), (before - after).total()
    assert (found[ROWS].changes.net.inserted, found[ROWS].changes.net.deleted) == (came, went)
    if not key:
        return
    old, new = by_key(before), by_key(after)
    both = old.keys() & new.keys()
    net = NetCounts(len(new.keys() - both), sum(old[k] != new[k] for k in both), len(old.keys() - both))
    assert found[KEY].unchanged == len(both) - (net.updated or 0)
    for method in found.keys() - {ROWS}:
        assert found[method].changes.net == net
        assert found[method].changes.changed_cells == found[KEY].changes.changed_cells
        assert found[method].changes.common == found[KEY].changes.common
    for where, value, tolerance in (("v = 'z'", "z", 1.0), (None, None, 1.0), ("v < 'b'", "a", 0.0)):
        updated = {k for k in both if differ(values(old[k]), values(new[k]), tolerance)}
        kept = {k for side in (old, new) for k, row in side.items() if where is None or dict(row)["v"] == value}
        net = NetCounts(len(kept & new.keys() - both), len(kept & updated), len(kept & old.keys() - both))
        for method in found.keys() - {ROWS}:
            options = asked(key=key, method=method, where=where, tolerance=tolerance, row_limit=1_000)
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
            diff(reader, ref, first, second, method=KEY, where=where, **options)  # type: ignore[arg-type]
            for reader in (lake, ByDeltalake(lake))
        ]
        assert len({str(found) for found in answers}) == 1
        if FEED in prepare(lake, ref, first, second, **options).plan.methods:
            fed = diff(lake, ref, first, second, where=where, **options)
            if fed.method is FEED:  # whole, so far as can be told
                assert (fed.changes.net, fed.changes.apart) == (answers[0].changes.net, answers[0].changes.apart)


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    """v0 five rows · v1 two of them updated."""
    write_deltalake(tmp_path / "t", pa.table({"id": range(5), "price": [1.0] * 5}))
    DeltaTable(tmp_path / "t").update(updates={"price": "price + 1"}, predicate="id < 2")
    return tmp_path


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
    assert any("going back to v0" in reason for reason in back.reasons)
    assert (back.is_reverse, back.changes.net) == (True, NetCounts(1, 2, 3))
    assert [c.commit.version for c in back.commits] == [c.commit.version for c in found.commits]
    same = compare(orders, 3, 3)
    assert (same.method, same.changes.net, same.commits) == (DiffMethod.SAME_VERSION, NetCounts(0, 0, 0), ())


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
    next((tmp_path / "home").rglob("*.cache")).write_text("{")
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


# rows paired by the ids of row tracking: every id is known, as files and log are written by hand ----------------------


MOVED = "_row-id-col-0"
TRACKED = {"delta.enableRowTracking": "true", "delta.rowTracking.materializedRowIdColumnName": MOVED}
ID_AND_V = {"id": "long", "v": "string"}


@dataclass
class Tracked:
    """A table at `root / "t"`; `ids` are those written beside the rows of a file, None for a row without."""

    root: Path
    columns: Mapping[str, str] = field(default_factory=lambda: ID_AND_V)
    configuration: Mapping[str, str] = field(default_factory=lambda: TRACKED)

    def __post_init__(self) -> None:
        self.log = HandLog(self.root / "t")
        features = protocol(3, 7, ["deletionVectors"])
        self.log.commit(features, metadata(self.columns, configuration=self.configuration), commit_info())

    def file(self, name: str, rows: Sequence[tuple[Any, ...]], ids: Sequence[int | None] | None = None) -> None:
        columns = {c: pa.array([row[i] for row in rows]) for i, c in enumerate(self.columns)}
        if ids is not None:
            columns[MOVED] = pa.array(ids, pa.int64())
        pq.write_table(pa.table(columns), self.root / "t" / name)

    def diff(self, first: int, second: int, **options: Any) -> VersionDiff:
        lake = self.lake()
        return diff(lake, lake.find("t"), first, second, **options)

    def lake(self) -> Lake:
        return lake_at(self.root)


@pytest.fixture
def moved(tmp_path: Path) -> Tracked:
    """v1: rows 10 … 13, two of them alike; v2: row 11 marked as deleted, row 12 rewritten with its id, a fresh row
    whose id follows from its file."""
    table = Tracked(tmp_path)
    table.file("a", [(1, "x"), (1, "x"), (2, "y"), (3, "z")])
    table.log.commit(add("a", rows=4, baseRowId=10), commit_info())
    vector = write_vector(tmp_path / "t", [1, 2])
    table.file("b", [(2, "changed"), (9, "new")], ids=[12, None])
    table.log.commit(
        remove("a"), add("a", rows=4, dv=vector, baseRowId=10), add("b", rows=2, baseRowId=20), commit_info()
    )
    return table


def test_rows_without_a_key_are_paired_by_their_ids(moved: Tracked) -> None:
    found = moved.diff(1, 2)
    assert (found.method, found.exact, found.changes.net) == (DiffMethod.ROW_ID, True, NetCounts(1, 1, 1))
    assert found.key and (found.key.columns, found.key.source) == (("_row_id",), KeySource.ROW_TRACKING)
    rows = {row.kind: (row.before, row.after, row.changed) for row in found.changes.rows}
    assert rows == {
        RowKind.UPDATE: ({"id": 2, "v": "y", "_row_id": 12}, {"id": 2, "v": "changed", "_row_id": 12}, ("v",)),
        RowKind.DELETE: ({"id": 1, "v": "x", "_row_id": 11}, None, ()),
        RowKind.INSERT: (None, {"id": 9, "v": "new", "_row_id": 21}, ()),
    }
    assert found.changes.changed_cells == {"v": 1}
    assert not any(row.key for row in found.changes.rows), "no key to look up"
    assert moved.diff(2, 1).changes.net == NetCounts(1, 1, 1)
    assert moved.diff(1, 2, where="id = 9").changes.net == NetCounts(1, 0, 0)
    assert moved.diff(1, 2, columns=("id",)).changes.net == NetCounts(1, 0, 1)


def rewritten(root: Path, rows: Sequence[tuple[Any, ...]], configuration: Mapping[str, str]) -> Tracked:
    """v1: rows 0 and 1; v2: the same two rows with other values."""
    table = Tracked(root, configuration=TRACKED | configuration)
    table.file("a", [(1, "x"), (2, "y")])
    table.log.commit(add("a", rows=2, baseRowId=0), commit_info())
    table.file("b", rows, ids=[0, 1])
    table.log.commit(remove("a"), add("b", rows=2, baseRowId=2), commit_info())
    return table


def test_rows_go_by_the_key_of_the_table_where_it_has_one(tmp_path: Path) -> None:
    """The ids pair them all the same: an update of the key is an update."""
    table = rewritten(tmp_path, [(7, "x"), (2, "y")], {"weir.primaryKey": "id"})
    found = table.diff(1, 2)
    assert (found.method, found.changes.net) == (DiffMethod.ROW_ID, NetCounts(0, 1, 0))
    assert found.changes.columns == ("id", "v")
    [row] = found.changes.rows
    assert (row.key, row.before, row.after) == ({"id": 7}, {"id": 1, "v": "x"}, {"id": 7, "v": "x"})
    by_key = table.diff(1, 2, key=("id",))
    assert (by_key.method, by_key.changes.net) == (DiffMethod.KEY_JOIN, NetCounts(1, 0, 1))


@pytest.mark.parametrize("keyed", [False, True])
def test_all_rows_leave_as_the_answer_names_them(tmp_path: Path, keyed: bool) -> None:
    table = rewritten(tmp_path, [(7, "x"), (2, "z")], {"weir.primaryKey": "id"} if keyed else {})
    lake = table.lake()
    found, rows = in_a_file(lake, lake.find("t"), (1, 2))
    assert found.method is DiffMethod.ROW_ID
    assert rows == json.loads(exported(found, FORMATS["json"]))
    assert [row["key"] for row in rows] == ([{"id": 7}, {"id": 2}] if keyed else [None, None])


def test_an_id_that_two_rows_have_is_set_apart(tmp_path: Path) -> None:
    table = Tracked(tmp_path)
    table.file("a", [(1, "x"), (2, "y")], ids=[5, 5])
    table.log.commit(add("a", rows=2, baseRowId=0), commit_info())
    found = table.diff(0, 1)
    assert (found.exact, found.changes.net, found.changes.apart.duplicate_keys) == (False, NetCounts(2, 0, 0), 1)
    assert {row.set_apart for row in found.changes.rows} == {SetApart.DUPLICATE_KEY}


def test_where_ids_cannot_be_read_the_next_method_answers_and_says_why(tmp_path: Path) -> None:
    late, wrong, other = (Tracked(tmp_path / name) for name in ("late", "wrong", "other"))
    for table in (late, wrong):
        table.file("a", [(1, "x")])
    late.log.commit(add("a", rows=1), commit_info())
    wrong.log.commit(add("a", rows=1, baseRowId=0), commit_info())
    pq.write_table(pa.table({"id": [1.5], "v": ["x"]}), tmp_path / "wrong" / "t" / "a")
    other.log.commit(metadata(ID_AND_V, configuration=TRACKED | {"delta.rowTracking.materializedRowIdColumnName": "n"}))
    for table, reason in (
        (late, "not by row ids: 1 of 1 files of v1 without a base row id: tracking began later"),
        (wrong, "not by row ids: files hold DOUBLE for id, which is long"),
        (other, "not by row ids: row tracking was set up again in between: rows got other ids"),
    ):
        found = table.diff(0, 1)
        assert found.method is not DiffMethod.ROW_ID and reason in found.reasons, found.reasons
    with pytest.raises(TableError, match="without a base row id"):
        late.diff(0, 1, method=DiffMethod.ROW_ID)
    with pytest.raises(DiffError, match="set up again"):
        other.diff(0, 1, method=DiffMethod.ROW_ID)


def test_what_only_spark_reads_is_known_before(tmp_path: Path) -> None:
    nested = Tracked(tmp_path, columns={"id": "long", "_row_id": "long"})
    lake = nested.lake()
    nested.log.commit(add("a", rows=1, baseRowId=0), commit_info())
    nested.file("a", [(1, 2)])
    assert "a column _row_id of its own" in prepare(lake, lake.find("t"), 0, 1).plan.against[DiffMethod.ROW_ID]
    odd = Tracked(tmp_path / "odd", columns={"id": "long", "v": "variant"})
    odd.log.commit(add("a", rows=1, baseRowId=0), commit_info())
    odd.file("a", [(1, b"2")])
    lake = odd.lake()
    plans = [prepare(lake, lake.find("t"), 0, 1, on_host=on_host).plan for on_host in (False, True)]
    assert "column v is variant" in plans[0].against[DiffMethod.ROW_ID]
    assert plans[1].method is DiffMethod.ROW_ID
