"""Three hosts and three hundred streams under random kills, freezes and restarts of the store, in simulated time."""

import os
import random
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.backend.store.conftest import DATABASES
from tests.worlds.cases import soak
from tests.worlds.hosts.simulated import Simulation
from tests.worlds.store.postgres import empty_postgres_url

STREAMS, HOSTS = 300, 3
BACK_WITHIN_S = 30.0
FAULTS = ("kill", "freeze", "store")


@pytest.fixture(params=DATABASES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Simulation]:
    seed = int(os.environ.get("WEIR_TEST_SEED") or secrets.randbits(32))
    print(f"WEIR_TEST_SEED={seed}")  # noqa: T201 - shown when it fails
    with empty_postgres_url() if request.param == "postgresql" else nullcontext(None) as url:
        simulation = Simulation(tmp_path, streams=STREAMS, dice=random.Random(seed), postgres_url=url)
        yield simulation
        simulation.close()


def until_as_desired(world: Simulation, *, limit_s: float) -> float:
    """After how many seconds."""
    began = world.clock()
    while not world.is_as_desired():
        assert world.clock() - began < limit_s, f"{world.loads()} of {STREAMS} run after {limit_s:g} s"
        world.second()
    return world.clock() - began


class Faults:
    def __init__(self, world: Simulation) -> None:
        self.world, self.done = world, Counter[str]()
        self._joins_at: list[float] = []
        self._store_back_at = 0.0

    def one(self) -> None:
        world, what = self.world, self.world.dice.choice(FAULTS)
        able = [host for host in world.hosts if not host.is_dead and world.clock() >= host.frozen_until]
        for_s = world.dice.uniform(1, 35)
        if what == "store" and world.is_store_up:
            world.is_store_up, self._store_back_at = False, world.clock() + for_s
        elif what == "kill" and able:
            world.dice.choice(able).is_dead = True
            self._joins_at.append(world.clock() + for_s)
        elif what == "freeze" and able:
            world.dice.choice(able).frozen_until = world.clock() + for_s
        else:
            return
        self.done[what] += 1

    def undo(self, *, all_of_them: bool = False) -> None:
        now = self.world.clock()
        if all_of_them or now >= self._store_back_at:
            self.world.is_store_up = True
        for at in [at for at in self._joins_at if all_of_them or at <= now]:
            self._joins_at.remove(at)
            self.world.join()
        for host in self.world.hosts if all_of_them else ():
            host.frozen_until = 0.0


def frozen_out(world: Simulation) -> int:
    """Queries that ended by themselves since their host stood still, or did not reach the store."""
    return sum(host.queries.trips for host in world.hosts)


@pytest.mark.ci
@pytest.mark.parametrize("for_s", [60, *soak((600,))])
def test_each_stream_has_one_writer_and_all_are_soon_back(world: Simulation, for_s: int) -> None:
    for _ in range(HOSTS):
        world.join()
    until_as_desired(world, limit_s=BACK_WITHIN_S)
    faults, fault_at, began = Faults(world), 0.0, world.clock()
    while world.clock() - began < for_s or len(faults.done) < len(FAULTS) or not frozen_out(world):
        if world.clock() >= fault_at:
            faults.one()
            fault_at = world.clock() + world.dice.uniform(2, 20)
        faults.undo()
        world.second()
    faults.undo(all_of_them=True)
    world.second()
    max(world.hosts, key=lambda host: len(host.writing())).is_dead = True  # the last fault
    took_s = until_as_desired(world, limit_s=BACK_WITHIN_S)
    print(f"{dict(faults.done)}, as desired after {took_s:.1f} s")  # noqa: T201
    assert any(starts > 1 for starts in world.starts.values()), "nothing was taken over"


def test_hosts_that_start_together_share_a_start_and_move_no_stream_twice(tmp_path: Path) -> None:
    """`make bench SUITE=scale` in short: forty streams, ten hosts with room for six, three of them before the others."""
    world = Simulation(tmp_path, streams=40)
    for _ in range(10):
        world.join(max_streams=6)
        if len(world.hosts) < 4:
            world.second()
    assert max(world.loads()) == 6, "the first take what they have room for"
    while not (world.is_as_desired() and set(world.loads()) == {4}):
        assert world.clock() < 120
        world.second()
    assert max(world.starts.values()) <= 2
    before = {name: lease.token for name, lease in world.store.leases().items()}
    for _ in range(60):
        world.second()
    assert {name: lease.token for name, lease in world.store.leases().items()} == before, "no lease is lost"
    world.close()
