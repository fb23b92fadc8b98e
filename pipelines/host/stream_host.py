"""One host and its streams: renews leases, compares desired with observed, starts and stops queries.

Queries are started and stopped in threads, one operation at a time for each stream, so that a slow one never delays the
others. What a query does is asked of the runner, never remembered.

Rule: an observation is written before the act that it announces, under the token of the stream's lease.
"""

import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

import structlog

from backend.errors import LakehouseError, StoreError, StreamRefusedError
from backend.settings import Settings
from backend.store.leases import StoreClock
from backend.store.notices import KeptAnswer
from backend.store.store import ControlStore
from backend.stream_model.stream import (
    Desired,
    DesiredState,
    HostHeartbeat,
    Observed,
    StreamDeclaration,
    StreamFailure,
    StreamState,
)
from backend.streams.reconcile import (
    Action,
    Forget,
    Host,
    Live,
    Move,
    Offer,
    RecordState,
    Start,
    Stop,
    plan,
)
from backend.work import elapsed
from pipelines.host.metrics import HostMetrics
from pipelines.host.ownership import ANOTHER_HAS_IT, RAN_OUT, Ownership, Sharing, wanted_of
from pipelines.jvm.failures import SparkLostError

STARTERS = 4
STOPPERS = 16  # they mostly wait for a micro-batch to end
CUT_S = 2.0  # what a query takes that is cut at the limit
TROUBLE_LIMIT = 10  # after so many unexplained failures in a row the process is started anew

log = structlog.get_logger()


class QueryRunner(Protocol):
    """What the host needs of `pipelines.spark.runtime.Runtime`."""

    def start(self, name: str, overrides: Mapping[str, str]) -> object: ...
    def stop(self, name: str, *, timeout_s: float) -> None: ...
    def poll(self, name: str) -> Live: ...
    def cut(self, name: str) -> None: ...
    def hold(self, name: str, until: float) -> None: ...


@dataclass(frozen=True, slots=True)
class _Operation:
    state: StreamState  # STARTING or STOPPING
    done: Future[Any]  # nobody looks at its result


def utc_now() -> datetime:
    return datetime.now(UTC)


class Fleet:
    """Used by one thread, the host's loop."""

    def __init__(self, runner: QueryRunner, *, stop_timeout_s: float, clock: Callable[[], datetime] = utc_now) -> None:
        self._runner, self._stop_timeout_s, self._clock = runner, stop_timeout_s, clock
        self._starters = ThreadPoolExecutor(STARTERS, "start")
        self._stoppers = ThreadPoolExecutor(STOPPERS, "stop")
        self._operations: dict[str, _Operation] = {}
        self._started: set[str] = set()
        self._failures: dict[str, StreamFailure] = {}

    def live(self, names: Iterable[str]) -> dict[str, Live]:
        """What each stream is doing now, without those of which nobody can say; raises `SparkLostError` when nothing
        answers any more."""
        live = dict[str, Live]()
        for name in names:
            try:
                live[name] = self._live(name)
            except SparkLostError:
                raise
            except LakehouseError as exc:  # nothing is done about this one, and the others are looked after
                log.warning("stream_not_seen", stream=name, error=exc.message)
        return live

    def start(self, name: str, overrides: Mapping[str, str]) -> None:
        done = self._starters.submit(self._runner.start, name, overrides)
        self._operations[name] = _Operation(StreamState.STARTING, done)

    def stop(self, name: str, *, timeout_s: float | None = None) -> None:
        """Stops after the running micro-batch, or at the limit. A start that is under way is awaited first."""
        self._end(name, self._stop_timeout_s if timeout_s is None else timeout_s)

    def cut(self, name: str) -> None:
        """Stops at once, or right after a start that is under way."""
        self._end(name, None)

    def hold(self, name: str, until: float) -> None:
        """The stream may run until then, by `elapsed`; what runs is cut at that moment, whatever this process does."""
        self._runner.hold(name, until)

    def forget(self, name: str) -> None:
        self._started.discard(name)
        self._failures.pop(name, None)

    def occupied(self) -> set[str]:
        """The streams that have a query or an operation here."""
        for name in tuple(self._operations):
            self._settle(name)
        return self._started | set(self._operations)

    def _end(self, name: str, timeout_s: float | None) -> None:
        before = self._operations.get(name)
        if before is not None and before.state is StreamState.STOPPING:
            return
        self._failures.pop(name, None)
        done = self._stoppers.submit(self._halt, name, before.done if before else None, timeout_s)
        self._operations[name] = _Operation(StreamState.STOPPING, done)

    def _live(self, name: str) -> Live:
        self._settle(name)
        operation = self._operations.get(name)
        if operation is not None:
            return Live(operation.state)
        if name in self._failures:
            return Live(StreamState.FAILED, failure=self._failures[name])
        if name not in self._started:
            return Live(StreamState.STOPPED)
        query = self._runner.poll(name)
        if query.failure is None:
            return query
        return replace(query, failure=replace(query.failure, failed_at=self._clock()))  # by the store's clock

    def _settle(self, name: str) -> None:
        """Takes note of an operation that is done."""
        operation = self._operations.get(name)
        if operation is None or not operation.done.done():
            return
        del self._operations[name]
        problem = operation.done.exception()
        if isinstance(problem, SparkLostError):
            raise problem
        if operation.state is StreamState.STARTING and problem is None:
            self._started.add(name)
        elif operation.state is StreamState.STARTING:
            message = problem.message if isinstance(problem, LakehouseError) else str(problem)
            error_class = getattr(problem, "error_class", None) or type(problem).__name__
            self._failures[name] = StreamFailure(str(error_class), message, None, self._clock())
        elif problem is None:
            self._started.discard(name)
        else:
            log.warning("stream_stop_failed", stream=name, error=str(problem))
            self.cut(name)  # until that succeeds: its batch may still write, though Spark calls the query ended

    def _halt(self, name: str, starting: "Future[Any] | None", timeout_s: float | None) -> None:
        if starting is not None:
            wait([starting])
        if timeout_s is None:
            self._runner.cut(name)
        else:
            self._runner.stop(name, timeout_s=timeout_s)


# the host ------------------------------------------------------------------------------------------------------------


def new_heartbeat(now: datetime, tags: Sequence[str] = (), max_streams: int | None = None) -> HostHeartbeat:
    """The identity of this process. A restarted host is another owner, so that old leases are not its own."""
    hostname = socket.gethostname()
    host_id = f"{hostname}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    return HostHeartbeat(host_id, hostname, os.getpid(), now, now, tags=tuple(tags), max_streams=max_streams)


def beat_every_s(settings: Settings) -> float:
    """Five signs of life within the time after which a host counts as gone, for pages or for other hosts."""
    return min(settings.host.heartbeat_stale_s, settings.host.lease_ttl_s) / 5


def declare(store: ControlStore, declarations: tuple[StreamDeclaration, ...], now: datetime) -> None:
    """Writes to the store what this host can run. A new stream is desired to run."""
    store.declare(declarations, now=now)
    store.ensure_all_desired([declaration.name for declaration in declarations], DesiredState.RUNNING, now=now)


@dataclass(slots=True)
class StreamHost:
    """One host; `tick` is one round of it. Used by one thread."""

    settings: Settings
    store: ControlStore
    runner: QueryRunner
    declarations: tuple[StreamDeclaration, ...]
    heartbeat: HostHeartbeat
    clock: StoreClock
    elapsed: Callable[[], float] = elapsed
    read_until: Callable[[str], datetime | None] = lambda _: None  # what came before then has been read
    recorded: Callable[[Observed | None, Observed], None] = lambda *_: None  # what was seen of a stream before, and now
    looked: Callable[[], tuple[int, int]] = lambda: (0, 0)  # at so many tables of so many
    _desired: KeptAnswer[dict[str, Desired]] = field(init=False)
    _fleet: Fleet = field(init=False)
    _ownership: Ownership = field(init=False)
    _sharing: Sharing = field(init=False)
    _observed: dict[str, Observed] = field(init=False, default_factory=dict)
    _known: set[str] = field(init=False, default_factory=set)  # owned, and what the store had of them is read
    _offered: dict[str, int] = field(init=False, default_factory=dict)  # by name the generation that failed here
    _giving: set[str] = field(init=False, default_factory=set)  # on their way to other hosts
    _beat_at: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._desired = wanted_of(self.store, ttl_s=self.settings.host.lease_ttl_s, elapsed=self.elapsed)
        host, host_id = self.settings.host, self.heartbeat.host_id
        self._fleet = Fleet(self.runner, stop_timeout_s=host.stop_timeout_s, clock=self.clock)
        self._ownership = Ownership(
            self.store, host_id, ttl_s=host.lease_ttl_s, hold=self._fleet.hold, elapsed=self.elapsed
        )
        self._sharing = Sharing(self.store, self.heartbeat, ttl_s=host.lease_ttl_s, elapsed=self.elapsed)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(declaration.name for declaration in self.declarations)

    def owned(self) -> tuple[str, ...]:
        """The streams whose leases it holds; for any thread."""
        return tuple(self._ownership.held)

    def beat(self) -> None:
        """Writes a heartbeat when one is due."""
        now = self.elapsed()
        if self._beat_at is None or now - self._beat_at >= beat_every_s(self.settings):
            self.clock.look()
            looked_at, found = self.looked()
            sign = replace(self.heartbeat, beat_at=self.clock(), tables_looked_at=looked_at, tables_found=found)
            self.store.beat(replace(sign, streams=self._able()))
            self.store.take_in(self.settings.roots)
            self._beat_at = now

    def _say_goodbye(self) -> None:
        """A heartbeat, when one is due, of a host that takes no stream any more."""
        now = self.elapsed()
        if self._beat_at is None or now - self._beat_at >= beat_every_s(self.settings):
            self._beat_at = now
            self.store.beat(replace(self.heartbeat, beat_at=self.clock()))

    def tick(self) -> None:
        """One reconciliation. Raises `SparkLostError`, or `StoreError`: then nothing is begun, and streams run on while
        their leases last."""
        for name in self._ownership.run_out():
            self._lose(name, RAN_OUT)
        self.beat()
        desired = self._desired()
        self._refresh_ownership(desired)
        owned = tuple(name for name in self._ownership.held if name not in self._giving)
        host = Host(self.heartbeat.host_id, self.settings.host, self.clock())
        live = {
            name: replace(query, read_until=self.read_until(name)) for name, query in self._fleet.live(owned).items()
        }
        self._carry_out(plan(desired, self._observed, live, host), desired)

    def shut_down(self, limit_s: float) -> None:
        """Stops every stream within the limit, and gives its lease back as soon as it has stopped. Desired states stay,
        so that the next host resumes."""
        self._beat_at = None
        self._quietly(self._say_goodbye)
        deadline, patience_s = self.elapsed() + limit_s, max(0.0, limit_s - CUT_S)
        for name in self._fleet.occupied():
            self._fleet.stop(name, timeout_s=min(self.settings.host.stop_timeout_s, patience_s))
        waiting = self._fleet.occupied() | self._ownership.held.keys()
        while waiting:
            resting = waiting - self._fleet.occupied()
            for name in resting & self._ownership.held.keys():
                self._quietly(partial(self._leave, name))
            waiting -= resting
            if self.elapsed() >= deadline:
                return
            self._quietly(lambda: self._ownership.renew_due())
            self._quietly(self._say_goodbye)
            threading.Event().wait(0.1)

    def _refresh_ownership(self, desired: Mapping[str, Desired]) -> None:
        for name, why in self._ownership.renew_due().items():
            self._lose(name, why)
        if self._offered:  # until a person asks anew, or nobody else is left
            wanted = {(name, desired[name].generation) for name in self._able_elsewhere() & desired.keys()}
            still = dict(self._offered.items() & wanted)
            self._beat_at = self._beat_at if still == self._offered else None  # others soon see it
            self._offered = still
        take, give = self._sharing.share(frozenset(self._able()), self._ownership.held, self._giving, desired)
        self._ownership.take(take)
        if won := self._ownership.held.keys() - self._known:
            seen = self.store.observed()
            self._observed.update({name: seen[name] for name in won if name in seen})
            self._known |= won
            log.info("streams_owned", streams=sorted(won))
        self._give(give)

    def _able_elsewhere(self) -> set[str]:
        """What other hosts can run."""
        return {
            name for host in self._sharing.alive() if host.host_id != self.heartbeat.host_id for name in host.streams
        }

    def _able(self) -> tuple[str, ...]:
        """What it may run: it has the tags, no former query of the stream is left here, and others did not get it."""
        tags, left = set(self.heartbeat.tags), self._fleet.occupied() - self._ownership.held.keys()
        busy = left | self._offered.keys()
        return tuple(
            declaration.name
            for declaration in self.declarations
            if declaration.host_tags <= tags and declaration.name not in busy
        )

    def _give(self, moves: Sequence[Move]) -> None:
        """Each is stopped after its batch, and then its lease is given back."""
        for move in moves:
            log.info("stream_given", stream=move.stream, to=move.to, reason="that host has fewer, and room")
            self._giving.add(move.stream)
        occupied = self._fleet.occupied() if self._giving else ()
        for name in sorted(self._giving):
            if name in occupied:
                self._fleet.stop(name)
                continue
            try:
                self._leave(name)
            except StreamRefusedError:
                self._lose(name, ANOTHER_HAS_IT)
            self._giving.discard(name)

    def _lose(self, name: str, why: str) -> None:
        log.warning("stream_lost", stream=name, reason=why)
        self._ownership.drop(name)
        self._giving.discard(name)
        self._unlearn(name)
        self._fleet.cut(name)

    def _unlearn(self, name: str) -> None:
        """The next host that has it may see something else of it."""
        self._observed.pop(name, None)
        self._known.discard(name)

    def _carry_out(self, actions: tuple[Action, ...], desired: dict[str, Desired]) -> None:
        for action in actions:
            if action.name not in self._ownership.held:
                continue  # its lease was lost while an earlier action was recorded
            match action:
                case RecordState(observed):
                    self._record(observed, desired)
                case Start(name):
                    self._fleet.start(name, desired[name].overrides)
                case Stop(name):
                    self._fleet.stop(name)
                case Forget(name):
                    self._fleet.forget(name)
                case Offer(name):
                    self._offer(name, desired[name])

    def _record(self, observed: Observed, desired: dict[str, Desired]) -> None:
        name = observed.name
        try:
            self.store.observe(observed, token=self._ownership.held[name].token)
        except StreamRefusedError:  # another host has a newer token
            self._lose(name, ANOTHER_HAS_IT)
            return
        self.recorded(self._observed.get(name), observed)
        self._observed[name] = observed
        log.info("stream_state", stream=name, state=observed.state.value, **_why(observed, desired.get(name)))

    def _offer(self, name: str, wanted: Desired) -> None:
        if name in self._able_elsewhere():
            log.warning("stream_offered", stream=name, reason="it failed for what is this host's own")
            self._offered[name] = wanted.generation
            self._ownership.release(name)
            self._unlearn(name)
            self._beat_at = None

    def _leave(self, name: str) -> None:
        seen = self._observed.get(name)
        if seen is not None and not seen.state.has_ended:
            stopped = replace(seen, state=StreamState.STOPPED, observed_at=self.clock(), next_start_at=None)
            self.store.observe(stopped, token=self._ownership.held[name].token)
        self._ownership.release(name)
        self._unlearn(name)

    def _quietly(self, act: Callable[[], object]) -> None:
        try:
            act()
        except LakehouseError as exc:
            log.warning("shutdown_step_failed", error=exc.message)


def _why(observed: Observed, wanted: Desired | None) -> dict[str, object]:
    """What the log line of a state says beside the state."""
    failure = observed.last_failure
    if failure is not None and observed.state in (StreamState.BACKOFF, StreamState.FAILED):
        return {"error_class": failure.error_class, "error": failure.message, "batch": failure.batch_id}
    if observed.state in (StreamState.STOPPING, StreamState.STOPPED) and wanted is not None:
        return {"actor": wanted.actor, "reason": wanted.reason}
    return {"query_id": observed.query_id, "run_id": observed.run_id}


class Loop:
    """Ticks until asked to stop. Waits for a silent store; a dead JVM ends the process."""

    def __init__(
        self, host: StreamHost, stop: threading.Event, *, interval_s: float, metrics: HostMetrics | None = None
    ) -> None:
        self._host, self._stop, self._interval_s = host, stop, interval_s
        self._metrics = metrics or HostMetrics()
        self._silent_since: datetime | None = None
        self._trouble = 0
        self.ended = 0  # rounds

    def run(self) -> int:
        """Returns the exit code: 0 when asked to stop, 1 when the process must be started anew."""
        while not self._stop.is_set():
            try:
                self._host.tick()
                self._trouble = 0
                self._metrics.round_ended(store_up=True)
                if self._silent_since is not None:
                    silent_s = (self._host.clock() - self._silent_since).total_seconds()
                    log.info("store_back", silent_s=round(silent_s, 1))
                    self._silent_since = None
            except StoreError as exc:
                self._metrics.round_ended(store_up=False)
                if self._silent_since is None:
                    self._silent_since = self._host.clock()
                    log.error("store_silent", error=exc.message, effect="streams run on while their leases last")
            except SparkLostError as exc:
                log.error("spark_lost", error=exc.message, hint=exc.hint)
                return 1
            except Exception:
                self._trouble += 1
                log.exception("reconcile_failed", in_a_row=self._trouble)
                if self._trouble >= TROUBLE_LIMIT:
                    return 1
            self.ended += 1
            self._stop.wait(self._interval_s)
        return 0
