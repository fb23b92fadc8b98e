"""Every declared stream as pages and the CLI show it.

Rule: reads the store and the sources, computes the rest; nothing shown here is remembered.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from backend.store.store import ControlStore
from backend.streams.backlog.model import Backlog
from backend.streams.causes import with_causes
from backend.streams.model import HostHeartbeat, Observed, Progress, StreamDeclaration, StreamStatus, TopicEnds
from backend.streams.verdict import Evidence, judge

RECENT = 10


class Backlogs(Protocol):
    """The part of `backend.streams.backlog.reader.BacklogReader` that a status needs."""

    def read(
        self,
        declared: StreamDeclaration,
        recent: Sequence[Progress],
        topics: Sequence[TopicEnds] = (),
        *,
        now: datetime,
    ) -> Backlog: ...


def statuses(
    store: ControlStore, backlogs: Backlogs | None = None, *, now: datetime, heartbeat_stale_s: float
) -> list[StreamStatus]:
    """One per declared stream, by name; raises `StoreError`. Without `backlogs` nobody looks at the sources."""
    desired, observed = store.desired(), store.observed()
    hosts = {host.host_id: host for host in store.hosts()} | {key: app.host for key, app in store.apps().items()}
    topics = store.topic_ends()
    found = []
    for name, declaration in store.declarations().items():
        seen = observed.get(name)
        recent = store.progress(name, limit=RECENT)
        backlog = backlogs.read(declaration, recent, topics.get(name, ()), now=now) if backlogs else None
        evidence = Evidence(declaration, desired.get(name), seen, _host_of(seen, hosts), recent, backlog)
        found.append(_status(evidence, now, heartbeat_stale_s))
    return with_causes(found, now=now)


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
        backlog=evidence.backlog,
    )


def _host_of(observed: Observed | None, hosts: dict[str, HostHeartbeat]) -> HostHeartbeat | None:
    return hosts.get(observed.host_id) if observed else None
