"""How long data takes from where it lands to each layer's tables.

A table is *complete until* a moment when all that landed before it, in the sources at the start of its chain, is in it.
Its latency is the age of that moment; a layer's is that of its last table.

Rule: nothing is sampled; it follows from the offsets of batches and the times in logs and folders. Unknown is None.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from backend.format import age_s
from backend.store.store import ControlStore
from backend.stream_model.stream import Progress
from backend.streams.backlog import BacklogReader, Trail
from backend.streams.graph import in_graph_order
from backend.streams.verdict import StreamStatus

WINDOW = timedelta(minutes=30)
POINTS = 180  # of the window: one each 10 s
MOST_BATCHES = 180  # of one stream; of more, every second, third …


@dataclass(frozen=True, slots=True)
class Trails:
    """Those of all streams by name, as they were `read_at`. `writers`: the streams that write a table, by its URI."""

    of: Mapping[str, Sequence[Trail]]
    writers: Mapping[str, Sequence[str]]
    read_at: datetime

    def horizon(self, stream: str, at: datetime, *, below: frozenset[str] = frozenset()) -> datetime | None:
        """All that had landed before this moment was in the stream's table at `at`, through every stream above it.

        `below`: streams that were passed on the way up, so that a circle of foreign streams ends.
        """
        return least_known(self._through(trail, at, below | {stream}) for trail in self.of.get(stream, ()))

    def _through(self, trail: Trail, at: datetime, below: frozenset[str]) -> datetime | None:
        read = trail.until(at)
        writers = self.writers.get(trail.source.uri, ()) if trail.source.is_table else ()
        if read is None or not writers:
            return read
        if below & set(writers):
            return None
        return least_known(self.horizon(writer, read, below=below) for writer in writers)


def least_known(moments: Iterable[datetime | None]) -> datetime | None:
    """The earliest; None as soon as one is not known, or where there is none."""
    every = list(moments)
    known = [moment for moment in every if moment is not None]
    return min(known) if known and len(known) == len(every) else None


@dataclass(frozen=True, slots=True)
class LayerLatency:
    """`slowest`: the stream whose table is complete until the earliest moment, `complete_until`; both None while one is
    not known, which `unknown` names. `past`: latency in seconds over the window, oldest first."""

    layer: str
    slowest: str | None
    complete_until: datetime | None
    unknown: tuple[str, ...]
    past: tuple[tuple[datetime, float | None], ...]
    now: datetime

    @property
    def seconds(self) -> float | None:
        return age_s(self.complete_until, self.now)


def read_trails(
    store: ControlStore, backlogs: BacklogReader, statuses: Sequence[StreamStatus], *, now: datetime
) -> Trails:
    """How far all streams have read; raises `StoreError`."""
    topics, of = store.topic_ends(), dict[str, Sequence[Trail]]()
    for status in statuses:
        name, batches = status.declaration.name, _batches(store, status, now)
        of[name] = backlogs.look(status.declaration, batches, topics.get(name, ()), now=now).trails()
    writers: dict[str, list[str]] = {}
    for status in statuses:
        for output in status.declaration.outputs:
            writers.setdefault(output.uri, []).append(status.declaration.name)
    return Trails(of, writers, now)


def layer_latencies(statuses: Sequence[StreamStatus], trails: Trails) -> list[LayerLatency]:
    """One for each layer of these streams, in the order of the graph, as it was when `trails` of all were read."""
    layers: dict[str, list[str]] = {}
    for status in in_graph_order(statuses, now=trails.read_at):
        if status.declaration.layer:
            layers.setdefault(status.declaration.layer, []).append(status.declaration.name)
    return [_of_layer(layer, streams, trails) for layer, streams in layers.items()]


def pipeline_latencies(statuses: Sequence[StreamStatus], trails: Trails) -> list[tuple[str, LayerLatency]]:
    """Those of each pipeline, by its name, in the order of the graph."""
    of: dict[str, list[StreamStatus]] = {}
    for status in statuses:
        of.setdefault(status.declaration.pipeline, []).append(status)
    return [(pipeline, layer) for pipeline, some in of.items() for layer in layer_latencies(some, trails)]


def _of_layer(layer: str, streams: Sequence[str], trails: Trails) -> LayerLatency:
    now = trails.read_at
    reached = {name: trails.horizon(name, now) for name in streams}
    complete = {name: until for name, until in reached.items() if until is not None}
    unknown = tuple(name for name in streams if name not in complete)
    slowest = None if unknown else min(complete, key=lambda name: complete[name])
    times = [now - WINDOW + WINDOW * step / POINTS for step in range(POINTS + 1)]
    past = tuple((at, age_s(least_known(trails.horizon(name, at) for name in streams), at)) for at in times)
    return LayerLatency(layer, slowest, complete[slowest] if slowest else None, unknown, past, now)


def _batches(store: ControlStore, status: StreamStatus, now: datetime) -> list[Progress]:
    """Those of the window, thinned out, and the newest."""
    declared, newest = status.declaration, status.progress
    triggers = WINDOW / timedelta(milliseconds=max(declared.trigger_interval_ms, 1_000))
    every = int(triggers // MOST_BATCHES) + 1
    batches = store.progress(declared.name, since=now - 2 * WINDOW, limit=2 * MOST_BATCHES, every=every)
    if newest is not None and (not batches or batches[-1].batch_id < newest.batch_id):
        batches.append(newest)
    return batches
