"""`python -m pipelines.host`: runs the declared streams as people want them, until told to stop.

Rule: desired state belongs to people. The host reconciles once a second and writes what it observes; stopping the host
leaves every wish as it is, so that the next host resumes.
"""

import os
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from types import FrameType

import structlog

from backend import logs
from backend.errors import LakehouseError, StoreError, StreamRefusedError
from backend.settings import Settings, load_settings
from backend.store.store import ControlStore
from backend.streams.model import Desired, DesiredState, HostHeartbeat, Observed, StreamDeclaration, StreamState
from backend.streams.reconcile import Action, Forget, Host, Limits, Record, Start, Stop, plan
from pipelines.failures import SparkLostError
from pipelines.fleet import Fleet, QueryRunner, utc_now
from pipelines.listener import ProgressListener, ProgressWriter
from pipelines.ownership import Ownership
from pipelines.runtime import Runtime
from pipelines.spec import load_registry

SHUTDOWN_LIMIT_S = 8.0  # people wait 20 s for Ctrl-C; a batch that is cut is replayed by the next start
RETENTION_EVERY = timedelta(hours=1)
TROUBLE_LIMIT = 10  # rounds in a row that fail without a known reason
AT_REST = (StreamState.STOPPED, StreamState.FAILED, StreamState.COMPLETED)

log = structlog.get_logger()


def new_heartbeat(now: datetime) -> HostHeartbeat:
    """Who this host is: unique to the process, so that a restarted host is another owner."""
    hostname = socket.gethostname()
    return HostHeartbeat(f"{hostname}-{os.getpid()}-{uuid.uuid4().hex[:8]}", hostname, os.getpid(), now, now)


def declare(store: ControlStore, declarations: tuple[StreamDeclaration, ...], now: datetime) -> None:
    """Tells the store what this host can run; a stream that is new is wanted."""
    store.declare(declarations, now=now)
    for declaration in declarations:
        store.ensure_desired(declaration.name, DesiredState.RUNNING, now=now)


@dataclass(slots=True)
class StreamHost:
    """One host: `tick` brings it one step on. Used by one thread."""

    settings: Settings
    store: ControlStore
    runner: QueryRunner
    declarations: tuple[StreamDeclaration, ...]
    heartbeat: HostHeartbeat
    clock: Callable[[], datetime] = utc_now
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
        """Says that the host is there, a few times within the limit after which it counts as gone."""
        now = self.clock()
        if self._beat_at is None or now - self._beat_at >= timedelta(seconds=self.settings.host.heartbeat_stale_s / 5):
            self.store.beat(replace(self.heartbeat, beat_at=now))
            self._beat_at = now

    def tick(self) -> None:
        """One reconciliation; raises `StoreError` (nothing more is begun, what runs goes on) or `SparkLostError`."""
        self.beat()
        desired = self.store.desired()
        self._refresh_ownership()
        owned = tuple(self._ownership.held)
        host = Host(self.heartbeat.host_id, self._limits(), self.clock())
        self._carry_out(plan(desired, self._observed, self._fleet.live(owned), host), desired)
        self._prune()

    def shut_down(self, limit_s: float) -> None:
        """Stops every stream within the limit; observed states say so, desired ones stay."""
        deadline = self.clock() + timedelta(seconds=limit_s + 2)
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
        for name in occupied - self._ownership.held.keys():  # a cut that did not work is tried again
            self._fleet.cut(name)

    def _lose(self, name: str) -> None:
        log.warning("stream_lost", stream=name, reason="another host holds its lease")
        self._ownership.drop(name)
        self._observed.pop(name, None)
        self._fleet.cut(name)

    def _carry_out(self, actions: tuple[Action, ...], desired: dict[str, Desired]) -> None:
        for action in actions:
            if action.name not in self._ownership.held:
                continue  # lost while its first action was recorded
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
        except StreamRefusedError:
            self._lose(name)
            return
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
    """What a log line about a state should say beside it."""
    failure = observed.last_failure
    if failure is not None and observed.state in (StreamState.BACKOFF, StreamState.FAILED):
        return {"error_class": failure.error_class, "error": failure.message, "batch": failure.batch_id}
    if observed.state in (StreamState.STOPPING, StreamState.STOPPED) and wanted is not None:
        return {"actor": wanted.actor, "reason": wanted.reason}
    return {"query_id": observed.query_id, "run_id": observed.run_id}


class Loop:
    """Ticks until asked to stop; a silent store is waited for, a dead JVM ends the process."""

    def __init__(self, host: StreamHost, stop: threading.Event, *, interval_s: float) -> None:
        self._host, self._stop, self._interval_s = host, stop, interval_s
        self._silent_since: datetime | None = None
        self._trouble = 0

    def run(self) -> int:
        """The exit code: 0 when asked to stop, 1 when the process has to be started anew."""
        while not self._stop.is_set():
            try:
                self._host.tick()
                self._well()
            except StoreError as exc:
                self._store_silent(exc)
            except SparkLostError as exc:
                log.error("spark_lost", error=exc.message, hint=exc.hint)
                return 1
            except Exception:
                self._trouble += 1
                log.exception("reconcile_failed", in_a_row=self._trouble)
                if self._trouble >= TROUBLE_LIMIT:
                    return 1
            self._stop.wait(self._interval_s)
        return 0

    def _well(self) -> None:
        self._trouble = 0
        if self._silent_since is not None:
            silent_s = (self._host.clock() - self._silent_since).total_seconds()
            log.info("store_back", silent_s=round(silent_s, 1))
            self._silent_since = None

    def _store_silent(self, exc: StoreError) -> None:
        if self._silent_since is None:
            self._silent_since = self._host.clock()
            log.error("store_silent", error=exc.message, effect="streams keep running; trying again each second")


def main() -> int:
    stop = threading.Event()
    _on_signals(lambda *_: os._exit(0))  # nothing runs yet: leave at once
    try:
        settings = load_settings()
        logs.configure("host", settings)
        return run(settings, stop)
    except LakehouseError as exc:
        log.error("host_failed", error=exc.message, hint=exc.hint)
        sys.stderr.write(f"error: {logs.redact_text(exc.message)}\nhint: {exc.hint}\n")
        return exc.exit_code


def run(settings: Settings, stop: threading.Event) -> int:
    """The host's life: open, reconcile until `stop`, stop the streams, close."""
    store = ControlStore.open(settings)
    registry = load_registry(settings)
    runtime = Runtime(settings, registry)
    heartbeat = new_heartbeat(utc_now())
    declarations = tuple(spec.declaration(settings) for spec in registry.specs())
    log.info("host_starting", host_id=heartbeat.host_id, store=store.shown_url, streams=list(registry.names()))
    declare(store, declarations, utc_now())
    store.beat(heartbeat)  # Spark takes seconds to start: pages should not say that no host is there
    runtime.open()
    heartbeat = replace(heartbeat, spark_version=runtime.spark_version, spark_ui_url=runtime.spark_ui_url)
    host = StreamHost(settings, store, runtime, declarations, heartbeat)
    writer = ProgressWriter(store)
    runtime.add_listener(ProgressListener(writer))
    writer.start()
    _on_signals(lambda *_: stop.set())  # after Spark, which takes SIGINT for itself
    log.info("host_ready", host_id=heartbeat.host_id, spark=runtime.spark_version)
    code = Loop(host, stop, interval_s=settings.host.reconcile_interval_s).run()
    _close(host, runtime, writer)
    store.close()
    return code


def _close(host: StreamHost, runtime: Runtime, writer: ProgressWriter) -> None:
    log.info("host_stopping")
    try:
        host.shut_down(min(host.settings.host.stop_timeout_s, SHUTDOWN_LIMIT_S))
        writer.close()
        runtime.close()
    except LakehouseError as exc:
        log.warning("host_close_failed", error=exc.message)
    log.info("host_stopped")


def _on_signals(handler: Callable[[int, FrameType | None], object]) -> None:
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, handler)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a thread that hangs in a dead JVM must not keep the process
