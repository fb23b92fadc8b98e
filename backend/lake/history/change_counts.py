"""Rows of a change feed per commit and change type, without reading rows.

Rule: of a change file only the column `_change_type` is decoded, and where its statistics know one value not even that;
a commit without change files is counted from what it names (rows of added and removed files, growth of deletion
vectors), as the protocol says its feed is to be read.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backend.errors import DataFileMissingError, DiffError, ObjectMissingError, TableCorruptError
from backend.lake.files.footer import parquet_errors
from backend.lake.log.actions import Kind
from backend.lake.log.commits import CommitSlice
from backend.lake.storage.paths import is_within, resolve_log_path
from backend.lake.storage.storage import Storage

CHANGE_TYPE = "_change_type"
AT_ONCE = 2
_BATCH_ROWS = 1 << 20

Counts = Mapping[str, int]


def count_changes(storage: Storage, uri: str, commit: CommitSlice) -> Counts:
    """Rows per change type of one commit of a table whose feed is on; raises `DataFileMissingError`,
    `TableCorruptError`, and `DiffError` where rows would have to be looked at."""
    actions = commit.actions
    change_files = actions.filter(pc.equal(actions["kind"], int(Kind.CDC)))["path"].to_pylist()
    if change_files:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return sum(pool.map(partial(_in_change_file, storage, uri), change_files), Counter())
    return sum(_in_data_files(storage, uri, commit), Counter())


def _in_data_files(storage: Storage, uri: str, commit: CommitSlice) -> Iterator[Counter[str]]:
    """Added files are inserts, removed ones deletes; the same file twice has another deletion vector."""
    actions = commit.actions.filter(commit.actions["data_change"])
    actions = actions.select(["kind", "path", "num_records", "deleted_rows"])
    added = {row["path"]: row for row in actions.filter(pc.equal(actions["kind"], int(Kind.ADD))).to_pylist()}
    removed = {row["path"]: row for row in actions.filter(pc.equal(actions["kind"], int(Kind.REMOVE))).to_pylist()}
    for path in added.keys() & removed.keys():
        more = added[path]["deleted_rows"] - removed[path]["deleted_rows"]
        if more < 0 or _operation(commit) == "RESTORE":
            raise DiffError(f"commit {commit.record.version} brings back rows of {path}: which, only reading tells")
        yield Counter(delete=more)
    for kind, files, others in (("insert", added, removed), ("delete", removed, added)):
        for path in files.keys() - others.keys():
            known = files[path]["num_records"]
            rows = _rows_of(storage, uri, path) if known is None else known
            yield Counter({kind: rows - files[path]["deleted_rows"]})


def _operation(commit: CommitSlice) -> str:
    said = commit.record.commit_info
    return str(said.get("operation", "")).upper() if isinstance(said, Mapping) else ""


def _in_change_file(storage: Storage, uri: str, path: str) -> Counter[str]:
    with _opened(storage, uri, path) as file, parquet_errors(path, uri):
        return _types(pq.ParquetFile(file, read_dictionary=[CHANGE_TYPE], pre_buffer=False), path)


def _types(file: pq.ParquetFile, path: str) -> Counter[str]:
    if CHANGE_TYPE not in file.schema_arrow.names:
        raise TableCorruptError(f"{path} has no column {CHANGE_TYPE}", hint="it is no change file")
    place = next(i for i in range(file.metadata.num_columns) if file.schema.column(i).path == CHANGE_TYPE)
    found: Counter[str] = Counter()
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        known = group.column(place).statistics
        if known is not None and known.has_min_max and known.min == known.max and known.null_count == 0:
            found[known.min] += group.num_rows
            continue
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[number], columns=[CHANGE_TYPE], use_threads=False):
            found += _counted(batch.column(0), path)
    return found


def _counted(column: pa.DictionaryArray, path: str) -> Counter[str]:
    if column.null_count:
        raise TableCorruptError(f"{path} holds rows without a change type", hint="its writer's feed is not whole")
    counts = np.bincount(column.indices.to_numpy(), minlength=len(column.dictionary))
    found: Counter[str] = Counter()
    for name, rows in zip(column.dictionary.to_pylist(), counts.tolist(), strict=True):
        found[name] += rows
    return +found


def _rows_of(storage: Storage, uri: str, path: str) -> int:
    with _opened(storage, uri, path) as file, parquet_errors(path, uri):
        return int(pq.ParquetFile(file).metadata.num_rows)


def _opened(storage: Storage, uri: str, path: str) -> pa.NativeFile:
    place = resolve_log_path(path, uri, storage.roots)
    folder = storage.folder(uri if is_within(place, uri) else storage.root_of(place))
    try:
        return folder.open(place.removeprefix(folder.uri).lstrip("/"))
    except ObjectMissingError as exc:
        raise DataFileMissingError(f"{path} of {uri} is gone", hint="it was vacuumed or deleted by hand") from exc
