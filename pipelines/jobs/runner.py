"""Runs one job on the host's Spark: a job group of its own, so that cancelling ends its tasks and no stream's.

Rule: called from one thread a job; `cancel` and `progress` from any. What a job raises leaves here as a
`LakehouseError`: the job boundary. The statement of a query came through both allow-lists of `backend.query`. It sees
temporary views of a session of its own and nothing else: of the columns that it names, at the versions that were
planned. Its first rows, in their order, become one small table.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pyarrow as pa
import structlog
from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    CalendarIntervalType,
    DayTimeIntervalType,
    IntegerType,
    NullType,
    VariantType,
    YearMonthIntervalType,
)

from backend.changes.host_job import prepare_job
from backend.errors import JobError, LakehouseError, QueryError
from backend.format import bytes_text, things
from backend.jobs.documents import HostAnswer, HostQuery, of_document, to_document
from backend.jobs.model import Job, JobEnd, JobKind, JobProgress, JobState
from backend.lake.lake import Lake
from backend.lake.storage.storage import Storage
from backend.query.answer import PLACE, host_plan
from backend.query.views import World
from backend.query.worker import HELD_BYTES
from backend.settings import Settings
from backend.store.store import ControlStore
from backend.times import Clock
from pipelines.jobs.diff import DiffTask, SparkLimits, nested, run_diff, tune, write_result
from pipelines.jobs.stream_acts import StreamActs
from pipelines.jobs.table_acts import TableActs
from pipelines.jvm.delta import make_active, open_state
from pipelines.jvm.failures import SparkLostError, describe
from pipelines.jvm.hadoop import CheckpointFiles, spark_uri
from pipelines.specs.streams import Registry
from pipelines.specs.tables import quoted, within_reach

POOL = "jobs"  # under the FAIR scheduler beside the streams' pool
_QUERY_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",  # a number that does not fit is an error, no other number
    "spark.sql.runSQLOnFiles": "false",
}
_NOT_KEPT = (DayTimeIntervalType, YearMonthIntervalType, CalendarIntervalType, VariantType)

log = structlog.get_logger()


class JobCancelled(Exception):
    """The job was asked to end."""


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
        store: ControlStore,
        registry: Registry,
        listen: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._settings, self._session, self._host_id = settings, session, host_id
        self.limits, self.listen = SparkLimits(), listen
        self._tables, self._streams = TableActs(settings, store), StreamActs(settings, store, registry)
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
            return JobEnd(JobState.DONE, self.result_uri(job), detail=detail, answer=to_document(answer))
        if job.kind is JobKind.RESET:
            run.changes("resetting the stream")
            self._streams.reset(job, self._session().newSession())
            return JobEnd(JobState.DONE)
        act = self._tables.run if job.kind.is_table_act else self._streams.requeue
        result = act(job, self._begun(job, run), run)
        return JobEnd(JobState.DONE, answer=result.text(), detail=result.sentence() if job.kind.is_act else "")

    def _compare(self, job: Job, run: _Run) -> None:
        prepared = prepare_job(self._lake, job, self._storage.root_of)
        for compared in (prepared.input.first, prepared.input.second):
            within_reach(self._settings, compared.ref.uri)
        session = self._begun(job, run)
        task = DiffTask(prepared, self.result_uri(job), f"by {self._by(session)}", self.limits)
        run_diff(session, task, run.tell)

    def _query(self, job: Job, run: _Run) -> HostAnswer:
        """Raises `QueryError` for rows that cannot be kept, `DiffError` where another table lies in a table's place."""
        now = datetime.now(UTC)
        planned = host_plan(World(self._lake, None, now, self._settings), job, Clock(now))
        for pinned in of_document(HostQuery, job.request).reads:
            within_reach(self._settings, pinned.uri)
        session = self._begun(job, run)
        make_active(session)
        tune(session, planned.plan.size_bytes, self.limits.compiled_bytes)
        for key, value in _QUERY_CONF.items():
            session.conf.set(key, value)
        run.tell("opening the tables")
        for read in planned.plan.reads:
            assert read.snapshot is not None
            rows_of = open_state(session, read.snapshot).table()
            rows_of.select(*(F.col(quoted(name)) for name in read.columns)).createOrReplaceTempView(read.name)
        answer = session.sql(planned.sql)
        columns, most_rows = tuple(answer.columns), self._settings.jobs.query_rows
        run.tell("computing the rows")
        rows = _numbered(answer).limit(most_rows + 1).toArrow()
        if rows.nbytes > HELD_BYTES:
            what = f"the first {most_rows:,} rows hold more than {bytes_text(HELD_BYTES)}"
            raise QueryError(what, hint="select fewer columns, or shorter values")
        run.tell("writing the result")
        first = rows.slice(0, most_rows)
        first = first.append_column(PLACE, pa.array(range(first.num_rows), pa.int64()))
        write_result(session, session.createDataFrame(first), self.result_uri(job))
        return HostAnswer(columns, first.num_rows, rows.num_rows > most_rows, self._by(session))

    def _by(self, session: SparkSession) -> str:
        return f"Spark {session.version} on {self._host_id}"

    def _begun(self, job: Job, run: _Run) -> SparkSession:
        """A session of its own, in a job group that a cancel ends."""
        session = self._session().newSession()
        session.sparkContext.setJobGroup(run.group, f"{job.kind} of {job.subject}", interruptOnCancel=True)
        session.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
        return session


def _numbered(answer: DataFrame) -> DataFrame:
    """As c0, c1 …: two columns may have one name."""
    for column in answer.schema.fields:
        if any(isinstance(part, _NOT_KEPT) for part in nested(column.dataType)):
            kind = column.dataType.simpleString()
            raise QueryError(f"no table holds the column {column.name} of type {kind}", hint="cast it to another type")
    kinds = [column.dataType for column in answer.schema.fields]
    numbered = answer.toDF(*(f"c{number}" for number in range(len(kinds))))
    untyped = {
        f"c{n}": F.col(f"c{n}").cast(IntegerType()) for n, kind in enumerate(kinds) if isinstance(kind, NullType)
    }
    return numbered.withColumns(untyped) if untyped else numbered
