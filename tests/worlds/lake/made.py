"""A commit, versions and a snapshot as the readers return them."""

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


def snapshot(sizes: list[int], partition: str = "") -> Snapshot:
    rows = [(f"{i}.parquet", size, 5, 0, NOW, partition, None) for i, size in enumerate(sizes)]
    schema = files_schema()
    columns = [
        pa.array(list(column), field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    metadata = Metadata("id", "{}")
    files = GivenFiles(pa.Table.from_arrays(columns, schema=schema))
    return Snapshot(REF, 3, NOW, Protocol(1, 2), metadata, files)
