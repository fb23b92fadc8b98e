"""A host that dies amid an act: the table is whole, the act is broken off, and the next host does it once.

Rule: within this process a job is killed at one of its phases, or after its last step; a real host with kill -9.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from backend.access import Actor
from backend.jobs.model import JobState, is_orphan
from backend.lake.lake import Lake
from backend.maintenance.model import (
    ActPreview,
    ActResult,
    Alter,
    Arguments,
    Clone,
    Drop,
    Optimize,
    Purge,
    Repair,
    Restore,
    Undrop,
    act_job,
)
from backend.maintenance.plan import load_preview
from tests.worlds.cases import soak
from tests.worlds.processes import wait_until
from tests.worlds.spark.act_host import ActTable
from tests.worlds.spark.host_process import FAST, World

pytestmark = [pytest.mark.spark, pytest.mark.ci, pytest.mark.timeout(900)]
FILES, ROWS = 12, 100_000  # 30 MB that do not compress: one file of them takes a second and more to write

MAPPED = {"delta.columnMapping.mode": "name"}
ALTERED = Alter(MAPPED, comment="sales", rename_columns={"id": "key"}, add_constraints={"known": "day IS NOT NULL"})
AT_THE_END = ""
ONCE: tuple[tuple[Arguments, str], ...] = (
    (Restore(0), "looking at"),
    (Optimize(), "optimize of"),
    (Restore(0), AT_THE_END),
    (Repair("id = 7"), AT_THE_END),
    (ALTERED, AT_THE_END),
    (Clone("kept/copy"), AT_THE_END),
    (Drop(), "moving"),
    (Drop(), AT_THE_END),
    (Undrop(ActTable.NAME), AT_THE_END),
    (Purge(ActTable.NAME), AT_THE_END),
)
KILLED = [f"{act.kind}, {phase or 'at the end'}" for act, phase in ONCE]


@pytest.mark.parametrize(("arguments", "phase"), [ONCE[0], *soak(*ONCE[1:])], ids=KILLED)
def test_an_act_killed_at_a_point_is_done_once(table: ActTable, arguments: Arguments, phase: str) -> None:
    """The host dies there; another writes to the table; the next host ends the job."""
    table.write("a", "a", "b")
    is_of_dropped = isinstance(arguments, Undrop | Purge)
    if is_of_dropped:
        table.act(Drop())
    job = table.submit(table.planned("" if is_of_dropped else table.uri, arguments).act)
    if phase:
        with table.dying_at(phase):
            table.runner.run(replace(job, attempts=1))
    else:
        assert table.runner.run(replace(job, attempts=1)).state is JobState.DONE
    if isinstance(arguments, Restore | Repair) and not phase:
        table.write("c", start=500)
    end = table.runner.run(replace(job, attempts=2))
    result = ActResult.of(replace(job, state=end.state, answer=end.answer))
    # What a repair had previewed is not known any more: its proof is neither.
    assert end.state is JobState.DONE and result.proofs
    assert all(proof.holds is not False for proof in result.proofs), result
    if isinstance(arguments, Clone):
        (commit,) = table.reader().history(table.reader().find(str(Path(table.uri).parents[1] / "kept" / "copy")))
        assert job.job_id in (commit.user_metadata or "")
    elif not isinstance(arguments, Drop | Purge):
        own = [commit for commit in table.reader().history(table.ref) if job.job_id in (commit.user_metadata or "")]
        assert len(own) == (4 if arguments is ALTERED else 0 if is_of_dropped else 1), own


@pytest.mark.soak
def test_a_restore_and_a_change_that_were_half_done_are_carried_on(table: ActTable) -> None:
    table.write("a")
    table.sql("ALTER TABLE {} SET TBLPROPERTIES ('catalog.team_name' = 'blue')")
    job = table.submit(table.preview(Restore(0, keeps_properties=True)).act)
    table.sql("RESTORE TABLE {} TO VERSION AS OF 0", by=job)
    assert "catalog.team_name" not in table.snapshot.metadata.configuration
    table.run(job)
    assert table.snapshot.metadata.configuration["catalog.team_name"] == "blue"
    assert table.operations()[:2] == ["SET TBLPROPERTIES", "RESTORE"]

    job = table.submit(table.preview(ALTERED).act)
    table.sql("ALTER TABLE {} ADD CONSTRAINT known CHECK (day IS NOT NULL)", by=job)
    assert all(proof.holds for proof in table.run(job).proofs)
    assert table.operations()[:4] == ["RENAME COLUMN", "SET TBLPROPERTIES", "SET TBLPROPERTIES", "ADD CONSTRAINT"]


# a real host ---------------------------------------------------------------------------------------------------------


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


def is_whole(world: World) -> bool:
    """Each row once."""
    rows = world.rows("bronze/events")
    return rows.num_rows == FILES * ROWS == pc.count_distinct(rows["id"]).as_py()


def planned(world: World) -> ActPreview:
    lake = Lake(world.settings)
    return load_preview(world.settings, lake, world.store, "bronze/events", Optimize(), now=datetime.now(UTC))


def uncommitted(world: World) -> set[str]:
    """Data files that the log does not name."""
    folder = Path(table_of(world).table_uri.removeprefix("file://"))
    named = {Path(uri).name for uri in table_of(world).file_uris()}
    return {path.name for path in folder.glob("*.parquet")} - named


@pytest.mark.soak
@pytest.mark.parametrize("is_whole_machine", [True, False])
def test_an_optimize_that_was_killed_is_done_once(world: World, is_whole_machine: bool) -> None:
    """Either the host's whole process group dies, or its Python alone, whose JVM notices later."""
    before = table_of(world).version()
    wanted = act_job(planned(world).act, actor=Actor("ana"), reason="readers are slow")
    job, host = world.store.jobs.submit(wanted, now=datetime.now(UTC)), world.host()
    world.until(lambda: bool(uncommitted(world)), "the act writes a file")
    kill(host, is_whole_machine=is_whole_machine)
    assert world.job_now(job).state is JobState.RUNNING and is_whole(world)
    if is_whole_machine:
        assert table_of(world).version() == before and uncommitted(world)

    def is_told() -> bool:
        now, stale_s = world.store.now(), world.settings.host.heartbeat_stale_s
        return is_orphan(world.job_now(job), world.store.hosts(now=now), now=now, stale_s=stale_s)

    wait_until(is_told, "the job is told as broken off")

    world.host()
    world.until(lambda: world.job_now(job).state.is_over, "the next host has done it")
    ended = world.job_now(job)
    assert (ended.state, ended.attempts) == (JobState.DONE, 2), ended
    history = table_of(world).history()
    own = [commit for commit in history if job.job_id in commit.get("userMetadata", "")]
    assert [commit["operation"] for commit in own] == ["OPTIMIZE"] and len(history) == before + 2
    assert is_whole(world) and len(table_of(world).file_uris()) == 1
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
