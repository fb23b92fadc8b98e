"""Partition values as one text per file, for grouping and for people.

Rule: inside, `physical=escaped value` joined by "/" in the order of names. Nulls are left out, for a log writes them as
null, as an empty text or not at all. Shown are the table's own column names in its order, with Hive's word for null.
"""

from collections.abc import Mapping

import orjson

from backend.lake.model import Metadata

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def encode_partition(values: Mapping[str, str | None]) -> str:
    return "/".join(encode_value(name, value) for name, value in sorted(values.items()) if value)


def show_partition(encoded: str, metadata: Metadata, physical: Mapping[str, str]) -> str:
    values = dict(_pair(text) for text in encoded.split("/") if text)
    return "/".join(
        f"{column}={values.get(_escape(physical.get(column, column)), NULL_PARTITION)}"
        for column in metadata.partition_columns
    )


def partition_values(shown: str, metadata: Metadata) -> dict[str, str | None]:
    """The values in `day=2026-01-01/country=NL`, by the table's column names; None is null."""
    values: dict[str, str | None] = {}
    for column in metadata.partition_columns:
        head = f"{column}="
        value, _, shown = shown.removeprefix(head).partition("/") if shown.startswith(head) else ("", "", shown)
        values[column] = value.replace("%2F", "/").replace("%25", "%") if value not in ("", NULL_PARTITION) else None
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


def encode_value(name: str, value: str) -> str:
    return f"{_escape(name)}={_escape(value)}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value
