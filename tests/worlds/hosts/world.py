"""Three stream hosts on a store of their own, whatever is done to them, and what their queries wrote.

Rule: a host that died is started anew, as a supervisor would. Every fault that was done is counted, and undone in time.
"""

import heapq
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from typing import NamedTuple

from backend.access import Actor
from backend.errors import LakehouseError
from backend.store.clock import elapsed
from backend.store.store import ControlStore
from tests.worlds.hosts.engine import STREAMS
from tests.worlds.hosts.line import Line
from tests.worlds.processes import PATIENCE_S, wait_until
from tests.worlds.spark.host_process import kill_group
from tests.worlds.store.postgres import OwnPostgres

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
                command, env=env, stdout=out, stderr=out, start_new_session=True, cwd=Path(__file__).parents[3]
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
        if slot.process is None or slot.is_frozen:
            return False
        slot.is_frozen = True
        os.kill(slot.process.pid, signal.SIGSTOP)
        self._later(for_s, lambda pid=slot.process.pid: self._thaw(slot, pid))
        return True

    def freeze_machine(self, slot: Slot, for_s: float) -> bool:
        """Its engine stands still, too."""
        if slot.process is None or slot.is_frozen:
            return False
        slot.is_frozen, since = True, elapsed()
        with suppress(ProcessLookupError):
            os.killpg(slot.process.pid, signal.SIGSTOP)
        self._later(for_s, lambda pid=slot.process.pid: self._thaw(slot, pid, since=since))
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
        try:
            self.request(self.dice.choice(STREAMS), self.dice.choice(["start", "stop", "restart"]))
        except LakehouseError:
            return False
        return True

    def request(self, name: str, action: str) -> None:
        self.store.request(name, action, reason="test", actor=Actor("ann"), now=self.store.now())  # type: ignore[arg-type]

    def mend_everything(self) -> None:
        while self._undo:
            heapq.heappop(self._undo)[2]()

    def _later(self, after_s: float, undo: Callable[[], None]) -> None:
        heapq.heappush(self._undo, (elapsed() + after_s, next(self._order), undo))

    def _thaw(self, slot: Slot, pid: int, *, since: float | None = None) -> None:
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
