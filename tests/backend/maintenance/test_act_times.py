"""How long an act takes, by those that did the like before."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from backend.access import Actor
from backend.jobs.model import JobEnd, JobState
from backend.maintenance.model import ActResult, Arguments, Clone, Optimize, TableAct, act_job
from backend.maintenance.plan import load_preview
from backend.store.leases import job_resource
from tests.worlds.lake import builders
from tests.worlds.store.policy_world import PolicyWorld

CLICKS = "bronze/clicks"
UNKNOWN = "how long it takes is not known: nothing like it, of about this size, was done here yet"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PolicyWorld]:
    builders.partitioned_table(tmp_path / "lake" / "bronze" / "clicks", days=2, files_per_day=6)
    world = PolicyWorld(tmp_path)
    yield world
    world.store.close()


def did(world: PolicyWorld, asked: Arguments, size_bytes: int, seconds: float, *, attempts: int = 1) -> None:
    """An act that a host did, or at least began so often."""
    world.pass_(minutes=1)
    act = TableAct("/elsewhere", "elsewhere", 1, asked)
    job = world.store.jobs.submit(act_job(act, actor=Actor("bo"), reason="x"), now=world.now)
    lease = world.store.acquire(job_resource(job.job_id), "host-a", ttl_s=60)
    assert lease is not None
    for _ in range(attempts):
        world.store.jobs.begin(lease, job.job_id, now=world.now)
    figures = {"bytes_in" if isinstance(asked, Optimize) else "bytes_written": size_bytes}
    end = JobEnd(JobState.DONE, answer=ActResult("done", 2, figures).text())
    world.store.jobs.end(lease, job.job_id, end, now=world.now + timedelta(seconds=seconds))


def notes(world: PolicyWorld, asked: Arguments) -> tuple[str, ...]:
    return load_preview(world.settings, world.lake, world.store, CLICKS, asked, now=world.now).notes


def test_the_last_three_of_its_kind_and_size_say_how_long(world: PolicyWorld) -> None:
    assert UNKNOWN in notes(world, Optimize())
    size = load_preview(world.settings, world.lake, None, CLICKS, Optimize(), now=world.now).figures["bytes_in"]
    assert size
    for other in (Optimize(zorder_by=("id",)), Optimize(purge=True), Optimize(prove_rows=True), Clone("x", 1)):
        did(world, other, size, 1)
    did(world, Optimize(), size * 11, 1)  # what it takes beside its bytes counts too little
    did(world, Optimize(), size // 11, 1)  # and here too much
    did(world, Optimize(), size, 1, attempts=2)
    did(world, Optimize(), 0, 1)
    world.done(world.by_hand(CLICKS, Optimize()))  # with no answer that this Weir reads
    assert UNKNOWN in notes(world, Optimize())
    did(world, Optimize(partition={"day": "x"}), size, 600)
    assert "takes about 10 min, by the last one like it here: " in "".join(notes(world, Optimize()))
    for factor, seconds in ((2, 20), (1, 30), (3, 10)):
        did(world, Optimize(), size * factor, seconds)
    assert notes(world, Optimize())[-1].startswith("takes about 10 s, by the last 3 like it here: ")  # 6 sizes in 60 s


def test_the_pace_is_said_with_its_unit(world: PolicyWorld) -> None:
    planned = load_preview(world.settings, world.lake, None, CLICKS, Clone("bronze/copy"), now=world.now)
    size = planned.figures["bytes_written"]
    assert size
    did(world, Clone("elsewhere/copy"), 10 * size, 10 * size / 250)
    assert notes(world, Clone("bronze/copy"))[-1].endswith(", by the last one like it here: 250 B/s")
    shallow = notes(world, Clone("bronze/copy", shallow=True))
    assert not any("takes" in note for note in (*shallow, *planned.notes)), "it rewrites nothing; without a store"
