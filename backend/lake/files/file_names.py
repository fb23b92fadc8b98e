"""Names of columns in data files that differ in case from the table's, which are the same to Delta.

Rule: a file's footer says so, and the log's statistics which footers need a look; a name that a file has as the table
writes it is never taken for another's.
Source: Spark's parquet reader, which matches names without case, nested ones and physical ones as well (tried).
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

MISSPELLED = "columns whose names differ in case alone"
_SHORT = 128  # bytes of a name whose length Thrift writes as one
_TEXT = r'"(?:[^"\\]|\\.)*"'
_VALUE = rf":\s*(?:{_TEXT}|[^\s\"{{\[,}}]+)"  # of a key in statistics
_KEY = re.compile(r'"((?:[^"\\]|\\.)*)":')


def misspelled(source: pa.NativeFile, metadata: Metadata) -> tuple[pq.ParquetFile, pa.Schema] | None:
    """A file and its schema with the names that the table gives its columns; None where it has them."""
    footer = footer_bytes(source)  # a look through its bytes, for to parse a wide one takes long
    if all(name in footer for name in _encoded_names(metadata.schema_json, metadata.partition_columns)):
        return None
    file = opened(source)
    own = file.schema_arrow
    schema = pa.schema(list(_spelled(pa.struct(list(own)), orjson.loads(metadata.schema_json))))
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


def _spelled(kind: pa.DataType, declared: Any) -> pa.DataType:
    """A type of a file with the names of the table's type."""
    if not isinstance(declared, Mapping):
        return kind
    if pt.is_struct(kind) and declared["type"] == "struct":
        types = {physical_name(field): field["type"] for field in declared["fields"]}
        own = {field.name for field in kind}
        table_names = {name.lower(): name for name in types if name not in own}
        named = [(field, field.name if field.name in types else table_names.get(field.name.lower())) for field in kind]
        return pa.struct([
            field if name is None else field.with_name(name).with_type(_spelled(field.type, types[name]))
            for field, name in named
        ])  # fmt: skip
    if pt.is_map(kind) and declared["type"] == "map":
        return pa.map_(_spelled(kind.key_type, declared["keyType"]), _spelled(kind.item_type, declared["valueType"]))
    if pt.is_list(kind) and declared["type"] == "array":
        return pa.list_(kind.value_field.with_type(_spelled(kind.value_type, declared["elementType"])))
    return kind
