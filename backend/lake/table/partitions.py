"""Partition values as one text per file, for grouping and for people.

Rule: inside, `physical=escaped value` joined by "/" in the order of names; nulls are left out. Shown are the table's
own column names in its order, with Hive's word for null, and that word escaped where it is a value. An empty text is
a value of a column of texts, and null in any other.
Source: what Spark 4.2 with Delta 4.4, and deltalake 1.6.6, read; of an empty text PROTOCOL.md says that it is null.
"""

from collections.abc import Collection, Mapping

import orjson

from backend.lake.model import Metadata

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_THE_WORD = NULL_PARTITION.replace("_", "%5F", 1)


def encode_partition(values: Mapping[str, str | None]) -> str:
    return "/".join(encode_value(name, value) for name, value in sorted(values.items()) if value is not None)


def without_empty(encoded: str, metadata: Metadata) -> str:
    """The one text of a partition: an empty text in a column of another type is null, as nothing is."""
    if "=/" not in f"{encoded}/":
        return encoded
    physical = physical_names(metadata)
    texts = {_escape(physical.get(column, column)) for column in text_columns(metadata)}
    pairs = map(_pair, encoded.split("/"))
    return "/".join(f"{name}={value}" for name, value in pairs if value or name in texts)


def show_partition(encoded: str, metadata: Metadata, physical: Mapping[str, str], texts: Collection[str]) -> str:
    """`texts` are the columns of type text."""
    values = dict(_pair(text) for text in encoded.split("/") if text)

    def shown(column: str) -> str:
        value = values.get(_escape(physical.get(column, column)))
        if value is None or (not value and column not in texts):
            return NULL_PARTITION
        return _THE_WORD if value == NULL_PARTITION else value

    return "/".join(f"{column}={shown(column)}" for column in metadata.partition_columns)


def partition_values(shown: str, metadata: Metadata) -> dict[str, str | None]:
    """The values in `day=2026-01-01/country=NL`, by the table's column names; None is null."""
    values: dict[str, str | None] = {}
    for column in metadata.partition_columns:
        head = f"{column}="
        if not shown.startswith(head):
            values[column] = None
            continue
        value, _, shown = shown.removeprefix(head).partition("/")
        text = NULL_PARTITION if value == _THE_WORD else value.replace("%2F", "/").replace("%25", "%")
        values[column] = None if value == NULL_PARTITION else text
    return values


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


def text_columns(metadata: Metadata) -> frozenset[str]:
    """The top-level columns that hold texts."""
    try:
        fields = orjson.loads(metadata.schema_json)["fields"]
        return frozenset(str(f["name"]) for f in fields if f["type"] in ("string", "binary"))
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return frozenset()


def encode_value(name: str, value: str) -> str:
    return f"{_escape(name)}={_escape(value)}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value
