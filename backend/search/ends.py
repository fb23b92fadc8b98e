"""The two versions between which the search runs, and what is said when they are not as expected.

Rule: an end that somebody named is never replaced. Else the older one is the oldest that can be judged, the newer one
the latest.
"""

from collections.abc import Callable, Generator, Iterator
from typing import Protocol, TypeVar

from backend.errors import BisectError, LakehouseError, NothingBrokenError, QueryError
from backend.lake.history.versions import VersionedLake, resolve_version
from backend.lake.model import TableRef
from backend.lake.retention.runs import FilesSeen
from backend.search.condition import check_condition, verdict_text
from backend.search.model import OLDEST, BisectProgress, BisectRequest, Probe, ProbeOutcome
from backend.sql.numbers import ScannedLake
from backend.times import Clock
from backend.work import Work, still_runs

Result = TypeVar("Result")


class BisectLake(ScannedLake, VersionedLake, Protocol):
    """The part of `backend.lake.lake.Lake` that a search needs."""

    def versions(self, ref: TableRef) -> list[tuple[int, int]]: ...
    def see_files(self, ref: TableRef, version: int, *, sample: int | None) -> Iterator[FilesSeen]: ...


def find_ends(
    lake: BisectLake, ref: TableRef, request: BisectRequest
) -> Generator[BisectProgress, None, tuple[int, int]]:
    """The good and the bad version, as a generator's result; yields what it does ten times a second.

    Raises `QueryError` for a condition that does not fit the table, and `BisectError` for equal ends.
    """
    good, bad = (named_version(lake, ref, end, request.clock) for end in (request.good, request.bad))
    if bad is None:
        bad = lake.latest_version(ref)
    newest = max(bad, good or 0)
    yield from _aside(
        BisectProgress((), f"reading the log up to v{newest}", newest),
        lambda: check_condition(request.condition, lake.snapshot(ref, newest)),
    )
    if good is None:
        good = yield from _oldest(lake, ref, request.condition, bad)
    if good == bad:
        raise BisectError(
            f"v{good} was given as good and as bad", hint="the search needs two versions between which it changed"
        )
    return good, bad


def named_version(lake: VersionedLake, ref: TableRef, text: str | int | None, clock: Clock) -> int | None:
    """The version that somebody named; None for nothing and for `oldest`."""
    return None if text is None or str(text).strip().lower() == OLDEST else resolve_version(lake, ref, text, clock)


def _oldest(lake: BisectLake, ref: TableRef, text: str, bad: int) -> Generator[BisectProgress, None, int]:
    """The oldest version before `bad` that can be judged, taken to be so from there on."""

    def is_judged(version: int) -> Generator[BisectProgress, None, bool]:
        doing = BisectProgress((), "looking for the oldest version that can be judged", version)
        return (yield from _aside(doing, lambda: _can_be_judged(lake, ref, text, version)))

    versions = [v for first, last in lake.versions(ref) for v in range(first, min(last, bad - 1) + 1)]
    if versions and (yield from is_judged(versions[0])):
        return versions[0]
    low, high = 0, len(versions) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if (yield from is_judged(versions[middle])) else (middle, high)
    if high <= 0 or not (yield from is_judged(versions[high])):
        raise BisectError(
            f"no version before v{bad} of {ref.name} can be judged",
            hint="their data files are gone, or they lack a column: name a good version that is still whole",
        )
    return versions[high]


def _aside(doing: BisectProgress, ask: Callable[[], Result]) -> Generator[BisectProgress, None, Result]:
    """What `ask` gives or raises, asked in a thread that whoever waits can leave."""
    with Work(ask, lambda: None) as work:  # the log is read in one go, with nobody waiting any more
        yield doing
        while still_runs(work, f"version {doing.version or 0}"):
            yield doing
    return work.result()


def _can_be_judged(lake: BisectLake, ref: TableRef, text: str, version: int) -> bool:
    """Whether it has the condition's columns and its files are there."""
    try:
        snapshot = lake.snapshot(ref, version)
        if not check_condition(text, snapshot).columns and snapshot.num_rows is not None:
            return True
        return not any(seen.missing for seen in lake.see_files(ref, version, sample=None))
    except LakehouseError:
        return False


def require_judged(probe: Probe, name: ProbeOutcome) -> None:
    """Raise when an end could not be judged."""
    error = probe.number.error
    if error is None:
        return
    end = f"v{probe.version}, the {name} end"
    if isinstance(error, QueryError):
        raise QueryError(f"{error.message}, at {end}", hint=error.hint, position=error.position)
    raise BisectError(f"{end}, cannot be judged: {error.message}", hint=error.hint or f"name another {name} version")


def require_opposite(good: Probe, bad: Probe) -> None:
    """Raise when the good end breaks the condition, or the bad one satisfies it; says what each gave."""
    wrong_good, wrong_bad = good.outcome is ProbeOutcome.BAD, bad.outcome is ProbeOutcome.GOOD
    if wrong_good and wrong_bad:
        raise BisectError(
            f"it is the other way round: v{good.version}, given as good, breaks the condition ({gave_text(good)}), and "
            f"v{bad.version}, given as bad, satisfies it ({gave_text(bad)})",
            hint=f"good {bad.version} and bad {good.version} finds the commit in between",
        )
    if wrong_good:
        raise BisectError(
            f"v{good.version}, the good end, breaks the condition: {gave_text(good)}",
            hint="name a good version at which it holds, or the other way round one after the bad version",
        )
    if wrong_bad:
        raise NothingBrokenError(
            f"v{bad.version}, the bad end, satisfies the condition: {gave_text(bad)}",
            hint="name a bad version at which it is broken; nothing may be wrong at all",
        )


def gave_text(probe: Probe) -> str:
    """What a condition came to at a version, or why the version was skipped."""
    return probe.reason or "" if probe.verdict is None else verdict_text(probe.verdict)
