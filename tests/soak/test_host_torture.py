"""Three real hosts that are frozen, killed and cut off, with wrong clocks and a store that crashes: one writer each.

Leases, loop, store and PostgreSQL are the real ones. The queries are those of `engine.py`: each batch is a line in its
stream's file, so that two writers at once can be seen. With pages that are killed too, no act is lost or done twice.
"""

import itertools
import os
import random
import secrets
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from backend.store.clock import elapsed
from backend.stream_model.stream import DesiredState, StreamState
from tests.worlds.cases import soak
from tests.worlds.hosts.engine import STREAMS
from tests.worlds.hosts.world import TTL_S, Batch, World
from tests.worlds.processes import free_port, wait_until
from tests.worlds.store.postgres import own_postgres, server_programs

pytestmark = pytest.mark.timeout(1_200)
THAW_S = 3.0  # a machine that stood still needs a moment before its timers run
WRITING_S = 0.1  # it may be stopped between the time of a batch and its line


@pytest.fixture
def dice() -> random.Random:
    seed = int(os.environ.get("WEIR_TEST_SEED") or secrets.randbits(32))
    print(f"WEIR_TEST_SEED={seed}")  # noqa: T201 - shown when it fails
    return random.Random(seed)


@pytest.fixture
def world(tmp_path: Path, dice: random.Random, request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "postgresql" and not server_programs().exists():
        pytest.skip("PostgreSQL's programs are not here")
    with own_postgres() if request.param == "postgresql" else nullcontext() as server:
        opened = World(tmp_path, server, dice)
        try:
            yield opened
        finally:
            opened.close()


@pytest.mark.ci
@pytest.mark.parametrize(
    ("world", "for_s"), [("sqlite", 5.0), *soak(("postgresql", 600.0), ("sqlite", 600.0))], indirect=["world"]
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


# pages and hosts ------------------------------------------------------------------------------------------------------

VICTIMS = ("host", "clicker", "host", "clicker", "page")


@dataclass
class Pages:
    """The pages' server, and a process that asks for acts as it does; each can be killed and started anew."""

    world: World
    port: int = field(default_factory=free_port)
    accepted: list[str] = field(default_factory=list)
    _server: "subprocess.Popen[bytes] | None" = None
    _clicker: "subprocess.Popen[bytes] | None" = None
    _told: int = 0

    def start_server(self) -> None:
        self._server = self._spawn("app.server.asgi", "page")
        wait_until(self._answers, "the page answers")

    def start_clicker(self) -> None:
        self._told += 1
        self._clicker = self._spawn("tests.worlds.hosts.clicker", f"acts-{self._told}")
        wait_until(self._acts, "it asks for acts")

    def kill_server(self) -> None:
        _kill(self._server)

    def kill_clicker(self) -> None:
        _kill(self._clicker)
        self.accepted += self._acts()

    def _acts(self) -> list[str]:
        """Whole lines: what it was about to say when it died, nobody was told."""
        return [line for line in self._out(f"acts-{self._told}").read_text().split("\n")[:-1] if line]

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=5) as reply:
                return b'"status"' in reply.read()
        except OSError:
            return False

    def _out(self, name: str) -> Path:
        return self.world.folder / f"{name}.txt"

    def _spawn(self, module: str, name: str) -> "subprocess.Popen[bytes]":
        env = {**os.environ, "WEIR_HOME": str(self.world.folder / "home"), "WEIR_PORT": str(self.port)}
        env |= {"WEIR_STORE__URL": self.world.url, "WEIR_CONFIG": os.devnull}
        with self._out(name).open("ab") as out, self._out(f"{name}-errors").open("ab") as errors:
            return subprocess.Popen([sys.executable, "-m", module], env=env, stdout=out, stderr=errors)


def _kill(process: "subprocess.Popen[bytes] | None") -> None:
    if process is not None:
        process.kill()
        process.wait(60)


@pytest.fixture
def pages(tmp_path: Path, dice: random.Random) -> Iterator[Pages]:
    world = World(tmp_path, None, dice)
    (tmp_path / "home" / "lake").mkdir(parents=True)
    opened = Pages(world)
    try:
        yield opened
    finally:
        opened.kill_server()
        opened.kill_clicker()
        world.close()


@pytest.mark.ci
@pytest.mark.parametrize("times", [len(VICTIMS), *soak((200,))])
def test_killed_at_any_moment_no_act_is_lost_or_done_twice(pages: Pages, times: int) -> None:
    world, dice = pages.world, pages.world.dice
    world.until_as_desired()
    pages.start_server()
    pages.start_clicker()
    for number in range(times):
        world.let_be(0, 0.5)
        match VICTIMS[number % len(VICTIMS)]:
            case "host":
                world.until(lambda: world.kill_host(dice.choice(world.slots), 0))
            case "clicker":
                pages.kill_clicker()
                pages.start_clicker()
            case "page":
                pages.kill_server()
                pages.start_server()
    asked = pages.world.store.audit_entries
    world.until(lambda: {entry.subject for entry in asked(limit=1_000_000)} == set(STREAMS))
    pages.kill_clicker()
    print(f"{len(pages.accepted)} acts")  # noqa: T201
    world.until_as_desired()
    check_acts(pages, clickers_killed=times * VICTIMS.count("clicker") // len(VICTIMS) + 1)


def check_acts(pages: Pages, *, clickers_killed: int) -> None:
    """What was accepted is in the audit trail once, and is what is desired; of each killed page one more may be."""
    entries = [entry for entry in pages.world.store.audit_entries(limit=1_000_000) if entry.actor == "ann"]
    told = Counter(entry.reason for entry in entries)
    assert set(told.values()) == {1}
    assert set(pages.accepted) <= told.keys()
    assert len(told) - len(pages.accepted) <= clickers_killed
    asked = Counter(entry.subject for entry in entries)
    for name, wanted in pages.world.store.desired().items():
        assert wanted.generation == 1 + asked[name]
        last = next((entry for entry in entries if entry.subject == name), None)
        if last is not None:
            assert wanted.state is (DesiredState.STOPPED if last.action == "stop" else DesiredState.RUNNING)
            assert wanted.reason == last.reason
    assert asked.keys() == set(STREAMS)
