"""A Delta log of a few files of a version, so that a reader of rows opens those files and no others.

Rule: nothing is invented. Protocol, schema, column mapping and partition values are the table's own; a file and its
deletion vector are named by their absolute place, and only after they were found to lie where the table may read.
"""

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from backend.errors import DataFileMissingError, ObjectMissingError, TableCorruptError, UnsupportedFeatureError
from backend.lake.files.footer import parquet_errors
from backend.lake.log.actions import UUID_CHARS
from backend.lake.model import Metadata, Protocol, Snapshot
from backend.lake.storage.folder import Folder
from backend.lake.storage.paths import is_remote, is_within, resolve_log_path
from backend.lake.storage.storage import Storage
from backend.lake.table.partitions import partition_values, physical_names

_OFFSET = re.compile(r"@(\d+)$")
_VECTOR_HEAD = 4  # bytes of the big-endian length before a vector
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


@contextmanager
def excerpt_log(
    storage: Storage,
    snapshot: Snapshot,
    files: pa.Table,
    *,
    as_of: Snapshot | None = None,
    numbered: str | None = None,
) -> Iterator[str]:
    """A folder that reads as a table of these files (`model.FILE_COLUMNS`; `num_records` where a reader wants it) of a
    snapshot; those on an object store are fetched into it. `as_of` is the version whose schema they are read with,
    as Delta reads old files today; `numbered` a column that the table does not have: it gives each row its file's place
    among these.

    Raises `DataFileMissingError`, `PathRefusedError` or a `StorageError`.
    """
    schema = as_of or snapshot
    metadata = _metadata(schema.metadata) if numbered is None else _numbered(_metadata(schema.metadata), numbered)
    actions: list[Any] = [{"protocol": _protocol(schema.protocol)}, {"metaData": metadata}]
    with tempfile.TemporaryDirectory(prefix="weir-rows-") as folder:
        adds = _adds(_Places(storage, snapshot.ref.uri, Path(folder)), snapshot, files)
        for place, add in enumerate(adds if numbered else ()):
            add["add"]["partitionValues"][numbered] = str(place)
        log = Path(folder) / "_delta_log"
        log.mkdir()
        lines = b"\n".join(orjson.dumps(action) for action in [*actions, *adds])
        (log / f"{0:020d}.json").write_bytes(lines + b"\n")
        yield folder


def local_paths(storage: Storage, snapshot: Snapshot, files: pa.Table) -> list[str]:
    """Where files (column `path`) of a table on this machine lie; raises `DataFileMissingError`, `PathRefusedError`."""
    places = _Places(storage, snapshot.ref.uri, Path())
    return [places.found(path) for path in files["path"].to_pylist()]


def _adds(places: "_Places", snapshot: Snapshot, files: pa.Table) -> list[dict[str, Any]]:
    physical = physical_names(snapshot.metadata)
    by_id = snapshot.metadata.configuration.get("delta.columnMapping.mode", "").lower() == "id"
    names = set(physical.values())
    adds = []
    for row in files.to_pylist():
        if by_id:
            places.check_names(row["path"], names)
        values = partition_values(row["partition"], snapshot.metadata)
        add: dict[str, Any] = {
            "path": _file_url(places.found(row["path"])),
            "partitionValues": {physical.get(name, name): value for name, value in values.items()},
            "size": row["size_bytes"],
            "modificationTime": 0,
            "dataChange": False,
        }
        if row["dv_id"] is not None:
            add["deletionVector"] = _vector(places, row["dv_id"], row["deleted_rows"])
        if (num_records := row.get("num_records")) is not None:
            add["stats"] = orjson.dumps({"numRecords": num_records}).decode()
        adds.append({"add": add})
    return adds


class _Places:
    """Where the files of one table are, each looked up on the disk before it is handed to a reader."""

    def __init__(self, storage: Storage, table: str, fetched: Path) -> None:
        self._storage, self._table, self._fetched = storage, table, fetched
        self._folders: dict[str, Folder] = {}
        self._copies: dict[str, str] = {}

    def found(self, path: str) -> str:
        """The absolute path on this machine of a file that is there and may be read."""
        place, folder, inside = self._resolved(path)
        if is_remote(place):
            return self._copy(path, place, folder, inside)
        if folder.stat(inside) is None:
            raise self._gone(path)
        return place

    def _copy(self, path: str, place: str, folder: Folder, inside: str) -> str:
        if place not in self._copies:
            copy = self._fetched / f"{len(self._copies)}{Path(inside).suffix}"
            try:
                copy.write_bytes(folder.read(inside))
            except ObjectMissingError as exc:
                raise self._gone(path) from exc
            self._copies[place] = str(copy)
        return self._copies[place]

    def _gone(self, path: str) -> DataFileMissingError:
        return DataFileMissingError(f"{path} of {self._table} is gone", hint="it was vacuumed or deleted by hand")

    def vector_bytes(self, path: str, offset: int) -> int:
        """The length that a deletion vector's file states at an offset."""
        _, folder, inside = self._resolved(path)
        with folder.open(inside) as file:
            file.seek(offset)
            head = file.read(_VECTOR_HEAD)
        if len(head) < _VECTOR_HEAD:
            raise TableCorruptError(f"{path} of {self._table} ends before its deletion vector", hint="the file is torn")
        return int.from_bytes(head, "big")

    def check_names(self, path: str, names: set[str]) -> None:
        """Raise `UnsupportedFeatureError` for a file whose columns go by their id alone: deltalake (1.6.6, tried) gives
        nulls for them and no error."""
        _, folder, inside = self._resolved(path)
        if folder.stat(inside) is None:
            return
        with folder.open(inside) as file, parquet_errors(path, self._table):
            schema = pq.read_schema(file)
        strange = [
            field.name for field in schema if field.name not in names and b"PARQUET:field_id" in (field.metadata or {})
        ]
        if strange:
            raise UnsupportedFeatureError(
                f"{path} of {self._table} names its columns by their ids alone ({strange[0]!r} …)",
                hint="the log's numbers still hold; Spark can read these rows",
            )

    def _resolved(self, path: str) -> tuple[str, Folder, str]:
        place = resolve_log_path(path, self._table, self._storage.roots)
        home = self._table if is_within(place, self._table) else self._storage.root_of(place)
        folder = self._folders.get(home) or self._storage.folder(home)
        self._folders[home] = folder
        return place, folder, place.removeprefix(folder.uri).lstrip("/")


def _vector(places: _Places, dv_id: str, deleted_rows: int) -> dict[str, Any]:
    """A deletion vector from its unique id (PROTOCOL.md, "Deletion Vectors"), a file named by its absolute place."""
    kind, text = dv_id[0], dv_id[1:]
    if kind == "i":
        text = text if len(text) % 5 == 0 else _OFFSET.sub("", text)
        size = len(text) // 5 * 4
        return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": size, "cardinality": deleted_rows}
    match = _OFFSET.search(text)
    offset = int(match.group(1)) if match else 0
    path = _OFFSET.sub("", text)
    named = _vector_path(path) if kind == "u" else path
    return {
        "storageType": "p",
        "pathOrInlineDv": _file_url(places.found(named)),
        "offset": offset,
        "sizeInBytes": places.vector_bytes(named, offset),
        "cardinality": deleted_rows,
    }


def _vector_path(text: str) -> str:
    """The file of a relative vector: its folder, and the name that the base85 uuid stands for."""
    folder, uuid = text[:-UUID_CHARS], text[-UUID_CHARS:]
    try:
        digits = [_Z85.index(char) for char in uuid]
        words = [
            sum(digit * 85 ** (4 - place) for place, digit in enumerate(digits[n : n + 5])) for n in (0, 5, 10, 15)
        ]
        plain = b"".join(word.to_bytes(4, "big") for word in words).hex()
    except (ValueError, OverflowError) as exc:
        raise TableCorruptError(f"{text!r} names no deletion vector", hint="the log is damaged there") from exc
    name = "-".join((plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:]))
    return f"{folder}/deletion_vector_{name}.bin" if folder else f"deletion_vector_{name}.bin"


def _file_url(place: str) -> str:
    return "file://" + quote(os.path.abspath(place))  # noqa: PTH100  text alone: nothing is followed


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
