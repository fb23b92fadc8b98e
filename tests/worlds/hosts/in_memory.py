"""A stream host on a real store, whose queries exist in memory alone: what it starts and stops can be looked at."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from backend.access import Actor
from backend.errors import StreamError
from backend.settings import load_settings
from backend.store.leases import StoreClock
from backend.store.store import ControlStore
from backend.stream_model.stream import StreamDeclaration, StreamFailure, StreamState
from backend.streams.reconcile import Live
from backend.work import elapsed
from pipelines.host.stream_host import StreamHost, new_heartbeat
from pipelines.jvm.failures import SparkLostError, StreamStartError
from tests.worlds.processes import wait_until

TTL_S = 60.0  # no test takes so long: a lease runs out where a test has it run out
NAMES = ("bronze", "silver", "gold")


def declaration(name: str, host: str = "") -> StreamDeclaration:
    tags = {"host": host} if host else {}
    return StreamDeclaration(name, "", "x", f"/l/{name}", name, (), None, 1_000, f"/c/{name}", tags=tags)


class Runner:
    """Queries that exist in memory; `slow_stop` holds up the stop of one stream, `broken` refuses starts."""

    def __init__(self) -> None:
        self.active: dict[str, Live] = {}
        self.failures: dict[str, StreamFailure] = {}
        self.broken: set[str] = set()
        self.slow_stop: dict[str, threading.Event] = {}
        self.slow_start: dict[str, threading.Event] = {}
        self.started: list[str] = []
        self.overrides: dict[str, dict[str, str]] = {}
        self.cuts: list[str] = []
        self.until: dict[str, float] = {}
        self.lost = False
        self.mute: set[str] = set()
        self.hanging: set[str] = set()  # what a stop waits for in vain

    def start(self, name: str, overrides: Mapping[str, str]) -> None:
        if name in self.slow_start:
            self.slow_start[name].wait(60)
        if name in self.broken:
            raise StreamStartError("no such column", error_class="UNRESOLVED_COLUMN")
        self.started.append(name)
        self.overrides[name] = dict(overrides)
        self.failures.pop(name, None)
        self.active[name] = Live(StreamState.RUNNING, f"query-{name}", f"run-{len(self.started)}")

    def stop(self, name: str, *, timeout_s: float) -> None:
        if name in self.slow_stop:
            self.slow_stop[name].wait(60)
        self._end(name)

    def cut(self, name: str) -> None:
        self.cuts.append(name)
        self._end(name)

    def _end(self, name: str) -> None:
        if self.lost:
            raise SparkLostError("gone")
        self.active.pop(name, None)  # so it says at once, though a batch may go on
        if name in self.hanging:
            raise StreamError(f"stream {name} cannot be stopped")

    def hold(self, name: str, until: float) -> None:
        self.until[name] = until

    def poll(self, name: str) -> Live:
        if self.lost:
            raise SparkLostError("gone")
        if name in self.mute:
            raise StreamError(f"stream {name} does not answer")
        if name in self.failures:
            return Live(StreamState.FAILED, failure=self.failures[name])
        return self.active.get(name, Live(StreamState.COMPLETED))

    def fail(self, name: str) -> None:
        del self.active[name]
        self.failures[name] = StreamFailure("SparkException", "boom", 4, datetime.now(UTC))


def host_on(store: ControlStore, runner: Runner, watch: Callable[[], float] = elapsed) -> StreamHost:
    now, declared = datetime.now(UTC), tuple(map(declaration, NAMES))
    return StreamHost(load_settings(), store, runner, declared, new_heartbeat(now), StoreClock(store.now), watch)


def running_host(store: ControlStore, watch: Callable[[], float] = elapsed) -> tuple[StreamHost, Runner]:
    """A host on which every stream runs."""
    host = host_on(store, runner := Runner(), watch)
    tick_until(host, all_running(store))
    return host, runner


def bury(host: StreamHost) -> None:
    """The host was killed, so long ago that its leases have run out and its heartbeat is old."""
    long_ago = host.store.now() - timedelta(seconds=2 * TTL_S)
    host.store.beat(replace(host.heartbeat, beat_at=long_ago))
    for lease in host.store.leases().values():
        if lease.owner == host.heartbeat.host_id:
            host.store.renew(lease, ttl_s=-1)


def all_tick_until(hosts: Sequence[StreamHost], condition: Callable[[], bool]) -> None:
    def ticked() -> bool:
        for host in hosts:
            host.tick()
        return condition()

    wait_until(ticked, lambda: str([running(host) for host in hosts]))


def running(host: StreamHost) -> set[str]:
    return set(host.runner.active)  # type: ignore[attr-defined]


def tick_until(host: StreamHost, condition: Callable[[], bool]) -> None:
    def ticked() -> bool:
        if condition():
            return True
        host.tick()
        return False

    wait_until(ticked, lambda: str(states(host.store)))


def states(store: ControlStore) -> dict[str, str]:
    return {name: seen.state.value for name, seen in store.observed().items()}


def all_running(store: ControlStore) -> Callable[[], bool]:
    return lambda: states(store) == dict.fromkeys(NAMES, "RUNNING")


@contextmanager
def table_away(store: ControlStore, name: str) -> Iterator[None]:
    """What needs this table fails; the rest of the store answers."""
    engine = sa.create_engine(store.shown_url)
    with engine.begin() as connection:
        connection.execute(sa.text(f"ALTER TABLE {name} RENAME TO away"))
    yield
    with engine.begin() as connection:
        connection.execute(sa.text(f"ALTER TABLE away RENAME TO {name}"))
    engine.dispose()


def ask(store: ControlStore, name: str, action: str) -> None:
    store.request(name, action, reason="test", actor=Actor("ann"), now=datetime.now(UTC))  # type: ignore[arg-type]
