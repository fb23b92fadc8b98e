"""Values of table properties as Delta and Spark write them: `interval 1 week`, `128mb`, `true`.

Rule: pure; what Delta itself would refuse (months, years, a negative sum, any other word) is None, never a guess.
Source: Spark's CalendarInterval texts and Delta's `DeltaConfigs.isValidIntervalConfigValue`.
"""

import re
from collections.abc import Mapping
from datetime import timedelta

_PART = re.compile(
    r"([+-]?)\s*(\d+)(?:\.(\d{1,9}))?\s+(week|day|hour|minute|second|millisecond|microsecond)s?(?:\s+|$)"
)
_UNITS = {
    "week": timedelta(weeks=1),
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
    "millisecond": timedelta(milliseconds=1),
    "microsecond": timedelta(microseconds=1),
}
_BYTES = {unit + end: 1024**power for power, unit in enumerate(("", "k", "m", "g", "t")) for end in ("", "b")}


def is_on(configuration: Mapping[str, str], key: str) -> bool:
    """Whether a property that is off by default is on."""
    return configuration.get(key, "").strip().lower() == "true"


def parse_size(text: str) -> int | None:
    """Bytes from `134217728` or `128mb` (1024-based, as Spark reads it); None when it is neither."""
    text = text.strip().lower()
    digits = text.rstrip("kmgtb ")
    unit = text[len(digits) :].strip()
    if not digits.isascii() or not digits.isdigit() or unit not in _BYTES:
        return None
    return int(digits) * _BYTES[unit] or None


def parse_interval(text: str) -> timedelta | None:
    """The duration of an interval text; None where Delta would not take it."""
    rest = re.sub(r"^interval\s+", "", text.strip().lower())
    if not rest:
        return None
    total = timedelta()
    while rest:
        match = _PART.match(rest)
        if match is None or (match[3] and match[4] != "second"):
            return None
        total += _amount(match)
        rest = rest[match.end() :]
    return total if total >= timedelta() else None


def _amount(match: re.Match[str]) -> timedelta:
    sign = -1 if match[1] == "-" else 1
    try:
        whole = int(match[2]) * _UNITS[match[4]]
    except OverflowError:
        whole = timedelta.max / 4
    fraction = timedelta(microseconds=int((match[3] or "0").ljust(6, "0")[:6]))
    return sign * (whole + fraction)


def interval_text(duration: timedelta) -> str:
    """A duration in words: "7 days", "36 hours", "2 days 3 hours"."""
    minutes, seconds = divmod(round(duration.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "day"), (hours, "hour"), (minutes, "minute"), (seconds, "second")]
    words = [f"{count:,} {unit}{'' if count == 1 else 's'}" for count, unit in parts if count]
    return " ".join(words[:2]) or "0 seconds"
