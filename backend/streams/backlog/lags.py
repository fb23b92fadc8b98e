"""How far behind a stream was at the end of each of its recent batches, and where that leads.

Rule: pure; worked out from the offsets that batches reported and the times at which input came, so nothing is sampled
and a restart forgets nothing.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from backend.lake.history.change_feed import Arrival
from backend.stream_model.backlog import Lag, known_sum
from backend.stream_model.stream import Progress
from backend.streams.backlog.kafka import unread_records
from backend.streams.backlog.positions import DeltaPosition, FilesPosition, KafkaPosition, Position, position_of

UNREAD = 2**62  # stands for the log entry of a file that no entry names
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
