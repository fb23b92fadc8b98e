"""One host and its streams: renews leases, compares desired with observed, starts and stops queries.

Rule: an observation is written before the act that it announces, under the token of the stream's lease.
"""

import os
import socket
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

import structlog

from backend.errors import LakehouseError, StreamRefusedError
from backend.settings import Settings
from backend.store.store import ControlStore
from backend.streams.model import Desired, DesiredState, HostHeartbeat, Observed, StreamDeclaration, StreamState
from backend.streams.reconcile import Action, Forget, Host, Limits, Record, Start, Stop, plan
from pipelines.host.fleet import Fleet, QueryRunner, utc_now
from pipelines.ownership import Ownership

RETENTION_EVERY = timedelta(hours=1)
AT_REST = (StreamState.STOPPED, StreamState.FAILED, StreamState.COMPLETED)

log = structlog.get_logger()


def new_heartbeat(now: datetime) -> HostHeartbeat:
    """The identity of this process. A restarted host is another owner, so that old leases are not its own."""
    hostname = socket.gethostname()
    return HostHeartbeat(f"{hostname}-{os.getpid()}-{uuid.uuid4().hex[:8]}", hostname, os.getpid(), now, now)


def declare(store: ControlStore, declarations: tuple[StreamDeclaration, ...], now: datetime) -> None:
    """Writes to the store what this host can run. A new stream is desired to run."""
    store.declare(declarations, now=now)
    for declaration in declarations:
        store.ensure_desired(declaration.name, DesiredState.RUNNING, now=now)


@dataclass(slots=True)
class StreamHost:
    """One host; `tick` is one round of it. Used by one thread."""

    settings: Settings
    store: ControlStore
    runner: QueryRunner
    declarations: tuple[StreamDeclaration, ...]
    heartbeat: HostHeartbeat
    clock: Callable[[], datetime] = utc_now
    idle_at: Callable[[str], datetime | None] = lambda _: None
    recorded: Callable[[Observed | None, Observed], None] = lambda *_: None  # what was seen of a stream before, and now
    _fleet: Fleet = field(init=False)
    _ownership: Ownership = field(init=False)
    _observed: dict[str, Observed] = field(init=False, default_factory=dict)
    _beat_at: datetime | None = field(init=False, default=None)
    _pruned_at: datetime | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        host = self.settings.host
        self._fleet = Fleet(self.runner, stop_timeout_s=host.stop_timeout_s, clock=self.clock)
        self._ownership = Ownership(self.store, self.heartbeat.host_id, ttl_s=host.lease_ttl_s)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(declaration.name for declaration in self.declarations)

    def beat(self) -> None:
        """Writes a heartbeat when one is due: five within the time after which a host counts as gone."""
        now = self.clock()
        if self._beat_at is None or now - self._beat_at >= timedelta(seconds=self.settings.host.heartbeat_stale_s / 5):
            self.store.beat(replace(self.heartbeat, beat_at=now))
            self.store.take_in(self.settings.roots)
            self._beat_at = now

    def tick(self) -> None:
        """One reconciliation. Raises `SparkLostError`, or `StoreError`: then streams run on and nothing is begun."""
        self.beat()
        desired = self.store.desired()
        self._refresh_ownership()
        owned = tuple(self._ownership.held)
        host = Host(self.heartbeat.host_id, self._limits(), self.clock())
        live = {name: replace(each, idle_at=self.idle_at(name)) for name, each in self._fleet.live(owned).items()}
        self._carry_out(plan(desired, self._observed, live, host), desired)
        self._prune()

    def shut_down(self, limit_s: float) -> None:
        """Stops every stream within the limit. Desired states stay, so that the next host resumes."""
        deadline = self.clock() + timedelta(seconds=limit_s + 2)  # a query that is cut at the limit takes a moment
        for name in self._fleet.occupied():
            self._fleet.stop(name, timeout_s=limit_s)
        while self._fleet.occupied() and self.clock() < deadline:
            self._quietly(lambda: self._ownership.renew_due(self.clock()))
            threading.Event().wait(0.1)
        for name in tuple(self._ownership.held):
            if name not in self._fleet.occupied():
                self._quietly(partial(self._leave, name))

    def _refresh_ownership(self) -> None:
        occupied = self._fleet.occupied()
        free = [name for name in self.names if name in self._ownership.held or name not in occupied]
        changes = self._ownership.refresh(free, self.clock())
        for name in changes.lost:
            self._lose(name)
        if changes.won:
            log.info("streams_owned", streams=list(changes.won))
            seen = self.store.observed()
            self._observed.update({name: seen[name] for name in changes.won if name in seen})
        for name in occupied - self._ownership.held.keys():  # a failed cut is tried again
            self._fleet.cut(name)

    def _lose(self, name: str) -> None:
        log.warning("stream_lost", stream=name, reason="another host holds its lease")
        self._ownership.drop(name)
        self._observed.pop(name, None)
        self._fleet.cut(name)

    def _carry_out(self, actions: tuple[Action, ...], desired: dict[str, Desired]) -> None:
        for action in actions:
            if action.name not in self._ownership.held:
                continue  # its lease was lost while an earlier action was recorded
            match action:
                case Record(observed):
                    self._record(observed, desired)
                case Start(name):
                    self._fleet.start(name)
                case Stop(name):
                    self._fleet.stop(name)
                case Forget(name):
                    self._fleet.forget(name)

    def _record(self, observed: Observed, desired: dict[str, Desired]) -> None:
        name = observed.name
        try:
            self.store.observe(observed, token=self._ownership.held[name].token)
        except StreamRefusedError:  # another host has a newer token
            self._lose(name)
            return
        self.recorded(self._observed.get(name), observed)
        self._observed[name] = observed
        log.info("stream_state", stream=name, state=observed.state.value, **_why(observed, desired.get(name)))

    def _leave(self, name: str) -> None:
        seen = self._observed.get(name)
        if seen is not None and seen.state not in AT_REST:
            stopped = replace(seen, state=StreamState.STOPPED, observed_at=self.clock(), next_start_at=None)
            self.store.observe(stopped, token=self._ownership.held[name].token)
        self._ownership.release(name)

    def _prune(self) -> None:
        now = self.clock()
        if self._pruned_at is None or now - self._pruned_at > RETENTION_EVERY:
            before = now - timedelta(days=self.settings.store.progress_retention_days)
            rows = self.store.prune_progress(before=before)
            self.store.prune_hosts(before=before)
            self._pruned_at = now
            log.info("progress_pruned", rows=rows, before=before.isoformat())

    def _limits(self) -> Limits:
        host = self.settings.host
        return Limits(host.max_restarts, host.restart_window_s, host.backoff_initial_s, host.backoff_max_s)

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
