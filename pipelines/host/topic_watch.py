"""Asks brokers what the topics of the declared streams hold, whether the streams run or not.

Rule: a thread of its own, so that a silent broker holds up no stream; its answers are kept in the store for everybody.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

import structlog
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from backend.errors import LakehouseError
from backend.lake.storage.storage import declared_folder
from backend.settings import Settings
from backend.store.store import ControlStore
from backend.stream_model.stream import TopicEnds
from backend.streams.checkpoint import KafkaPosition, read_checkpoint, read_positions
from backend.streams.unread import places
from pipelines.host.rounds import Rounds
from pipelines.jvm.failures import describe
from pipelines.jvm.kafka import PATIENCE, KafkaClient, Offsets, Place
from pipelines.sources.kafka import KafkaSource, by_topic
from pipelines.specs.streams import Registry

EVERY_S = 10.0
POLL_S = 0.5
MOST_TIMES = 16  # partitions whose oldest unread record is looked up in one round

log = structlog.get_logger()
Clock = Callable[[], datetime]


class TopicWatch:
    """`rounds` begin once Spark is open; their stop waits at most for one answer."""

    def __init__(
        self,
        settings: Settings,
        store: ControlStore,
        registry: Registry,
        session: Callable[[], SparkSession],
        clock: Clock,
    ) -> None:
        self._settings, self._store, self._registry = settings, store, registry
        self._session, self._clock = session, clock
        self.rounds = Rounds("topic-watch", self._ask_all, every_s=EVERY_S, failed="topics_not_noted")

    def _ask_all(self) -> None:
        for stream, source in self._sources():
            if self.rounds.is_stopping:
                return
            try:
                self._store.note_ends(self.ask(stream, source))
            except LakehouseError as exc:
                log.warning("topics_not_noted", stream=stream, error=exc.message)

    def _sources(self) -> Iterator[tuple[str, KafkaSource]]:
        for stream in self._registry.streams:
            for source in self._registry.behind_views(stream.sources):
                if isinstance(source, KafkaSource):
                    yield stream.name, source

    def ask(self, stream: str, source: KafkaSource) -> TopicEnds:
        """What the broker holds now; an answer with its `problem` where it gives none."""
        name, at = source.describe(), self._clock()
        try:
            with KafkaClient(self._session(), {**source.client(), **PATIENCE, "max.poll.records": "1"}) as broker:
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
        location = self._registry.get(stream).checkpoint_location(self._settings)
        try:
            folder = declared_folder(self._settings, location)
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
