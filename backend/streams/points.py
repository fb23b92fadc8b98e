"""Batches of one stream, or their figures per minute or hour, made few enough to draw.

Rule: pure; counts are taken from batches, never from points; a point holds means and last values; unknown stays None.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise

from backend.stream_model.batches import ExpectationTotal, is_batch, merged_totals
from backend.stream_model.rollup import HOUR_S, MINUTE_S, Rollup, merged, rollup_of
from backend.stream_model.stream import Progress

MOST_POINTS = 240
MOST_LONG_POINTS = 360  # of a window that is drawn from figures per minute or hour
WIDTHS_S = (30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 86_400)
LEAST_PAUSE_S = 30.0
DAY_S = 86_400


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
    width_s = _width_s(_span_s(batches), most) if len(batches) > most else None
    longest_pause_s = max(LEAST_PAUSE_S, 5 * trigger_interval_ms / 1_000)

    def goes_on(before: Rollup, after: Rollup) -> bool:
        return before.run_id == after.run_id and _pause_s(before, after) <= longest_pause_s

    def place(batch: Progress) -> tuple[str, float]:
        return batch.run_id, batch.progressed_at.timestamp() // width_s if width_s else batch.batch_id

    parts = [rollup_of(group) for _, group in groupby(batches, key=place)]
    over = sum((batch.batch_duration_ms or 0) > trigger_interval_ms > 0 for batch in batches)
    total = merged(parts) if parts else None
    return Points(_bins(parts, width_s, goes_on), width_s, total, trigger_interval_ms, over)


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
    longest_pause_s = max(width_s, 5 * trigger_interval_ms / 1_000)

    def goes_on(before: Rollup, after: Rollup) -> bool:
        return _pause_s(before, after) <= longest_pause_s

    ordered = sorted(rollups, key=lambda rollup: rollup.first_at)
    parts = [
        merged(list(group)) for _, group in groupby(ordered, lambda rollup: rollup.first_at.timestamp() // width_s)
    ]
    total = merged(parts) if parts else None
    return Points(_bins(parts, width_s, goes_on), width_s, total, trigger_interval_ms, grain_s=grain_s)


def _pause_s(before: Rollup, after: Rollup) -> float:
    return (after.first_at - before.ended_at).total_seconds()


def _span_s(batches: Sequence[Progress]) -> float:
    return (batches[-1].progressed_at - batches[0].progressed_at).total_seconds()


def _width_s(span_s: float, most: int) -> int:
    return next((width_s for width_s in WIDTHS_S if span_s <= most * width_s), WIDTHS_S[-1])


def _bins(
    parts: Sequence[Rollup], width_s: int | None, goes_on: Callable[[Rollup, Rollup], bool]
) -> tuple[ChartPoint, ...]:
    follows = [True, *(goes_on(before, after) for before, after in pairwise(parts))]
    return tuple(map(ChartPoint, _moments(parts, width_s), parts, follows))


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
