"""The first version that breaks a condition (or mends it): a search over the condition's numbers over versions.

Rule: the commits that changed rows are halved. A version that cannot be judged is skipped and said, and the answer is
then a range. A commit that says it moved no row is believed until a probe beside the answer disagrees. Nothing is
claimed beyond what was probed.
"""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

from backend.errors import BisectError
from backend.lake.model import Commit, TableRef
from backend.lru import Lru
from backend.search.condition import VersionCondition, check_condition
from backend.search.ends import BisectLake, find_ends, named_version, require_judged, require_opposite
from backend.search.judge import Judge
from backend.search.model import (
    OLDEST,
    Bisection,
    BisectProgress,
    BisectRequest,
    Examples,
    Probe,
    ProbeOutcome,
    Purpose,
)
from backend.sql.numbers import Numbers, VersionValue

MOST_RESULTS = 256
MOST_SKIPPED = 64  # then the answer is the range that is left
_PAGE = 500  # commits read at once

Steps = Generator[BisectProgress, None, None]
Value = TypeVar("Value")


def bisect(lake: BisectLake, ref: TableRef, request: BisectRequest, *, judge: Judge | None = None) -> Steps:
    """Search, telling each step; the last one has the result. Close the iterator to cancel: it ends within a second.

    Raises `QueryError` for a condition that is refused, and `VersionNotFoundError` for an end that is not there. Raises
    `BisectError` for one that is not as it was said to be.
    """
    yield BisectProgress((), "looking for the two ends")
    good, bad = yield from find_ends(lake, ref, request)
    yield from _Search(lake, ref, request, ends=(good, bad), judge=judge or Judge()).run()


class Bisects:
    """Searches with what they judged and answered before, shared by all viewers; thread-safe.

    A result is found again by ends, table id at the newer one, condition and checks: what was not asked for is not in
    it.
    """

    def __init__(self) -> None:
        self._judge = Judge()
        self._results: Lru[tuple[str, str, str, int | None, int, int], Bisection] = Lru(MOST_RESULTS)

    def over(self, lake: BisectLake, ref: TableRef, request: BisectRequest) -> Iterator[BisectProgress]:
        """As `bisect`."""
        with closing(bisect(lake, ref, request, judge=self._judge)) as steps:
            for step in steps:
                if step.result is not None:
                    self._keep(request, step.result)
                yield step

    def known(self, lake: BisectLake, ref: TableRef, request: BisectRequest) -> Bisection | None:
        """The finished result of this search, None when there is none; raises what `resolve_version` and `snapshot`
        raise."""
        good, bad = (named_version(lake, ref, end, request.clock) for end in (request.good, request.bad))
        bad = lake.latest_version(ref) if bad is None else bad
        table_id = lake.snapshot(ref, max(bad, good or 0)).metadata.id  # of the latest, where it was replaced since
        return self._results.get((ref.uri, table_id, request.condition.strip(), good, bad, request.check))

    def _keep(self, request: BisectRequest, result: Bisection) -> None:
        for good in {result.good} | ({None} if request.good in (None, OLDEST) else set()):
            key = result.ref.uri, result.table_id, request.condition.strip(), good, result.bad, request.check
            self._results.put(key, result)


class _Search:
    """One search. `low` and `high` are the ends by age; the change sought is from the outcome at `low` to its
    opposite."""

    def __init__(
        self, lake: BisectLake, ref: TableRef, request: BisectRequest, *, ends: tuple[int, int], judge: Judge
    ) -> None:
        self._lake, self._ref, self._request, self._judge = lake, ref, request, judge
        self._condition = request.condition.strip()
        self._good, self._bad = ends
        self._low, self._high = min(ends), max(ends)
        self._before = ProbeOutcome.GOOD if self._good < self._bad else ProbeOutcome.BAD
        self._table_id = lake.snapshot(ref, self._high).metadata.id
        self._spans = lake.versions(ref)
        self._commits: dict[int, Commit] = {}
        self._changing: Sequence[int] = range(self._low + 1, self._high + 1)  # until the commits are read
        self._probes: list[Probe] = []
        self._outcomes: dict[int, ProbeOutcome] = {}
        self._skipped: set[int] = set()
        self._budget = [request.check, request.check]  # checks below and above the change

    def run(self) -> Steps:
        ends = []
        for version, name in ((self._good, ProbeOutcome.GOOD), (self._bad, ProbeOutcome.BAD)):
            probe = yield from self._probe(version, Purpose.END)
            require_judged(probe, name)
            ends.append(probe)
        require_opposite(*ends)
        yield from self._read_commits()
        yield from self._search()
        yield from self._finish()

    def _search(self) -> Steps:
        """Narrow the oldest change that is known, and check beside it, until nothing is left to check."""
        while True:
            yield from self._narrow(lambda: self._changing)
            yield from self._narrow(self._stand_ins)
            if not self._changed_between(*self._change()):  # a commit that says it moved no row did
                yield from self._narrow(lambda: range(self._low + 1, self._high))
            version = self._next_check()
            if version is None:
                return
            yield from self._probe(version, Purpose.CHECK)

    # what is known ----------------------------------------------------------------------------------------------

    def _change(self) -> tuple[int, int]:
        """The oldest change seen: the probed versions before and after it."""
        for older, newer in pairwise(sorted(self._outcomes)):
            if self._outcomes[older] is self._before is not self._outcomes[newer]:
                return older, newer
        return self._low, self._high

    def _changed_between(self, low: int, high: int) -> Sequence[int]:
        """The commits that changed rows after `low`, up to `high`."""
        return self._changing[bisect_right(self._changing, low) : bisect_right(self._changing, high)]

    def _candidates(self) -> tuple[int, ...]:
        low, high = self._change()
        return tuple(self._changed_between(low, high) or range(low + 1, high + 1))

    def _is_open(self, version: int) -> bool:
        """Whether it was not looked at and can be reconstructed."""
        if version in self._outcomes or version in self._skipped:
            return False
        span = bisect_right(self._spans, version, key=lambda span: span[0]) - 1
        return span >= 0 and version <= self._spans[span][1]

    def _stand_ins(self) -> Sequence[int]:
        """Versions with the rows of one that nobody could judge: a later OPTIMIZE may have written them anew."""
        low, high = self._change()
        heads, same = [*self._changed_between(low, high), high + 1], []
        for head, following in pairwise(heads):
            versions = range(head, following)
            if not any(version in self._outcomes for version in versions):
                same += [version for version in versions if self._is_open(version)]
        return same

    # probing ----------------------------------------------------------------------------------------------------

    def _narrow(self, pool_now: Callable[[], Sequence[int]]) -> Steps:
        """Halve the oldest change by versions of the pool, until none of them lies within."""
        tried = 0
        while len(self._skipped) < MOST_SKIPPED:
            (low, high), pool = self._change(), pool_now()
            inside = [v for v in pool[bisect_right(pool, low) : bisect_left(pool, high)] if self._is_open(v)]
            if not inside:
                return
            probe = yield from self._probe(inside[int(_fraction(tried) * len(inside))], Purpose.SEARCH)
            tried = tried + 1 if probe.outcome is ProbeOutcome.SKIPPED else 0

    def _next_check(self) -> int | None:
        """Beside the culprit first; then the middle of the widest stretches that nobody looked into, on both sides."""
        low, high = self._change()
        if not self._request.check:
            return None
        for version in self._beside():
            if low < version < high and self._is_open(version):
                return version
        judged = sorted(self._outcomes)
        for side, versions in enumerate(([v for v in judged if v <= low], [v for v in judged if v >= high])):
            middle = self._middle_of_widest(versions) if self._budget[side] else None
            if middle is not None:
                self._budget[side] -= 1
                return middle
        return None

    def _beside(self) -> tuple[int, ...]:
        """The culprit and the version before it, once there is one."""
        candidates = self._candidates()
        return (candidates[0] - 1, candidates[0]) if len(candidates) == 1 else ()

    def _middle_of_widest(self, judged: Sequence[int]) -> int | None:
        stretches = [
            [v for v in self._changed_between(older, newer - 1) if self._is_open(v)]
            for older, newer in pairwise(judged)
        ]
        widest = max(stretches, key=len, default=[])
        return widest[len(widest) // 2] if widest else None

    def _probe(self, version: int, purpose: Purpose) -> Generator[BisectProgress, None, Probe]:
        commit, started_s = self._commit(version), time.monotonic()
        number = yield from self._number(
            self._judge.verdicts, version, f"judging v{version}", self._at_most_left(purpose)
        )
        probe = Probe(
            number,
            purpose,
            committed_at=commit.committed_at if commit else None,
            operation=commit.operation if commit else None,
            duration_s=time.monotonic() - started_s,
        )
        self._probes.append(probe)
        if probe.outcome is ProbeOutcome.SKIPPED:
            self._skipped.add(version)
        else:
            self._outcomes[version] = probe.outcome
        yield self._step(f"judged v{version}", None, self._at_most_left())
        return probe

    def _number(
        self, numbers: Numbers[Value], version: int, doing: str, at_most_left: int
    ) -> Generator[BisectProgress, None, VersionValue[Value]]:
        """The condition's number at one version."""
        values: tuple[VersionValue[Value], ...] = ()
        with closing(numbers.over(self._lake, self._ref, self._condition, [version])) as steps:
            for step in steps:
                values = step.values
                yield self._step(doing, version, at_most_left, step.rows_read)
        return values[0]

    def _step(
        self, doing: str, version: int | None, at_most_left: int | None = None, rows_read: int = 0
    ) -> BisectProgress:
        return BisectProgress(tuple(self._probes), doing, version, rows_read, at_most_left)

    def _at_most_left(self, running: Purpose | None = None) -> int:
        """Probes after the one that runs, unless some have to be skipped or disagree."""
        low, high = self._change()
        inside = len(self._changed_between(low, high - 1)) - sum(low < version < high for version in self._skipped)
        ends = sum(end not in self._outcomes for end in (self._low, self._high))
        beside = 2 if inside else sum(low < v < high and self._is_open(v) for v in self._beside())
        checks = (beside if self._request.check else 0) + sum(self._budget)
        untouched = self._high - self._low - 1 - len(self._outcomes) - len(self._skipped) + 2 - ends
        left = min(max(0, inside).bit_length() + checks, untouched)
        return max(0, left + ends - (running is not None and running is not Purpose.CHECK))

    # commits ----------------------------------------------------------------------------------------------------

    def _read_commits(self) -> Steps:
        for newest in range(self._high, self._low, -_PAGE):
            oldest = max(self._low + 1, newest - _PAGE + 1)
            yield self._step(f"reading the commits v{oldest} to v{newest}", None, self._at_most_left())
            page = self._lake.history(self._ref, starting_version=oldest, ending_version=newest)
            self._commits |= {commit.version: commit for commit in page}
        between = range(self._low + 1, self._high + 1)
        self._changing = [v for v in between if v not in self._commits or self._commits[v].may_change_rows]

    def _commit(self, version: int) -> Commit | None:
        if version not in self._commits:
            commits = self._lake.history(self._ref, limit=1, starting_version=version, ending_version=version)
            self._commits |= {commit.version: commit for commit in commits}
        return self._commits.get(version)

    # the answer -------------------------------------------------------------------------------------------------

    def _finish(self) -> Steps:
        newest = self._lake.snapshot(self._ref, self._high)
        if newest.metadata.id != self._table_id:
            raise BisectError(
                f"{self._ref.name} was made anew during the search: its id was {self._table_id} and is "
                f"{newest.metadata.id}",
                hint="search again",
            )
        older_id = self._lake.snapshot(self._ref, self._low).metadata.id
        condition = check_condition(self._condition, newest)
        result = self._result(condition, older_id=None if older_id == self._table_id else older_id)
        if condition.row_rule or condition.unique:
            doing = f"reading rows of v{result.bad_seen} that break it"
            number = yield from self._number(self._judge.examples, result.bad_seen, doing, 0)
            result = replace(result, examples=number.value or Examples())
        yield BisectProgress(result.probes, "done", None, at_most_left=0, result=result)

    def _result(self, condition: VersionCondition, *, older_id: str | None) -> Bisection:
        (last, first_seen), candidates = self._change(), self._candidates()
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


def _fraction(tried: int) -> float:
    """1/2, 1/4, 3/4, 1/8, 5/8 …: away from a version that was skipped, for its neighbours often are as it is."""
    number, fraction, step = tried + 1, 0.0, 0.5
    while number:
        fraction += step * (number & 1)
        number, step = number >> 1, step / 2
    return fraction
