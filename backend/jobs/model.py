"""The values that describe a job: work that a stream host does once, and whose result is kept for a while; whether
somebody is there to do it; and what policies did to tables by their jobs.

Rule: pure; the clock is a parameter. A job's state is what its host last wrote; whether that host still is there is
asked of its heartbeat. A policy is known by its text: once that changes, it begins anew. After `TRIES` failures in a
row on one table it rests there, until somebody has done that act.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from backend.access import Actor
from backend.errors import JobError
from backend.format import ago, utc_text
from backend.stream_model.stream import HostHeartbeat
from backend.table_policies import TablePolicy


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


def why_no_host(hosts: Iterable[HostHeartbeat], *, now: datetime, stale_s: float) -> str | None:
    """Why no job is begun; None while a host is alive."""
    last = max(hosts, key=lambda host: host.beat_at, default=None)
    if last is None:
        return "no stream host has ever reported"
    if last.is_alive(now, stale_s):
        return None
    return f"no stream host is alive: the last one was seen at {utc_text(last.beat_at)} ({ago(last.beat_at, now)})"


def is_orphan(job: Job, hosts: Iterable[HostHeartbeat], *, now: datetime, stale_s: float) -> bool:
    """Whether a running job's host does not answer any more; another one takes it over when its lease is over."""
    if job.state is not JobState.RUNNING:
        return False
    alive = {host.host_id for host in hosts if host.is_alive(now, stale_s)}
    return job.host_id not in alive


# policies -------------------------------------------------------------------------------------------------------------


POLICY = Actor("policy")
TRIES = 3
KEPT = 8  # newest acts of a kind on a table that a policy acts on: what it did last is known however long ago


@dataclass(frozen=True, slots=True)
class PolicyRuns:
    """`last`: its newest job. `done_at`: when the act was last done, an OPTIMIZE or VACUUM by whomever. `failed`: its
    failures in a row, newest first. `under_way`: the act on the table that is not over, whosever."""

    last: Job | None = None
    done_at: datetime | None = None
    failed: tuple[Job, ...] = ()
    under_way: Job | None = None

    @property
    def rests(self) -> bool:
        return len(self.failed) >= TRIES

    @property
    def broken_off(self) -> Job | None:
        """Its newest job, where that was not done, nor since by somebody else."""
        last = self.last
        if last is None or last.state not in (JobState.FAILED, JobState.CANCELLED):
            return None
        return None if self.done_at and self.done_at > last.requested_at else last


@dataclass(frozen=True, slots=True)
class RestingPolicy:
    """`error`: why it failed last, at `since`."""

    policy: str
    table: str
    kind: JobKind
    error: str
    since: datetime


def reason_of(policy: TablePolicy) -> str:
    """What its jobs give as their reason."""
    return f"policy: {policy.text}"


def kind_of(policy: TablePolicy) -> JobKind:
    return JobKind.OPTIMIZE if policy.optimize else JobKind.VACUUM if policy.vacuum else JobKind.REPAIR


def by_table(jobs: Iterable[Job]) -> dict[str, list[Job]]:
    """Acts by their table, in their order."""
    tables: dict[str, list[Job]] = {}
    for job in jobs:
        tables.setdefault(job.subject, []).append(job)
    return tables


def runs_of(policy: TablePolicy, of_table: Sequence[Job]) -> PolicyRuns:
    """`of_table`: every act on one table, newest first."""
    same = [job for job in of_table if job.kind is kind_of(policy)]
    own = [job for job in same if job.actor == POLICY.name and job.reason == reason_of(policy)]
    done = [job for job in (own if policy.expire else same) if job.state is JobState.DONE]
    failed = list[Job]()
    for job in same:
        if job.state is JobState.DONE:
            break
        if job in own and job.state is JobState.FAILED:
            failed.append(job)
    return PolicyRuns(
        own[0] if own else None,
        max((job.ended_at or job.requested_at for job in done), default=None),
        tuple(failed),
        next((job for job in of_table if not job.state.is_over), None),
    )


def resting(policies: Iterable[TablePolicy], jobs: Sequence[Job]) -> Iterator[RestingPolicy]:
    """Those that a person has to look at."""
    for policy in policies:
        for table, of_table in sorted(by_table(jobs).items()):
            if (runs := runs_of(policy, of_table)).rests:
                newest = runs.failed[0]
                since = newest.ended_at or newest.requested_at
                yield RestingPolicy(policy.text, table, newest.kind, newest.error, since)
