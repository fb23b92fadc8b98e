"""The values that describe a job: work that a stream host does once, and whose result is kept for a while; and whether
somebody is there to do it.

Rule: pure; the clock is a parameter. A job's state is what its host last wrote; whether that host still is there is
asked of its heartbeat.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from backend.access import Actor
from backend.errors import JobError
from backend.format import ago, utc_text
from backend.stream_model.stream import HostHeartbeat


class JobKind(StrEnum):
    DIFF = "diff"
    QUERY = "query"
    RESET = "reset"
    REQUEUE = "requeue"
    REQUEUE_PREVIEW = "requeue preview"
    OPTIMIZE = "optimize"
    VACUUM = "vacuum"
    RESTORE = "restore"
    REWIND = "rewind"
    REPAIR = "repair"
    ALTER = "alter"
    CLONE = "clone"
    DROP = "drop"
    UNDROP = "undrop"
    PURGE = "purge"

    @property
    def keeps_rows(self) -> bool:
        """Whether its result is a small table of its own."""
        return self in (JobKind.DIFF, JobKind.QUERY)

    @property
    def is_act(self) -> bool:
        """Whether it changes tables: one at a time for each subject."""
        return self in (JobKind.RESET, JobKind.REQUEUE) or self.is_table_act

    @property
    def is_of_table(self) -> bool:
        """Whether its subject is a table, by name. That of other acts is a stream, which nobody starts meanwhile."""
        return self in (
            JobKind.OPTIMIZE, JobKind.VACUUM, JobKind.RESTORE, JobKind.REPAIR, JobKind.ALTER, JobKind.CLONE,
            JobKind.DROP, JobKind.UNDROP, JobKind.PURGE,
        )  # fmt: skip

    @property
    def is_table_act(self) -> bool:
        """Whether `backend.maintenance` describes it. Of a rewind the subject is the stream that writes the table."""
        return self.is_of_table or self is JobKind.REWIND


class JobState(StrEnum):
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_over(self) -> bool:
        return self in (JobState.DONE, JobState.FAILED, JobState.CANCELLED)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What somebody asks for. `request` is a JSON document that the kind understands; two requests with the same
    `fingerprint` have the same answer, so one job serves both. `parameters`: of the request, for the audit trail."""

    kind: JobKind
    subject: str  # the table, for people
    fingerprint: str
    request: str
    actor: Actor
    reason: str
    time_limit_s: float
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a job is: units of the current phase (tasks of Spark) done out of those known; None before any is."""

    phase: str = ""
    done: int = 0
    total: int | None = None


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job ended: `result_uri` of a comparison's or a query's rows when it is DONE; `answer`, a JSON document, of
    all kinds but comparisons; `error` and `hint` when it FAILED. `detail`: what it did, for the audit trail."""

    state: JobState
    result_uri: str | None = None
    error: str = ""
    hint: str = ""
    detail: str = ""
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One job as the store knows it. `attempts` counts the hosts that began it."""

    job_id: str
    kind: JobKind
    subject: str
    fingerprint: str
    request: str
    actor: str
    reason: str
    time_limit_s: float
    state: JobState
    requested_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    host_id: str | None = None
    attempts: int = 0
    progress: JobProgress = field(default=JobProgress())
    cancel_requested: bool = False
    result_uri: str | None = None
    answer: str | None = None
    error: str = ""
    hint: str = ""

    def require_answer(self) -> str:
        """Raises `JobError` where it left none: it failed, or an earlier version of Weir did it."""
        if self.answer is None:
            raise JobError(f"job {self.job_id} has no answer: {self.error or f'it is {self.state}'}", hint=self.hint)
        return self.answer


def is_alive(host: HostHeartbeat, *, now: datetime, stale_s: float) -> bool:
    return host.silent_s(now) <= stale_s


def why_no_host(hosts: Iterable[HostHeartbeat], *, now: datetime, stale_s: float) -> str | None:
    """Why no job is begun; None while a host is alive."""
    last = max(hosts, key=lambda host: host.beat_at, default=None)
    if last is None:
        return "no stream host has ever reported"
    if is_alive(last, now=now, stale_s=stale_s):
        return None
    return f"no stream host is alive: the last one was seen at {utc_text(last.beat_at)} ({ago(last.beat_at, now)})"


def is_orphan(job: Job, hosts: Iterable[HostHeartbeat], *, now: datetime, stale_s: float) -> bool:
    """Whether a running job's host does not answer any more; another one takes it over when its lease is over."""
    if job.state is not JobState.RUNNING:
        return False
    alive = {host.host_id for host in hosts if is_alive(host, now=now, stale_s=stale_s)}
    return job.host_id not in alive
