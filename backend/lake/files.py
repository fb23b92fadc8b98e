"""How a table's files are distributed, and which are small.

Rule: pure. One definition of small everywhere (cards, files, health, timeline): below `ratio` × target, judged per
partition, and only in partitions with at least `min_files` files.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backend.lake.model import Snapshot
from backend.settings import HealthSettings

MB = 1_000_000
TB = 1_000_000 * MB
# Autotune by table size: 256 MB below 2.56 TB, then linear to 1 GB at 10 TB.
SMALL_TARGET, LARGE_TARGET = 256 * MB, 1_000 * MB
SMALL_TABLE, LARGE_TABLE = 2_560_000 * MB, 10 * TB
EXTREMES = 20
_UNITS = {unit + end: 1024**power for power, unit in enumerate(("", "k", "m", "g", "t")) for end in ("", "b")}


@dataclass(frozen=True, slots=True)
class TargetSize:
    """The file size to aim at, and where it comes from."""

    bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class Bucket:
    """Files with `from_bytes <= size < to_bytes`."""

    from_bytes: int
    to_bytes: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    partition: str
    num_files: int
    size_bytes: int
    small_files: int
    num_rows: int | None


@dataclass(frozen=True, slots=True)
class FileDistribution:
    """What the files page shows. `smallest` and `largest` have the columns of `model.FILES_SCHEMA`."""

    num_files: int
    size_bytes: int
    target: TargetSize
    small_limit_bytes: int
    small_files: int
    buckets: tuple[Bucket, ...]
    partitions: tuple[PartitionFiles, ...]
    smallest: pa.Table
    largest: pa.Table
    median_bytes: int | None


def target_size(snapshot: Snapshot, health: HealthSettings) -> TargetSize:
    """The table's own property, else the setting, else by table size."""
    return target_for(snapshot.metadata.configuration, snapshot.size_bytes, health)


def target_for(configuration: Mapping[str, str], size_bytes: int, health: HealthSettings) -> TargetSize:
    own = parse_size(configuration.get("delta.targetFileSize", ""))
    if own:
        return TargetSize(own, "delta.targetFileSize")
    if health.target_file_bytes is not None:
        return TargetSize(health.target_file_bytes, "setting health.target_file_bytes")
    share = min(1.0, max(0.0, (size_bytes - SMALL_TABLE) / (LARGE_TABLE - SMALL_TABLE)))
    return TargetSize(round(SMALL_TARGET + share * (LARGE_TARGET - SMALL_TARGET)), "table size")


def parse_size(text: str) -> int | None:
    """Bytes from `134217728` or `128mb` (1024-based, as Spark reads it); None when it is neither."""
    text = text.strip().lower()
    digits = text.rstrip("kmgtb ")
    unit = text[len(digits) :].strip()
    if not digits.isascii() or not digits.isdigit() or unit not in _UNITS:
        return None
    return int(digits) * _UNITS[unit] or None


def small_limit(target: TargetSize, ratio: float) -> int:
    """The size below which a file is small, in bytes."""
    return int(target.bytes * ratio)


def small_file_count(snapshot: Snapshot, target: TargetSize, *, ratio: float, min_files: int) -> int:
    return sum(p.small_files for p in partition_files(snapshot, small_limit(target, ratio), min_files=min_files))


def partition_files(snapshot: Snapshot, limit_bytes: int, *, min_files: int) -> tuple[PartitionFiles, ...]:
    """Totals per partition, largest first."""
    files = snapshot.files
    rows = pc.subtract(files["num_records"], files["deleted_rows"])
    table = pa.table(
        {
            "partition": files["partition"],
            "size": files["size_bytes"],
            "small": pc.cast(pc.less(files["size_bytes"], limit_bytes), pa.int64()),
            "rows": rows,
            "unknown": pc.cast(pc.is_null(rows), pa.int64()),
        }
    )
    totals = table.group_by("partition").aggregate(
        [("size", "count"), ("size", "sum"), ("small", "sum"), ("rows", "sum"), ("unknown", "sum")]
    )
    found = [
        PartitionFiles(
            partition=row["partition"],
            num_files=row["size_count"],
            size_bytes=row["size_sum"],
            small_files=row["small_sum"] if row["size_count"] >= min_files else 0,
            num_rows=None if row["unknown_sum"] else row["rows_sum"],
        )
        for row in totals.to_pylist()
    ]
    return tuple(sorted(found, key=lambda p: (-p.size_bytes, p.partition)))


def distribute(snapshot: Snapshot, target: TargetSize, *, ratio: float, min_files: int) -> FileDistribution:
    """Histogram, partitions and extremes of a snapshot's files."""
    limit = small_limit(target, ratio)
    partitions = partition_files(snapshot, limit, min_files=min_files)
    by_size = snapshot.files.sort_by([("size_bytes", "ascending"), ("path", "ascending")])
    count = snapshot.num_files
    return FileDistribution(
        num_files=count,
        size_bytes=snapshot.size_bytes,
        target=target,
        small_limit_bytes=limit,
        small_files=sum(p.small_files for p in partitions),
        buckets=histogram(snapshot.files["size_bytes"]),
        partitions=partitions,
        smallest=by_size.slice(0, EXTREMES),
        largest=by_size.slice(max(0, count - EXTREMES)).take(
            pa.array(range(min(count, EXTREMES) - 1, -1, -1), pa.int64())
        ),
        median_bytes=by_size["size_bytes"][(count - 1) // 2].as_py() if count else None,
    )


def histogram(sizes: pa.ChunkedArray) -> tuple[Bucket, ...]:
    """Log-2 buckets, half-open, without holes between the first and the last; an empty file falls in [0, 1)."""
    if not len(sizes):
        return ()
    exponents = pa.array(np.frexp(sizes.to_numpy())[1].astype(np.int64))  # the bit length, exact below 2**53
    table = pa.table({"exponent": exponents, "size": sizes.combine_chunks()})
    totals = table.group_by("exponent").aggregate([("size", "count"), ("size", "sum")]).to_pylist()
    found = {row["exponent"]: (row["size_count"], row["size_sum"]) for row in totals}
    return tuple(
        Bucket(2 ** (e - 1) if e else 0, 2**e, *found.get(e, (0, 0))) for e in range(min(found), max(found) + 1)
    )
