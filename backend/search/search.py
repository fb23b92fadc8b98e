"""The first version that breaks a condition (or mends it), by plain bisection between a good and a bad version.

Why: the commit that did it is what people go back before. Rule: a version that cannot be judged is skipped and said,
and the answer is then a range. `Bisection` claims no more than its probes saw. An end that somebody named is never
replaced.
"""

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from typing import TypeVar

from backend.caches import Lru
from backend.errors import BisectError, LakehouseError, NothingBrokenError, QueryError
from backend.lake.history.history import resolve_version
from backend.lake.lake import Lake
from backend.lake.model import Commit, Hidden, TableRef
from backend.search.condition import Examples, Judge, VersionCondition, VersionVerdict, check_condition, verdict_text
from backend.sql.numbers import Numbers, VersionValue
from backend.times import Clock
from backend.work import Stopped, Work, still_runs

OLDEST = "oldest"  # the good end that nobody named: the oldest version that can be judged
MOST_RESULTS = 256
MOST_SKIPPED = 64  # then the answer is the range that is left
_LONGEST_S = 1_800.0  # of reading a log: who waits can leave
_AWAY = 0.618  # of what is left, from a version that was skipped: its neighbours often are as it is

Value = TypeVar("Value")


class ProbeOutcome(StrEnum):
    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"  # the version cannot be read, or the condition cannot be computed there


class Purpose(StrEnum):
    """Why a version was probed."""

    END = "end"  # it was said to be good or bad
    SEARCH = "search"
    CHECK = "check"  # beyond the search: does the condition change more than once


@dataclass(frozen=True, slots=True)
class BisectRequest:
    """What is searched. Versions as people name them; no `good` (or `oldest`) is the oldest that can be judged, no
    `bad` the latest.

    `check`: so many versions on each side of what was found are probed beyond the search. `clock`: who names them.
    """

    condition: str
    good: str | int | None = None
    bad: str | int | None = None
    check: int = 2
    clock: Clock = field(default_factory=Clock)


@dataclass(frozen=True, slots=True)
class Probe:
    """One version looked at: what the condition came to there, why it was asked, and whose commit it is."""

    number: VersionValue[VersionVerdict]
    purpose: Purpose
    committed_at: datetime | None = None
    operation: str | None = None
    duration_s: float = 0.0

    @property
    def version(self) -> int:
        return self.number.version

    @property
    def verdict(self) -> VersionVerdict | None:
        return self.number.value

    @property
    def reason(self) -> str | None:
        """Why it was skipped."""
        return self.number.problem

    @property
    def outcome(self) -> ProbeOutcome:
        if self.verdict is None:
            return ProbeOutcome.SKIPPED
        return ProbeOutcome.GOOD if self.verdict.holds else ProbeOutcome.BAD


@dataclass(frozen=True, slots=True)
class Bisection:
    """The answer of a search. The condition changes between two probed versions, the newest that is as the older end
    (`last`) and the oldest after it that is as the newer end (`first_seen`).

    `candidates`: the commits in between that may have changed it; `culprit` where only one is left.
    `again`: versions probed after `first_seen` that are as the older end again.
    `changing`: how many commits between the ends changed rows; `unprobed`: how many of these nobody looked at.
    `older_id`: the table's id at the older end, where that was another table under the same path.
    `row_rule`: what each row has to satisfy; empty where it is about no row by itself.
    """

    ref: TableRef
    table_id: str
    condition: str
    by_row: bool
    good: int
    bad: int
    probes: tuple[Probe, ...]
    last: int
    first_seen: int
    candidates: tuple[int, ...]
    commits: tuple[Commit, ...]
    again: tuple[int, ...]
    changing: int
    unprobed: int
    examples: Examples = field(default_factory=Examples)
    older_id: str | None = None
    row_rule: str = ""

    @property
    def is_mended(self) -> bool:
        """Whether the search was for the first good version after a bad one."""
        return self.good > self.bad

    @property
    def culprit(self) -> int | None:
        return self.candidates[0] if len(self.candidates) == 1 else None

    @property
    def changed_at(self) -> int:
        """The newer end of the difference that shows the change."""
        return self.first_seen if self.culprit is None else self.culprit

    @property
    def commit(self) -> Commit | None:
        """The culprit's commit; None where it is not in the log any more."""
        return next((commit for commit in self.commits if commit.version == self.culprit), None)

    @property
    def is_monotonic(self) -> bool:
        """Whether no probe disagreed with one change of the condition in the range."""
        return not self.again

    @property
    def bad_seen(self) -> int:
        """The probed version beside the change at which the condition is broken."""
        return self.last if self.is_mended else self.first_seen

    @property
    def good_seen(self) -> int:
        return self.first_seen if self.is_mended else self.last

    def probe_of(self, version: int) -> Probe | None:
        return next((probe for probe in self.probes if probe.version == version), None)


@dataclass(frozen=True, slots=True)
class BisectProgress:
    """How far it is: probes in the order they ran, what is done now and at which version, and the rows read there.

    `at_most_left`: how many more probes there may be, unless some have to be skipped. The last step has the `result`.
    """

    probes: tuple[Probe, ...]
    doing: str
    version: int | None = None
    rows_read: int = 0
    at_most_left: int | None = None
    result: Bisection | None = None


Steps = Generator[BisectProgress, None, None]


def bisect(lake: Lake, ref: TableRef, request: BisectRequest, *, judge: Judge | None = None) -> Steps:
    """Search, telling each step; the last one has the result. Close the iterator to cancel: it ends within a second.

    Raises `QueryError` for a condition that is refused, and `VersionNotFoundError` for an end that is not there. Raises
    `BisectError` for one that is not as it was said to be.
    """
    yield BisectProgress((), "looking for the two ends")
    ends = yield from _find_ends(lake, ref, request)
    yield from _Search(lake, ref, request, ends, judge or Judge()).run()


class Bisects:
    """Searches with what they judged and answered before, shared by all viewers; thread-safe.

    A result is found again by ends, table id at the newer one, condition and checks: what was not asked for is not in
    it.
    """

    def __init__(self) -> None:
        self._judge = Judge()
        self._results: Lru[tuple[str, str, str, int | None, int, int, Hidden | None], Bisection] = Lru(MOST_RESULTS)

    def over(self, lake: Lake, ref: TableRef, request: BisectRequest) -> Iterator[BisectProgress]:
        """As `bisect`."""
        with closing(bisect(lake, ref, request, judge=self._judge)) as steps:
            for step in steps:
                if (result := step.result) is not None:
                    for good in {result.good} | ({None} if request.good in (None, OLDEST) else set()):
                        key = ref.uri, result.table_id, request.condition.strip(), good, result.bad, request.check
                        self._results.put((*key, lake.hidden(ref)), result)
                yield step

    def known(self, lake: Lake, ref: TableRef, request: BisectRequest) -> Bisection | None:
        """The finished result of this search, None when there is none; raises what `resolve_version` and `snapshot`
        raise."""
        good, bad = (named_version(lake, ref, end, request.clock) for end in (request.good, request.bad))
        bad = lake.latest_version(ref) if bad is None else bad
        table_id = lake.snapshot(ref, max(bad, good or 0)).metadata.id  # of the latest, where it was replaced since
        key = ref.uri, table_id, request.condition.strip(), good, bad, request.check, lake.hidden(ref)
        return self._results.get(key)


# the two ends --------------------------------------------------------------------------------------------------------


def named_version(lake: Lake, ref: TableRef, text: str | int | None, clock: Clock) -> int | None:
    """The version that somebody named; None for nothing and for `oldest`."""
    return None if text is None or str(text).strip().lower() == OLDEST else resolve_version(lake, ref, text, clock)


def _find_ends(lake: Lake, ref: TableRef, request: BisectRequest) -> Generator[BisectProgress, None, tuple[int, int]]:
    """The good and the bad version. Raises `QueryError` for a condition that does not fit the table, and `BisectError`
    for equal ends."""
    good, bad = (named_version(lake, ref, end, request.clock) for end in (request.good, request.bad))
    if bad is None:
        bad = lake.latest_version(ref)
    newest = max(bad, good or 0)
    yield from _aside(
        BisectProgress((), f"reading the log up to v{newest}", newest),
        lambda _: check_condition(request.condition, lake.snapshot(ref, newest)),
    )
    if good is None:
        doing = BisectProgress((), "looking for the oldest version that can be judged")
        good = yield from _aside(doing, lambda stopped: _oldest(lake, ref, request.condition, bad, stopped))
    if good == bad:
        raise BisectError(
            f"v{good} was given as good and as bad", hint="the search needs two versions between which it changed"
        )
    return good, bad


def _aside(doing: BisectProgress, ask: Callable[[threading.Event], Value]) -> Generator[BisectProgress, None, Value]:
    """What `ask` gives or raises, in a thread that whoever waits can leave; it is told by the event that they did."""
    stopped = threading.Event()
    with Work(lambda: ask(stopped), stopped.set) as work:  # the log is read in one go, with nobody waiting any more
        yield doing
        while still_runs(work, doing.doing, limit_s=_LONGEST_S):
            yield doing
    return work.result()


def _oldest(lake: Lake, ref: TableRef, text: str, bad: int, stopped: threading.Event) -> int:
    """The oldest version before `bad` that can be judged, taken to be so from there on: it has the condition's columns,
    and its files are there."""

    def can_be_judged(version: int) -> bool:
        if stopped.is_set():
            raise Stopped
        try:
            snapshot = lake.snapshot(ref, version)
            if not check_condition(text, snapshot).columns and snapshot.num_rows is not None:
                return True
            return not any(seen.missing for seen in lake.see_files(ref, version, sample=None))
        except LakehouseError:
            return False

    versions = [v for first, last in lake.versions(ref) for v in range(first, min(last, bad - 1) + 1)]
    if versions and can_be_judged(versions[0]):
        return versions[0]
    place = bisect_left(versions, True, lo=1, key=can_be_judged) if versions else 0
    if place >= len(versions):
        raise BisectError(
            f"no version before v{bad} of {ref.name} can be judged",
            hint="their data files are gone, or they lack a column: name a good version that is still whole",
        )
    return versions[place]


def _require_opposite(good: Probe, bad: Probe) -> None:
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


# the search ----------------------------------------------------------------------------------------------------------


class _Search:
    """One search. `low` and `high` are the ends by age; the change sought is from the outcome at `low` to its
    opposite."""

    def __init__(self, lake: Lake, ref: TableRef, request: BisectRequest, ends: tuple[int, int], judge: Judge) -> None:
        self._lake, self._ref, self._judge = lake, ref, judge
        self._condition = request.condition.strip()
        self._good, self._bad = ends
        self._low, self._high = min(ends), max(ends)
        self._before = ProbeOutcome.GOOD if self._good < self._bad else ProbeOutcome.BAD
        self._table_id = lake.snapshot(ref, self._high).metadata.id
        spans = ((max(first, self._low), min(last, self._high)) for first, last in lake.versions(ref))
        self._readable = sorted(version for first, last in spans for version in range(first, last + 1))
        self._commits: dict[int, Commit] = {}
        self._changing: Sequence[int] = ()  # commits that may have changed rows
        self._probes: list[Probe] = []
        self._outcomes: dict[int, ProbeOutcome] = {}
        self._skipped: set[int] = set()
        self._check, self._checks_left = request.check, 2 * request.check

    def run(self) -> Steps:
        ends = []
        for version, name in ((self._good, ProbeOutcome.GOOD), (self._bad, ProbeOutcome.BAD)):
            probe = yield from self._probe(version, Purpose.END)
            if (error := probe.number.error) is not None:
                end = f"v{version}, the {name} end"
                if isinstance(error, QueryError):
                    raise QueryError(f"{error.message}, at {end}", hint=error.hint, position=error.position)
                hint = error.hint or f"name another {name} version"
                raise BisectError(f"{end}, cannot be judged: {error.message}", hint=hint)
            ends.append(probe)
        _require_opposite(*ends)
        commits = yield from _aside(
            self._step("reading the commits in between", None),
            lambda _: self._lake.history(self._ref, starting_version=self._low + 1, ending_version=self._high),
        )
        self._commits |= {commit.version: commit for commit in commits}
        between = range(self._low + 1, self._high + 1)
        self._changing = [v for v in between if v not in self._commits or self._commits[v].may_change_rows]
        yield from self._narrow()
        for version in self._checks():
            yield from self._probe(version, Purpose.CHECK)
        yield from self._narrow()  # a check may have seen an older change
        yield from self._finish()

    def _change(self) -> tuple[int, int]:
        """The oldest change seen: the probed versions before and after it."""
        for older, newer in pairwise(sorted(self._outcomes)):
            if self._outcomes[older] is self._before is not self._outcomes[newer]:
                return older, newer
        return self._low, self._high

    def _narrow(self) -> Steps:
        """Halve the oldest change until no version within can be judged. A later OPTIMIZE stands for the rows of a
        version that is gone, and what says that it moved no row is not believed."""
        tried = 0
        while len(self._skipped) < MOST_SKIPPED:
            low, high = self._change()
            within = self._readable[bisect_right(self._readable, low) : bisect_left(self._readable, high)]
            inside = [version for version in within if version not in self._skipped]
            if not inside:
                return
            place = int((0.5 + tried * _AWAY) % 1 * len(inside))
            probe = yield from self._probe(inside[place], Purpose.SEARCH)
            tried = tried + 1 if probe.outcome is ProbeOutcome.SKIPPED else 0

    def _checks(self) -> list[int]:
        """On each side of the change a few versions, evenly spread among those that nobody looked at."""
        low, high = self._change()
        looked_at, readable = self._outcomes.keys() | self._skipped, set(self._readable)
        open_ones = [v for v in self._changing if v in readable and v not in looked_at]
        sides = [v for v in open_ones if v < low], [v for v in open_ones if v > high]
        places = [(side, min(self._check, len(side))) for side in sides]
        return [side[(2 * number + 1) * len(side) // (2 * count)] for side, count in places for number in range(count)]

    def _probe(self, version: int, purpose: Purpose) -> Generator[BisectProgress, None, Probe]:
        started_s = time.monotonic()
        if version not in self._commits:
            commits = self._lake.history(self._ref, limit=1, starting_version=version, ending_version=version)
            self._commits |= {commit.version: commit for commit in commits}
        commit = self._commits.get(version)
        number = yield from self._number(self._judge.verdicts, version, f"judging v{version}")
        probe = Probe(
            number,
            purpose,
            committed_at=commit.committed_at if commit else None,
            operation=commit.operation if commit else None,
            duration_s=time.monotonic() - started_s,
        )
        self._probes.append(probe)
        self._checks_left -= purpose is Purpose.CHECK
        if probe.outcome is ProbeOutcome.SKIPPED:
            self._skipped.add(version)
        else:
            self._outcomes[version] = probe.outcome
        yield self._step(f"judged v{version}", None)
        return probe

    def _number(
        self, numbers: Numbers[Value], version: int, doing: str
    ) -> Generator[BisectProgress, None, VersionValue[Value]]:
        """The condition's number at one version."""
        values: tuple[VersionValue[Value], ...] = ()
        with closing(numbers.over(self._lake, self._ref, self._condition, [version])) as steps:
            for step in steps:
                values = step.values
                yield self._step(doing, version, step.rows_read)
        return values[0]

    def _step(self, doing: str, version: int | None, rows_read: int = 0) -> BisectProgress:
        """`at_most_left` is without the version that is judged now."""
        low, high = self._change()
        ends = max(0, 2 - len(self._probes))
        untouched = self._high - self._low + 1 - len(self._probes)
        left = min(ends + (high - low - 1).bit_length() + self._checks_left, untouched)
        left = max(0, left - (version is not None))
        return BisectProgress(tuple(self._probes), doing, version, rows_read, left)

    # the answer -------------------------------------------------------------------------------------------------

    def _finish(self) -> Steps:
        newest = self._lake.snapshot(self._ref, self._high)
        if newest.metadata.id != self._table_id:
            raise BisectError(
                f"{self._ref.name} was re-created during the search: its id was {self._table_id} and is "
                f"{newest.metadata.id}",
                hint="search again",
            )
        older_id = self._lake.snapshot(self._ref, self._low).metadata.id
        condition = check_condition(self._condition, newest)
        result = self._result(condition, older_id=None if older_id == self._table_id else older_id)
        if condition.row_rule or condition.unique:
            doing = f"reading rows of v{result.bad_seen} that break it"
            number = yield from self._number(self._judge.examples, result.bad_seen, doing)
            result = replace(result, examples=number.value or Examples())
        yield BisectProgress(result.probes, "done", None, at_most_left=0, result=result)

    def _result(self, condition: VersionCondition, *, older_id: str | None) -> Bisection:
        last, first_seen = self._change()
        between = self._changing[bisect_right(self._changing, last) : bisect_right(self._changing, first_seen)]
        candidates = tuple(between or range(last + 1, first_seen + 1))
        return Bisection(
            ref=self._ref,
            table_id=self._table_id,
            condition=self._condition,
            by_row=condition.by_row,
            row_rule=condition.row_rule,
            good=self._good,
            bad=self._bad,
            probes=tuple(self._probes),
            last=last,
            first_seen=first_seen,
            candidates=candidates,
            commits=tuple(self._commits[v] for v in candidates if v in self._commits),
            again=tuple(v for v in sorted(self._outcomes) if v > first_seen and self._outcomes[v] is self._before),
            changing=len(self._changing),
            unprobed=sum(v not in self._outcomes for v in self._changing),
            older_id=older_id,
        )
