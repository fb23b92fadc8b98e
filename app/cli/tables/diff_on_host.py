"""`weir diff … --on host`: the comparison as a job of the stream host.

Rule: who asks what is being computed waits for the same job. Ctrl-C cancels the job that this command asked for, which
may leave a part of the answer, and only leaves one that somebody else did.
"""

from typing import TYPE_CHECKING

from app import services
from app.cli.output import say
from app.cli.store import START_HINT, awaited, require_host
from backend.changes.host_job import job_request, read_answer
from backend.changes.model import DiffMethod, VersionDiff
from backend.changes.prepare import PreparedDiff
from backend.errors import JobError, JobResultMissingError
from backend.jobs.model import Job, JobRequest, JobState
from backend.jobs.results import results_lake
from backend.settings import Settings

if TYPE_CHECKING:
    from backend.store.store import ControlStore


def compared(prepared: PreparedDiff, settings: Settings) -> VersionDiff:
    """The difference as the host finds it, or what it had found when it was ended; raises `JobError` when the job
    found nothing or nobody does it."""
    if prepared.plan.method in (DiffMethod.SAME_VERSION, DiffMethod.LOG_ONLY):
        return prepared.outline
    wanted = job_request(prepared, actor=services.actor(), reason="weir diff", time_limit_s=settings.jobs.time_limit_s)
    store = services.existing_store()
    if store is None:
        raise JobError("there is no control store, so no stream host either", hint=START_HINT)
    done = _done(store, wanted)
    try:
        return read_answer(results_lake(settings), settings, prepared, done)
    except JobResultMissingError:
        again = _done(store, wanted, instead_of=done.job_id)
    return read_answer(results_lake(settings), settings, prepared, again)


def _done(store: "ControlStore", wanted: JobRequest, *, instead_of: str | None = None) -> Job:
    known, asked_at = store.jobs.find(wanted.fingerprint), services.now()
    if known is None or known.state is not JobState.DONE or known.job_id == instead_of:
        require_host(store)
    job = store.jobs.submit(wanted, now=asked_at, instead_of=instead_of)
    try:
        return _ended(store, job)
    except KeyboardInterrupt:
        if job.requested_at != asked_at:
            raise
        job = store.jobs.cancel(job.job_id, actor=services.actor(), reason="Ctrl-C", now=services.now())
        say(f"job {job.job_id} is cancelled, Ctrl-C again does not wait", style="dim", to_stderr=True)
    try:
        return _ended(store, job)
    except JobError:
        raise KeyboardInterrupt from None


def _ended(store: "ControlStore", job: Job) -> Job:
    job = awaited(store, job, hint=f"{START_HINT}; the same command finds the job again")
    if job.result_uri is not None:
        return job
    if job.state is JobState.CANCELLED:
        raise JobError(f"job {job.job_id} was cancelled", hint="compare again to begin anew")
    if job.state is JobState.FAILED:
        raise JobError(f"the stream host could not compare: {job.error}", hint=job.hint)
    return job
