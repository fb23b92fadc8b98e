"""One aggregate over chosen versions of a table: read, summed up, and kept for ever.

Rule: a version never changes, so its value is kept by (place, table id, version, expression).
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from backend.errors import QueryError
from backend.lake.model import Snapshot, TableRef
from backend.lake.schema import fields
from backend.query.engine import Computation
from backend.query.expression import Expression, check_expression
from backend.query.over_versions import Progress, VersionValue, over_versions

KEPT = 20_000
Key = tuple[str, str, int, str]


class ScannedLake(Protocol):
    """The part of `backend.lake.lake.Lake` that aggregates need."""

    def snapshot(self, ref: TableRef, version: int | None = None) -> Snapshot: ...
    def scan(self, snapshot: Snapshot, columns: Sequence[str]) -> pa.RecordBatchReader: ...


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


class Aggregates:
    """Values of expressions by version, computed when asked for and kept."""

    def __init__(self) -> None:
        self._kept = Kept()

    def over(self, lake: ScannedLake, ref: TableRef, text: str, versions: Sequence[int]) -> Iterator[Progress]:
        """Compute `text` at each version; close the iterator to cancel.

        Raises `QueryError` at once when the expression is refused at the newest of the versions.
        """
        wanted = sorted(set(versions))
        if wanted:
            checked(lake.snapshot(ref, wanted[-1]), text)
        return over_versions(wanted, lambda version: _Aggregate(self._kept, lake, ref, version, text.strip()))

    def known(self, snapshot: Snapshot, text: str, versions: Sequence[int]) -> tuple[VersionValue, ...]:
        """What was computed before, without computing anything."""
        return self._kept.of(snapshot, text.strip(), versions)


class _Aggregate:
    """The aggregate at one version."""

    def __init__(self, kept: Kept, lake: ScannedLake, ref: TableRef, version: int, text: str) -> None:
        self._kept, self._lake, self._ref, self._version, self._text = kept, lake, ref, version, text
        self._computation = Computation()

    @property
    def rows_read(self) -> int:
        return self._computation.rows_read

    def stop(self) -> None:
        self._computation.stop()

    def run(self) -> Any:
        snapshot = self._lake.snapshot(self._ref, self._version)
        known = self._kept.get(snapshot, self._text)
        if known is not None:
            return known.value
        expression = checked(snapshot, self._text)
        rows = self._lake.scan(snapshot, expression.columns or narrowest(snapshot))
        value = self._computation.run(expression.sql, rows)
        if isinstance(value, list | dict | tuple):
            raise QueryError("the expression gives a list or a struct, not one value")
        self._kept.put(snapshot, self._text, value)
        return value


def checked(snapshot: Snapshot, text: str) -> Expression:
    """The expression against the columns of a version; raises `QueryError`."""
    return check_expression(text, [field.path for field in fields(snapshot.metadata) if field.depth == 0])


def _key(snapshot: Snapshot, version: int, what: str) -> Key:
    return snapshot.ref.uri, snapshot.metadata.id, version, what


def narrowest(snapshot: Snapshot) -> tuple[str, ...]:
    """The cheapest column to count rows by: a partition column, else the first that is not nested."""
    if snapshot.metadata.partition_columns:
        return snapshot.metadata.partition_columns[:1]
    top = [field for field in fields(snapshot.metadata) if field.depth == 0]
    flat = [field for field in top if not field.type.startswith(("struct", "array", "map"))]
    return tuple(field.path for field in (flat or top)[:1])
