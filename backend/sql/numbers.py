"""Numbers of chosen versions of a table: an SQL aggregate over its rows, or a column's statistics in the log.

Rule: an aggregate reads only the columns that it names; a column's numbers open no data file.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from backend.errors import QueryError
from backend.lake.files.stats import ColumnTotals, column_totals
from backend.lake.model import FILE_COLUMNS, Snapshot, SnapshotReader, TableRef
from backend.lake.table.schema import fields
from backend.sql.expression import Expression, check_expression
from backend.sql.over_versions import (
    Progress,
    ScannedLake,
    VersionCache,
    VersionTask,
    VersionValue,
    over_versions,
)

FILES_AT_ONCE = 512


class Aggregates:
    """Values of expressions by version, each computed once."""

    def __init__(self) -> None:
        self._cache = VersionCache()

    def over(self, lake: ScannedLake, ref: TableRef, text: str, versions: Sequence[int]) -> Iterator[Progress]:
        """Compute `text` at each version; close the iterator to cancel.

        Raises `QueryError` at once when the expression is refused at the newest of the versions.
        """
        wanted = sorted(set(versions))
        if wanted:
            checked(lake.snapshot(ref, wanted[-1]), text)
        return over_versions(wanted, lambda version: _Aggregate(self._cache, lake, ref, version, text.strip()))

    def known(self, snapshot: Snapshot, text: str, versions: Sequence[int]) -> tuple[VersionValue, ...]:
        """What was computed before, without computing anything."""
        return self._cache.known(snapshot, text.strip(), versions)


class ColumnNumbers:
    """`ColumnTotals` by version, each read once."""

    def __init__(self) -> None:
        self._cache = VersionCache()

    def over(self, lake: SnapshotReader, ref: TableRef, column: str, versions: Sequence[int]) -> Iterator[Progress]:
        """Read a column's totals at each version; close the iterator to cancel."""
        wanted = sorted(set(versions))
        return over_versions(wanted, lambda version: _Column(lake, ref, version, cache=self._cache, what=column))

    def known(self, snapshot: Snapshot, column: str, versions: Sequence[int]) -> tuple[VersionValue, ...]:
        """What was read before, without reading anything."""
        return self._cache.known(snapshot, column, versions)


class _Aggregate(VersionTask[Any]):
    """The aggregate at one version."""

    def __init__(self, cache: VersionCache, lake: ScannedLake, ref: TableRef, version: int, text: str) -> None:
        super().__init__(lake, ref, version, cache=cache, what=text)
        self._rows = lake

    def compute(self, snapshot: Snapshot) -> Any:
        expression = checked(snapshot, self._what)
        rows = rows_of(self._rows, snapshot, expression.columns or narrowest(snapshot))
        value = self.computation.run(expression.sql, rows)
        if isinstance(value, list | dict | tuple):
            raise QueryError("the expression gives a list or a struct, not one value")
        return value


class _Column(VersionTask[ColumnTotals]):
    """One column at one version."""

    def compute(self, snapshot: Snapshot) -> ColumnTotals:
        return column_totals(snapshot, [self._what])[0]


def checked(snapshot: Snapshot, text: str) -> Expression:
    """The expression against the columns of a version; raises `QueryError`."""
    return check_expression(text, [field.path for field in fields(snapshot.metadata) if field.depth == 0])


def rows_of(lake: ScannedLake, snapshot: Snapshot, columns: Sequence[str]) -> pa.RecordBatchReader:
    """Every row of a version, some columns."""
    # deltalake (1.6.6, tried) refuses a table with widened types, but reads its files: some at a time
    if not any(feature.startswith("typeWidening") for feature in snapshot.protocol.reader_features):
        return lake.scan(snapshot, columns)
    files = snapshot.columns(FILE_COLUMNS)
    first = lake.read_files(snapshot, files.slice(0, FILES_AT_ONCE), columns=columns)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from first
        for start in range(FILES_AT_ONCE, len(files), FILES_AT_ONCE):
            yield from lake.read_files(snapshot, files.slice(start, FILES_AT_ONCE), columns=columns)

    return pa.RecordBatchReader.from_batches(first.schema, batches())


def narrowest(snapshot: Snapshot) -> tuple[str, ...]:
    """The cheapest column to count rows by: a partition column, else the first that is not nested."""
    if snapshot.metadata.partition_columns:
        return snapshot.metadata.partition_columns[:1]
    top = [field for field in fields(snapshot.metadata) if field.depth == 0]
    flat = [field for field in top if not field.type.startswith(("struct", "array", "map"))]
    return tuple(field.path for field in (flat or top)[:1])
