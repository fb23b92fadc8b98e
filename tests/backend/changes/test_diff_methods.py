"""Every method of the diff on random histories: what it finds carries the first state to the second, and all agree.

Rule: states are read by deltalake, whole, and compared row by row in plain Python; nothing of the diff is used for it.
"""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backend.changes.model import DiffMethod, FilesDiff, Limits, NetCounts, VersionDiff
from backend.errors import DiffError, QueryError
from backend.lake.lake import Lake
from backend.settings import load_settings
from backend.sql.session import CancelToken
from backend.work import Stopped
from tests.worlds.cases import few
from tests.worlds.lake.builders import HandLog, add, commit_info, metadata, protocol, remove
from tests.worlds.lake.diff_lakes import ByDeltalake, Joins, Told
from tests.worlds.lake.diffs import asked, diff, prepare

FEED, KEY, ROWS = DiffMethod.CHANGE_FEED, DiffMethod.KEY_JOIN, DiffMethod.MULTISET
Row = tuple[tuple[str, Any], ...]


def lake_at(root: Path) -> Lake:
    return Lake(load_settings(home=root / "home", lake={"roots": [str(root)], "refresh_s": 0.001}))


class History:
    """A table that grows by random commits; `has_key`: ids stay unique."""

    def __init__(self, root: Path, random: Random, *, has_key: bool) -> None:
        self.path = root / "t"
        self.random, self.has_key, self.next_id, self.extra = random, has_key, 0, 0
        self.days = random.choice([["mon", "tue", None], ["mon", "tue/wed", "50%", None]])  # the feed misses the latter
        partition = random.choice([None, ["day"]])
        feed = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(self.path, self.rows(8), partition_by=partition, configuration=feed)

    def rows(self, count: int) -> pa.Table:
        ids = [self.next_id + i for i in range(count)] if self.has_key else [self.random.randrange(4)] * count
        self.next_id += count
        columns = {
            "id": pa.array([*ids[:-1], None] if not self.has_key else ids, pa.int64()),
            "day": pa.array([self.random.choice(self.days) for _ in ids], pa.string()),
            "v": pa.array([self.random.choice("abc") for _ in ids], pa.string()),
            "f": pa.array([self.random.choice([0.5, float("nan"), None, -0.0]) for _ in ids], pa.float64()),
        }
        for number in range(self.extra):
            columns[f"x{number}"] = pa.array([self.random.choice([1, 2, None]) for _ in ids], pa.int32())
        return pa.table(columns)

    def grow(self) -> None:
        self.random.choice(
            [self.append, self.append, self.update, self.update, self.delete, self.compact, self.widen]
        )()

    def append(self) -> None:
        write_deltalake(self.path, self.rows(self.random.randint(1, 5)), mode="append", schema_mode="merge")

    def update(self) -> None:
        column, value = self.random.choice([("v", "'z'"), ("day", "'sun'"), ("f", "f + 1")])
        table = DeltaTable(self.path)
        table.update(updates={column: value}, predicate=f"id % {self.random.randint(1, 3)} = 0")

    def delete(self) -> None:
        DeltaTable(self.path).delete(f"v = '{self.random.choice('abc')}' AND id > {self.next_id // 2}")

    def compact(self) -> None:
        DeltaTable(self.path).optimize.compact()

    def repeat(self) -> None:
        """Rows whose keys are null, or those of other rows."""
        ids = [self.random.choice([None, self.random.randrange(self.next_id)]) for _ in range(3)]
        rows = self.rows(3)
        rows = rows.set_column(rows.schema.get_field_index("id"), "id", pa.array(ids, pa.int64()))
        write_deltalake(self.path, rows, mode="append", schema_mode="merge")

    def widen(self) -> None:
        self.extra += 1
        self.append()


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
                assert (answer.changes.changed_cells, answer.changes.common) == (
                    found[KEY].changes.changed_cells,
                    found[KEY].changes.common,
                )


def differ(before: Row, after: Row, tolerance: float) -> bool:
    """Whether two rows with one key do, floats beyond the tolerance."""
    for (_, x), (_, y) in zip(before, after, strict=True):
        if x != y and not (isinstance(x, float) and isinstance(y, float) and abs(x - y) <= tolerance):
            return True
    return False


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
    for where, value, tolerance in (
        ("v = 'z'", "z", 0.0),
        ("v = 'z'", "z", 1.0),
        (None, None, 1.0),
        ("v < 'b'", "a", 0.0),
    ):
        both = [k for k in old.keys() & new.keys() if differ(old[k], new[k], tolerance)]
        kept = {
            k
            for side in (old, new)
            for k, row in side.items()
            if where is None or dict(row)["v"] == value
        }  # fmt: skip
        net = NetCounts(
            len((new.keys() - old.keys()) & kept), len(kept & set(both)), len((old.keys() - new.keys()) & kept)
        )
        for method in prepared.plan.methods[:-1]:
            if method is not ROWS:
                options = asked(key=("id",), method=method, where=where, tolerance=tolerance, row_limit=1_000)
                answer = diff(lake, ref, first, second, **options)
                assert (answer.method, answer.changes.net) == (method, net), (where, tolerance)
                assert len(answer.changes.rows) == net.total


@pytest.mark.parametrize("seed", few(2, [2, 3, 0, 1, 4, 5]))
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


def compare(root: Path, first: int, second: int, **options: Any) -> VersionDiff:
    lake = lake_at(root)
    (ref,) = lake.tables()
    return diff(lake, ref, first, second, **options)


def test_floats_within_the_tolerance_are_no_update(prices: Path) -> None:
    assert compare(prices, 0, 1, key=("id",)).changes.net.updated == 2
    near = compare(prices, 0, 1, key=("id",), tolerance=0.01)
    assert (near.changes.net, near.unchanged) == (NetCounts(0, 1, 0), 4)
    assert [row.key for row in near.changes.rows] == [{"id": 2}]
    assert near.changes.changed_cells == {"price": 1}


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


def test_too_much_data_is_left_unless_a_method_is_named(prices: Path) -> None:
    found = compare(prices, 0, 1, key=("id",), max_bytes=10)
    assert found.method is DiffMethod.LOG_ONLY
    assert any("differ, more than" in reason for reason in found.reasons) and "key_join" in found.hint
    assert compare(prices, 0, 1, key=("id",), max_bytes=10, method=KEY).changes.net.updated == 2


def test_another_type_leaves_its_column_out(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"id": [1, 2], "v": ["1", "2"], "w": [1, 1]}))
    new = pa.table({"id": [1, 2], "v": [1.5, 2.5], "w": [1, 7]})
    write_deltalake(path, new, mode="overwrite", schema_mode="overwrite")
    found = compare(tmp_path, 0, 1, key=("id",))
    assert (found.changes.columns, found.changes.net) == (("id", "w"), NetCounts(0, 1, 0))
    assert any("another type" in reason and reason.endswith("v") for reason in found.reasons)
    assert not found.exact


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


def test_files_compared_part_by_part_give_what_they_give_at_once(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for first in range(0, 60, 10):
        rows = {"id": list(range(first, first + 10)), "note": [f"n{i % 3}" for i in range(10)]}
        write_deltalake(path, pa.table(rows), mode="append")
    for first in (0, 20, 50):  # one update writes one file for all that it changes
        DeltaTable(path).update(updates={"note": "'late'"}, predicate=f"id BETWEEN {first + 3} AND {first + 5}")
    DeltaTable(path).delete("id BETWEEN 28 AND 41")
    DeltaTable(path).optimize.compact()
    write_deltalake(path, pa.table({"id": [60, 5], "note": ["new", "twice"]}), mode="append")
    lake, joins = lake_at(tmp_path), []
    (ref,) = lake.tables()
    for first, second in ((5, 6), (5, 8), (8, 5), (5, 9), (9, 10), (10, 11), (3, 11)):
        at_once = compare(tmp_path, first, second, key=("id",), method=KEY)
        options = asked(key=("id",), method=KEY, limits=Limits(values_at_once=2 * 45))
        in_parts = diff(lake, ref, first, second, **options, token=(token := Joins()))
        assert str(in_parts) == str(at_once)
        joins.append(token.count)
    assert max(joins) > 1


def test_a_computation_that_nobody_waits_for_ends(prices: Path) -> None:
    lake = lake_at(prices)
    (ref,) = lake.tables()
    token = CancelToken()
    token.stop()
    with pytest.raises(Stopped):
        diff(lake, ref, 0, 1, key=("id",), token=token)
    with pytest.raises(DiffError, match="longer than"):
        diff(lake, ref, 0, 1, key=("id",), token=CancelToken(time_limit_s=0.0))


WIDE: dict[str, Callable[[], pa.Table]] = {
    "3,000 columns": lambda: pa.table({f"c{i}": [1, 2] for i in range(3_000)}),
    "a row of 1 MB": lambda: pa.table({"id": [1, 2], "text": ["x" * 2**20, "y"], "raw": [b"\x00" * 2**20, None]}),
    "nested and binary": lambda: pa.table(
        {
            "id": [1, 2],
            "s": [{"a": [1, None], "m": {"k": b"\xff"}}, None],
            "pairs": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        }
    ),
}


@pytest.mark.parametrize("kind", WIDE)
def test_wide_rows_are_compared(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    write_deltalake(path, WIDE[kind]())
    write_deltalake(path, WIDE[kind]().slice(0, 1), mode="append")
    found = compare(tmp_path, 0, 1)
    assert (found.method, found.changes.net) == (ROWS, NetCounts(1, 0, 0))
    assert len(found.changes.rows) == 1


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


@pytest.mark.parametrize("method", [KEY, ROWS])
def test_a_condition_keeps_the_changes_whose_row_satisfies_it_before_or_after(prices: Path, method: DiffMethod) -> None:
    key = ("id",) if method is KEY else None
    found = compare(prices, 0, 2, key=key, where="price > 2.5", method=method)
    assert found.changes.net == (NetCounts(1, 1, 0) if key else NetCounts(2, None, 0))
    assert {row.after["id"] for row in found.changes.rows if row.after} == {2, 6}
    assert found.unchanged is None and any("price > 2.5" in reason for reason in found.reasons)
    assert compare(prices, 0, 2, key=key, where="price <> price", method=method).changes.net.total == 0


@pytest.mark.parametrize(
    "where", ["nope > 1", "count(*) > 1", "id IN (SELECT 1)", "read_text('/etc/passwd') <> ''", "", "id ="]
)
def test_a_condition_that_may_not_run_is_refused_before_a_row_is_read(prices: Path, where: str) -> None:
    for file in (prices / "t").glob("*.parquet"):
        file.unlink()
    with pytest.raises(QueryError):
        compare(prices, 0, 2, key=("id",), where=where)


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
    by_duckdb = diff(told, ref, 0, 2, key=("id",))  # type: ignore[arg-type]
    assert not told.by_deltalake
    by_deltalake = diff(ByDeltalake(lake), ref, 0, 2, key=("id",))  # type: ignore[arg-type]
    assert by_duckdb.changes.net == by_deltalake.changes.net == NetCounts(0, 3, 1)
    assert str(by_duckdb) == str(by_deltalake)


def test_a_torn_file_is_no_difference(prices: Path) -> None:
    for uri in DeltaTable(prices / "t", version=1).file_uris():
        Path(uri).write_bytes(b"PAR1 torn PAR1")
    found = compare(prices, 0, 1, key=("id",))
    assert found.method is DiffMethod.LOG_ONLY
    assert any(reason.startswith("not by a join by key") for reason in found.reasons)
