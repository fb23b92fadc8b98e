"""A query as a job of a stream host: Spark's first rows are those of here, in order, at the versions asked for."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from backend.access import Actor
from backend.errors import LakehouseError
from backend.jobs.host_query import HostQuery
from backend.jobs.model import Job, JobKind, JobRequest, JobState
from backend.jobs.results import results_lake
from backend.lake.lake import Lake
from backend.query.answer import answered
from backend.query.on_host import KeptRows, job_request, kept_rows
from backend.query.plan import plan_query
from backend.query.views import World as Asked
from backend.settings import load_settings
from backend.store.store import ControlStore
from backend.stream_model.stream import HostHeartbeat
from backend.times import Clock
from pipelines.host.job_host import JobHost
from pipelines.jobs.runner import SparkJobs
from tests.pipelines.agreement.test_query_agreement import LIMITS, OPTIONS, Both, comparable
from tests.worlds.lake import questions
from tests.worlds.lake.builders import write
from tests.worlds.lake.hostile_sql import HOSTILE
from tests.worlds.spark.diff_world import World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
MOST_ROWS, MANY = 40_000, 60_000
TABLES = {name: f"silver.orders VERSION AS OF {version}" for name, version in questions.VERSIONS.items()}
TABLES |= {"customers": "silver.customers", "events": "silver.events", "many": "silver.many"}
ASKED = [question for question in questions.QUESTIONS if "max_by" not in question.sql]


class HostWorld(World):
    """The same with questions in SQL."""

    def asked(self) -> Asked:
        return Asked(self.lake, None, datetime.now(UTC), self.settings)

    def wanted(self, text: str) -> JobRequest:
        plan = plan_query(self.asked(), text.format(**TABLES), Clock())
        return job_request(plan, actor=Actor("ann"), reason="test", time_limit_s=240)

    def submit(self, text: str | JobRequest) -> Job:
        wanted = self.wanted(text) if isinstance(text, str) else text
        return self.store.jobs.submit(wanted, now=datetime.now(UTC))

    def rows(self, job: Job) -> KeptRows:
        ended = self.ended(job)
        assert ended.state is JobState.DONE, (ended.error, ended.hint)
        return kept_rows(results_lake(self.settings), self.settings, ended)

    def local(self, text: str) -> pa.Table:
        plan = plan_query(self.asked(), text.format(**TABLES), Clock())
        with answered(self.asked(), plan, LIMITS, None) as rows:
            return rows.read_all()


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostWorld]:
    home = tmp_path_factory.mktemp("query-job")
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    made = Both(session, home)
    for name, frame in (("orders", questions.orders()), ("customers", questions.customers()),
                        ("events", questions.events())):  # fmt: skip
        made.write(name, frame, **OPTIONS[name])
    made.write("orders", questions.appended())
    made.act("UPDATE {} SET status = 'paid' WHERE customer_id = 3", "orders")
    made.act("DELETE FROM {} WHERE status = 'lost'", "orders")
    numbers = pd.Series(range(MANY))
    made.write("many", pd.DataFrame({"n": numbers * 7919 % MANY, "t": numbers.astype(str)}))
    settings = load_settings(home=home, jobs={"query_rows": MOST_ROWS, "at_once": 2})
    store, now = ControlStore.open(settings), datetime.now(UTC)
    runner = SparkJobs(settings, lambda: spark, "host-a")
    host = JobHost(settings, store, runner, "host-a", poll_s=0.02)
    host.start()
    store.beat(HostHeartbeat("host-a", "machine", 1, now, now + timedelta(hours=1)))
    yield HostWorld(settings, store, Lake(settings), runner, host)
    host.stop(5)
    store.close()


@pytest.mark.parametrize("question", ASKED[::4], ids=lambda question: question.name)
def test_a_host_answers_as_is_answered_here(lake: HostWorld, question: questions.Question) -> None:
    kept, here = lake.rows(lake.submit(question.sql)), lake.local(question.sql)
    assert comparable(kept.rows) and comparable(kept.rows) == comparable(here)
    assert comparable(kept.rows) == questions.comparable(question.by_pandas(questions.states()))
    assert not kept.is_cut and "host-a" in kept.by


def test_the_order_of_the_statement_is_kept_and_what_is_cut_is_told(lake: HostWorld) -> None:
    kept = lake.rows(lake.submit("SELECT n, t, n AS t FROM {many} ORDER BY n DESC"))
    assert kept.rows.column(0).to_pylist() == list(range(MANY - 1, MANY - 1 - MOST_ROWS, -1))
    assert kept.is_cut and kept.rows.column_names == ["n", "t", "t"]
    few = lake.rows(lake.submit(f"SELECT n FROM {{many}} ORDER BY n LIMIT {MOST_ROWS}"))
    assert not few.is_cut and few.rows.column(0).to_pylist() == list(range(MOST_ROWS))
    values = lake.rows(lake.submit("SELECT * FROM (VALUES (3, NULL), (1, NULL), (2, NULL)) v(a, b) ORDER BY a"))
    assert values.rows.column(0).to_pylist() == [1, 2, 3] and values.rows.column(1).null_count == 3
    assert lake.rows(lake.submit("SELECT n FROM {many} WHERE n < 0")).rows.num_rows == 0


def test_versions_are_those_of_the_question_whatever_is_written_meanwhile(lake: HostWorld, spark: SparkSession) -> None:
    path = lake.settings.home / "lake" / "silver" / "grows"
    write(path, {"n": [1, 2]})
    wanted = lake.wanted("SELECT count(*) FROM silver.grows")
    write(path, {"n": [3]})
    first = lake.submit(wanted)
    assert lake.rows(first).rows.column(0).to_pylist() == [2]
    assert lake.submit(wanted).job_id == first.job_id, "one question has one job"
    assert lake.rows(lake.submit("SELECT count(*) FROM silver.grows")).rows.column(0).to_pylist() == [3]
    told = [e for e in lake.store.audit_entries(limit=200) if first.job_id in e.detail]
    assert [entry.action for entry in told] == ["query done", "query job"]
    assert "silver/grows v0" in told[1].detail and "SELECT count(*) FROM silver.grows" in told[1].detail
    assert told[1].actor == "ann" and "1 row" in told[0].detail
    assert not [e for e in lake.store.audit_entries(limit=200, with_queries=False) if first.job_id in e.detail]


def test_another_table_in_its_place_is_not_read(lake: HostWorld) -> None:
    wanted = lake.wanted("SELECT n FROM {many}")
    asked = HostQuery.of(wanted.request)
    other = replace(asked, reads=tuple(replace(read, table_id="another") for read in asked.reads))
    ended = lake.ended(lake.submit(replace(wanted, request=other.to_json(), fingerprint=other.fingerprint)))
    assert ended.state is JobState.FAILED and "replaced by another one" in ended.error


def test_a_version_older_than_the_retention_is_read_while_its_files_are_there(lake: HostWorld) -> None:
    path = lake.settings.home / "lake" / "silver" / "short"
    write(path, {"n": [1, 2]}, configuration={"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    write(path, {"n": [3]}, mode="overwrite")
    kept = lake.rows(lake.submit("SELECT n FROM silver.short VERSION AS OF 0 ORDER BY n"))
    assert kept.rows.column(0).to_pylist() == [1, 2]


def results(lake: HostWorld, job: Job) -> list[Path]:
    return list(Path(lake.settings.results_uri).glob(f"{job.job_id}-*"))


def test_a_cancel_half_way_leaves_no_rows(lake: HostWorld, spark: SparkSession) -> None:
    job = lake.submit("SELECT sum(a.n * b.n % 7) FROM {many} a, {many} b")
    lake.until(job, lambda now: now.progress.phase == "computing the rows" and bool(now.progress.total))
    lake.store.jobs.cancel(job.job_id, actor=Actor("bob"), reason="typo", now=datetime.now(UTC))
    ended = lake.ended(job)
    assert (ended.state, ended.result_uri) == (JobState.CANCELLED, None)
    lake.until(job, lambda _: not lake.host.busy, limit_s=30)
    tracker = spark.sparkContext.statusTracker()
    assert not set(tracker.getJobIdsForGroup(f"weir-job-{job.job_id}-1")) & set(tracker.getActiveJobsIds())
    with lake.halted("writing", lake.runner.limits) as is_halted:
        job = lake.submit("SELECT n FROM {many} WHERE n > 5")
        assert is_halted.wait(60)
        lake.store.jobs.cancel(job.job_id, actor=Actor("bob"), reason="typo", now=datetime.now(UTC))
        assert lake.ended(job).state is JobState.CANCELLED
    lake.until(job, lambda _: not lake.host.busy, limit_s=30)
    assert not results(lake, job)


CODE = (
    "reflect('java.lang.System', 'getenv', 'HOME')", "java_method('java.lang.System', 'getenv', 'HOME')",
    "try_reflect('java.lang.System', 'getenv', 'HOME')", "input_file_name()", "current_catalog()",
    "current_database()", "version()", "from_csv('1', 'a INT')", "schema_of_csv('1')", "spark_partition_id()",
    "raise_error('x')", "assert_true(false)", "uuid()", "session_user()", "window(now(), '1 day')",
    "session_window(now(), '1 day')", "xpath('<a/>', 'a')", "parse_url('http://x', 'HOST')", "aes_encrypt('a', 'b')",
    "\"reflect\"('java.lang.System', 'getenv', 'HOME')", "'java.lang.System'.reflect('getenv', 'HOME')",
    "transform(t) USING 'cat'",
)  # fmt: skip
FROM = (
    "read_files('/etc/passwd')", "parquet.`/etc/passwd`", 'text."/etc/passwd"', 'delta."/tmp/x"', "range(3)",
    "spark_catalog.default.t", "global_temp.t", "system.builtin.t", "stack(1, 2)", "IDENTIFIER('many')",
)  # fmt: skip


@pytest.mark.parametrize(
    "text", [f"SELECT {code} FROM {{many}}" for code in CODE] + [f"SELECT * FROM {name}" for name in FROM]
)
def test_what_only_spark_could_run_is_refused_before_a_job_is_asked_for(lake: HostWorld, text: str) -> None:
    with pytest.raises(LakehouseError):
        lake.wanted(text)


def test_hostile_statements_become_no_job_and_a_forged_job_does_not_run(lake: HostWorld) -> None:
    world = lake.asked()
    for text in HOSTILE[::5]:
        with pytest.raises(LakehouseError):
            plan_query(world, text.replace("FROM t", "FROM silver.many"), Clock())
    good = lake.wanted("SELECT n FROM {many}")
    forged = (
        "SELECT reflect('java.lang.System', 'getenv', 'HOME') FROM silver.many",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM \"/etc/passwd\"", "SELECT 1; DROP TABLE silver.many",
    )  # fmt: skip
    for text in forged:  # by somebody who writes into the store
        document = replace(HostQuery.of(good.request), text=text)
        ended = lake.ended(lake.submit(replace(good, request=document.to_json(), fingerprint=document.fingerprint)))
        assert ended.state is JobState.FAILED and ended.result_uri is None and ended.answer is None, text
        assert not results(lake, ended)


@pytest.mark.parametrize("view", ['"silver/many$files"', "weir.tables", '"silver/orders$changes"(1, 2)'])
def test_what_only_weir_reads_is_refused_with_the_way_out(lake: HostWorld, view: str) -> None:
    with pytest.raises(LakehouseError, match="the stream host has no") as refused:
        lake.wanted(f"SELECT count(*) FROM {view}")
    assert "run it here" in refused.value.hint


@pytest.mark.parametrize("column", ["_metadata.file_path", "_metadata", '"current_user"', "t.x"])
def test_columns_that_spark_hides_are_not_there(lake: HostWorld, column: str) -> None:
    ended = lake.ended(lake.submit(f"SELECT {column} FROM {{many}} t"))
    if column == '"current_user"':  # Spark takes it for the name of the host's user: no more than a name
        assert ended.state is JobState.DONE
        return
    assert ended.state is JobState.FAILED and re.match("UNRESOLVED_COLUMN|INVALID_EXTRACT", ended.error)


def test_texts_reach_spark_as_they_are(lake: HostWorld) -> None:
    text = "SELECT 'a\\' AS \"x`y\", '\\'';--', 'it''s', '`', '\\n', 'é$', '/*+ x */' FROM {many} LIMIT 1"
    kept, here = lake.rows(lake.submit(text)), lake.local(text)
    assert kept.rows.column_names[0] == here.column_names[0] == "x`y"  # a column without AS is called as each likes
    assert [c.to_pylist() for c in kept.rows.columns] == [c.to_pylist() for c in here.columns]


def test_a_column_that_no_table_holds_is_named(lake: HostWorld) -> None:
    ended = lake.ended(lake.submit("SELECT max(created) - min(created) AS span FROM {orders}"))
    assert ended.state is JobState.FAILED and "the column span of type interval" in ended.error


def weir(world: HostWorld, text: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "app.cli", "query", text.format(**TABLES), "--on", "host", *arguments],
        env={**os.environ, "WEIR_HOME": str(world.settings.home)}, cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_the_command_waits_prints_and_cancels(lake: HostWorld) -> None:
    command = weir(lake, "SELECT n, t FROM {many} ORDER BY n", "--limit", "3", "--json")
    out, err = command.communicate(timeout=120)
    document = json.loads(out)
    assert command.returncode == 0, err
    assert [row["n"] for row in document["rows"]] == [0, 1, 2] and document["truncated"]
    assert "on host-a" in document["computed_by"] and document["tables"][0]["version"] == 0
    command = weir(lake, "SELECT sum(a.n * b.n % 11) FROM {many} a, {many} b")
    jobs: list[Job] = []

    def computes(_: Job) -> bool:
        jobs[:] = [job for job in lake.store.jobs.unfinished() if job.progress.phase == "computing the rows"]
        return bool(jobs)

    lake.until(lake.store.jobs.newest(1)[0], computes)
    command.send_signal(signal.SIGINT)
    _, err = command.communicate(timeout=60)
    assert command.returncode == 130 and f"job {jobs[0].job_id} is cancelled" in err
    assert jobs[0].kind is JobKind.QUERY and lake.ended(jobs[0]).state is JobState.CANCELLED
