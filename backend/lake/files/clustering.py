"""How well files are sorted by a column: how many a look-up of one value must read, by the log's statistics alone.

Rule: pure. A file holds a value when it lies between the file's bounds; a file without bounds may hold any and counts
for every look-up; one that holds only nulls counts for none. Overlap is measured at the files' own bounds.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import TableCorruptError, TableError
from backend.format import count_text
from backend.lake.files.file_sizes import partition_codes
from backend.lake.files.stats import ColumnStats, column_stats, columns_with_stats, count_true
from backend.lake.files.stats_text import StatKind
from backend.lake.model import Commit, Snapshot
from backend.lake.table.schema import columns

MOST_POINTS = 400
MOST_FILES, MOST_COLUMNS = 200_000, 4  # that `look_up` reads statistics of, while somebody waits
_PARAMETERS = ("zOrderBy", "clusterBy", "newClusteringColumns")

Ranks = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DepthPoint:
    """How many files hold the value (as text) at a quantile (0 to 1) of all bounds."""

    quantile: float
    value: str
    files: int


@dataclass(frozen=True, slots=True)
class Overlap:
    """`average_files` and `most_files` are read by a look-up of one value; `average_in_partition` when it names the
    partition too (None where the table has at most one). Files without bounds are counted in all three."""

    column: str
    files: int
    files_with_bounds: int
    files_without: int
    average_files: float | None
    most_files: int | None
    average_in_partition: float | None
    partitions: int
    profile: tuple[DepthPoint, ...]

    @property
    def average_text(self) -> str:
        """ "1.4" below ten, else whole files; "unknown number" where no file has bounds."""
        if self.average_files is None:
            return "unknown number"
        if self.average_files < 10:
            return f"{self.average_files:.1f}".removesuffix(".0")
        return count_text(round(self.average_files))

    @property
    def look_up_text(self) -> str:
        """ "a look-up of one value of id reads 1.4 files"."""
        files = "file" if self.average_text == "1" else "files"
        return f"a look-up of one value of {self.column} reads {self.average_text} {files}"


def overlap(snapshot: Snapshot, column: str) -> Overlap:
    """The overlap of the files' ranges in a column; raises what `column_stats` raises."""
    codes, names = partition_codes(snapshot)
    return overlap_of(column_stats(snapshot, column), codes, len(names))


def overlap_of(stats: ColumnStats, codes: Ranks, partitions: int) -> Overlap:
    """`overlap` of statistics read before; `codes` names each file's partition by a number below `partitions`."""
    only_nulls = pc.fill_null(pc.equal(stats.null_count, stats.num_records), False)
    bounded = pc.and_(pc.is_valid(stats.min), pc.is_valid(stats.max))
    if stats.kind is StatKind.OTHER:
        bounded = pa.repeat(pa.scalar(False), len(stats.min))
    without = count_true(pc.invert(pc.or_(bounded, only_nulls)))
    overlap = Overlap(stats.column, len(stats.min), count_true(bounded), without, None, None, None, partitions, ())
    if not overlap.files_with_bounds:
        return overlap
    ends = pa.concat_arrays([stats.min.filter(bounded), stats.max.filter(bounded)])
    ranks = _ranks(ends)
    low, high = ranks[: len(ranks) // 2], ranks[len(ranks) // 2 :]
    order = np.argsort(ranks, kind="stable")
    depths = _depths(low, high, ranks[order])
    inside = _average_in_partition(low, high, codes[np.flatnonzero(bounded.to_numpy(zero_copy_only=False))])
    return replace(
        overlap,
        average_files=float(depths.mean()) + without,
        most_files=int(depths.max()) + without,
        average_in_partition=inside + without / partitions if partitions > 1 else None,
        profile=_profile(ends, order, depths + without),
    )


def look_up(snapshot: Snapshot, preferred: Sequence[str] = ()) -> Overlap | None:
    """What finding one value costs: by the first preferred column whose files have bounds, else one that rows are
    clustered by, else any of the first few. None where none has, statistics cannot be read, or files are many."""
    if not 0 < snapshot.num_files <= MOST_FILES:
        return None
    try:
        asked = sorted_first(snapshot, preferred or declared_clustering(snapshot))[:MOST_COLUMNS]
        overlaps = (overlap(snapshot, column) for column in asked)
        return next((of_column for of_column in overlaps if of_column.average_files is not None), None)
    except TableError:
        return None


def clustering_columns(commits: Iterable[Commit]) -> tuple[str, ...]:
    """Columns that the newest commit to say so clusters or Z-orders by; none when no commit does."""
    for commit in commits:
        for name in _PARAMETERS:
            names = _names(commit.parameters.get(name))
            if names:
                return names
    return ()


def declared_clustering(snapshot: Snapshot) -> tuple[str, ...]:
    """The columns that the table is set to be clustered by (liquid clustering), dotted, by their names at that version;
    none where it is not. Asks for the log's domains only where the table's features say that there are some."""
    if "clustering" not in snapshot.protocol.writer_features:
        return ()
    try:
        declared = json.loads(snapshot.domains.get("delta.clustering", "{}")).get("clusteringColumns", ())
        paths = {column.physical: column.path for column in columns(snapshot.metadata)}
        physical = [tuple(map(str, names)) for names in declared]
        return tuple(paths.get(names, ".".join(names)) for names in physical)
    except (ValueError, TypeError, AttributeError, TableCorruptError):
        return ("unreadable",)


def sorted_first(snapshot: Snapshot, preferred: Sequence[str]) -> tuple[str, ...]:
    """Columns to ask about: the preferred ones, then all others with statistics; partition columns last."""
    with_stats = columns_with_stats(snapshot.metadata)
    keys = set(snapshot.metadata.partition_columns)
    first = [name for name in preferred if name in with_stats]
    rest = [name for name in with_stats if name not in first]
    return (*first, *(name for name in rest if name not in keys), *(name for name in rest if name in keys))


def _names(value: object) -> tuple[str, ...]:
    """Column names from what a writer left: a JSON list as text, a list, or names between commas."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip().startswith("[") else value.split(",")
        except ValueError:
            return ()
    if not isinstance(value, list):
        return ()
    return tuple(name.strip() for name in value if isinstance(name, str) and name.strip())


def _ranks(ends: pa.Array) -> Ranks:
    """Whole numbers in the order of the values; NaN is the highest."""
    if pa.types.is_integer(ends.type) or pa.types.is_temporal(ends.type):
        wide = ends.cast(pa.int32()).cast(pa.int64()) if pa.types.is_date32(ends.type) else ends.cast(pa.int64())
        return np.asarray(wide.to_numpy(zero_copy_only=False), np.int64)
    if pa.types.is_boolean(ends.type):
        return np.asarray(ends.cast(pa.int8()).to_numpy(zero_copy_only=False), np.int64)
    return np.asarray(pc.rank(ends, tiebreaker="dense").to_numpy(zero_copy_only=False), np.int64)


def _depths(low: Ranks, high: Ranks, at: Ranks) -> Ranks:
    """How many ranges hold each value of `at`: those that began before or there, less those that ended before.

    `at` is sorted: the search then walks through memory in order.
    """
    began = np.searchsorted(np.sort(low), at, side="right")
    ended = np.searchsorted(np.sort(high), at, side="left")
    return np.asarray(began - ended, np.int64)


def _average_in_partition(low: Ranks, high: Ranks, codes: Ranks) -> float:
    """The mean depth within partitions: every range is moved into a stretch of its partition's own."""
    dense = np.unique(np.concatenate([low, high]), return_inverse=True)[1].astype(np.int64)
    stretch = int(dense.max()) + 1
    low, high = dense[: len(low)] + codes * stretch, dense[len(low) :] + codes * stretch
    return float(_depths(low, high, np.sort(np.concatenate([low, high]))).mean())


def _profile(ends: pa.Array, order: Ranks, depths: Ranks) -> tuple[DepthPoint, ...]:
    """Some of the ends in `order`, with the depth at each."""
    count = len(order)
    chosen = np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).astype(np.int64))
    values = ends.take(pa.array(order[chosen])).cast(pa.string()).to_pylist()
    return tuple(
        DepthPoint(float(at) / max(1, count - 1), value, int(depths[at]))
        for at, value in zip(chosen, values, strict=True)
    )
