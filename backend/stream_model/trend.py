"""Whether what is measured again and again grows or shrinks, or only goes up and down.

Rule: pure; what chance alone would do is no trend.
"""

from collections.abc import Sequence
from enum import StrEnum
from statistics import median

LEAST = 4  # values that a trend needs
TAU = 0.5  # Kendall's, over ten values reached by chance once in forty


class Trend(StrEnum):
    GROWING = "growing"
    STEADY = "steady"
    SHRINKING = "shrinking"


def trend(values: Sequence[float], *, tolerance: float) -> Trend | None:
    """Whether values go up or down for certain (Mann-Kendall), and by more than `tolerance`; None for too few."""
    if len(values) < LEAST:
        return None
    pairs = [(a, b) for place, a in enumerate(values) for b in values[place + 1 :]]
    tau = sum((b > a) - (b < a) for a, b in pairs) / len(pairs)
    half = len(values) // 2
    before, after = median(values[:half]), median(values[-half:])
    if abs(tau) < TAU or abs(after - before) < max(tolerance, 0.25 * min(before, after)):
        return Trend.STEADY
    return Trend.GROWING if after > before else Trend.SHRINKING
