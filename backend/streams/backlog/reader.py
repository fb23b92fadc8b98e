"""How far each stream is behind, from its checkpoint and its sources, whether it runs or not.

Rule: never raises for one stream: what cannot be read is unknown, with the reason.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from threading import Lock

from backend.errors import LakehouseError
from backend.lake.history.change_feed import Arrival
from backend.lake.lake import Lake
from backend.lake.storage.folder import Folder
from backend.lake.storage.storage import declared_folder
from backend.settings import Settings
from backend.stream_model.backlog import Backlog, Lag, SourceBacklog
from backend.stream_model.stream import InputKind, Progress, StreamDeclaration, StreamInput, TopicEnds
from backend.streams.backlog.files import files_backlog, read_files
from backend.streams.backlog.kafka import kafka_backlog
from backend.streams.backlog.lags import BatchEnd, batch_end, lags, lags_since
from backend.streams.backlog.positions import (
    DeltaPosition,
    FilesPosition,
    KafkaPosition,
    Position,
    VersionsPosition,
    parse_position,
    read_positions,
)
from backend.streams.backlog.tables import MOST_VERSIONS, is_skipped, table_backlog, view_backlog
from backend.streams.backlog.trail import Trail, topic_trail, trail_of
from backend.streams.checkpoint import read_checkpoint

KEEP_S = 5.0
_OF_KIND: dict[InputKind, type[Position]] = {
    InputKind.TABLE: DeltaPosition,
    InputKind.CHANGE_FEED: DeltaPosition,
    InputKind.FILES: FilesPosition,
    InputKind.KAFKA: KafkaPosition,
}

Placed = tuple[int, Position]  # a position, and its source's number in the checkpoint


class BacklogReader:
    """For one process; several threads may read. What was read is kept for `keep_s`."""

    def __init__(
        self, settings: Settings, lake: Lake, *, keep_s: float = KEEP_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings, self._lake, self._keep_s, self._clock = settings, lake, keep_s, clock
        self._lock = Lock()
        self._known: dict[str, tuple[float, Backlog]] = {}

    def read(
        self,
        declared: StreamDeclaration,
        recent: Sequence[Progress],
        topics: Sequence[TopicEnds] = (),
        *,
        now: datetime,
    ) -> Backlog:
        """What waits for one stream. `recent`: its newest batches, oldest first, with Spark's JSON; `topics`: what a
        host reported of its topics."""
        with self._lock:
            cached = self._known.get(declared.name)
            if cached is None or self._clock() - cached[0] >= self._keep_s:
                ends = [batch_end(batch) for batch in recent]
                cached = self._known[declared.name] = self._clock(), self._look(declared, ends, now, topics)[0]
            return cached[1]

    def from_start(self, declared: StreamDeclaration, topics: Sequence[TopicEnds] = (), *, now: datetime) -> Backlog:
        """What a first start would read: all that its sources hold. Not kept."""
        inputs = [source for source in declared.inputs if source.has_place]
        try:
            folder = declared_folder(self._settings, declared.checkpoint_location)
        except LakehouseError as exc:
            return Backlog(tuple(_unknown(each, exc.message) for each in inputs), now)
        look = _Look(self._lake, self._settings, folder, [], {topic.source: topic for topic in topics}, now)
        return Backlog(tuple(look.source(each, _begins_at(each)) for each in inputs), now)

    def from_batch(
        self, declared: StreamDeclaration, batch: int, topics: Sequence[TopicEnds] = (), *, now: datetime
    ) -> Backlog:
        """What a start behind this batch of its checkpoint would read. Not kept."""
        return self._look(declared, (), now, topics, behind=batch)[0]

    def history(self, declared: StreamDeclaration, batches: Sequence[Progress], *, now: datetime) -> tuple[Lag, ...]:
        """What waited after each of these batches (oldest first, with Spark's JSON), and since the last one until now;
        () where its sources keep no times. Not kept."""
        if not batches:
            return ()
        ends = [batch_end(batch) for batch in batches]
        _, arrivals = self._look(declared, ends, now)
        return (*lags(ends[:-1], arrivals), *lags_since(ends[-1], arrivals, now))

    def trails(
        self,
        declared: StreamDeclaration,
        batches: Sequence[Progress],
        topics: Sequence[TopicEnds] = (),
        *,
        now: datetime,
    ) -> tuple[Trail, ...]:
        """How far each of its sources was read, over these batches (oldest first, with Spark's JSON). Not kept."""
        inputs = [source for source in declared.inputs if source.has_place]
        ends = [batch_end(batch) for batch in batches]
        reported = {topic.source: topic for topic in topics}
        look = _Look(self._lake, self._settings, self._checkpoint(declared), [e.positions for e in ends], reported, now)
        placed = list(enumerate(ends[-1].positions)) if ends else []
        places = matched(inputs, placed, [look.table_id(each) for each in inputs])
        if declared.is_view:
            places = {number: placed[0] for number in range(len(inputs)) if placed}
        trigger = timedelta(milliseconds=declared.trigger_interval_ms)
        return tuple(
            look.trail(each, places[number][0], ends, trigger) if number in places else Trail(each)
            for number, each in enumerate(inputs)
        )

    def _checkpoint(self, declared: StreamDeclaration) -> Folder | None:
        """None where nobody here may read it."""
        try:
            return None if declared.is_attached else declared_folder(self._settings, declared.checkpoint_location)
        except LakehouseError:
            return None

    def _look(
        self,
        declared: StreamDeclaration,
        ends: Sequence[BatchEnd],
        now: datetime,
        topics: Sequence[TopicEnds] = (),
        *,
        behind: int | None = None,
    ) -> tuple[Backlog, Mapping[int, Sequence[Arrival]]]:
        """With what came to each source since the oldest of these batches. `behind`: a batch in place of the newest."""
        inputs = [source for source in declared.inputs if source.has_place]
        folder: Folder | None = None
        has_planned: bool | None = None
        try:
            if declared.is_attached:  # its checkpoint may lie where nobody here may read
                placed = list(enumerate(ends[-1].positions)) if ends else []
                topics = _told_by_spark(inputs, ends)
            else:
                folder = declared_folder(self._settings, declared.checkpoint_location)
                checkpoint = read_checkpoint(folder)
                has_planned = checkpoint.planned[-1:] != checkpoint.finished[-1:]
                batch = checkpoint.processed_batch if behind is None else behind
                placed = list(read_positions(folder, batch).items())
        except LakehouseError as exc:
            unknown = tuple(_unknown(each, exc.message) for each in inputs)
            return Backlog(unknown, now, has_planned=has_planned), {}
        if declared.is_view:
            return Backlog(tuple(self._of_view(inputs, placed)), now, has_planned=has_planned), {}
        reported = {topic.source: topic for topic in topics}
        positions = [end.positions for end in ends]
        look = _Look(self._lake, self._settings, folder, positions, reported, now, declared.is_attached)
        places = matched(inputs, placed, [look.table_id(each) for each in inputs])
        sources = tuple(look.source(each, places.get(number)) for number, each in enumerate(inputs))
        return Backlog(sources, now, lags(ends, look.arrivals), has_planned), look.arrivals

    def _of_view(self, inputs: Sequence[StreamInput], placed: Sequence[Placed]) -> Iterator[SourceBacklog]:
        versions: dict[str, int] = {}
        for _, position in placed:
            versions |= position.versions if isinstance(position, VersionsPosition) else {}
        for source in inputs:
            try:
                yield view_backlog(self._lake, source, versions.get(source.uri))
            except LakehouseError as exc:
                yield _unknown(source, exc.message)


@dataclass(slots=True)
class _Look:
    """One look at the sources of one stream; collects what came to them for the lags of its recent batches."""

    lake: Lake
    settings: Settings
    checkpoint: Folder | None
    recent: Sequence[tuple[Position, ...]]
    reported: Mapping[str, TopicEnds]
    now: datetime
    is_attached: bool = False
    arrivals: dict[int, Sequence[Arrival]] = field(default_factory=dict)

    def table_id(self, source: StreamInput) -> str | None:
        try:
            return self.lake.snapshot(self.lake.find(source.uri)).metadata.id if source.is_table else None
        except LakehouseError:
            return None  # why is said of the source itself

    def source(self, source: StreamInput, placed: Placed | None) -> SourceBacklog:
        place, position = placed or (None, None)
        try:
            match source.kind:
                case InputKind.TABLE | InputKind.CHANGE_FEED:
                    assert position is None or isinstance(position, DeltaPosition)
                    if position is None and self.is_attached:  # its checkpoint may say what is not told here
                        return _unknown(source, "its application has not told yet where it stands")
                    came = self._commits(source, place) if place is not None else None
                    if place is not None and came is not None:
                        self.arrivals[place] = came
                    return table_backlog(self.lake, source, position)
                case InputKind.FILES:
                    assert position is None or isinstance(position, FilesPosition)
                    if self.checkpoint is None:
                        return _unknown(source, "its application alone can read which files it has read")
                    files = read_files(self.settings, source, checkpoint=self.checkpoint, place=place)
                    if place is not None:
                        self.arrivals[place] = files
                    return files_backlog(source, position, files)
                case InputKind.KAFKA:
                    assert position is None or isinstance(position, KafkaPosition)
                    return kafka_backlog(source, position, self.reported.get(source.name), now=self.now)
        except LakehouseError as exc:
            return _unknown(source, exc.message)
        return _unknown(source, f"a source of kind {source.kind} cannot be counted from here")

    def trail(self, source: StreamInput, place: int, ends: Sequence[BatchEnd], trigger: timedelta) -> Trail:
        if source.kind == InputKind.KAFKA:
            return topic_trail(source, place, ends, self.reported.get(source.name), trigger=trigger)
        return trail_of(source, place, ends, self._came(source, place))

    def _came(self, source: StreamInput, place: int) -> Sequence[Arrival] | None:
        """What came over the batches that are looked at; None where nobody can tell."""
        try:
            if source.is_table:
                return self._commits(source, place)
            if source.kind == InputKind.FILES and self.checkpoint is not None:
                return read_files(self.settings, source, checkpoint=self.checkpoint, place=place)
        except LakehouseError:
            return None
        return None

    def _commits(self, source: StreamInput, place: int) -> list[Arrival] | None:
        """Those of a table since the oldest of the recent batches; None where they are too many or it is not known."""
        ends = [batch[place] for batch in self.recent if len(batch) > place]
        first = min((version for end in ends if (version := _version(end, source)) is not None), default=None)
        ref = self.lake.find(source.uri)
        latest = self.lake.latest_version(ref)
        if first is None or latest - first >= MOST_VERSIONS:
            return None
        arrivals = self.lake.arrivals(ref, first, latest, feed=source.kind == InputKind.CHANGE_FEED)
        return [arrival for arrival in arrivals if not is_skipped(arrival, source)]


def _version(position: Position, source: StreamInput) -> int | None:
    match position:
        case DeltaPosition():
            return position.version
        case VersionsPosition():
            return position.versions.get(source.uri)
    return None


def _begins_at(source: StreamInput) -> Placed | None:
    """Where a first start begins in topics, where its options say offsets."""
    position = parse_position(source.options.get("startingOffsets", ""))
    return (0, position) if isinstance(position, KafkaPosition) else None


def _told_by_spark(inputs: Sequence[StreamInput], ends: Sequence[BatchEnd]) -> list[TopicEnds]:
    """What the last batch says of its topics' ends, where no host asks the broker."""
    reported = []
    for last in ends[-1:]:
        for source, position, place in zip(inputs, last.positions, count(), strict=False):
            if isinstance(position, KafkaPosition) and place in last.latest:
                here = position.offsets
                reported.append(TopicEnds("", source.name, last.at, here, last.latest[place].offsets, here))
    return reported


def _unknown(source: StreamInput, why: str) -> SourceBacklog:
    return SourceBacklog(source.name, source.kind, unknown=why)


def matched(
    inputs: Sequence[StreamInput], placed: Sequence[Placed], table_ids: Sequence[str | None]
) -> Mapping[int, Placed]:
    """Positions by the input's number: tables by their id, since Spark's plan orders the sources, what is left in the
    order of both."""
    left, matches = list(placed), dict[int, Placed]()
    for number, table_id in enumerate(table_ids):
        _take(
            left,
            matches,
            number,
            [pair for pair in left if table_id and _table_of(pair) == table_id],
        )
    for number, source in enumerate(inputs):
        kind = _OF_KIND.get(InputKind(source.kind))
        if number not in matches and kind is not None:
            _take(left, matches, number, [pair for pair in left if isinstance(pair[1], kind)])
    return matches


def _table_of(placed: Placed) -> str | None:
    return placed[1].table_id if isinstance(placed[1], DeltaPosition) else None


def _take(left: list[Placed], matches: dict[int, Placed], number: int, fitting: Sequence[Placed]) -> None:
    if fitting:
        matches[number] = fitting[0]
        left.remove(fitting[0])
