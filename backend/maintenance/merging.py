"""Which files OPTIMIZE would merge, and into how many: Delta's own rule, over the log's sizes alone.

Rule: pure. A partition's small files are packed smallest first into bins of at most the target; a bin of one file
stays, unless it has a deletion vector. Source: OptimizeTableCommand.groupFilesIntoBins of Delta 4.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backend.lake.files.file_sizes import HEAVY_SHARE, integers, partition_codes
from backend.lake.model import Snapshot
from backend.lake.table.partitions import partition_values
from backend.maintenance.model import Optimize

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Merge:
    """`files_out`: None where only Delta's clustering decides it. `deleted_rows`: marked ones that are dropped."""

    partitions: int
    files_in: int
    bytes_in: int
    files_out: int | None
    deleted_rows: int


def merge_of(snapshot: Snapshot, asked: Optimize) -> Merge:
    """What an OPTIMIZE would rewrite of this version."""
    files = snapshot.columns(["size_bytes", "num_records", "deleted_rows"])
    sizes, deleted = integers(files["size_bytes"]), integers(files["deleted_rows"])
    records = np.asarray(files["num_records"].fill_null(0).to_numpy(), np.int64)
    codes, names = partition_codes(snapshot)
    chosen = np.array([is_in(name, asked, snapshot) for name in names], np.bool_)[codes]
    heavy = deleted > records * HEAVY_SHARE
    is_clustered = "delta.clustering" in snapshot.domains
    if asked.purge:
        chosen &= deleted > 0
    elif not (asked.zorder_by or asked.full):
        chosen &= (sizes < asked.small_bytes) | ((deleted > 0) & heavy)
    if asked.purge or is_clustered:
        taken, files_out = chosen, int(chosen.sum()) if asked.purge else None
    elif asked.zorder_by:
        taken = chosen
        files_out = sum(max(1, round(total / asked.target_bytes)) for total in _totals(codes[chosen], sizes[chosen]))
    else:
        taken, files_out = _packed(codes, sizes, chosen, deleted > 0, asked.target_bytes)
    return Merge(
        len(np.unique(codes[taken])), int(taken.sum()), int(sizes[taken].sum()), files_out, int(deleted[taken].sum())
    )


def small_within(snapshot: Snapshot, asked: Optimize, most_bytes: int) -> int:
    """The size below which all small files together have at most so many bytes; 0 where the smallest has more."""
    sizes = np.sort(integers(snapshot.columns(["size_bytes"])["size_bytes"]))
    sizes = sizes[sizes < asked.small_bytes]
    fitting = int(np.searchsorted(np.cumsum(sizes), most_bytes, side="right"))
    return int(sizes[fitting]) if 0 < fitting < len(sizes) else asked.small_bytes * (fitting > 0)


def is_in(partition: str, asked: Optimize, snapshot: Snapshot) -> bool:
    """Whether a partition, as people read it, is one of those asked for."""
    values = partition_values(partition, snapshot.metadata)
    return all(values.get(name) == value for name, value in asked.partition.items())


def _totals(codes: Integers, sizes: Integers) -> Sequence[int]:
    return [int(total) for total in np.bincount(codes, sizes.astype(np.float64)) if total]


def _packed(codes: Integers, sizes: Integers, chosen: Mask, marked: Mask, target: int) -> tuple[Mask, int]:
    """Which files are rewritten, and how many come out."""
    taken, files_out = np.zeros(len(sizes), np.bool_), 0
    at = np.flatnonzero(chosen)
    order = at[np.lexsort((sizes[at], codes[at]))]
    bins: list[list[int]] = []
    partition, total = -1, 0
    for number, code, size in zip(order.tolist(), codes[order].tolist(), sizes[order].tolist(), strict=True):
        if code != partition or total + size > target:
            bins.append([])
            partition, total = code, 0
        bins[-1].append(number)
        total += size
    for files in bins:
        if len(files) > 1 or marked[files[0]]:
            taken[files] = True
            files_out += 1
    return taken, files_out
