"""The data files that one state has and the other has not, counted.

Rule: a file is (path, deletion vector); a new deletion vector makes another file of the same path.
"""

import pyarrow.compute as pc

from backend.diff.model import FilesDiff
from backend.diff.states import Sides


def diff_files(sides: Sides) -> FilesDiff:
    """Files and bytes added and removed."""
    removed, added = (snapshot.rows_at(places, ["path", "size_bytes"]) for snapshot, places in sides.parts())
    remarked = pc.sum(pc.is_in(added["path"], value_set=removed["path"].combine_chunks())).as_py() or 0
    sizes = [int(pc.sum(files["size_bytes"]).as_py() or 0) for files in (added, removed)]
    return FilesDiff(added.num_rows, removed.num_rows, sizes[0], sizes[1], int(remarked) if sides.is_one_table else 0)
