"""What many batches of a stream told, in one value: of a minute, of an hour, or of one point of a chart.

Rule: pure; added up in any order it is the same, so counts and sums are those of the batches; unknown stays None.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from backend.stream_model.backlog import Lag
from backend.stream_model.batches import ExpectationTotal, expectation_totals, merged_totals, phases_ms
from backend.stream_model.stream import Progress

MINUTE_S, HOUR_S = 60, 3_600
GRAINS_S = (MINUTE_S, HOUR_S)
NO_LAGS: Mapping[datetime, Lag] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Sum:
    """One figure of several batches, and how many of them told it."""

    total: float
    known: int

    @property
    def mean(self) -> float | None:
        return self.total / self.known if self.known else None


@dataclass(frozen=True, slots=True)
class Rollup:
    """`first_*` and `last_*` are of the batches that began first and last, as are run and query, watermark and state of
    the last. `ended_at`: when the last to end did. `phases_ms`: sums by phase. `most_*`: what waited after a batch."""

    query_id: str
    run_id: str
    batches: int
    first_at: datetime
    first_batch: int
    last_at: datetime
    last_batch: int
    ended_at: datetime
    input_rows: int
    output_rows: Sum
    dropped_rows: Sum
    input_rows_per_s: Sum
    processed_rows_per_s: Sum
    duration_ms: Sum
    longest_ms: int | None
    phases_ms: Mapping[str, int]
    watermark: datetime | None
    state_rows: int | None
    most_behind_ms: int | None
    most_unread_rows: int | None
    expectations: tuple[ExpectationTotal, ...]  # by name

    @property
    def mean_rows(self) -> float:
        """Rows that one of the batches read."""
        return self.input_rows / self.batches

    @property
    def mean_phases_ms(self) -> Mapping[str, float]:
        return {phase: ms / self.batches for phase, ms in self.phases_ms.items()}

    @property
    def watermark_delay_s(self) -> float | None:
        """How far the watermark was behind the clock when the last batch began."""
        return (self.last_at - self.watermark).total_seconds() if self.watermark else None

    @property
    def behind_s(self) -> float | None:
        """Age of the oldest input that waited after any of the batches."""
        return None if self.most_behind_ms is None else self.most_behind_ms / 1_000


def rollup_of(batches: Iterable[Progress], lags: Mapping[datetime, Lag] = NO_LAGS) -> Rollup:
    """Of one batch or more of a stream. `lags`: what waited at the end of those of which that is known."""
    ordered = sorted(batches, key=lambda batch: (batch.progressed_at, batch.batch_id))
    return merged([_of_one(batch, lags.get(batch.ended_at)) for batch in ordered])


def _of_one(batch: Progress, lag: Lag | None) -> Rollup:
    behind_s = lag.behind_s if lag else None
    return Rollup(
        query_id=batch.query_id,
        run_id=batch.run_id,
        batches=1,
        first_at=batch.progressed_at,
        first_batch=batch.batch_id,
        last_at=batch.progressed_at,
        last_batch=batch.batch_id,
        ended_at=batch.ended_at,
        input_rows=batch.num_input_rows,
        output_rows=_sum(batch.output_rows),
        dropped_rows=_sum(batch.rows_dropped_by_watermark),
        input_rows_per_s=_sum(batch.input_rows_per_s),
        processed_rows_per_s=_sum(batch.processed_rows_per_s),
        duration_ms=_sum(batch.batch_duration_ms),
        longest_ms=batch.batch_duration_ms,
        phases_ms=phases_ms(batch),
        watermark=batch.watermark,
        state_rows=batch.state_rows,
        most_behind_ms=None if behind_s is None else round(1_000 * behind_s),
        most_unread_rows=lag.rows if lag else None,
        expectations=tuple(expectation_totals([batch])),
    )


def merged(parts: Sequence[Rollup]) -> Rollup:
    """Of one part or more that share no batch."""
    first = min(parts, key=lambda part: (part.first_at, part.first_batch))
    last = max(parts, key=lambda part: (part.last_at, part.last_batch))
    return Rollup(
        query_id=last.query_id,
        run_id=last.run_id,
        batches=sum(part.batches for part in parts),
        first_at=first.first_at,
        first_batch=first.first_batch,
        last_at=last.last_at,
        last_batch=last.last_batch,
        ended_at=max(part.ended_at for part in parts),
        input_rows=sum(part.input_rows for part in parts),
        output_rows=_added(part.output_rows for part in parts),
        dropped_rows=_added(part.dropped_rows for part in parts),
        input_rows_per_s=_added(part.input_rows_per_s for part in parts),
        processed_rows_per_s=_added(part.processed_rows_per_s for part in parts),
        duration_ms=_added(part.duration_ms for part in parts),
        longest_ms=_most(part.longest_ms for part in parts),
        phases_ms=_phases(part.phases_ms for part in parts),
        watermark=last.watermark,
        state_rows=last.state_rows,
        most_behind_ms=_most(part.most_behind_ms for part in parts),
        most_unread_rows=_most(part.most_unread_rows for part in parts),
        expectations=tuple(sorted(merged_totals(part.expectations for part in parts), key=lambda total: total.name)),
    )


def _sum(value: float | None) -> Sum:
    return Sum(0, 0) if value is None else Sum(value, 1)


def _added(sums: Iterable[Sum]) -> Sum:
    parts = list(sums)
    return Sum(sum(part.total for part in parts), sum(part.known for part in parts))


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _phases(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    sums = Counter[str]()
    for part in parts:
        sums.update(part)
    return dict(sums)
