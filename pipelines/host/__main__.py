"""`python -m pipelines.host`: runs the declared streams as people want them, until told to stop.

Rule: desired state belongs to people. The host reconciles once a second and writes what it observes. Stopping the
host changes no desired state, so the next host resumes.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from types import FrameType

import structlog

from backend import logs
from backend.errors import LakehouseError, StoreError
from backend.settings import Settings, load_settings
from backend.store.store import ControlStore
from backend.streams.model import HostHeartbeat
from pipelines.declare.check import refuse_problems
from pipelines.declare.registry import Registry, load_registry
from pipelines.host.fleet import utc_now
from pipelines.host.job_host import JobHost
from pipelines.host.listener import ProgressListener, ProgressWriter
from pipelines.host.metrics import HostMetrics, serving
from pipelines.host.stream_host import StreamHost, declare, new_heartbeat
from pipelines.host.topic_watch import TopicWatch
from pipelines.jobs.reset import Resets
from pipelines.jobs.runner import SparkJobs
from pipelines.spark.failures import SparkLostError
from pipelines.spark.runtime import Runtime

SHUTDOWN_LIMIT_S = 8.0  # below the 10 s that `weir up` gives it; a batch that is cut is replayed by the next start
JOBS_LIMIT_S = 2.0  # running jobs go back into the queue, so nothing is lost
TOPICS_LIMIT_S = 1.0  # it only asks
TROUBLE_LIMIT = 10  # after so many unexplained failures in a row the process is started anew

log = structlog.get_logger()


class Loop:
    """Ticks until asked to stop. Waits for a silent store; a dead JVM ends the process."""

    def __init__(
        self, host: StreamHost, stop: threading.Event, *, interval_s: float, metrics: HostMetrics | None = None
    ) -> None:
        self._host, self._stop, self._interval_s = host, stop, interval_s
        self._metrics = metrics or HostMetrics()
        self._silent_since: datetime | None = None
        self._trouble = 0

    def run(self) -> int:
        """Returns the exit code: 0 when asked to stop, 1 when the process must be started anew."""
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
        self._metrics.round_ended(store_up=True)
        if self._silent_since is not None:
            silent_s = (self._host.clock() - self._silent_since).total_seconds()
            log.info("store_back", silent_s=round(silent_s, 1))
            self._silent_since = None

    def _store_silent(self, exc: StoreError) -> None:
        self._metrics.round_ended(store_up=False)
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
    """Work until `stop`, and serve the host's metrics meanwhile."""
    registry = load_registry(settings)
    runtime = Runtime(settings, registry)
    metrics = HostMetrics(jvm_pid=lambda: runtime.jvm_pid)
    with serving(metrics, settings.host.metrics_address):
        return _work(settings, registry, runtime, metrics=metrics, stop=stop)


def _work(
    settings: Settings, registry: Registry, runtime: Runtime, *, metrics: HostMetrics, stop: threading.Event
) -> int:
    """Open everything, reconcile until `stop`, stop the streams, close."""
    store = ControlStore.open(settings)
    heartbeat = new_heartbeat(utc_now())
    refuse_problems(registry)
    declarations = registry.declarations(settings)
    log.info("host_starting", host_id=heartbeat.host_id, store=store.shown_url, streams=list(registry.names()))
    declare(store, declarations, utc_now())
    with _beating(store, heartbeat, every_s=settings.host.heartbeat_stale_s / 5):
        for problem in runtime.open():
            log.error("stream_cannot_work", stream=problem.name, at=str(problem.declared_at), error=problem.message)
    heartbeat = replace(heartbeat, spark_version=runtime.spark_version, spark_ui_url=runtime.spark_ui_url)
    metrics.is_host(heartbeat.host_id, runtime.spark_version)
    resets = Resets(settings, store, registry)
    spark_jobs = SparkJobs(settings, lambda: runtime.session, heartbeat.host_id, resets=resets)
    jobs = JobHost(settings, store, spark_jobs, heartbeat.host_id)
    writer = ProgressWriter(store, seen=metrics.batch_ended)
    metrics.watch_queue(writer.waiting, lambda: writer.dropped)
    listener = ProgressListener(writer)
    runtime.add_listener(listener)
    host = StreamHost(
        settings, store, runtime, declarations, heartbeat, idle_at=listener.idle_at, recorded=metrics.observed
    )
    topics = TopicWatch(settings, store, registry, lambda: runtime.session, utc_now)
    writer.start()
    jobs.start()
    topics.start()
    _on_signals(lambda *_: stop.set())  # after Spark, which takes SIGINT for itself
    log.info("host_ready", host_id=heartbeat.host_id, spark=runtime.spark_version)
    code = Loop(host, stop, interval_s=settings.host.reconcile_interval_s, metrics=metrics).run()
    topics.stop(TOPICS_LIMIT_S)
    jobs.stop(JOBS_LIMIT_S)
    _close(host, runtime, writer)
    store.close()
    return code


@contextmanager
def _beating(store: ControlStore, heartbeat: HostHeartbeat, *, every_s: float) -> Iterator[None]:
    """Heartbeats while Spark starts: it takes long, and pages must not say that no host is there."""
    opened = threading.Event()

    def beat() -> None:
        while True:
            with suppress(StoreError):  # the loop will log it
                store.beat(replace(heartbeat, beat_at=utc_now()))
            if opened.wait(every_s):
                return

    thread = threading.Thread(target=beat, name="beating", daemon=True)
    thread.start()
    try:
        yield
    finally:
        opened.set()
        thread.join()


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
