"""Data files of this machine for a reader of parquet, with what the log says of them.

That is the values of partition columns, where row ids begin, and which rows are deleted.

Rule: a row's position in its file counts the deleted ones too. So files are read as they are, and deltalake decodes the
deletion vectors, whose positions come beside them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backend.errors import UnsupportedFeatureError
from backend.lake.files.footer import parquet_errors
from backend.lake.model import Snapshot
from backend.lake.rows.files_on_disk import FilesOnDisk, files_on_disk
from backend.lake.rows.log_subset import written
from backend.lake.storage.paths import is_remote
from backend.lake.storage.storage import Storage
from backend.lake.table.partitions import partition_values


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """`files` has a row for each: `path` on this machine, `base_row_id` (null: its rows have no ids), and its values of
    the partition columns as text (`partition NAME`). `deleted` has a row for each deleted row: `file` (its number in
    `files`) and `position`."""

    files: pa.Table
    deleted: pa.Table

    @property
    def paths(self) -> list[str]:
        return list(self.files["path"].to_pylist())

    def only(self, numbers: Sequence[int]) -> "LocalFiles":
        """Some of them, by their numbers."""
        old = pa.array(numbers, pa.int64())
        new = pc.index_in(self.deleted["file"], value_set=old).cast(pa.int64())
        deleted = pa.table({"file": new, "position": self.deleted["position"]})
        return LocalFiles(self.files.take(old), deleted.filter(pc.is_valid(new)))


@contextmanager
def local_files(storage: Storage, snapshot: Snapshot, files: pa.Table) -> Iterator[LocalFiles | None]:
    """Files (`DIFFERENCE_COLUMNS`) of a snapshot, open meanwhile; None where any lies on an object store. Raises what
    `log_subset` raises, and `UnsupportedFeatureError` where deletion vectors cannot be read, or where they are more
    than may be open at once."""
    uri = snapshot.ref.uri
    if is_remote(uri) or any(is_remote(path) for path in files["path"].to_pylist()):
        yield None
        return
    with files_on_disk(storage, uri, is_for_many=True) as on_disk:
        paths = [on_disk.rows_of(path, snapshot.metadata) for path in files["path"].to_pylist()]
        values = [partition_values(shown, snapshot.metadata) for shown in files["partition"].to_pylist()]
        columns = {
            f"partition {name}": pa.array([value[name] for value in values], pa.string())
            for name in snapshot.metadata.partition_columns
        }
        table = pa.table({"path": pa.array(paths, pa.string()), "base_row_id": files["base_row_id"]} | columns)
        yield LocalFiles(table, _deleted(on_disk, snapshot, files, paths))


def _deleted(on_disk: FilesOnDisk, snapshot: Snapshot, files: pa.Table, paths: Sequence[str]) -> pa.Table:
    """The positions that deletion vectors mark."""
    marked = pc.indices_nonzero(pc.is_valid(files["dv_id"])).to_pylist()
    at_once = [marked] if len({paths[number] for number in marked}) == len(marked) else [[number] for number in marked]
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for numbers in at_once if marked else ():  # two vectors of one file go by the same name
        counts = [_num_rows(paths[number], snapshot) for number in numbers]
        some = files.take(pa.array(numbers)).drop_columns(["num_records"]).append_column("num_records", [counts])
        from backend.lake.rows import scan  # late: most files have no deletion vector

        deleted = scan.deleted_positions(written(on_disk, snapshot, some, columns=()), snapshot.ref.uri)
        for number in numbers:
            if (gone := deleted.get(paths[number])) is None:
                raise UnsupportedFeatureError(
                    f"the deletion vector of {paths[number]} is not told apart", hint="compare by another method"
                )
            found.append((np.full(len(gone), number, np.int64), gone))
    file_numbers, positions = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    return pa.table({"file": file_numbers, "position": positions})


def _num_rows(path: str, snapshot: Snapshot) -> int:
    """By the footer: the vectors' reader wants it, the log may lack it."""
    with parquet_errors(path, snapshot.ref.uri):
        return int(pq.read_metadata(path).num_rows)
