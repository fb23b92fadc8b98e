"""Which data files one state has and the other has not.

Rule: a file is (path, deletion vector); a new deletion vector makes another file of the same path.
"""

import pyarrow as pa
import pyarrow.compute as pc

from backend.diff.model import FilesDiff

_IDENTITY = ["path", "dv_id"]


def diff_files(before: pa.Table, after: pa.Table) -> FilesDiff:
    """Files and bytes added and removed between two snapshots' file tables (`FILES_SCHEMA`)."""
    old, new = _identified(before), _identified(after)
    added = new.join(old.select(_IDENTITY), keys=_IDENTITY, join_type="left anti")
    removed = old.join(new.select(_IDENTITY), keys=_IDENTITY, join_type="left anti")
    remarked = added.join(removed.select(["path"]), keys="path", join_type="left semi")
    return FilesDiff(added.num_rows, removed.num_rows, _bytes(added), _bytes(removed), remarked.num_rows)


def _identified(files: pa.Table) -> pa.Table:
    """Path, size and deletion vector, "" for none: joins treat null as unequal to null."""
    dv_id = pc.fill_null(files["dv_id"].cast(pa.string()), "")
    return pa.table({"path": files["path"].cast(pa.string()), "dv_id": dv_id, "size_bytes": files["size_bytes"]})


def _bytes(files: pa.Table) -> int:
    return int(pc.sum(files["size_bytes"]).as_py() or 0)
