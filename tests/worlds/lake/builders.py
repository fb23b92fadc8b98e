"""Tiny Delta tables for every test: real ones made with deltalake, and odd logs written by hand.

Rule: everything is made below the folder given (a tmp_path); nothing is shared between tests.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, write_deltalake

from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.lake.rows.rows import RowPage, RowQuery

CHANGE_FEED = {"delta.enableChangeDataFeed": "true"}


def write(path: Path, rows: Mapping[str, Sequence[Any]] | pa.Table, **options: Any) -> Path:
    """Append rows to a table (made at the first call); `options` go to `write_deltalake`."""
    table = rows if isinstance(rows, pa.Table) else pa.table(dict(rows))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_deltalake(str(path), table, **{"mode": "append", **options})
    return path


def broken_orders(path: Path, *, good: int = 4, stamp: CommitProperties | None = None) -> Path:
    """So many good rows, one a commit; a compaction; a commit (stamped) with a negative amount and one that is not
    known; two more good rows."""
    for number in range(good):
        write(path, {"id": [number], "amount": [1.0 + number]})
    DeltaTable(str(path)).optimize.compact()
    write(path, {"id": [good + 1, 60], "amount": [-4.0, None]}, commit_properties=stamp)
    for number in (good + 2, good + 3):
        write(path, {"id": [number], "amount": [1.0]})
    return path


def first_rows(
    lake: Lake, ref: TableRef, *, limit: int, version: int | None = None, columns: Sequence[str] | None = None
) -> RowPage:
    """The first rows of a version, as the Data page reads them."""
    query = RowQuery(None if columns is None else tuple(columns), limit=limit, search_files=None)
    return lake.find_rows(lake.snapshot(ref, version), query)


def orders_table(path: Path, *, change_feed: bool = True) -> Path:
    """Four versions: 0 three orders written, 1 two appended, 2 order 2 updated, 3 order 1 deleted.

    Live rows at the end: (2, "paid", 25.0), (3, "new", 30.0), (4, "new", 40.0), (5, "new", 50.0).
    """
    configuration = CHANGE_FEED if change_feed else None
    write(
        path,
        {"order_id": [1, 2, 3], "status": ["new"] * 3, "amount": [10.0, 20.0, 30.0]},
        configuration=configuration,
        commit_properties=CommitProperties(custom_metadata={"job": "seed"}),
    )
    write(path, {"order_id": [4, 5], "status": ["new"] * 2, "amount": [40.0, 50.0]})
    DeltaTable(str(path)).update(updates={"status": "'paid'", "amount": "25.0"}, predicate="order_id = 2")
    DeltaTable(str(path)).delete("order_id = 1")
    return path


def partitioned_table(path: Path, *, days: int = 3, files_per_day: int = 2) -> Path:
    """`days` × `files_per_day` small files of two rows, partitioned by `day`; one commit per file and day."""
    for number in range(files_per_day):
        for day in range(1, days + 1):
            rows = {"id": [number * 100 + day, number * 100 + day + 50], "day": [f"2026-01-{day:02d}"] * 2}
            write(path, rows, partition_by=["day"])
    return path


def medallion_lake(root: Path) -> Path:
    """A lake with bronze/orders_raw, silver/orders and gold/orders_by_status; returns the root."""
    write(root / "bronze" / "orders_raw", {"id": [1, 2, 3], "body": ["{}", "{}", "{}"]})
    orders_table(root / "silver" / "orders")
    write(root / "gold" / "orders_by_status", {"status": ["new", "paid"], "orders": [3, 1]})
    return root


def column(
    name: str,
    kind: Any = "long",
    *,
    number: int | None = None,
    physical: str = "",
    nullable: bool = True,
    **traits: Any,
) -> dict[str, Any]:
    """A field of a schema; `number` and `physical` are those of column mapping, `traits` its other metadata."""
    mapping = {"delta.columnMapping.id": number} if number is not None else {}
    mapping |= {"delta.columnMapping.physicalName": physical} if physical else {}
    return {"name": name, "type": kind, "nullable": nullable, "metadata": mapping | traits}


def struct(*columns: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(columns)}


def schema_json(columns: Mapping[str, str] | Sequence[dict[str, Any]]) -> str:
    """A StructType's JSON from column → type (`long`, `string`, `double` …) or whole fields."""
    fields = [column(*item) for item in columns.items()] if isinstance(columns, Mapping) else columns
    return json.dumps(struct(*fields))


def protocol(reader: int = 1, writer: int = 2, features: Sequence[str] = ()) -> dict[str, Any]:
    action: dict[str, Any] = {"minReaderVersion": reader, "minWriterVersion": writer}
    if reader == 3:
        action |= {"readerFeatures": list(features), "writerFeatures": list(features)}
    return {"protocol": action}


def metadata(
    columns: Mapping[str, str] | Sequence[dict[str, Any]] | None = None,
    *,
    partition_by: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
    table_id: str = "11111111-1111-1111-1111-111111111111",
) -> dict[str, Any]:
    return {
        "metaData": {
            "id": table_id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema_json(columns or {"id": "long"}),
            "partitionColumns": list(partition_by),
            "configuration": dict(configuration or {}),
            "createdTime": 1_700_000_000_000,
        }
    }


def mapped_metadata(
    columns: Mapping[str, tuple[str, Any, int]], *, partition_by: Sequence[str] = (), mode: str = "name"
) -> dict[str, Any]:
    """Metadata of a table with column mapping: its columns by name in the files, type and id."""
    mapped = [column(name, kind, number=number, physical=stored) for name, (stored, kind, number) in columns.items()]
    configuration = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "1000"}
    return metadata(mapped, partition_by=partition_by, configuration=configuration)


def add(path: str, *, size: int = 100, rows: int | None = 10, dv: Any = None, **more: Any) -> dict[str, Any]:
    action: dict[str, Any] = {
        "path": path,
        "partitionValues": {},
        "size": size,
        "modificationTime": 1_700_000_000_000,
        "dataChange": True,
    }
    if rows is not None:
        action["stats"] = json.dumps({"numRecords": rows})
    if dv is not None:
        action["deletionVector"] = dv
    return {"add": action | more}


Rows = Mapping[str, Sequence[Any]] | pa.Table


def put(table: Path, name: str, data: Rows, /, *, parquet: Mapping[str, Any] = {}, **more: Any) -> dict[str, Any]:
    """A data file, and the action that adds it; `parquet` are options of its writer, `more` the action's fields."""
    (table / name).parent.mkdir(parents=True, exist_ok=True)
    rows = data if isinstance(data, pa.Table) else pa.table(dict(data))
    pq.write_table(rows, table / name, **parquet)
    return add(name, **{"size": (table / name).stat().st_size, "rows": rows.num_rows} | more)


def remove(path: str, *, size: int | None = 100, dv: Any = None, **more: Any) -> dict[str, Any]:
    action: dict[str, Any] = {"path": path, "deletionTimestamp": 1_700_000_000_000, "dataChange": True}
    if size is not None:
        action |= {"extendedFileMetadata": True, "partitionValues": {}, "size": size}
    if dv is not None:
        action["deletionVector"] = dv
    return {"remove": action | more}


def deletion_vector(text: str, *, cardinality: int, kind: str = "u", offset: int | None = 1) -> dict[str, Any]:
    vector: dict[str, Any] = {
        "storageType": kind,
        "pathOrInlineDv": text,
        "sizeInBytes": 40,
        "cardinality": cardinality,
    }
    return vector if offset is None else vector | {"offset": offset}


def commit_info(operation: str = "WRITE", *, timestamp: int = 1_700_000_000_000, **more: Any) -> dict[str, Any]:
    return {"commitInfo": {"timestamp": timestamp, "operation": operation, "operationParameters": {}} | more}


def stamp_file(path: Path, actions: Sequence[Any]) -> None:
    """A commit's file was written when its writer says: Delta goes by the file."""
    infos = (action["commitInfo"] for action in actions if "commitInfo" in action)
    at = next((info.get("timestamp") for info in infos if isinstance(info, dict)), None)
    if isinstance(at, int) and 0 <= at < 10**14:
        os.utime(path, ns=(at * 10**6, at * 10**6))


@dataclass
class HandLog:
    """Writes a `_delta_log` action by action. `table` is the table's folder."""

    table: Path
    next_version: int = 0
    written: list[list[dict[str, Any]]] = field(default_factory=list)

    @property
    def log(self) -> Path:
        folder = self.table / "_delta_log"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def start(self, **options: Any) -> "HandLog":
        """Version 0: protocol, metadata and a commitInfo."""
        return self.commit(protocol(), metadata(**options), commit_info("CREATE TABLE"))

    def commit(self, *actions: Mapping[str, Any], version: int | None = None) -> "HandLog":
        version = self.next_version if version is None else version
        text = "".join(json.dumps(action) + "\n" for action in actions)
        stamp_file(self.raw(f"{version:020d}.json", text), actions)
        self.next_version = version + 1
        return self

    def raw(self, name: str, content: str | bytes) -> Path:
        """Any file in the log folder, there at once and whole as writers leave it."""
        path = self.log / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{name}.tmp")
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
        return draft.replace(path)

    def checkpoint(self, version: int, actions: Sequence[dict[str, Any]], *, parts: int = 1) -> "HandLog":
        """A classic checkpoint, or a multi-part one."""
        if parts == 1:
            write_checkpoint_file(self.log / f"{version:020d}.checkpoint.parquet", actions)
            return self
        for number in range(parts):
            name = f"{version:020d}.checkpoint.{number + 1:010d}.{parts:010d}.parquet"
            write_checkpoint_file(self.log / name, actions[number::parts])
        return self

    def v2_checkpoint(
        self, version: int, actions: Sequence[dict[str, Any]], *, sidecars: int = 1, top: str = "json"
    ) -> "HandLog":
        """A V2 checkpoint whose file actions lie in sidecars; `top` is json or parquet."""
        files = [action for action in actions if "add" in action or "remove" in action]
        rest = [action for action in actions if action not in files]
        for number in range(sidecars):
            name = f"{version:08d}{number:04d}-0000-0000-0000-000000000000.parquet"
            (self.log / "_sidecars").mkdir(exist_ok=True)
            path = self.log / "_sidecars" / name
            write_checkpoint_file(path, files[number::sidecars])
            rest.append({"sidecar": {"path": name, "sizeInBytes": path.stat().st_size, "modificationTime": 1}})
        rest.insert(0, {"checkpointMetadata": {"version": version}})
        name = f"{version:020d}.checkpoint.{version:08d}-aaaa-aaaa-aaaa-aaaaaaaaaaaa.{top}"
        if top == "json":
            self.raw(name, "".join(json.dumps(action) + "\n" for action in rest))
        else:
            write_checkpoint_file(self.log / name, rest)
        return self


TEXT_MAP = pa.map_(pa.string(), pa.string())
_SIZED_VECTOR = {"offset": pa.int32(), "sizeInBytes": pa.int32(), "cardinality": pa.int64()}
_VECTOR = pa.struct({"storageType": pa.string(), "pathOrInlineDv": pa.string()} | _SIZED_VECTOR)
_FILE = {"path": pa.string(), "partitionValues": TEXT_MAP, "size": pa.int64(), "deletionVector": _VECTOR}
_FORMAT = pa.struct({"provider": pa.string(), "options": TEXT_MAP})
_VERSIONS = {"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}
ADD_FIELDS = _FILE | {"modificationTime": pa.int64(), "dataChange": pa.bool_()}
CHECKPOINT_TYPES = {
    "remove": pa.struct(_FILE | {"deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}),
    "metaData": pa.struct(
        {"id": pa.string(), "name": pa.string(), "description": pa.string(), "format": _FORMAT}
        | {"schemaString": pa.string(), "partitionColumns": pa.list_(pa.string()), "configuration": TEXT_MAP}
        | {"createdTime": pa.int64()}
    ),
    "protocol": pa.struct(_VERSIONS | dict.fromkeys(("readerFeatures", "writerFeatures"), pa.list_(pa.string()))),
    "txn": pa.struct({"appId": pa.string(), "version": pa.int64()}),
    "domainMetadata": pa.struct({"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()}),
    "sidecar": pa.struct({"path": pa.string(), "sizeInBytes": pa.int64(), "modificationTime": pa.int64()}),
    "checkpointMetadata": pa.struct({"version": pa.int64()}),
}
_MAPS, _HOLD_MAPS = ("partitionValues", "configuration"), ("add", "remove", "metaData")
_STATISTICS = {"stats": pa.string(), "stats_parsed": pa.struct({"numRecords": pa.int64()})}


def write_checkpoint_file(path: Path, actions: Sequence[dict[str, Any]]) -> None:
    """One parquet file of a checkpoint; maps are given as objects, unknown keys are left out."""
    rows = [{kind: shaped(kind, body) for kind, body in action.items()} for action in actions]
    types = {"add": pa.struct(ADD_FIELDS | _STATISTICS)} | CHECKPOINT_TYPES
    pq.write_table(pa.table({kind: pa.array([row.get(kind) for row in rows], of) for kind, of in types.items()}), path)


def shaped(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    """An action as Arrow takes it: a map as its pairs."""
    pairs = {key: list(body[key].items()) for key in _MAPS if isinstance(body.get(key), dict) and kind in _HOLD_MAPS}
    return body | pairs | ({"format": {"provider": "parquet", "options": []}} if kind == "metaData" else {})


def folder_bytes(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder with its time and content, to show that nothing was written."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
