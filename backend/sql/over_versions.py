"""Work on versions of a table, one after the other, in a thread that whoever waits can leave.

Rule: it reports ten times a second; leaving ends the work at once for the caller, and the thread as soon as its task
can be stopped. A version that fails keeps its reason and hides no other. As a version never changes, its value is
computed once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from backend.errors import LakehouseError, QueryError
from backend.lake.model import Snapshot, SnapshotReader, TableRef
from backend.lru import Lru
from backend.sql.session import Computation
from backend.work import Stopped, Work

TIME_LIMIT_S = 120.0  # a version
MOST_VALUES = 20_000
_POLL_S = 0.1

Key = tuple[str, str, int, str]
Value = TypeVar("Value")


class ScannedLake(SnapshotReader, Protocol):
    """The part of `backend.lake.lake.Lake` that the rows of a version need."""

    def scan(self, snapshot: Snapshot, columns: Sequence[str]) -> pa.RecordBatchReader: ...

    def read_files(
        self, snapshot: Snapshot, files: pa.Table, *, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader: ...


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
    """Run the task of each version; raises as `still_runs` does."""
    values: list[VersionValue] = []
    for version in versions:
        yield Progress(tuple(values), len(versions), version)
        task = task_of(version)
        with begin(version, task) as work:
            while still_runs(work, version):
                yield Progress(tuple(values), len(versions), version, task.rows_read)
        values.append(work.result())
    yield Progress(tuple(values), len(versions))


def begin(version: int, task: Task) -> Work[VersionValue]:
    """One version's task in a thread of its own; what fails becomes the value's `problem`."""

    def run() -> VersionValue:
        try:
            return VersionValue(version, task.run())
        except LakehouseError as exc:
            return VersionValue(version, problem=exc.message)
        except Stopped:
            return VersionValue(version, problem="stopped")

    return Work(run, task.stop)


def still_runs(work: Work[Any], version: int) -> bool:
    """Wait a moment for the work on a version; raises `QueryError` once it took longer than `TIME_LIMIT_S`."""
    if work.ended(_POLL_S):
        return False
    if work.elapsed_s > TIME_LIMIT_S:
        raise QueryError(
            f"version {version} took longer than {TIME_LIMIT_S:.0f} s and was stopped",
            hint="ask for less: fewer columns, or fewer versions",
        )
    return True


class VersionCache:
    """Values by table, version and what was asked. Thread-safe."""

    def __init__(self, most: int = MOST_VALUES) -> None:
        self._values: Lru[Key, VersionValue] = Lru(most)

    def known(self, snapshot: Snapshot, what: str, versions: Sequence[int]) -> tuple[VersionValue, ...]:
        """What is known of these versions of the snapshot's table, in their order."""
        return tuple(self._values.find(_key(snapshot, version, what) for version in versions).values())

    def put(self, snapshot: Snapshot, what: str, value: Any) -> None:
        self._values.put(_key(snapshot, snapshot.version, what), VersionValue(snapshot.version, value))


class VersionTask(ABC, Generic[Value]):
    """One version's value, computed once. `stop` ends a computation; a log is read to its end, with nobody waiting."""

    def __init__(self, lake: SnapshotReader, ref: TableRef, version: int, *, cache: VersionCache, what: str) -> None:
        self._lake, self._ref, self._version = lake, ref, version
        self._cache, self._what = cache, what
        self.computation = Computation()

    @property
    def rows_read(self) -> int:
        return self.computation.rows_read

    def stop(self) -> None:
        self.computation.stop()

    def run(self) -> Value:
        snapshot = self._lake.snapshot(self._ref, self._version)
        for known in self._cache.known(snapshot, self._what, [snapshot.version]):
            return self.recall(known.value)
        value = self.compute(snapshot)
        self._cache.put(snapshot, self._what, value)
        return value

    def recall(self, value: Value) -> Value:
        """What was computed before, as it is given now."""
        return value

    @abstractmethod
    def compute(self, snapshot: Snapshot) -> Value: ...


def _key(snapshot: Snapshot, version: int, what: str) -> Key:
    # with the table's id: another table may be made under the same path
    return snapshot.ref.uri, snapshot.metadata.id, version, what


def spread(spans: Sequence[tuple[int, int]], most: int, *, within: tuple[int, int] | None = None) -> tuple[int, ...]:
    """At most `most` versions out of runs (first, last), evenly spread, the first and the last always among them."""
    low, high = within or (0, max((last for _, last in spans), default=0))
    cut = [(max(first, low), min(last, high)) for first, last in spans if first <= high and last >= low]
    total = sum(last - first + 1 for first, last in cut)
    if total <= most:
        return tuple(version for first, last in cut for version in range(first, last + 1))
    # Positions among all these versions, in order; then the version at each of them.
    positions = [round(number * (total - 1) / max(1, most - 1)) for number in range(most)]
    chosen, passed, run = [], 0, 0
    for position in positions if most > 1 else [total - 1]:
        while position - passed > cut[run][1] - cut[run][0]:
            passed += cut[run][1] - cut[run][0] + 1
            run += 1
        chosen.append(cut[run][0] + position - passed)
    return tuple(dict.fromkeys(chosen))
