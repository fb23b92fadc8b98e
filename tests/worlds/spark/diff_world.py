"""The lake, the control store and the host that all diffs by Spark are asked of.

Rule: a real store, a real job host and real tables; only the streams are left out.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from backend.access import Actor
from backend.changes.host_job import job_request, read_answer
from backend.changes.model import VersionDiff
from backend.jobs.model import Job, JobState
from backend.jobs.results import results_lake
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.settings import Settings, load_settings
from backend.store.store import ControlStore
from backend.stream_model.stream import HostHeartbeat
from pipelines.host.job_host import JobHost
from pipelines.jobs.diff import SparkLimits
from pipelines.jobs.runner import SparkJobs
from pipelines.specs.streams import Registry
from tests.worlds.lake.diffs import Asked, diff, prepare
from tests.worlds.processes import PATIENCE_S, wait_until
from tests.worlds.spark.delta_tables import RECIPES, make_table

W = TypeVar("W", bound="World")
OLD = datetime(1400, 2, 28, 23, 59, 59, 999_999)
VALUES = (
    "id, concat('n', id % 3) AS v, CASE WHEN id % 4 = 0 THEN double('NaN') WHEN id % 4 = 1 THEN NULL ELSE id / 2 END "
    "AS f, CAST(id / 8 AS DECIMAL(12, 3)) AS m, timestamp_seconds(1767225600.5 + id) AS t, "
    "named_struct('a', id, 'b b', 'x') AS s, array(id, NULL) AS l, CAST(concat('b', id) AS BINARY) AS b"
)
BIG_ROWS = 1_500_000
FEED_ON = "'delta.enableChangeDataFeed' = 'true'"
TABLES = {
    "plain": (
        "CREATE TABLE {t} USING delta PARTITIONED BY (`p q`) TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
        "'delta.enableDeletionVectors' = 'true', 'weir.primaryKey' = 'id') AS "
        f"SELECT {VALUES}, map('k', id) AS mp, CAST(id % 2 AS STRING) AS `p q` FROM range(0, 40, 1, 3)",
        "ALTER TABLE {t} RENAME COLUMN v TO `v.w`",
        "ALTER TABLE {t} ADD COLUMN more INT",
        f"MERGE INTO {{t}} AS o USING (SELECT {VALUES}, map('k', id) AS mp, p AS `p q` FROM ("
        "SELECT id * 5 AS id, '0' AS p FROM range(0, 8, 1, 1) UNION ALL SELECT id * 6 + 3, 'gone' FROM range(2) "
        "UNION ALL SELECT id, 'new' FROM range(100, 104, 1, 1) UNION ALL SELECT 200, 'twice' FROM range(0, 3, 1, 1) "
        "UNION ALL SELECT NULL, NULL)) AS n ON o.id = n.id WHEN MATCHED AND n.`p q` = 'gone' THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET o.`v.w` = 'u', o.f = o.f + 1 WHEN NOT MATCHED THEN "
        "INSERT (id, `v.w`, f, m, t, s, l, b, mp, `p q`, more) "
        "VALUES (n.id, n.v, n.f, n.m, n.t, n.s, n.l, n.b, n.mp, n.`p q`, 7)",
        "OPTIMIZE {t} WHERE `p q` = '1'",
    ),
    "tracked": (
        "CREATE TABLE {t} USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'true', "
        "'delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'false') AS "
        "SELECT id, concat('n', id % 3) AS v, id / 4 AS f FROM range(0, 60, 1, 3)",
        "UPDATE {t} SET v = 'u' WHERE id % 7 = 0",
        "OPTIMIZE {t}",
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        "MERGE INTO {t} USING (SELECT id * 3 AS id, 'm' AS v FROM range(0, 30, 1, 1)) s ON {t}.id = s.id "
        "WHEN MATCHED AND s.id % 2 = 0 THEN DELETE WHEN MATCHED AND s.id % 9 = 0 THEN UPDATE SET f = f + 0.0001 "
        "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)",
    ),
    "marked_later": (
        "CREATE TABLE {t} USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'true', "
        "'delta.enableDeletionVectors' = 'false') AS SELECT id, 'n' AS v FROM range(0, 20, 1, 2)",
        "UPDATE {t} SET v = 'u' WHERE id % 7 = 0",
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        "DELETE FROM {t} WHERE id % 5 = 1",
    ),
    "maps": (
        "CREATE TABLE {t} USING delta AS SELECT id, map('a', 1, 'k', IF(id < 3, NULL, 0)) AS n, named_struct('m', "
        "map('t', timestamp_micros(id))) AS t, map('z', named_struct('d', IF(id < 1, -0.0D, double('NaN')), 'f.g', "
        "array(IF(id < 1, -0.0F, 1.5F), NULL))) AS z, named_struct('l', array(map(id, IF(id < 1, -0.0D, 1.5D)))) AS "
        "`d.z` FROM range(0, 6, 1, 1)",
        "UPDATE {t} SET n = map('k', 0, 'a', 1) WHERE id IN (1, 4)",
        "UPDATE {t} SET t = named_struct('m', map('t', timestamp_micros(7))) WHERE id IN (2, 5)",
        "UPDATE {t} SET z = map('z', named_struct('d', IF(id = 1, 0.1D, 0.0D), 'f.g', array(0.0F, NULL))), "
        "`d.z` = named_struct('l', array(map(id, 0.0D))) WHERE id < 3",
        "UPDATE {t} SET `d.z` = named_struct('l', array(map(id, IF(id = 3, 1.75D, 9.0D)))) WHERE id > 2",
    ),
    "replaced": (
        "CREATE OR REPLACE TABLE {t} USING delta AS SELECT id, id * 10 AS v FROM range(0, 5, 1, 1)",
        "CREATE OR REPLACE TABLE {t} USING delta AS SELECT id, id * 10 + IF(id = 3, 1, 0) AS v FROM range(0, 6, 1, 1)",
    ),
    "widened": (
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
    "partition_moves": (
        f"CREATE TABLE {{t}} USING delta PARTITIONED BY (p, d) TBLPROPERTIES ({FEED_ON}) AS SELECT id, x AS p, "
        "DATE'2026-01-01' AS d FROM range(0, 2, 1, 1), (VALUES ('a b'), ('x/y'), ('50%'), ('ü=#?:&'), (''), (NULL), "
        "('p')) AS v(x)",
        "UPDATE {t} SET p = CASE WHEN p = 'p' THEN NULL ELSE 'moved/50%' END, d = NULL "
        "WHERE p = 'x/y' OR id = 1 AND (p IS NULL OR p = 'p')",
    ),
    "overwritten": (
        f"CREATE TABLE {{t}} USING delta TBLPROPERTIES ({FEED_ON}, 'delta.enableDeletionVectors' = 'true') AS "
        "SELECT id, 'a' AS v FROM range(0, 9, 1, 1)",
        "DELETE FROM {t} WHERE id IN (3, 5)",
        "INSERT OVERWRITE {t} SELECT id, 'b' FROM range(4, 7, 1, 1)",
    ),
    "restored": (
        "CREATE TABLE {t} USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'true', "
        "'delta.enableDeletionVectors' = 'true') AS SELECT id, 'a' AS v FROM range(0, 20, 1, 2)",
        "DELETE FROM {t} WHERE id < 5",
        "RESTORE TABLE {t} TO VERSION AS OF 0",
        "INSERT INTO {t} VALUES (101, 'b'), (100, 'b')",
    ),
}


@dataclass
class World:
    """A lake, a control store and one host's share of the jobs, on the test run's Spark."""

    settings: Settings
    store: ControlStore
    lake: Lake
    runner: SparkJobs
    host: JobHost
    spark: SparkSession = field(init=False)

    def find(self, name: str) -> TableRef:
        """A table of these here, made by its recipe when it is first asked for."""
        folder = self.settings.home / "lake" / name
        if not folder.exists():
            if name in WRITTEN:
                WRITTEN[name](folder)
            else:
                make_table(self.spark, folder, (RECIPES | TABLES)[name])
        return self.lake.find(name)

    def ask(self, name: str, first: int, second: int, options: Asked, *, limit_s: float = 240) -> Job:
        prepared = prepare(self.lake, self.find(name), first, second, **(options | {"on_host": True}))
        wanted = job_request(prepared, actor=Actor("ann"), reason="test", time_limit_s=limit_s)
        return self.store.jobs.submit(wanted, now=datetime.now(UTC))

    def ended(self, job: Job) -> Job:
        return self.until(job, lambda found: found.state.is_over)

    def until(self, job: Job, condition: Callable[[Job], bool], *, limit_s: float = PATIENCE_S) -> Job:
        observed: list[Job] = []

        def holds() -> bool:
            now = self.store.jobs.get(job.job_id)
            assert now is not None
            observed[:] = [now]
            return condition(now)

        wait_until(holds, lambda: f"{observed}", limit_s=limit_s, pause_s=0.05)
        return observed[0]

    @contextmanager
    def limited(self, limits: SparkLimits) -> Iterator[list[str]]:
        """Jobs have these limits meanwhile; their phases."""
        phases: list[str] = []
        own = self.runner.limits, self.runner.listen
        self.runner.limits, self.runner.listen = limits, phases.append
        try:
            yield phases
        finally:
            self.runner.limits, self.runner.listen = own

    @contextmanager
    def halted(self, phase: str, limits: SparkLimits) -> Iterator[threading.Event]:
        """Jobs stop before the phase until the end: the event says that one does."""
        there, over = threading.Event(), threading.Event()

        def listen(now: str) -> None:
            if phase in now:
                there.set()
                over.wait(90)

        with self.limited(limits):
            self.runner.listen = listen
            try:
                yield there
            finally:
                over.set()

    def by_spark(self, name: str, first: int, second: int, options: Asked) -> VersionDiff:
        job = self.ended(self.ask(name, first, second, options))
        assert job.state is JobState.DONE, (job.error, job.hint)
        prepared = prepare(self.lake, self.find(name), first, second, **(options | {"on_host": True}))
        return read_answer(results_lake(self.settings), self.settings, prepared, job)

    def here(self, name: str, first: int, second: int, options: Asked) -> VersionDiff:
        return diff(self.lake, self.find(name), first, second, **options)


@contextmanager
def serving(spark: SparkSession, settings: Settings, kind: type[W] = World) -> Iterator[W]:  # type: ignore[assignment]
    """A host that takes the jobs of this lake."""
    store, now = ControlStore.open(settings), datetime.now(UTC)
    runner = SparkJobs(settings, lambda: spark, "host-a", store, Registry())
    host = JobHost(settings, store, runner, "host-a", poll_s=0.02)
    host.start()
    store.beat(HostHeartbeat("host-a", "machine", 1, now, now + timedelta(hours=1)))
    yield kind(settings, store, Lake(settings), runner, host)
    host.stop(5)
    store.close()


@contextmanager
def open_world(spark: SparkSession, home: Path) -> Iterator[World]:
    """A lake whose tables are made when they are first asked for, and a host for it."""
    (home / "lake").mkdir()
    settings = load_settings(home=home, lake={"roots": [str(home / "lake")]}, jobs={"at_once": 2})
    with serving(spark, settings) as world:
        world.spark = spark
        yield world


def _write_all_changed(num_rows: int, folder: Path) -> None:
    """Two versions of which every row differs; of many the comparison takes Spark many seconds."""
    for shift in (0, 1):
        numbers = np.arange(num_rows)
        rows = pa.table({"id": numbers, "v": numbers * 7 % 1_000_003 + shift, "w": numbers.astype(str)})
        write_deltalake(folder, rows, mode="overwrite")


def _write_narrowed(folder: Path) -> None:
    """A column gets another type, so that each version is read with its own schema."""
    numbers = np.arange(30)
    at = pa.array([datetime(1400, 2, 28, 23, 59, 59, 999_999, UTC)] * 30, pa.timestamp("us", "UTC"))
    rows = pa.table({"id": numbers, "v": numbers.astype(str), "f": numbers / 4, "at": at})
    write_deltalake(folder, rows)
    other = pa.table({"id": numbers + 5, "v": (numbers + 5).astype(str), "f": (numbers + 5).astype(str), "at": at})
    write_deltalake(folder, other, mode="overwrite", schema_mode="overwrite")


def _write_odd(folder: Path) -> None:
    """Values and names that two engines might take for others."""
    for after in (0, 1):
        rows = {
            "id": [1, 2, 3, 4],
            "place": [10 + after, 2, 0 + after, None],
            "rows": ["a'\"\\", "é" if after else "e", None, "%_"],
            "day": [date(1500, 3, 1 + after), date(1, 1, 1), None, date(9999, 12, 31 - after)],
            "local": [OLD.replace(day=27 + after), None, OLD, datetime(2026, 3, 29, 2, 30, after)],
            "at": pa.array(
                [OLD.replace(tzinfo=UTC, day=27 + after), datetime(2026, 3, 29, 1, 0, after, tzinfo=UTC), None, None],
                pa.timestamp("us", "UTC"),
            ),
            "m": pa.array([Decimal("0.1") + after, None, Decimal("9" * 35 + ".001"), Decimal(0)], pa.decimal128(38, 3)),
            "f": pa.array([float("nan"), -0.0 if after else 1.0, float("inf"), None], pa.float32()),
            "s": [{"a.b": after, "x y": [{"k": "v"}]}, {"a.b": None, "x y": []}, None, {"a.b": 1, "x y": None}],
            "y": pa.array([1, -128, 127, after], pa.int8()),
            "mp": pa.array([{"k": 1}, {"k": 2, "j": 3}, {}, None], pa.map_(pa.string(), pa.int64())),
            "raw": pa.array([b"", b"\xff", None, b"a"]),
            "yes": [True, False, None, True],
            "small": pa.array([Decimal("0.5"), None, Decimal("0.25"), None], pa.decimal128(3, 2)),
        }
        write_deltalake(folder, pa.table(rows), mode="overwrite")


def _write_random(folder: Path) -> None:
    """Few values, so that rows are copies of others and share keys; nulls and NaN among them."""
    random = Random(7)
    for _ in (0, 1):
        rows = {
            "k": random.choices([None, *range(40)], k=120),
            "v": random.choices([None, "", "a", "b"], k=120),
            "f": random.choices([None, 0.0, 1.5, float("nan")], k=120),
            "s": random.choices([None, {"x": 0}, {"x": 1}], k=120),
        }
        write_deltalake(folder, pa.table(rows), mode="overwrite")


def _write_gaps(folder: Path) -> None:
    """A change feed that lost the first of two deleted rows."""
    rows = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})
    write_deltalake(folder, rows, configuration={"delta.enableChangeDataFeed": "true"})
    DeltaTable(folder).delete("id < 3")
    [recorded] = folder.rglob("_change_data/*.parquet")
    size = recorded.stat().st_size
    pq.write_table(pq.read_table(recorded).slice(1), recorded)
    commit = folder / "_delta_log" / f"{1:020d}.json"
    commit.write_text(commit.read_text().replace(f'"size":{size},', f'"size":{recorded.stat().st_size},'))


WRITTEN: dict[str, Callable[[Path], None]] = {
    "big": partial(_write_all_changed, BIG_ROWS),
    "narrowed": _write_narrowed,
    "odd": _write_odd,
    "gaps": _write_gaps,
    "random": _write_random,
}
