"""`python -m pipelines.host`: runs the declared streams as people want them, until told to stop.

Rule: desired state belongs to people. The host reconciles once a second and writes what it observes. Stopping the
host changes no desired state, so the next host resumes.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import structlog

from backend import logs
from backend.access import grant_problems
from backend.errors import LakehouseError
from backend.lake.lake import Lake
from backend.maintenance.policies import PolicyPlans
from backend.settings import Settings, load_settings
from backend.store.leases import StoreClock
from backend.store.store import ControlStore
from backend.stream_model.stream import StreamDeclaration
from backend.streams.backlog import BacklogReader
from pipelines.declare.check import refuse_problems
from pipelines.declare.pipeline import declarations, load_registry
from pipelines.host.backlogs import DrainWatch, TopicWatch, keep_backlogs
from pipelines.host.job_host import JobHost
from pipelines.host.metrics import HostMetrics, serving
from pipelines.host.periodic import LoopWatch, Rounds, Task, at_work
from pipelines.host.progress import ProgressListener, ProgressWriter, prune, roll_up
from pipelines.host.stream_host import Loop, StreamHost, beat_every_s, declare, new_heartbeat
from pipelines.host.tables import CommitWatch, TableWatch, submit_due
from pipelines.host.webhook import Webhook
from pipelines.jobs.runner import SparkJobs
from pipelines.spark.runtime import Runtime
from pipelines.specs.streams import Registry
from pipelines.stop_signals import stop_signals

CLOSE_S = 5.0  # beside `host.stop_timeout_s`, which the batches get; whoever stops a host gives it 10 s beside that
JOBS_LIMIT_S = 2.0  # running jobs go back into the queue, so nothing is lost

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
    # While Spark starts, which takes long, pages must not say that no host is there.
    first = heartbeat

    def beat(_: Rounds) -> None:
        store.beat(replace(first, beat_at=clock()))

    with at_work([Task("beating", beat_every_s(settings), beat, "host_not_heard")], store, heartbeat.host_id):
        for problem in runtime.open(store.alone):
            log.error("stream_cannot_work", stream=problem.name, at=str(problem.declared_at), error=problem.message)
    heartbeat = replace(heartbeat, spark_version=runtime.spark_version, spark_ui_url=runtime.spark_ui_url)
    metrics.is_host(heartbeat.host_id, runtime.spark_version)
    spark_jobs = SparkJobs(settings, lambda: runtime.session, heartbeat.host_id, store, registry)
    jobs = JobHost(settings, store, spark_jobs, heartbeat.host_id, clock=clock)
    writer = ProgressWriter(store, seen=metrics.batch_ended)
    metrics.watch_queue(writer.waiting, lambda: writer.dropped)
    listener = ProgressListener(writer)
    runtime.add_listener(listener)
    lake, passing = Lake(settings), Lake(settings)  # `passing`: of those who pass by every table
    drains = DrainWatch(settings, lake, store, listener.idle_at, clock)
    host = StreamHost(
        settings, store, runtime, declared, heartbeat, clock, read_until=drains.read_until, recorded=metrics.observed
    )
    loop = Loop(
        host,
        stop_signals(),  # after Spark, which takes SIGINT for itself
        interval_s=settings.host.reconcile_interval_s,
        metrics=metrics,
    )
    tables = TableWatch(
        settings,
        lake,
        store,
        registry.table_expectations(settings),
        heartbeat.host_id,
        registry.pipelines(),
        clock,
        judged=metrics.judged,
    )
    topics = TopicWatch(settings, store, registry, lambda: runtime.session, clock)
    notices, hung = (
        CommitWatch(passing, store, clock, heartbeat.host_id),
        LoopWatch(lambda: loop.ended, ttl_s=settings.host.lease_ttl_s),
    )
    backlogs = BacklogReader(settings, lake, keep_s=0)

    def owned() -> list[StreamDeclaration]:
        names = host.owned()
        return [stream for stream in declared if stream.name in names]

    def retain(rounds: Rounds) -> None:
        roll_up(backlogs, store, clock, rounds)  # first: what is deleted adds up no more
        if not rounds.is_stopping:
            prune(settings.store, store, clock())

    def check_grants(_: Rounds) -> None:
        if grants := settings.auth.grants:
            for problem in grant_problems(grants, [ref.name for ref in passing.tables()], list(store.declarations())):
                log.warning("grant_names_nothing", problem=problem)

    periodic = [  # name, every s, what, the event of a round that failed
        Task("topic-watch", 10.0, topics.ask_all, "topics_not_noted"),
        Task("drain-watch", 1.0, lambda _: drains.look(), "drain_not_judged"),
        Task("backlog-watch", 5.0, lambda r: keep_backlogs(backlogs, store, owned(), clock, r), "backlogs_not_kept"),
        Task("sums", 30.0, partial(roll_up, backlogs, store, clock), "retention_failed"),
        Task("retention", 3_600.0, retain, "retention_failed"),
        Task("notices", 5.0, notices.look, "notices_not_judged", by_leader=True, longest_pause_s=30.0),
        Task("grants", 86_400.0, check_grants, "grants_not_checked"),
        Task("loop-watch", hung.every_s, lambda _: hung.look(), "loop_not_watched"),
        *tables.tasks(),
    ]
    if settings.table_policies:
        plans = PolicyPlans(settings, lake)
        due = partial(submit_due, plans, store, clock)
        periodic.append(Task("policies", 15.0, due, "policies_not_judged", by_leader=True))
    if settings.notify.webhook.get_secret_value():
        webhook = Webhook(settings, passing, store, clock)
        periodic.append(Task("webhook", 15.0, webhook.tell, "webhook_not_asked", by_leader=True, longest_pause_s=60.0))
    writer.start()
    jobs.start()
    tables.declare()
    with at_work(periodic, store, heartbeat.host_id):
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
