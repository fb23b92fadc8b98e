"""Work on many versions of a table, one after the other, in a thread that whoever waits can leave.

Rule: it reports at least ten times a second; closing the iterator ends the work at once for the caller, and the thread
as soon as its task can be stopped. A version that fails keeps its reason and hides no other.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from backend.errors import LakehouseError, QueryError
from backend.work import Work

TIME_LIMIT_S = 120.0  # a version
_POLL_S = 0.1


class Stopped(Exception):
    """The work was stopped from outside."""


class Task(Protocol):
    """The work on one version."""

    @property
    def rows_read(self) -> int: ...
    def run(self) -> Any: ...
    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class VersionValue:
    """What was found at one version; `problem` says why there is nothing."""

    version: int
    value: Any = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is: `values` oldest first, the version in work and the rows read of it."""

    values: tuple[VersionValue, ...]
    total: int
    version: int | None = None
    rows_read: int = 0

    @property
    def is_done(self) -> bool:
        return len(self.values) >= self.total


def over_versions(versions: Sequence[int], task_of: Callable[[int], Task]) -> Generator[Progress, None, None]:
    """Run the task of each version; raises `QueryError` when one takes longer than `TIME_LIMIT_S`."""
    values: list[VersionValue] = []
    for version in versions:
        yield Progress(tuple(values), len(versions), version)
        work = _Work(version, task_of(version))
        try:
            while not work.ended(_POLL_S):
                yield Progress(tuple(values), len(versions), version, work.task.rows_read)
        finally:
            work.leave()
        values.append(work.result())
    yield Progress(tuple(values), len(versions))


def spread(spans: Sequence[tuple[int, int]], most: int, *, within: tuple[int, int] | None = None) -> tuple[int, ...]:
    """At most `most` versions out of runs (first, last), evenly spread, the first and the last always among them."""
    low, high = within or (0, max((last for _, last in spans), default=0))
    cut = [(max(first, low), min(last, high)) for first, last in spans if first <= high and last >= low]
    total = sum(last - first + 1 for first, last in cut)
    if total <= most:
        return tuple(version for first, last in cut for version in range(first, last + 1))
    places = [round(number * (total - 1) / max(1, most - 1)) for number in range(most)]
    chosen, passed, run = [], 0, 0
    for place in places if most > 1 else [total - 1]:
        while place - passed > cut[run][1] - cut[run][0]:
            passed += cut[run][1] - cut[run][0] + 1
            run += 1
        chosen.append(cut[run][0] + place - passed)
    return tuple(dict.fromkeys(chosen))


class _Work:
    """One version's task in a thread of its own."""

    def __init__(self, version: int, task: Task) -> None:
        self.task = task
        self._version = version
        self._work = Work(self._run, task.stop)

    def ended(self, seconds: float) -> bool:
        """Whether it ended within so many seconds."""
        if self._work.ended(seconds):
            return True
        if self._work.elapsed_s > TIME_LIMIT_S:
            raise QueryError(
                f"version {self._version} took longer than {TIME_LIMIT_S:.0f} s and was stopped",
                hint="ask for less: fewer columns, or fewer versions",
            )
        return False

    def leave(self) -> None:
        self._work.stop()

    def result(self) -> VersionValue:
        return self._work.result()

    def _run(self) -> VersionValue:
        try:
            return VersionValue(self._version, self.task.run())
        except LakehouseError as exc:
            return VersionValue(self._version, problem=exc.message)
        except Stopped:
            return VersionValue(self._version, problem="stopped")
