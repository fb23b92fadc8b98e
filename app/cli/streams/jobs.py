"""`weir jobs|cancel`: what stream hosts were asked to compute, what became of it, and an end to it.

Rule: as for streams: an act is the wish of a named person with a reason; a store that does not exist is not made.
"""

from app import services
from app.cli.output import print_json, print_table, say, shaped
from app.cli.store import required_store
from app.ui.view.words import job_words
from backend.format import ago
from backend.jobs.model import Job, JobProgress, JobState, is_orphan
from backend.stream_model.stream import HostHeartbeat

_SHOWN = 50
_SHAPES = {
    Job: shaped(
        without=("fingerprint", "request", "time_limit_s", "progress", "result_uri", "answer"),
        empty_is_null=("error", "hint", "phase"),
        phase="progress.phase",
        tasks="progress",
    ),
    JobProgress: shaped(without=("phase",)),
}


def everything(*, as_json: bool) -> int:
    """The newest jobs."""
    store = services.existing_store()
    jobs = store.jobs.newest(_SHOWN) if store else []
    if as_json:
        print_json(jobs, _SHAPES)
        return 0
    if not jobs or store is None:
        say("No jobs: nobody has asked a stream host to compute anything (`weir diff … --on host`).")
        return 0
    hosts = store.hosts(now=services.now())
    print_table(
        ("job", "kind", "of", "state", "asked for", "by", "what"),
        (_row(job, hosts) for job in jobs),
    )
    return 0


def cancel(job_id: str, reason: str, *, as_json: bool) -> int:
    """Write the wish; one that is over stays as it is."""
    job = required_store().jobs.cancel(job_id, actor=services.actor(), reason=reason, now=services.now())
    if as_json:
        print_json(job, _SHAPES)
    elif job.state.is_over:
        say(f"{job_id}: {job.state.value}")
    else:
        say(f"{job_id}: its host was asked to end it. `weir jobs` shows when it is so.")
    return 0


def _row(job: Job, hosts: list[HostHeartbeat]) -> tuple[str, ...]:
    now, stale_s = services.now(), services.settings().host.heartbeat_stale_s
    what = job.error if job.state is JobState.FAILED else job.reason
    if not job.state.is_over:
        what = job_words(job, now=now, is_orphan=is_orphan(job, hosts, now=now, stale_s=stale_s))
    return (job.job_id, job.kind.value, job.subject, job.state.value, ago(job.requested_at, now), job.actor, what)
