"""Runs one job on the host's Spark: a job group of its own, so that cancelling ends its tasks and no stream's.

Rule: called from one thread a job; `cancel` and `progress` from any. What a job raises leaves here as a
`LakehouseError`: the job boundary.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog
from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from backend.changes.host_job import prepare_job
from backend.errors import JobError, LakehouseError
from backend.format import things
from backend.jobs.documents import HostAnswer, HostQuery
from backend.jobs.model import Job, JobEnd, JobKind, JobProgress, JobState
from backend.lake.lake import Lake
from backend.lake.storage.storage import Storage
from backend.query.answer import host_plan
from backend.query.views import World
from backend.settings import Settings
from backend.store.store import ControlStore
from backend.times import Clock
from pipelines.jobs.diff import DiffTask, SparkLimits, run_diff
from pipelines.jobs.query import run_query
from pipelines.jobs.stream_acts import Requeues, Resets
from pipelines.jobs.table_acts import TableActs
from pipelines.jvm.failures import SparkLostError, describe
from pipelines.jvm.hadoop import CheckpointFiles, spark_uri
from pipelines.specs.streams import Registry
from pipelines.specs.tables import within_reach

POOL = "jobs"  # under the FAIR scheduler beside the streams' pool

log = structlog.get_logger()


class JobCancelled(Exception):
    """The job was asked to end."""


@dataclass(frozen=True, slots=True)
class Acts:
    """What a host does to tables, besides running streams."""

    resets: Resets
    requeues: Requeues
    tables: TableActs

    @classmethod
    def of(cls, settings: Settings, store: ControlStore, registry: Registry) -> "Acts":
        return cls(Resets(settings, store, registry), Requeues(settings, store, registry), TableActs(settings, store))


@dataclass(slots=True)
class _Run:
    group: str
    listen: Callable[[str], None]
    phase: str = ""
    cancelled: threading.Event = field(default_factory=threading.Event)
    is_changing: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, phase: str) -> None:
        self.listen(phase)
        self._raise_if_cancelled()
        self.phase = phase

    def changes(self, phase: str) -> None:
        """Tables are changed from here on, which no cancel breaks off."""
        self.tell(phase)
        with self._lock:
            self._raise_if_cancelled()
            self.is_changing = True

    def stop_short(self) -> bool:
        with self._lock:
            if not self.is_changing:
                self.cancelled.set()
            return not self.is_changing

    def _raise_if_cancelled(self) -> None:
        if self.cancelled.is_set():
            raise JobCancelled


class SparkJobs:
    """The jobs of one Spark session. `listen` is called with each phase before it begins."""

    def __init__(
        self,
        settings: Settings,
        session: Callable[[], SparkSession],
        host_id: str,
        limits: SparkLimits = SparkLimits(),
        acts: Acts | None = None,
        listen: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._settings, self._session, self._host_id = settings, session, host_id
        self.limits, self.listen, self._acts = limits, listen, acts
        self._storage, self._lake = Storage(settings), Lake(settings)
        self._runs: dict[str, _Run] = {}

    def run(self, job: Job) -> JobEnd:
        """Its end, with the result or its address. Raises `JobCancelled`, `SparkLostError` or another
        `LakehouseError`."""
        run = _Run(f"weir-job-{job.job_id}-{job.attempts}", lambda phase: self.listen(phase))
        self._runs[job.job_id] = run
        try:
            return self._run(job, run)
        except (JobCancelled, LakehouseError):
            raise
        except (Py4JNetworkError, ConnectionError) as exc:
            raise SparkLostError("Spark's JVM does not answer any more", hint="restart the stream host") from exc
        except Exception as exc:  # job boundary
            if run.cancelled.is_set():
                raise JobCancelled from exc
            error_class, message = describe(exc)
            raise JobError(f"{error_class}: {message}", hint="logs/host.log and logs/spark.log have the rest") from exc
        finally:
            self._runs.pop(job.job_id, None)

    def stops_short(self, job_id: str) -> bool:
        """Whether a cancel comes in time: from here on the job changes nothing. False once it changes tables."""
        run = self._runs.get(job_id)
        return run is not None and run.stop_short()

    def cancel(self, job_id: str) -> None:
        """Ends the job's tasks at once, and keeps it from beginning others."""
        run = self._runs.get(job_id)
        if run is None:
            return
        run.cancelled.set()
        self._session().sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(run.group)

    def progress(self, job_id: str) -> JobProgress:
        """Tasks of the Spark job that runs now."""
        run = self._runs.get(job_id)
        if run is None:
            return JobProgress()
        tracker = self._session().sparkContext.statusTracker()
        active = set(tracker.getActiveJobsIds())
        jobs = [
            tracker.getJobInfo(spark_job) for spark_job in tracker.getJobIdsForGroup(run.group) if spark_job in active
        ]
        stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
        seen = [stage for stage in stages if stage is not None]
        total = sum(stage.numTasks for stage in seen)
        return JobProgress(run.phase, sum(stage.numCompletedTasks for stage in seen), total or None)

    def forget(self, result_uri: str) -> None:
        """Delete a result that nobody asks for any more."""
        try:
            CheckpointFiles(self._session()).remove(spark_uri(result_uri))
        except Exception as exc:  # noqa: BLE001 - job boundary: what cannot be deleted must not hold up the others
            log.warning("result_not_deleted", uri=result_uri, error=describe(exc)[1])

    def result_uri(self, job: Job) -> str:
        """Where this attempt of the job writes."""
        return f"{self._settings.results_uri.rstrip('/')}/{job.job_id}-{job.attempts}"

    def _run(self, job: Job, run: _Run) -> JobEnd:
        if job.kind is JobKind.DIFF:
            self._compare(job, run)
            return JobEnd(JobState.DONE, self.result_uri(job))
        if job.kind is JobKind.QUERY:
            answer = self._query(job, run)
            detail = things(answer.num_rows, "row")
            return JobEnd(JobState.DONE, self.result_uri(job), detail=detail, answer=answer.to_json())
        if self._acts is None:
            raise JobError("this host runs no stream", hint="start one that declares the stream")
        if job.kind is JobKind.RESET:
            run.changes("resetting the stream")
            self._acts.resets.run(job, self._session().newSession())
            return JobEnd(JobState.DONE)
        act = self._acts.tables if job.kind.is_table_act else self._acts.requeues
        result = act.run(job, self._begun(job, run), run)
        return JobEnd(JobState.DONE, answer=result.text(), detail=result.sentence() if job.kind.is_act else "")

    def _compare(self, job: Job, run: _Run) -> None:
        prepared = prepare_job(self._lake, job, self._storage.root_of)
        for compared in (prepared.input.first, prepared.input.second):
            within_reach(self._settings, compared.ref.uri)
        session = self._begun(job, run)
        task = DiffTask(prepared, self.result_uri(job), f"by {self._by(session)}", self.limits)
        run_diff(session, task, run.tell)

    def _query(self, job: Job, run: _Run) -> HostAnswer:
        now = datetime.now(UTC)
        planned = host_plan(World(self._lake, None, now, self._settings), job, Clock(now))
        for pinned in HostQuery.of(job.request).reads:
            within_reach(self._settings, pinned.uri)
        session = self._begun(job, run)
        return run_query(
            session, planned, self.result_uri(job), most_rows=self._settings.jobs.query_rows,
            compiled_bytes=self.limits.compiled_bytes, by=self._by(session), tell=run.tell,
        )  # fmt: skip

    def _by(self, session: SparkSession) -> str:
        return f"Spark {session.version} on {self._host_id}"

    def _begun(self, job: Job, run: _Run) -> SparkSession:
        """A session of its own, in a job group that a cancel ends."""
        session = self._session().newSession()
        session.sparkContext.setJobGroup(run.group, f"{job.kind} of {job.subject}", interruptOnCancel=True)
        session.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
        return session
