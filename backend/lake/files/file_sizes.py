"""How a table's files are distributed, and which are small.

Rule: pure. One definition of small everywhere (cards, files, health, timeline): below `ratio` × target, whatever the
partition.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backend.lake.model import Bucket, Snapshot
from backend.lake.table.properties import parse_size
from backend.lake.table.restricted import hidden_columns, refused
from backend.settings import HealthSettings

MB = 1_000_000
TB = 1_000_000 * MB
# Autotune by table size: 256 MB below 2.56 TB, then linear to 1 GB at 10 TB.
SMALL_TARGET, LARGE_TARGET = 256 * MB, 1_000 * MB
SMALL_TABLE, LARGE_TABLE = 2_560_000 * MB, 10 * TB
HEAVY_SHARE = 0.05  # OPTIMIZE rewrites files with more deleted rows than this
LARGE = 5  # times the target; the largest that Delta's OPTIMIZE writes by itself, 1 GiB, is below at 256 MB
Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TargetSize:
    """The file size to aim at, and where it comes from."""

    bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """`num_rows` are live rows, None where a file does not say; `deleted_rows` those that deletion vectors mark."""

    partition: str
    num_files: int
    size_bytes: int
    small_files: int
    num_rows: int | None
    files_with_vectors: int = 0
    deleted_rows: int = 0
    small_bytes: int = 0

    @property
    def average_bytes(self) -> int:
        return self.size_bytes // self.num_files if self.num_files else 0

    @property
    def deleted_share(self) -> float | None:
        """Deleted rows among those stored; None where the rows are not known."""
        return share_deleted(self.deleted_rows, self.num_rows)


@dataclass(frozen=True, slots=True)
class VectorLoad:
    """What deletion vectors cost a reader. `heavy_files`: those with more than `HEAVY_SHARE` of their rows deleted,
    which OPTIMIZE rewrites; files whose rows are unknown cannot be judged and are not among them."""

    files: int
    deleted_rows: int
    num_rows: int | None
    heavy_files: int

    @property
    def deleted_share(self) -> float | None:
        return share_deleted(self.deleted_rows, self.num_rows)


@dataclass(frozen=True, slots=True)
class FileDistribution:
    """What the files page shows of all files together; single files are `file_page`'s."""

    num_files: int
    size_bytes: int
    target: TargetSize
    small_limit_bytes: int
    small_files: int
    buckets: tuple[Bucket, ...]
    partitions: tuple[PartitionFiles, ...]
    median_bytes: int | None
    files_after_merge: int
    small_partitions: int = 0
    large_files: int = 0
    vectors: VectorLoad = VectorLoad(0, 0, None, 0)

    @property
    def skew(self) -> float | None:
        """The largest partition against the median one, by bytes; None with fewer than two partitions."""
        sizes = [part.size_bytes for part in self.partitions]
        middle = float(np.median(sizes)) if len(sizes) > 1 else 0.0
        return max(sizes) / middle if middle else None


def target_for(configuration: Mapping[str, str], size_bytes: int, health: HealthSettings) -> TargetSize:
    """The table's own property, else the setting, else by table size."""
    own = parse_size(configuration.get("delta.targetFileSize", ""))
    if own:
        return TargetSize(own, "delta.targetFileSize")
    if health.target_file_bytes is not None:
        return TargetSize(health.target_file_bytes, "setting health.target_file_bytes")
    share = min(1.0, max(0.0, (size_bytes - SMALL_TABLE) / (LARGE_TABLE - SMALL_TABLE)))
    return TargetSize(round(SMALL_TARGET + share * (LARGE_TARGET - SMALL_TARGET)), "table size")


def small_limit(target: TargetSize, ratio: float) -> int:
    """The size below which a file is small, in bytes."""
    return int(target.bytes * ratio)


def merge_estimate(
    partitions: Iterable[Sequence[int]], limit_bytes: int, target: TargetSize, min_files: int
) -> tuple[int, int]:
    """About as many files as OPTIMIZE leaves, and how many partitions hold less than `limit_bytes` in all.

    `partitions`: files, small files and their bytes. OPTIMIZE merges two and more small files of a partition. What
    there are fewer than `min_files` of in the table, to merge or of such partitions, is not counted.
    """
    num_files = mergeable = spared = small_partitions = 0
    for files, small, small_bytes in partitions:
        num_files += files
        small_partitions += small == files and small_bytes < limit_bytes
        if small > 1:
            mergeable += small
            spared += small - min(small, max(1, -(-small_bytes // target.bytes)))
    least = max(2, min_files)
    return num_files - (spared if mergeable >= least else 0), small_partitions if small_partitions >= least else 0


def partition_files(snapshot: Snapshot, limit_bytes: int, *, with_rows: bool = True) -> tuple[PartitionFiles, ...]:
    """Totals per partition, largest first. Rows are in statistics, most of a log: without them, and
    without deletion vectors to compare them with, `num_rows` stays None."""
    files = snapshot.columns(["size_bytes", "deleted_rows"])
    codes, names = partition_codes(snapshot)
    count = len(names)
    sizes, deleted = integers(files["size_bytes"]), integers(files["deleted_rows"])
    says_rows = with_rows or deleted.any()
    records = snapshot.columns(["num_records"])["num_records"] if says_rows else pa.nulls(len(sizes), pa.int64())
    unknown = np.asarray(pc.is_null(records).to_numpy(zero_copy_only=False), np.bool_)
    stored = integers(pc.fill_null(records, 0))
    num_files = np.bincount(codes, minlength=count)
    is_small = sizes < limit_bytes
    small, small_bytes = np.bincount(codes[is_small], minlength=count), sums(codes[is_small], sizes[is_small], count)
    dark = np.bincount(codes[unknown], minlength=count)
    vectors = np.bincount(codes[deleted > 0], minlength=count)
    bytes_of, marked = sums(codes, sizes, count), sums(codes, deleted, count)
    rows = sums(codes, stored, count) - marked
    order = sorted(range(count), key=lambda n: (-int(bytes_of[n]), names[n]))
    return tuple(
        PartitionFiles(
            partition=names[n],
            num_files=int(num_files[n]),
            size_bytes=int(bytes_of[n]),
            small_files=int(small[n]),
            num_rows=None if dark[n] else int(rows[n]),
            files_with_vectors=int(vectors[n]),
            deleted_rows=int(marked[n]),
            small_bytes=int(small_bytes[n]),
        )
        for n in order
    )


@dataclass(frozen=True, slots=True)
class FileSummary:
    """What a list of tables shows of a table's files; see `merge_estimate`."""

    num_files: int
    size_bytes: int
    small_files: int
    files_after_merge: int
    small_partitions: int
    large_files: int


def summarize_files(snapshot: Snapshot, health: HealthSettings) -> FileSummary:
    """Sizes alone are looked at, and where the files lie."""
    sizes = integers(snapshot.file_set.column("size_bytes"))
    size_bytes = (int((sizes >> 32).sum()) << 32) + int((sizes & 0xFFFFFFFF).sum())  # beyond 64 bits, as `sums`
    target = target_for(snapshot.metadata.configuration, size_bytes, health)
    codes, names = partition_codes(snapshot)
    limit, count = small_limit(target, health.small_file_ratio), len(names)
    is_small = sizes < limit
    small_bytes = sums(codes[is_small], sizes[is_small], count)
    counts = np.bincount(codes, minlength=count), np.bincount(codes[is_small], minlength=count), small_bytes
    merged = merge_estimate(np.stack(counts, axis=1).tolist(), limit, target, health.min_files)
    large = int(np.count_nonzero(sizes > LARGE * target.bytes))
    return FileSummary(len(sizes), size_bytes, int(is_small.sum()), *merged, large)


def distribute(
    snapshot: Snapshot, target: TargetSize, *, ratio: float, min_files: int, with_rows: bool = True
) -> FileDistribution:
    """Histogram, partitions (see `partition_files` for `with_rows`) and deletion vectors of a snapshot's files."""
    limit = small_limit(target, ratio)
    partitions = partition_files(snapshot, limit, with_rows=with_rows)
    counts = ((part.num_files, part.small_files, part.small_bytes) for part in partitions)
    files_after_merge, small_partitions = merge_estimate(counts, limit, target, min_files)
    files = snapshot.columns(["size_bytes"])
    sizes = integers(files["size_bytes"])
    middle = (len(sizes) - 1) // 2
    return FileDistribution(
        num_files=len(sizes),
        size_bytes=sum(part.size_bytes for part in partitions),
        target=target,
        small_limit_bytes=limit,
        small_files=sum(part.small_files for part in partitions),
        buckets=histogram(files["size_bytes"]),
        partitions=partitions,
        median_bytes=int(np.partition(sizes, middle)[middle]) if len(sizes) else None,
        files_after_merge=files_after_merge,
        small_partitions=small_partitions,
        large_files=int(np.count_nonzero(sizes > LARGE * target.bytes)),
        vectors=vector_load(snapshot, partitions),
    )


def vector_load(snapshot: Snapshot, partitions: Sequence[PartitionFiles]) -> VectorLoad:
    """Deletion vectors of all files, from the partitions' totals; single files only where there are any."""
    files = sum(part.files_with_vectors for part in partitions)
    rows_of_parts = [part.num_rows for part in partitions]
    num_rows = None if None in rows_of_parts else sum(rows for rows in rows_of_parts if rows is not None)
    heavy = int(np.count_nonzero(_deleted_shares(snapshot) > HEAVY_SHARE)) if files else 0
    return VectorLoad(files, sum(part.deleted_rows for part in partitions), num_rows, heavy)


def histogram(sizes: pa.ChunkedArray) -> tuple[Bucket, ...]:
    """Log-2 buckets, half-open, without holes between the first and the last; an empty file falls in [0, 1)."""
    if not len(sizes):
        return ()
    values = integers(sizes)
    exponents = np.frexp(values)[1].astype(np.int64)  # the bit length, one too many where a float was rounded up
    exponents -= (values >> np.maximum(exponents - 1, 0) == 0) & (values > 0)
    low, high = int(exponents.min()), int(exponents.max())
    counts, totals = np.bincount(exponents, minlength=high + 1), sums(exponents, values, high + 1)
    return tuple(Bucket(2 ** (e - 1) if e else 0, 2**e, int(counts[e]), int(totals[e])) for e in range(low, high + 1))


# single files ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileChoice:
    """Which files a list holds (None: all) and in which order. `order` is "largest", "smallest" or "deleted": those
    with the largest share of deleted rows first, and only files with deleted rows."""

    from_bytes: int | None = None
    to_bytes: int | None = None
    partition: str | None = None
    order: str = "largest"


@dataclass(frozen=True, slots=True)
class FilePage:
    """Some of the chosen files. `files` has the columns of `model.files_schema`; `start` counts from 0."""

    files: pa.Table
    start: int
    total: int


def file_page(snapshot: Snapshot, choice: FileChoice, *, start: int = 0, length: int = 50) -> FilePage:
    """A page of the chosen files in their order, ties in the log's; a start beyond the end gives the last page."""
    if snapshot.hidden and _hides_partitions(snapshot):  # which paths tell as well
        raise refused(snapshot.hidden, snapshot.hidden.names)
    sizes = integers(snapshot.columns(["size_bytes"])["size_bytes"])
    chosen = np.flatnonzero(_chosen(snapshot, choice, sizes)).astype(np.int64)
    start = max(0, min(start, (len(chosen) - 1) // length * length))
    if choice.order == "deleted":
        ranks = np.argsort(-_deleted_shares(snapshot)[chosen], kind="stable")[start : start + length]
    else:
        keys = sizes[chosen] if choice.order == "smallest" else -sizes[chosen]
        ranks = _smallest(keys, start, start + length)
    return FilePage(snapshot.rows_at(chosen[ranks]), start, len(chosen))


def _chosen(snapshot: Snapshot, choice: FileChoice, sizes: Integers) -> Mask:
    mask = np.ones(len(sizes), np.bool_)
    if choice.from_bytes is not None:
        mask &= sizes >= choice.from_bytes
    if choice.to_bytes is not None:
        mask &= sizes < choice.to_bytes
    if choice.partition is not None:
        partition = snapshot.columns(["partition"])["partition"]
        mask &= np.asarray(pc.equal(partition.cast(pa.string()), choice.partition).to_numpy(), np.bool_)
    if choice.order == "deleted":
        mask &= integers(snapshot.columns(["deleted_rows"])["deleted_rows"]) > 0
    return mask


def _smallest(keys: Integers, start: int, end: int) -> Integers:
    """Positions of the keys that a stable sort would put at `start … end`, without sorting the rest."""
    end = min(end, len(keys))
    if start >= end:
        return np.empty(0, np.int64)
    bounds = np.partition(keys, (start, end - 1))[[start, end - 1]]
    inside = np.flatnonzero((keys >= bounds[0]) & (keys <= bounds[1]))
    below = int(np.count_nonzero(keys < bounds[0]))
    ordered = inside[np.argsort(keys[inside], kind="stable")]
    return np.asarray(ordered[start - below : end - below], np.int64)


def _deleted_shares(snapshot: Snapshot) -> npt.NDArray[np.float64]:
    """Deleted rows among the stored ones per file; where these are unknown a little more than nothing, if any."""
    files = snapshot.columns(["num_records", "deleted_rows"])
    deleted = integers(files["deleted_rows"])
    stored = integers(pc.fill_null(files["num_records"], 0))
    return np.where(stored > 0, deleted / np.maximum(stored, 1), np.where(deleted > 0, 1e-9, 0.0))


# arrays ----------------------------------------------------------------------------------------------------------


def share_deleted(deleted_rows: int, num_rows: int | None) -> float | None:
    """Deleted rows among those stored, from the live ones; None where these are unknown or nothing is stored."""
    return deleted_rows / (deleted_rows + num_rows) if num_rows is not None and deleted_rows + num_rows else None


def partition_codes(snapshot: Snapshot) -> tuple[Integers, list[str]]:
    """A code per file and the partition of each code; every code is used. A hidden value is told by a number alone."""
    partitions = snapshot.partitions()
    coded = partitions if pa.types.is_dictionary(partitions.type) else partitions.dictionary_encode()
    codes = np.asarray(coded.indices.to_numpy(zero_copy_only=False), np.int64)
    used = np.bincount(codes, minlength=len(coded.dictionary)) > 0
    dense: Integers = np.cumsum(used) - 1
    names: list[str] = coded.dictionary.filter(pa.array(used)).to_pylist()
    if _hides_partitions(snapshot):
        names = [f"restricted {number}" for number in range(1, len(names) + 1)]
    return dense[codes], names


def _hides_partitions(snapshot: Snapshot) -> bool:
    return not {*hidden_columns(snapshot.hidden, snapshot.metadata)}.isdisjoint(snapshot.metadata.partition_columns)


def integers(column: pa.ChunkedArray) -> Integers:
    return np.asarray(column.to_numpy(), np.int64)


def sums(codes: Integers, values: Integers, count: int) -> Integers:
    """Sums per code, exact: a double holds each half of a number, where it would round their sum."""
    low, high = values & 0xFFFFFFFF, values >> 32
    return (np.bincount(codes, high, count).astype(np.int64) << 32) + np.bincount(codes, low, count).astype(np.int64)
