"""Acts on tables, done by Spark: what was previewed is what happens, and what was not previewed does not."""

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import mean

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner

from app import services
from app.cli.commands import app
from backend.access import Actor
from backend.errors import QueryError, StreamRefusedError
from backend.jobs.model import Job, JobState
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.maintenance.model import (
    ActPreview,
    ActResult,
    Alter,
    Arguments,
    Optimize,
    Repair,
    Restore,
    TableAct,
    Vacuum,
    act_job,
)
from backend.maintenance.plan import preview
from backend.maintenance.policies import PolicyPlans
from backend.maintenance.readers import load_users
from backend.settings import load_settings
from backend.store.store import ControlStore
from backend.streams.faults import CONFLICTS
from backend.table_policies import TablePolicy
from pipelines import append
from pipelines import table as declared_table
from pipelines.declare.registry import declarations
from pipelines.host.job_host import JobHost
from pipelines.host.policy_rounds import PolicyRounds
from pipelines.jobs.runner import Acts, SparkJobs
from pipelines.jobs.same_rows import rewritten_proof
from pipelines.jvm.failures import describe
from pipelines.specs.registry import Registry
from tests.worlds.processes import wait_until
from tests.worlds.spark.declared import pipeline_of
from tests.worlds.spark.lakes import open_lake

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

NAME = "sales/it's `odd` \\ 100 %"


class Shelf:
    """One table, and the jobs of a host. `interrupt` is called when tables begin to be changed."""

    def __init__(self, spark: SparkSession, home: Path, **settings: object) -> None:
        self.spark, self.settings = spark, load_settings(home=home, **settings)
        (home / "store").mkdir()
        self.store = ControlStore.open(self.settings)
        self.uri = str(home / "lake" / NAME)
        self.runner = SparkJobs(
            self.settings, lambda: spark, "host-a", acts=Acts.of(self.settings, self.store, Registry([]))
        )

    def write(self, *days: str, rows: int = 100, start: int = 0, **options: str) -> None:
        """A commit for each day, one file each."""
        for number, day in enumerate(days):
            batch = self.spark.range(start + number * rows, start + (number + 1) * rows).withColumn("day", F.lit(day))
            writer = batch.coalesce(1).write.format("delta").mode("append").partitionBy("day")
            writer.options(**options).save(self.uri)

    def sql(self, text: str) -> None:
        name = self.uri.replace("`", "``")
        self.spark.sql(text.format(f"delta.`{name}`"))

    @property
    def lake(self) -> Lake:
        return Lake(self.settings)

    @property
    def ref(self) -> TableRef:
        return self.lake.find(self.uri)

    def ids(self) -> list[int]:
        return sorted(row.id for row in self.spark.read.format("delta").load(self.uri).collect())

    def preview(self, arguments: Arguments) -> ActPreview:
        now = datetime.now(UTC)
        users = load_users(self.settings, self.lake, self.store, self.ref, arguments, now=now)
        return preview(self.settings, self.lake, self.ref, arguments, users, now=now)

    def submit(self, act: TableAct) -> Job:
        wanted = act_job(act, actor=Actor("ana"), reason="to put it right")
        return self.store.jobs.submit(wanted, now=datetime.now(UTC))

    def run(self, job: Job) -> ActResult:
        """By a host; raises what it wrote down of a failure."""
        host = JobHost(self.settings, self.store, self.runner, "host-a")

        def is_over() -> bool:
            host.step()
            return self.ended(job).state.is_over

        wait_until(is_over, f"the {job.kind} has ended")
        ended = self.ended(job)
        if ended.state is JobState.FAILED:
            raise StreamRefusedError(ended.error, hint=ended.hint)
        return ActResult.of(ended)

    def ended(self, job: Job) -> Job:
        return self.store.jobs.get(job.job_id) or job

    def act(self, arguments: Arguments) -> ActResult:
        return self.run(self.submit(self.preview(arguments).act))


@pytest.fixture
def shelf(spark: SparkSession, tmp_path: Path) -> Callable[..., Shelf]:
    return lambda **settings: Shelf(spark, tmp_path, **settings)


def test_optimize_does_what_was_previewed(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    table.write("2026-01-01", "2026-01-02", "2026-01-01", "2026-01-02", "2026-01-01", "2026-01-03")
    table.write("2026-01-01", "2026-01-02", rows=300)
    before, cost = table.ids(), files_a_look_up(table)
    planned = table.preview(Optimize())
    assert (planned.figures["files_in"], planned.figures["files_out"], planned.figures["partitions"]) == (7, 2, 2)
    assert f"a look-up of one value of id reads {cost} files now, at most 3 after" in planned.notes

    result = table.act(Optimize())

    assert {name: result.figures[name] for name in ("files_in", "bytes_in", "files_out")} == {
        name: planned.figures[name] for name in ("files_in", "bytes_in", "files_out")
    }
    assert [(proof.what, proof.holds) for proof in result.proofs] == [("the same rows", True)]
    assert table.ids() == before and table.lake.snapshot(table.ref).num_files == 3
    assert result.effect.endswith(f"; a look-up of one value of id reads {files_a_look_up(table)} files, before {cost}")
    (commit, *_) = table.lake.history(table.ref)
    assert commit.operation == "OPTIMIZE" and '"by": "ana"' in (commit.user_metadata or "")
    again = table.preview(Optimize())
    assert again.refused == "nothing is to be merged"


def files_a_look_up(table: Shelf) -> str:
    """By the rows themselves: at the least and the largest value of each file, the files that may hold it."""
    rows = table.spark.read.format("delta").load(table.uri)
    bounds = rows.groupBy("_metadata.file_path").agg(F.min("id"), F.max("id")).collect()
    holding = [sum(low <= value <= high for _, low, high in bounds) for _, *ends in bounds for value in ends]
    return f"{mean(holding):.1f}".removesuffix(".0")


def test_optimize_of_one_partition_and_of_sizes(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    table.write(*["a'b"] * 4, *["c"] * 3)
    largest = max(table.lake.snapshot(table.ref).columns(["size_bytes"])["size_bytes"].to_pylist())
    asked = Optimize(partition={"day": "a'b"}, small_bytes=largest + 1, target_bytes=2 * largest)
    planned = table.preview(asked)
    assert (planned.figures["files_in"], planned.figures["files_out"]) == (4, 2)
    result = table.act(asked)
    assert (result.figures["files_in"], result.figures["files_out"]) == (4, 2)
    assert table.lake.snapshot(table.ref).num_files == 5


def test_a_purge_drops_marked_rows(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    table.write("a", "b", **{"delta.enableDeletionVectors": "true"})
    table.sql("DELETE FROM {} WHERE id % 50 = 0")
    planned = table.preview(Optimize(purge=True))
    assert (planned.figures["files_in"], planned.figures["files_out"]) == (2, 2)
    assert "4 rows that are marked as deleted are dropped from their files" in planned.notes
    result = table.act(Optimize(purge=True))
    assert result.proofs[0].holds is True and result.proofs[0].detail == "196 live rows in, 196 out"
    assert table.lake.snapshot(table.ref).num_deletion_vectors == 0 and len(table.ids()) == 196


def test_each_row_of_an_optimize_is_proven(shelf: Callable[..., Shelf]) -> None:
    """With other names than in the files, deletion vectors, partitions of null; a file that stays is not read."""
    table = shelf()
    kept = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}
    for start, day in ((0, "a"), (100, None), (200, "a"), (300, None), (400, "b")):
        rows = table.spark.range(start, start + 100).withColumn("day", F.lit(day).cast("string"))
        odd = F.struct(F.map_from_arrays(F.array("id"), F.array(F.lit(None).cast("int"))).alias("a b"))
        rows = rows.withColumn("it's. `odd`", odd)
        rows.coalesce(1).write.format("delta").mode("append").partitionBy("day").options(**kept).save(table.uri)
    table.sql("DELETE FROM {} WHERE id % 50 = 0")
    table.sql("ALTER TABLE {} RENAME COLUMN id TO number")
    files = table.lake.snapshot(table.ref).columns(["path", "partition"]).to_pylist()
    (untouched,) = (Path(table.uri, file["path"]) for file in files if file["partition"] == "day=b")
    untouched.rename(untouched.with_suffix(".aside"))
    asked = Optimize(prove_rows=True)
    assert "after it every row is read again, in the old files and in the new ones, and compared" in (
        table.preview(asked).notes
    )

    result = table.act(asked)

    assert (result.figures["files_in"], result.figures["files_out"]) == (4, 2)
    assert [(proof.what, proof.holds, proof.detail) for proof in result.proofs] == [
        ("the same rows", True, "392 live rows in, 392 out"),
        ("each row of the old files is in the new ones", True, "392 rows against 392, each the same"),
    ]


@pytest.mark.parametrize(
    ("statement", "detail"),
    [
        ("UPDATE {} SET id = id + 1 WHERE id = 7", "100 rows against 100, but not the same ones"),
        ("DELETE FROM {} WHERE id = 7", "99 rows against 100"),
    ],
)
def test_files_with_other_rows_are_no_proof(shelf: Callable[..., Shelf], statement: str, detail: str) -> None:
    table = shelf()
    table.write("a", "b", **{"delta.enableDeletionVectors": "false"})
    table.sql(statement)
    before, after = (table.lake.snapshot(table.ref, version) for version in (1, 2))
    proof = rewritten_proof(table.spark, [(before, after)])
    assert (proof.holds, proof.detail) == (False, detail)


def test_vacuum_deletes_what_sparks_dry_run_lists(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    options = {"delta.deletedFileRetentionDuration": "interval 0 seconds", "delta.enableDeletionVectors": "true"}
    table.write("a", "a", "b", **options, **{"delta.enableChangeDataFeed": "true"})
    table.sql("DELETE FROM {} WHERE id = 1")
    table.sql("UPDATE {} SET id = -id WHERE id = 2")
    table.sql("REORG TABLE {} APPLY (PURGE)")
    for name in ("left.parquet", "_hidden.parquet", "day=a/.part.crc", "day=a/left over.parquet", "_other/x.parquet"):
        path = Path(table.uri, name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    name = table.uri.replace("`", "``")
    listed = [row.path for row in table.spark.sql(f"VACUUM delta.`{name}` DRY RUN").collect()]
    files = {Path(path.removeprefix("file:")) for path in listed if not Path(path.removeprefix("file:")).is_dir()}

    planned = table.preview(Vacuum())
    found = table.lake.unneeded_files(table.ref, removed_before=datetime.now(UTC))

    assert {Path(table.uri, path) for path in found.paths} == files
    assert planned.figures["files"] == len(files) > 5 and planned.typed
    result = table.act(Vacuum())
    assert result.figures["files"] == len(files) and result.figures["files_left"] == 0
    assert not any(path.exists() for path in files)
    assert [proof.holds for proof in result.proofs] == [True]
    assert [commit.operation for commit in table.lake.history(table.ref, limit=2)] == ["VACUUM END", "VACUUM START"]


def test_vacuum_is_refused_while_a_stopped_stream_has_to_read_a_file(spark: SparkSession, tmp_path: Path) -> None:
    """Plain VACUUM breaks the stream; Weir's is refused until it has caught up."""
    source = str(tmp_path / "lake" / "bronze" / "orders")
    copies = pipeline_of(declared_table(source), name="copies", sink=append(), trigger="available now")
    home = load_settings(home=tmp_path)
    (tmp_path / "store").mkdir()
    store = ControlStore.open(home)
    lake = open_lake(home, *copies.streams)
    declared = declarations(Registry(copies.streams), home)
    store.declare(declared, now=datetime.now(UTC))
    kept = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}

    def write(start: int) -> None:
        rows = spark.range(start, start + 10).coalesce(1)
        rows.write.format("delta").mode("append").options(**kept).save(source)

    write(0)
    lake.process("copies")
    write(10)
    write(20)
    spark.sql(f"OPTIMIZE delta.`{source}`")

    def planned() -> ActPreview:
        reader, now = Lake(home), datetime.now(UTC)
        ref = reader.find("bronze/orders")
        asked = Vacuum()
        return preview(home, reader, ref, asked, load_users(home, reader, store, ref, asked, now=now), now=now)

    assert planned().refused == "copies has yet to read 2 files that would be deleted"
    lake.process("copies")
    assert planned().refused == "" and planned().figures["files"] == 3
    write(30)
    write(40)
    spark.sql(f"OPTIMIZE delta.`{source}`")
    spark.sql(f"VACUUM delta.`{source}`")
    lake.runtime.start("copies")
    failure = lake.ended("copies").failure
    assert failure is not None and failure.error_class == "FAILED_READ_FILE.FILE_NOT_EXIST"


def test_vacuum_is_refused_while_a_pinned_version_needs_a_file(shelf: Callable[..., Shelf]) -> None:
    """Plain VACUUM breaks the reading of the version; Weir's is refused until it is unpinned."""
    table = shelf()
    table.write("a", "a", "b", **{"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    table.act(Optimize())
    planned = table.preview(Vacuum())
    table.store.pins.add(table.ref, 1, actor=Actor("bo"), reason="audit of May", now=datetime.now(UTC))
    refused = "v1 is pinned by bo: audit of May; 2 files of it would be deleted"
    assert table.preview(Vacuum()).refused == refused
    with pytest.raises(StreamRefusedError, match=refused):  # by the host as well, whoever asked before
        table.run(table.submit(planned.act))

    def rows_of_v1() -> list[int]:
        """Delta refuses what is beyond the retention, files or not."""
        kept = "ALTER TABLE {} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval %s')"
        table.sql(kept % "7 days")
        try:
            rows = table.spark.read.format("delta").option("versionAsOf", 1).load(table.uri).collect()
        finally:
            table.sql(kept % "0 seconds")
        return sorted(row.id for row in rows)

    assert rows_of_v1() == [*range(200)]
    table.sql("VACUUM {}")
    with pytest.raises(Py4JJavaError, match=r"FAILED_READ_FILE.FILE_NOT_EXIST"):
        rows_of_v1()


def test_optimize_beside_an_append_loses_no_row(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    table.write(*["a"] * 4)
    planned = table.preview(Optimize())
    table.write("a", start=1_000)  # between the preview and the act
    result = table.run(table.submit(planned.act))
    assert result.figures["files_in"] == 5 and result.proofs[0].holds is True
    assert table.ids() == [*range(400), *range(1_000, 1_100)]


@pytest.mark.parametrize(
    "rounds", [3, pytest.param(20, marks=pytest.mark.ci), pytest.param(200, marks=pytest.mark.soak)]
)
def test_optimize_beside_deletes_loses_and_doubles_no_row(shelf: Callable[..., Shelf], rounds: int) -> None:
    """Both rewrite the same files: one of the two gives way, and says to whom."""
    table = shelf()
    ids, clashes = set[int](), list[str]()
    for number in range(rounds):
        start = number * 1_000
        table.write(*["a"] * 3, start=start)
        ids |= set(range(start, start + 300))
        failures = list[BaseException]()

        def delete(gone: int = start + 7, failures: list[BaseException] = failures) -> None:
            try:
                table.sql(f"DELETE FROM {{}} WHERE id = {gone}")
            except (PySparkException, Py4JJavaError) as exc:
                failures.append(exc)

        beside = threading.Thread(target=delete)
        table.runner.listen = lambda phase, beside=beside: beside.start() if phase.startswith("optimize") else None
        result = table.act(Optimize())
        beside.join()
        clashes += result.conflicts
        for failure in failures:
            assert describe(failure)[0].startswith(CONFLICTS), failure
            clashes.append(f"DELETE gave way in round {number}")
        if not failures:
            ids.remove(start + 7)
        assert table.ids() == sorted(ids), f"round {number}: {result}, {failures}"
        assert all(proof.holds for proof in result.proofs)
    assert clashes, "no round overlapped"


@pytest.mark.parametrize("keeps", [False, True])
def test_restore_makes_a_version_the_latest_again(shelf: Callable[..., Shelf], keeps: bool) -> None:
    table = shelf()
    table.write("a", "b")
    before = table.ids()
    table.sql("ALTER TABLE {} SET TBLPROPERTIES ('catalog.team_name' = 'blue')")
    table.sql("DELETE FROM {} WHERE id < 50")
    table.write("c", start=1_000)
    asked = Restore(1, keeps_properties=keeps)
    planned = table.preview(asked)
    assert planned.figures["commits_undone"] == 3 and planned.figures["rows_after"] == 200
    assert planned.risks[0].startswith("rows of a v3 DELETE") and "id < 50" in planned.risks[0]
    assert any("catalog.team_name blue → unset" in risk for risk in planned.risks) is not keeps

    result = table.act(asked)

    assert table.ids() == before
    assert [(proof.what, proof.holds) for proof in result.proofs] == [("it is what it was", True)]
    properties = table.lake.snapshot(table.ref).metadata.configuration
    assert properties.get("catalog.team_name") == ("blue" if keeps else None)


def test_rows_are_repaired_as_they_were_previewed(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    table.write("2026-01-01", "2026-01-02")
    asked = Repair("id % 50 = 3 AND \"day\" = '2026-01-02'", {"id": '-"id"'})
    planned = table.preview(asked)
    assert (planned.figures["rows"], planned.figures["files"]) == (2, 1)
    assert "such as id 103, day 2026-01-02: id becomes -103" in planned.notes
    result = table.act(asked)
    assert [proof.holds for proof in result.proofs] == [True] and result.figures == {"rows": 2}
    changed = {-103, -153}
    assert table.ids() == sorted({*range(200)} - {103, 153} | changed)

    gone = Repair('"day" > \'2026\' AND "id" < 0')
    assert table.preview(gone).figures["rows"] == 2
    result = table.act(gone)
    assert result.effect == "2 rows deleted" and result.proofs[0].holds is True
    assert table.ids() == sorted({*range(200)} - {103, 153})


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (Repair("id = 7", {"id": "id / 2"}), "Spark reads this otherwise"),  # a double in both, rounded by DuckDB
        (Repair("regexp_matches(day, 'a')"), "Spark cannot read this: .*regexp_matches"),
        (Repair("id IN (SELECT 1)"), "a subquery is not allowed"),
        (Repair("id = 1 OR read_text('/etc/passwd') = 'x'"), "'read_text' is not allowed"),
        (Repair("id > 1e6"), "no row satisfies the condition"),
        (Repair("id = 1; DROP TABLE t"), "syntax error at or near"),
    ],
)
def test_sql_that_spark_reads_otherwise_changes_nothing(shelf: Callable[..., Shelf], asked: Repair, why: str) -> None:
    table = shelf()
    table.write("a", "b")
    with pytest.raises((StreamRefusedError, QueryError), match=why):
        table.run(table.submit(TableAct(table.uri, NAME, 1, asked)))
    assert table.lake.latest_version(table.ref) == 1 and len(table.ids()) == 200


def test_a_restore_of_a_table_that_moved_on_is_refused(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    table.write("a", "b")
    planned = table.preview(Restore(0))
    table.write("c", start=500)
    with pytest.raises(StreamRefusedError, match="moved on since the preview: v2 WRITE"):
        table.run(table.submit(planned.act))
    assert len(table.ids()) == 300


def test_an_act_that_is_begun_twice_acts_once(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    table.write("a", "b")
    job = table.submit(table.preview(Restore(0)).act)
    end = table.runner.run(job)  # its host dies before it notes the end
    table.write("c", start=500)
    result = table.run(job)
    assert end.state is JobState.DONE and result.version == 2 and result.proofs[0].holds is True
    assert [commit.operation for commit in table.lake.history(table.ref)] == ["WRITE", "RESTORE", "WRITE", "WRITE"]


def test_a_restore_whose_host_died_halfway_keeps_the_properties(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    table.write("a")
    table.sql("ALTER TABLE {} SET TBLPROPERTIES ('catalog.team_name' = 'blue')")
    job = table.submit(table.preview(Restore(0, keeps_properties=True)).act)
    table.spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", json.dumps({"restore": job.job_id}))
    table.sql("RESTORE TABLE {} TO VERSION AS OF 0")
    table.spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")
    assert "catalog.team_name" not in table.lake.snapshot(table.ref).metadata.configuration
    table.run(job)
    assert table.lake.snapshot(table.ref).metadata.configuration["catalog.team_name"] == "blue"
    assert [commit.operation for commit in table.lake.history(table.ref)][:2] == ["SET TBLPROPERTIES", "RESTORE"]


def test_properties_are_set_as_they_were_typed(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    table.write("a")
    hostile = "x'); DROP TABLE t; -- \\' \" ` ü"
    result = table.act(Alter({"owner's \\ note": hostile, "delta.appendOnly": "true"}))
    assert result.proofs[0].holds is True
    properties = dict(table.lake.snapshot(table.ref).metadata.configuration)
    assert properties == {"owner's \\ note": hostile, "delta.appendOnly": "true"}
    table.act(Alter(unset_properties=("owner's \\ note",)))
    assert dict(table.lake.snapshot(table.ref).metadata.configuration) == {"delta.appendOnly": "true"}


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (Alter({"delta.apendOnly": "true"}), "did you mean delta.appendOnly"),
        (Alter({"delta.deletedFileRetentionDuration": "banana"}), "is not an interval"),
        (Alter({"delta.columnMapping.maxColumnId": "7"}), "engines keep it themselves"),
        (Restore(1), "it is the latest version"),
        (Vacuum(), "there is no file to delete"),
    ],
)
def test_what_would_lose_or_do_nothing_is_refused(shelf: Callable[..., Shelf], asked: Arguments, why: str) -> None:
    table = shelf()
    table.write("a", "b")
    planned = table.preview(asked)
    assert why in planned.refused
    with pytest.raises(StreamRefusedError, match="of sales"):
        table.run(table.submit(planned.act))
    assert table.lake.latest_version(table.ref) == 1


def test_a_read_only_root_refuses_all(shelf: Callable[..., Shelf], tmp_path: Path) -> None:
    table = shelf(lake={"read_only_roots": [str(tmp_path / "lake" / "sales")]})
    table.write("a", "b")
    for asked in (Optimize(), Vacuum(), Restore(0), Alter({"a": "b"})):
        assert "is read-only" in table.preview(asked).refused
        with pytest.raises(StreamRefusedError, match="is read-only"):
            table.run(table.submit(TableAct(table.uri, NAME, 1, asked)))


def run_of_policy(table: Shelf, policy: dict[str, object], now: datetime) -> tuple[ActPreview, ActResult, Job]:
    """What a host asks of itself for the one act that is due, carried out by its jobs."""
    settings = table.settings.model_copy(update={"policies": [TablePolicy.model_validate(policy)]})
    rounds = PolicyRounds(settings, table.lake, table.store, "host-a", lambda: now)
    (plan, *_) = PolicyPlans(settings, table.lake).plans(table.store, now=now)
    rounds.once()
    (job,) = table.store.jobs.unfinished()
    result = table.run(job)
    assert plan.previewed is not None and table.ended(job).actor == "policy"
    rounds.once()
    assert table.store.jobs.unfinished() == [], "it is done once"
    return plan.previewed, result, job


def test_a_policy_does_what_anybody_would_have_previewed(
    shelf: Callable[..., Shelf], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = shelf()
    table.write(*["2026-01-01"] * 6, *["2026-01-02"] * 3)
    rows = table.ids()
    monkeypatch.setenv("WEIR_HOME", str(table.settings.home))
    services.forget()  # of the tests before
    shown = CliRunner().invoke(app, ["optimize", table.uri, "--dry-run", "--json"])
    services.forget()
    merge = {"tables": "sales/*", "optimize": {"spares_files": 7}}
    planned, result, job = run_of_policy(table, merge, datetime.now(UTC))
    assert dict(planned.figures) == json.loads(shown.stdout)["figures"]
    assert (planned.figures["files_in"], planned.figures["files_out"]) == (9, 2)
    assert {name: result.figures[name] for name in ("files_in", "bytes_in", "files_out")} == {
        name: planned.figures[name] for name in ("files_in", "bytes_in", "files_out")
    }
    assert [(proof.what, proof.holds) for proof in result.proofs] == [("the same rows", True)]
    assert table.ids() == rows
    entries = [(entry.actor, entry.action) for entry in table.store.audit_entries(subject=NAME)]
    assert entries == [("policy", "optimize done"), ("policy", "optimize job")]
    (commit, *_) = table.lake.history(table.ref)
    stamp = json.loads(commit.user_metadata or "")
    assert (stamp["optimize"], stamp["by"], stamp["reason"]) == (job.job_id, "policy", job.reason)


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
def test_expiry_deletes_exactly_the_rows_that_are_too_old(shelf: Callable[..., Shelf], kind: str) -> None:
    table = shelf()
    now = datetime.now(UTC)
    began = now.replace(minute=0, second=0, microsecond=0)
    ages_h = [0, 1, 47, 48, 49, 71, 72, 73, 100, 1_000]  # around a limit of two days, to the hour and to the day
    moments = [began - timedelta(hours=hours) for hours in ages_h]
    rows = [(number, moment.strftime("%Y-%m-%d %H:%M:%S"), "a") for number, moment in enumerate(moments)]
    rows.append((99, None, "a"))
    frame = table.spark.createDataFrame(rows, "id INT, at STRING, day STRING")
    frame.withColumn("at", F.col("at").cast(kind)).repartition(3).write.format("delta").save(table.uri)
    expire = {"tables": "sales/*", "expire": {"column": "at", "older_than_days": 2}}
    planned, result, _ = run_of_policy(table, expire, now)
    limit = began - timedelta(days=2)
    is_old = (lambda at: at.date() < limit.date()) if kind == "date" else (lambda at: at < limit)
    old = {number for number, moment in enumerate(moments) if is_old(moment)}
    assert len(old) >= 4 and planned.figures["rows"] == result.figures["rows"] == len(old)
    assert table.ids() == [number for number, *_ in rows if number not in old]
    assert [(proof.what, proof.holds) for proof in result.proofs] == [("exactly the rows of the preview", True)]
