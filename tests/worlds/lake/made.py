"""A commit, versions, files and a snapshot as the readers return them, without a log."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from backend.lake.model import (
    Commit,
    FileNumbers,
    Metadata,
    OperationMetrics,
    Protocol,
    Snapshot,
    TableRef,
    VersionTotals,
    files_schema,
)

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
REF = TableRef("/lake/silver/orders", "silver/orders", "/lake", "silver")


@dataclass(frozen=True, slots=True)
class GivenFiles:
    """`backend.lake.model.Files` over a table of `files_schema`, with `stats` if it is there."""

    files: pa.Table

    @property
    def num_files(self) -> int:
        return int(self.files.num_rows)

    def column(self, name: str) -> pa.Array:
        column = self.files[name]
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)

    def total(self, name: str) -> tuple[int, int]:
        return int(pc.sum(self.files[name]).as_py() or 0), int(self.files[name].null_count)

    def table(self, names: Sequence[str]) -> pa.Table:
        return self.files.select(list(names))

    def take(self, numbers: FileNumbers, names: Sequence[str]) -> pa.Table:
        return self.table(names).take(pa.array(numbers))


def commit(version: int, operation: str | None = "WRITE", **metrics: int) -> Commit:
    at = NOW - timedelta(minutes=100 - version)
    return Commit(version, at, operation, {}, OperationMetrics(**metrics), {}, None, "Spark", None)


def totals(count: int, *, rows: int | None = 10, operation: str = "WRITE") -> tuple[VersionTotals, ...]:
    return tuple(
        VersionTotals(v, NOW + timedelta(seconds=v), operation, v + 1, 100 * (v + 1), rows and rows * (v + 1), 0)
        for v in range(count)
    )


def snapshot(
    sizes: Sequence[int],
    partition: str = "",
    *,
    partitions: Sequence[str] | None = None,
    rows: Sequence[int | None] | None = None,
    deleted: Sequence[int] | None = None,
) -> Snapshot:
    """Version 3 of a table with files of these sizes, of five rows each where nothing else is said."""
    count = len(sizes)
    columns = {
        "path": [f"{number}.parquet" for number in range(count)],
        "size_bytes": sizes,
        "num_records": rows or [5] * count,
        "deleted_rows": deleted or [0] * count,
        "modified_at": [NOW] * count,
        "partition": partitions or [partition] * count,
        "dv_id": [None] * count,
    }
    files = GivenFiles(pa.table(columns, schema=files_schema()))
    return Snapshot(REF, 3, NOW, Protocol(1, 2), Metadata("id", "{}"), files)
