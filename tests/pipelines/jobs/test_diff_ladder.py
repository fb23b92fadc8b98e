"""The diff's every rung on tables that Spark writes: what it finds carries the first state to the second.

Rule: states and change feeds are Spark's own answers, compared in plain Python; nothing of the diff is used for it.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, time
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType, TimestampNTZType, VariantVal

from backend.changes.model import DiffMethod, KeySource, NetCounts, RowKind, VersionDiff
from backend.lake.lake import Lake
from backend.settings import load_settings
from tests.worlds.lake.diffs import asked, diff, prepare
from tests.worlds.spark.delta_tables import AT_ONCE, Step, make_table

pytestmark = [pytest.mark.spark, pytest.mark.ci, pytest.mark.timeout(600)]

FEED, KEY, ROWS, LOG = DiffMethod.CHANGE_FEED, DiffMethod.KEY_JOIN, DiffMethod.MULTISET, DiffMethod.LOG_ONLY
IDS = DiffMethod.ROW_ID
LIMIT = 10_000
Cells = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class History:
    """A table's steps, one commit each, and the methods that must be possible between `first` and its last version.

    `renamed` maps a column's old name to its new one, `fresh` columns hold nothing of a dropped one of that name;
    `tracked`: Spark is asked for the row ids too.
    """

    steps: Sequence[Step]
    methods: tuple[DiffMethod, ...]
    first: int = 0
    key: tuple[str, ...] | None = ("id",)
    renamed: Mapping[str, str] = field(default_factory=dict)
    fresh: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    feed: int | None = None  # Spark is asked for the changes after this version
    tracked: bool = False

    @property
    def last(self) -> int:
        return len(self.steps) - 1


def random_steps(seed: int, *, properties: str, has_key: bool) -> tuple[str, ...]:
    """A first state and the kinds of commits in some order; without a key, rows and ids repeat."""
    random = Random(seed)
    number = "CASE WHEN id % 4 = 0 THEN double('NaN') WHEN id % 4 = 1 THEN NULL ELSE id / 2 END"
    source = (
        f"SELECT id, concat('n', id % 3) AS v, {number} AS f FROM (SELECT id % {97 if has_key else 5} AS id FROM range("
    )
    steps = [f"CREATE TABLE {{t}} USING delta TBLPROPERTIES ({properties}) AS {source}0, 30, 1, 2))"]
    kinds = ["update", "delete", "insert", *(["optimize", "merge", "column"] if has_key else [])]
    for place, kind in enumerate(random.sample(kinds, len(kinds))):
        more, start = ", 7" if "ALTER" in "".join(steps) else "", 30 + 10 * place
        if kind == "update":
            steps.append(f"UPDATE {{t}} SET v = concat(v, 'u'), f = f + 1 WHERE id % {random.randint(2, 4)} = 0")
        elif kind == "delete":
            steps.append(f"DELETE FROM {{t}} WHERE id % {random.randint(3, 7)} = 1")
        elif kind == "insert":
            steps.append(f"INSERT INTO {{t}} SELECT *{more} FROM ({source}{start}, {start + 6}, 1, 1)))")
        elif kind == "optimize":
            steps.append("OPTIMIZE {t}")
        elif kind == "column":
            steps.append("ALTER TABLE {t} ADD COLUMN more INT")
        else:
            steps.append(
                f"MERGE INTO {{t}} USING (SELECT id + {start} AS id, 'm' AS v FROM range(0, 6, 1, 1) UNION ALL "
                "SELECT id * 3, 'm' FROM range(0, 6, 1, 1)) s ON {t}.id = s.id "
                "WHEN MATCHED AND s.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v "
                "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)"
            )
    return tuple(steps)


ON = "'delta.enableChangeDataFeed' = 'true'"
VECTORS = "'delta.enableDeletionVectors' = '{}'"
ODD_TEXTS = "('a b'), ('x/y'), ('50%'), ('ü=#?:&'), (''), (NULL), ('p')"

HISTORIES: dict[str, History] = {
    "random": History(
        random_steps(125, properties=f"{ON}, {VECTORS.format('false')}, 'weir.primaryKey' = 'id'", has_key=True),
        methods=(FEED, KEY, ROWS, LOG),
        key=None,
        feed=0,
    ),
    "duplicates_with_vectors": History(
        random_steps(2, properties=f"{ON}, {VECTORS.format('true')}", has_key=False),
        methods=(FEED, ROWS, LOG),
        key=None,
        feed=0,
    ),
    "partition_moves": History(
        (
            f"CREATE TABLE {{t}} USING delta PARTITIONED BY (p, d) TBLPROPERTIES ({ON}) AS SELECT id, x AS p, "
            f"DATE'2026-01-01' AS d FROM range(0, 2, 1, 1), (VALUES {ODD_TEXTS}) AS v(x)",
            "UPDATE {t} SET p = CASE WHEN p = 'p' THEN NULL ELSE 'moved/50%' END, d = NULL "
            "WHERE p = 'x/y' OR id = 1 AND (p IS NULL OR p = 'p')",
        ),
        methods=(ROWS, LOG),
        key=None,
        reasons=("not by the change feed: commit 1 names files with percent-encoded paths",),
        feed=0,
    ),
    "mapped_by_name": History(
        (
            "CREATE TABLE {t} (id BIGINT, v STRING, gone INT, `the day` DATE) USING delta PARTITIONED BY (`the day`) "
            f"TBLPROPERTIES ({ON}, 'delta.columnMapping.mode' = 'name', {VECTORS.format('true')})",
            "INSERT INTO {t} SELECT id, 'v', 5, DATE'2026-01-01' + CAST(id % 2 AS INT) FROM range(0, 9, 1, 1)",
            "ALTER TABLE {t} RENAME COLUMN `the day` TO `day/of`",
            "ALTER TABLE {t} DROP COLUMN gone",
            "ALTER TABLE {t} ADD COLUMN gone INT",
            "UPDATE {t} SET v = 'u', gone = 6 WHERE id = 3",
        ),
        methods=(KEY, ROWS, LOG),
        first=1,
        renamed={"the day": "day/of"},
        fresh=("gone",),
        reasons=("not by the change feed: the change feed of a table with column mapping",),
        feed=4,
    ),
    "mapped_by_id": History(
        (
            "CREATE TABLE {t} USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'id') AS SELECT id, "
            "named_struct('a', CAST(id AS INT), 'b', 'x') AS s, array(1, NULL) AS l FROM range(0, 8, 1, 2)",
            "ALTER TABLE {t} RENAME COLUMN id TO key",
            "ALTER TABLE {t} ADD COLUMN s.c INT",
            "INSERT OVERWRITE {t} SELECT key, IF(key IN (2, 7), named_struct('a', 9, 'b', 'y', 'c', 1), s), l FROM {t}",
        ),
        methods=(KEY, ROWS, LOG),
        key=("key",),
        renamed={"id": "key"},
    ),
    "widened": History(
        (
            "CREATE TABLE {t} USING delta PARTITIONED BY (p) TBLPROPERTIES ("
            "'delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported') AS "
            "SELECT CAST(id AS INT) AS id, CAST(id / 4 AS DECIMAL(6, 2)) AS m, CAST(0.1 AS FLOAT) AS f, "
            "DATE'2026-01-01' AS d, CAST(id % 2 AS TINYINT) AS p FROM range(0, 6, 1, 1)",
            "ALTER TABLE {t} CHANGE COLUMN id TYPE BIGINT",
            "ALTER TABLE {t} CHANGE COLUMN m TYPE DECIMAL(12, 4)",
            "ALTER TABLE {t} CHANGE COLUMN d TYPE TIMESTAMP_NTZ",
            "ALTER TABLE {t} CHANGE COLUMN p TYPE INT",
            "INSERT OVERWRITE {t} SELECT id, IF(id = 2, m + 0.0001, m), f, d, p FROM {t} UNION ALL "
            "SELECT 5000000000, 12345678.1234, 0.5, TIMESTAMP_NTZ'2026-01-01 10:00:00.5', 300",
        ),
        methods=(KEY, ROWS, LOG),
    ),
    "restored_and_tracked": History(
        (
            "CREATE TABLE {t} USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'true', "
            f"{VECTORS.format('true')}, 'weir.primaryKey' = 'id') AS SELECT id, 'a' AS v FROM range(0, 20, 1, 2)",
            "DELETE FROM {t} WHERE id < 5",
            "RESTORE TABLE {t} TO VERSION AS OF 0",
            "INSERT INTO {t} VALUES (101, 'b'), (100, 'b')",
        ),
        methods=(IDS, KEY, ROWS, LOG),
        key=None,
        reasons=("not by Spark's CHANGES: only the stream host has it",),
    ),
    "row_ids": History(
        (
            "CREATE TABLE {t} (id INT, day DATE, v STRING, m DECIMAL(9, 2)) USING delta PARTITIONED BY (day) "
            "TBLPROPERTIES ('delta.enableRowTracking' = 'true', 'delta.columnMapping.mode' = 'name', "
            f"{VECTORS.format('true')})",
            "INSERT INTO {t} SELECT id % 30, DATE'2026-01-01' + CAST(id % 2 AS INT), 'a', id / 4 FROM range(0, 40)",
            "INSERT INTO {t} SELECT id, DATE'2026-01-02', 'b', NULL FROM range(0, 9)",
            "UPDATE {t} SET m = coalesce(m, 0) + 100 WHERE id % 7 = 0",
            "DELETE FROM {t} WHERE id % 5 = 1",
            "OPTIMIZE {t}",
            "UPDATE {t} SET day = DATE'2026-01-03' WHERE id = 8",
        ),
        methods=(IDS, ROWS, LOG),
        first=2,
        key=None,
        tracked=True,
    ),
    "overwritten": History(
        (
            f"CREATE TABLE {{t}} USING delta TBLPROPERTIES ({ON}, {VECTORS.format('true')}) AS "
            "SELECT id, 'a' AS v, parse_json('{{\"n\": 1}}') AS j FROM range(0, 9, 1, 1)",
            "DELETE FROM {t} WHERE id IN (3, 5)",
            "INSERT OVERWRITE {t} SELECT id, 'b', parse_json('[1]') FROM range(4, 7, 1, 1)",
        ),
        methods=(KEY, ROWS, LOG),
        reasons=("not by the change feed: commit 2 removes or adds whole files with deletion vectors",),
        feed=0,
    ),
}


@dataclass(frozen=True, slots=True)
class Made:
    """A table as Spark left it, and what Spark says of its states and of its feed."""

    name: str
    folder: Path
    history: History
    schema: StructType
    states: Mapping[int, tuple[Mapping[str, Any], ...]]
    feed: tuple[Mapping[str, Any], ...]

    def state(self, version: int, columns: Sequence[str]) -> Counter[Cells]:
        """Rows as the newest schema sees them."""
        history, found = self.history, Counter[Cells]()
        for row in self.states[version]:
            named = {history.renamed.get(name, name): value for name, value in row.items()}
            if version != history.last:
                named |= dict.fromkeys(history.fresh)
            found[tuple((name, _as_of(named.get(name), self.schema[name].dataType)) for name in columns)] += 1
        return found


def _as_of(value: Any, kind: DataType) -> Any:
    """A value that can be counted: NaN equals itself, a nested field added later is null."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        return tuple((each.name, _as_of(value.get(each.name), each.dataType)) for each in kind)
    if isinstance(kind, TimestampNTZType) and not isinstance(value, datetime):
        return datetime.combine(value, time())
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, VariantVal):
        return (("metadata", bytes(value.metadata)), ("value", bytes(value.value)))
    if isinstance(value, Mapping):
        return tuple((name, _plain(each)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(_plain(each) for each in value)
    if isinstance(value, bytearray):
        return bytes(value)
    return "nan" if value != value else value


def applied(state: Counter[Cells], found: VersionDiff) -> Counter[Cells]:
    """The first state with the found rows taken away and added."""
    result = Counter(state)
    for row in found.changes.rows:
        for cells, sign in ((row.before, -1), (row.after, 1)):
            if cells is not None:
                result[tuple((name, _plain(cells[name])) for name in found.changes.columns)] += sign * row.copies
    assert all(count >= 0 for count in result.values()), "took away a row that was not there"
    return +result


def counted(before: Counter[Cells], after: Counter[Cells], key: Sequence[str]) -> NetCounts:
    """The net counts of two states, by hand."""
    old, new = ({tuple(dict(row)[name] for name in key): row for row in state} for state in (before, after))
    both = old.keys() & new.keys()
    return NetCounts(len(new.keys() - both), sum(old[k] != new[k] for k in both), len(old.keys() - both))


def _ask(spark: SparkSession, folder: Path, name: str) -> Made:
    history = HISTORIES[name]
    make_table(spark, folder, history.steps)
    session = spark.newSession()
    reader = session.read.format("delta")
    frames = {v: reader.option("versionAsOf", v).load(str(folder)) for v in (history.first, history.last)}
    if history.tracked:
        frames = {v: frame.select("*", F.col("_metadata.row_id").alias("_row_id")) for v, frame in frames.items()}
    states = {v: tuple(row.asDict(recursive=True) for row in frame.collect()) for v, frame in frames.items()}
    feed: list[Mapping[str, Any]] = []
    if history.feed is not None:
        changes = session.read.format("delta").option("readChangeFeed", "true")
        changes = changes.option("startingVersion", history.feed + 1).option("endingVersion", history.last)
        feed = [row.asDict(recursive=True) for row in changes.load(str(folder)).collect()]
    return Made(name, folder, history, frames[history.last].schema, states, tuple(feed))


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    root = tmp_path_factory.mktemp("ladder")

    def attempt(name: str) -> Made | Exception:
        try:
            return _ask(spark, root / name, name)
        except Exception as exc:  # noqa: BLE001 - told by that table's tests; the others keep theirs
            return exc

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(zip(HISTORIES, pool.map(attempt, HISTORIES), strict=True))

    def table(name: str) -> Made:
        answer = found[name]
        if isinstance(answer, Exception):
            raise AssertionError(f"Spark could not write {name} or speak of it") from answer
        return answer

    return table


def lake_of(folder: Path) -> Lake:
    root = folder.parent
    return Lake(load_settings(home=root / "home", lake={"roots": [str(root)], "refresh_s": 0.001}))


@pytest.mark.parametrize("name", HISTORIES)
def test_every_method_carries_one_state_to_the_other(made: Callable[[str], Made], name: str) -> None:
    table = made(name)
    history, lake = table.history, lake_of(table.folder)
    ref = lake.find(name)
    for first, second in ((history.first, history.last), (history.last, history.first)):
        plan = prepare(lake, ref, first, second, key=history.key).plan
        assert plan.methods == history.methods, plan.against
        for said in history.reasons:
            assert any(each.startswith(said) for each in plan.reasons(plan.method)), plan.reasons(plan.method)
        for method in plan.methods[:-1]:
            options = asked(key=history.key, method=method, row_limit=LIMIT)
            found = diff(lake, ref, first, second, **options)
            before, after = (table.state(version, found.changes.columns) for version in (first, second))
            assert (found.method, applied(before, found)) == (method, after)
            assert found.num_rows == (before.total(), after.total())
            if found.key and method is not ROWS:
                assert found.changes.net == counted(before, after, found.key.columns), method
            if method is ROWS:
                net = (found.changes.net.inserted, found.changes.net.deleted)
                assert net == ((after - before).total(), (before - after).total())


@pytest.mark.parametrize("name", [name for name, history in HISTORIES.items() if history.feed is not None])
def test_a_feed_is_counted_as_spark_reads_it(made: Callable[[str], Made], name: str) -> None:
    """Per commit and type, without reading a row."""
    table = made(name)
    lake = lake_of(table.folder)
    spark = Counter((row["_commit_version"], row["_change_type"]) for row in table.feed)
    counts = {v: lake.change_counts(lake.find(name), v) for v in range(table.history.feed + 1, table.history.last + 1)}
    assert {(v, kind): rows for v, found in counts.items() for kind, rows in found.items() if rows} == spark


@pytest.mark.parametrize("name", [name for name, history in HISTORIES.items() if FEED in history.methods])
def test_gross_changes_are_those_of_spark(made: Callable[[str], Made], name: str) -> None:
    """And replayed one by one they lead from state to state."""
    table = made(name)
    history, lake = table.history, lake_of(table.folder)
    ref = lake.find(name)
    spark = Counter((row["_commit_version"], row["_change_type"]) for row in table.feed)
    found = diff(lake, ref, history.first, history.last, key=history.key, method=FEED)
    names = {"inserted": "insert", "updated": "update_postimage", "deleted": "delete"}
    for commit in found.commits:
        for ours, theirs in names.items():
            assert (getattr(commit, ours) or 0) == spark[commit.commit.version, theirs], (commit, theirs)
    columns = tuple(table.schema.names)
    changes = _signed(lake.changes(ref, history.first, history.last).read_all().to_pylist(), table, columns)
    assert changes == _signed(table.feed, table, columns)
    state = table.state(history.first, columns)
    for (_, row), copies in sorted(changes.items(), key=lambda change: change[0][0]):
        state[row] += copies
    assert +state == table.state(history.last, columns) and min(state.values()) >= 0


def _signed(rows: Sequence[Mapping[str, Any]], table: Made, columns: Sequence[str]) -> Counter[tuple[int, Cells]]:
    """What each commit gave (+) and took (-), without what it gave and took alike."""
    found = Counter[tuple[int, Cells]]()
    for row in rows:
        sign = 1 if row["_change_type"] in ("insert", "update_postimage") else -1
        cells = tuple((name, _as_of(row.get(name), table.schema[name].dataType)) for name in columns)
        found[row["_commit_version"], cells] += sign
    return Counter({key: count for key, count in found.items() if count})


def test_a_shallow_clone_is_compared_with_its_source(spark: SparkSession, tmp_path: Path) -> None:
    source, clone = tmp_path / "source", tmp_path / "clone"
    make_table(
        spark,
        source,
        (
            f"CREATE TABLE {{t}} USING delta TBLPROPERTIES ({VECTORS.format('true')}) AS "
            "SELECT id, 'a' AS v FROM range(0, 10, 1, 2)",
            f"CREATE TABLE delta.`{clone}` SHALLOW CLONE {{t}}",
            f"UPDATE delta.`{clone}` SET v = 'b' WHERE id IN (2, 8)",
            "INSERT INTO {t} VALUES (50, 'c')",
        ),
    )
    lake = lake_of(source)
    versions = {name: lake.latest_version(lake.find(name)) for name in ("source", "clone")}
    options = asked(key=("id",), against=lake.find("clone"))
    found = diff(lake, lake.find("source"), versions["source"], versions["clone"], **options)
    assert (found.method, found.changes.net, found.unchanged) == (KEY, NetCounts(0, 2, 1), 8)
    rows = {(row.kind, row.key["id"]) for row in found.changes.rows if row.key}
    assert rows == {(RowKind.UPDATE, 2), (RowKind.UPDATE, 8), (RowKind.DELETE, 50)}
    back = diff(lake, lake.find("source"), 0, versions["clone"], **(options | asked(key=None)))
    assert (back.method, back.changes.net) == (ROWS, NetCounts(2, None, 2))


def copied(table: Made, tmp_path: Path) -> Path:
    return Path(shutil.copytree(table.folder, tmp_path / table.name))


def data_files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*.parquet") if not {"_delta_log", "_change_data"} & set(path.parts)}


def change_files(folder: Path) -> set[Path]:
    return set(folder.glob("_change_data/*.parquet"))


def remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink()


def files_at(folder: Path, version: int) -> set[Path]:
    return {Path(uri) for uri in DeltaTable(folder, version=version).file_uris()}


def test_each_rung_opens_its_own_files_and_no_others(made: Callable[[str], Made], tmp_path: Path) -> None:
    """What a method must not need is deleted, and it answers; what it needs is deleted, and the next one does."""
    table = made("random")
    history, folder = table.history, copied(table, tmp_path)
    first, last = files_at(folder, history.first), files_at(folder, history.last)
    lake = lake_of(folder)
    ref = lake.find(table.name)
    whole = diff(lake, ref, history.first, history.last)
    assert (whole.method, whole.key and whole.key.source) == (FEED, KeySource.PROPERTY)

    remove(change_files(folder))
    by_key = diff(lake, ref, history.first, history.last)
    assert (by_key.method, by_key.changes.net) == (KEY, whole.changes.net)
    assert any(reason.startswith("not by the change feed: _change_data/") for reason in by_key.reasons), by_key.reasons

    remove(data_files(folder) - (first ^ last))  # common files, and those of versions in between
    again = diff(lake, ref, history.first, history.last)
    assert (again.method, again.changes.net) == (KEY, whole.changes.net)

    remove(first - last)
    found = diff(lake, ref, history.first, history.last)
    assert (found.method, found.changes.net.total) == (LOG, None)
    for method in ("the change feed", "a join by key", "a comparison of whole rows"):
        assert any(r.startswith("not by ") and method in r and " is gone" in r for r in found.reasons), found.reasons
    assert found.log.files == whole.log.files and found.commits


def test_the_feed_needs_no_file_of_the_states(made: Callable[[str], Made], tmp_path: Path) -> None:
    table = made("random")
    history, folder = table.history, copied(table, tmp_path)
    lake = lake_of(folder)
    ref = lake.find(table.name)
    whole = diff(lake, ref, history.first, history.last)
    needed = set().union(*(set(_paths(folder, version)) for version in range(history.first + 1, history.last + 1)))
    remove(data_files(folder) - needed)
    found = diff(lake, ref, history.first, history.last)
    assert len(data_files(folder)) < len(data_files(table.folder))
    assert (found.method, found.changes.net, str(found.changes.rows)) == (
        FEED,
        whole.changes.net,
        str(whole.changes.rows),
    )


def _paths(folder: Path, version: int) -> Iterable[Path]:
    """Data files that a commit without change files names as changes: its feed is read from them."""
    lines = (folder / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    actions = [json.loads(line) for line in lines]
    if any("cdc" in action for action in actions):
        return
    for action in actions:
        named = action.get("add") or action.get("remove")
        if named and named["dataChange"]:
            yield folder / unquote(named["path"])
