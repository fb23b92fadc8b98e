"""A commit, versions and a snapshot as the readers return them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from backend.lake.model import (
    Commit,
    Metadata,
    OperationMetrics,
    Protocol,
    Snapshot,
    TableRef,
    VersionTotals,
    files_schema,
)
from tests.worlds.lake.given_files import GivenFiles

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
REF = TableRef("/lake/silver/orders", "silver/orders", "/lake", "silver")


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
