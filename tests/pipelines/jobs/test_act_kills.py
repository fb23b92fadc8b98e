"""kill -9 of a host in the middle of an act: the table is whole, the act is broken off, and the next host does it."""

import os
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from backend.access import Actor
from backend.jobs.host_liveness import is_orphan
from backend.jobs.model import Job, JobState
from backend.lake.lake import Lake
from backend.maintenance.model import ActPreview, ActResult, Optimize, act_job
from backend.maintenance.plan import preview
from backend.maintenance.readers import load_users
from tests.worlds.processes import wait_until
from tests.worlds.spark.host_process import FAST, World

pytestmark = [pytest.mark.spark, pytest.mark.ci, pytest.mark.timeout(900)]
FILES, ROWS = 12, 100_000  # 30 MB that do not compress: one file of them takes a second and more to write


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    opened = World(tmp_path, {**FAST, "WEIR_HOST__PIPELINES": "[]"}, ())
    dice = np.random.default_rng(7)
    for number in range(FILES):
        ids = pa.array(range(number * ROWS, (number + 1) * ROWS))
        batch = pa.table({"id": ids, "x": dice.random(ROWS), "y": dice.random(ROWS), "z": dice.random(ROWS)})
        write_deltalake(f"{opened.settings.tables_uri}/bronze/events", batch, mode="append")
    try:
        yield opened
    finally:
        opened.close()


def table_of(world: World) -> DeltaTable:
    return DeltaTable(f"{world.settings.tables_uri}/bronze/events")


def whole(world: World) -> bool:
    """Each row once, by ids and a sum that no other rows have."""
    rows = pa.table(table_of(world).scan().read_all())
    return rows.num_rows == FILES * ROWS == pc.count_distinct(rows["id"]).as_py()


def planned(world: World) -> ActPreview:
    lake, now = Lake(world.settings), datetime.now(UTC)
    ref = lake.find("bronze/events")
    asked = Optimize()
    users = load_users(world.settings, lake, world.store, ref, asked, now=now)
    return preview(world.settings, lake, ref, asked, users, now=now)


def submitted(world: World) -> Job:
    wanted = act_job(planned(world).act, actor=Actor("ana"), reason="readers are slow")
    return world.store.jobs.submit(wanted, now=datetime.now(UTC))


def uncommitted(world: World) -> set[str]:
    """Data files that the log does not name."""
    folder = Path(table_of(world).table_uri.removeprefix("file://"))
    named = {Path(uri).name for uri in table_of(world).file_uris()}
    return {path.name for path in folder.glob("*.parquet")} - named


def job_now(world: World, job: Job) -> Job:
    return world.store.jobs.get(job.job_id) or job


@pytest.mark.parametrize("is_whole_machine", [True, False])
def test_an_optimize_that_was_killed_is_done_once(world: World, is_whole_machine: bool) -> None:
    """Either the host's whole process group dies, or its Python alone, whose JVM notices later."""
    before = table_of(world).version()
    job, host = submitted(world), world.host()
    world.until(lambda: bool(uncommitted(world)), "the act writes a file")
    kill(host, is_whole_machine=is_whole_machine)
    assert job_now(world, job).state is JobState.RUNNING and whole(world)
    if is_whole_machine:
        assert table_of(world).version() == before and uncommitted(world)
    stale_s = world.settings.host.heartbeat_stale_s

    def is_told() -> bool:
        now = world.store.now()
        return is_orphan(job_now(world, job), world.store.hosts(now=now), now=now, stale_s=stale_s)

    wait_until(is_told, "the job is told as broken off")

    world.host()
    world.until(lambda: job_now(world, job).state.is_over, "the next host has done it")
    ended = job_now(world, job)
    assert (ended.state, ended.attempts) == (JobState.DONE, 2), ended
    history = table_of(world).history()
    own = [commit for commit in history if job.job_id in commit.get("userMetadata", "")]
    assert [commit["operation"] for commit in own] == ["OPTIMIZE"] and len(history) == before + 2
    assert whole(world) and len(table_of(world).file_uris()) == 1
    assert all(proof.holds for proof in ActResult.of(ended).proofs)
    actions = [entry.action for entry in world.store.audit_entries(subject="bronze/events")]
    assert actions == ["optimize done", "optimize job"]
    assert planned(world).refused == "nothing is to be merged"


def kill(host: "subprocess.Popen[bytes]", *, is_whole_machine: bool) -> None:
    assert host.poll() is None, "it was dead before"
    if is_whole_machine:
        os.killpg(host.pid, signal.SIGKILL)
    else:
        host.kill()
    assert host.wait(60) == -signal.SIGKILL
