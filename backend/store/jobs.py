"""The jobs of the store: asked for by people, done by the host that holds a job's lease.

Rule: an act is in the audit trail in the same transaction that makes it visible; a host's word on a job counts only
under the current token of its lease; one question has one living job, however many ask it.
"""

import re
import uuid
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.access import Access, Actor
from backend.errors import JobNotFoundError, StreamRefusedError
from backend.jobs.model import KEPT, POLICY, Job, JobEnd, JobKind, JobProgress, JobRequest, JobState
from backend.store import audit, leases
from backend.store.engine import Database, reading, writing
from backend.store.leases import job_resource
from backend.store.notices import Notices, NoticeTopic
from backend.store.schema import Row, fetch, fetch_one, job, lease, row_of, value_of
from backend.stream_model.stream import AuditEntry, Lease

ANSWERS = (JobState.QUEUED, JobState.RUNNING, JobState.DONE)  # states in which a job serves who asks the same
ASKING = "job-questions"  # a lease row that is only locked: PostgreSQL lets two transactions look at once
_JOB_ID = re.compile(r"[0-9a-f]{12}")  # it names folders, which hosts delete
_LOOKED_AT = 10  # the newest job that can be read is among so many
_OVER = [str(state) for state in JobState if state.is_over]
_IS_OVER = job.c.state.in_(_OVER)
_NEWEST_FIRST = (job.c.requested_at.desc(), job.c.job_id)


# what is asked and answered ------------------------------------------------------------------------------------------


def get(connection: Connection, job_id: str) -> Job | None:
    return fetch_one(connection, _job_of, sa.select(job).where(job.c.job_id == job_id))


def find(connection: Connection, fingerprint: str) -> Job | None:
    """The newest job that was asked the same."""
    return _first(connection, sa.select(job).where(job.c.fingerprint == fingerprint))


def newest(connection: Connection, limit: int, *, of_tables: bool = False) -> list[Job]:
    """The newest request first, whatever became of it; `of_tables`: acts on tables alone."""
    query = sa.select(job).order_by(*_NEWEST_FIRST).limit(limit)
    if of_tables:
        query = query.where(job.c.kind.in_([str(kind) for kind in JobKind if kind.is_table_act]))
    return fetch(connection, _job_of, query)


def acts_on_tables(connection: Connection) -> list[Job]:
    """Of each table and kind of act the `KEPT` newest, and all that are not over; the newest request first."""
    ranked = _ranked()
    query = sa.select(job).join(ranked, ranked.c.job_id == job.c.job_id)
    return fetch(connection, _job_of, query.where(sa.or_(ranked.c.nth <= KEPT, ~_IS_OVER)).order_by(*_NEWEST_FIRST))


def unfinished(connection: Connection) -> list[Job]:
    """Queued and running, the oldest request first."""
    return fetch(connection, _job_of, sa.select(job).where(~_IS_OVER).order_by(job.c.requested_at))


def unfinished_act(connection: Connection, subject: str, *, of_table: bool = False) -> Job | None:
    """The job that changes a table, or what a stream wrote, or will."""
    acts = [str(kind) for kind in JobKind if kind.is_act and kind.is_of_table == of_table]
    return _first(connection, sa.select(job).where(job.c.kind.in_(acts), job.c.subject == subject, ~_IS_OVER))


# the host that holds the lease ---------------------------------------------------------------------------------------


def begin(connection: Connection, held: Lease, job_id: str, *, now: datetime) -> Job:
    """RUNNING on the lease's owner, once more."""
    before = _owned(connection, held, job_id)
    begun = {"state": str(JobState.RUNNING), "host_id": held.owner, "started_at": now, "attempts": before.attempts + 1}
    return _change(connection, job_id, **begun, **_progress_row(JobProgress()))


def report(connection: Connection, held: Lease, job_id: str, progress: JobProgress) -> None:
    _owned(connection, held, job_id)
    _change(connection, job_id, **_progress_row(progress))


def requeue(connection: Connection, held: Lease, job_id: str) -> Job:
    """A host that stops gives its job back: the attempt does not count."""
    before = _owned(connection, held, job_id)
    queued = {"state": str(JobState.QUEUED), "host_id": None, "started_at": None}
    attempts = max(0, before.attempts - 1)
    return _change(connection, job_id, **queued, attempts=attempts, **_progress_row(JobProgress()))


def end(connection: Connection, held: Lease, job_id: str, end: JobEnd, *, now: datetime) -> Job:
    before = _owned(connection, held, job_id)
    if detail := end.detail or (end.error if before.kind.is_act else ""):
        outcome, text = f"{before.kind} {end.state.lower()}", f"job {job_id}: {detail}"
        audit.note(connection, AuditEntry(now, before.actor, outcome, before.subject, before.reason, text))
    ended = {name: field for name, field in row_of(end).items() if name != "detail"}
    return _change(connection, job_id, **ended, ended_at=now, host_id=held.owner)


def prune(connection: Connection, *, before: datetime) -> list[Job]:
    """Forgets jobs that ended before, but for the newest acts where policies act; whoever calls it deletes their
    results."""
    ranked = _ranked()
    kept = sa.select(ranked.c.job_id).where(ranked.c.by_policy == 1, ranked.c.nth <= KEPT)
    old = sa.select(job).where(_IS_OVER, job.c.ended_at < before, job.c.job_id.not_in(kept))
    pruned = fetch(connection, _job_of, old.with_for_update())
    names = [ended.job_id for ended in pruned]
    connection.execute(sa.delete(job).where(job.c.job_id.in_(names)))
    connection.execute(sa.delete(lease).where(lease.c.resource.in_([job_resource(name) for name in names])))
    return pruned


class Jobs:
    """The jobs of a store. Every method raises `StoreError` when the database does not answer."""

    def __init__(self, database: Database, notices: Notices) -> None:
        self._database, self.notices = database, notices

    get = reading(get)
    find = reading(find)
    newest = reading(newest)
    acts_on_tables = reading(acts_on_tables)
    unfinished = reading(unfinished)
    begin = writing(begin)
    report = writing(report)
    requeue = writing(requeue, tells=NoticeTopic.JOBS)
    end = writing(end, tells=NoticeTopic.JOBS)
    prune = writing(prune)

    def submit(self, wanted: JobRequest, *, now: datetime, instead_of: str | None = None) -> Job:
        """The job that answers the request: one that is there already, queued, running or done, or a new one.
        `instead_of` is one whose result is gone. Raises `StreamRefusedError` for a second act on one stream or
        table."""
        with self._database.writing() as connection:
            leases.lock(connection, ASKING)
            before = find(connection, wanted.fingerprint)
            if (
                before is not None
                and before.job_id != instead_of
                and before.state in ANSWERS
                and not before.cancel_requested
            ):
                return before
            act, kind = f"{wanted.kind} of {wanted.subject}", wanted.kind
            if kind.is_act and (other := unfinished_act(connection, wanted.subject, of_table=kind.is_of_table)):
                raise StreamRefusedError(
                    f"{act}: a {other.kind} of it is under way", hint="`weir jobs` says how far that is"
                )
            made = Job(
                uuid.uuid4().hex[:12], kind, wanted.subject, wanted.fingerprint, wanted.request, wanted.actor.name,
                wanted.reason.strip(), wanted.time_limit_s, JobState.QUEUED, now,
            )  # fmt: skip
            access = Access(wanted.actor, wanted.subject, f"{kind} job", wanted.reason, wanted.parameters)
            audit.admit(connection, access, now=now, outcome=f"job {made.job_id}")
            row = row_of(made) | _progress_row(made.progress)
            del row["progress"]
            connection.execute(sa.insert(job).values(row))
            self.notices.tell(connection, NoticeTopic.JOBS)
            return made

    def cancel(self, job_id: str, *, actor: Actor, reason: str, now: datetime) -> Job:
        """Ends a queued job, asks the host to end a running one; one that is over stays as it is. Whoever may
        ask for an act may cancel it; another's query or comparison only an admin. The audit trail says whose it was."""
        with self._database.writing() as connection:
            asked = _locked(connection, job_id)
            if asked.state.is_over or asked.cancel_requested:
                return asked
            whose = {"asked for by": asked.actor}
            access = Access(actor, asked.subject, f"cancel {asked.kind} job", reason, whose, owner=asked.actor)
            audit.admit(connection, access, now=now, outcome=f"job {job_id}")
            self.notices.tell(connection, NoticeTopic.JOBS)
            is_queued = asked.state is JobState.QUEUED
            ended = {"state": str(JobState.CANCELLED), "ended_at": now} if is_queued else {}
            return _change(connection, job_id, cancel_requested=True, **ended)


def _progress_row(progress: JobProgress) -> dict[str, Any]:
    return {"phase": progress.phase, "done_units": progress.done, "total_units": progress.total}


def _job_of(row: Row) -> Job:
    if not _JOB_ID.fullmatch(row["job_id"]):
        raise ValueError("job_id: it is no name of a job")
    progress = {"phase": row["phase"], "done": row["done_units"], "total": row["total_units"]}
    return value_of(Job, {**row, "progress": progress})


def _ranked() -> sa.Subquery:
    """Acts on tables: which newest of its table and kind each is, and whether a policy did any of these."""
    same = (job.c.subject, job.c.kind)
    by_policy = sa.case((job.c.actor == POLICY.name, 1), else_=0)
    ranks = sa.select(
        job.c.job_id,
        sa.func.row_number().over(partition_by=same, order_by=_NEWEST_FIRST).label("nth"),
        sa.func.max(by_policy).over(partition_by=same).label("by_policy"),
    )
    return ranks.where(job.c.kind.in_([str(kind) for kind in JobKind if kind.is_of_table])).subquery()


def _first(connection: Connection, query: sa.Select[Any]) -> Job | None:
    """The newest that can be read."""
    jobs = fetch(connection, _job_of, query.order_by(job.c.requested_at.desc()).limit(_LOOKED_AT))
    return jobs[0] if jobs else None


def _locked(connection: Connection, job_id: str) -> Job:
    if locked := fetch_one(connection, _job_of, sa.select(job).where(job.c.job_id == job_id).with_for_update()):
        return locked
    raise JobNotFoundError(f"no job {job_id}", hint="finished jobs are kept for jobs.retention_days")


def _owned(connection: Connection, held: Lease, job_id: str) -> Job:
    if held.resource != job_resource(job_id) or not leases.is_current(connection, held.resource, held.token):
        raise StreamRefusedError(
            f"job {job_id}: the lease of {held.owner} is no longer current", hint="another host runs the job now"
        )
    return _locked(connection, job_id)


def _change(connection: Connection, job_id: str, **changes: object) -> Job:
    connection.execute(sa.update(job).where(job.c.job_id == job_id).values(**changes))
    return _locked(connection, job_id)
