"""Columns of data files under other names than the table's: in another case, or found by field ids alone.

Rule: a file's footer says so, and the log's statistics which footers need a look; a name that a file has as the table
writes it is never taken for another's, unless the table finds its columns by ids.
Source: Spark's parquet reader, which matches names without case, nested ones and physical ones as well (tried); Delta
protocol, "Column Mapping", for the ids.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from backend.lake.model import FileNumbers, Metadata, Snapshot
from backend.lake.table.file_times import footer_bytes, opened

MISSPELLED = "columns under other names than the table gives them"
_ID, _FILE_ID = "delta.columnMapping.id", b"PARQUET:field_id"
_SHORT = 128  # bytes of a name whose length Thrift writes as one
_TEXT = r'"(?:[^"\\]|\\.)*"'
_VALUE = rf":\s*(?:{_TEXT}|[^\s\"{{\[,}}]+)"  # of a key in statistics
_KEY = re.compile(r'"((?:[^"\\]|\\.)*)":')


def misspelled(source: pa.NativeFile, metadata: Metadata) -> tuple[pq.ParquetFile, pa.Schema] | None:
    """A file and its schema with the names that the table gives its columns; None where it has them. Raises
    `ValueError` where a file has one of them twice."""
    by_id = goes_by_id(metadata)
    footer = b"" if by_id else footer_bytes(source)  # a look through its bytes, for to parse a wide one takes long
    if all(name in footer for name in _encoded_names(metadata.schema_json, metadata.partition_columns)):
        return None
    file = opened(source)
    own = file.schema_arrow
    schema = pa.schema(list(_spelled(pa.struct(list(own)), orjson.loads(metadata.schema_json), by_id=by_id)))
    return None if schema.names == own.names and schema.types == own.types else (file, schema)


def perhaps_misspelled(snapshot: Snapshot) -> FileNumbers:
    """The files of which the log's statistics do not say that they name columns as the table does."""
    stats = pc.fill_null(snapshot.columns(["stats"])["stats"].cast(pa.string()), "")
    shapes = pc.replace_substring_regex(stats, _VALUE, ":")
    names = dict.fromkeys(_names(orjson.loads(snapshot.metadata.schema_json)))
    lower = {name.lower() for name in names}

    def names_alike(shape: str) -> bool:
        known = [key for key in _KEY.findall(shape) if key.lower() in lower]
        return bool(known) and all(key in names for key in known)

    alike = pa.array(filter(names_alike, shapes.unique().to_pylist()), pa.string())
    return np.flatnonzero(~pc.is_in(shapes, value_set=alike).to_numpy()).astype(np.int64)


def write_spelled(file: pq.ParquetFile, schema: pa.Schema, target: Path) -> None:
    """A copy of a file with the names of a schema."""
    with pq.ParquetWriter(target, schema) as writer:
        for batch in file.iter_batches():
            rows = batch.to_struct_array().view(pa.struct(list(schema)))
            writer.write_batch(pa.RecordBatch.from_struct_array(rows))


@lru_cache(maxsize=64)
def _encoded_names(schema_json: str, partition_columns: tuple[str, ...]) -> tuple[bytes, ...]:
    """The names that files of the table have, each once, as a footer writes them."""
    struct = orjson.loads(schema_json)
    stored = [field for field in struct["fields"] if field["name"] not in partition_columns]
    texts = dict.fromkeys(name.encode() for name in _names({**struct, "fields": stored}))
    return tuple(bytes([len(text)]) + text if len(text) < _SHORT else text for text in texts)


def _names(kind: Any) -> Iterator[str]:
    for field in kind["fields"] if isinstance(kind, Mapping) and kind["type"] == "struct" else ():
        yield physical_name(field)
        yield from _names(field["type"])
    for inner in ("elementType", "keyType", "valueType") if isinstance(kind, Mapping) else ():
        yield from _names(kind.get(inner))


def physical_name(field: Mapping[str, Any]) -> str:
    return str((field.get("metadata") or {}).get("delta.columnMapping.physicalName", field["name"]))


def goes_by_id(metadata: Metadata) -> bool:
    """Whether field ids tell which column of a file is which, whatever its name."""
    return metadata.configuration.get("delta.columnMapping.mode", "").lower() == "id"


def _spelled(kind: pa.DataType, declared: Any, *, by_id: bool) -> pa.DataType:
    """A type of a file with the names of the table's type."""
    if not isinstance(declared, Mapping):
        return kind
    if pt.is_struct(kind) and declared["type"] == "struct":
        types = {physical_name(field): field["type"] for field in declared["fields"]}
        own = {field.name for field in kind}
        table_names = {name.lower(): name for name in types if name not in own}
        named = (
            _named_by_id(kind, declared["fields"])
            if by_id
            else [(f, f.name if f.name in types else table_names.get(f.name.lower(), f.name)) for f in kind]
        )
        return pa.struct([
            field.with_name(name).with_type(_spelled(field.type, types[name], by_id=by_id)) if name in types
            else field.with_name(name)
            for field, name in named
        ])  # fmt: skip
    if pt.is_map(kind) and declared["type"] == "map":
        key, item = ((kind.key_type, declared["keyType"]), (kind.item_type, declared["valueType"]))
        return pa.map_(_spelled(*key, by_id=by_id), _spelled(*item, by_id=by_id))
    if pt.is_list(kind) and declared["type"] == "array":
        return pa.list_(kind.value_field.with_type(_spelled(kind.value_type, declared["elementType"], by_id=by_id)))
    return kind


def _named_by_id(kind: pa.StructType, declared: Any) -> list[tuple[pa.Field, str]]:
    """A file's fields with the table's names of their ids. One without an id keeps its name; that of an id which the
    table does not have stands in no other's way."""
    names = {str((field.get("metadata") or {}).get(_ID)): physical_name(field) for field in declared}
    ids = [(field, (field.metadata or {}).get(_FILE_ID, b"").decode()) for field in kind]
    named = [(field, names.get(number, f"{field.name} {number}" if number else field.name)) for field, number in ids]
    if len({name for _, name in named}) < len(named):
        raise ValueError("two columns of one field id, or of one name")
    return named
