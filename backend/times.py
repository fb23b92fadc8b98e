"""Times as people say them: `2 h ago`, `yesterday`, `Monday 09:00`, `14:30`, or a date or time as ISO 8601 writes it.

Rule: pure, and the one parser of times that a person asks with. Words mean the last such moment before now, on the
clock of who says them; a written date without a zone is UTC. A clock time that comes twice in a night is the later one
that has been; one that is skipped is as much later, as Python reads it.
"""

import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from backend.errors import VersionFormatError
from backend.format import cut

FORMS = "`2 h ago`, `yesterday`, `Monday 09:00` or `14:30` on your clock, or `2026-11-20 10:00` in UTC"
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_UNIT = r"(s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?|w(?:eeks?)?)"
_PART = rf"([0-9]{{1,6}}(?:\.[0-9]+)?)\s*{_UNIT}\s*"
_AGE = re.compile(rf"(?:{_PART})+(?:ago)?", re.IGNORECASE)
_SAID = re.compile(r"([a-z]*),?\s*(?:at\s+)?(?:(\d{1,2}):(\d\d)(?::(\d\d))?\s*(z|utc)?)?", re.IGNORECASE | re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True, slots=True)
class Clock:
    """Who says a time: when, aware, and in which zone; None: that of this process."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    zone: tzinfo | None = UTC


def parse_time(text: str, clock: Clock, *, end_of_day: bool = False) -> datetime:
    """The moment that a person wrote, in UTC. A day alone means its beginning, or its end as asked.

    Raises `VersionFormatError` for what is none, and for a time of today that has yet to come.
    """
    words = text.strip()
    try:
        if _AGE.fullmatch(words):
            parts = re.findall(_PART, words, re.IGNORECASE)
            return clock.now - timedelta(seconds=sum(float(n) * _SECONDS[unit[0].lower()] for n, unit in parts))
        return _said(words, clock, end_of_day=end_of_day) or _written(words, end_of_day=end_of_day)
    except (ValueError, OverflowError) as exc:  # an age or a zone may lead out of the calendar
        raise VersionFormatError(f"not a time: {cut(words, 60)!r}", hint=f"a time is {FORMS}") from exc


def _said(words: str, clock: Clock, *, end_of_day: bool) -> datetime | None:
    """None where it is no day, no clock time and not both."""
    match = _SAID.fullmatch(words)
    if match is None or not (match[1] or match[2]):
        return None
    zone = UTC if match[5] else clock.zone
    days = _days(match[1].lower(), clock.now.astimezone(zone).date())
    if not days:
        return None
    if match[2] is None and end_of_day:
        return _moments(days[0] + timedelta(days=1), time(), zone)[-1] - timedelta(microseconds=1)
    hour, minute, second = (int(part or 0) for part in match.groups()[1:4])
    moment = next((m for day in days for m in _moments(day, time(hour, minute, second), zone) if m <= clock.now), None)
    if moment is None:
        raise VersionFormatError(f"{words} has yet to come", hint=f"a time is {FORMS}")
    return moment


def _days(name: str, today: date) -> list[date]:
    """The days that may be meant, newest first."""
    back = {"": (0, 1), "today": (0,), "yesterday": (1,)}.get(name, ())
    for number, day in enumerate(_DAYS):
        if len(name) > 2 and day.startswith(name):
            since = (today.weekday() - number) % 7
            back = since, since + 7
    return [today - timedelta(days=days) for days in back]


def _moments(day: date, at: time, zone: tzinfo | None) -> list[datetime]:
    """When a clock of the zone shows this: once, or twice where it is put back, the later one first."""
    shown = (datetime.combine(day, at.replace(fold=fold), zone) for fold in (0, 1))
    # Not `astimezone`: of a time without a zone, it misreads those that are skipped.
    first, second = (datetime.fromtimestamp(moment.timestamp(), UTC) for moment in shown)
    return [second, first] if first < second else [first]


def _written(words: str, *, end_of_day: bool) -> datetime:
    moment = datetime.fromisoformat(re.sub(r"\s*utc$", "Z", words, flags=re.IGNORECASE))
    if end_of_day and len(words) <= len("2026-11-20"):
        moment += timedelta(days=1, microseconds=-1)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
