"""A column's nulls, lowest and highest value over chosen versions, from the log's statistics alone.

Rule: no data file is opened; a version is read once and kept, and one without the column says so.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from backend.lake.model import Snapshot, TableRef
from backend.lake.stats import ColumnTotals, column_totals
from backend.query.aggregate import Kept
from backend.query.over_versions import Progress, VersionValue, over_versions


class VersionedLake(Protocol):
    """The part of `backend.lake.lake.Lake` that columns need."""

    def snapshot(self, ref: TableRef, version: int | None = None) -> Snapshot: ...


class ColumnNumbers:
    """`ColumnTotals` by version, read when asked for and kept."""

    def __init__(self) -> None:
        self._kept = Kept()

    def over(self, lake: VersionedLake, ref: TableRef, column: str, versions: Sequence[int]) -> Iterator[Progress]:
        """Read a column's totals at each version; close the iterator to cancel."""
        wanted = sorted(set(versions))
        return over_versions(wanted, lambda version: _Column(self._kept, lake, ref, version, column))

    def known(self, snapshot: Snapshot, column: str, versions: Sequence[int]) -> tuple[VersionValue, ...]:
        """What was read before, without reading anything."""
        return self._kept.of(snapshot, column, versions)


class _Column:
    """One column at one version."""

    def __init__(self, kept: Kept, lake: VersionedLake, ref: TableRef, version: int, column: str) -> None:
        self._kept, self._lake, self._ref, self._version, self._column = kept, lake, ref, version, column
        self.rows_read = 0

    def stop(self) -> None:
        """The log of one version is read in one go; whoever waits has left already."""

    def run(self) -> ColumnTotals:
        snapshot = self._lake.snapshot(self._ref, self._version)
        known = self._kept.get(snapshot, self._column)
        if known is not None:
            value: ColumnTotals = known.value
            return value
        totals = column_totals(snapshot, [self._column])[0]
        self._kept.put(snapshot, self._column, totals)
        return totals
