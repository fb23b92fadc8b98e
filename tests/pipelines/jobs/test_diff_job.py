"""A diff as a job: one that must not go on does not, and tells what it had compared by then."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from backend.access import Actor
from backend.changes.host_job import job_request, read_answer
from backend.changes.model import DiffMethod
from backend.jobs.model import Job, JobState
from backend.jobs.results import results_lake
from pipelines.jobs.diff import DiffTask, SparkLimits, run_diff
from pipelines.jobs.signed_rows import signed_rows
from tests.worlds.cases import soak
from tests.worlds.lake.diffs import asked, prepare
from tests.worlds.processes import wait_until
from tests.worlds.spark.diff_world import MID_ROWS, World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

KEY, ROWS = DiffMethod.KEY_JOIN, DiffMethod.MULTISET
IN_PARTS = SparkLimits(part_bytes=1, most_parts=3)


@pytest.mark.ci
def test_what_a_job_reads_it_reads_with_its_own_settings(world: World, spark: SparkSession) -> None:
    """Compiled plans, whatever the streams beside it have, and of their settings none is touched."""
    before = spark.conf.get("spark.sql.codegen.wholeStage")
    session = spark.newSession()
    options = asked(method=KEY, key=("id",), row_limit=77, on_host=True)
    prepared = prepare(world.lake, world.lake.find("tracked"), 0, 4, **options)
    result = f"{world.settings.results_uri}/own-settings"
    run_diff(
        session, DiffTask(prepared, result, "by a test", SparkLimits(compiled_bytes=0)), lambda _: None, lambda: None
    )
    rows = signed_rows(session, prepared, KEY)._jdf.sparkSession()
    assert rows.equals(session._jsparkSession) and rows.conf().get("spark.sql.codegen.wholeStage") == "true"
    assert spark.conf.get("spark.sql.codegen.wholeStage") == before


@pytest.mark.ci
@pytest.mark.parametrize(("key", "is_cancelled"), [(("id",), False), (None, True), *soak((("id",), True))])
def test_what_was_compared_when_a_job_was_ended_is_told_as_that(
    world: World, key: tuple[str, ...] | None, is_cancelled: bool
) -> None:
    options = asked(method=KEY if key else ROWS, key=key, row_limit=20 + is_cancelled)
    with world.halted(", part 2 of 3", IN_PARTS) as is_halted:
        job = world.ask("mid", 0, 1, options, limit_s=60)
        assert is_halted.wait(90)
        if is_cancelled:
            world.store.jobs.cancel(job.job_id, actor=Actor("bob"), reason="enough", now=datetime.now(UTC))
        else:
            world.host._running[job.job_id].ends_at = 0.0
        ended = world.ended(job)

    assert ended.state is (JobState.CANCELLED if is_cancelled else JobState.FAILED)
    prepared = prepare(world.lake, world.lake.find("mid"), 0, 1, **(options | asked(on_host=True)))
    found = read_answer(results_lake(world.settings), world.settings, prepared, ended)
    partial, net = found.changes.partial, found.changes.net
    assert partial is not None and not found.exact and found.unchanged is None
    assert partial.ended == ("cancelled" if is_cancelled else "stopped at the time limit of 60 s")
    assert partial.rows_total == 2 * MID_ROWS and 0.2 < partial.rows_read / partial.rows_total < 0.5
    assert len(found.changes.rows) == options.get("row_limit")  # every row differs, so every one that was compared
    assert (
        net.updated == partial.rows_read / 2 if key else (net.inserted or 0) + (net.deleted or 0) == partial.rows_read
    )
    again = world.ask("mid", 0, 1, options)  # an answer that is not whole answers nobody else
    assert again.job_id != job.job_id
    assert world.ended(again).state is JobState.DONE


@pytest.mark.ci
@pytest.mark.parametrize("is_by_ctrl_c", [True, *soak((False,))])
def test_a_terminal_prints_what_a_job_had_found_when_it_was_ended(world: World, is_by_ctrl_c: bool) -> None:
    with world.halted(", part 2 of 3", IN_PARTS) as is_halted:
        command = weir(world, "mid", "--from", "0", "--to", "1", "--on", "host", "--key", "id", "--json")
        assert is_halted.wait(90)
        (job,) = [job for job in world.store.jobs.unfinished() if job.subject == "mid"]
        if is_by_ctrl_c:
            command.send_signal(signal.SIGINT)
        else:
            world.store.jobs.cancel(job.job_id, actor=Actor("bob"), reason="enough", now=datetime.now(UTC))
        out, err = command.communicate(timeout=60)
    assert command.returncode == 10, err
    assert (f"job {job.job_id} is cancelled" in err) is is_by_ctrl_c
    found = json.loads(out)
    partial = found["partial"]
    assert not found["exact"] and found["net"]["updated"] == partial["rows_read"] / 2 > 0
    assert (partial["ended"], partial["rows_total"], partial["null_keys"]) == ("cancelled", 2 * MID_ROWS, 0)


SLOW = asked(method=ROWS)


def test_cancelling_ends_the_tasks(world: World, spark: SparkSession) -> None:
    job = world.ask("big", 0, 1, SLOW)
    world.until(job, lambda found: found.progress.phase == "comparing rows" and bool(found.progress.total))
    tracker = spark.sparkContext.statusTracker()
    group = f"weir-job-{job.job_id}-1"
    assert set(tracker.getJobIdsForGroup(group)) & set(tracker.getActiveJobsIds())
    world.store.jobs.cancel(job.job_id, actor=Actor("bob"), reason="typo", now=datetime.now(UTC))
    world.until(job, lambda found: found.state is JobState.CANCELLED)
    wait_until(
        lambda: not set(tracker.getJobIdsForGroup(group)) & set(tracker.getActiveJobsIds()), "a task of the job runs"
    )


def test_a_job_that_takes_too_long_fails_and_says_so(world: World) -> None:
    job = world.ended(world.ask("big", 0, 1, SLOW, limit_s=0.5))
    assert job.state is JobState.FAILED
    assert "longer than 0.5 s" in job.error


def test_a_question_that_breaks_fails_with_words_and_stops_nothing_else(world: World) -> None:
    prepared = prepare(world.lake, world.lake.find("tracked"), 0, 4, method=ROWS, on_host=True)
    wanted = job_request(prepared, actor=Actor("ann"), reason="test", time_limit_s=60)
    body = json.loads(wanted.request)
    poisoned = json.dumps(body | {"columns": ["id", "no such column"]})
    hostile = json.dumps(body | {"ref": body["ref"] | {"uri": "/etc"}})
    for request, error in ((poisoned, "no such column"), (hostile, "outside every allowed root")):
        asked_anew = replace(wanted, request=request, fingerprint=error)
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


@pytest.mark.ci
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
    jobs: list[Job] = []

    def compares() -> bool:
        jobs[:] = [job for job in world.store.jobs.unfinished() if job.progress.phase == "comparing rows"]
        return bool(jobs)

    wait_until(compares, lambda: f"{command.poll()}", pause_s=0.05)
    command.send_signal(signal.SIGINT)
    _, err = command.communicate(timeout=60)
    assert command.returncode == 130
    assert f"job {jobs[0].job_id} is cancelled" in err
    assert world.ended(jobs[0]).state is JobState.CANCELLED
