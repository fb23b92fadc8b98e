"""A table's columns, nested ones included, from the schema that its log holds.

Rule: pure; types are Spark's simple strings; a schema that cannot be read is `TableCorruptError`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from backend.errors import TableCorruptError
from backend.lake.model import Metadata, SchemaField

_SHORT = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def fields(metadata: Metadata) -> tuple[SchemaField, ...]:
    """Every column and nested field in order; elements of arrays are `.element`, of maps `.key` and `.value`."""
    try:
        struct = orjson.loads(metadata.schema_json)
        return tuple(_struct(struct, "", 0, frozenset(metadata.partition_columns)))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise TableCorruptError("the table's schema cannot be read", hint="its metaData action is damaged") from exc


def simple_type(kind: Any) -> str:
    """Spark's simple string of a type: `bigint`, `struct<a:int>`, `array<string>`."""
    if isinstance(kind, str):
        return _SHORT.get(kind, kind)
    if kind["type"] == "struct":
        inside = ",".join(f"{item['name']}:{simple_type(item['type'])}" for item in kind["fields"])
        return f"struct<{inside}>"
    if kind["type"] == "array":
        return f"array<{simple_type(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{simple_type(kind['keyType'])},{simple_type(kind['valueType'])}>"
    return str(kind["type"])


def _struct(struct: Mapping[str, Any], prefix: str, depth: int, partitions: frozenset[str]) -> Iterator[SchemaField]:
    for item in struct["fields"]:
        path = f"{prefix}{item['name']}"
        comment = (item.get("metadata") or {}).get("comment")
        yield SchemaField(
            path=path,
            type=simple_type(item["type"]),
            nullable=bool(item.get("nullable", True)),
            comment=comment if isinstance(comment, str) else None,
            is_partition=depth == 0 and path in partitions,
            depth=depth,
        )
        yield from _inside(item["type"], path, depth + 1)


def _inside(kind: Any, path: str, depth: int) -> Iterator[SchemaField]:
    if isinstance(kind, str):
        return
    if kind["type"] == "struct":
        yield from _struct(kind, f"{path}.", depth, frozenset())
    elif kind["type"] == "array":
        yield from _element(
            f"{path}.element", kind["elementType"], depth, nullable=bool(kind.get("containsNull", True))
        )
    elif kind["type"] == "map":
        yield from _element(f"{path}.key", kind["keyType"], depth, nullable=False)
        yield from _element(
            f"{path}.value", kind["valueType"], depth, nullable=bool(kind.get("valueContainsNull", True))
        )


def _element(path: str, kind: Any, depth: int, *, nullable: bool) -> Iterator[SchemaField]:
    """The inside of an array or map, only where it is nested itself: a plain element says nothing new."""
    if not isinstance(kind, str):
        yield SchemaField(path, simple_type(kind), nullable, None, is_partition=False, depth=depth)
        yield from _inside(kind, path, depth + 1)
