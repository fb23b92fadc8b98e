"""A column's nulls, lowest and highest value over chosen versions, from the log's statistics alone.

Rule: no data file is opened; a version is read once and kept, and one without the column says so.
"""

from collections.abc import Iterator, Sequence

from backend.lake.files.stats import ColumnTotals, column_totals
from backend.lake.model import Snapshot, TableRef
from backend.query.over_versions import Progress, VersionValue, over_versions
from backend.query.version_task import Kept, SnapshotLake, VersionTask


class ColumnNumbers:
    """`ColumnTotals` by version, read when asked for and kept."""

    def __init__(self) -> None:
        self._kept = Kept()

    def over(self, lake: SnapshotLake, ref: TableRef, column: str, versions: Sequence[int]) -> Iterator[Progress]:
        """Read a column's totals at each version; close the iterator to cancel."""
        wanted = sorted(set(versions))
        return over_versions(wanted, lambda version: _Column(lake, ref, version, kept=self._kept, what=column))

    def known(self, snapshot: Snapshot, column: str, versions: Sequence[int]) -> tuple[VersionValue, ...]:
        """What was read before, without reading anything."""
        return self._kept.of(snapshot, column, versions)


class _Column(VersionTask[ColumnTotals]):
    """One column at one version."""

    def compute(self, snapshot: Snapshot) -> ColumnTotals:
        return column_totals(snapshot, [self._what])[0]
