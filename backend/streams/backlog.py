"""How far each stream is behind and was after each of its batches, from its checkpoint and its sources.

Nothing is sampled: it follows from the offsets that batches reported and the times at which input came, so a restart
forgets nothing, and a stream may run or not.

Rule: never raises for one stream: what cannot be read is unknown, with the reason.
"""

import json
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from threading import Lock

from backend.errors import LakehouseError
from backend.lake.history.arrivals import Arrival
from backend.lake.lake import Lake
from backend.lake.storage.folder import Folder
from backend.lake.storage.storage import declared_folder
from backend.settings import Settings
from backend.stream_model.backlog import Backlog, Lag, SourceBacklog, known_sum
from backend.stream_model.stream import InputKind, Progress, StreamDeclaration, StreamInput, TopicEnds
from backend.streams.checkpoint import (
    DeltaPosition,
    FilesPosition,
    KafkaPosition,
    Position,
    VersionsPosition,
    parse_position,
    position_of,
    read_checkpoint,
    read_positions,
)
from backend.streams.unread import (
    MOST_VERSIONS,
    files_backlog,
    is_skipped,
    kafka_backlog,
    read_files,
    table_backlog,
    unread_records,
    view_backlog,
)

MOST = 240  # points of a chart


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """Where each source stood when a batch had ended, in Spark's order, () where the event does not say; `latest`: the
    ends of its topics when it was planned, at `began_at`, by the source's number. `run_id`: the query's life."""

    at: datetime
    positions: tuple[Position, ...] = ()
    latest: Mapping[int, KafkaPosition] = field(default_factory=dict)
    began_at: datetime | None = None
    run_id: str = ""


def batch_end(batch: Progress) -> BatchEnd:
    """As Spark's JSON of a batch says it."""
    try:
        sources = json.loads(batch.raw_json)["sources"]
        positions = tuple(position_of(source["endOffset"]) for source in sources)
        newest = [position_of(source.get("latestOffset")) for source in sources]
    except (ValueError, KeyError, TypeError, AttributeError):
        return BatchEnd(batch.ended_at)
    latest = {place: position for place, position in enumerate(newest) if isinstance(position, KafkaPosition)}
    return BatchEnd(batch.ended_at, positions, latest, batch.progressed_at, batch.run_id)


def lags(ends: Iterable[BatchEnd], arrivals: Mapping[int, Sequence[Arrival]]) -> tuple[Lag, ...]:
    """One a batch whose positions are known. `arrivals` by the source's number; a file's version is that of the entry
    in the source's log that names it, or `UNREAD`."""
    every = (_lag(end, arrivals) for end in ends)
    return tuple(lag for lag in every if lag is not None)


def lags_since(last: BatchEnd, arrivals: Mapping[int, Sequence[Arrival]], now: datetime) -> tuple[Lag, ...]:
    """How what waits grew while nothing was read: at the end of the last batch, at arrivals since (at most `MOST`), and
    now. Of topics the first alone is known."""
    times = sorted(
        {arrival.committed_at for of in arrivals.values() for arrival in of if arrival.files and arrival.committed_at}
    )
    later = [at for at in times if last.at < at < now]
    thinned = later[:: len(later) // MOST + 1]
    return lags([last, *(BatchEnd(at, last.positions) for at in (*thinned, now))], arrivals)


def _lag(end: BatchEnd, arrivals: Mapping[int, Sequence[Arrival]]) -> Lag | None:
    """Of a topic no times are known, and its end only as the batch was planned."""
    timed = [place for place, position in enumerate(end.positions) if _has_times(position)]
    topics = {place: arrival for place, arrival in enumerate(end.positions) if isinstance(arrival, KafkaPosition)}
    if not (timed or topics) or timed != sorted(arrivals) or topics.keys() - end.latest.keys():
        return None
    unread = [arrival for place in timed for arrival in _unread(arrivals[place], end.positions[place], end.at)]
    oldest = min((arrival.committed_at for arrival in unread if arrival.committed_at), default=end.at)
    records = [unread_records(topic.offsets, end.latest[place].offsets) for place, topic in topics.items()]
    behind_s = None if any(records) else (end.at - oldest).total_seconds()
    return Lag(end.at, behind_s, known_sum([0, *records, *(arrival.rows for arrival in unread)]))


def _has_times(position: Position) -> bool:
    return isinstance(position, FilesPosition) or (isinstance(position, DeltaPosition) and not position.is_initial)


def _unread(arrivals: Sequence[Arrival], position: Position, at: datetime) -> list[Arrival]:
    """What was there at a moment and lay behind a position; a half-read commit counts whole."""
    there = [arrival for arrival in arrivals if arrival.files and arrival.committed_at and arrival.committed_at <= at]
    match position:
        case DeltaPosition():
            began = position.version, position.files_read
            return [arrival for arrival in there if (arrival.version, arrival.files) > began]
        case FilesPosition():
            return [arrival for arrival in there if arrival.version > position.log_offset]
    return []


ALL = datetime.max.replace(tzinfo=UTC)  # nothing that has come until now was left behind
Mark = datetime | None


@dataclass(frozen=True, slots=True)
class Trail:
    """One source of a stream. `ended`: when batches had ended, ascending; `marks`: when the oldest input that each left
    behind had come, `ALL` where none was left, None where that is not known."""

    source: StreamInput
    ended: tuple[datetime, ...] = ()
    marks: tuple[Mark, ...] = ()

    def until(self, at: datetime) -> datetime | None:
        """All that came before this moment had been read at `at`."""
        place = bisect_right(self.ended, at) - 1
        mark = self.marks[place] if place >= 0 else None
        return None if mark is None else min(mark, at)


def trail_of(source: StreamInput, place: int, ends: Sequence[BatchEnd], arrivals: Sequence[Arrival] | None) -> Trail:
    """The trail of a table or folder that has this number in the checkpoint. `arrivals`: what came to it since the
    first of these batches; None where nobody can tell."""
    stood = [(end.at, end.positions[place]) for end in ends if len(end.positions) > place]
    oldest = _Oldest(arrivals or ())
    marks = (oldest.after(position, source) if arrivals is not None else None for _, position in stood)
    return Trail(source, tuple(at for at, _ in stood), tuple(marks))


def topic_trail(
    source: StreamInput, place: int, ends: Sequence[BatchEnd], reported: TopicEnds | None, *, trigger: timedelta
) -> Trail:
    """The trail of topics, whose records' times are not known here: all was read when a batch reached the ends that it
    was planned with, and while the triggers of the same run found nothing new. `reported`: what a broker told since."""
    marks: list[Mark] = [None]
    followers = [*ends[1:], None]
    for end, after in zip(ends, followers, strict=True):
        has_all = len(end.positions) > place and end.positions[place] == end.latest.get(place, ())
        marks.append(_quiet_until(end, after, reported, place, trigger) if has_all else marks[-1])
    return Trail(source, tuple(end.at for end in ends), tuple(marks[1:]))


def _quiet_until(
    end: BatchEnd, after: BatchEnd | None, reported: TopicEnds | None, place: int, trigger: timedelta
) -> datetime:
    began = end.began_at or end.at
    if after is not None:
        found_nothing = (after.began_at or after.at) - trigger  # unless the batch went on past it
        return found_nothing if after.run_id == end.run_id and found_nothing >= end.at else began
    position = end.positions[place]
    is_all = reported is not None and isinstance(position, KafkaPosition) and position.offsets == reported.ends
    return max(began, reported.at) if reported is not None and is_all else began


class _Oldest:
    """When the oldest input behind a position had come."""

    def __init__(self, arrivals: Sequence[Arrival]) -> None:
        there = sorted(
            (arrival for arrival in arrivals if arrival.files), key=lambda arrival: (arrival.version, arrival.files)
        )
        self._places = [(arrival.version, arrival.files) for arrival in there]
        self._since: list[datetime] = [ALL]  # of this arrival and all that follow it
        for arrival in reversed(there):
            self._since.append(min(self._since[-1], arrival.committed_at or ALL))
        self._since.reverse()

    def after(self, position: Position, source: StreamInput) -> Mark:
        read = _read_to(position, source)
        return None if read is None else self._since[bisect_right(self._places, read)]


def _read_to(position: Position, source: StreamInput) -> tuple[int, float] | None:
    """The version and how many of its files were read."""
    match position:
        case DeltaPosition(is_initial=False):
            return position.version, position.files_read
        case FilesPosition():
            return position.log_offset, float("inf")
        case VersionsPosition():
            return position.versions.get(source.uri, -1), float("inf")
    return None


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
