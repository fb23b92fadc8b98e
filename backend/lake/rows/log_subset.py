"""Some files of a version for readers that take names: as a Delta log that names no others, or as parquet files with
what the log says of them.

Rule: nothing is invented: protocol, schema, column mapping and partition values are the table's own. A file and its
deletion vector are opened first, where the table may read, and go by names that lead to what was opened. A row's
position in its file counts the deleted ones too: deltalake decodes the deletion vectors, whose positions come beside
the files of parquet.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backend.errors import TableCorruptError, UnsupportedFeatureError
from backend.lake.files.footer import parquet_errors
from backend.lake.history.change_feed import FEED, feed_files
from backend.lake.log.actions import FileAction, read_vector_id
from backend.lake.log.commits import CommitSlice
from backend.lake.log.file_set import plain_values
from backend.lake.log.log import ROW_FEATURES
from backend.lake.model import FILE_COLUMNS, Metadata, Protocol, Snapshot
from backend.lake.rows.files_on_disk import FilesOnDisk, files_on_disk
from backend.lake.storage.paths import is_remote
from backend.lake.storage.storage import Storage
from backend.lake.table.partitions import partition_values, physical_names, show_partitions
from backend.lake.table.schema import read_schema


@contextmanager
def log_subset(
    storage: Storage,
    snapshot: Snapshot,
    files: pa.Table,
    *,
    as_of: Snapshot | None = None,
    numbered: tuple[str, int] | None = None,
    columns: Sequence[str] | None = None,
) -> Iterator[str]:
    """A folder that reads as a table of these files (`model.FILE_COLUMNS`; `num_records` where a reader wants it) of a
    snapshot; those on an object store are fetched into it.

    `as_of` is the version whose schema they are read with, as Delta reads old files today. `numbered` is a column that
    the table does not have, and a number: it gives each row its file's number among these, counted from there.
    `columns` are those that are read, None for all: a shredded variant keeps nobody from the others.

    Raises `DataFileMissingError`, `PathRefusedError` or a `StorageError`.
    """
    with files_on_disk(storage, snapshot.ref.uri) as on_disk:
        yield written(on_disk, snapshot, files, as_of=as_of, numbered=numbered, columns=columns)


def written(
    on_disk: FilesOnDisk,
    snapshot: Snapshot,
    files: pa.Table,
    *,
    as_of: Snapshot | None = None,
    numbered: tuple[str, int] | None = None,
    columns: Sequence[str] | None = None,
) -> str:
    """The folder of `log_subset`: that of the files, which are held already."""
    schema = as_of or snapshot
    protocol, metadata = _protocol(schema.protocol), _metadata(schema.metadata)
    if columns is not None:
        protocol, metadata = _without_variants(protocol, metadata, columns)
    adds = _adds(on_disk, snapshot, files)
    if numbered is not None:
        column, start = numbered
        metadata = _numbered(metadata, column)
        for number, add in enumerate(adds, start):
            add["add"]["partitionValues"][column] = str(number)
    on_disk.write_commit(0, [{"protocol": protocol}, {"metaData": metadata}, *adds])
    return str(on_disk.folder)


def written_feed(on_disk: FilesOnDisk, snapshot: Snapshot, commits: Sequence[CommitSlice]) -> str:
    """The same for a reader of the change feed: version 1 is the first of the commits, and each names just the files
    that its feed is read from."""
    metadata = {**_metadata(snapshot.metadata), "configuration": {FEED: "true"}}
    on_disk.write_commit(0, [{"protocol": _protocol(snapshot.protocol)}, {"metaData": metadata}])
    for version, commit in enumerate(commits, 1):
        files = feed_files(commit.actions)
        shown = show_partitions(files["encoded_partition"].combine_chunks(), snapshot.metadata)
        adds = _adds(on_disk, snapshot, files.append_column("partition", plain_values(shown)).select(FILE_COLUMNS))
        actions = [
            {FileAction(kind).name.lower(): action["add"] | {"dataChange": True}}
            for kind, action in zip(files["kind"].to_pylist(), adds, strict=True)
        ]
        on_disk.write_commit(version, [{"commitInfo": commit.record.commit_info or {}}, *actions])
    return str(on_disk.folder)


def _adds(on_disk: FilesOnDisk, snapshot: Snapshot, files: pa.Table) -> list[dict[str, Any]]:
    physical = physical_names(snapshot.metadata)
    adds = []
    for row in files.to_pylist():
        values = partition_values(row["partition"], snapshot.metadata)
        path = on_disk.rows_of(row["path"], snapshot.metadata, by_case=True)
        add: dict[str, Any] = {
            "path": quote(path.removeprefix(f"{on_disk.folder}/")),
            "partitionValues": {physical.get(name, name): value for name, value in values.items()},
            "size": Path(path).stat().st_size,
            "modificationTime": 0,
            "dataChange": False,
        }
        if row["dv_id"] is not None:
            add["deletionVector"] = _vector(on_disk, row["dv_id"], row["deleted_rows"])
        if (num_records := row.get("num_records")) is not None:
            add["stats"] = orjson.dumps({"numRecords": num_records}).decode()
        adds.append({"add": add})
    return adds


def _vector(on_disk: FilesOnDisk, dv_id: str, deleted_rows: int) -> dict[str, Any]:
    """A deletion vector as an action names it, with the absolute path of its file."""
    vector = read_vector_id(dv_id)
    if vector.kind == "i":
        size = len(vector.text) // 5 * 4
        return {"storageType": "i", "pathOrInlineDv": vector.text, "sizeInBytes": size, "cardinality": deleted_rows}
    if vector.file is None:
        raise TableCorruptError(f"{vector.text!r} names no deletion vector", hint="the log is damaged there")
    path = on_disk.path_of(vector.file)
    return {
        "storageType": "p",
        "pathOrInlineDv": "file://" + quote(os.path.abspath(path)),  # noqa: PTH100  text alone: nothing is followed
        "offset": vector.offset,
        "sizeInBytes": on_disk.vector_bytes(vector.file, vector.offset),
        "cardinality": deleted_rows,
    }


def _protocol(protocol: Protocol) -> Mapping[str, Any]:
    """What a reader of rows must know: deltalake (1.6.6, tried) refuses other features, and reads their rows well."""
    if protocol.min_reader_version >= 3:
        features = [feature for feature in protocol.reader_features if feature in ROW_FEATURES]
        return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    return {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": 5 if protocol.min_reader_version == 2 else 2,
    }


def _metadata(metadata: Metadata) -> Mapping[str, Any]:
    mapping = {key: value for key, value in metadata.configuration.items() if key.startswith("delta.columnMapping.")}
    return {
        "id": metadata.id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": read_schema(metadata.schema_json).json,
        "partitionColumns": list(metadata.partition_columns),
        "configuration": mapping,
        "createdTime": 0,
    }


def _without_variants(
    protocol: Mapping[str, Any], metadata: Mapping[str, Any], columns: Sequence[str]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The same without shredded variants, which deltalake (1.6.6, tried) refuses, unless one is read."""
    shredded = [name for name in protocol.get("readerFeatures", ()) if name.startswith("variantShredding")]
    schema = orjson.loads(metadata["schemaString"]) if shredded else {"fields": []}
    held = [field["name"] for field in schema["fields"] if b'"variant"' in orjson.dumps(field["type"])]
    if not held or set(held) & set(columns):
        return protocol, metadata
    schema["fields"] = [field for field in schema["fields"] if field["name"] not in held]
    features = [name for name in protocol["readerFeatures"] if not name.startswith("variant")]
    protocol = {**protocol, "readerFeatures": features, "writerFeatures": features}
    return protocol, {**metadata, "schemaString": orjson.dumps(schema).decode()}


def _numbered(metadata: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The same with one partition column more."""
    schema = orjson.loads(metadata["schemaString"])
    known = [int(each.get("metadata", {}).get("delta.columnMapping.id", 0)) for each in schema["fields"]]
    largest = max(known, default=0) + int(metadata["configuration"].get("delta.columnMapping.maxColumnId", 0))
    mapping = {"delta.columnMapping.id": largest + 1, "delta.columnMapping.physicalName": name}
    schema["fields"].append({"name": name, "type": "integer", "nullable": True, "metadata": mapping})
    return {
        **metadata,
        "schemaString": orjson.dumps(schema).decode(),
        "partitionColumns": [*metadata["partitionColumns"], name],
    }


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
        counts = []  # by footers: the vectors' reader wants them, the log may lack them
        for number in numbers:
            with parquet_errors(paths[number], snapshot.ref.uri):
                counts.append(int(pq.read_metadata(paths[number]).num_rows))
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
