"""Axes of figures: counts with whole ticks, and times no finer than people read them.

Rule: pure; no tick says "800m" of a row, or half a version.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from backend.format import zone_of

SHARE_AXIS = {"range": [0, 1.04], "tickvals": [0, 0.5, 1], "ticktext": ["0 %", "50 %", "100 %"]}
FEW = 6  # up to here each whole number has its tick
LEAST_SPAN = timedelta(seconds=60)
HOVER_MOMENT = "%Y-%m-%d %H:%M:%S"  # as `backend.format.utc_text` writes a moment; Plotly puts the point's own in


def count_axis(values: Iterable[float | None]) -> dict[str, Any]:
    """A `yaxis` of counts or bytes from zero: 1, 2, 3 for a few, 1.2k for many."""
    highest = max((value for value in values if value is not None), default=0)
    if highest < FEW:
        return {"tickformat": ",d", "dtick": 1, "range": [0, max(1.0, highest) * 1.08]}
    return {"tickformat": "~s", "exponentformat": "SI", "rangemode": "tozero"}


def value_axis(values: Iterable[float | None]) -> dict[str, Any]:
    """A `yaxis` of any numbers: 1.2k for large ones, 0.003 as it is."""
    largest = max((abs(value) for value in values if value is not None), default=0)
    return {"tickformat": "~s", "exponentformat": "SI"} if largest >= 1000 else {"exponentformat": "none"}


def version_axis(first: int, last: int) -> dict[str, Any]:
    """An `xaxis` of versions: whole numbers, each its own while there are few."""
    few = {"dtick": 1, "tick0": 0} if last - first < FEW else {}
    return {"title_text": "Version", "tickformat": ",d", "range": [first - 0.5, last + 0.5], **few}


def time_range(moments: Sequence[datetime]) -> list[datetime] | None:
    """The ends of a time axis whose moments lie too close together for readable ticks; else None."""
    if not moments or max(moments) - min(moments) >= timedelta(seconds=2):
        return None
    middle = min(moments) + (max(moments) - min(moments)) / 2
    return [middle - LEAST_SPAN / 2, middle + LEAST_SPAN / 2]


def wall_clock(moment: datetime, zone: str | None) -> datetime:
    """The moment on the viewer's clock, without a zone: Plotly draws what it is given."""
    return moment.astimezone(zone_of(zone)).replace(tzinfo=None)
