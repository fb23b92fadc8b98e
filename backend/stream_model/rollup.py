"""What many batches of a stream told, in one value: of a minute, of an hour, or of one point of a chart.

Rule: pure; added up in any order it is the same, so counts and sums are those of the batches; unknown stays None.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from backend.stream_model.backlog import Lag
from backend.stream_model.batches import ExpectationTotal, expectation_totals, phases_ms, sum_known
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


def rollup_of(batches: Iterable[Progress], lags: Mapping[datetime, Lag] = NO_LAGS) -> Rollup:
    """Of one batch or more of a stream. `lags`: what waited at the end of those of which that is known."""
    ordered = sorted(batches, key=lambda each: (each.progressed_at, each.batch_id))
    first, last = ordered[0], ordered[-1]
    waited = [lags[each.ended_at] for each in ordered if each.ended_at in lags]
    return Rollup(
        query_id=last.query_id,
        run_id=last.run_id,
        batches=len(ordered),
        first_at=first.progressed_at,
        first_batch=first.batch_id,
        last_at=last.progressed_at,
        last_batch=last.batch_id,
        ended_at=max(each.ended_at for each in ordered),
        input_rows=sum(each.num_input_rows for each in ordered),
        output_rows=_sum(each.output_rows for each in ordered),
        dropped_rows=_sum(each.rows_dropped_by_watermark for each in ordered),
        input_rows_per_s=_sum(each.input_rows_per_s for each in ordered),
        processed_rows_per_s=_sum(each.processed_rows_per_s for each in ordered),
        duration_ms=_sum(each.batch_duration_ms for each in ordered),
        longest_ms=_most(each.batch_duration_ms for each in ordered),
        phases_ms=_phases(map(phases_ms, ordered)),
        watermark=last.watermark,
        state_rows=last.state_rows,
        most_behind_ms=_most(None if lag.behind_s is None else round(1_000 * lag.behind_s) for lag in waited),
        most_unread_rows=_most(lag.rows for lag in waited),
        expectations=tuple(sorted(expectation_totals(ordered), key=lambda each: each.name)),
    )


def merged(parts: Sequence[Rollup]) -> Rollup:
    """Of one part or more that share no batch."""
    first = min(parts, key=lambda each: (each.first_at, each.first_batch))
    last = max(parts, key=lambda each: (each.last_at, each.last_batch))
    return Rollup(
        query_id=last.query_id,
        run_id=last.run_id,
        batches=sum(each.batches for each in parts),
        first_at=first.first_at,
        first_batch=first.first_batch,
        last_at=last.last_at,
        last_batch=last.last_batch,
        ended_at=max(each.ended_at for each in parts),
        input_rows=sum(each.input_rows for each in parts),
        output_rows=_added(each.output_rows for each in parts),
        dropped_rows=_added(each.dropped_rows for each in parts),
        input_rows_per_s=_added(each.input_rows_per_s for each in parts),
        processed_rows_per_s=_added(each.processed_rows_per_s for each in parts),
        duration_ms=_added(each.duration_ms for each in parts),
        longest_ms=_most(each.longest_ms for each in parts),
        phases_ms=_phases(each.phases_ms for each in parts),
        watermark=last.watermark,
        state_rows=last.state_rows,
        most_behind_ms=_most(each.most_behind_ms for each in parts),
        most_unread_rows=_most(each.most_unread_rows for each in parts),
        expectations=_totals(each.expectations for each in parts),
    )


def _sum(values: Iterable[float | None]) -> Sum:
    known = [value for value in values if value is not None]
    return Sum(sum(known), len(known))


def _added(sums: Iterable[Sum]) -> Sum:
    every = list(sums)
    return Sum(sum(each.total for each in every), sum(each.known for each in every))


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _phases(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found = Counter[str]()
    for part in parts:
        found.update(part)
    return dict(found)


def _totals(parts: Iterable[tuple[ExpectationTotal, ...]]) -> tuple[ExpectationTotal, ...]:
    found: dict[str, list[ExpectationTotal]] = {}
    for part in parts:
        for each in part:
            found.setdefault(each.name, []).append(each)
    return tuple(_total(name, found[name]) for name in sorted(found))


def _total(name: str, parts: Sequence[ExpectationTotal]) -> ExpectationTotal:
    failed_at = max((each.last_failed_at for each in parts if each.last_failed_at), default=None)
    passed, failed = sum_known(each.passed for each in parts), sum_known(each.failed for each in parts)
    return ExpectationTotal(name, passed, failed, failed_at)
