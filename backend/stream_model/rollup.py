"""What many batches of a stream told, in one value: of a minute, of an hour, or of one point of a chart.

Rule: pure; added up in any order it is the same, so counts and sums are those of the batches, never of points; a point
holds means and last values; unknown stays None.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from types import MappingProxyType

from backend.stream_model.backlog import Lag
from backend.stream_model.progress import ExpectationTotal, expectation_totals, is_batch, merged_totals, phases_ms
from backend.stream_model.stream import Progress

MINUTE_S, HOUR_S = 60, 3_600
GRAINS_S = (MINUTE_S, HOUR_S)
MOST_POINTS = 240
MOST_LONG_POINTS = 360  # of a window that is drawn from figures per minute or hour
WIDTHS_S = (30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 86_400)
LEAST_PAUSE_S = 30.0
DAY_S = 86_400
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
    phases_ms = Counter[str]()
    for part in parts:
        phases_ms.update(part.phases_ms)
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
        phases_ms=dict(phases_ms),
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


# points of a chart ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """One point of a chart: a batch, or those of a span of time. It is drawn with means of a batch, with watermark and
    state as the last batch left them, and with the most that waited after one. `goes_on`: it follows the point before
    without a pause."""

    at: datetime
    batches: Rollup
    goes_on: bool


@dataclass(frozen=True, slots=True, eq=False)  # told apart as objects: what is drawn of one is kept for all viewers
class Points:
    """What charts draw: `bins` of `width_s` seconds, or one a batch where `width_s` is None. `total` is of all batches,
    None without any. `grain_s`: the figures per minute or hour that it was made from, None where from batches. `since`
    and `until`: the window, where it is known."""

    bins: tuple[ChartPoint, ...] = ()
    width_s: int | None = None
    total: Rollup | None = None
    trigger_interval_ms: int = 0
    over_trigger: int | None = None  # batches that took longer than the trigger interval, where batches were looked at
    grain_s: int | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def batches(self) -> int:
        return self.total.batches if self.total else 0

    @property
    def mean_rows(self) -> float | None:
        return self.total.mean_rows if self.total else None

    @property
    def rows_per_s(self) -> float | None:
        """Rows read in the window by its time; of a stream that began in it, by the time since its first batch."""
        if self.total is None or self.since is None or self.until is None:
            return None
        began = self.total.first_at if self.total.first_batch == 0 else self.since
        return self.total.input_rows / max(1.0, (self.until - began).total_seconds())

    @property
    def mean_ms(self) -> float | None:
        return self.total.duration_ms.mean if self.total else None

    def outages(self, *, runs: bool) -> list[tuple[datetime, datetime]]:
        """Spans of the window between two runs, and since the last batch of a stream that does not run now: those that
        are long enough to see."""
        if self.since is None or self.until is None:
            return []
        parts = [point.batches for point in self.bins]
        ends = [(before.ended_at, after.first_at) for before, after in pairwise(parts) if before.run_id != after.run_id]
        if not runs:
            ends.append((parts[-1].ended_at if parts else self.since, self.until))
        least = timedelta(seconds=max(LEAST_PAUSE_S, self.width_s or 0))
        return [(began, ended) for began, ended in ends if ended - began > least]

    @property
    def knows_backlog(self) -> bool:
        return any(
            point.batches.behind_s is not None or point.batches.most_unread_rows is not None for point in self.bins
        )

    @property
    def dropped_rows(self) -> int | None:
        """Rows dropped for being later than the watermark; None when no batch says."""
        return int(self.total.dropped_rows.total) if self.total and self.total.dropped_rows.known else None

    def expectation_totals(self, declared: Iterable[str] = ()) -> list[ExpectationTotal]:
        """Passed and failed rows per expectation, the declared ones first even where no batch counts them."""
        return merged_totals([self.total.expectations] if self.total else (), declared)


def plan_grain(window_s: float, *, batches_kept_s: float, minutes_kept_s: float) -> int | None:
    """Of how many seconds the figures are that a window is drawn from; None for the batches themselves. More than a day
    of either would be too much to read at once."""
    if window_s <= min(DAY_S, batches_kept_s):
        return None
    return MINUTE_S if window_s <= min(DAY_S, minutes_kept_s) else HOUR_S


def points_of(events: Sequence[Progress], *, trigger_interval_ms: int = 0, most: int = MOST_POINTS) -> Points:
    """Events (oldest first) as at most about `most` points. The spans of bins stand still while time goes on."""
    batches = [event for event in events if is_batch(event)]
    span_s = (batches[-1].progressed_at - batches[0].progressed_at).total_seconds() if batches else 0.0
    width_s = _width_s(span_s, most) if len(batches) > most else None
    longest_pause_s = max(LEAST_PAUSE_S, 5 * trigger_interval_ms / 1_000)

    def place(batch: Progress) -> tuple[str, float]:
        return batch.run_id, batch.progressed_at.timestamp() // width_s if width_s else batch.batch_id

    parts = [rollup_of(group) for _, group in groupby(batches, key=place)]
    over = sum((batch.batch_duration_ms or 0) > trigger_interval_ms > 0 for batch in batches)
    total = merged(parts) if parts else None
    return Points(_bins(parts, width_s, longest_pause_s, by_run=True), width_s, total, trigger_interval_ms, over)


def points_over(
    rollups: Iterable[Rollup],
    *,
    window_s: int,
    grain_s: int,
    trigger_interval_ms: int = 0,
    most: int = MOST_LONG_POINTS,
) -> Points:
    """Figures per minute or hour as at most about `most` points. A pause longer than a point is wide breaks a line."""
    width_s = _width_s(max(window_s, grain_s * most), most)
    ordered = sorted(rollups, key=lambda rollup: rollup.first_at)
    parts = [
        merged(list(group)) for _, group in groupby(ordered, lambda rollup: rollup.first_at.timestamp() // width_s)
    ]
    total = merged(parts) if parts else None
    bins = _bins(parts, width_s, max(width_s, 5 * trigger_interval_ms / 1_000), by_run=False)
    return Points(bins, width_s, total, trigger_interval_ms, grain_s=grain_s)


def _width_s(span_s: float, most: int) -> int:
    return next((width_s for width_s in WIDTHS_S if span_s <= most * width_s), WIDTHS_S[-1])


def _bins(
    parts: Sequence[Rollup], width_s: int | None, longest_pause_s: float, *, by_run: bool
) -> tuple[ChartPoint, ...]:
    """`by_run`: the line breaks between two runs as well."""
    goes_on = [True]
    for before, after in pairwise(parts):
        pause_s = (after.first_at - before.ended_at).total_seconds()
        goes_on.append(pause_s <= longest_pause_s and (before.run_id == after.run_id or not by_run))
    return tuple(map(ChartPoint, _moments(parts, width_s), parts, goes_on))


def _moments(parts: Sequence[Rollup], width_s: int | None) -> list[datetime]:
    """Where points stand: in the middle of their span. Of two runs in one span each where it began, or their bars would
    be stacked."""
    if width_s is None:
        return [part.first_at for part in parts]
    places = [part.first_at.timestamp() // width_s for part in parts]
    runs = Counter(places)
    return [
        part.first_at if runs[place] > 1 else datetime.fromtimestamp((place + 0.5) * width_s, UTC)
        for part, place in zip(parts, places, strict=True)
    ]
