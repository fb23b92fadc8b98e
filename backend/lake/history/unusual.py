"""What is unusual of a table's commits: one that does not come, and one after which there are far more or fewer rows.

Rule: pure. A table is judged against its own commits, never against a figure of ours: by their median, which a few odd
ones do not move. Too few commits, or unknown rows, tell nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, pairwise
from statistics import median

from backend.lake.model import VersionTotals

FEWEST_CHANGES = 8  # below, nothing is usual
SPREADS = 8.0  # how far from the median, in the larger of spread and median
LEAST_SHARE = 0.05  # of the rows that were there
MOST_JUMPS = 3
_SIGMA = 1.4826  # turns a median of deviations into a standard deviation


@dataclass(frozen=True, slots=True)
class Jump:
    """The change of rows by one version, beside the median change of all that changed any."""

    version: int
    change: int
    usual: int
    operation: str | None = None


def unusual_jumps(totals: Sequence[VersionTotals], *, most: int = MOST_JUMPS) -> list[Jump]:
    """The largest unusual changes of rows, oldest first. The first rows of a table are never one."""
    changes = [
        (item, item.num_rows - before.num_rows, before.num_rows)
        for before, item in pairwise(totals)
        if item.num_rows is not None and before.num_rows
    ]
    sizes = [change for _, change, _ in changes if change]
    if len(sizes) < FEWEST_CHANGES:
        return []
    usual = median(sizes)
    spread = _SIGMA * median(abs(size - usual) for size in sizes)
    far = SPREADS * max(spread, abs(usual), 1.0)
    jumps = [
        Jump(item.version, change, round(usual), item.operation)
        for item, change, rows in changes
        if abs(change - usual) > far and abs(change) >= LEAST_SHARE * rows
    ]
    largest = sorted(jumps, key=lambda jump: -abs(jump.change - usual))[:most]
    return sorted(largest, key=lambda jump: jump.version)


# rhythm -----------------------------------------------------------------------------------------------------------

FEWEST_COMMITS = 4  # below, there is no rhythm
LEAST_GAP_S = 1.0  # commits closer than that are one burst
LATE_TIMES = 5.0  # the usual gap; the longest, where the rhythm is told to have stopped
LEAST_SILENCE_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Seconds from commit to commit: the median and the longest of the recent gaps, and since the last one."""

    gap_s: float
    longest_s: float
    since_s: float

    @property
    def is_late(self) -> bool:
        """Whether the last commit is longer ago than any recent gap, and many usual ones."""
        return self.since_s > max(self.longest_s, LATE_TIMES * self.gap_s)


def rhythm(moments: Iterable[datetime | None], now: datetime) -> Rhythm | None:
    """Of recent commits in any order; None where too few have a time, or where they are one burst."""
    times = sorted(moment for moment in moments if moment is not None)
    if len(times) < FEWEST_COMMITS:
        return None
    gaps = [(after - before).total_seconds() for before, after in pairwise(times)]
    result = Rhythm(median(gaps), max(gaps), (now - times[-1]).total_seconds())
    return result if result.gap_s >= LEAST_GAP_S else None


def silences(moments: Sequence[datetime], now: datetime) -> list[tuple[int, datetime]]:
    """Of commits' times, oldest first: after which of them it was silent for much longer than ever before, by number,
    and from when on that was so. More commits before make it fewer, never more."""
    gaps = [(after - before).total_seconds() for before, after in pairwise([*moments, now])]
    limits = (max(LEAST_SILENCE_S, LATE_TIMES * longest) for longest in accumulate(gaps, max, initial=0.0))
    return [
        (number, moments[number] + timedelta(seconds=limit))
        for number, (gap, limit) in enumerate(zip(gaps, limits, strict=False))
        if number and gap > limit
    ]
