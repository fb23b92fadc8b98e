"""The jobs of one host: takes queued jobs under a lease, runs each in a thread, ends cancelled ones.

Rule: jobs have a loop of their own, so that none holds up a stream. Every write about a job carries its lease's token.
A job that has begun to change tables is carried through: a cancel and the time limit come too late for it, and nobody
else gets its lease while it goes on. Where the lease could not be renewed in time, it takes no further step.
A job whose host died is begun once more, by the host that takes its lease. If that host dies too, the job fails.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import compress
from typing import Protocol

import structlog

from backend.errors import LakehouseError, StreamRefusedError
from backend.jobs.model import Job, JobEnd, JobProgress, JobState
from backend.redaction import without_secrets
from backend.settings import Settings
from backend.store.leases import elapsed, job_resource
from backend.store.notices import KeptAnswer, NoticeTopic
from backend.store.store import ControlStore
from backend.stream_model.stream import Lease
from pipelines.host.ownership import CUT_AFTER, LOOK_AFTER, leases_of
from pipelines.host.periodic import Rounds, Task
from pipelines.host.stream_host import utc_now
from pipelines.jobs.runner import JobCancelled

POLL_S = 0.25  # so that a cancel takes effect within a second
REPORT_S = 1.0
MOST_ATTEMPTS = 2
PRUNE_EVERY_S = 3_600.0

log = structlog.get_logger()


class JobRunner(Protocol):
    """What the host needs of `pipelines.jobs.runner.SparkJobs`."""

    def run(self, job: Job) -> JobEnd: ...
    def stops_short(self, job_id: str) -> bool: ...
    def cancel(self, job_id: str) -> None: ...
    def progress(self, job_id: str) -> JobProgress: ...
    def result_uri(self, job: Job) -> str: ...
    def forget(self, result_uri: str) -> None: ...


@dataclass(slots=True)
class _Running:
    job: Job
    lease: Lease
    thread: threading.Thread
    ends_at: float
    leased_at: float  # `elapsed` when the lease was asked for
    outcome: list[JobEnd] = field(default_factory=list)
    reported: JobProgress = field(default=JobProgress())
    reported_at: float = 0.0
    is_settled: bool = False  # the store knows how it ended; the thread may still be on its way out
    keeps_result: bool = False


class JobHost:
    """`step` does what is due now, `prune` what is once an hour. `start` calls them in threads until `stop`."""

    def __init__(
        self,
        settings: Settings,
        store: ControlStore,
        runner: JobRunner,
        host_id: str,
        *,
        clock: Callable[[], datetime] = utc_now,
        elapsed: Callable[[], float] = elapsed,
        poll_s: float = POLL_S,
    ) -> None:
        self._settings, self._store, self._runner, self._host_id = settings, store, runner, host_id
        self._clock, self._elapsed = clock, elapsed
        ttl_s = settings.host.lease_ttl_s
        self._leased = leases_of(store, ttl_s=ttl_s, elapsed=elapsed)
        self._unfinished = KeptAnswer(
            store.notices, store.jobs.unfinished, NoticeTopic.JOBS, every_s=ttl_s * LOOK_AFTER, elapsed=elapsed
        )
        self._running: dict[str, _Running] = {}
        self._steps = Rounds(Task("jobs", poll_s, lambda _: self.step(), "jobs_round_failed"))
        self._leases = Rounds(Task("job-leases", poll_s, lambda _: self._refuse_late(), "job_leases_not_watched"))
        self._old = Rounds(Task("job-results", PRUNE_EVERY_S, lambda _: self.prune(), "jobs_not_pruned"))

    def start(self) -> None:
        self._steps.start()
        self._leases.start()  # until the process ends: what a stop leaves may still change tables
        self._old.start()

    def stop(self, limit_s: float) -> None:
        """Takes no more jobs. Running ones are ended and put back into the queue, but for those that change tables."""
        deadline = time.monotonic() + limit_s
        self._old.stop(0)
        self._steps.stop(limit_s)
        left = [running for running in self._running.values() if not running.is_settled]
        short = [self._runner.stops_short(running.job.job_id) for running in left]
        for running in compress(left, short):
            self._end(running.job.job_id)
        for running in self._running.values():
            running.thread.join(max(0.0, deadline - time.monotonic()))
        for running, is_short in zip(left, short, strict=True):
            try:
                if running.outcome:
                    self._settle(running, running.outcome[0])
                elif is_short or not running.thread.is_alive():
                    self._give_back(running)
                else:
                    effect = "it is begun again when its lease has run out"
                    log.warning("job_left", job=running.job.job_id, effect=effect)
            except LakehouseError as exc:
                log.warning("job_shutdown_step_failed", error=exc.message)

    def step(self) -> None:
        """One round over all jobs. Raises `StoreError`; running jobs go on then."""
        for running in list(self._running.values()):
            if not running.is_settled:
                self._watch(running)
            elif not running.thread.is_alive():
                if running.job.kind.keeps_rows and not running.keeps_result:  # half written, or finished too late
                    self._runner.forget(self._runner.result_uri(running.job))
                del self._running[running.job.job_id]
        self._take()

    def prune(self) -> None:
        """Deletes what is older than settings say, one result after the other. Raises `StoreError`."""
        oldest = self._clock() - timedelta(days=self._settings.jobs.retention_days)
        for job in self._store.jobs.prune(before=oldest):
            for attempt in range(1, min(job.attempts, MOST_ATTEMPTS) + 1):  # a killed host may have left half a result
                self._runner.forget(self._runner.result_uri(replace(job, attempts=attempt)))

    @property
    def busy(self) -> int:
        """Jobs whose thread has not ended."""
        return len(self._running)

    # one that runs ---------------------------------------------------------------------------------------------

    def _watch(self, running: _Running) -> None:
        job_id = running.job.job_id
        try:
            if not self._renew(running):
                raise StreamRefusedError(f"job {job_id}: another host holds its lease")
            cancelled = {job.job_id for job in self._unfinished() if job.cancel_requested}
            is_late, is_over = self._elapsed() > running.ends_at, not running.thread.is_alive()
            end = JobEnd(JobState.CANCELLED) if job_id in cancelled else _too_long(running.job) if is_late else None
            if running.outcome:
                self._settle(running, running.outcome[0])
            elif end is not None and (is_over or self._runner.stops_short(job_id)):
                self._settle(running, end)
            elif is_over:  # it was refused a step
                self._give_back(running)
            else:
                self._report(running)
        except StreamRefusedError as exc:
            log.warning("job_lost", job=job_id, reason=exc.message)
            running.is_settled = True
            self._end(job_id)

    def _settle(self, running: _Running, end: JobEnd) -> None:
        """Writes the end, then stops the work: who cancelled sees at once what had been compared."""
        job_id = running.job.job_id
        self._store.jobs.end(running.lease, job_id, end, now=self._clock())
        running.is_settled, running.keeps_result = True, end.result_uri is not None
        self._end(job_id)
        self._store.release(running.lease)
        log.info("job_ended", job=job_id, state=end.state.value, error=end.error or None)

    def _end(self, job_id: str) -> None:
        try:
            self._runner.cancel(job_id)
        except LakehouseError as exc:
            log.warning("job_not_cancelled", job=job_id, error=exc.message)

    def _report(self, running: _Running) -> None:
        now = self._elapsed()
        if now - running.reported_at < REPORT_S:
            return
        running.reported_at = now
        progress = self._runner.progress(running.job.job_id)
        if progress != running.reported:
            self._store.jobs.report(running.lease, running.job.job_id, progress)
            running.reported = progress

    def _renew(self, running: _Running) -> bool:
        ttl_s, asked_at = self._settings.host.lease_ttl_s, self._elapsed()
        if asked_at - running.leased_at < ttl_s / 3:
            return True
        renewed = self._store.renew(running.lease, ttl_s=ttl_s)
        if renewed is None:
            return False
        running.lease, running.leased_at = renewed, asked_at
        return True

    def _refuse_late(self) -> None:
        """What would change tables takes no further step where another host may have its lease. Asks no store, which
        may hold up the loop for that long."""
        late = self._elapsed() - self._settings.host.lease_ttl_s * CUT_AFTER
        for running in list(self._running.values()):
            if running.job.kind.is_act and running.leased_at < late:
                self._end(running.job.job_id)

    def _give_back(self, running: _Running) -> None:
        self._store.jobs.requeue(running.lease, running.job.job_id)
        running.is_settled = running.keeps_result = True  # whoever does it next writes to the same address
        self._store.release(running.lease)
        log.info("job_given_back", job=running.job.job_id)

    # one that waits --------------------------------------------------------------------------------------------

    def _take(self) -> None:
        if len(self._running) >= self._settings.jobs.at_once:
            return
        waiting = [job for job in self._unfinished() if job.job_id not in self._running]
        if not waiting:
            return
        held = self._leased()  # reading first keeps a waiting host from writing four times a second
        for job in waiting:
            if job_resource(job.job_id) not in held and len(self._running) < self._settings.jobs.at_once:
                self._begin(job)

    def _begin(self, job: Job) -> None:
        now, leased_at = self._clock(), self._elapsed()
        lease = self._store.acquire(job_resource(job.job_id), self._host_id, ttl_s=self._settings.host.lease_ttl_s)
        if lease is None:
            return
        current = self._store.jobs.get(job.job_id)
        if current is None or current.state.is_over:
            self._store.release(lease)
            return
        if (end := _hopeless(current)) is not None:
            self._store.jobs.end(lease, job.job_id, end, now=now)
            self._store.release(lease)
            log.warning("job_abandoned", job=job.job_id, error=end.error)
            return
        begun = self._store.jobs.begin(lease, job.job_id, now=now)
        log.info("job_begun", job=job.job_id, kind=begun.kind.value, subject=begun.subject, attempt=begun.attempts)
        ends_at = self._elapsed() + begun.time_limit_s
        running = _Running(begun, lease, threading.Thread(), ends_at, leased_at)
        running.thread = threading.Thread(target=self._run, args=(running,), name=f"job-{job.job_id}", daemon=True)
        self._running[job.job_id] = running
        running.thread.start()

    def _run(self, running: _Running) -> None:
        try:
            end = self._runner.run(running.job)
        except JobCancelled:
            return  # the end is already in the store
        except LakehouseError as exc:
            end = JobEnd(JobState.FAILED, None, exc.message, exc.hint)
        except Exception as exc:  # job boundary
            log.exception("job_broke", job=running.job.job_id)
            end = JobEnd(JobState.FAILED, None, without_secrets(f"{type(exc).__name__}: {exc}"), "see logs/host.log")
        running.outcome.append(end)


def _hopeless(job: Job) -> JobEnd | None:
    """The end of a job that must not be begun again (cancelled, or two hosts died of it); None: begin it."""
    if job.cancel_requested:
        return JobEnd(JobState.CANCELLED)
    if job.state is JobState.RUNNING and job.attempts >= MOST_ATTEMPTS:
        return JobEnd(
            JobState.FAILED,
            None,
            f"{job.attempts} hosts that ran the job stopped answering, {job.host_id} the last",
            "it may need more memory than a host has: WEIR_SPARK__DRIVER_MEMORY, or a shorter range",
        )
    return None


def _too_long(job: Job) -> JobEnd:
    return JobEnd(
        JobState.FAILED,
        None,
        f"the job took longer than {job.time_limit_s:g} s and was stopped",
        "ask for less (a shorter range, fewer columns, a filter), or raise WEIR_JOBS__TIME_LIMIT_S",
    )
