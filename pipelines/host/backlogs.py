"""How far the streams of a host have read: backlogs kept for every page, drains that have ended, ends of topics.

Rule: only hosts can ask brokers and must ask them whether streams run or not; what nobody knows is never "read". A
stream that another host owns is that host's.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from time import monotonic

import structlog
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from backend.errors import LakehouseError
from backend.lake.lake import Lake
from backend.lake.storage.storage import declared_folder
from backend.settings import Settings
from backend.store.store import ControlStore
from backend.stream_model.overrides import with_overrides
from backend.stream_model.stream import Desired, DesiredState, Observed, StreamDeclaration, TopicEnds
from backend.streams.backlog import BacklogReader
from backend.streams.checkpoint import KafkaPosition, read_checkpoint, read_positions
from backend.streams.status import RECENT
from backend.streams.unread import places
from pipelines.host.ownership import wanted_of
from pipelines.host.periodic import Rounds
from pipelines.host.stream_host import utc_now
from pipelines.jvm.failures import describe
from pipelines.jvm.kafka import PATIENCE, KafkaClient, Offsets, Place
from pipelines.sources.kafka import KafkaSource, by_topic
from pipelines.specs.streams import Registry

AT_ONCE = 20  # streams, in one statement each way
REST = 3  # times what a piece took: a quarter of the time is worked at most
POLL_S = 0.5
MOST_TIMES = 16  # partitions whose oldest unread record is looked up in one round

log = structlog.get_logger()
Clock = Callable[[], datetime]


def keep_backlogs(
    backlogs: BacklogReader, store: ControlStore, owned: Iterable[StreamDeclaration], clock: Clock, rounds: Rounds
) -> None:
    """What waits for each stream of this host, kept in the store so that no page has to look; raises `StoreError`."""
    left = iter(sorted(owned, key=lambda declared: declared.name))
    while piece := list(islice(left, AT_ONCE)):
        began = monotonic()
        desired, topics = store.desired(), store.topic_ends()
        recent, seen = store.recent([each.name for each in piece], limit=RECENT, raw=True), {}
        for declared in piece:
            name = declared.name
            runs_as = with_overrides(declared, desired[name].overrides if name in desired else {})
            seen[name] = backlogs.read(runs_as, recent.get(name, ()), topics.get(name, ()), now=clock())
        store.note_backlogs(seen)
        if rounds.pause(REST * (monotonic() - began)):
            return


class DrainWatch:
    """How far the streams have read that are to stop once they have read what was there (`weir drain`).

    `idle_at`: when a stream's newest trigger began that had nothing to read, as Spark reports it.
    """

    def __init__(
        self,
        settings: Settings,
        lake: Lake,
        store: ControlStore,
        idle_at: Callable[[str], datetime | None],
        clock: Clock,
    ) -> None:
        self._store, self._idle_at, self._clock = store, idle_at, clock
        self._desired = wanted_of(store, ttl_s=settings.host.lease_ttl_s)
        self._backlogs = BacklogReader(settings, lake, keep_s=0)
        self._marks: dict[tuple[str, str, datetime], TopicEnds] = {}
        self._read: dict[str, datetime | None] = {}

    def read_until(self, name: str) -> datetime | None:
        """What the stream's sources took in before this moment has been read; None where nobody knows."""
        return self._read.get(name)

    def look(self) -> None:
        """One round over the streams that drain; raises `StoreError`."""
        wanted = {name: desired for name, desired in self._desired().items() if desired.drains}
        self._marks = {key: ends for key, ends in self._marks.items() if key[0] in wanted}
        if not wanted:
            return
        declared, topics = self._store.declarations(), self._store.topic_ends()
        read = {
            name: self._until(wanted[name], declared[name], topics.get(name, ()))
            for name in wanted.keys() & declared.keys()
        }
        self._read = _through(read, wanted, declared, self._store.observed())

    def _until(self, wanted: Desired, declared: StreamDeclaration, reported: Sequence[TopicEnds]) -> datetime | None:
        # What counts is the ends that the broker first reported after the request: a topic that goes on growing has
        # newer ones. Before that, what it reported last.
        keys = {(wanted.name, ends.source, wanted.requested_at): ends for ends in reported}
        for key, ends in keys.items():
            if ends.at > wanted.requested_at and not ends.problem:
                self._marks.setdefault(key, ends)
        marked = [self._marks.get(key, ends) for key, ends in keys.items()]
        waits = self._backlogs.read(declared, (), marked, now=self._clock())
        if waits.read_until is None and waits.is_caught_up is None:
            idle_at = self._idle_at(wanted.name)  # by this machine's clock; requests are by the store's
            return idle_at and idle_at + (self._clock() - utc_now())
        return waits.read_until  # also where Spark is idle: it leaves records to wait (`minOffsetsPerTrigger`)


def _through(
    read: Mapping[str, datetime | None],
    wanted: Mapping[str, Desired],
    declared: Mapping[str, StreamDeclaration],
    observed: Mapping[str, Observed],
) -> dict[str, datetime | None]:
    """How far each has read, but None of a stream that is to stop after those that feed it, until it has read what came
    before the last of them had stopped."""
    through = {name: declared[name] for name in read if wanted[name].state is DesiredState.DRAINED_THROUGH}
    stopped_at: dict[str, datetime | None] = {}
    for name in through:
        seen = observed.get(name)
        has_stopped = seen is not None and seen.state.has_ended and seen.generation == wanted[name].generation
        stopped_at[name] = seen.observed_at if seen is not None and has_stopped else None
    until = dict(read)
    for name, stream in through.items():
        ends = [stopped_at[other.name] for other in through.values() if other.name != name and _feeds(other, stream)]
        at, last = read[name], max((end for end in ends if end is not None), default=None)
        if None in ends or (at is not None and last is not None and at <= last):
            until[name] = None
    return until


def _feeds(writer: StreamDeclaration, reader: StreamDeclaration) -> bool:
    written = {*writer.side_tables, *(output.table for output in writer.outputs)}
    return not written.isdisjoint(reader.source_tables)


@dataclass(frozen=True, slots=True)
class TopicWatch:
    """Asks brokers what the topics of the declared streams hold, and keeps that in the store for everybody."""

    settings: Settings
    store: ControlStore
    registry: Registry
    session: Callable[[], SparkSession]
    clock: Clock

    def ask_all(self, rounds: Rounds) -> None:
        """One round; a stop waits at most for one answer."""
        for stream in self.registry.streams:
            for source in self.registry.behind_views(stream.sources):
                if rounds.is_stopping:
                    return
                if not isinstance(source, KafkaSource):
                    continue
                try:
                    self.store.note_ends(self.ask(stream.name, source))
                except LakehouseError as exc:
                    log.warning("topics_not_noted", stream=stream.name, error=exc.message)

    def ask(self, stream: str, source: KafkaSource) -> TopicEnds:
        """What the broker holds now; an answer with its `problem` where it gives none."""
        name, at = source.describe(), self.clock()
        try:
            with KafkaClient(self.session(), {**source.client(), **PATIENCE, "max.poll.records": "1"}) as broker:
                return self._ends_of(broker, stream, source, at)
        except LakehouseError as exc:
            return TopicEnds(stream, name, at, problem=exc.message)
        except Py4JError as exc:  # the broker's own errors, through the JVM
            return TopicEnds(stream, name, at, problem=describe(exc)[1])

    def _ends_of(self, broker: KafkaClient, stream: str, source: KafkaSource, at: datetime) -> TopicEnds:
        partitions = broker.partitions(source.topics)
        begun = self._position(stream, set(partitions))  # before the ends: a stream reads on
        firsts, ends = broker.firsts(partitions), broker.ends(partitions)
        starts = _starts(broker, source, partitions, firsts, ends)
        waiting = {place: max(first, (begun or starts).get(place, first)) for place, first in firsts.items()}
        unread = {place: offset for place, offset in waiting.items() if offset < ends[place]}
        times = broker.times(dict(list(unread.items())[:MOST_TIMES]), wait_s=POLL_S)
        return TopicEnds(
            stream,
            source.describe(),
            at,
            firsts=by_topic(firsts),
            ends=by_topic(ends),
            starts=by_topic(starts),
            read=by_topic(begun),
            unread=by_topic({place: (unread[place], time) for place, time in times.items()}),
            retention_ms=broker.retention_ms({topic for topic, _ in partitions}),
        )

    def _position(self, stream: str, partitions: set[Place]) -> Offsets:
        """Where the stream stands in these partitions; empty before its first batch."""
        location = self.registry.get(stream).checkpoint_location(self.settings)
        try:
            folder = declared_folder(self.settings, location)
            positions = read_positions(folder, read_checkpoint(folder).processed_batch).values()
        except LakehouseError:
            return {}  # its own page says why
        read = (position.offsets for position in positions if isinstance(position, KafkaPosition))
        return {place: offset for offsets in read for place, offset in places(offsets) if place in partitions}


def _starts(
    broker: KafkaClient, source: KafkaSource, partitions: Iterable[Place], firsts: Offsets, ends: Offsets
) -> Offsets:
    """Where a first start would begin."""
    match source.starting:
        case "earliest":
            return firsts
        case "latest":
            return ends
        case datetime():
            return broker.at(partitions, source.starting)
    given = source.starting if not isinstance(source.starting, str) else {}
    return {place: given.get(place[0], {}).get(place[1], first) for place, first in firsts.items()}
