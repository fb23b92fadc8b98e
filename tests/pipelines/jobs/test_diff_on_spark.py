"""A diff by Spark: its answer is that of this process, whatever is asked; a job that must not go on does not.

Rule: a case is a line of the table; a new kind of row or of question is one more. A condition on rows is DuckDB's
everywhere: Spark's own idea of one is nowhere asked.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backend.access import Actor
from backend.changes.host_job import UNEXPLAINED, job_request
from backend.changes.model import DiffMethod, Explanation, NetCounts, VersionDiff
from backend.errors import QueryError
from backend.jobs.model import Job, JobState
from backend.lake.table.schema import column_names
from backend.sql.expression import check_row_condition
from backend.sql.filters import satisfied
from pipelines.jobs.diff import DiffTask, SparkLimits, run_diff, signed_rows
from pipelines.jobs.rows import satisfies
from tests.worlds.cases import few, soak
from tests.worlds.lake.diffs import Asked, asked, diff, prepare
from tests.worlds.processes import wait_until
from tests.worlds.spark.diff_world import World, open_world

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_world(spark, tmp_path_factory.mktemp("diffs")) as opened:
        yield opened


FEED, IDS, KEY, ROWS = DiffMethod.CHANGE_FEED, DiffMethod.ROW_ID, DiffMethod.KEY_JOIN, DiffMethod.MULTISET
WHOLE, CUT = SparkLimits(), SparkLimits(most_values=0)


@dataclass(frozen=True, slots=True)
class Case:
    """A question to both, of Spark within `limits`; a result that is `CUT` holds no more rows than were asked for.
    `net`: what both must find, beyond what they agree on."""

    table: str
    first: int
    second: int
    wanted: Asked
    limits: SparkLimits = WHOLE
    net: NetCounts | None = None

    def __str__(self) -> str:
        wanted = ", ".join(f"{name}={value}" for name, value in self.wanted.items())
        return f"{self.table} {self.first}-{self.second} {wanted}{' cut' * (self.limits is CUT)}"


CHANGED = "id IS NULL OR id % 5 = 0 OR id > 99 OR id IN (3, 9)"
NOT_OF_OTHERS = f"CASE WHEN {CHANGED} THEN id = 10 ELSE CAST('x' AS INTEGER) > 1 END"
MAIN_CASE = Case("plain", 4, 0, asked(method=ROWS, row_limit=6))
MORE_CASES = (
    Case("tracked", 0, 4, asked(method=KEY, key=("id",), where="v = 'm'")),
    Case("random", 1, 0, asked(method=KEY, key=("k", "f"), row_limit=40), CUT),
    # Row 1's null became 0, row 4 has its entries in another order, 2 and 5 differ by microseconds.
    Case("maps", 0, 2, asked(method=KEY, key=("id",)), SparkLimits(compiled_bytes=0), net=NetCounts(0, 3, 0)),
    Case("tracked", 0, 4, asked(method=FEED, key=("id",))),
    Case("replaced", 0, 1, asked(key=("id",), across_replace=True), net=NetCounts(1, 1, 0)),
    Case("tracked", 0, 4, asked(method=IDS)),
    # Within 2 are row 3's number, and one of 1's and 2's beside their NaN; 4 and 5 are further apart.
    Case("maps", 2, 4, asked(method=KEY, key=("id",), tolerance=2.0), net=NetCounts(0, 4, 0)),
    # Rows that cancel are not asked: the files apart hold others, of which the condition would make an error.
    Case("plain", 0, 4, asked(method=KEY, where=NOT_OF_OTHERS), net=NetCounts(0, 1, 0)),
    Case("tracked", 4, 2, asked(method=IDS)),
    Case("narrowed", 0, 1, asked(method=KEY, key=("id",))),  # each version is read with its own schema
    # Null and repeated keys, copies of rows, NaN.
    Case("random", 0, 1, asked(method=KEY, key=("k",))),
    # Row 0's zeros lost their sign, which no comparison sees; 1 and 2 have numbers for NaN.
    Case("maps", 2, 3, asked(method=KEY, key=("id",)), net=NetCounts(0, 2, 0)),
    Case("gaps", 0, 1, asked(where="v <> 'b'")),  # of which the feed has as many as the states
    Case("widened", 5, 0, asked(method=KEY, key=("id",))),
    Case("mapped_by_id", 1, 4, asked(method=KEY, key=("key",))),
    Case("partition_moves", 0, 1, asked(method=ROWS)),
    Case("overwritten", 0, 2, asked(method=KEY, key=("id",))),
    Case("plain", 2, 4, asked(key=("id", "v.w"), columns=("f", "more", "mp"))),
    Case("tracked", 0, 4, asked(method=IDS, where="v = 'u' OR f > 10")),
    Case("plain", 0, 4, asked(method=ROWS, where=NOT_OF_OTHERS)),
    Case("tracked", 4, 0, asked(method=KEY, key=("id",), tolerance=0.01, row_limit=9), CUT),
    Case("tracked", 0, 4, asked(method=FEED, key=("id",), where="v = 'm'")),
    Case("plain", 4, 0, asked(method=ROWS, where="m > 3.1 OR \"v.w\" = 'u'", row_limit=9)),
    Case("plain", 0, 4, asked(method=KEY, key=("p q",), where="id = 101 OR id = 5")),  # a key that names many
    Case("random", 0, 1, asked(method=KEY, key=("k",), where="v = 'a' AND f >= 0")),
    Case("random", 0, 1, asked(method=ROWS, where="v = 'a' OR k IS NULL"), CUT),
    Case("widened", 0, 5, asked(method=ROWS)),
    Case("mapped_by_id", 4, 1, asked(method=ROWS)),
    Case("partition_moves", 1, 0, asked(method=ROWS)),
    Case("overwritten", 2, 0, asked(method=ROWS)),
    Case("restored", 0, 3, asked(method=IDS)),
    Case("plain", 0, 4, asked(method=KEY)),
    Case("plain", 0, 4, asked(method=KEY, row_limit=95), CUT),
    Case("tracked", 0, 4, asked(method=ROWS, row_limit=98), CUT),
    Case("tracked", 0, 4, asked(method=KEY, key=("v",), row_limit=99), CUT),
    Case("tracked", 0, 4, asked(method=IDS, row_limit=97), CUT),
    Case("tracked", 0, 4, asked(method=FEED, key=("id",), row_limit=96), CUT),
    Case("tracked", 1, 2, asked(method=KEY, key=("id",)), CUT, net=NetCounts(0, 0, 0)),
    Case("tracked", 0, 2, asked(method=IDS, where="id < 20 AND v = 'u'"), net=NetCounts(0, 3, 0)),
    Case("maps", 0, 2, asked(method=ROWS), SparkLimits(compiled_bytes=0)),
    Case("maps", 2, 3, asked(method=ROWS), SparkLimits(compiled_bytes=0)),
    Case("replaced", 1, 0, asked(method=ROWS, across_replace=True)),
    Case("plain", 0, 4, asked(method=KEY, where="regexp_matches(\"v.w\", '^n[12]')")),  # before alone
    Case("odd", 0, 1, asked(method=KEY, key=("id",), where="place = 11 OR rows.place = 0")),
    Case("plain", 0, 4, asked(method=KEY, where="\"v.w\" = 'u' AND mp['k'] >= 5")),  # after alone
    Case("plain", 4, 0, asked(method=KEY, where="m > 3.1 OR isnan(f)")),
    Case("plain", 0, 4, asked(method=KEY, key=("more",), where="id = 10")),  # a key that is null
    Case("plain", 0, 4, asked(method=KEY, where="id < 0"), net=NetCounts(0, 0, 0)),
    Case("tracked", 0, 4, asked(method=KEY, key=("id",), tolerance=0.01, where="f > 5")),
    Case("tracked", 4, 0, asked(method=FEED, where="v = 'm'")),
)


def assert_same(spark: VersionDiff, here: VersionDiff) -> None:
    """Everything that a method finds; what the log says is the same code."""
    if UNEXPLAINED in spark.reasons:
        assert spark.changes.truncated and spark.explanation == Explanation()
    elif spark.method is here.method:
        assert spark.explanation == here.explanation
    assert spark.changes.net == here.changes.net
    assert spark.changes.apart == here.changes.apart
    assert spark.changes.changed_cells == here.changes.changed_cells
    assert spark.changes.truncated == here.changes.truncated
    assert sorted(map(repr, spark.changes.common)) == sorted(map(repr, here.changes.common))
    assert spark.changes.arrow_schema.names == here.changes.arrow_schema.names
    assert list(map(repr, spark.changes.rows)) == list(map(repr, here.changes.rows))
    assert (spark.exact, spark.key, spark.changes.columns) == (here.exact, here.key, here.changes.columns)
    assert spark.num_rows == here.num_rows


@pytest.mark.parametrize("case", few(1, [MAIN_CASE, *MORE_CASES]), ids=str)
def test_both_engines_give_one_answer(world: World, case: Case) -> None:
    with world.limited(case.limits):
        spark = world.by_spark(case.table, case.first, case.second, case.wanted)
    here = world.here(case.table, case.first, case.second, case.wanted)
    assert_same(spark, here)
    assert (spark.method, spark.commits) == (here.method, here.commits)
    assert any(reason.startswith("computed by Spark") for reason in spark.reasons)
    assert (UNEXPLAINED in spark.reasons) is (case.limits is CUT and spark.changes.truncated)
    if case.net is not None:
        assert here.changes.net == case.net
    elif "where" in case.wanted:
        whole = world.here(case.table, case.first, case.second, {**case.wanted, "where": None})
        kept, all_rows = ((of.changes.net.total or 0) + of.changes.apart.rows for of in (here, whole))
        assert 0 < kept < all_rows
    else:
        assert here.changes.net.total


@pytest.mark.ci
def test_two_tables_are_compared_too(world: World) -> None:
    wanted = asked(key=("id",), against=world.find("narrowed"), row_limit=50)
    spark, here = world.by_spark("tracked", 4, 0, wanted), world.here("tracked", 4, 0, wanted)
    assert here.changes.net.total and here.question.against
    assert_same(spark, here)


@pytest.mark.ci
def test_what_a_method_would_misread_is_left_to_the_next_one_and_said(world: World) -> None:
    """Also where deletion vectors were turned on later."""
    by_spark = world.by_spark("marked_later", 0, 3, asked())
    assert_same(by_spark, world.here("marked_later", 0, 3, asked(method=IDS)))
    assert by_spark.method is IDS
    for name, last, why in (
        ("overwritten", 2, "commit 2 removes or adds whole files with deletion vectors"),
        ("partition_moves", 1, "commit 1 names files with percent-encoded paths"),
    ):
        reasons = world.here(name, 0, last, asked()).reasons
        assert any(reason.startswith(f"not by the change feed: {why}") for reason in reasons), reasons


@pytest.mark.ci
@pytest.mark.parametrize(("name", "last"), [("tracked", 4), ("overwritten", 2), ("partition_moves", 1)])
def test_a_feed_is_counted_as_spark_reads_it(world: World, spark: SparkSession, name: str, last: int) -> None:
    """Per commit and type, without reading a row."""
    ref = world.find(name)
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
    feed = reader.option("endingVersion", last).load(ref.uri).select("_commit_version", "_change_type")
    by_spark = Counter(tuple(row) for row in feed.collect())
    counts = {version: world.lake.change_counts(ref, version) for version in range(1, last + 1)}
    assert {(v, kind): rows for v, kinds in counts.items() for kind, rows in kinds.items() if rows} == by_spark


# conditions -----------------------------------------------------------------------------------------------------------


CONDITIONS = [
    "place = 11 OR rows.place = 0",
    "rows IN ('é', '%_')",
    "regexp_matches(rows, '^[e%]') OR rows ILIKE 'É' -- DuckDB's own",
    "day < DATE '1582-10-15' AND dayofweek(day) = 5",
    "day = DATE '9999-12-30' OR y + 1 > 127",
    "\"at\" < TIMESTAMPTZ '1500-01-01 00:00:00+00'",
    "hour(rows.at) = 1 AND date_trunc('hour', rows.at) <> rows.at",
    "local > TIMESTAMP '2026-03-29 02:30:00' OR second(local) = 59",
    "m > 1e30",
    "m + 0.1 = 0.2 OR m = 0",
    "f > 1e300",  # as NaN is, of which engines think otherwise
    "f = 0 AND y = -128 OR isinf(f)",
    's."a.b" = 1 OR s."x y"[1].k = \'v\'',
    "mp['k'] = 2 OR raw = '\\xFF'::BLOB",
    "yes",
    "NOT yes OR small = 0.5",
]


@pytest.mark.ci
def test_values_of_every_type_reach_duckdb_through_spark_as_they_are(world: World, spark: SparkSession) -> None:
    snapshot = world.lake.snapshot(world.find("odd"))
    names = list(column_names(snapshot.metadata))
    rows = world.lake.read_files(snapshot, columns=names).read_all().combine_chunks().sort_by("id")
    table = spark.read.format("delta").load(str(Path(snapshot.ref.uri))).orderBy("id")
    numbered = table.select(*(F.col(f"`{name}`").alias(f"c{i}") for i, name in enumerate(names)))
    for text in CONDITIONS:  # one by one: of all at once each would have a Python worker of its own
        answers = numbered.coalesce(1).select("c0", satisfies(text, names, numbered.schema).alias("a"))
        by_spark = answers.orderBy("c0").collect()
        condition = check_row_condition(text, names)
        struct = rows.select(condition.columns).to_struct_array().combine_chunks()
        [here] = satisfied(condition, [struct])
        assert [row.a for row in by_spark] == here.to_pylist(), text
        assert 0 < here.true_count < len(rows), text


def failed(world: World, name: str, options: Asked) -> Job:
    job = world.ended(world.ask(name, 0, world.lake.latest_version(world.find(name)), options))
    assert (job.state, job.result_uri) == (JobState.FAILED, None)
    return job


@pytest.mark.ci
@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("id + 1", "the condition gives BIGINT, not true or false"),
        *soak(
            ('CAST("v.w" AS INTEGER) > 1', "the condition cannot be computed: Could not convert string '"),
            ("id > DATE '2026-01-01'", "the condition cannot be computed: Cannot compare values of type BIGINT and"),
            ("CAST(id AS TINYINT) > 1", "can't be cast because the value is out of range"),
            ('regexp_matches("v.w", "v.w" || \'(\')', "the condition cannot be computed: missing ): "),
        ),
    ],
)
def test_what_rows_make_impossible_ends_the_job_in_the_words_of_this_process(
    world: World, where: str, said: str
) -> None:
    """Of several methods no other is tried."""
    options = asked(where=where)
    with pytest.raises(QueryError) as caught:
        diff(world.lake, world.find("plain"), 0, 4, **options)
    assert said in caught.value.message and caught.value.hint
    job = failed(world, "plain", options)
    assert said in job.error and "not by" not in job.error and "Traceback" not in job.error
    assert job.hint == caught.value.hint


@pytest.mark.ci
@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("duckdb.py", "raise ModuleNotFoundError('no duckdb')", "no duckdb"),
        *soak(
            ("duckdb.py", "__version__ = '0.1'", "DuckDB is 0.1 there and"),
            ("backend/__init__.py", "raise ModuleNotFoundError('no backend')", "no backend"),
        ),
    ],
)
def test_executors_that_lack_what_it_takes_end_the_job_and_say_so(
    world: World, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, said: str
) -> None:
    shadow = tmp_path / file
    shadow.parent.mkdir(exist_ok=True)
    shadow.write_text(text)
    workers = {"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}  # else the folder they start in goes first
    for name, value in workers.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    job = failed(world, "plain", asked(where="id > 1"))
    assert job.error.startswith(f"Spark's executors cannot check a condition on rows: {said}")
    assert "install this version of Weir" in job.hint


# jobs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.ci
def test_what_a_job_reads_it_reads_with_its_own_settings(world: World, spark: SparkSession) -> None:
    """Compiled plans, whatever the streams beside it have, and of their settings none is touched."""
    before = spark.conf.get("spark.sql.codegen.wholeStage")
    session = spark.newSession()
    options = asked(method=KEY, key=("id",), row_limit=77, on_host=True)
    prepared = prepare(world.lake, world.find("tracked"), 0, 4, **options)
    result = f"{world.settings.results_uri}/own-settings"
    run_diff(session, DiffTask(prepared, result, "by a test", SparkLimits(compiled_bytes=0)), lambda _: None)
    rows = signed_rows(session, prepared, KEY)._jdf.sparkSession()
    assert rows.equals(session._jsparkSession) and rows.conf().get("spark.sql.codegen.wholeStage") == "true"
    assert spark.conf.get("spark.sql.codegen.wholeStage") == before


@pytest.mark.ci
def test_cancelling_ends_the_tasks(world: World, spark: SparkSession) -> None:
    job = world.ask("big", 0, 1, asked(method=ROWS))
    world.until(job, lambda found: found.progress.phase == "comparing rows" and bool(found.progress.total))
    tracker = spark.sparkContext.statusTracker()
    group = f"weir-job-{job.job_id}-1"
    assert set(tracker.getJobIdsForGroup(group)) & set(tracker.getActiveJobsIds())
    world.store.jobs.cancel(job.job_id, actor=Actor("bob"), reason="typo", now=datetime.now(UTC))
    world.until(job, lambda found: found.state is JobState.CANCELLED)
    wait_until(
        lambda: not set(tracker.getJobIdsForGroup(group)) & set(tracker.getActiveJobsIds()), "a task of the job runs"
    )


def test_a_question_that_breaks_fails_with_words_and_stops_nothing_else(world: World) -> None:
    prepared = prepare(world.lake, world.find("tracked"), 0, 4, method=ROWS, on_host=True)
    wanted = job_request(prepared, actor=Actor("ann"), reason="test", time_limit_s=60)
    body = json.loads(wanted.request)
    hostile = {
        "no such column": {"columns": ["id", "no such column"]},
        "outside every allowed root": {"ref": body["ref"] | {"uri": "/etc"}},
        "the function 'read_text' is not allowed": {"where": "read_text('/etc/passwd') <> '' OR id > 0"},
    }
    for error, changes in hostile.items():
        asked_anew = replace(wanted, request=json.dumps(body | changes), fingerprint=error)
        failed = world.ended(world.store.jobs.submit(asked_anew, now=datetime.now(UTC)))
        assert (failed.state, failed.result_uri) == (JobState.FAILED, None)
        assert error in failed.error


def weir(world: World, *arguments: str) -> subprocess.Popen[str]:
    roots = json.dumps(world.settings.lake.roots)
    return subprocess.Popen(
        [sys.executable, "-m", "app.cli", "diff", *arguments],
        env={**os.environ, "WEIR_HOME": str(world.settings.home), "WEIR_LAKE__ROOTS": roots},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3],
    )  # fmt: skip


@pytest.mark.soak
def test_the_command_asks_the_host_and_prints_the_same_document(world: World) -> None:
    condition = ("--where", "regexp_matches(\"v.w\", '^[un]') AND id < 101")
    arguments = ("plain", "--from", "0", "--to", "4", "--method", "key_join", *condition, "--json")
    here, host = weir(world, *arguments), weir(world, *arguments, "--on", "host")
    (here_out, _), (host_out, host_err) = here.communicate(timeout=60), host.communicate(timeout=90)
    assert (here.returncode, host.returncode) == (10, 10), host_err
    found, expected = json.loads(host_out), json.loads(here_out)
    assert found.pop("reasons")[:-1] == expected.pop("reasons")
    assert found == expected
    assert "Spark" in host_err or world.store.jobs.unfinished() == []
