"""Acts on the files and rows of tables, done by Spark: what was previewed is what happens, and it is proven."""

import json
import threading
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import mean

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backend.errors import LakehouseError, StreamRefusedError
from backend.maintenance.clone_and_drop import dropped_tables
from backend.maintenance.model import Alter, Arguments, Clone, Drop, Optimize, Repair, Restore, TableAct, Undrop, Vacuum
from backend.maintenance.policies import PolicyPlans
from backend.streams.faults import CONFLICTS
from backend.table_policies import TablePolicy
from pipelines import append
from pipelines import table as declared_table
from pipelines.host.tables import submit_due
from pipelines.jobs.rows import rewritten_proof, rows_proof
from pipelines.jvm.failures import describe
from tests.worlds.cases import soak
from tests.worlds.hosts.rounds import rounds_of
from tests.worlds.spark.act_host import ActHost, ActTable
from tests.worlds.spark.declared import pipeline_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

NAME = ActTable.NAME
UNKEPT = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
MARKED = {"delta.enableDeletionVectors": "true"}
MAPPED = {"delta.columnMapping.mode": "name"}
FILES = ("files_in", "bytes_in", "files_out")


def test_acts_in_turn_do_what_was_previewed(table: ActTable) -> None:
    """One of each kind, on one table."""
    days = ("2026-01-01", "2026-01-02")
    table.write(*days, *days, **MARKED)
    before, cost = table.rows(), files_a_look_up(table)
    planned = table.preview(Optimize())
    assert (planned.figures["files_in"], planned.figures["files_out"], planned.figures["partitions"]) == (4, 2, 2)
    optimized = table.act(Optimize())
    assert {name: optimized.figures[name] for name in FILES} == {name: planned.figures[name] for name in FILES}
    look_ups = f"; a look-up of one value of id reads {files_a_look_up(table)} files, before {cost}"
    assert optimized.effect.endswith(look_ups) and table.rows() == before and table.snapshot.num_files == 2
    assert table.preview(Optimize()).refused == "nothing is to be merged"

    version = table.snapshot.version
    negated = Repair("id % 50 = 3 AND \"day\" = '2026-01-02'", {"id": '-"id"'})
    planned = table.preview(negated)
    assert (planned.figures["rows"], planned.figures["files"]) == (4, 1)
    assert any(note.startswith("such as id ") and "id becomes -" in note for note in planned.notes)
    assert table.act(negated).figures == {"rows": 4}
    changed = {-103, -153, -303, -353}
    assert table.ids() == sorted({*range(400)} - {-number for number in changed} | changed)
    replaced = table.act(Repair("id < 0 OR id IN (103, 153, 303, 353)", from_version=version))
    assert replaced.figures == {"rows": 4, "rows_in": 4} and table.rows() == before

    version = table.snapshot.version
    table.sql("DELETE FROM {} WHERE id < 50")
    planned = table.preview(Restore(version))
    assert (planned.figures["commits_undone"], planned.figures["rows_after"]) == (1, 400)
    table.act(Restore(version))
    assert table.rows() == before

    altered = table.act(
        Alter(UNKEPT, comment="it's odd", add_columns={"n": "int"}, add_constraints={"known": "id >= 0"})
    )
    assert len(altered.proofs) == 4 and table.snapshot.metadata.configuration["delta.constraints.known"] == "id >= 0"
    wider = [(*row, None) for row in before]
    copied = table.act(Clone("kept/copy"))
    assert copied.proofs[0].detail == "400 rows against 400, each the same"
    planned = table.preview(Vacuum())
    assert table.act(Vacuum()).figures["files"] == planned.figures["files"] > 4 and table.rows() == wider

    table.act(Drop())
    assert [ref.name for ref in table.reader().tables()] == ["kept/copy"] and not Path(table.uri).exists()
    table.run(table.submit(table.planned("", Undrop(NAME)).act))
    assert table.rows() == wider and dropped_tables(table.settings) == []

    acts = ["undrop", "drop", "vacuum", "clone", "alter", "restore", "repair", "repair", "optimize"]
    told = [(entry.actor, entry.action) for entry in table.store.audit_entries(subject=NAME)]
    assert told == [("ana", f"{act} {word}") for act in acts for word in ("done", "job")]
    commit = next(commit for commit in table.reader().history(table.ref) if commit.operation == "OPTIMIZE")
    assert '"by": "ana"' in (commit.user_metadata or "")


def files_a_look_up(table: ActTable) -> str:
    """By the rows themselves: at the least and the largest value of each file, the files that may hold it."""
    rows = table.spark.read.format("delta").load(table.uri)
    bounds = rows.groupBy("_metadata.file_path").agg(F.min("id"), F.max("id")).collect()
    holding = [sum(low <= value <= high for _, low, high in bounds) for _, *ends in bounds for value in ends]
    return f"{mean(holding):.1f}".removesuffix(".0")


# what is refused -----------------------------------------------------------------------------------------------------

REFUSED: tuple[tuple[Arguments, str], ...] = (
    (Alter({"delta.apendOnly": "true"}), "did you mean delta.appendOnly"),
    (Alter({"delta.deletedFileRetentionDuration": "banana"}), "is not an interval"),
    (Alter({"delta.columnMapping.maxColumnId": "7"}), "engines keep it themselves"),
    (Alter({"delta.constraints.x": "id > 0"}), "engines keep it themselves"),
    (Alter(add_columns={"a b": "int"}), "Delta refuses it: "),
    (Alter(add_columns={"ID": "int"}), "Delta refuses it: "),
    (Alter(add_columns={"x": "int) USING delta; DROP TABLE t"}), "is no type that can be given here"),
    (Alter(add_columns={"x": "timestamp_ntz"}), "Delta refuses it: "),
    (Alter(MAPPED, drop_columns=("day",)), "Delta refuses it: "),
    (Alter(MAPPED, drop_columns=("id", "gone")), "there is no column 'gone'"),
    (Alter(MAPPED, rename_columns={"id": "Day"}), "Delta refuses it: "),
    (Alter(MAPPED, rename_columns={"id": "a"}, drop_columns=("ID",)), "'id' is named twice"),
    (Alter(widen_columns={"id": "decimal(20,0)"}), "Delta refuses it: "),
    (Alter({"delta.enableTypeWidening": "true"}, widen_columns={"id": "int"}), "Delta refuses it: "),
    (Alter(add_constraints={"x`; DROP": "id > 0"}), "no name for a constraint"),
    (Alter(add_constraints={"x": "id > 0); DROP TABLE t; SELECT (1"}), "only one expression is allowed"),
    (Alter(add_constraints={"x": '"id" >= 0'}), 'has " in it'),
    (Alter(add_constraints={"x": "id >= 0 -- )"}), "has -- in it"),
    (Alter(add_constraints={"x": "id IN (SELECT 1)"}), "a subquery is not allowed"),
    (Alter(add_constraints={"x": "starts_with(day, 'a') OR id % 7 < 9"}), "Spark cannot read this"),
    (Alter(drop_constraints=("x",)), "Delta refuses it: "),
    (Repair("id = 7", {"id": "id / 2"}), "Spark reads this otherwise"),  # a double in both, rounded by DuckDB
    (Repair("regexp_matches(day, 'a')"), "Spark cannot read this: "),
    (Repair("id IN (SELECT 1)"), "a subquery is not allowed"),
    (Repair("id = 1 OR read_text('/etc/passwd') = 'x'"), "'read_text' is not allowed"),
    (Repair("id > 1e6"), "no row satisfies the condition"),
    (Repair("id = 1; DROP TABLE t"), "syntax error at or near"),
    (Repair("id < 5", from_version=2), "v2 is the latest version"),
    (Repair("id < 5", from_version=0), "the columns of v0 are others: n missing, here int"),
    (Repair("id > 500", from_version=1), "no row satisfies the condition"),
    (Repair("regexp_matches(day, 'a')", from_version=1), "Spark cannot read this"),
    (Restore(2), "it is the latest version"),
    (Vacuum(), "there is no file to delete"),
    (Clone("/etc/copy", 0), "outside every allowed root"),
)


def test_what_may_not_be_done_is_refused_by_the_host_whoever_asked(table: ActTable) -> None:
    table.write("a")
    table.sql("ALTER TABLE {} ADD COLUMNS (n INT)")
    table.sql("DELETE FROM {} WHERE id = 3")
    for asked, why in REFUSED:
        with pytest.raises(LakehouseError) as refused:
            table.run(table.submit(TableAct(table.uri, NAME, 2, asked)))
        assert why in refused.value.message, asked
    assert table.snapshot.version == 2 and len(table.ids()) == 99
    table.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    assert "append-only" in table.preview(Repair("id < 5", from_version=1)).refused
    table.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 seconds')")
    beyond = table.preview(Repair("id < 5", from_version=1))
    assert beyond.refused and beyond.way_out == "choose a later version"


def test_a_table_that_moved_on_since_the_preview_is_refused(table: ActTable) -> None:
    table.write("a", "b")
    acts = [table.preview(asked).act for asked in (Restore(0), Repair("id < 5"), Drop())]
    table.write("c", start=500)
    for act in acts:
        with pytest.raises(StreamRefusedError, match="moved on since the preview: v2 WRITE"):
            table.run(table.submit(act))
    assert len(table.ids()) == 300


# files ---------------------------------------------------------------------------------------------------------------


@pytest.mark.ci
def test_optimize_of_one_partition_of_sizes_and_of_marked_rows(table: ActTable) -> None:
    table.write(*["a'b"] * 4, *["c"] * 3, **MARKED)
    largest = max(table.snapshot.columns(["size_bytes"])["size_bytes"].to_pylist())
    asked = Optimize(partition={"day": "a'b"}, small_bytes=largest + 1, target_bytes=2 * largest)
    planned, result = table.preview(asked), table.act(asked)
    assert (planned.figures["files_in"], planned.figures["files_out"]) == (4, 2)
    assert (result.figures["files_in"], result.figures["files_out"]) == (4, 2) and table.snapshot.num_files == 5

    table.sql("DELETE FROM {} WHERE id % 50 = 0 AND day = 'c'")
    planned, purged = table.preview(Optimize(purge=True)), table.act(Optimize(purge=True))
    assert planned.figures["files_in"] == 3
    assert "6 rows that are marked as deleted are dropped from their files" in planned.notes
    assert purged.proofs[0].detail == "294 live rows in, 294 out"
    assert table.snapshot.num_deletion_vectors == 0 and len(table.ids()) == 694


@pytest.mark.ci
def test_each_row_of_an_optimize_is_proven(table: ActTable) -> None:
    """With other names than in the files, deletion vectors, partitions of null; a file that stays is not read."""
    for start, day in ((0, "a"), (100, None), (200, "a"), (300, None), (400, "b")):
        rows = table.spark.range(start, start + 100).withColumn("day", F.lit(day).cast("string"))
        odd = F.struct(F.map_from_arrays(F.array("id"), F.array(F.lit(None).cast("int"))).alias("a b"))
        writer = rows.withColumn("it's. `odd`", odd).coalesce(1).write.format("delta").mode("append")
        writer.partitionBy("day").options(**MAPPED, **MARKED).save(table.uri)
    table.sql("DELETE FROM {} WHERE id % 50 = 0")
    table.sql("ALTER TABLE {} RENAME COLUMN id TO number")
    files = table.snapshot.columns(["path", "partition"]).to_pylist()
    (untouched,) = (Path(table.uri, file["path"]) for file in files if file["partition"] == "day=b")
    untouched.rename(untouched.with_suffix(".aside"))
    asked = Optimize(prove_rows=True)
    note = "after it every row is read again, in the old files and in the new ones, and compared"
    assert note in table.preview(asked).notes

    result = table.act(asked)

    assert (result.figures["files_in"], result.figures["files_out"]) == (4, 2)
    assert [(proof.what, proof.detail) for proof in result.proofs] == [
        ("the same rows", "392 live rows in, 392 out"),
        ("each row of the old files is in the new ones", "392 rows against 392, each the same"),
    ]


@pytest.mark.ci
def test_files_with_other_rows_are_no_proof(table: ActTable) -> None:
    table.write("a", "b", **{"delta.enableDeletionVectors": "false"})
    table.sql("UPDATE {} SET id = id + 1 WHERE id = 7")
    table.sql("DELETE FROM {} WHERE id = 9")
    lake = table.reader()
    versions = [lake.snapshot(table.ref, version) for version in (1, 2, 3)]
    proofs = [rewritten_proof(table.spark, [pair]) for pair in pairwise(versions)]
    assert [(proof.holds, proof.detail) for proof in proofs] == [
        (False, "100 rows against 100, but not the same ones"),
        (False, "99 rows against 100"),
    ]


@pytest.mark.ci
def test_other_rows_are_told_from_the_same(spark: SparkSession) -> None:
    at = datetime(2026, 1, 1, 1, 2, 3, 456789)
    kind = "t timestamp, n timestamp_ntz, d date, x double, s string, m map<string,int>, p decimal(38,9), b binary"
    one = (at, at, date(2026, 1, 1), 0.1 + 0.2, None, {"a": 1}, Decimal("1.000000001"), b"\x00")
    kept = spark.createDataFrame([one, one, (None,) * 8], kind)
    assert rows_proof("same", kept.repartition(3), kept).holds is True
    others = (at.replace(microsecond=456788), at.replace(microsecond=0), None, 0.3, "", {"a": None},
              Decimal("1.000000002"), b"\x01")  # fmt: skip
    for place, value in enumerate(others):
        other = (*one[:place], value, *one[place + 1 :])
        proof = rows_proof("same", spark.createDataFrame([one, other, (None,) * 8], kind), kept)
        assert (proof.holds, proof.detail) == (False, "3 rows against 3, but not the same ones"), other
    assert rows_proof("same", spark.createDataFrame([one, (None,) * 8, (None,) * 8], kind), kept).holds is False
    assert rows_proof("same", kept.limit(2), kept).detail == "2 rows against 3"


@pytest.mark.ci
def test_vacuum_deletes_what_sparks_dry_run_lists(table: ActTable) -> None:
    table.write("a", "a", "b", **UNKEPT, **MARKED, **{"delta.enableChangeDataFeed": "true"})
    table.sql("DELETE FROM {} WHERE id = 1")
    table.sql("UPDATE {} SET id = -id WHERE id = 2")
    table.sql("REORG TABLE {} APPLY (PURGE)")
    for name in ("left.parquet", "_hidden.parquet", "day=a/.part.crc", "day=a/left over.parquet", "_other/x.parquet"):
        path = Path(table.uri, name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    name = table.uri.replace("`", "``")
    listed = [row.path.removeprefix("file:") for row in table.spark.sql(f"VACUUM delta.`{name}` DRY RUN").collect()]
    files = {Path(path) for path in listed if not Path(path).is_dir()}

    planned = table.preview(Vacuum())
    unneeded = table.reader().folder_files(table.ref).unneeded(removed_before=datetime.now(UTC))

    assert {Path(table.uri, path) for path in unneeded.paths} == files
    assert planned.figures["files"] == len(files) > 5 and planned.typed
    result = table.act(Vacuum())
    assert (result.figures["files"], result.figures["files_left"]) == (len(files), 0)
    assert not any(path.exists() for path in files)
    assert table.operations()[:2] == ["VACUUM END", "VACUUM START"]


@pytest.mark.ci
def test_vacuum_is_refused_while_a_stopped_stream_has_to_read_a_file(spark: SparkSession, tmp_path: Path) -> None:
    """Plain VACUUM breaks the stream; Weir's is refused until it has caught up."""
    source = str(tmp_path / "lake" / "bronze" / "orders")

    def write(*starts: int) -> None:
        for start in starts:
            rows = spark.range(start, start + 10).coalesce(1).write.format("delta").mode("append")
            rows.options(**UNKEPT).save(source)

    write(0)
    copies = pipeline_of(declared_table(source), name="copies", sink=append(), trigger="available now")
    host = ActHost(spark, tmp_path, *copies.streams)
    host.lake.process("copies")
    write(10, 20)
    spark.sql(f"OPTIMIZE delta.`{source}`")
    refused = host.planned("bronze/orders", Vacuum()).refused
    assert refused == "copies has yet to read 2 files that would be deleted"
    host.lake.process("copies")
    planned = host.planned("bronze/orders", Vacuum())
    assert planned.refused == "" and planned.figures["files"] == 3
    write(30, 40)
    spark.sql(f"OPTIMIZE delta.`{source}`")
    spark.sql(f"VACUUM delta.`{source}`")
    host.lake.runtime.start("copies")
    failure = host.lake.ended("copies").failure
    assert failure is not None and failure.error_class == "FAILED_READ_FILE.FILE_NOT_EXIST"


# rows ----------------------------------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_optimize_beside_other_writers_loses_and_doubles_no_row(table: ActTable) -> None:
    """An append comes before it, a delete beside it: both rewrite the same files, one gives way and says to whom."""
    ids, clashes = set[int](), list[str]()
    for number in range(200):
        start = number * 1_000
        table.write(*["a"] * 3, start=start)
        planned = table.preview(Optimize())
        table.write("a", start=start + 300)
        ids |= set(range(start, start + 400))
        failures = list[BaseException]()

        def delete(gone: int = start + 7, failures: list[BaseException] = failures) -> None:
            try:
                table.sql(f"DELETE FROM {{}} WHERE id = {gone}")
            except (PySparkException, Py4JJavaError) as exc:
                failures.append(exc)

        beside = threading.Thread(target=delete)
        table.runner.listen = lambda phase, beside=beside: beside.start() if phase.startswith("optimize") else None
        result = table.run(table.submit(planned.act))
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


@pytest.mark.soak
def test_restore_takes_properties_back_or_keeps_them(table: ActTable) -> None:
    table.write("a", "b")
    before = table.ids()
    table.sql("ALTER TABLE {} SET TBLPROPERTIES ('catalog.team_name' = 'blue')")
    table.sql("DELETE FROM {} WHERE id < 50")
    table.write("c", start=1_000)
    risks = table.preview(Restore(1)).risks
    assert risks[0].startswith("rows of a v3 DELETE") and "id < 50" in risks[0]
    for keeps in (True, False):
        asked = Restore(1, keeps_properties=keeps)
        told = any("catalog.team_name blue → unset" in risk for risk in table.preview(asked).risks)
        table.act(asked)
        left = table.snapshot.metadata.configuration.get("catalog.team_name")
        assert (told, left) == (not keeps, "blue" if keeps else None)
        assert table.ids() == before
        table.act(Restore(4))


@pytest.mark.soak
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_rows_of_a_former_version_come_back(table: ActTable, vectors: str) -> None:
    options = {"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": vectors}
    table.write("2026-01-01", "2026-01-02", rows=50, **options)
    before = table.rows()
    table.sql("UPDATE {} SET id = id + 1000 WHERE day = '2026-01-02' AND id < 60")  # ten rows that are wrong
    table.sql("DELETE FROM {} WHERE id IN (1, 70)")
    table.sql("INSERT INTO {} SELECT id, '2026-01-02' FROM range(60, 65)")  # five rows twice
    asked = Repair("\"day\" = '2026-01-02'", from_version=1)
    planned, result = table.preview(asked), table.act(asked)
    assert (planned.figures["rows"], planned.figures["rows_in"]) == (50 - 1 + 5, 50)
    assert planned.typed and any(note.startswith("of those that come, such as id ") for note in planned.notes)
    proven = ["exactly the rows of the preview", "the rows are those of the source"]
    assert [proof.what for proof in result.proofs] == proven and result.figures == {"rows": 54, "rows_in": 50}
    assert table.rows() == [row for row in before if row != (1, "2026-01-01")]
    assert table.act(Repair("id = 1", from_version=1)).figures == {"rows": 0, "rows_in": 1}
    table.write("2026-01-03", start=500, rows=5)
    assert table.act(Repair("id >= 500", from_version=1)).figures == {"rows": 5, "rows_in": 0}
    assert table.rows() == before


@pytest.mark.ci
@pytest.mark.parametrize("vectors", ["true", *soak(("false",))])
def test_what_one_commit_did_is_repaired_and_nothing_else(table: ActTable, vectors: str) -> None:
    table.write("a", "b", rows=50, **{"delta.enableDeletionVectors": vectors})
    good = table.rows()
    table.sql("INSERT INTO {} SELECT id * 100, 'a' FROM range(100, 120)")  # v2: a hundred times too much
    table.sql("INSERT INTO {} VALUES (200, 'a')")
    asked = Repair("\"day\" = 'a'", {"id": "id / 100"}, of_commit=2)
    assert (planned := table.preview(asked)).figures["rows"] == 20
    assert "51 of 71 rows that satisfy the condition" in planned.notes[0], "the innocent"
    assert [proof.holds for proof in table.act(asked).proofs] == [True]
    mended = sorted([*good, *((number, "a") for number in range(100, 120)), (200, "a")], key=repr)
    assert table.rows() == mended and table.preview(asked).refused == "nothing that v2 did to these rows is left"

    table.sql("DELETE FROM {} WHERE id < 40 AND day = 'a'")  # v5
    table.sql("INSERT INTO {} VALUES (3, 'a'), (-3, 'a')")  # what was written since stays
    back = table.act(Repair("id < 40", of_commit=5))
    assert back.figures == {"rows": 0, "rows_in": 39} and back.proofs[0].holds
    assert table.rows() == sorted([*mended, (-3, "a")], key=repr)

    table.sql("INSERT INTO {} SELECT id, 'b' FROM range(60, 70)")  # v8: ten rows twice
    copies = table.act(Repair("", of_commit=8))
    assert copies.figures == {"rows": 20, "rows_in": 10} and copies.proofs[0].holds
    assert table.rows() == sorted([*mended, (-3, "a")], key=repr)
    table.sql("UPDATE {} SET id = id + 1000 WHERE day = 'b'")  # v10
    table.act(Repair("\"day\" = 'b'", of_commit=10))
    assert table.rows() == sorted([*mended, (-3, "a")], key=repr)


@pytest.mark.ci
def test_rows_of_another_table_come(table: ActTable) -> None:
    table.write("a", "b", rows=10)
    other = table.uri.replace(NAME, "fixed/it's other")
    mended = table.spark.range(5, 25).select(F.lit("a").alias("day"), "id")  # columns in another order
    mended.write.format("delta").save(other)
    planned = table.preview(Repair("id BETWEEN 5 AND 14", from_table="it's other"))
    assert planned.act.arguments == Repair("id BETWEEN 5 AND 14", from_version=0, from_table=other)
    mended.limit(1).write.format("delta").mode("append").save(other)  # what was previewed comes, not this
    result = table.run(table.submit(planned.act))
    assert all(proof.holds for proof in result.proofs) and result.figures == {"rows": 10, "rows_in": 10}
    expected = [(number, "a") for number in range(15)] + [(number, "b") for number in range(15, 20)]
    assert table.rows() == sorted(expected, key=repr)


# policies ------------------------------------------------------------------------------------------------------------


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["timestamp", "date", *soak(("timestamp_ntz",))])
def test_expiry_deletes_exactly_the_rows_that_are_too_old(table: ActTable, kind: str) -> None:
    """What a host asks of itself for the one act that is due is done once, as it was previewed."""
    now = datetime.now(UTC)
    began = now.replace(minute=0, second=0, microsecond=0)
    ages_h = [0, 1, 47, 48, 49, 71, 72, 73, 100, 1_000]  # around a limit of two days, to the hour and to the day
    moments = [began - timedelta(hours=hours) for hours in ages_h]
    rows = [(number, moment.strftime("%Y-%m-%d %H:%M:%S"), "a") for number, moment in enumerate(moments)]
    rows.append((99, None, "a"))
    frame = table.spark.createDataFrame(rows, "id INT, at STRING, day STRING")
    frame.withColumn("at", F.col("at").cast(kind)).repartition(3).write.format("delta").save(table.uri)
    policy = TablePolicy.model_validate({"tables": "sales/*", "expire": {"column": "at", "older_than_days": 2}})
    settings = table.settings.model_copy(update={"policies": [policy]})
    plans = PolicyPlans(settings, table.reader())
    rounds = rounds_of(partial(submit_due, plans, table.store, lambda: now))
    (plan,) = PolicyPlans(settings, table.reader()).plans(table.store, now=now)
    rounds.once()
    (job,) = table.store.jobs.unfinished()

    result = table.run(job)

    rounds.once()
    assert table.store.jobs.unfinished() == [], "it is done once"
    limit = began - timedelta(days=2)
    is_day = kind == "date"
    old = {n for n, at in enumerate(moments) if (at.date() < limit.date() if is_day else at < limit)}
    assert plan.previewed is not None and plan.previewed.figures["rows"] == result.figures["rows"] == len(old) >= 4
    assert table.ids() == [number for number, *_ in rows if number not in old]
    assert all(proof.holds for proof in result.proofs)
    entries = [(entry.actor, entry.action) for entry in table.store.audit_entries(subject=NAME)]
    assert entries == [("policy", f"{job.kind} done"), ("policy", f"{job.kind} job")]
    (commit, *_) = table.reader().history(table.ref)
    stamp = json.loads(commit.user_metadata or "")
    assert (stamp[str(job.kind)], stamp["by"], stamp["reason"]) == (job.job_id, "policy", job.reason)
