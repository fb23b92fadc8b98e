"""`weir requeue`: what requeueing quarantined rows would do, and the request for it, which the stream host carries out.

Rule: the host tries the repair, since expectations are Spark's SQL. Nothing is requeued without a reason and, since
rows change, the stream's name typed once more.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from app import services
from app.cli.output import Document, fields_of, print_json, print_table, say
from app.cli.store import done_on_host, required_store, stream_named, streams_and_hosts
from app.streams.text import requeue_lines, requeue_samples
from backend.errors import StreamRefusedError
from backend.streams.requeue import (
    RequeueAnswer,
    RequeueRequest,
    load_request,
    preview_job,
    quarantine_of,
    requeue_job,
    why_not,
)
from backend.streams.verdict import StreamStatus

if TYPE_CHECKING:
    pass


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
    store = required_store()
    status = stream_named(act.name, streams_and_hosts()[0])
    request = load_request(services.lake(), status.declaration, act.where, act.repairs)
    refused = why_not(status)
    if not dry_run and refused:
        raise StreamRefusedError(f"no row of {act.name} is requeued: {refused}")
    if dry_run or act.confirm != act.name:
        job = done_on_host(store, preview_job(request, actor=services.actor()))
        _print_preview(RequeueAnswer.of(job), request, status, as_json=as_json)
        if dry_run:
            return 0
        hint = f"say --confirm {act.name} once you have read what it does"
        raise StreamRefusedError("nothing was done", hint=hint)
    job = done_on_host(store, requeue_job(request, actor=services.actor(), reason=act.reason))
    answer = RequeueAnswer.of(job)
    if as_json:
        print_json(_document(answer, request, status) | {"job_id": job.job_id})
    else:
        say(f"{act.name}: {answer.sentence()}.")
        say(f"Start it with `weir start {act.name}`.", style="dim")
    return 0


def _print_preview(answer: RequeueAnswer, request: RequeueRequest, status: StreamStatus, *, as_json: bool) -> None:
    if as_json:
        print_json(_document(answer, request, status))
        return
    for line in requeue_lines(answer, request, status.declaration):
        say(line)
    if refused := why_not(status):
        say(f"refused: {refused}", style="red")
    if samples := requeue_samples(answer):
        say()
        print_table(tuple(samples[0]), (tuple(sample.values()) for sample in samples))


def _document(answer: RequeueAnswer, request: RequeueRequest, status: StreamStatus) -> Document:
    return fields_of(answer) | {
        "left": answer.left,
        "stream": request.stream,
        "quarantine": quarantine_of(status.declaration),
        "version": request.version,
        "where": request.where or None,
        "set": request.repairs,
        "refused": why_not(status) or None,
    }
