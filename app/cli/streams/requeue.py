"""`weir requeue`: what requeueing quarantined rows would do, and the request for it, which the stream host carries out.

Rule: the host tries the repair, since expectations are Spark's SQL. Nothing is requeued without a reason and, since
rows change, the stream's name typed once more.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.cli.output import now, print_json, print_table, say
from app.cli.streams.jobs import awaited, require_host
from app.cli.streams.listing import actor, known_streams, required_store, stream_named
from app.cli.tables.lake import services
from app.streams.text import requeue_lines, requeue_samples
from backend.errors import JobError, StreamRefusedError
from backend.jobs.model import Job, JobRequest, JobState
from backend.settings import Settings
from backend.streams.requeue import (
    RequeueAnswer,
    RequeueRequest,
    load_answer,
    load_request,
    preview_job,
    quarantine_of,
    requeue_job,
    why_not,
)
from backend.streams.verdict import StreamStatus

if TYPE_CHECKING:
    from backend.store.store import ControlStore

_HINT = "`weir jobs` says when it is done"


@dataclass(frozen=True, slots=True)
class TypedRequeue:
    """What was typed. `repairs`: "amount = abs(amount)" each."""

    name: str
    where: str
    repairs: tuple[str, ...]
    reason: str
    confirm: str


def requeue(act: TypedRequeue, *, dry_run: bool, as_json: bool) -> int:
    """The preview alone, or the act; the exit code says whether it was done."""
    settings, lake = services()
    with required_store(settings) as store:
        status = stream_named(act.name, known_streams(settings)[0])
        request = load_request(lake, status.declaration, act.where, act.repairs)
        refused = why_not(status)
        if not dry_run and refused:
            raise StreamRefusedError(f"no row of {act.name} is requeued: {refused}")
        if dry_run or act.confirm != act.name:
            _, found = _answered(store, settings, preview_job(request, actor=actor()))
            _tell(found, request, status, as_json=as_json)
            if dry_run:
                return 0
            hint = f"say --confirm {act.name} once you have read what it does"
            raise StreamRefusedError("nothing was done", hint=hint)
        job, found = _answered(store, settings, requeue_job(request, actor=actor(), reason=act.reason))
    if as_json:
        print_json({**_document(found, request, status), "job_id": job.job_id})
    else:
        say(f"{act.name}: {found.sentence()}.")
        say(f"Start it with `weir start {act.name}`.", style="dim")
    return 0


def _answered(store: "ControlStore", settings: Settings, wanted: JobRequest) -> tuple[Job, RequeueAnswer]:
    """Waits for the host; raises `JobError` where it could not, or is not there."""
    require_host(store, settings)
    job = awaited(store, settings, store.jobs.submit(wanted, now=now()), hint=_HINT)
    if job.state is not JobState.DONE:
        said = f"{wanted.subject}: the {wanted.kind} ended: {job.error or job.state.value.lower()}"
        raise JobError(said, hint=job.hint)
    return job, load_answer(settings, job)


def _tell(found: RequeueAnswer, request: RequeueRequest, status: StreamStatus, *, as_json: bool) -> None:
    if as_json:
        print_json(_document(found, request, status))
        return
    for line in requeue_lines(found, request, status.declaration):
        say(line)
    if refused := why_not(status):
        say(f"refused: {refused}", style="red")
    if samples := requeue_samples(found):
        say()
        print_table(tuple(samples[0]), (tuple(each.values()) for each in samples))


def _document(found: RequeueAnswer, request: RequeueRequest, status: StreamStatus) -> dict[str, object]:
    return {
        "stream": request.stream,
        "quarantine": quarantine_of(status.declaration),
        "version": request.version,
        "where": request.where or None,
        "set": dict(request.repairs),
        "refused": why_not(status) or None,
        "chosen": found.chosen,
        "met": found.met,
        "left": found.left,
        "broken": dict(found.broken),
        "warned": dict(found.warned),
        "samples": [
            {"goes": each.goes, "before": each.before, "after": each.after, "broken": each.broken}
            for each in found.samples
        ],
    }
