"""Up to which moment a stream had read all input of a source, at any moment of the recent past.

Rule: pure; from the offsets that batches reported and the times at which input came. What is not known is None.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from backend.lake.history.change_feed import Arrival
from backend.stream_model.stream import StreamInput, TopicEnds
from backend.streams.backlog.lags import BatchEnd
from backend.streams.backlog.positions import (
    DeltaPosition,
    FilesPosition,
    KafkaPosition,
    Position,
    VersionsPosition,
)

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
