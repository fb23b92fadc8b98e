"""What topics hold that a stream has not read: its offsets beside what a host last reported from the broker.

Rule: only a host can ask a broker, so a count is as old as its answer, and says so when that is long ago.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from backend.format import span_text
from backend.stream_model.backlog import DataLoss, SourceBacklog
from backend.stream_model.stream import StreamInput, TopicEnds
from backend.streams.backlog.positions import KafkaPosition

STALE_S = 60.0  # hosts ask every few seconds
Offsets = Mapping[str, Mapping[int, int]]


def unread_records(read: Offsets, ends: Offsets) -> int:
    """Records of all partitions after those that were read; a partition that was never read counts from its start."""
    return sum(max(0, end - _at(read, place, 0)) for place, end in places(ends))


def kafka_backlog(
    source: StreamInput, position: KafkaPosition | None, reported: TopicEnds | None, *, now: datetime
) -> SourceBacklog:
    """Of all partitions; unknown where no host has asked, the broker did not answer, or the topic is another one."""
    if reported is None:
        return SourceBacklog(source.name, source.kind, unknown="no host has asked the broker yet")
    blank = SourceBacklog(source.name, source.kind, asked_at=reported.at)
    if reported.problem:
        return replace(blank, unknown=f"the broker did not answer: {reported.problem}")
    read = position.offsets if position else reported.starts
    for (topic, partition), end in places(reported.ends):
        # What the stream has read since the host asked may well lie beyond the end of then.
        stood = _at(reported.read, (topic, partition), 0)
        if end < stood <= _at(read, (topic, partition), 0):
            why = f"the offset of {topic}-{partition} lies beyond its end: the topic was made anew"
            return replace(blank, unknown=why)
    begun = {
        t: {p: max(first, _at(read, (t, p), first)) for p, first in of.items()} for t, of in reported.firsts.items()
    }
    lost = sum(max(0, first - _at(read, place, first)) for place, first in places(reported.firsts)) if position else 0
    rows = unread_records(begun, reported.ends)
    backlog = replace(blank, rows=rows, lost=lost, oldest_unread_at=_oldest(reported, begun) if rows else None)
    old_s = (now - reported.at).total_seconds()
    return replace(
        backlog,
        data_loss=_data_loss(reported, backlog) if rows else None,
        detail=f"{lost:,} records were deleted before they were read" if lost else "",
        unknown=f"a host last asked the broker {span_text(old_s)} ago" if old_s > STALE_S else "",
    )


def places(offsets: Offsets) -> Iterator[tuple[tuple[str, int], int]]:
    """Topic and partition of each, and its offset."""
    return (((topic, partition), offset) for topic, of in offsets.items() for partition, offset in of.items())


def _at(offsets: Offsets, place: tuple[str, int], default: int) -> int:
    topic, partition = place
    return offsets.get(topic, {}).get(partition, default)


def _oldest(reported: TopicEnds, begun: Offsets) -> datetime | None:
    """The time of the oldest unread record; None where a partition was read on since the host looked."""
    times = []
    for place, end in places(reported.ends):
        at = _at(begun, place, 0)
        if at < end:
            looked, time = reported.unread.get(place[0], {}).get(place[1], (-1, None))
            if looked != at or time is None:
                return None
            times.append(time)
    return min(times, default=None)


def _data_loss(reported: TopicEnds, backlog: SourceBacklog) -> DataLoss | None:
    """The topic with the shortest retention decides: which one holds the oldest record is not told."""
    if backlog.oldest_unread_at is None:
        return None
    retentions = [(ms, topic) for topic, ms in reported.retention_ms.items() if ms is not None and ms >= 0]
    if not retentions:
        return None
    ms, topic = min(retentions)
    return DataLoss(backlog.oldest_unread_at + timedelta(milliseconds=ms), f"records of {topic}", "retention.ms")
