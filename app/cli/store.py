"""`weir jobs|cancel`, and what other commands ask the control store: streams, hosts and judgements, and a job that they
wait for.

Rule: a store that does not exist is not made by asking for it; an act is the wish of a named person with a reason.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from app import services
from app.cli.commands import AsJson, Reason
from app.cli.output import Shapes, print_json, print_list, say, shaped
from app.columns import Column
from app.host_answer import HostQuestion
from app.ui.view.words import job_words
from backend.errors import JobError, StreamNotFoundError
from backend.format import age_s
from backend.jobs.model import Job, JobProgress, JobRequest, JobState, is_orphan, why_no_host
from backend.stream_model.stream import HostHeartbeat

if TYPE_CHECKING:
    from backend.expectations.model import Judgement
    from backend.store.store import ControlStore
    from backend.stream_model.backlog import Backlog
    from backend.streams.status import Backlogs
    from backend.streams.verdict import StreamStatus

Answer = TypeVar("Answer")
NO_HOST_HINT = "start the host with `weir up` or `weir host`; WEIR_HOME or WEIR_STORE__URL say where its store is"
START_HINT = "start one with `weir host`"
_SHOWN = 50  # jobs
_POLL_S = 0.25
_PATIENCE_S = 60.0  # a host that died is started again


def required_store() -> "ControlStore":
    """The control store; raises `StreamNotFoundError` where there is none: then there is no stream and no job."""
    store = services.existing_store()
    if store is None:
        raise StreamNotFoundError("there is no control store yet, so no stream and no job", hint=NO_HOST_HINT)
    return store


class BacklogLooks:
    """What waits for streams of which no host tells: its reader counts with Arrow, which takes 0.2 s to load."""

    @cached_property
    def read(self) -> "Callable[..., Backlog]":
        from backend.streams.backlog import BacklogReader

        return BacklogReader(services.settings(), services.own_lake()).read


def streams_and_hosts(backlogs: "Backlogs | None" = None) -> "tuple[list[StreamStatus], list[HostHeartbeat]]":
    """Every declared stream and every host; both empty where there is no store yet."""
    settings, store = services.settings(), services.existing_store()
    if store is None:
        return [], []
    from backend.streams.status import statuses

    store.take_in(settings.roots)
    streams = statuses(store, backlogs, now=store.now(), heartbeat_stale_s=settings.host.heartbeat_stale_s)
    return streams, store.hosts(now=services.now())


def judgements_and_hosts() -> "tuple[list[Judgement], list[HostHeartbeat]]":
    """Every judgement of a table and every host; both empty where there is no store yet."""
    store = services.existing_store()
    return (store.judgements(), store.hosts(now=services.now())) if store else ([], [])


def stream_named(name: str, statuses: "list[StreamStatus]") -> "StreamStatus":
    """Raises `StreamNotFoundError` naming those that are there."""
    for status in statuses:
        if status.declaration.name == name:
            return status
    declared = ", ".join(status.declaration.name for status in statuses)
    raise StreamNotFoundError(f"no stream {name!r}", hint=f"streams: {declared}" if declared else NO_HOST_HINT)


def is_host_alive(hosts: list[HostHeartbeat]) -> bool:
    stale_s = services.settings().host.heartbeat_stale_s
    return any(host.silent_s(services.now()) <= stale_s for host in hosts)


def require_host(store: "ControlStore") -> None:
    """Raise `JobError` where no host is alive."""
    now, stale_s = services.now(), services.settings().host.heartbeat_stale_s
    why = why_no_host(store.hosts(now=now), now=now, stale_s=stale_s)
    if why is not None:
        raise JobError(why, hint=START_HINT)


def awaited(store: "ControlStore", job: Job, *, hint: str) -> Job:
    """The job once it is over, however it ended; says how far it is, and raises `JobError` when no host is left."""
    printed, stale_s = "", services.settings().host.heartbeat_stale_s
    while not job.state.is_over:
        now = services.now()
        hosts = store.hosts(now=now)
        if (why := why_no_host(hosts, now=now, stale_s=stale_s + _PATIENCE_S)) is not None:
            raise JobError(f"job {job.job_id} waits: {why}", hint=hint)
        progress = job_words(job, now=now, is_orphan=is_orphan(job, hosts, now=now, stale_s=stale_s))
        if (without_times := progress.rpartition(" · ")[0]) != printed:
            say(progress, style="dim", to_stderr=True)
            printed = without_times
        time.sleep(_POLL_S)
        job = store.jobs.get(job.job_id) or job
    return job


def found_on_host(wanted: JobRequest, verb: str, answer: Callable[[Job], Answer]) -> Answer:
    """What a job that keeps its rows found, by `answer`; one whose rows are gone is done again. Ctrl-C cancels the job
    that this command asked for; one that somebody else asked for goes on.

    Raises `JobError` where it found nothing (it could not `verb`), or nobody does it.
    """
    store, question = services.existing_store(), HostQuestion(wanted, verb, answer)
    if store is None:
        raise JobError("there is no control store, so no stream host either", hint=START_HINT)
    reply = question.look(store)
    if reply.answer is None:
        require_host(store)
        asked_at, hint = services.now(), f"{START_HINT}; the same command finds the job again"
        job = question.ask(store, reply, now=asked_at)
        try:
            reply = question.reply(awaited(store, job, hint=hint))
        except KeyboardInterrupt:
            if job.requested_at != asked_at:
                raise
            job = store.jobs.cancel(job.job_id, actor=services.actor(), reason="Ctrl-C", now=services.now())
            say(f"job {job.job_id} is being cancelled; Ctrl-C again does not wait", style="dim", to_stderr=True)
            with suppress(JobError):
                reply = question.reply(awaited(store, job, hint=hint))
            if reply.answer is None:
                raise
        if reply.answer is None:
            raise reply.problem or JobError(f"job {job.job_id} has no answer")
    return reply.answer


def done_on_host(store: "ControlStore", wanted: JobRequest) -> Job:
    """The job of this request, once it is done; raises `JobError` where it could not be, or no host is there."""
    require_host(store)
    job = awaited(store, store.jobs.submit(wanted, now=services.now()), hint="`weir jobs` says when it is done")
    if job.state is not JobState.DONE:
        reason = f"{wanted.subject}: the {wanted.kind} ended: {job.error or job.state.value.lower()}"
        raise JobError(reason, hint=job.hint)
    return job


_SHAPES: Shapes = {
    Job: shaped(
        without=("fingerprint", "request", "time_limit_s", "progress", "result_uri", "answer"),
        empty_is_null=("error", "hint", "phase"),
        phase="progress.phase",
        tasks="progress",
    ),
    JobProgress: shaped(without=("phase",)),
}


def jobs(as_json: AsJson = False) -> None:
    store = services.existing_store()
    newest = store.jobs.newest(_SHOWN) if store else []
    if as_json:
        print_json(newest, _SHAPES)
        return
    if not newest or store is None:
        say("No jobs: nobody has asked a stream host for one yet (`weir diff … --on host`).")
        return
    hosts = store.hosts(now=services.now())
    print_list(job_columns(hosts, services.now()), newest)


def cancel(
    job: Annotated[str, typer.Argument(help="A job of `weir jobs`.")], reason: Reason, as_json: AsJson = False
) -> None:
    """Write the wish; one that is over stays as it is."""
    asked = required_store().jobs.cancel(job, actor=services.actor(), reason=reason, now=services.now())
    if as_json:
        print_json(asked, _SHAPES)
    elif asked.state.is_over:
        say(f"{job}: {asked.state.value}")
    else:
        say(f"{job}: its host was asked to end it. `weir jobs` shows when it is so.")


def job_columns(hosts: Sequence[HostHeartbeat], now: datetime) -> list[Column[Job]]:
    """What was asked for, and what became of it."""
    stale_s = services.settings().host.heartbeat_stale_s

    def what(job: Job) -> str:
        if not job.state.is_over:
            return job_words(job, now=now, is_orphan=is_orphan(job, hosts, now=now, stale_s=stale_s))
        return job.error if job.state is JobState.FAILED else job.reason

    return [
        Column("Job", lambda job: job.job_id, key="job_id"),
        Column("Kind", lambda job: job.kind.value, key="kind"),
        Column("Of", lambda job: job.subject, key="subject"),
        Column("State", lambda job: job.state.value, key="state"),
        Column("Asked for", lambda job: age_s(job.requested_at, now), "ago"),
        Column("By", lambda job: job.actor, key="actor"),
        Column("What", what),
    ]
