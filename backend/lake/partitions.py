"""Partition values as one text per file, for grouping and for people.

Rule: inside, `physical=escaped value` joined by "/" in the order of names, a null (the protocol writes it as null or as
an empty text) as the bare name; shown, the table's own column names in the table's order with Hive's word for null.
"""

from collections.abc import Mapping

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from backend.lake.model import Metadata

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def encode_partition(values: Mapping[str, str | None]) -> str:
    return "/".join(
        f"{_escape(name)}={_escape(value)}" if value else _escape(name) for name, value in sorted(values.items())
    )


def encode_partitions(maps: pa.Array, names: list[str]) -> pa.Array:
    """`encode_partition` for a column of map<string, string>, without a Python object per file."""
    if not names:
        return pa.array([""] * len(maps), pa.string())
    return pc.binary_join_element_wise(*[_encoded_column(maps, name) for name in sorted(names)], "/")


def show_partitions(encoded: pa.ChunkedArray, metadata: Metadata) -> pa.ChunkedArray:
    """What people read: `day=2026-01-01/country=NL`; each distinct text is worked out once."""
    if not metadata.partition_columns:
        return pa.chunked_array([pa.array([""] * len(encoded), pa.string())])
    codes = encoded.combine_chunks().dictionary_encode()
    if isinstance(codes, pa.ChunkedArray):
        codes = codes.combine_chunks()
    physical = physical_names(metadata)
    shown = pa.array([show_partition(text, metadata, physical) for text in codes.dictionary.to_pylist()], pa.string())
    return pa.chunked_array([shown.take(codes.indices)])


def show_partition(encoded: str, metadata: Metadata, physical: Mapping[str, str]) -> str:
    values = dict(_part(part) for part in encoded.split("/") if part)
    return "/".join(
        f"{column}={values.get(_escape(physical.get(column, column)), NULL_PARTITION)}"
        for column in metadata.partition_columns
    )


def physical_names(metadata: Metadata) -> dict[str, str]:
    """Each top-level column's name in files and partition values (differs under column mapping)."""
    try:
        fields = orjson.loads(metadata.schema_json)["fields"]
        return {
            str(f["name"]): str((f.get("metadata") or {}).get("delta.columnMapping.physicalName", f["name"]))
            for f in fields
        }
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return {}


def _encoded_column(maps: pa.Array, name: str) -> pa.Array:
    values = pc.map_lookup(maps, pa.scalar(name, pa.string()), "first")
    values = pc.if_else(pc.equal(values, ""), None, values)
    for plain, escaped in (("%", "%25"), ("/", "%2F")):
        values = pc.replace_substring(values, plain, escaped)
    return pc.fill_null(pc.binary_join_element_wise(_escape(name) + "=", values, ""), _escape(name))


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


def _part(part: str) -> tuple[str, str]:
    name, equals, value = part.partition("=")
    return name, value if equals else NULL_PARTITION
