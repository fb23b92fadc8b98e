"""The data files that one state has and the other has not, counted.

Rule: a file is (path, deletion vector); a new deletion vector makes another file of the same path.
"""

import pyarrow as pa
import pyarrow.compute as pc

from backend.diff.model import FilesDiff
from backend.diff.read_stream import Sides


def diff_files(sides: Sides) -> FilesDiff:
    """Files, their bytes, rows and deletion vectors, added and removed."""
    removed, added = (files for _, files in sides.parts())
    remarked = pc.sum(pc.is_in(added["path"], value_set=removed["path"].unique())).as_py() or 0
    return FilesDiff(
        added.num_rows,
        removed.num_rows,
        _bytes(added),
        _bytes(removed),
        int(remarked) if sides.is_one_table else 0,
        rows_added=_live_rows(added),
        rows_removed=_live_rows(removed),
        vectors_added=_vectors(added),
        vectors_removed=_vectors(removed),
    )


def _bytes(files: pa.Table) -> int:
    return int(pc.sum(files["size_bytes"]).as_py() or 0)


def _live_rows(files: pa.Table) -> int | None:
    live = pc.subtract(files["num_records"], files["deleted_rows"])
    return None if live.null_count else int(pc.sum(live).as_py() or 0)


def _vectors(files: pa.Table) -> int:
    return len(files) - int(files["dv_id"].null_count)
