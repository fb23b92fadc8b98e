"""Maps and arrays whose structs got a field after a file was written: deltalake (1.6.6, tried) cannot read such a file.

Rule: a missing field is null, as Spark reads it, whatever the case of the others' names; nothing else of a file is
changed.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from backend.lake.files.file_names import physical_name
from backend.lake.table.schema import read_schema

_PARTS = ("elementType", "keyType", "valueType")
_PLAIN = {
    "string": pa.string(), "long": pa.int64(), "integer": pa.int32(), "short": pa.int16(), "byte": pa.int8(),
    "float": pa.float32(), "double": pa.float64(), "boolean": pa.bool_(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip


@lru_cache(maxsize=256)
def collections(schema_json: str) -> Mapping[str, Any]:
    """The types of the outermost columns that hold a struct within a map or an array, by the names in files."""
    stored = _stored(orjson.loads(read_schema(schema_json).json))
    return {column["name"]: column["type"] for column in stored["fields"] if _holds(column["type"], inside=False)}


def _stored(kind: Any) -> Any:
    """A type with the names that its fields have in files."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        fields = [{**field, "name": physical_name(field), "type": _stored(field["type"])} for field in kind["fields"]]
        return {**kind, "fields": fields}
    return {name: _stored(part) if name in _PARTS else part for name, part in kind.items()}


def _holds(kind: Any, *, inside: bool) -> bool:
    if isinstance(kind, str):
        return False
    if kind["type"] == "struct":
        return inside or any(_holds(field["type"], inside=False) for field in kind["fields"])
    return any(_holds(kind[part], inside=True) for part in _PARTS if part in kind)


def lacks(stored: pa.DataType, kind: Any) -> bool:
    """Whether a column as a file holds it lacks a field of its type."""
    if pt.is_struct(stored) and kind["type"] == "struct":
        types = {field.name.lower(): field.type for field in stored}
        wanted = {field["name"].lower(): field["type"] for field in kind["fields"]}
        return any(name not in types or lacks(types[name], inner) for name, inner in wanted.items())
    if pt.is_map(stored):
        return lacks(stored.key_type, kind["keyType"]) or lacks(stored.item_type, kind["valueType"])
    return pt.is_list(stored) and lacks(stored.value_type, kind["elementType"])


def write_filled(file: pq.ParquetFile, target: Path, kinds: Mapping[str, Any]) -> None:
    """A copy of a file in which these columns have every field of their types."""
    schema = file.schema_arrow
    for name, kind in kinds.items():
        at = schema.get_field_index(name)
        schema = schema.set(
            at, schema.field(at).with_type(_filled(schema.empty_table()[name].combine_chunks(), kind).type)
        )
    with pq.ParquetWriter(target, schema) as writer:
        for batch in file.iter_batches():
            columns = [
                _filled(column, kinds[name]) if name in kinds else column
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _filled(values: pa.Array, kind: Any) -> pa.Array:
    if isinstance(kind, str):
        return values
    if pt.is_struct(values.type):
        stored = dict(zip((field.name.lower() for field in values.type), values.flatten(), strict=True))
        parts = {
            field["name"]: _filled(stored[name], field["type"])
            if (name := field["name"].lower()) in stored
            else pa.nulls(len(values), _arrow(field["type"]))
            for field in kind["fields"]
        }
        return pa.StructArray.from_arrays(list(parts.values()), list(parts), mask=values.is_null())
    ends = values.offsets.to_numpy()
    start, end = (int(ends[0]), int(ends[-1])) if len(ends) else (0, 0)
    mask = np.append(values.is_null().to_numpy(zero_copy_only=False), False)
    offsets = pa.array(ends - start if len(ends) else np.zeros(1, np.int32), pa.int32(), mask=mask)
    if pt.is_map(values.type):
        keys, items = (part.slice(start, end - start) for part in (values.keys, values.items))
        return pa.MapArray.from_arrays(offsets, _filled(keys, kind["keyType"]), _filled(items, kind["valueType"]))
    return pa.ListArray.from_arrays(offsets, _filled(values.values.slice(start, end - start), kind["elementType"]))


def _arrow(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        if kind.startswith("decimal("):
            return pa.decimal128(*map(int, kind.removeprefix("decimal(").rstrip(")").split(",")))
        return _PLAIN.get(kind, pa.null())
    if kind["type"] == "struct":
        return pa.struct([(field["name"], _arrow(field["type"])) for field in kind["fields"]])
    if kind["type"] == "map":
        return pa.map_(_arrow(kind["keyType"]), _arrow(kind["valueType"]))
    return pa.list_(_arrow(kind["elementType"]))
