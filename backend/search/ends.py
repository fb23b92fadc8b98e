"""The two versions between which the search runs, and what is said when they are not as expected.

Rule: an end that somebody named is never replaced. Else the older one is the oldest that can be judged, the newer one
the latest.
"""

from collections.abc import Callable, Generator, Iterator
from decimal import Decimal
from typing import Protocol, TypeVar

from backend.changes.versions import VersionedLake, resolve_version
from backend.errors import BisectError, LakehouseError, NothingBrokenError, QueryError
from backend.lake.model import TableRef
from backend.lake.retention.runs import FilesSeen
from backend.search.condition import check_condition
from backend.search.judge import JudgedLake
from backend.search.model import OLDEST, Outcome, Probe, Verdict
from backend.sql.over_versions import still_runs
from backend.work import Work


class BisectLake(JudgedLake, VersionedLake, Protocol):
    """The part of `backend.lake.lake.Lake` that a search needs."""

    def versions(self, ref: TableRef) -> list[tuple[int, int]]: ...
    def see_files(self, ref: TableRef, version: int, *, sample: int | None) -> Iterator[FilesSeen]: ...


Ends = tuple[int, int]
Doing = tuple[str, int]  # what is done, at which version
Found = TypeVar("Found")
_MOST_VALUE = 60  # characters of one value in a sentence


def find_ends(
    lake: BisectLake, ref: TableRef, text: str, named: tuple[str | int | None, str | int | None]
) -> Generator[Doing, None, Ends]:
    """The good and the bad version; yields what it does ten times a second.

    Raises `QueryError` for a condition that does not fit the table, and `BisectError` for equal ends.
    """
    good, bad = (named_version(lake, ref, each) for each in named)
    if bad is None:
        bad = lake.latest_version(ref)
    newest = max(bad, good or 0)
    yield from _aside(
        (f"reading the log up to v{newest}", newest), lambda: check_condition(text, lake.snapshot(ref, newest))
    )
    if good is None:
        good = yield from _oldest(lake, ref, text, bad)
    if good == bad:
        raise BisectError(
            f"v{good} was given as good and as bad", hint="the search needs two versions between which it changed"
        )
    return good, bad


def named_version(lake: VersionedLake, ref: TableRef, text: str | int | None) -> int | None:
    """The version that somebody named; None for nothing and for `oldest`."""
    return None if text is None or str(text).strip().lower() == OLDEST else resolve_version(lake, ref, text)


def _oldest(lake: BisectLake, ref: TableRef, text: str, bad: int) -> Generator[Doing, None, int]:
    """The oldest version before `bad` that can be judged, taken to be so from there on."""

    def judged(version: int) -> Generator[Doing, None, bool]:
        doing = ("looking for the oldest version that can be judged", version)
        return (yield from _aside(doing, lambda: _can_be_judged(lake, ref, text, version)))

    known = [v for first, last in lake.versions(ref) for v in range(first, min(last, bad - 1) + 1)]
    if known and (yield from judged(known[0])):
        return known[0]
    low, high = 0, len(known) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if (yield from judged(known[middle])) else (middle, high)
    if high <= 0 or not (yield from judged(known[high])):
        raise BisectError(
            f"no version before v{bad} of {ref.name} can be judged",
            hint="their data files are gone, or they lack a column: name a good version that is still whole",
        )
    return known[high]


def _aside(doing: Doing, ask: Callable[[], Found]) -> Generator[Doing, None, Found]:
    """What `ask` gives or raises, asked in a thread that whoever waits can leave."""
    with Work(ask, lambda: None) as work:  # the log is read in one go, with nobody waiting any more
        yield doing
        while still_runs(work, doing[1]):
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


def require_judged(probe: Probe, name: Outcome, failure: LakehouseError | None) -> None:
    """Raise when an end could not be judged."""
    if probe.outcome is not Outcome.SKIPPED:
        return
    end = f"v{probe.version}, the {name} end"
    if isinstance(failure, QueryError):
        raise QueryError(f"{failure.message}, at {end}", hint=failure.hint, position=failure.position)
    hint = failure.hint if failure else ""
    raise BisectError(f"{end}, cannot be judged: {probe.reason}", hint=hint or f"name another {name} version")


def require_opposite(good: Probe, bad: Probe) -> None:
    """Raise when the good end breaks the condition, or the bad one satisfies it; says what each gave."""
    wrong_good, wrong_bad = good.outcome is Outcome.BAD, bad.outcome is Outcome.GOOD
    if wrong_good and wrong_bad:
        raise BisectError(
            f"it is the other way round: v{good.version}, given as good, breaks the condition ({gave(good)}), and "
            f"v{bad.version}, given as bad, satisfies it ({gave(bad)})",
            hint=f"good {bad.version} and bad {good.version} finds the commit in between",
        )
    if wrong_good:
        raise BisectError(
            f"v{good.version}, the good end, breaks the condition: {gave(good)}",
            hint="name a good version at which it holds, or the other way round one after the bad version",
        )
    if wrong_bad:
        raise NothingBrokenError(
            f"v{bad.version}, the bad end, satisfies the condition: {gave(bad)}",
            hint="name a bad version at which it is broken; nothing may be wrong at all",
        )


def gave(probe: Probe) -> str:
    """What a condition came to, in words."""
    return probe.reason or "" if probe.verdict is None else verdict_words(probe.verdict)


def verdict_words(verdict: Verdict) -> str:
    """ "3 of 10 rows violate it", "min(amount) is -4.0"."""
    if verdict.violations is not None:
        does = "violates" if verdict.violations == 1 else "violate"
        broken = f"{verdict.violations:,} of {_rows(verdict.rows or 0)} {does} it"
        passing = "gives null and passes" if verdict.nulls == 1 else "give null and pass"
        return f"{broken}, {verdict.nulls:,} {passing}" if verdict.nulls else broken
    said = [f"{text} is {'null' if value is None else _short(value)}" for text, value in verdict.aggregates]
    if verdict.value is None:
        said.append("it gives null, which passes")
    return ", ".join(said) or f"it is {str(verdict.value).lower()}"


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _short(value: object) -> str:
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    text = f"{value:,}" if is_number else str(value)
    return text if len(text) <= _MOST_VALUE else f"{text[: _MOST_VALUE - 1]}…"
