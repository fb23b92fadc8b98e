"""Shares, counts and ages as health sentences say them: coarser than on pages, in whole units.

Rule: never a bare float. Sizes come from `backend.format`.
"""


def percent(share: float) -> str:
    """92 %; under one percent says so instead of 0."""
    return "under 1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"


def age(seconds: float) -> str:
    """5 days, 3 hours, 12 minutes, 40 seconds: the biggest unit of which there are two."""
    for name, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{max(seconds, 0):.0f} seconds"


def count(number: int, one: str, many: str | None = None) -> str:
    """1 file, 1,204 files"""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
