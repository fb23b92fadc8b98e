"""Every declared stream as pages and the CLI show it.

Rule: reads the store, computes the rest; nothing shown here is remembered.
"""

from datetime import datetime

from backend.store.store import ControlStore
from backend.streams.model import HostHeartbeat, Observed, StreamStatus
from backend.streams.verdict import Evidence, judge

RECENT = 10


def statuses(store: ControlStore, *, now: datetime, heartbeat_stale_s: float) -> list[StreamStatus]:
    """One per declared stream, by name; raises `StoreError`."""
    desired, observed = store.desired(), store.observed()
    hosts = {host.host_id: host for host in store.hosts()}
    found = []
    for name, declaration in store.declarations().items():
        seen = observed.get(name)
        recent = store.progress(name, limit=RECENT)
        evidence = Evidence(declaration, desired.get(name), seen, _host_of(seen, hosts), recent)
        found.append(_status(evidence, now, heartbeat_stale_s))
    return found


def _status(evidence: Evidence, now: datetime, heartbeat_stale_s: float) -> StreamStatus:
    judgement = judge(evidence, now=now, heartbeat_stale_s=heartbeat_stale_s)
    return StreamStatus(
        declaration=evidence.declaration,
        desired=evidence.desired,
        observed=evidence.observed,
        state=judgement.state,
        progress=evidence.recent[-1] if evidence.recent else None,
        verdict=judgement.verdict,
        because=judgement.because,
    )


def _host_of(observed: Observed | None, hosts: dict[str, HostHeartbeat]) -> HostHeartbeat | None:
    return hosts.get(observed.host_id) if observed else None
