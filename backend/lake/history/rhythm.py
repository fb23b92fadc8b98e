"""How often a table is written, and whether it is written as ever.

Rule: pure; a table is late against its own gaps alone, never against a figure of ours.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median

FEWEST_COMMITS = 4  # below, there is no rhythm
LEAST_GAP_S = 1.0  # commits closer than that are one burst
LATE_TIMES = 5.0  # the usual gap


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
