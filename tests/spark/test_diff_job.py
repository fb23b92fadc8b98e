"""A diff as a job: what Spark finds is what is found in process, and a job that must not go on does not.

Rule: Spark and this process are asked the same.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from backend.changes.host_job import job_request, read_answer
from backend.changes.model import DiffMethod, VersionDiff
from backend.jobs.model import Job, JobKind, JobState
from backend.jobs.results import results_lake
from pipelines.jobs.diff import DiffTask, run_diff
from pipelines.jobs.prefilter import SparkLimits
from pipelines.jobs.states import signed_rows
from tests.diffs import Asked, asked, prepare
from tests.soak import soak
from tests.spark.diff_world import MID_ROWS, World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FEED, CHANGES, IDS, KEY, ROWS = (
    DiffMethod.CHANGE_FEED, DiffMethod.SPARK_CHANGES, DiffMethod.ROW_ID, DiffMethod.KEY_JOIN, DiffMethod.MULTISET,
)  # fmt: skip
NO_MAPS = ("v.w", "f", "m", "t", "s", "l", "b", "p q", "more")  # of `plain`


def assert_same(spark: VersionDiff, here: VersionDiff) -> None:
    """Everything that a method finds; what the log says is the same code."""
    assert spark.net == here.net
    assert spark.apart == here.apart
    assert (spark.changed_cells, spark.truncated) == (here.changed_cells, here.truncated)
    assert sorted(map(repr, spark.common)) == sorted(map(repr, here.common))
    assert spark.arrow_schema.names == here.arrow_schema.names
    assert list(map(repr, spark.rows)) == list(map(repr, here.rows))
    assert (spark.exact, spark.key, spark.columns) == (here.exact, here.key, here.columns)


@pytest.mark.parametrize(
    ("name", "first", "second", "options"),
    [
        ("plain", 4, 0, asked(method=ROWS, row_limit=6)),
        ("plain", 2, 4, asked(key=("id", "v.w"), columns=("f", "more", "mp"))),
        ("tracked", 0, 4, asked(method=IDS)),
        ("narrowed", 0, 1, asked(method=KEY, key=("id",))),
        ("tracked", 0, 4, asked(method=FEED, key=("id",))),
        *soak(
            ("plain", 0, 4, asked(method=KEY)),
            ("tracked", 0, 4, asked(method=KEY, key=("id",), tolerance=0.01)),
        ),
    ],
)
def test_spark_finds_what_is_found_in_process(world: World, name: str, first: int, second: int, options: Asked) -> None:
    spark, here = world.by_spark(name, first, second, options), world.here(name, first, second, options)
    assert spark.method is here.method
    assert here.net.total
    assert_same(spark, here)
    assert spark.commits == here.commits
    assert any(reason.startswith("computed by Spark") for reason in spark.reasons)


@pytest.mark.parametrize(("first", "second"), [(4, 2), *soak((0, 2))])
def test_sparks_changes_are_those_of_row_ids_and_per_commit_those_of_the_feed(
    world: World, first: int, second: int
) -> None:
    found = world.by_spark("tracked", first, second, asked(method=CHANGES))
    by_ids = world.here("tracked", first, second, asked(method=IDS))
    by_feed = world.here("tracked", first, second, asked(method=FEED))
    assert_same(found, by_ids)
    assert (found.method, found.commits) == (CHANGES, by_feed.commits)
    assert any(commit.updated for commit in found.commits)


def test_what_a_method_would_misread_is_left_to_the_next_one_and_said(world: World, spark: SparkSession) -> None:
    """Deletion vectors were turned on at v3: Spark's CHANGES from v1 on would make rows up."""
    prepared = prepare(world.lake, world.lake.find("tracked"), 0, 4, on_host=True)
    prepared = replace(prepared, plan=replace(prepared.plan, methods=(CHANGES, IDS)))  # without the feed
    result = f"{world.settings.results_uri}/two-methods"
    run_diff(spark.newSession(), DiffTask(prepared, result, "by a test"), _Silent())
    job = Job(
        "j", JobKind.DIFF, "tracked", "f", "{}", "ann", "why", 60, JobState.DONE, datetime.now(UTC), result_uri=result
    )
    found = read_answer(results_lake(world.settings), world.settings, prepared, job)
    assert_same(found, world.here("tracked", 0, 4, asked(method=IDS)))
    assert found.method is IDS
    said = next(reason for reason in found.reasons if reason.startswith("not by Spark's CHANGES: "))
    assert "protocol changed" in said


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "first", "second", "options", "slots"),
    [
        ("tracked", 4, 0, asked(method=KEY, key=("id",), tolerance=0.01, row_limit=9), 4),
        ("tracked", 0, 4, asked(method=ROWS, row_limit=98), 4),
        *soak(
            ("plain", 0, 4, asked(method=KEY, columns=NO_MAPS), 1 << 20),
            ("tracked", 0, 4, asked(method=KEY, key=("v",), row_limit=99), 1 << 20),
            ("tracked", 0, 4, asked(method=IDS, row_limit=97), 1 << 20),
            ("tracked", 0, 4, asked(method=FEED, key=("id",), row_limit=96), 1 << 20),
            ("tracked", 1, 2, asked(method=KEY, key=("id",)), 1 << 20),
        ),
    ],
)
def test_rows_that_can_differ_are_found_by_sums_and_compared_in_parts(
    world: World, name: str, first: int, second: int, options: Asked, slots: int
) -> None:
    here = world.here(name, first, second, options)
    with world.told(SparkLimits(prefiltered_bytes=0, slots=slots, values_a_part=100, most_parts=2)) as phases:
        found = world.by_spark(name, first, second, options)
    assert_same(found, here)
    assert found.commits == here.commits
    assert "finding rows that can differ" in phases
    assert not here.net.total or any("part 2 of" in phase for phase in phases)


@pytest.mark.long
def test_what_a_job_reads_it_reads_with_its_own_settings(world: World, spark: SparkSession) -> None:
    """Compiled plans, whatever the streams beside it have, and of their settings none is touched."""
    before = spark.conf.get("spark.sql.codegen.wholeStage")
    session = spark.newSession()
    options = asked(method=KEY, key=("id",), row_limit=77, on_host=True)
    prepared = prepare(world.lake, world.lake.find("tracked"), 0, 4, **options)
    result = f"{world.settings.results_uri}/own-settings"
    run_diff(session, DiffTask(prepared, result, "by a test", SparkLimits(compiled_bytes=0)), _Silent())
    rows = signed_rows(session, prepared, with_ids=False)._jdf.sparkSession()
    assert rows.equals(session._jsparkSession) and rows.conf().get("spark.sql.codegen.wholeStage") == "true"
    assert spark.conf.get("spark.sql.codegen.wholeStage") == before


class _Silent:
    """A listener that lets everything go on."""

    def tell(self, phase: str) -> None: ...

    def wrote(self) -> None: ...


@pytest.mark.long
@pytest.mark.parametrize("method", [KEY, ROWS])
def test_null_in_a_map_is_not_zero_and_times_in_it_are_whole(world: World, method: DiffMethod) -> None:
    """Row 1's null became 0, row 4 has its entries in another order, 2 and 5 differ by microseconds."""
    options = asked(key=("id",) if method is KEY else None, method=method)
    with world.told(SparkLimits(compiled_bytes=0)):
        spark, here = world.by_spark("maps", 0, 2, options), world.here("maps", 0, 2, options)
    assert_same(spark, here)
    if method is KEY:
        assert (spark.net.updated, spark.changed_cells) == (3, {"n": 1, "t": 2})


@pytest.mark.long
def test_maps_are_compared_at_once(world: World) -> None:
    options = asked(method=KEY, row_limit=95)  # a question that no test has asked before
    with world.told(SparkLimits(prefiltered_bytes=0)) as phases:
        assert_same(world.by_spark("plain", 0, 4, options), world.here("plain", 0, 4, options))
    assert "comparing rows" in phases and "finding rows that can differ" not in phases


@pytest.mark.long
@pytest.mark.parametrize(("key", "is_cancelled"), [(("id",), False), (None, True), *soak((("id",), True))])
def test_what_was_compared_when_a_job_was_ended_is_told_as_that(
    world: World, key: tuple[str, ...] | None, is_cancelled: bool
) -> None:
    options = asked(method=KEY if key else ROWS, key=key, row_limit=20 + is_cancelled)
    limits = SparkLimits(prefiltered_bytes=0, values_a_part=2 * MID_ROWS)
    with world.halted(", part 2 of 3", limits) as is_halted:
        job = world.ask("mid", 0, 1, options, limit_s=60)
        assert is_halted.wait(90)
        if is_cancelled:
            world.store.jobs.cancel(job.job_id, actor="bob", reason="enough", now=datetime.now(UTC))
        else:
            world.host._running[job.job_id].ends_at = 0.0
        ended = world.ended(job, within_s=2)

    assert ended.state is (JobState.CANCELLED if is_cancelled else JobState.FAILED)
    prepared = prepare(world.lake, world.lake.find("mid"), 0, 1, **(options | asked(on_host=True)))
    found = read_answer(results_lake(world.settings), world.settings, prepared, ended)
    partial, net = found.partial, found.net
    assert partial is not None and not found.exact and found.unchanged is None
    assert partial.ended == ("cancelled" if is_cancelled else "stopped at the time limit of 60 s")
    assert partial.rows_total == 2 * MID_ROWS and 0.2 < partial.rows_read / partial.rows_total < 0.5
    assert len(found.rows) == options.get("row_limit")  # every row differs, so every one that was compared
    assert (
        net.updated == partial.rows_read / 2 if key else (net.inserted or 0) + (net.deleted or 0) == partial.rows_read
    )
    again = world.ask("mid", 0, 1, options)  # an answer that is not whole answers nobody else
    assert again.job_id != job.job_id
    assert world.ended(again).state is JobState.DONE


@pytest.mark.long
@pytest.mark.parametrize("is_by_ctrl_c", [True, *soak((False,))])
def test_a_terminal_prints_what_a_job_had_found_when_it_was_ended(world: World, is_by_ctrl_c: bool) -> None:
    with world.halted(", part 2 of 3", SparkLimits(prefiltered_bytes=0, values_a_part=2 * MID_ROWS)) as is_halted:
        command = weir(world, "mid", "--from", "0", "--to", "1", "--on", "host", "--key", "id", "--json")
        assert is_halted.wait(90)
        (job,) = [job for job in world.store.jobs.unfinished() if job.subject == "mid"]
        if is_by_ctrl_c:
            command.send_signal(signal.SIGINT)
        else:
            world.store.jobs.cancel(job.job_id, actor="bob", reason="enough", now=datetime.now(UTC))
        out, err = command.communicate(timeout=60)
    assert command.returncode == 10, err
    assert (f"job {job.job_id} is cancelled" in err) is is_by_ctrl_c
    found = json.loads(out)
    partial = found["partial"]
    assert not found["exact"] and found["net"]["updated"] == partial["rows_read"] / 2 > 0
    assert (partial["ended"], partial["rows_total"], partial["null_keys"]) == ("cancelled", 2 * MID_ROWS, 0)


def test_two_tables_are_compared_too(world: World) -> None:
    options = asked(key=("id",), against=world.lake.find("narrowed"), row_limit=50)
    spark, here = world.by_spark("tracked", 4, 0, options), world.here("tracked", 4, 0, options)
    assert here.net.total and here.against
    assert_same(spark, here)


SLOW = asked(method=ROWS)


def test_cancelling_ends_the_tasks_within_a_second(world: World, spark: SparkSession) -> None:
    job = world.ask("big", 0, 1, SLOW)
    world.until(job, lambda found: found.progress.phase == "comparing rows" and bool(found.progress.total))
    tracker = spark.sparkContext.statusTracker()
    group = f"weir-job-{job.job_id}-1"
    assert set(tracker.getJobIdsForGroup(group)) & set(tracker.getActiveJobsIds())
    world.store.jobs.cancel(job.job_id, actor="bob", reason="typo", now=datetime.now(UTC))
    world.until(job, lambda found: found.state is JobState.CANCELLED, within_s=1)
    deadline = time.monotonic() + 1
    while set(tracker.getJobIdsForGroup(group)) & set(tracker.getActiveJobsIds()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_job_that_takes_too_long_fails_and_says_so(world: World) -> None:
    job = world.ended(world.ask("big", 0, 1, SLOW, limit_s=0.5))
    assert job.state is JobState.FAILED
    assert "longer than 0.5 s" in job.error


def test_a_question_that_breaks_fails_with_words_and_stops_nothing_else(world: World) -> None:
    prepared = prepare(world.lake, world.lake.find("tracked"), 0, 4, method=ROWS, on_host=True)
    wanted = job_request(prepared, actor="ann", reason="test", time_limit_s=60)
    body = json.loads(wanted.request)
    body["columns"] = ["id", "no such column"]
    poisoned = replace(wanted, request=json.dumps(body), fingerprint="poisoned")
    other = replace(
        wanted, request=json.dumps(body | {"first": body["first"] | {"uri": "/etc"}}), fingerprint="hostile"
    )
    said = []
    for each in (poisoned, other):
        failed = world.ended(world.store.jobs.submit(each, now=datetime.now(UTC)))
        assert (failed.state, failed.result_uri) == (JobState.FAILED, None)
        said.append(failed.error)
    assert "no such column" in said[0]
    assert "outside every allowed root" in said[1]


def weir(world: World, *arguments: str) -> subprocess.Popen[str]:
    roots = json.dumps(world.settings.lake.roots)
    return subprocess.Popen(
        [sys.executable, "-m", "app.cli", "diff", *arguments],
        env={**os.environ, "WEIR_HOME": str(world.settings.home), "WEIR_LAKE__ROOTS": roots},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip


@pytest.mark.long
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


def test_ctrl_c_cancels_the_job(world: World) -> None:
    command = weir(world, "big", "--from", "0", "--to", "1", "--on", "host", "--columns", "id,v")
    deadline = time.monotonic() + 60
    while not (jobs := [job for job in world.store.jobs.unfinished() if job.progress.phase == "comparing rows"]):
        assert time.monotonic() < deadline, command.poll()
        time.sleep(0.05)
    command.send_signal(signal.SIGINT)
    _, err = command.communicate(timeout=60)
    assert command.returncode == 130
    assert f"job {jobs[0].job_id} is cancelled" in err
    assert world.ended(jobs[0], within_s=2).state is JobState.CANCELLED
