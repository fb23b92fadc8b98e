"""Whether somebody is there to do a job, judged from heartbeats.

Rule: pure; the clock is a parameter.
"""

from collections.abc import Iterable
from datetime import datetime

from backend.format import ago, utc_text
from backend.jobs.model import Job, JobState
from backend.stream_model.stream import HostHeartbeat


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
