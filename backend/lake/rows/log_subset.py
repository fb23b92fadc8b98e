"""Some files of a version for readers that take names: each opened below its root, or fetched, and given as a Delta log
that names no others, or as parquet files with what the log says of them.

Rule: what was checked is what is read, and what a reader would get wrong in a file, it gets in a copy. Nothing is
invented: protocol, schema, column mapping and partition values are the table's own. A file and its deletion vector are
opened first, where the table may read, and go by names that lead to what was opened. A row's position in its file
counts the deleted ones too: deltalake decodes the deletion vectors, whose positions come beside the files of parquet.
"""

import os
import re
import resource
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backend.errors import LakehouseError, ObjectMissingError, TableCorruptError, UnsupportedFeatureError
from backend.lake.files.footer import parquet_errors
from backend.lake.history.change_feed import FEED, feed_files
from backend.lake.log.actions import FileAction, read_vector_id
from backend.lake.log.commits import CommitSlice
from backend.lake.log.file_set import plain_values
from backend.lake.log.listing import LOG, commit_name
from backend.lake.model import FILE_COLUMNS, Metadata, Protocol, Snapshot
from backend.lake.storage.folder import is_remote
from backend.lake.storage.local_folder import LocalFolder, real
from backend.lake.storage.storage import Storage, TableFile, TableFiles
from backend.lake.table.misreadings import checks
from backend.lake.table.properties import ROW_FEATURES
from backend.lake.table.schema import partition_values, physical_names, read_schema, show_partitions

_VECTOR_HEAD = 4  # bytes of the big-endian length before a vector
_OPEN_FILES = Path("/proc/self/fd")  # where Linux names what this process has open
_MOST_OPEN, _FILES_AT_ONCE = 1 << 16, 512  # each keeps about a kilobyte of the kernel's memory


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
        self._readable: dict[tuple[str, bool], str] = {}
        self._numbers = count()  # of copies
        self._paths: dict[int, str] = {}  # what the log calls an open file
        self._link = folder / "fd"  # a folder's name is new each time: no cache takes one open file for another
        self._by_descriptor = _OPEN_FILES.is_dir()
        if self._by_descriptor:
            self._link.symlink_to(f"/proc/{os.getpid()}/fd")  # so a query's process reads it too
        else:
            self._link.mkdir()

    def path_of(self, path: str) -> str:
        """The absolute path on this machine of a regular file that is there and may be read."""
        file = self._files.locate(path)
        if file.uri not in self._names:
            try:
                is_here = isinstance(file.folder, LocalFolder)
                self._names[file.uri] = self._opened(path, file) if is_here else self._fetched(file)
            except ObjectMissingError as exc:
                raise self._files.gone(path) from exc
        return self._names[file.uri]

    def _opened(self, path: str, file: TableFile) -> str:
        assert isinstance(file.folder, LocalFolder)
        descriptor = file.folder.descriptor(file.path)
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

    def rows_of(self, path: str, metadata: Metadata, *, by_case: bool = False) -> str:
        """The path of a file of rows, or of a copy of it where a reader would get something in it wrong. `by_case`: a
        reader that tells names apart by case. Raises `UnsupportedFeatureError` among many, whose copies may be more
        than fit beside the table."""
        key = self.path_of(path), by_case
        if key not in self._readable:
            local, name = key[0], f"{path} of {self._table}"
            for check in checks(metadata, name, by_case=by_case):  # each of the copy that the one before made
                with pa.OSFile(local) as source, parquet_errors(path, self._table):
                    if (misreading := check(source)) is None:
                        continue
                    if self._most_open is not None:
                        raise UnsupportedFeatureError(f"{name} {misreading.why}")
                    copy = self.folder / f"{next(self._numbers)}.parquet"
                    misreading.write(copy)
                local = str(copy)
            self._readable[key] = local
        return self._readable[key]

    def _fetched(self, file: TableFile) -> str:
        copy = self.folder / f"{next(self._numbers)}{Path(file.path).suffix}"
        copy.write_bytes(file.folder.read(file.path))
        return str(copy)

    def vector_bytes(self, path: str, offset: int) -> int:
        """The length that a deletion vector's file states at an offset."""
        with Path(self.path_of(path)).open("rb") as file:
            file.seek(offset)
            head = file.read(_VECTOR_HEAD)
        if len(head) < _VECTOR_HEAD:
            raise TableCorruptError(f"{path} of {self._table} ends before its deletion vector", hint="the file is torn")
        return int.from_bytes(head, "big")

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


# as a log of these files alone ------------------------------------------------------------------------------------


def log_subset(
    on_disk: FilesOnDisk,
    snapshot: Snapshot,
    files: pa.Table,
    *,
    as_of: Snapshot | None = None,
    numbered: tuple[str, int] | None = None,
    columns: Sequence[str] | None = None,
) -> str:
    """A folder that reads as a table of these files (`model.FILE_COLUMNS`; `num_records` where a reader wants it) of a
    snapshot, as long as they are held; those on an object store are fetched into it.

    `as_of` is the version whose schema they are read with, as Delta reads old files today. `numbered` is a column that
    the table does not have, and a number: it gives each row its file's number among these, counted from there.
    `columns` are those that are read, None for all: a shredded variant keeps nobody from the others.

    Raises `DataFileMissingError`, `PathRefusedError` or a `StorageError`.
    """
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


def feed_subset(on_disk: FilesOnDisk, snapshot: Snapshot, commits: Sequence[CommitSlice]) -> str:
    """A `log_subset` for a reader of the change feed: version 1 is the first of the commits, each with just the files
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
    """Protocol and metadata without shredded variants, which deltalake (1.6.6, tried) refuses, unless one is read."""
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
    """Metadata with one partition column more."""
    schema = orjson.loads(metadata["schemaString"])
    ids = [int(field.get("metadata", {}).get("delta.columnMapping.id", 0)) for field in schema["fields"]]
    largest = max(ids, default=0) + int(metadata["configuration"].get("delta.columnMapping.maxColumnId", 0))
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
    positions_by_file = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for numbers in at_once if marked else ():  # two vectors of one file go by the same name
        counts = []  # by footers: the vectors' reader wants them, the log may lack them
        for number in numbers:
            with parquet_errors(paths[number], snapshot.ref.uri):
                counts.append(int(pq.read_metadata(paths[number]).num_rows))
        some = files.take(pa.array(numbers)).drop_columns(["num_records"]).append_column("num_records", [counts])
        from backend.lake.rows import scan  # late: most files have no deletion vector

        deleted = scan.deleted_positions(log_subset(on_disk, snapshot, some, columns=()), snapshot.ref.uri)
        for number in numbers:
            if (gone := deleted.get(paths[number])) is None:
                raise UnsupportedFeatureError(
                    f"the deletion vector of {paths[number]} is not told apart", hint="compare by another method"
                )
            positions_by_file.append((np.full(len(gone), number, np.int64), gone))
    file_numbers, positions = (np.concatenate(arrays) for arrays in zip(*positions_by_file, strict=True))
    return pa.table({"file": file_numbers, "position": positions})
