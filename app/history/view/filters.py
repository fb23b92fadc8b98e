"""The filters of a history as people write and read them.

Rule: pure; a time is a date, a moment or an age ("24 h"); without a zone it is UTC; what is not understood is an error
that says what would be.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from backend.errors import VersionFormatError
from backend.format import count_text
from backend.lake.history.history_filter import HistoryFilter

LOOK = 2_000  # commits at a time
FORMS = "an age such as `24 h` or `7 d`, a date such as `2026-11-20`, or a time such as `2026-11-20 10:00`; UTC"
_AGE = re.compile(r"^(\d{1,6}(?:\.\d+)?)\s*(m|min|h|d|w)$", re.IGNORECASE)
_SECONDS = {"m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True, slots=True)
class Looked:
    """How far a filtered history was looked at: `looked_at` of `total` commits, `found` of them fit."""

    found: int
    looked_at: int
    total: int
    is_whole: bool


def moment_of(text: str | None, now: datetime, *, end_of_day: bool) -> datetime | None:
    """The moment that a person wrote; None for nothing. A date means its beginning, or its end as asked.

    Raises `VersionFormatError`.
    """
    words = (text or "").strip()
    if not words:
        return None
    age = _AGE.match(words)
    try:
        if age:
            return now - timedelta(seconds=float(age[1]) * _SECONDS[age[2].lower()])
        moment = datetime.fromisoformat(words)
        if end_of_day and len(words) <= len("2026-11-20"):
            moment += timedelta(days=1, microseconds=-1)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError) as exc:
        raise VersionFormatError(f"not a time: {words!r}", hint=f"write {FORMS}") from exc


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
