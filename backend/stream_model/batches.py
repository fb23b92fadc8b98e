"""What micro-batches say of themselves: their phases, their expectations added up, the versions they wrote.

Rule: pure; unknown stays None.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from backend.lake.model import Commit
from backend.stream_model.stream import Progress

TOTAL_PHASE = "triggerExecution"
WORK_PHASE = "addBatch"
REST_PHASE = "other"


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


def phases_ms(progress: Progress) -> dict[str, int]:
    """Duration by phase without the total; what no phase accounts for is `other`."""
    phases = {name: ms for name, ms in progress.durations_ms.items() if name != TOTAL_PHASE}
    total = progress.durations_ms.get(TOTAL_PHASE, progress.batch_duration_ms)
    rest = (total or 0) - sum(phases.values())
    return {**phases, REST_PHASE: rest} if rest > 0 else phases


def expectation_totals(events: Iterable[Progress], declared: Iterable[str] = ()) -> list[ExpectationTotal]:
    """Passed and failed rows per expectation, the declared ones first even where no event counts them."""
    return merged_totals((_totals_of(event) for event in events), declared)


def merged_totals(parts: Iterable[Iterable[ExpectationTotal]], declared: Iterable[str] = ()) -> list[ExpectationTotal]:
    """The totals of several parts added up, the declared ones first."""
    by_name: dict[str, list[ExpectationTotal]] = {name: [] for name in declared}
    for total in chain.from_iterable(parts):
        by_name.setdefault(total.name, []).append(total)
    return [
        ExpectationTotal(
            name,
            sum_known(total.passed for total in totals),
            sum_known(total.failed for total in totals),
            max((total.last_failed_at for total in totals if total.last_failed_at), default=None),
        )
        for name, totals in by_name.items()
    ]


def _totals_of(event: Progress) -> list[ExpectationTotal]:
    return [
        ExpectationTotal(count.name, count.passed, count.failed, event.progressed_at if count.failed else None)
        for count in event.expectations
    ]


def sum_known(values: Iterable[int | None]) -> int | None:
    """Sum of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def versions_of(commits: Iterable[Commit]) -> dict[tuple[str, int], int]:
    """The version that each batch wrote; the first of several."""
    versions: dict[tuple[str, int], int] = {}
    for commit in sorted(commits, key=lambda commit: commit.version, reverse=True):
        origin = commit.origin
        if origin and origin.query_id and origin.batch_id is not None:
            versions[origin.query_id, origin.batch_id] = commit.version
    return versions
