"""Every declared stream as pages and the CLI show it, and its recent batches.

Rule: reads the store and the sources, computes the rest; nothing shown here is remembered.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from threading import Lock
from typing import Protocol

from backend.store.store import ControlStore
from backend.stream_model.backlog import Backlog
from backend.stream_model.overrides import compare, with_overrides
from backend.stream_model.stream import Progress, StreamDeclaration, TopicEnds
from backend.streams.balance import NO_STREAMS, why_nobody_can
from backend.streams.graph import WINDOW, reads_several, with_causes
from backend.streams.verdict import StreamEvidence, StreamStatus, judge

RECENT = 10
MOST_BATCHES = 5_000  # of one stream in the graph's window: one each 60 ms


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
    evidence = gather_evidence(store, backlogs, now=now, heartbeat_stale_s=heartbeat_stale_s)
    return with_causes([_status(of_stream, now, heartbeat_stale_s) for of_stream in evidence], now=now)


def gather_evidence(
    store: ControlStore, backlogs: Backlogs | None = None, *, now: datetime, heartbeat_stale_s: float
) -> list[StreamEvidence]:
    """What is known of each declared stream, by name; raises `StoreError`."""
    desired, observed = store.desired(), store.observed()
    hosts = {host.host_id: host for host in store.hosts()} | {key: app.host for key, app in store.apps().items()}
    alive = [host for host in hosts.values() if host.silent_s(now) <= heartbeat_stale_s]
    topics = store.topic_ends()
    running = Counter(seen.host_id for seen in observed.values() if not seen.state.has_ended)
    evidence = []
    for name, declared in store.declarations().items():
        seen = observed.get(name)
        wanted = desired.get(name)
        overrides = wanted.overrides if wanted else {}
        settings = compare(declared, overrides, overrides)
        declaration = with_overrides(declared, overrides)
        recent = store.progress(name, limit=RECENT)
        backlog = backlogs.read(declaration, recent, topics.get(name, ()), now=now) if backlogs else None
        host = hosts.get(seen.host_id) if seen else None
        is_held = host in alive and seen is not None and not seen.state.has_ended
        nobody_can = why_nobody_can(declaration, alive, NO_STREAMS if is_held else running)
        evidence.append(StreamEvidence(declaration, wanted, seen, host, recent, backlog, nobody_can, settings))
    return evidence


def query_names(streams: Iterable[StreamStatus]) -> dict[str, str]:
    """The stream of each query id that hosts last saw: a streaming commit carries no other sign of its stream."""
    seen = ((stream.observed.query_id, stream.declaration.name) for stream in streams if stream.observed)
    return {query_id: name for query_id, name in seen if query_id}


def _status(evidence: StreamEvidence, now: datetime, heartbeat_stale_s: float) -> StreamStatus:
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
        overrides=evidence.overrides,
        rows_dropped_by_watermark=evidence.rows_dropped_by_watermark,
    )


class RecentBatches:
    """Each stream's batches of the graph's window, kept between readings: one asks the store only for what is new.

    For one process; several threads may read."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._batches: dict[str, list[Progress]] = {}

    def read(
        self, store: ControlStore, declared: Iterable[StreamDeclaration], *, now: datetime
    ) -> dict[str, list[Progress]]:
        """By stream, oldest first; with Spark's JSON only where rows come from several sources."""
        with self._lock:
            self._batches = {stream.name: self._of(store, stream, now) for stream in declared}
            return self._batches

    def _of(self, store: ControlStore, declared: StreamDeclaration, now: datetime) -> list[Progress]:
        batches = [batch for batch in self._batches.get(declared.name, ()) if batch.progressed_at > now - WINDOW]
        since = batches[-1].progressed_at if batches else now - WINDOW
        newer = store.progress(declared.name, since=since, limit=MOST_BATCHES, raw=reads_several(declared))
        return batches + [batch for batch in newer if batch.progressed_at > since]
