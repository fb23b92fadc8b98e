"""Shares and counts as health sentences say them: coarser than on pages, in whole units.

Rule: never a bare float. Sizes and ages come from `backend.format`.
"""


def percent(share: float) -> str:
    """92 %; under one percent says so instead of 0."""
    return "under 1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"


def count(number: int, one: str, many: str | None = None) -> str:
    """1 file, 1,204 files"""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
