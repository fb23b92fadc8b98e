"""The filters of a history as people write and read them.

Rule: pure; how far was looked is always said.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.format import count_text
from backend.lake.history.history import HistoryFilter

LOOK = 2_000  # commits at a time


@dataclass(frozen=True, slots=True)
class Looked:
    """How far a filtered history was looked at: `looked_at` of `total` commits, `found` of them fit."""

    found: int
    looked_at: int
    total: int
    is_whole: bool


def options(counts: Mapping[str, int], chosen: Sequence[str]) -> list[str]:
    """What can be chosen: what occurs, most frequent first, and what is chosen though it does not occur."""
    return [*counts, *(name for name in chosen if name not in counts)]


def option_text(name: str, counts: Mapping[str, int]) -> str:
    """ "WRITE · 1,204"."""
    return f"{name} · {count_text(counts.get(name, 0))}"


def looked_sentence(looked: Looked, chosen: HistoryFilter) -> str:
    """ "37 commits fit. The newest 2,000 of 10,000 were looked at"."""
    fits = "commits fit" if looked.found != 1 else "commit fits"
    head = f"{count_text(looked.found)} {fits}." if not chosen.is_empty else ""
    if looked.is_whole:
        tail = f"Every commit {'of that time' if chosen.since or chosen.until else 'in the log'} was looked at."
    else:
        newest = "newest of that time" if chosen.until else "newest"
        tail = f"The {newest} {count_text(looked.looked_at)} of {count_text(looked.total)} were looked at."
    return f"{head} {tail}".strip()
