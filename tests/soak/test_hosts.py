"""Hosts under faults and in numbers: each stream has one writer, no act is lost, few statements are asked.

Three real hosts are frozen, killed and cut off, with wrong clocks and a store that crashes. Leases, loop, store and
PostgreSQL are the real ones. The queries are those of `engine.py`: each batch is a line in its stream's file, so that
two writers at once can be seen. A host that died is started anew, as a supervisor would. Every fault that was done is
counted, and undone in time.
"""

import heapq
import json
import os
import random
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from typing import NamedTuple

import pytest

from backend.access import Actor
from backend.errors import LakehouseError
from backend.store.store import ControlStore
from backend.stream_model.stream import DesiredState, StreamState
from backend.work import elapsed
from tests.worlds.hosts.at_rest import statements_at_rest
from tests.worlds.hosts.engine import STREAMS
from tests.worlds.hosts.simulated import Simulation
from tests.worlds.processes import PATIENCE_S, free_port, wait_until
from tests.worlds.programs import needs_postgres_url
from tests.worlds.spark.host_process import kill_group
from tests.worlds.store.postgres import OwnPostgres, empty_postgres_url, own_postgres, server_programs

pytestmark = pytest.mark.timeout(1_200)


class Line:
    """Passes on what comes to `port`. A connection that was cut stays dead: its other end hears nothing any more."""

    def __init__(self, server_port: int) -> None:
        self.port, self._server_port = free_port(), server_port
        self._is_cut = threading.Event()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._is_cut.set()

    def mend(self) -> None:
        """For new connections; those of before the cut are closed, as a network does when it hears of them again."""
        self._is_cut.clear()
        for pair in self._pairs:
            _close(pair)
        self._pairs.clear()

    def close(self) -> None:
        self._listener.close()
        self.mend()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        if self._is_cut.is_set():
            self._pairs.append((client, client))  # it waits for an answer that never comes
            return
        try:
            server = socket.create_connection(("127.0.0.1", self._server_port), timeout=5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        pair = (client, server)
        self._pairs.append(pair)
        threading.Thread(target=self._pump, args=(server, client, pair), daemon=True).start()
        self._pump(client, server, pair)

    def _pump(self, source: socket.socket, sink: socket.socket, pair: tuple[socket.socket, socket.socket]) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if self._is_cut.is_set():
                    return
                sink.sendall(data)
        if not self._is_cut.is_set():
            _close(pair)


def _close(pair: tuple[socket.socket, socket.socket]) -> None:
    for each in pair:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


TTL_S = 4.0
TAGS = (["gpu"], ["gpu", "eu"], [])
CLOCKS = {"ahead": (10.0, 30.0), "behind": (-30.0, -10.0), "about right": (-10.0, 10.0)}  # seconds, in turn
ON_ANY_STORE = ("freeze_host", "freeze_machine", "kill_host", "ask")
ON_A_SERVER = ("cut_line", "crash_server", "restart_server")


class Batch(NamedTuple):
    """One line of a stream's file, in the order in which they came."""

    pid: int
    run: str
    token: int
    at: float


@dataclass
class Slot:
    """A host, and those after it in its place."""

    number: int
    line: Line | None
    process: subprocess.Popen[bytes] | None = None
    is_frozen: bool = False
    start_at: float = 0.0


@dataclass
class World:
    folder: Path
    server: OwnPostgres | None  # without one the store is SQLite
    dice: random.Random
    done: Counter[str] = field(default_factory=Counter)
    stood_still: dict[int, list[tuple[float, float]]] = field(default_factory=dict)  # hosts and engines: from, until
    server_is_up: bool = True

    def __post_init__(self) -> None:
        lines = [Line(self.server.port) if self.server else None for _ in range(3)]
        self.slots = [Slot(number, line) for number, line in enumerate(lines)]
        self.store = ControlStore(self.url)
        self._undo: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._clocks = cycle(self.dice.sample(list(CLOCKS), len(CLOCKS)))
        for name in STREAMS:
            (self.folder / name).touch()

    @property
    def url(self) -> str:
        return self.server.url if self.server else f"sqlite:///{self.folder / 'weir.db'}"

    @property
    def faults(self) -> tuple[str, ...]:
        return (*ON_ANY_STORE, *ON_A_SERVER) if self.server else ON_ANY_STORE

    # hosts -------------------------------------------------------------------------------------------------------

    def spawn(self, slot: Slot) -> None:
        env = {
            **{key: value for key, value in os.environ.items() if not key.startswith("WEIR_")},
            "WEIR_HOME": str(self.folder / "home"),
            "WEIR_STORE__URL": re.sub(r":\d+/", f":{slot.line.port}/", self.url) if slot.line else self.url,
            "WEIR_HOST__TAGS": json.dumps(TAGS[slot.number]),
            "WEIR_HOST__LEASE_TTL_S": str(TTL_S),
            "WEIR_HOST__HEARTBEAT_STALE_S": str(TTL_S),
            "WEIR_HOST__RECONCILE_INTERVAL_S": "0.2",
            "WEIR_HOST__STOP_TIMEOUT_S": "2",
            "WEIR_HOST__BACKOFF_INITIAL_S": "0.2",
            "WEIR_HOST__MAX_RESTARTS": "1000",
        }
        clock = next(self._clocks)
        skew_s = self.dice.uniform(*CLOCKS[clock])
        self.done[clock] += 1
        command = [sys.executable, "-m", "tests.worlds.hosts.light_host", str(self.folder), str(skew_s)]
        with (self.folder / f"host-{slot.number}.log").open("ab") as out:
            slot.process = subprocess.Popen(
                command, env=env, stdout=out, stderr=out, start_new_session=True, cwd=Path(__file__).parents[2]
            )
        slot.is_frozen = False

    def supervise(self) -> None:
        """Undoes what is due, and starts hosts that have ended."""
        while self._undo and self._undo[0][0] <= elapsed():
            heapq.heappop(self._undo)[2]()
        for slot in self.slots:
            if slot.process is not None and slot.process.poll() is not None:
                kill_group(slot.process)
                slot.process, slot.start_at = None, elapsed() + self.dice.uniform(0, 2)
            if slot.process is None and elapsed() >= slot.start_at:
                self.spawn(slot)

    def until(self, happens: Callable[[], object], *, limit_s: float = PATIENCE_S) -> float:
        """Supervises until it happens; returns after how many seconds."""

        def look() -> object:
            self.supervise()
            return happens()

        return wait_until(look, self.describe, limit_s=limit_s, pause_s=0.05)

    def until_as_desired(self) -> float:
        return self.until(self.is_as_desired)

    def let_be(self, least_s: float, most_s: float) -> None:
        """The next fault comes at a drawn moment."""
        moment = elapsed() + self.dice.uniform(least_s, most_s)
        self.until(lambda: elapsed() >= moment)

    # faults ------------------------------------------------------------------------------------------------------

    def do(self, what: str) -> None:
        """Does it if it can be done now, and sees that it is undone."""
        slot = self.dice.choice(self.slots)
        if getattr(self, what)(slot, self.dice.uniform(0.2, 2 * TTL_S)):
            self.done[what] += 1

    def freeze_host(self, slot: Slot, for_s: float) -> bool:
        """Its engine goes on."""
        return self._freeze(slot, for_s, os.kill)

    def freeze_machine(self, slot: Slot, for_s: float) -> bool:
        """Its engine stands still, too."""
        return self._freeze(slot, for_s, os.killpg)

    def _freeze(self, slot: Slot, for_s: float, send: Callable[[int, int], None]) -> bool:
        if slot.process is None or slot.is_frozen:
            return False
        slot.is_frozen, pid = True, slot.process.pid
        since = elapsed() if send is os.killpg else None
        with suppress(ProcessLookupError):
            send(pid, signal.SIGSTOP)
        self._later(for_s, lambda: self._thaw(slot, pid, since=since))
        return True

    def kill_host(self, slot: Slot, _for_s: float) -> bool:
        if slot.process is None:
            return False
        slot.process.kill()
        slot.process.wait(60)  # else it looks alive for a moment, and all as desired
        return True

    def cut_line(self, slot: Slot, for_s: float) -> bool:
        line = slot.line
        assert line is not None
        line.cut()
        self._later(for_s, line.mend)
        return True

    def crash_server(self, _slot: Slot, for_s: float) -> bool:
        return self._stop_server("immediate", for_s)

    def restart_server(self, _slot: Slot, for_s: float) -> bool:
        return self._stop_server("fast", for_s)

    def ask(self, _slot: Slot, _for_s: float) -> bool:
        """As people do; a store that is away takes nothing."""
        name, action = self.dice.choice(STREAMS), self.dice.choice(["start", "stop", "restart"])
        try:
            self.store.request(name, action, reason="test", actor=Actor("ann"), now=self.store.now())  # type: ignore[arg-type]
        except LakehouseError:
            return False
        return True

    def mend_everything(self) -> None:
        while self._undo:
            heapq.heappop(self._undo)[2]()

    def _later(self, after_s: float, undo: Callable[[], None]) -> None:
        heapq.heappush(self._undo, (elapsed() + after_s, next(self._order), undo))

    def _thaw(self, slot: Slot, pid: int, *, since: float | None) -> None:
        """`since`: when its engine was stopped with it."""
        if slot.process is None or slot.process.pid != pid:
            return
        if since is not None:
            self.stood_still.setdefault(pid, []).append((since, elapsed()))
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGCONT)
        slot.is_frozen = False

    def _stop_server(self, mode: str, for_s: float) -> bool:
        assert self.server is not None
        if not self.server_is_up:
            return False
        self.server_is_up = False
        self.server.stop(mode)
        self._later(min(for_s, TTL_S), self._start_server)
        return True

    def _start_server(self) -> None:
        assert self.server is not None
        self.server.start()
        self.server_is_up = True

    # what is there -----------------------------------------------------------------------------------------------

    def batches(self, stream: str) -> Iterator[Batch]:
        for line in (self.folder / stream).read_bytes().splitlines():
            yield Batch(**json.loads(line))

    def is_as_desired(self) -> bool:
        """What runs writes, and what shall rest does not; nobody but the owner of its lease does either."""
        try:
            desired, observed, leases = self.store.desired(), self.store.observed(), self.store.leases()
        except LakehouseError:
            return False
        alive = {slot.process.pid for slot in self.slots if slot.process is not None}
        for name in STREAMS:
            lease, seen = leases.get(f"stream/{name}"), observed.get(name)
            if lease is None or seen is None or seen.host_id != lease.owner or pid_of(lease.owner) not in alive:
                return False
            newest = self._newest(name)
            is_writing = newest is not None and elapsed() - newest.at < 1
            if seen.generation != desired[name].generation or seen.state.value != desired[name].state.value:
                return False
            if is_writing != (not desired[name].wants_stop) or (is_writing and newest.token != lease.token):  # type: ignore[union-attr]
                return False
        return True

    def _newest(self, name: str) -> Batch | None:
        with (self.folder / name).open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 1_000))
            lines = file.read().split(b"\n")
        return Batch(**json.loads(lines[-2])) if len(lines) > 1 and lines[-2] else None

    def describe(self) -> str:
        try:
            seen = {
                name: (each.state.value, each.host_id, each.generation) for name, each in self.store.observed().items()
            }
            store = f"{seen}\n{self.store.desired()}\n{self.store.leases()}"
        except LakehouseError as exc:
            store = exc.message
        logs = [f"{path.name}: …{path.read_text()[-1_500:]}" for path in sorted(self.folder.glob("host-*.log"))]
        return "\n".join([str(self.done), store, *logs])

    def close(self) -> None:
        for slot in self.slots:
            if slot.process is not None:
                kill_group(slot.process)
            if slot.line is not None:
                slot.line.close()
        self.store.close()


def pid_of(host_id: str) -> int:
    return int(host_id.split("-")[-2])


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


@pytest.mark.soak
@pytest.mark.parametrize(("world", "for_s"), [("postgresql", 600.0), ("sqlite", 600.0)], indirect=["world"])
def test_whatever_happens_each_stream_has_one_writer(world: World, for_s: float) -> None:
    world.until_as_desired()
    began, every = elapsed(), cycle(world.faults)
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


@pytest.mark.soak
@pytest.mark.parametrize("times", [200])
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


SECONDS, MOST_PER_S = 60, 15.0


def test_hosts_that_start_together_share_a_start_and_move_no_stream_twice(tmp_path: Path) -> None:
    """`make bench SUITE=scale` in short: forty streams, ten hosts with room for six, three before the others."""
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


@pytest.mark.ci
@pytest.mark.postgres
@needs_postgres_url
def test_at_rest_the_store_is_asked_little(tmp_path: Path) -> None:
    with empty_postgres_url() as url:
        asked = statements_at_rest(tmp_path, url, seconds=SECONDS)
    print(f"{asked.total() / SECONDS:.1f} a second", *asked.most_common(20), sep="\n")  # noqa: T201
    assert asked.total() / SECONDS <= MOST_PER_S
