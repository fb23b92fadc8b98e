"""`weir jobs|cancel`: what stream hosts were asked to compute, what became of it, and an end to it.

Rule: as for streams: an act is the wish of a named person with a reason; a store that does not exist is not made.
"""

import time
from typing import TYPE_CHECKING

from app.cli.output import now, print_json, print_table, say
from app.cli.streams import documents
from app.cli.streams.listing import actor, control_store, required_store
from app.cli.tables.lake import services
from app.ui.view.jobs import job_words
from backend.errors import JobError
from backend.format import ago
from backend.jobs.host_liveness import is_orphan, why_no_host
from backend.jobs.model import Job, JobState
from backend.settings import Settings
from backend.stream_model.stream import HostHeartbeat

if TYPE_CHECKING:
    from backend.store.store import ControlStore

_SHOWN = 50
_POLL_S = 0.25
_PATIENCE_S = 60.0  # a host that died is started again
START = "start one with `weir host`"


def everything(*, as_json: bool) -> int:
    """The newest jobs."""
    settings, _ = services()
    jobs, hosts = _known(settings)
    if as_json:
        print_json([documents.job(job) for job in jobs])
        return 0
    if not jobs:
        say("No jobs: nobody has asked a stream host to compute anything (`weir diff … --on host`).")
        return 0
    print_table(
        ("job", "kind", "of", "state", "asked for", "by", "what"),
        (_row(job, hosts, settings) for job in jobs),
    )
    return 0


def cancel(job_id: str, reason: str, *, as_json: bool) -> int:
    """Write the wish; one that is over stays as it is."""
    settings, _ = services()
    with required_store(settings) as store:
        job = store.jobs.cancel(job_id, actor=actor(), reason=reason, now=now())
    if as_json:
        print_json(documents.job(job))
    elif job.state.is_over:
        say(f"{job_id}: {job.state.value}")
    else:
        say(f"{job_id}: its host was asked to end it. `weir jobs` shows when it is so.")
    return 0


def require_host(store: "ControlStore", settings: Settings) -> None:
    """Raise `JobError` where no host is alive."""
    clock = now()
    why = why_no_host(store.hosts(now=clock), now=clock, stale_s=settings.host.heartbeat_stale_s)
    if why is not None:
        raise JobError(why, hint=START)


def awaited(store: "ControlStore", settings: Settings, job: Job, *, hint: str) -> Job:
    """The job once it is over, however it ended; says how far it is, and raises `JobError` when no host is left."""
    said, stale_s = "", settings.host.heartbeat_stale_s
    while not job.state.is_over:
        clock = now()
        hosts = store.hosts(now=clock)
        if (why := why_no_host(hosts, now=clock, stale_s=stale_s + _PATIENCE_S)) is not None:
            raise JobError(f"job {job.job_id} waits: {why}", hint=hint)
        words = job_words(job, now=clock, is_orphan=is_orphan(job, hosts, now=clock, stale_s=stale_s))
        if (key := words.rpartition(" · ")[0]) != said:
            say(words, style="dim", to_stderr=True)
            said = key
        time.sleep(_POLL_S)
        job = store.jobs.get(job.job_id) or job
    return job


def _known(settings: Settings) -> tuple[list[Job], list[HostHeartbeat]]:
    with control_store(settings) as store:
        return ([], []) if store is None else (store.jobs.newest(_SHOWN), store.hosts(now=now()))


def _row(job: Job, hosts: list[HostHeartbeat], settings: Settings) -> tuple[str, ...]:
    what = job.error if job.state is JobState.FAILED else job.reason
    if not job.state.is_over:
        lost = is_orphan(job, hosts, now=now(), stale_s=settings.host.heartbeat_stale_s)
        what = job_words(job, now=now(), is_orphan=lost)
    return (
        job.job_id,
        job.kind.value,
        job.subject,
        job.state.value,
        ago(job.requested_at, now()),
        job.actor,
        what,
    )
