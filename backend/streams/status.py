"""Every declared stream as pages and the CLI show it, and its recent batches.

Rule: reads the store and the sources, computes the rest. What is kept between readings is read anew where it changed:
one statement tells where, and one reads that.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from threading import Lock
from typing import Generic, Protocol, TypeVar

from backend.store.store import ControlStore
from backend.stream_model.backlog import Backlog
from backend.stream_model.overrides import compare, with_overrides
from backend.stream_model.stream import Progress, StreamDeclaration, TopicEnds
from backend.streams.graph import WINDOW, reads_several, with_causes
from backend.streams.reconcile import NO_STREAMS, why_nobody_can
from backend.streams.verdict import StreamStatus, judged

RECENT = 10  # batches
SEEN_BY_HOST = timedelta(minutes=1)  # a host with a thousand streams needs a third of it for a round
MOST_BATCHES = 5_000  # of one stream in the graph's window: one each 60 ms

Value = TypeVar("Value")


class ByStream(Generic[Value]):
    """A value of each stream. `marks`: what tells a stream's value from its next one. Several threads may read."""

    def __init__(
        self,
        marks: Callable[[ControlStore], Mapping[str, object]],
        read: Callable[[ControlStore, Collection[str]], Mapping[str, Value]],
    ) -> None:
        self._marks, self._read = marks, read
        self._lock = Lock()
        self._known: Mapping[str, object] = {}
        self._values: dict[str, Value] = {}

    def read(self, store: ControlStore) -> Mapping[str, Value]:
        with self._lock:
            marks = self._marks(store)
            changed = [name for name, mark in marks.items() if self._known.get(name) != mark]
            values = {**self._values, **(self._read(store, changed) if changed else {})}
            self._known, self._values = marks, {name: values[name] for name in marks if name in values}
            return self._values


class Newest:
    """For one process. `batches`: the newest `RECENT` of each stream, of which only the newest has what takes long to
    read (`ControlStore.recent`)."""

    def __init__(self) -> None:
        self.batches = ByStream[list[Progress]](
            ControlStore.newest_batches, lambda store, names: store.recent(names, limit=RECENT)
        )
        self.backlogs = ByStream[Backlog](ControlStore.backlogs_seen_at, ControlStore.backlogs)


# statuses ------------------------------------------------------------------------------------------------------------


class Backlogs(Protocol):
    """The part of `backend.streams.backlog.BacklogReader` that a status needs."""

    def read(
        self,
        declared: StreamDeclaration,
        recent: Sequence[Progress],
        topics: Sequence[TopicEnds] = (),
        *,
        now: datetime,
    ) -> Backlog: ...


def statuses(
    store: ControlStore,
    backlogs: Backlogs | None = None,
    *,
    now: datetime,
    heartbeat_stale_s: float,
    newest: Newest | None = None,
) -> list[StreamStatus]:
    """One per declared stream, by name, in as many statements for one as for all; raises `StoreError`. Without
    `backlogs` nobody looks at the sources. `newest` keeps what has not changed until the next call."""
    desired, observed, newest = store.desired(), store.observed(), newest or Newest()
    hosts = {host.host_id: host for host in store.hosts()} | {key: app.host for key, app in store.apps().items()}
    alive = [host for host in hosts.values() if host.silent_s(now) <= heartbeat_stale_s]
    running = Counter(seen.host_id for seen in observed.values() if not seen.state.has_ended)
    recent, gathered = newest.batches.read(store), list[StreamStatus]()
    for name, declared in store.declarations().items():
        seen, wanted = observed.get(name), desired.get(name)
        overrides = wanted.overrides if wanted else {}
        declaration = with_overrides(declared, overrides)
        host = hosts.get(seen.host_id) if seen else None
        is_held = host in alive and seen is not None and not seen.state.has_ended
        nobody_can = why_nobody_can(declaration, alive, NO_STREAMS if is_held else running)
        gathered.append(
            StreamStatus(
                declaration,
                wanted,
                seen,
                recent=recent.get(name, ()),
                host=host,
                nobody_can=nobody_can,
                overrides=compare(declared, overrides, overrides) if overrides else (),
            )
        )
    if backlogs is not None:
        waits = _waiting(store, backlogs, gathered, newest.backlogs.read(store), now=now)
        gathered = [replace(of_stream, backlog=waits[of_stream.declaration.name]) for of_stream in gathered]
    return with_causes([judged(each, now=now, heartbeat_stale_s=heartbeat_stale_s) for each in gathered], now=now)


def _waiting(
    store: ControlStore,
    backlogs: Backlogs,
    gathered: Sequence[StreamStatus],
    seen_by_hosts: Mapping[str, Backlog],
    *,
    now: datetime,
) -> dict[str, Backlog]:
    """What waits for each stream as a host saw it; where that tells nothing of now, it is looked at here."""
    waits = dict(seen_by_hosts)
    left = [of.declaration for of in gathered if not _tells_of_now(seen_by_hosts.get(of.declaration.name), of, now)]
    if left:
        topics, recent = store.topic_ends(), store.recent([each.name for each in left], limit=RECENT, raw=True)
        for declared in left:
            name = declared.name
            waits[name] = backlogs.read(declared, recent.get(name, ()), topics.get(name, ()), now=now)
    return waits


def _tells_of_now(backlog: Backlog | None, status: StreamStatus, now: datetime) -> bool:
    """Whether a look is young, and nothing has ended since: neither a run, nor the batch after which there was nothing
    to read."""
    seen, last = status.observed, status.progress
    if backlog is None or seen is None or now - backlog.seen_at > SEEN_BY_HOST or backlog.seen_at < seen.observed_at:
        return False
    is_idle = last is not None and seen.last_trigger_at is not None and seen.last_trigger_at > last.ended_at
    return not is_idle or (last is not None and backlog.seen_at >= last.ended_at)


def query_names(streams: Iterable[StreamStatus]) -> dict[str, str]:
    """The stream of each query id that hosts last saw: a streaming commit carries no other sign of its stream."""
    seen = ((stream.observed.query_id, stream.declaration.name) for stream in streams if stream.observed)
    return {query_id: name for query_id, name in seen if query_id}


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
