"""Names of columns in data files that differ in case from the table's, which are the same to Delta.

Rule: a file's footer says so; a name that a file has as the table writes it is never taken for another's.
Source: Spark's parquet reader, which matches names without case, nested ones and physical ones as well (tried).
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from backend.lake.model import Metadata
from backend.lake.table.file_times import footer_bytes

_SHORT = 128  # bytes of a name whose length Thrift writes as one


def may_be_misspelled(source: pa.NativeFile, metadata: Metadata) -> bool:
    """Whether a name of the table is not in a footer: a look through its bytes, for to parse a wide one takes long."""
    footer = footer_bytes(source)
    return any(name not in footer for name in _encoded_names(metadata.schema_json, metadata.partition_columns))


def spelled(schema: pa.Schema, metadata: Metadata) -> pa.Schema:
    """A file's schema with the names that the table gives its columns."""
    fields = _spelled(pa.struct(list(schema)), orjson.loads(metadata.schema_json))
    return pa.schema(list(fields))


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
        yield _physical(field)
        yield from _names(field["type"])
    for inner in ("elementType", "keyType", "valueType") if isinstance(kind, Mapping) else ():
        yield from _names(kind.get(inner))


def _physical(field: Mapping[str, Any]) -> str:
    return str((field.get("metadata") or {}).get("delta.columnMapping.physicalName", field["name"]))


def _spelled(kind: pa.DataType, declared: Any) -> pa.DataType:
    """A type of a file with the names of the table's type."""
    if not isinstance(declared, Mapping):
        return kind
    if pt.is_struct(kind) and declared["type"] == "struct":
        types = {_physical(field): field["type"] for field in declared["fields"]}
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
