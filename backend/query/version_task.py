"""What one version of a table comes to, as a task of `over_versions`: computed once, and kept for ever.

Rule: a version never changes, so its value is kept by (place, table id, version, what was asked).
"""

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from backend.lake.model import Snapshot, TableRef
from backend.query.engine import Computation
from backend.query.over_versions import VersionValue

KEPT = 20_000
Key = tuple[str, str, int, str]
Value = TypeVar("Value")


class SnapshotLake(Protocol):
    """The part of `backend.lake.lake.Lake` that a version of a log needs."""

    def snapshot(self, ref: TableRef, version: int | None = None) -> Snapshot: ...


class ScannedLake(SnapshotLake, Protocol):
    """The part of it that the rows of a version need."""

    def scan(self, snapshot: Snapshot, columns: Sequence[str]) -> pa.RecordBatchReader: ...

    def read_files(
        self, snapshot: Snapshot, files: pa.Table, *, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader: ...


class Kept:
    """Results by place, table id, version and what was asked; the oldest asked for go first. Thread-safe."""

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._values: OrderedDict[Key, Any] = OrderedDict()

    def get(self, snapshot: Snapshot, what: str) -> VersionValue | None:
        key = _key(snapshot, snapshot.version, what)
        with self._lock:
            return VersionValue(snapshot.version, self._values[key]) if key in self._values else None

    def of(self, snapshot: Snapshot, what: str, versions: Sequence[int]) -> tuple[VersionValue, ...]:
        """What is known of these versions of the snapshot's table."""
        with self._lock:
            keys = {version: _key(snapshot, version, what) for version in versions}
            return tuple(VersionValue(v, self._values[key]) for v, key in keys.items() if key in self._values)

    def put(self, snapshot: Snapshot, what: str, value: Any) -> None:
        with self._lock:
            self._values[_key(snapshot, snapshot.version, what)] = value
            while len(self._values) > self._most:
                self._values.popitem(last=False)


class VersionTask(ABC, Generic[Value]):
    """One version's value. `stop` ends what the computation runs; whoever waits for the log has left already."""

    def __init__(self, lake: SnapshotLake, ref: TableRef, version: int, *, kept: Kept, what: str) -> None:
        self._lake, self._ref, self._version = lake, ref, version
        self._kept, self._what = kept, what
        self.computation = Computation()

    @property
    def rows_read(self) -> int:
        return self.computation.rows_read

    def stop(self) -> None:
        self.computation.stop()

    def run(self) -> Value:
        snapshot = self._lake.snapshot(self._ref, self._version)
        known = self._kept.get(snapshot, self._what)
        if known is not None:
            return self.recall(known.value)
        value = self.compute(snapshot)
        self._kept.put(snapshot, self._what, value)
        return value

    def recall(self, value: Value) -> Value:
        """What was kept, before it is given."""
        return value

    @abstractmethod
    def compute(self, snapshot: Snapshot) -> Value: ...


def _key(snapshot: Snapshot, version: int, what: str) -> Key:
    return snapshot.ref.uri, snapshot.metadata.id, version, what
