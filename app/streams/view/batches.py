"""Progress of one stream made small enough to draw: consecutive events binned, runs and expectations added up.

Rule: pure; sums stay exact under binning, rates and durations are means of what is known, and unknown stays None.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from statistics import fmean

from backend.streams.model import Progress

MAX_BINS = 240
TOTAL_PHASE = "triggerExecution"
WORK_PHASE = "addBatch"
REST_PHASE = "other"


@dataclass(frozen=True, slots=True)
class Bin:
    """Consecutive progress events of one run: counts are sums, rates and durations means, state the last."""

    run_id: str
    first_batch: int
    last_batch: int
    at: datetime
    events: int
    input_rows: int
    input_rows_per_s: float | None
    processed_rows_per_s: float | None
    batch_duration_ms: float | None
    phases_ms: Mapping[str, float]
    output_rows: int | None
    dropped_rows: int | None
    watermark: datetime | None
    state_rows: int | None
    state_bytes: int | None

    @property
    def watermark_delay_s(self) -> float | None:
        """How far the watermark is behind the clock."""
        return (self.at - self.watermark).total_seconds() if self.watermark else None

    @property
    def batches_text(self) -> str:
        if self.first_batch == self.last_batch:
            return f"batch {self.first_batch}"
        return f"batches {self.first_batch}–{self.last_batch}"


@dataclass(frozen=True, slots=True)
class Run:
    """One life of a query, as far as its progress is kept."""

    run_id: str
    query_id: str
    first_at: datetime
    last_at: datetime
    first_batch: int
    last_batch: int
    batches: int
    input_rows: int


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


def bin_progress(events: Sequence[Progress], *, max_bins: int = MAX_BINS) -> list[Bin]:
    """Events (oldest first) as at most about `max_bins` bins; a bin never spans two runs."""
    size = max(1, -(-len(events) // max_bins))
    bins = []
    for _, run in groupby(events, key=lambda event: event.run_id):
        of_run = list(run)
        bins += [_bin(of_run[start : start + size]) for start in range(0, len(of_run), size)]
    return bins


def phases_ms(progress: Progress) -> dict[str, int]:
    """Duration by phase without the total; what no phase accounts for is `other`."""
    phases = {name: ms for name, ms in progress.durations_ms.items() if name != TOTAL_PHASE}
    total = progress.durations_ms.get(TOTAL_PHASE, progress.batch_duration_ms)
    rest = (total or 0) - sum(phases.values())
    return {**phases, REST_PHASE: rest} if rest > 0 else phases


def runs_of(events: Iterable[Progress]) -> list[Run]:
    """The runs that the events tell of, newest first."""
    by_run: dict[str, list[Progress]] = {}
    for event in events:
        by_run.setdefault(event.run_id, []).append(event)
    runs = [_run(of_run) for of_run in by_run.values()]
    return sorted(runs, key=lambda run: run.first_at, reverse=True)


def expectation_totals(events: Iterable[Progress], declared: Iterable[str] = ()) -> list[ExpectationTotal]:
    """Passed and failed rows per expectation, the declared ones first even where no event counts them."""
    totals = {name: ExpectationTotal(name, None, None, None) for name in declared}
    for event in events:
        for count in event.expectations:
            seen = totals.get(count.name, ExpectationTotal(count.name, None, None, None))
            totals[count.name] = ExpectationTotal(
                count.name,
                _plus(seen.passed, count.passed),
                _plus(seen.failed, count.failed),
                event.progressed_at if count.failed else seen.last_failed_at,
            )
    return list(totals.values())


def dropped_rows(events: Iterable[Progress]) -> int | None:
    """Rows dropped for being later than the watermark; None when no event says."""
    return sum_known(event.rows_dropped_by_watermark for event in events)


def sum_known(values: Iterable[int | None]) -> int | None:
    """Sum of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _plus(total: int | None, more: int | None) -> int | None:
    return sum_known((total, more))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _bin(events: Sequence[Progress]) -> Bin:
    first, last = events[0], events[-1]
    batches = [event for event in events if is_batch(event)]
    phases = [phases_ms(event) for event in batches]
    names = dict.fromkeys(name for each in phases for name in each)
    return Bin(
        run_id=last.run_id,
        first_batch=first.batch_id,
        last_batch=last.batch_id,
        at=last.progressed_at,
        events=len(events),
        input_rows=sum(event.num_input_rows for event in events),
        input_rows_per_s=_mean(event.input_rows_per_s for event in events),
        processed_rows_per_s=_mean(event.processed_rows_per_s for event in batches),
        batch_duration_ms=_mean(event.batch_duration_ms for event in batches),
        phases_ms={name: sum(each.get(name, 0) for each in phases) / len(phases) for name in names},
        output_rows=sum_known(event.output_rows for event in events),
        dropped_rows=dropped_rows(events),
        watermark=last.watermark,
        state_rows=last.state_rows,
        state_bytes=last.state_bytes,
    )


def _run(events: Sequence[Progress]) -> Run:
    batches = {event.batch_id for event in events if is_batch(event)}
    ids = batches or {event.batch_id for event in events}
    return Run(
        run_id=events[0].run_id,
        query_id=events[0].query_id,
        first_at=events[0].progressed_at,
        last_at=events[-1].progressed_at,
        first_batch=min(ids),
        last_batch=max(ids),
        batches=len(batches),
        input_rows=sum(event.num_input_rows for event in events),
    )
