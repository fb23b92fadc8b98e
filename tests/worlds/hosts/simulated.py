"""Hosts on a real store whose time passes when it is told to: minutes of many hosts and streams in seconds.

Rule: all of a host is real but its queries. Those run while their host lives and as long as it may hold them, as in
Spark's JVM.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import wait
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from backend.settings import load_settings
from backend.store.leases import StoreClock, stream_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import StreamDeclaration, StreamFailure, StreamState
from backend.streams.reconcile import Live
from pipelines.host.stream_host import StreamHost, declare, new_heartbeat
from pipelines.jvm.failures import StreamStartError
from pipelines.spark.runtime import NOT_RENEWED
from tests.worlds.hosts.at_rest import counted

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
ENDLESS_S = float("inf")
TTL_S = 15.0
# PostgreSQL looks for functions in the first schema first.
CLOCK = """
CREATE SCHEMA simulated;
CREATE TABLE simulated.clock (at timestamptz);
INSERT INTO simulated.clock VALUES (now());
CREATE FUNCTION simulated.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT at FROM simulated.clock';
"""


class Clock:
    """`elapsed` of every host, and the store's own clock."""

    def __init__(self, postgres_url: str | None) -> None:
        self._now_s = 0.0
        self._server = sa.create_engine(postgres_url, isolation_level="AUTOCOMMIT") if postgres_url else None
        if self._server is not None:
            with self._server.connect() as connection:
                connection.exec_driver_sql(CLOCK)
        self.forward(0)

    def __call__(self) -> float:
        return self._now_s

    def now(self) -> datetime:
        return BEGAN + timedelta(seconds=self._now_s)

    def forward(self, seconds: float) -> None:
        self._now_s += seconds
        if self._server is not None:
            with self._server.connect() as connection:
                connection.execute(sa.text("UPDATE simulated.clock SET at = :at"), {"at": self.now()})

    def close(self) -> None:
        if self._server is not None:
            self._server.dispose()

    def strftime(self, form: str, now: str, shift: str) -> str:
        """SQLite's, as `moment` calls it."""
        at = self.now() + timedelta(seconds=float(shift.split()[0]))
        return at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


class Queries:
    """What Spark is to one host. `writing` is asked of what runs at this moment."""

    def __init__(self, clock: Clock, starts: Counter[str]) -> None:
        self._clock, self._starts = clock, starts
        self._running: dict[str, str] = {}  # the run of each
        self._until: dict[str, float] = {}
        self._tripped: set[str] = set()

    def start(self, name: str, overrides: Mapping[str, str]) -> None:
        if self._clock() >= self._until.get(name, ENDLESS_S):
            raise StreamStartError("its lease ran out", error_class="LEASE")
        self._starts[name] += 1
        self._tripped.discard(name)
        self._running[name] = f"run-{self._starts.total()}"

    def stop(self, name: str, *, timeout_s: float) -> None:
        self._running.pop(name, None)

    def cut(self, name: str) -> None:
        self._running.pop(name, None)

    def hold(self, name: str, until: float) -> None:
        self.writing()
        self._until[name] = until

    def poll(self, name: str) -> Live:
        if name in self.writing():
            return Live(StreamState.RUNNING, f"query-{name}", self._running[name])
        if name in self._tripped:
            return Live(StreamState.FAILED, failure=StreamFailure(*NOT_RENEWED, None, self._clock.now()))
        return Live(StreamState.COMPLETED)

    def writing(self) -> set[str]:
        for name in [name for name in list(self._running) if self._clock() >= self._until.get(name, ENDLESS_S)]:
            del self._running[name]
            self._tripped.add(name)
        return set(self._running)


class SimulatedHost:
    def __init__(self, world: "Simulation", max_streams: int | None) -> None:
        self.queries = Queries(world.clock, world.starts)
        self.host = StreamHost(
            world.settings,
            world.store,
            self.queries,
            world.declared,
            new_heartbeat(world.clock.now(), max_streams=max_streams),
            StoreClock(world.store.now, elapsed=world.clock),
            elapsed=world.clock,
        )

    @property
    def name(self) -> str:
        return self.host.heartbeat.host_id

    def tick(self) -> None:
        self.host.tick()
        wait([operation.done for operation in self.host._fleet._operations.values()], timeout=60)

    def writing(self) -> set[str]:
        return self.queries.writing()


class Simulation:
    """`postgres_url`: an empty database of one's own; without one the store is SQLite in the folder."""

    def __init__(
        self, folder: Path, *, streams: int, dice: random.Random | None = None, postgres_url: str | None = None
    ) -> None:
        self.clock, self.dice = Clock(postgres_url), dice or random.Random(0)
        limits = {"lease_ttl_s": TTL_S, "heartbeat_stale_s": TTL_S, "max_restarts": 1_000}
        self.settings = load_settings(home=folder, host=limits)
        schema = "options=-csearch_path%3Dsimulated,pg_catalog"
        self.store = ControlStore(f"{postgres_url}?{schema}" if postgres_url else f"sqlite:///{folder / 'weir.db'}")
        self._engine = self.store._database._engine
        if not postgres_url:
            sa.event.listen(self._engine, "connect", self._connected)
            self.store._database.dispose()
        names = [f"stream_{number:04}" for number in range(streams)]
        self.declared = tuple(
            StreamDeclaration(name, "", "x", f"/l/{name}", name, (), None, 1_000, f"/c/{name}") for name in names
        )
        declare(self.store, self.declared, self.clock.now())
        self.starts = Counter[str]()  # by stream
        self.hosts: list[SimulatedHost] = []

    def join(self, *, max_streams: int | None = None) -> SimulatedHost:
        self.hosts.append(host := SimulatedHost(self, max_streams))
        return host

    def second(self) -> None:
        """In any order, and no stream has two writers at any moment."""
        for host in self.dice.sample(self.hosts, len(self.hosts)):
            self.clock.forward(1 / len(self.hosts))
            host.tick()
        self.check_one_writer()

    def check_one_writer(self) -> None:
        writers = Counter(name for host in self.hosts for name in host.writing())
        assert not (twice := [name for name, hosts in writers.items() if hosts > 1]), f"at {self.clock():.1f}: {twice}"

    def loads(self) -> list[int]:
        return [len(host.writing()) for host in self.hosts]

    def is_as_desired(self) -> bool:
        """Each stream is written by the host that has its lease."""
        leases = self.store.leases()
        owners = {name: host.name for host in self.hosts for name in host.writing()}
        held = {declared.name: leases.get(stream_resource(declared.name)) for declared in self.declared}
        return all(lease is not None and owners.get(name) == lease.owner for name, lease in held.items())

    def counted(self) -> AbstractContextManager[Counter[str]]:
        """The statements meanwhile."""
        return counted(self.store)

    @contextmanager
    def bytes_read(self) -> Iterator[Counter[str]]:
        """By statement, the values that PostgreSQL answers with meanwhile; SQLite sends none."""
        read = Counter[str]()

        def note(connection: object, cursor: Any, statement: str, *more: object) -> None:
            answer = getattr(cursor, "pgresult", None)
            for row in range(answer.ntuples if answer else 0):
                read[statement] += sum(len(answer.get_value(row, column) or b"") for column in range(answer.nfields))

        sa.event.listen(self._engine, "after_cursor_execute", note)
        yield read
        sa.event.remove(self._engine, "after_cursor_execute", note)

    def close(self) -> None:
        for host in self.hosts:
            host.host._fleet._starters.shutdown()
            host.host._fleet._stoppers.shutdown()
        self.store.close()
        self.clock.close()

    def _connected(self, connection: Any, _record: object) -> None:
        connection.create_function("strftime", 3, self.clock.strftime)
