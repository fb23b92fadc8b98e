"""`python -m pipelines.host`: runs the declared streams as people want them, until told to stop.

Rule: desired state belongs to people. The host reconciles once a second and writes what it observes. Stopping the
host changes no desired state, so the next host resumes.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import structlog

from backend import logs
from backend.errors import LakehouseError, StoreError
from backend.lake.lake import Lake
from backend.settings import Settings, load_settings
from backend.store.clock import StoreClock
from backend.store.store import ControlStore
from backend.stream_model.stream import HostHeartbeat
from pipelines.declare.check import refuse_problems
from pipelines.declare.pipeline import declarations, load_registry
from pipelines.host.backlog_watch import BacklogWatch
from pipelines.host.drain_watch import DrainWatch
from pipelines.host.job_host import JobHost
from pipelines.host.listener import ProgressListener, ProgressWriter
from pipelines.host.loop_watch import LoopWatch
from pipelines.host.metrics import HostMetrics, serving
from pipelines.host.notice_rounds import NoticeRounds
from pipelines.host.policy_rounds import PolicyRounds
from pipelines.host.retention import Retention
from pipelines.host.rounds import Rounds
from pipelines.host.stream_host import Loop, StreamHost, beat_every_s, declare, new_heartbeat
from pipelines.host.table_watch import TableWatch
from pipelines.host.topic_watch import TopicWatch
from pipelines.host.webhook_rounds import WebhookRounds
from pipelines.jobs.runner import Acts, SparkJobs
from pipelines.spark.runtime import Runtime
from pipelines.specs.streams import Registry
from pipelines.stop_signals import stop_signals

CLOSE_S = 5.0  # beside `host.stop_timeout_s`, which the batches get; whoever stops a host gives it 10 s beside that
JOBS_LIMIT_S = 2.0  # running jobs go back into the queue, so nothing is lost
WATCHES_LIMIT_S = 1.0  # they only ask

log = structlog.get_logger()


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))  # nothing runs yet: leave at once
    try:
        settings = load_settings()
        logs.configure("host", settings)
        return run(settings)
    except LakehouseError as exc:
        log.error("host_failed", error=exc.message, hint=exc.hint)
        sys.stderr.write(f"error: {exc.message}\nhint: {exc.hint}\n")
        return exc.exit_code


def run(settings: Settings) -> int:
    """Work until told to stop, and serve the host's metrics meanwhile."""
    registry = load_registry(settings)
    runtime = Runtime(settings, registry)
    metrics = HostMetrics(jvm_pid=lambda: runtime.jvm_pid)
    with serving(metrics, settings.host.metrics_address):
        return _work(settings, registry, runtime, metrics=metrics)


def _work(settings: Settings, registry: Registry, runtime: Runtime, *, metrics: HostMetrics) -> int:
    """Open everything, reconcile until told to stop, stop the streams, close."""
    store = ControlStore.open(settings)
    clock = StoreClock(store.now)
    clock.look()
    heartbeat = new_heartbeat(clock(), settings.host.tags, settings.max_streams)
    refuse_problems(registry)
    declared = declarations(registry, settings)
    log.info("host_starting", host_id=heartbeat.host_id, store=store.shown_url, streams=list(registry.names()))
    declare(store, declared, clock())
    with _beating(store, heartbeat, clock, every_s=beat_every_s(settings)):
        for problem in runtime.open(store.alone):
            log.error("stream_cannot_work", stream=problem.name, at=str(problem.declared_at), error=problem.message)
    heartbeat = replace(heartbeat, spark_version=runtime.spark_version, spark_ui_url=runtime.spark_ui_url)
    metrics.is_host(heartbeat.host_id, runtime.spark_version)
    acts = Acts.of(settings, store, registry)
    spark_jobs = SparkJobs(settings, lambda: runtime.session, heartbeat.host_id, acts=acts)
    jobs = JobHost(settings, store, spark_jobs, heartbeat.host_id, clock=clock)
    writer = ProgressWriter(store, seen=metrics.batch_ended)
    metrics.watch_queue(writer.waiting, lambda: writer.dropped)
    listener = ProgressListener(writer)
    runtime.add_listener(listener)
    lake = Lake(settings)
    drains = DrainWatch(settings, lake, store, listener.idle_at, clock)
    host = StreamHost(
        settings, store, runtime, declared, heartbeat, clock, read_until=drains.read_until, recorded=metrics.observed
    )
    backlogs = BacklogWatch(settings, lake, store, declared, host.owned, clock)
    topics = TopicWatch(settings, store, registry, lambda: runtime.session, clock)
    expected = registry.table_expectations(settings)
    tables = TableWatch(
        settings, lake, store, expected, heartbeat.host_id, registry.pipelines(), clock, judged=metrics.judged
    )
    writer.start()
    jobs.start()
    retention = Retention(settings, lake, store, clock)
    policies = PolicyRounds(settings, lake, store, heartbeat.host_id, clock)
    passing = Lake(settings)  # of those who pass by every table
    notices = NoticeRounds(passing, store, heartbeat.host_id, clock)
    webhook = WebhookRounds(settings, passing, store, heartbeat.host_id, clock)
    loop = Loop(
        host,
        stop_signals(),  # after Spark, which takes SIGINT for itself
        interval_s=settings.host.reconcile_interval_s,
        metrics=metrics,
    )
    watch = LoopWatch(lambda: loop.ended, ttl_s=settings.host.lease_ttl_s)
    with _watching(
        topics.rounds,
        drains.rounds,
        backlogs.rounds,
        tables,
        retention.rounds,
        policies.rounds,
        notices.rounds,
        webhook.rounds,
        watch.rounds,
    ):
        log.info("host_ready", host_id=heartbeat.host_id, spark=runtime.spark_version)
        code = loop.run()
        deadline = time.monotonic() + settings.host.stop_timeout_s + CLOSE_S
    close(
        lambda: jobs.stop(JOBS_LIMIT_S),
        lambda: host.shut_down(deadline - time.monotonic()),
        writer.close,
        runtime.close,
        store.close,
    )
    return code


@contextmanager
def _watching(*watches: Rounds | TableWatch) -> Iterator[None]:
    """They run beside the loop, and are asked to end all at once."""
    for watch in watches:
        watch.start()
    yield
    deadline = time.monotonic() + WATCHES_LIMIT_S
    for limit_s in (0.0, WATCHES_LIMIT_S):
        for watch in watches:
            watch.stop(min(limit_s, max(0.0, deadline - time.monotonic())))


@contextmanager
def _beating(store: ControlStore, heartbeat: HostHeartbeat, clock: StoreClock, *, every_s: float) -> Iterator[None]:
    """Heartbeats while Spark starts: it takes long, and pages must not say that no host is there."""
    opened = threading.Event()

    def beat() -> None:
        while True:
            with suppress(StoreError):  # the loop will log it
                store.beat(replace(heartbeat, beat_at=clock()))
            if opened.wait(every_s):
                return

    thread = threading.Thread(target=beat, name="beating", daemon=True)
    thread.start()
    try:
        yield
    finally:
        opened.set()
        thread.join()


def close(*steps: Callable[[], object]) -> None:
    """One after the other; one that fails keeps none from the next, for the JVM may be dead."""
    log.info("host_stopping")
    for step in steps:
        try:
            step()
        except LakehouseError as exc:
            log.warning("host_close_failed", error=exc.message)
        except Exception:  # py4j raises many kinds
            log.exception("host_close_failed")
    log.info("host_stopped")


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a thread that hangs in a dead JVM must not keep the process
