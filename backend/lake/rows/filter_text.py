"""Conditions written as a person would: what a click on a value, or a typed box, adds to a filter.

Rule: pure; `parse_filter` reads what is written here, and finds just the value that was given.
"""

import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from backend.errors import FilterError
from backend.lake.model import SchemaField
from backend.lake.rows.filters import COMPARISONS, WORDS, AnyOf, parse_filter

_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ORDERED = ("bigint", "int", "smallint", "tinyint", "double", "float", "decimal", "date", "timestamp", "string")
_NULLS = ("IS NULL", "IS NOT NULL")


def operators(kind: str) -> tuple[str, ...]:
    """What a column of Spark's type can be asked; the last two without a value. Of a nested one no more than these."""
    if kind == "boolean":
        return ("=", *_NULLS)
    if not kind.startswith(_ORDERED):
        return ("=", "<>", *_NULLS) if kind == "binary" else _NULLS
    likes = ("LIKE", "ILIKE") if kind == "string" else ()
    return ("=", "<>", *COMPARISONS[1:], *likes, *_NULLS)


def condition(column: str, operator: str, value: Any = None) -> str:
    """One test on a column; raises `FilterError` for a value that no filter can name."""
    if operator in _NULLS:
        return f"{_name(column)} {operator}"
    if value is None:
        return f"{_name(column)} {_NULLS[0] if operator == '=' else _NULLS[1]}"
    if isinstance(value, float) and math.isnan(value):
        return f"{_name(column)} IS {'' if operator == '=' else 'NOT '}NAN"
    return f"{_name(column)} {operator} {_value(value)}"


def joined(text: str, more: str, schema: Sequence[SchemaField]) -> str:
    """A filter narrowed down further; raises `FilterError` where it is none."""
    node = parse_filter(text, schema)
    if node is None:
        return more
    if isinstance(node, AnyOf):
        return f"({text.strip()}) AND {more}"
    return f"{text.strip()} AND {more}"


def _name(column: str) -> str:
    if _PLAIN.fullmatch(column) and column.upper() not in WORDS:
        return column
    return '"' + column.replace('"', '""') + '"'


def _value(value: Any) -> str:
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return repr(value)
        case Decimal():
            return format(value, "f")
        case bytes():
            return f"X'{value.hex()}'"
        case datetime():
            return f"'{_moment(value)}'"
        case date():
            return f"'{value.isoformat()}'"
        case str():
            return "'" + value.replace("'", "''") + "'"
    raise FilterError(f"a filter cannot name {value!r}", hint="filter by another column")


def _moment(value: datetime) -> str:
    local = value if value.tzinfo is None else value.astimezone(UTC)
    return local.replace(tzinfo=None).isoformat(sep=" ")
