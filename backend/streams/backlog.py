"""How far each stream is behind and was after each of its batches, from its checkpoint and its sources.

Nothing is sampled: it follows from the offsets that batches reported and the times at which input came, so a restart
forgets nothing, and a stream may run or not.

Rule: never raises for one stream: what cannot be read is unknown, with the reason.
"""

import json
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from threading import Lock

from backend.errors import LakehouseError
from backend.lake.history.change_feed import Arrival
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
    Placed,
    Position,
    VersionsPosition,
    matched,
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

KEEP_S = 5.0
MOST = 240  # points of a chart
ALL = datetime.max.replace(tzinfo=UTC)  # nothing that has come until now was left behind
Mark = datetime | None


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


class _InputLog:
    """What came to a table or folder, in the order of its log. A position in it is a version, and how many of its files
    were read; a half-read commit counts whole."""

    def __init__(self, arrivals: Iterable[Arrival]) -> None:
        holding = (arrival for arrival in arrivals if arrival.files)
        self._arrivals = sorted(holding, key=lambda arrival: (arrival.version, arrival.files))
        self._places = [(arrival.version, arrival.files) for arrival in self._arrivals]
        self._since: list[datetime] = [ALL]  # the earliest time of this arrival and all that follow it
        for arrival in reversed(self._arrivals):
            self._since.append(min(self._since[-1], arrival.committed_at or ALL))
        self._since.reverse()

    def oldest_behind(self, position: tuple[int, float]) -> datetime:
        """When the oldest input behind a position had come; `ALL` where there is none."""
        return self._since[bisect_right(self._places, position)]

    def rows_behind(self, position: tuple[int, float], at: datetime) -> Iterator[int | None]:
        """The rows of each arrival that was there at a moment and lay behind a position."""
        for arrival in self._arrivals[bisect_right(self._places, position) :]:
            if arrival.committed_at and arrival.committed_at <= at:
                yield arrival.rows


def _read_to(position: Position, uri: str = "") -> tuple[int, float] | None:
    """The version and how many of its files were read; None where a source keeps no times by its positions."""
    match position:
        case DeltaPosition(is_initial=False):
            return position.version, position.files_read
        case FilesPosition():
            return position.log_offset, float("inf")
        case VersionsPosition():
            return position.versions.get(uri, -1), float("inf")
    return None


def lags(ends: Iterable[BatchEnd], arrivals: Mapping[int, Sequence[Arrival]]) -> tuple[Lag, ...]:
    """One a batch whose positions are known. `arrivals` by the source's number; a file's version is that of the entry
    in the source's log that names it, or `UNREAD`. Of a topic no times are known, and its end only as the batch was
    planned."""
    input_logs = {place: _InputLog(of_source) for place, of_source in arrivals.items()}
    after_batches = []
    for end in ends:
        reads = {place: read for place, position in enumerate(end.positions) if (read := _read_to(position))}
        topics = {place: topic for place, topic in enumerate(end.positions) if isinstance(topic, KafkaPosition)}
        if not (reads or topics) or reads.keys() != input_logs.keys() or topics.keys() - end.latest.keys():
            continue
        oldest = min([end.at, *(input_logs[place].oldest_behind(read) for place, read in reads.items())])
        records = [unread_records(topic.offsets, end.latest[place].offsets) for place, topic in topics.items()]
        rows = [count for place, read in reads.items() for count in input_logs[place].rows_behind(read, end.at)]
        behind_s = None if any(records) else (end.at - oldest).total_seconds()
        after_batches.append(Lag(end.at, behind_s, known_sum([0, *records, *rows])))
    return tuple(after_batches)


def lags_since(last: BatchEnd, arrivals: Mapping[int, Sequence[Arrival]], now: datetime) -> tuple[Lag, ...]:
    """How what waits grew while nothing was read: at the end of the last batch, at arrivals since (at most `MOST`), and
    now. Of topics the first alone is known."""
    times = sorted(
        {arrival.committed_at for of in arrivals.values() for arrival in of if arrival.files and arrival.committed_at}
    )
    later = [at for at in times if last.at < at < now]
    thinned = later[:: len(later) // MOST + 1]
    return lags([last, *(BatchEnd(at, last.positions) for at in (*thinned, now))], arrivals)


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
    marks: list[Mark] = [None] * len(stood)
    if arrivals is not None:
        input_log = _InputLog(arrivals)
        reads = (_read_to(position, source.uri) for _, position in stood)
        marks = [None if read is None else input_log.oldest_behind(read) for read in reads]
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


class BacklogReader:
    """For one process; several threads may read. What `read` gives is kept for `keep_s`, nothing else is."""

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
        """What waits for one stream, as `look` finds it at most `keep_s` ago."""
        with self._lock:
            cached = self._known.get(declared.name)
            if cached is None or self._clock() - cached[0] >= self._keep_s:
                backlog = self.look(declared, recent, topics, now=now).backlog()
                cached = self._known[declared.name] = self._clock(), backlog
            return cached[1]

    def look(
        self,
        declared: StreamDeclaration,
        batches: Sequence[Progress] = (),
        topics: Sequence[TopicEnds] = (),
        *,
        now: datetime,
    ) -> "SourceLook":
        """`batches`: of the stream, oldest first, with Spark's JSON; `topics`: what a host reported of its topics."""
        reported = {topic.source: topic for topic in topics}
        return SourceLook(self._settings, self._lake, declared, [batch_end(batch) for batch in batches], reported, now)


@dataclass(slots=True)
class SourceLook:
    """One look at the sources of one stream; collects what came to each since the oldest of the batches it was given.
    One question is asked of it."""

    settings: Settings
    lake: Lake
    declared: StreamDeclaration
    ends: Sequence[BatchEnd]
    reported: dict[str, TopicEnds]
    now: datetime
    checkpoint: Folder | None = None  # None where nobody here may read it
    arrivals: dict[int, Sequence[Arrival]] = field(default_factory=dict)

    @property
    def inputs(self) -> list[StreamInput]:
        return [source for source in self.declared.inputs if source.has_place]

    def backlog(self, *, behind: int | None = None) -> Backlog:
        """What the newest batch left. `behind`: a batch of the checkpoint in its place."""
        has_planned: bool | None = None
        try:
            if self.declared.is_attached:  # its checkpoint may lie where nobody here may read
                placed = list(enumerate(self.ends[-1].positions)) if self.ends else []
                self.reported = {ends.source: ends for ends in _told_by_spark(self.inputs, self.ends)}
            else:
                self.checkpoint = declared_folder(self.settings, self.declared.checkpoint_location)
                checkpoint = read_checkpoint(self.checkpoint)
                has_planned = checkpoint.planned[-1:] != checkpoint.finished[-1:]
                batch = checkpoint.processed_batch if behind is None else behind
                placed = list(read_positions(self.checkpoint, batch).items())
        except LakehouseError as exc:
            return Backlog(self._all_unknown(exc), self.now, has_planned=has_planned)
        places = self._matched(placed)
        sources = tuple(self._of_source(source, places.get(number)) for number, source in enumerate(self.inputs))
        return Backlog(sources, self.now, lags(self.ends, self.arrivals), has_planned)

    def from_start(self) -> Backlog:
        """What a first start would read: all that its sources hold."""
        try:
            self.checkpoint = declared_folder(self.settings, self.declared.checkpoint_location)
        except LakehouseError as exc:
            return Backlog(self._all_unknown(exc), self.now)
        sources = []
        for source in self.inputs:
            begins = parse_position(source.options.get("startingOffsets", ""))  # of topics, where they are offsets
            sources.append(self._count(source, (0, begins) if isinstance(begins, KafkaPosition) else None))
        return Backlog(tuple(sources), self.now)

    def history(self) -> tuple[Lag, ...]:
        """What waited after each of the batches, and since the last one until now; () where its sources keep no
        times."""
        if not self.ends:
            return ()
        self.backlog()
        return (*lags(self.ends[:-1], self.arrivals), *lags_since(self.ends[-1], self.arrivals, self.now))

    def trails(self) -> tuple[Trail, ...]:
        """How far each source was read, over the batches."""
        if not self.declared.is_attached:
            with suppress(LakehouseError):
                self.checkpoint = declared_folder(self.settings, self.declared.checkpoint_location)
        places = self._matched(list(enumerate(self.ends[-1].positions)) if self.ends else [])
        trails = []
        for number, source in enumerate(self.inputs):
            if number not in places:
                trails.append(Trail(source))
                continue
            place, _ = places[number]
            if source.kind == InputKind.KAFKA:
                trigger = timedelta(milliseconds=self.declared.trigger_interval_ms)
                topic = self.reported.get(source.name)
                trails.append(topic_trail(source, place, self.ends, topic, trigger=trigger))
                continue
            came: Sequence[Arrival] | None = None
            with suppress(LakehouseError):  # then nobody can tell
                if source.is_table:
                    came = self._commits(source, place)
                elif source.kind == InputKind.FILES and self.checkpoint is not None:
                    came = read_files(self.settings, source, checkpoint=self.checkpoint, place=place)
            trails.append(trail_of(source, place, self.ends, came))
        return tuple(trails)

    def _matched(self, placed: Sequence[Placed]) -> Mapping[int, Placed]:
        """Positions by the input's number; a view has one for all of them."""
        if self.declared.is_view:
            return dict.fromkeys(range(len(self.inputs)), placed[0]) if placed else {}
        ids: list[str | None] = []
        for source in self.inputs:
            try:
                ids.append(self.lake.snapshot(self.lake.find(source.uri)).metadata.id if source.is_table else None)
            except LakehouseError:
                ids.append(None)  # why is said of the source itself
        return matched(self.inputs, placed, ids)

    def _of_source(self, source: StreamInput, placed: Placed | None) -> SourceBacklog:
        if placed is None and self.declared.is_attached and source.kind in (InputKind.TABLE, InputKind.CHANGE_FEED):
            return _unknown(source, "its application has not told yet where it stands")  # its checkpoint may say
        if not self.declared.is_view:
            return self._count(source, placed)
        versions = placed[1].versions if placed and isinstance(placed[1], VersionsPosition) else {}
        try:
            return view_backlog(self.lake, source, versions.get(source.uri))
        except LakehouseError as exc:
            return _unknown(source, exc.message)

    def _count(self, source: StreamInput, placed: Placed | None) -> SourceBacklog:
        place, position = placed or (None, None)
        try:
            match source.kind:
                case InputKind.TABLE | InputKind.CHANGE_FEED:
                    assert position is None or isinstance(position, DeltaPosition)
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

    def _commits(self, source: StreamInput, place: int) -> list[Arrival] | None:
        """Those of a table since the oldest of the recent batches; None where they are too many or it is not known."""
        stood = (end.positions[place] for end in self.ends if len(end.positions) > place)
        versions = [
            at.version if isinstance(at, DeltaPosition) else at.versions.get(source.uri)
            for at in stood
            if isinstance(at, DeltaPosition | VersionsPosition)
        ]
        first = min((version for version in versions if version is not None), default=None)
        ref = self.lake.find(source.uri)
        latest = self.lake.latest_version(ref)
        if first is None or latest - first >= MOST_VERSIONS:
            return None
        arrivals = self.lake.arrivals(ref, first, latest, feed=source.kind == InputKind.CHANGE_FEED)
        return [arrival for arrival in arrivals if not is_skipped(arrival, source)]

    def _all_unknown(self, error: LakehouseError) -> tuple[SourceBacklog, ...]:
        return tuple(_unknown(source, error.message) for source in self.inputs)


def _told_by_spark(inputs: Sequence[StreamInput], ends: Sequence[BatchEnd]) -> Iterator[TopicEnds]:
    """What the last batch says of its topics' ends, where no host asks the broker."""
    for last in ends[-1:]:
        for source, position, place in zip(inputs, last.positions, count(), strict=False):
            if isinstance(position, KafkaPosition) and place in last.latest:
                here = position.offsets
                yield TopicEnds("", source.name, last.at, here, last.latest[place].offsets, here)


def _unknown(source: StreamInput, why: str) -> SourceBacklog:
    return SourceBacklog(source.name, source.kind, unknown=why)
