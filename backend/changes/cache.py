"""Differences that were found or are being found, for every viewer of a process.

Rule: a question is answered once: its answer is kept, and whoever asks while it is computed waits for the same
computation, which ends when the last one leaves. What may heal (a file that is gone, a storage that is down) is kept
for moments only.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from backend.caches import Lru
from backend.changes.answer import diff, outline
from backend.changes.model import DiffMethod, Question, VersionDiff
from backend.changes.plan import DiffPlan, prepare
from backend.lake.lake import Lake
from backend.lake.model import Hidden
from backend.sql.session import CancelToken
from backend.work import Stopped, Work

SMALL_BYTES = 50_000_000  # up to here rows are compared unasked
SMALL_FEED_COMMITS, SMALL_FEED_ROWS = 100, 1_000_000
_POLL_S = 0.1
Value = TypeVar("Value")
Asked = tuple[Question, tuple[Hidden | None, ...]]  # with what whoever asks may not see of its tables
_Cache: TypeAlias = Lru[Asked, tuple[Value, float]]  # until when it is fresh
Compute = Callable[[Lake, Question, CancelToken], VersionDiff]


def after(seconds: float, act: Callable[[], object]) -> None:
    """Act once so many seconds have gone by, in a thread that no process waits for."""
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """At most so many `answers` are cached, and as many log parts. One without rows is tried again after
    `heals_after_s`. A page that reruns leaves and comes back within `grace_s`. `at_once` computations run, each with
    its share of memory; more wait."""

    answers: int = 64
    heals_after_s: float = 30.0
    grace_s: float = 3.0
    at_once: int = 2


@dataclass(frozen=True, slots=True)
class LogPart:
    """What the log alone tells. `possible` is the plan without a method named and without a limit of bytes; `columns`
    can be compared."""

    plan: DiffPlan
    possible: DiffPlan
    outline: VersionDiff
    columns: tuple[str, ...]

    @property
    def is_small(self) -> bool:
        """Whether comparing rows is so little work that nobody needs to ask for it."""
        plan, outline = self.plan, self.outline
        if plan.method is not DiffMethod.CHANGE_FEED:
            return (plan.bytes_to_read or 0) <= SMALL_BYTES
        commits = outline.commits
        reported = sum((each.inserted or 0) + 2 * (each.updated or 0) + (each.deleted or 0) for each in commits)
        moved = outline.log.files.bytes_added + outline.log.files.bytes_removed
        return len(commits) <= SMALL_FEED_COMMITS and reported <= SMALL_FEED_ROWS and moved <= 2 * SMALL_BYTES


@dataclass(frozen=True, slots=True)
class DiffProgress:
    """How far a computation is; `result` when it ended. `rows_total` is None where it is not known before."""

    rows_read: int
    rows_total: int | None
    elapsed_s: float
    is_waiting: bool = False
    result: VersionDiff | None = None


class Differences:
    """Thread-safe. `time_limit_s` is for one computation, without the time that it waits for its turn; `learn` is
    called with each answer. `clock` (monotonic seconds) and `after` are a test's own where time must not decide."""

    def __init__(
        self,
        time_limit_s: float | None = None,
        compute: Compute = diff,
        learn: Callable[[VersionDiff], None] | None = None,
        limits: CacheLimits = CacheLimits(),
        *,
        clock: Callable[[], float] = time.monotonic,
        after: Callable[[float, Callable[[], object]], None] = after,
    ) -> None:
        self._limits, self._clock, self._after = limits, clock, after
        self.compute = compute
        self._time_limit_s, self._learn = time_limit_s, learn
        self._lock = threading.Lock()
        self._turns = threading.Semaphore(limits.at_once)
        self._answers: _Cache[VersionDiff] = Lru(limits.answers)
        self._log_parts: _Cache[LogPart] = Lru(limits.answers)
        self._running: dict[Asked, _Run] = {}

    def known(self, lake: Lake, question: Question) -> VersionDiff | None:
        """The finished answer, None when there is none."""
        return self._fresh(self._answers, _asked(lake, question))

    def log_part(self, lake: Lake, question: Question) -> LogPart:
        """What the log tells, milliseconds; raises as `prepare` does."""
        asked = _asked(lake, question)
        part = self._fresh(self._log_parts, asked)
        if part is None:
            free = prepare(lake, replace(question, method=None, columns=None, max_bytes=None, where=None))
            is_free = (question.method, question.columns, question.where) == (None, None, None)
            if question.max_bytes is not None and (free.plan.bytes_to_read or 0) > question.max_bytes:
                is_free = False
            chosen = free if is_free else prepare(lake, question)
            part = LogPart(chosen.plan, free.plan, outline(chosen), free.columns)
            self._put(self._log_parts, asked, part, may_heal=not part.outline.is_available)
        return part

    def over(self, lake: Lake, question: Question) -> Iterator[DiffProgress]:
        """Compute, or join who computes it, telling how far it is ten times a second; close the iterator to leave.
        Raises as `diff` does."""
        known = self.known(lake, question)
        if known is not None:
            yield DiffProgress(0, None, 0.0, result=known)
            return
        asked, run = self._join(lake, question)
        try:
            while not run.work.ended(_POLL_S):
                yield run.progress()
            result = run.work.result()
        except Stopped:
            return
        finally:
            self._leave(asked, run)
        yield replace(run.progress(), result=result)

    def soon(self, lake: Lake, question: Question, within_s: float) -> VersionDiff | None:
        """The answer if it is there within so many seconds; else it is computed on for whoever comes for it at once."""
        if (known := self.known(lake, question)) is not None:
            return known
        asked, run = self._join(lake, question)
        try:
            run.work.ended(within_s)
        finally:
            self._leave(asked, run)
        return self._fresh(self._answers, asked)

    def abandon(self, lake: Lake, question: Question) -> None:
        """Stop computing it, unless somebody waits for it."""
        asked = _asked(lake, question)
        with self._lock:
            run = self._running.get(asked)
        if run is not None:
            self._stop_if_alone(run)

    def _join(self, lake: Lake, question: Question) -> "tuple[Asked, _Run]":
        asked = _asked(lake, question)
        with self._lock:
            run = self._running.get(asked)
            if run is None or run.token.is_stopped or run.work.ended():
                run = _Run(lambda run: self._compute(lake, asked, run))
                self._running[asked] = run
            run.viewers += 1
            return asked, run

    def _leave(self, asked: Asked, run: "_Run") -> None:
        with self._lock:
            run.viewers -= 1
            is_over = run.work.ended()
            if is_over and self._running.get(asked) is run:
                del self._running[asked]
            if is_over or run.viewers:
                return
        self._after(self._limits.grace_s, lambda: self._stop_if_alone(run))

    def _stop_if_alone(self, run: "_Run") -> None:
        with self._lock:
            if not run.viewers and not run.token.is_stopped:  # once: the next interrupt would meet its last words
                run.work.stop()

    def _compute(self, lake: Lake, asked: Asked, run: "_Run") -> VersionDiff:
        try:
            while not self._turns.acquire(timeout=_POLL_S):
                run.token.check()
            try:
                if (
                    known := self._fresh(self._answers, asked)
                ) is not None:  # found between a viewer's look and this thread
                    return known
                run.begin(self._time_limit_s)
                answer = self.compute(lake, asked[0], run.token)
            finally:
                self._turns.release()
            if self._learn is not None:
                self._learn(answer)
            self._put(self._answers, asked, answer, may_heal=not answer.is_available)
            return answer
        finally:
            with self._lock:
                if not run.viewers and self._running.get(asked) is run:
                    del self._running[asked]

    def _put(self, cache: "_Cache[Value]", asked: Asked, value: Value, *, may_heal: bool) -> None:
        cache.put(asked, (value, self._clock() + self._limits.heals_after_s if may_heal else math.inf))

    def _fresh(self, cache: "_Cache[Value]", asked: Asked) -> Value | None:
        value, fresh_until = cache.get(asked) or (None, math.inf)
        return value if self._clock() <= fresh_until else None


def _asked(lake: Lake, question: Question) -> Asked:
    tables = (question.ref, question.against, question.look_in)
    return question, tuple(lake.hidden(table) for table in tables if table is not None)


class _Run:
    """One computation and who waits for it."""

    def __init__(self, compute: Callable[["_Run"], VersionDiff]) -> None:
        self.viewers = 0
        self.token = CancelToken()
        self._is_waiting = True
        self.work = Work(lambda: compute(self), self.token.stop)

    def begin(self, time_limit_s: float | None) -> None:
        """Its turn: the limit counts from here."""
        self._is_waiting = False
        self.token.begin(time_limit_s)

    def progress(self) -> DiffProgress:
        token = self.token
        return DiffProgress(token.rows_so_far(), token.rows_total, self.work.elapsed_s, self._is_waiting)
