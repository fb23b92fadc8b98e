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
from backend.jobs.model import Job, JobEnd, JobKind, JobProgress, JobRequest, JobState
from backend.jobs.policy_runs import KEPT, POLICY
from backend.store import audit, leases
from backend.store.engine import Database
from backend.store.leases import job_resource
from backend.store.notices import Notices, NoticeTopic
from backend.store.schema import Row, fetch, job, lease, row_of, value_of
from backend.stream_model.stream import AuditEntry, Lease

ANSWERS = (JobState.QUEUED, JobState.RUNNING, JobState.DONE)  # states in which a job serves who asks the same
_OVER = tuple(state for state in JobState if state.is_over)
_JOB_ID = re.compile(r"[0-9a-f]{12}")  # it names folders, which hosts delete
_LOOKED_AT = 10  # the newest job that can be read is among so many
ASKING = "job-questions"  # a lease row that is only locked: PostgreSQL lets two transactions look at once


class Jobs:
    """Thread-safe. Every method raises `StoreError` when the database does not answer."""

    def __init__(self, database: Database, notices: Notices) -> None:
        self._database, self._notices = database, notices

    # people ----------------------------------------------------------------------------------------------------

    def submit(self, wanted: JobRequest, *, now: datetime, instead_of: str | None = None) -> Job:
        """The job that answers the request: one that is there already, queued, running or done, or a new one.
        `instead_of` is one whose result is gone."""
        with self._database.writing() as connection:
            leases.lock(connection, ASKING)
            before = _newest(connection, wanted.fingerprint)
            if before is not None and before.job_id != instead_of and _answers(before):
                return before
            _require_alone(connection, wanted)
            made = _new(wanted, now)
            access = Access(wanted.actor, wanted.subject, f"{wanted.kind} job", wanted.reason, wanted.parameters)
            audit.admit(connection, access, now=now, outcome=f"job {made.job_id}")
            connection.execute(sa.insert(job).values(_job_row(made)))
            self._notices.tell(connection, NoticeTopic.JOBS)
            return made

    def cancel(self, job_id: str, *, actor: Actor, reason: str, now: datetime) -> Job:
        """Ends a queued job, asks the host to end a running one; one that is over stays as it is. Whoever may act may
        cancel what others asked for: an operator ends what is too much, and the audit trail says whose it was."""
        with self._database.writing() as connection:
            asked = _locked(connection, job_id)
            if asked.state.is_over or asked.cancel_requested:
                return asked
            access = Access(actor, asked.subject, f"cancel {asked.kind} job", reason, {"asked for by": asked.actor})
            audit.admit(connection, access, now=now, outcome=f"job {job_id}")
            self._notices.tell(connection, NoticeTopic.JOBS)
            changes: dict[str, object] = {"cancel_requested": True}
            if asked.state is JobState.QUEUED:
                changes |= {"state": str(JobState.CANCELLED), "ended_at": now}
            return _change(connection, job_id, changes)

    def get(self, job_id: str) -> Job | None:
        with self._database.reading() as connection:
            row = connection.execute(sa.select(job).where(job.c.job_id == job_id)).mappings().first()
            return _job_of(row) if row else None

    def find(self, fingerprint: str) -> Job | None:
        """The newest job that was asked the same."""
        with self._database.reading() as connection:
            return _newest(connection, fingerprint)

    def newest(self, limit: int, *, of_tables: bool = False) -> list[Job]:
        """The newest request first, whatever became of it; `of_tables`: acts on tables alone."""
        query = sa.select(job).order_by(job.c.requested_at.desc(), job.c.job_id).limit(limit)
        if of_tables:
            query = query.where(job.c.kind.in_([str(kind) for kind in JobKind if kind.is_table_act]))
        with self._database.reading() as connection:
            return fetch(connection, _job_of, query)

    def acts_on_tables(self) -> list[Job]:
        """Of each table and kind of act the `KEPT` newest, and all that are not over; the newest request first."""
        ranked = _ranked()
        wanted = sa.or_(ranked.c.nth <= KEPT, job.c.state.not_in(list(map(str, _OVER))))
        query = sa.select(job).join(ranked, ranked.c.job_id == job.c.job_id).where(wanted)
        with self._database.reading() as connection:
            return fetch(connection, _job_of, query.order_by(job.c.requested_at.desc(), job.c.job_id))

    def unfinished(self) -> list[Job]:
        """Queued and running, the oldest request first."""
        query = sa.select(job).where(job.c.state.not_in(list(map(str, _OVER)))).order_by(job.c.requested_at)
        with self._database.reading() as connection:
            return fetch(connection, _job_of, query)

    # the host that holds the lease -----------------------------------------------------------------------------

    def begin(self, held: Lease, job_id: str, *, now: datetime) -> Job:
        """RUNNING on the lease's owner, once more."""
        with self._database.writing() as connection:
            before = _owned(connection, held, job_id)
            changes = {
                "state": str(JobState.RUNNING), "host_id": held.owner, "started_at": now,
                "attempts": before.attempts + 1, **_progress_row(JobProgress()),
            }  # fmt: skip
            return _change(connection, job_id, changes)

    def report(self, held: Lease, job_id: str, progress: JobProgress) -> None:
        with self._database.writing() as connection:
            _owned(connection, held, job_id)
            _change(connection, job_id, _progress_row(progress))

    def requeue(self, held: Lease, job_id: str) -> Job:
        """A host that stops gives its job back: the attempt does not count."""
        with self._database.writing() as connection:
            before = _owned(connection, held, job_id)
            self._notices.tell(connection, NoticeTopic.JOBS)
            changes = {"state": str(JobState.QUEUED), "host_id": None, "started_at": None}
            attempts = max(0, before.attempts - 1)
            return _change(connection, job_id, {**changes, "attempts": attempts, **_progress_row(JobProgress())})

    def end(self, held: Lease, job_id: str, end: JobEnd, *, now: datetime) -> Job:
        with self._database.writing() as connection:
            before = _owned(connection, held, job_id)
            self._notices.tell(connection, NoticeTopic.JOBS)
            if detail := end.detail or (end.error if before.kind.is_act else ""):
                outcome, text = f"{before.kind} {end.state.lower()}", f"job {job_id}: {detail}"
                audit.note(connection, AuditEntry(now, before.actor, outcome, before.subject, before.reason, text))
            changes = {
                "state": str(end.state), "ended_at": now, "host_id": held.owner, "result_uri": end.result_uri,
                "answer": end.answer, "error": end.error, "hint": end.hint,
            }  # fmt: skip
            return _change(connection, job_id, changes)

    def prune(self, *, before: datetime) -> list[Job]:
        """Forgets jobs that ended before, but for the newest acts where policies act; whoever calls it deletes their
        results."""
        ranked = _ranked()
        kept = sa.select(ranked.c.job_id).where(ranked.c.by_policy == 1, ranked.c.nth <= KEPT)
        is_over = job.c.state.in_(list(map(str, _OVER)))
        old = sa.select(job).where(is_over, job.c.ended_at < before, job.c.job_id.not_in(kept))
        with self._database.writing() as connection:
            pruned = fetch(connection, _job_of, old.with_for_update())
            names = [ended.job_id for ended in pruned]
            connection.execute(sa.delete(job).where(job.c.job_id.in_(names)))
            connection.execute(sa.delete(lease).where(lease.c.resource.in_([job_resource(name) for name in names])))
            return pruned


def _job_row(made: Job) -> dict[str, Any]:
    return {name: field for name, field in row_of(made).items() if name != "progress"} | _progress_row(made.progress)


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
        sa.func.row_number().over(partition_by=same, order_by=(job.c.requested_at.desc(), job.c.job_id)).label("nth"),
        sa.func.max(by_policy).over(partition_by=same).label("by_policy"),
    )
    return ranks.where(job.c.kind.in_([str(kind) for kind in JobKind if kind.is_of_table])).subquery()


def _answers(asked: Job) -> bool:
    return asked.state in ANSWERS and not asked.cancel_requested


def _new(wanted: JobRequest, now: datetime) -> Job:
    return Job(
        uuid.uuid4().hex[:12], wanted.kind, wanted.subject, wanted.fingerprint, wanted.request, wanted.actor.name,
        wanted.reason.strip(), wanted.time_limit_s, JobState.QUEUED, now,
    )  # fmt: skip


def _newest(connection: Connection, fingerprint: str) -> Job | None:
    query = sa.select(job).where(job.c.fingerprint == fingerprint).order_by(job.c.requested_at.desc())
    return _first(connection, query)


def _first(connection: Connection, query: sa.Select[Any]) -> Job | None:
    return next(iter(fetch(connection, _job_of, query.limit(_LOOKED_AT))), None)


def _locked(connection: Connection, job_id: str) -> Job:
    query = sa.select(job).where(job.c.job_id == job_id).with_for_update()
    row = connection.execute(query).mappings().first()
    if row is None:
        raise JobNotFoundError(f"no job {job_id}", hint="finished jobs are kept for jobs.retention_days")
    return _job_of(row)


def _owned(connection: Connection, held: Lease, job_id: str) -> Job:
    if held.resource != job_resource(job_id) or not leases.is_current(connection, held.resource, held.token):
        raise StreamRefusedError(
            f"job {job_id}: the lease of {held.owner} is no longer current", hint="another host runs the job now"
        )
    return _locked(connection, job_id)


def _change(connection: Connection, job_id: str, changes: dict[str, object]) -> Job:
    connection.execute(sa.update(job).where(job.c.job_id == job_id).values(**changes))
    return _locked(connection, job_id)


def _require_alone(connection: Connection, wanted: JobRequest) -> None:
    """Raises `StreamRefusedError` for a second act on one stream or table."""
    if wanted.kind.is_act and (other := unfinished_act(connection, wanted.subject, of_table=wanted.kind.is_of_table)):
        raise StreamRefusedError(
            f"{wanted.kind} of {wanted.subject}: a {other.kind} of it is under way",
            hint="`weir jobs` says how far that is",
        )


def unfinished_act(connection: Connection, subject: str, *, of_table: bool = False) -> Job | None:
    """The job that changes a table, or what a stream wrote, or will."""
    acts = [str(kind) for kind in JobKind if kind.is_act and kind.is_of_table == of_table]
    query = sa.select(job).where(job.c.kind.in_(acts), job.c.subject == subject, job.c.state.not_in(map(str, _OVER)))
    return _first(connection, query)
