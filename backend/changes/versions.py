"""Versions as people name them: a number, `latest`, an offset (`-5`), or a time (ISO 8601).

Rule: a time means the newest version committed at or before it, by Delta's own rule (`commit_times`); whatever cannot
be resolved says what could be.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from backend.errors import VersionFormatError, VersionNotFoundError
from backend.format import utc_text
from backend.lake.model import CommitReader, TableRef

_SHOWN = 60  # characters of what is no version
_NUMBER = re.compile(r"(?P<before>-|latest *- *|v)?(?P<digits>[0-9]{1,30})", re.IGNORECASE)
_FORMS = "a version is a number, `latest`, an offset such as -5, or a time such as 2026-11-20T10:00Z"


class VersionedLake(CommitReader, Protocol):
    """The part of `backend.lake.lake.Lake` that versions need."""

    def latest_version(self, ref: TableRef) -> int: ...


@dataclass(frozen=True, slots=True)
class Offset:
    """So many versions before the latest."""

    back: int


def parse_version(text: str | int) -> int | Offset | datetime:
    """What `text` names; raises `VersionFormatError` when it names nothing. A time without zone is UTC."""
    words = str(text).strip()
    if words.lower() == "latest":
        return Offset(0)
    match = _NUMBER.fullmatch(words)
    if match is None:
        return _parse_time(words)
    number = int(match["digits"])
    return Offset(number) if "-" in (match["before"] or "") else number


def resolve_version(lake: VersionedLake, ref: TableRef, text: str | int) -> int:
    """The version that `text` names in this table; raises `VersionNotFoundError` when the table has none such."""
    wanted = parse_version(text)
    if isinstance(wanted, datetime):
        return _at_time(lake, ref, wanted)
    latest = lake.latest_version(ref)
    version = latest - wanted.back if isinstance(wanted, Offset) else wanted
    if not 0 <= version <= latest:
        raise VersionNotFoundError(
            f"table {ref.name} has no version {str(text).strip()}", hint=f"its versions end at {latest}; {_FORMS}"
        )
    return version


def _parse_time(words: str) -> datetime:
    try:
        when = datetime.fromisoformat(words)
        return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    except (ValueError, OverflowError) as exc:  # the zone of a moment may lead out of the calendar
        shown = words if len(words) <= _SHOWN else f"{words[:_SHOWN]}…"
        raise VersionFormatError(f"not a version: {shown!r}", hint=_FORMS) from exc


def _at_time(lake: VersionedLake, ref: TableRef, when: datetime) -> int:
    version = lake.version_at(ref, when)
    if version is not None:
        return version
    oldest = lake.history(ref)[-1:]
    first = f"; its log begins with v{oldest[0].version} of {utc_text(oldest[0].committed_at)}" if oldest else ""
    raise VersionNotFoundError(f"table {ref.name} has no version at {utc_text(when)}{first}", hint=_FORMS)
