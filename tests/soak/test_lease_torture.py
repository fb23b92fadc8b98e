"""Three real hosts that are frozen, killed and cut off, with wrong clocks and a store that crashes: one writer each.

Leases, loop, store and PostgreSQL are the real ones. The queries are those of `engine.py`: each batch is a line in its
stream's file, so that two writers at once can be seen.
"""

import itertools
import os
import random
import secrets
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from backend.store.clock import elapsed
from backend.stream_model.stream import StreamState
from tests.worlds.hosts.engine import STREAMS
from tests.worlds.hosts.world import TTL_S, Batch, World
from tests.worlds.processes import wait_until
from tests.worlds.store.postgres import own_postgres, server_programs

pytestmark = [
    pytest.mark.skipif(not server_programs().exists(), reason="PostgreSQL's programs are not here"),
    pytest.mark.timeout(1_200),
]
THAW_S = 3.0  # a machine that stood still needs a moment before its timers run
WRITING_S = 0.1  # it may be stopped between the time of a batch and its line


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    seed = int(os.environ.get("WEIR_TEST_SEED") or secrets.randbits(32))
    print(f"WEIR_TEST_SEED={seed}")  # noqa: T201 - shown when it fails
    with own_postgres() if request.param == "postgresql" else nullcontext() as server:
        opened = World(tmp_path, server, random.Random(seed))
        try:
            yield opened
        finally:
            opened.close()


@pytest.mark.parametrize(
    ("world", "for_s"),
    [
        ("postgresql", 30.0),
        pytest.param("sqlite", 30.0, marks=pytest.mark.ci),
        pytest.param("postgresql", 600.0, marks=pytest.mark.soak),
        pytest.param("sqlite", 600.0, marks=pytest.mark.soak),
    ],
    indirect=["world"],
)
def test_whatever_happens_each_stream_has_one_writer(world: World, for_s: float) -> None:
    world.until_as_desired()
    began, every = elapsed(), itertools.cycle(world.faults)
    while elapsed() - began < for_s or not all(world.done[fault] for fault in world.faults):
        world.do(next(every) if world.dice.random() < 0.5 else world.dice.choice(world.faults))
        world.let_be(0.2, 2.5)
    world.mend_everything()
    took_s = world.until_as_desired()
    print(f"{dict(world.done)}, as desired after {took_s:.1f} s")  # noqa: T201
    assert world.done["ahead"] and world.done["behind"], "the three hosts had one clock"
    late = sum(check_one_writer(world, name) for name in STREAMS)
    print(f"{late} batches of machines that had stood still")  # noqa: T201
    assert any(len({batch.token for batch in world.batches(name)}) > 1 for name in STREAMS), "nothing was taken over"
    check_graceful_end(world)


def all_hosts_live(world: World) -> bool:
    """Those of now, not one that was killed a moment ago."""
    processes = {slot.process.pid for slot in world.slots if slot.process is not None}
    return len(processes) == len(world.slots) and processes == {
        host.pid for host in world.store.live_hosts(within_s=TTL_S)
    }


def check_one_writer(world: World, name: str) -> int:
    """Tokens never fall, each is one host's, and one run ends before the next begins.

    Returns how many batches a machine wrote that had stood still: its timers run a moment after it goes on.
    """
    newest: Batch | None = None
    owners: dict[int, int] = {}
    ended: set[str] = set()
    late = 0
    for batch in world.batches(name):
        assert owners.setdefault(batch.token, batch.pid) == batch.pid, f"{name}: two hosts had token {batch.token}"
        if newest is not None and batch.token < newest.token:
            still = world.stood_still.get(batch.pid, [])
            excused = any(since - WRITING_S <= batch.at < until + THAW_S for since, until in still)
            assert excused, f"{name}: {batch} after {newest}, {still}"
            late += 1
            continue
        if newest is not None and batch.run != newest.run:
            ended.add(newest.run)
        assert batch.run not in ended, f"{name}: run {batch.run} went on beside {newest}"
        newest = batch
    return late


def check_graceful_end(world: World) -> None:
    """Every lease is given back and every stream is stopped. A lease that ran out on a slow machine is left to end."""
    # A host that was killed a moment ago still has leases, until others take them over.
    world.until(lambda: all_hosts_live(world) and world.is_as_desired())
    logs = sorted(world.folder.glob("host-*.log"))
    read = {log: log.stat().st_size for log in logs}
    for slot in world.slots:
        assert slot.process is not None
        slot.process.send_signal(signal.SIGTERM)
    for slot in world.slots:
        assert slot.process.wait(60) == 0  # type: ignore[union-attr]
    told = b"".join(log.read_bytes()[read[log] :] for log in logs).decode()
    lost = {name for line in told.splitlines() if "stream_lost" in line for name in STREAMS if f"stream={name}" in line}
    assert world.store.leases().keys() <= {f"stream/{name}" for name in lost}
    wait_until(lambda: not world.store.leases(), world.describe, limit_s=40 * TTL_S)
    running = {name for name, seen in world.store.observed().items() if seen.state is not StreamState.STOPPED}
    assert running <= lost
