"""Commits after which a table had far more or fewer rows than its other commits make one expect.

Rule: pure. A jump is judged against the table's own commits by their median and spread, which a few odd ones do not
move. Too few commits, or unknown rows, give no jump.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
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
