"""A Delta log of a few files of a version, for a reader of rows that shall open no others.

Rule: nothing is invented: protocol, schema, column mapping and partition values are the table's own. A file and its
deletion vector are named by absolute path, and only after they were found where the table may read.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from backend.errors import ObjectMissingError, TableCorruptError, UnsupportedFeatureError
from backend.lake.files.file_times import holds_old_times, may_be_old, opened, write_rebased
from backend.lake.files.footer import parquet_errors
from backend.lake.log.actions import read_vector_id
from backend.lake.model import Metadata, Protocol, Snapshot
from backend.lake.storage.paths import is_remote
from backend.lake.storage.storage import Storage, TableFile, TableFiles
from backend.lake.table.partitions import partition_values, physical_names

_VECTOR_HEAD = 4  # bytes of the big-endian length before a vector


@contextmanager
def log_subset(
    storage: Storage,
    snapshot: Snapshot,
    files: pa.Table,
    *,
    as_of: Snapshot | None = None,
    numbered: str | None = None,
) -> Iterator[str]:
    """A folder that reads as a table of these files (`model.FILE_COLUMNS`; `num_records` where a reader wants it) of a
    snapshot; those on an object store are fetched into it.

    `as_of` is the version whose schema they are read with, as Delta reads old files today. `numbered` is a column that
    the table does not have: it gives each row its file's number among these.

    Raises `DataFileMissingError`, `PathRefusedError` or a `StorageError`.
    """
    schema = as_of or snapshot
    metadata = _metadata(schema.metadata) if numbered is None else _numbered(_metadata(schema.metadata), numbered)
    actions: list[Any] = [{"protocol": _protocol(schema.protocol)}, {"metaData": metadata}]
    with tempfile.TemporaryDirectory(prefix="weir-rows-") as folder:
        adds = _adds(_OnDisk(storage, snapshot.ref.uri, Path(folder)), snapshot, files)
        for number, add in enumerate(adds if numbered else ()):
            add["add"]["partitionValues"][numbered] = str(number)
        log = Path(folder) / "_delta_log"
        log.mkdir()
        lines = b"\n".join(orjson.dumps(action) for action in [*actions, *adds])
        (log / f"{0:020d}.json").write_bytes(lines + b"\n")
        yield folder


def local_paths(storage: Storage, snapshot: Snapshot, files: pa.Table) -> list[str]:
    """Where files (column `path`) of a table on this machine lie; raises `DataFileMissingError`, `PathRefusedError`,
    and `UnsupportedFeatureError` for one whose days are counted in the old calendar."""
    on_disk = _OnDisk(storage, snapshot.ref.uri, None)
    return [on_disk.rows_of(path, snapshot.metadata) for path in files["path"].to_pylist()]


def _adds(on_disk: "_OnDisk", snapshot: Snapshot, files: pa.Table) -> list[dict[str, Any]]:
    physical = physical_names(snapshot.metadata)
    by_id = snapshot.metadata.configuration.get("delta.columnMapping.mode", "").lower() == "id"
    names = set(physical.values())
    adds = []
    for row in files.to_pylist():
        if by_id:
            on_disk.check_names(row["path"], names)
        values = partition_values(row["partition"], snapshot.metadata)
        path = on_disk.rows_of(row["path"], snapshot.metadata)
        add: dict[str, Any] = {
            "path": _file_url(path),
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


class _OnDisk:
    """The files of one table on this machine, each seen to be there or fetched before a reader gets it."""

    def __init__(self, storage: Storage, table: str, fetched: Path | None) -> None:
        """`fetched` is a folder for copies; None where there is no use for one."""
        self._files, self._table, self._fetched = TableFiles(storage, table), table, fetched
        self._copies: dict[str, str] = {}

    def path_of(self, path: str) -> str:
        """The absolute path on this machine of a file that is there and may be read."""
        file = self._files.locate(path)
        if is_remote(file.uri):
            return self._copy(path, file)
        if file.folder.stat(file.path) is None:
            raise self._files.gone(path)
        return file.uri

    def rows_of(self, path: str, metadata: Metadata) -> str:
        """The same for a file of rows; where it counts days in the old calendar, of a copy that does not."""
        local = self.path_of(path)
        if local in self._copies:
            return self._copies[local]
        if '"date"' not in metadata.schema_json and '"timestamp"' not in metadata.schema_json:
            return local
        with pa.OSFile(local) as source, parquet_errors(path, self._table):
            if not may_be_old(source) or not holds_old_times(file := opened(source)):
                return local
            if self._fetched is None:
                raise UnsupportedFeatureError(f"{path} of {self._table} counts days in the calendar before 1582")
            copy = self._fetched / f"{len(self._copies)}.rebased.parquet"
            write_rebased(file, copy, f"{path} of {self._table}")
        self._copies[local] = str(copy)
        return str(copy)

    def _copy(self, path: str, file: TableFile) -> str:
        if file.uri not in self._copies:
            assert self._fetched is not None
            copy = self._fetched / f"{len(self._copies)}{Path(file.path).suffix}"
            try:
                copy.write_bytes(file.folder.read(file.path))
            except ObjectMissingError as exc:
                raise self._files.gone(path) from exc
            self._copies[file.uri] = str(copy)
        return self._copies[file.uri]

    def vector_bytes(self, path: str, offset: int) -> int:
        """The length that a deletion vector's file states at an offset."""
        with self._files.open(path) as file:
            file.seek(offset)
            head = file.read(_VECTOR_HEAD)
        if len(head) < _VECTOR_HEAD:
            raise TableCorruptError(f"{path} of {self._table} ends before its deletion vector", hint="the file is torn")
        return int.from_bytes(head, "big")

    def check_names(self, path: str, names: set[str]) -> None:
        """Raise `UnsupportedFeatureError` for a file whose columns go by their id alone: deltalake (1.6.6, tried) gives
        nulls for them and no error."""
        located = self._files.locate(path)
        if located.folder.stat(located.path) is None:
            return
        with located.folder.open(located.path) as file, parquet_errors(path, self._table):
            schema = pq.read_schema(file)
        strange = [
            field.name for field in schema if field.name not in names and b"PARQUET:field_id" in (field.metadata or {})
        ]
        if strange:
            raise UnsupportedFeatureError(
                f"{path} of {self._table} names its columns by their ids alone ({strange[0]!r} …)",
                hint="the log's numbers still hold; Spark can read these rows",
            )


def _vector(on_disk: _OnDisk, dv_id: str, deleted_rows: int) -> dict[str, Any]:
    """A deletion vector as an action names it, with the absolute path of its file."""
    vector = read_vector_id(dv_id)
    if vector.kind == "i":
        size = len(vector.text) // 5 * 4
        return {"storageType": "i", "pathOrInlineDv": vector.text, "sizeInBytes": size, "cardinality": deleted_rows}
    if vector.file is None:
        raise TableCorruptError(f"{vector.text!r} names no deletion vector", hint="the log is damaged there")
    return {
        "storageType": "p",
        "pathOrInlineDv": _file_url(on_disk.path_of(vector.file)),
        "offset": vector.offset,
        "sizeInBytes": on_disk.vector_bytes(vector.file, vector.offset),
        "cardinality": deleted_rows,
    }


def _file_url(path: str) -> str:
    return "file://" + quote(os.path.abspath(path))  # noqa: PTH100  text alone: nothing is followed


def _protocol(protocol: Protocol) -> Mapping[str, Any]:
    """What a reader must know; a writer's features are nothing to one that only reads. deltalake (1.6.6, tried) refuses
    type widening and reads it well: every file is cast to the table's types."""
    if protocol.min_reader_version >= 3:
        features = [feature for feature in protocol.reader_features if not feature.startswith("typeWidening")]
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
        "schemaString": metadata.schema_json,
        "partitionColumns": list(metadata.partition_columns),
        "configuration": mapping,
        "createdTime": 0,
    }


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
