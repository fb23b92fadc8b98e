"""A Delta log of a few files of a version, for a reader of rows that shall open no others.

Rule: nothing is invented: protocol, schema, column mapping and partition values are the table's own. A file and its
deletion vector are opened first, where the table may read, and go by names that lead to what was opened.
"""

import os
import re
import resource
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from backend.errors import LakehouseError, ObjectMissingError, TableCorruptError, UnsupportedFeatureError
from backend.lake.files.file_names import may_be_misspelled, spelled, write_spelled
from backend.lake.files.footer import parquet_errors
from backend.lake.history.change_feed import FEED, feed_files
from backend.lake.log.actions import FileAction, read_vector_id
from backend.lake.log.commits import CommitSlice, commit_name
from backend.lake.log.file_set import plain_values
from backend.lake.log.listing import LOG
from backend.lake.model import FILE_COLUMNS, Metadata, Protocol, Snapshot
from backend.lake.rows.evolved import collections, lacks, write_filled
from backend.lake.storage.local_folder import LocalFolder, real
from backend.lake.storage.storage import Storage, TableFile, TableFiles
from backend.lake.table.file_times import holds_old_times, may_be_old, opened, write_rebased
from backend.lake.table.partition_columns import show_partitions
from backend.lake.table.partitions import partition_values, physical_names
from backend.lake.table.schema import read_schema

_VECTOR_HEAD = 4  # bytes of the big-endian length before a vector
_OPEN_FILES = Path("/proc/self/fd")  # where Linux names what this process has open
_MOST_OPEN, _FILES_AT_ONCE = 1 << 16, 512  # each keeps about a kilobyte of the kernel's memory


@contextmanager
def log_subset(
    storage: Storage,
    snapshot: Snapshot,
    files: pa.Table,
    *,
    as_of: Snapshot | None = None,
    numbered: tuple[str, int] | None = None,
) -> Iterator[str]:
    """A folder that reads as a table of these files (`model.FILE_COLUMNS`; `num_records` where a reader wants it) of a
    snapshot; those on an object store are fetched into it.

    `as_of` is the version whose schema they are read with, as Delta reads old files today. `numbered` is a column that
    the table does not have, and a number: it gives each row its file's number among these, counted from there.

    Raises `DataFileMissingError`, `PathRefusedError` or a `StorageError`.
    """
    with files_on_disk(storage, snapshot.ref.uri) as on_disk:
        yield written(on_disk, snapshot, files, as_of=as_of, numbered=numbered)


def written(
    on_disk: "FilesOnDisk",
    snapshot: Snapshot,
    files: pa.Table,
    *,
    as_of: Snapshot | None = None,
    numbered: tuple[str, int] | None = None,
) -> str:
    """The folder of `log_subset`: that of the files, which are held already."""
    schema = as_of or snapshot
    metadata = _metadata(schema.metadata)
    adds = _adds(on_disk, snapshot, files)
    if numbered is not None:
        column, start = numbered
        metadata = _numbered(metadata, column)
        for number, add in enumerate(adds, start):
            add["add"]["partitionValues"][column] = str(number)
    on_disk.write_commit(0, [{"protocol": _protocol(schema.protocol)}, {"metaData": metadata}, *adds])
    return str(on_disk.folder)


def written_feed(on_disk: "FilesOnDisk", snapshot: Snapshot, commits: Sequence[CommitSlice]) -> str:
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


def _adds(on_disk: "FilesOnDisk", snapshot: Snapshot, files: pa.Table) -> list[dict[str, Any]]:
    physical = physical_names(snapshot.metadata)
    by_id = snapshot.metadata.configuration.get("delta.columnMapping.mode", "").lower() == "id"
    names = set(physical.values())
    adds = []
    for row in files.to_pylist():
        if by_id:
            on_disk.check_names(row["path"], names)
        values = partition_values(row["partition"], snapshot.metadata)
        path = on_disk.spelled_rows_of(row["path"], snapshot.metadata)
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


class FilesOnDisk:
    """The files of one table on this machine for readers that take names: each is opened below its root, or fetched.

    What was checked is what is read: a name from here leads to the open file, whatever the file's own name means by
    then. Where the system has no names for open files (no `/proc`) it is the name that was checked a moment before.
    """

    def __init__(self, storage: Storage, table: str, folder: Path, *, is_for_many: bool) -> None:
        most_open = _most_open()  # for everybody: the limit is raised here
        self._most_open = most_open if is_for_many else None
        self._files, self._table, self.folder = TableFiles(storage, table), table, folder
        self._names: dict[str, str] = {}  # by address: a file has one name here, however often it is asked for
        self._rebased: dict[str, str] = {}
        self._spelled: dict[str, str] = {}
        self._paths: dict[int, str] = {}  # what the log calls an open file
        self._link = folder / "fd"  # a folder's name is new each time: no cache takes one open file for another
        self._by_descriptor = _OPEN_FILES.is_dir()
        if self._by_descriptor:
            self._link.symlink_to(_OPEN_FILES)
        else:
            self._link.mkdir()

    def path_of(self, path: str) -> str:
        """The absolute path on this machine of a regular file that is there and may be read."""
        file = self._files.locate(path)
        if file.uri not in self._names:
            self._names[file.uri] = self._opened(path, file) or self._copy(path, file)
        return self._names[file.uri]

    def _opened(self, path: str, file: TableFile) -> str | None:
        """None for a file on an object store."""
        if not isinstance(file.folder, LocalFolder):
            return None
        try:
            descriptor = file.folder.descriptor(file.path)
        except ObjectMissingError as exc:
            raise self._files.gone(path) from exc
        if not self._by_descriptor:
            os.close(descriptor)
            descriptor = len(self._paths)
            (self._link / str(descriptor)).symlink_to(real(file.uri))
        elif self._most_open is not None and descriptor >= self._most_open:  # numbers are given from the lowest up
            os.close(descriptor)
            raise UnsupportedFeatureError(
                f"{self._table} has more files to compare than may be open at once ({self._most_open:,})",
                hint="raise the limit of open files (ulimit -n), or compare a shorter range",
            )
        self._paths[descriptor] = path
        return f"{self._link}/{descriptor}"

    def rows_of(self, path: str, metadata: Metadata) -> str:
        """The same for a file of rows; where it counts days in the old calendar, of a copy that does not. Raises
        `UnsupportedFeatureError` among many, for they may be more than fit beside the table."""
        local = self.path_of(path)
        if local not in self._rebased:
            self._rebased[local] = self._filled(path, self._in_new_calendar(path, local, metadata), metadata)
        return self._rebased[local]

    def _filled(self, path: str, local: str, metadata: Metadata) -> str:
        """The same for one that lacks fields of structs within maps or arrays: of a copy with nulls for them."""
        if metadata.configuration.get("delta.columnMapping.mode", "none") != "none" or not (
            kinds := collections(metadata.schema_json)
        ):
            return local
        with pa.OSFile(local) as source, parquet_errors(path, self._table):
            file = opened(source)
            stored = {field.name: field.type for field in file.schema_arrow}
            kinds = {name: kind for name, kind in kinds.items() if name in stored and lacks(stored[name], kind)}
            if not kinds:
                return local
            if self._most_open is not None:
                raise UnsupportedFeatureError(f"{path} of {self._table} lacks fields within {', '.join(kinds)}")
            copy = self.folder / f"{len(self._names)}.{len(self._rebased)}.filled.parquet"
            write_filled(file, copy, kinds)
        return str(copy)

    def _in_new_calendar(self, path: str, local: str, metadata: Metadata) -> str:
        if '"date"' not in metadata.schema_json and '"timestamp"' not in metadata.schema_json:
            return local
        with pa.OSFile(local) as source, parquet_errors(path, self._table):
            if not may_be_old(source) or not holds_old_times(file := opened(source)):
                return local
            if self._most_open is not None:
                raise UnsupportedFeatureError(f"{path} of {self._table} counts days in the calendar before 1582")
            copy = self.folder / f"{len(self._names)}.rebased.parquet"
            write_rebased(file, copy, f"{path} of {self._table}")
        return str(copy)

    def spelled_rows_of(self, path: str, metadata: Metadata) -> str:
        """The same for a reader that tells names apart by case; where those of the file's columns differ in it, of a
        copy that has the table's: deltalake (1.6.6, tried) gives nulls for such columns and no error."""
        local = self.rows_of(path, metadata)
        if local in self._spelled:
            return self._spelled[local]
        with pa.OSFile(local) as source, parquet_errors(path, self._table):
            if not may_be_misspelled(source, metadata):
                return local
            schema = spelled((file := opened(source)).schema_arrow, metadata)
            if schema.names == file.schema_arrow.names and schema.types == file.schema_arrow.types:
                return local
            if self._most_open is not None:
                raise UnsupportedFeatureError(f"{path} of {self._table} has columns whose names differ in case alone")
            copy = self.folder / f"{len(self._names)}.{len(self._spelled)}.spelled.parquet"
            write_spelled(file, schema, copy)
        self._spelled[local] = str(copy)
        return str(copy)

    def _copy(self, path: str, file: TableFile) -> str:
        copy = self.folder / f"{len(self._names)}{Path(file.path).suffix}"
        try:
            copy.write_bytes(file.folder.read(file.path))
        except ObjectMissingError as exc:
            raise self._files.gone(path) from exc
        return str(copy)

    def vector_bytes(self, path: str, offset: int) -> int:
        """The length that a deletion vector's file states at an offset."""
        with Path(self.path_of(path)).open("rb") as file:
            file.seek(offset)
            head = file.read(_VECTOR_HEAD)
        if len(head) < _VECTOR_HEAD:
            raise TableCorruptError(f"{path} of {self._table} ends before its deletion vector", hint="the file is torn")
        return int.from_bytes(head, "big")

    def check_names(self, path: str, names: set[str]) -> None:
        """Raise `UnsupportedFeatureError` for a file whose columns go by their id alone: deltalake (1.6.6, tried) gives
        nulls for them and no error."""
        with parquet_errors(path, self._table):
            schema = pq.read_schema(self.path_of(path))
        strange = [
            field.name for field in schema if field.name not in names and b"PARQUET:field_id" in (field.metadata or {})
        ]
        if strange:
            raise UnsupportedFeatureError(
                f"{path} of {self._table} names its columns by their ids alone ({strange[0]!r} …)",
                hint="the log's numbers still hold; Spark can read these rows",
            )

    def named(self, message: str) -> str:
        """A reader's message with the files' own names."""
        link = re.escape(str(self._link).lstrip("/"))
        return re.sub(rf"/?{link}/(\d+)", lambda match: self._paths.get(int(match[1]), match[0]), message)

    def write_commit(self, version: int, actions: Sequence[Any]) -> None:
        """Into a log beside the files."""
        log = self.folder / LOG
        log.mkdir(exist_ok=True)
        (log / commit_name(version)).write_bytes(b"".join(orjson.dumps(action) + b"\n" for action in actions))

    def close(self) -> None:
        if self._by_descriptor:
            self._link.unlink()  # first: a number that is free again may soon mean another file
            for descriptor in self._paths:
                os.close(descriptor)


@cache
def _most_open() -> int:
    """How many files a reader of many may have open: a quarter of what the system allows is left to all others. Most
    systems let a process ask for far more than the 1,024 that it begins with."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard and _OPEN_FILES.is_dir():
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return _MOST_OPEN if hard == resource.RLIM_INFINITY else min(_MOST_OPEN, hard // 4 * 3)


def files_at_once() -> int:
    """How many files one reader of a few has open at a time: there may be several."""
    return max(1, min(_FILES_AT_ONCE, _most_open() // 8))


@contextmanager
def files_on_disk(storage: Storage, table: str, *, is_for_many: bool = False) -> Iterator[FilesOnDisk]:
    """Held as long as they are read, in a folder that nobody else may enter; errors name the files as the log does.
    `is_for_many` keeps some for others, and then raises `UnsupportedFeatureError`."""
    with tempfile.TemporaryDirectory(prefix="weir-rows-") as folder:
        on_disk = FilesOnDisk(storage, table, Path(folder), is_for_many=is_for_many)
        try:
            yield on_disk
        except LakehouseError as exc:
            exc.message = on_disk.named(exc.message)
            exc.args = (exc.message,)
            raise
        finally:
            on_disk.close()


def _vector(on_disk: FilesOnDisk, dv_id: str, deleted_rows: int) -> dict[str, Any]:
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
        "schemaString": read_schema(metadata.schema_json).json,
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
