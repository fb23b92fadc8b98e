"""When each version was committed, as Delta tells it: the question behind every time that a person names.

Rule: a commit's time is its in-commit timestamp, else its file's, and at least a millisecond after the commit before
it: a clock that was late takes no version away. The writer's own `timestamp` is what it reported, no more.
Source: Delta's `DeltaHistoryManager` (`monotonizeCommitTimestamps`, `getActiveCommitAtTime`). It refuses a time after
the last commit, where Weir answers with the latest version; before the first one, both say that there is none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from backend.lake.table.property_values import is_on

LOOK_BACK = 100  # commits before the first of a run whose times are looked at, as Delta's streams do
IN_COMMIT_TIMES = "delta.enableInCommitTimestamps"
_ENABLED_AT = "delta.inCommitTimestampEnablementVersion"
_LEAST = timedelta(milliseconds=1)


def in_millis(moment: datetime) -> datetime:
    """Delta compares whole milliseconds."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def monotonic(times: Iterable[tuple[int, datetime | None]]) -> dict[int, datetime | None]:
    """The time of each version, oldest first, from its own one; None while none is known."""
    grown: dict[int, datetime | None] = {}
    before: datetime | None = None
    for version, own in times:
        if before is not None and (own is None or own <= before):
            own = before + _LEAST
        grown[version] = before = own
    return grown


def version_at(
    when: datetime,
    versions: Sequence[int],
    configuration: Mapping[str, str],
    *,
    file_times: Callable[[Sequence[int]], Mapping[int, datetime]],
    time_of: Callable[[int], datetime | None],
) -> int | None:
    """The newest of these versions (ascending) that was committed at or before `when`; None when all are younger.

    `configuration` is the latest version's: where it has in-commit timestamps, a few commits are read (`time_of`), as
    these grow by themselves; else all commit files are asked for their times.
    """
    first_timed = _first_timed(configuration)
    timed = [version for version in versions if first_timed is not None and version >= first_timed]
    if timed and _is_by(time_of(timed[0]), when):
        return timed[bisect_right(timed, False, key=lambda version: not _is_by(time_of(version), when)) - 1]
    rest = versions[: len(versions) - len(timed)]
    own = file_times(rest)
    times = monotonic((version, own.get(version)) for version in rest)
    return next((version for version in reversed(rest) if _is_by(times[version], when)), None)


def _first_timed(configuration: Mapping[str, str]) -> int | None:
    """The first version with a time of its own, None where in-commit timestamps are off."""
    if not is_on(configuration, IN_COMMIT_TIMES):
        return None
    enabled_at = configuration.get(_ENABLED_AT, "")
    return int(enabled_at) if enabled_at.isascii() and enabled_at.isdigit() else 0


def _is_by(moment: datetime | None, when: datetime) -> bool:
    return moment is not None and moment <= when
