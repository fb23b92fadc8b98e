"""Versions as people name them: a number, `latest`, an offset (`-5`), a time (`2 h ago`, `yesterday`, ISO 8601), or the
name of a pinned one.

Rule: a time means the newest version committed at or before it, by Delta's own rule (`commit_info`); whatever cannot
be resolved says what could be. A name never hides a number or a time.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from backend.errors import VersionFormatError, VersionNotFoundError
from backend.format import cut, utc_text
from backend.lake.model import CommitReader, TableRef
from backend.times import FORMS, Clock, parse_time

_NUMBER = re.compile(r"(?P<before>-|latest *- *|v)?(?P<digits>[0-9]{1,30})", re.IGNORECASE)
_NAME, _TAKEN = re.compile(r"\w(?:[\w.\- ]{0,78}[\w.\-])?"), ("oldest", "now")
VERSIONS = f"a number, `latest`, an offset such as `-5`, a pin's name, or the last version at a time: {FORMS}"
_HINT = f"a version is {VERSIONS}"


class VersionedLake(CommitReader, Protocol):
    """The part of `backend.lake.lake.Lake` that versions need."""

    def latest_version(self, ref: TableRef) -> int: ...
    def named_versions(self, ref: TableRef) -> Mapping[str, int]: ...


@dataclass(frozen=True, slots=True)
class Offset:
    """So many versions before the latest."""

    back: int


def parse_version(text: str | int, clock: Clock) -> int | Offset | datetime:
    """What `text` names when somebody with this clock says it; raises `VersionFormatError` when it names nothing."""
    words = str(text).strip()
    if words.lower() == "latest":
        return Offset(0)
    match = _NUMBER.fullmatch(words)
    if match is None:
        try:
            return parse_time(words, clock)
        except VersionFormatError as exc:
            raise VersionFormatError(exc.message.replace("not a time", "not a version", 1), hint=_HINT) from exc
    number = int(match["digits"])
    return Offset(number) if "-" in (match["before"] or "") else number


def resolve_version(lake: VersionedLake, ref: TableRef, text: str | int, clock: Clock) -> int:
    """The version that `text` names in this table; raises `VersionNotFoundError` when the table has none such."""
    try:
        wanted = parse_version(text, clock)
    except VersionFormatError:
        named = lake.named_versions(ref).get(str(text).strip())
        if named is None:
            raise
        return named
    if isinstance(wanted, datetime):
        return _at_time(lake, ref, wanted)
    latest = lake.latest_version(ref)
    version = latest - wanted.back if isinstance(wanted, Offset) else wanted
    if not 0 <= version <= latest:
        raise VersionNotFoundError(
            f"table {ref.name} has no version {str(text).strip()}", hint=f"its versions end at {latest}; {_HINT}"
        )
    return version


def check_name(text: str) -> str:
    """The name that a version is to get, without blanks around it; raises `VersionFormatError` for what cannot be one,
    or means a version already."""
    name, clock = text.strip(), Clock()
    try:
        parse_version(name, clock)
    except VersionFormatError:
        if _NAME.fullmatch(name) and name.lower() not in _TAKEN:
            return name
    raise VersionFormatError(
        f"no name for a version: {cut(name, 60)!r}",
        hint="up to 80 letters, digits, `.`, `_`, `-` and blanks, and neither a version nor a time: features-2026-11",
    )


def _at_time(lake: VersionedLake, ref: TableRef, when: datetime) -> int:
    version = lake.version_at(ref, when)
    if version is not None:
        return version
    oldest = lake.history(ref)[-1:]
    first = f"; its log begins with v{oldest[0].version} of {utc_text(oldest[0].committed_at)}" if oldest else ""
    raise VersionNotFoundError(f"table {ref.name} has no version at {utc_text(when)}{first}", hint=_HINT)
