"""Data files with what row tracking needs to tell their rows' ids: where each file's ids begin, and which of its rows
are deleted.

Rule: a row's place in its file counts the deleted ones too, so files are read as they lie and the marks of deletion
vectors (decoded by deltalake) come beside them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backend.errors import UnsupportedFeatureError
from backend.lake import data
from backend.lake.excerpt import excerpt_log, local_paths, partition_values
from backend.lake.footer import parquet_errors
from backend.lake.model import Metadata, Snapshot
from backend.lake.paths import is_remote
from backend.lake.storage import Storage


@dataclass(frozen=True, slots=True)
class TrackedFiles:
    """`files` has a row for each: `path` on this machine, `base_row_id`, and its values of the partition columns as
    text. `deleted` has a row for each deleted row: `file` (its place in `files`) and `position`."""

    files: pa.Table
    deleted: pa.Table


def is_row_tracked(metadata: Metadata) -> bool:
    """Whether rows have ids at this version (PROTOCOL.md, "Row Tracking")."""
    return metadata.configuration.get("delta.enableRowTracking", "").lower() == "true"


def tracked_files(storage: Storage, snapshot: Snapshot, files: pa.Table) -> TrackedFiles:
    """Of files (`file_difference.APART`) of a snapshot; raises `UnsupportedFeatureError` where they are on an object
    store or one has no base row id, and what `excerpt_log` raises."""
    if is_remote(snapshot.ref.uri):
        raise UnsupportedFeatureError(
            f"row ids of {snapshot.ref.name} are not read from an object store", hint="compare on the stream host"
        )
    base = files["base_row_id"]
    if base.null_count:
        raise UnsupportedFeatureError(
            f"{base.null_count:,} of {len(base):,} files of v{snapshot.version} without a base row id: "
            "tracking began later",
            hint="compare by key",
        )
    paths = local_paths(storage, snapshot, files)
    values = [partition_values(shown, snapshot.metadata) for shown in files["partition"].to_pylist()]
    columns = {
        f"partition {name}": pa.array([value[name] for value in values], pa.string())
        for name in snapshot.metadata.partition_columns
    }
    table = pa.table({"path": pa.array(paths, pa.string()), "base_row_id": base} | columns)
    return TrackedFiles(table, _deleted(storage, snapshot, files, paths))


def _deleted(storage: Storage, snapshot: Snapshot, files: pa.Table, paths: Sequence[str]) -> pa.Table:
    """The positions that deletion vectors mark."""
    marked = pc.indices_nonzero(pc.is_valid(files["dv_id"])).to_pylist()
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for place in marked:  # one by one: two vectors of one file go by the same name
        with parquet_errors(paths[place], snapshot.ref.uri):
            num_rows = pq.read_metadata(paths[place]).num_rows  # the vectors' reader wants it, the log may lack it
        one = files.slice(place, 1).drop_columns(["num_records"]).append_column("num_records", [[num_rows]])
        with excerpt_log(storage, snapshot, one) as folder:
            positions = data.deleted_positions(folder, snapshot.ref.uri)
        found.append((np.full(len(positions), place, np.int64), positions))
    places, positions = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    return pa.table({"file": places, "position": positions})
