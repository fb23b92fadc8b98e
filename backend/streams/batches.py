"""Micro-batches of one stream made few enough to draw, and their expectations added up.

Rule: pure; counts are taken from batches, never from bins; a bin holds means and last values; unknown stays None.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from statistics import fmean

from backend.lake.model import Commit
from backend.streams.model import ExpectationCount, Progress

MOST_POINTS = 240
BIN_WIDTHS_S = (30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 86_400)
LEAST_PAUSE_S = 30.0
TOTAL_PHASE = "triggerExecution"
WORK_PHASE = "addBatch"
REST_PHASE = "other"


@dataclass(frozen=True, slots=True)
class Bin:
    """One point of a chart: a batch, or the batches of one run in a span of time, drawn at its middle. Counts, rates
    and durations are means of a batch, watermark and state as the last one left them. `goes_on`: it follows the point
    before without a pause."""

    run_id: str
    first_batch: int
    last_batch: int
    batches: int
    at: datetime
    began_at: datetime
    ended_at: datetime
    input_rows: float
    output_rows: float | None
    dropped_rows: float | None
    input_rows_per_s: float | None
    processed_rows_per_s: float | None
    phases_ms: Mapping[str, float]
    watermark_delay_s: float | None
    state_rows: int | None
    goes_on: bool = True


@dataclass(frozen=True, slots=True)
class Points:
    """What charts draw: `bins` of `width_s` seconds, or one a batch where `width_s` is None. `batches` are all."""

    bins: tuple[Bin, ...] = ()
    width_s: int | None = None
    batches: tuple[Progress, ...] = ()
    trigger_interval_ms: int = 0

    @property
    def mean_rows(self) -> float | None:
        return _mean(batch.num_input_rows for batch in self.batches)

    @property
    def mean_input_rows_per_s(self) -> float | None:
        return _mean(batch.input_rows_per_s for batch in self.batches)

    @property
    def mean_ms(self) -> float | None:
        return _mean(batch.batch_duration_ms for batch in self.batches)

    @property
    def over_trigger(self) -> int:
        """Batches that took longer than the trigger interval."""
        return sum((batch.batch_duration_ms or 0) > self.trigger_interval_ms > 0 for batch in self.batches)


@dataclass(frozen=True, slots=True)
class ExpectationTotal:
    """One expectation over all events looked at. None: no event says."""

    name: str
    passed: int | None
    failed: int | None
    last_failed_at: datetime | None

    @property
    def failed_share(self) -> float | None:
        if self.passed is None or self.failed is None or not self.passed + self.failed:
            return None
        return self.failed / (self.passed + self.failed)


def is_batch(progress: Progress) -> bool:
    """Whether the event tells of a micro-batch that ran; the others say that there was nothing to do."""
    return WORK_PHASE in progress.durations_ms or progress.num_input_rows > 0


def points_of(events: Sequence[Progress], *, trigger_interval_ms: int = 0, most: int = MOST_POINTS) -> Points:
    """Events (oldest first) as at most about `most` points. The spans of bins stand still while time goes on."""
    batches = tuple(event for event in events if is_batch(event))
    width_s = _width_s(batches, most) if len(batches) > most else None
    bins: list[Bin] = []
    for _, group in groupby(batches, key=lambda batch: _place(batch, width_s)):
        item = _bin(list(group), width_s)
        pause_s = (item.began_at - bins[-1].ended_at).total_seconds() if bins else 0.0
        same_run = not bins or item.run_id == bins[-1].run_id
        goes_on = same_run and pause_s <= max(LEAST_PAUSE_S, 5 * trigger_interval_ms / 1_000)
        bins.append(replace(item, goes_on=goes_on))
    return Points(tuple(bins), width_s, batches, trigger_interval_ms)


def phases_ms(progress: Progress) -> dict[str, int]:
    """Duration by phase without the total; what no phase accounts for is `other`."""
    phases = {name: ms for name, ms in progress.durations_ms.items() if name != TOTAL_PHASE}
    total = progress.durations_ms.get(TOTAL_PHASE, progress.batch_duration_ms)
    rest = (total or 0) - sum(phases.values())
    return {**phases, REST_PHASE: rest} if rest > 0 else phases


def expectation_totals(events: Iterable[Progress], declared: Iterable[str] = ()) -> list[ExpectationTotal]:
    """Passed and failed rows per expectation, the declared ones first even where no event counts them."""
    counted: dict[str, list[tuple[datetime, ExpectationCount]]] = {name: [] for name in declared}
    for event in events:
        for count in event.expectations:
            counted.setdefault(count.name, []).append((event.progressed_at, count))
    return [_total(name, counts) for name, counts in counted.items()]


def _total(name: str, counts: Sequence[tuple[datetime, ExpectationCount]]) -> ExpectationTotal:
    passed, failed = sum_known(count.passed for _, count in counts), sum_known(count.failed for _, count in counts)
    return ExpectationTotal(name, passed, failed, next((at for at, count in reversed(counts) if count.failed), None))


def dropped_rows(events: Iterable[Progress]) -> int | None:
    """Rows dropped for being later than the watermark; None when no event says."""
    return sum_known(event.rows_dropped_by_watermark for event in events)


def sum_known(values: Iterable[int | None]) -> int | None:
    """Sum of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _width_s(batches: Sequence[Progress], most: int) -> int:
    span_s = (batches[-1].progressed_at - batches[0].progressed_at).total_seconds()
    return next((width_s for width_s in BIN_WIDTHS_S if span_s <= most * width_s), BIN_WIDTHS_S[-1])


def _place(batch: Progress, width_s: int | None) -> tuple[str, float]:
    """What batches of one point have in common."""
    return batch.run_id, batch.progressed_at.timestamp() // width_s if width_s else batch.batch_id


def _bin(batches: Sequence[Progress], width_s: int | None) -> Bin:
    first, last = batches[0], batches[-1]
    middle = first.progressed_at
    if width_s:
        middle = datetime.fromtimestamp((middle.timestamp() // width_s + 0.5) * width_s, UTC)
    phases = [phases_ms(batch) for batch in batches]
    names = dict.fromkeys(name for each in phases for name in each)
    return Bin(
        run_id=last.run_id,
        first_batch=first.batch_id,
        last_batch=last.batch_id,
        batches=len(batches),
        at=middle,
        began_at=first.progressed_at,
        ended_at=last.ended_at,
        input_rows=fmean(batch.num_input_rows for batch in batches),
        output_rows=_mean(batch.output_rows for batch in batches),
        dropped_rows=_mean(batch.rows_dropped_by_watermark for batch in batches),
        input_rows_per_s=_mean(batch.input_rows_per_s for batch in batches),
        processed_rows_per_s=_mean(batch.processed_rows_per_s for batch in batches),
        phases_ms={name: fmean(each.get(name, 0) for each in phases) for name in names},
        watermark_delay_s=(last.progressed_at - last.watermark).total_seconds() if last.watermark else None,
        state_rows=last.state_rows,
    )


def versions_of(commits: Iterable[Commit]) -> dict[tuple[str, int], int]:
    """The version that each batch wrote; the first of several."""
    found: dict[tuple[str, int], int] = {}
    for commit in sorted(commits, key=lambda each: each.version, reverse=True):
        origin = commit.origin
        if origin and origin.query_id and origin.batch_id is not None:
            found[origin.query_id, origin.batch_id] = commit.version
    return found
