"""A filter on rows in terms of columns and typed values: what rules out files, and what a reader skips rows by.

Rule: pure; `backend.sql.filters` makes these terms of what a person typed. Nothing of the text is passed on: the
predicate for a reader is written anew from typed values, and means what DuckDB means by the same comparison.
"""

import math
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Protocol

import pyarrow as pa

COMPARISONS = ("=", "<", "<=", ">", ">=")
INTEGERS = {"bigint": 63, "int": 31, "smallint": 15, "tinyint": 7}
FLOATS = ("double", "float")
MOST_DIGITS = 38
EXACT_IN_DOUBLE = 2**53
_DAY = r"\d{4}-\d{2}-\d{2}"
_MOMENT = re.compile(rf"({_DAY})(?:[T ](\d{{2}}:\d{{2}}(?::\d{{2}}(?:\.\d{{1,6}})?)?)(Z|[+-]\d{{2}}(?::?\d{{2}})?)?)?")
_DIGITS = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)", re.ASCII)

Literal = str | int | float | bool | bytes | Decimal | date | datetime


@dataclass(frozen=True, slots=True)
class FilterColumn:
    """A column or a field of a struct: `path` from the top, `type` Spark's simple string."""

    path: tuple[str, ...]
    type: str


@dataclass(frozen=True, slots=True)
class Test:
    """`operator` is one of `COMPARISONS`, "LIKE", "ILIKE", "IS NULL" or "IS NAN" (the last two without a value)."""

    column: FilterColumn
    operator: str
    value: "Literal | FilterColumn | None" = None


@dataclass(frozen=True, slots=True)
class Not:
    operand: "Node"


@dataclass(frozen=True, slots=True)
class All:
    operands: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class AnyOf:
    operands: "tuple[Node, ...]"


Node = Test | Not | All | AnyOf


class RowCheck(Protocol):
    """What has to be computed of a row to know whether a filter lets it through."""

    @property
    def text(self) -> str:
        """The whole filter in DuckDB's SQL."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What a row needs for it."""

    def passing(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of each batch that the filter lets through."""


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Rows that satisfy `terms` and pass `check`; one of them is there.

    `terms` are true of every row of the filter. Without a `check` they are the filter.
    """

    terms: Node | None
    check: RowCheck | None = None

    def predicate(self, row_by_row: Collection[str] = ()) -> str | None:
        """The terms for a reader, which rules out no file by the columns `row_by_row`; None where it has to read every
        row."""
        return None if self.terms is None else predicate_sql(self.terms, row_by_row)


# values ----------------------------------------------------------------------------------------------------------


def typed(kind: str, text: str, column_type: str) -> Literal:
    """A constant of DuckDB's parse tree as a value of a column's type; `kind` is STRING, INTEGER, NUMERIC, BOOLEAN or
    HEX.

    Raises `ValueError` for one that the column cannot be compared with exactly.
    """
    if kind == "STRING":
        return _from_text(text, column_type)
    if kind in ("INTEGER", "NUMERIC"):
        return _from_number(text, column_type)
    if kind == "BOOLEAN" and column_type == "boolean":
        return text.lower() == "true"
    if kind == "HEX" and column_type == "binary":
        return bytes.fromhex(text)
    raise ValueError(f"{text} does not fit a column of type {column_type}")


def from_log(text: str, column_type: str) -> Literal | None:
    """A partition value as the log writes it; None where this type is not compared here."""
    try:
        if column_type == "boolean":
            return {"true": True, "false": False}.get(text.lower())
        if column_type in INTEGERS or column_type.startswith("decimal"):
            return _exact(text, column_type)
        return _from_text(text, column_type) if column_type.startswith(("string", "date", "timestamp")) else None
    except ValueError:
        return None


def _from_number(text: str, column_type: str) -> Literal:
    """With an exponent it is a double, as which DuckDB then compares the column too."""
    is_double = "e" in text.lower()
    if column_type == "double" or (column_type == "float" and not is_double):
        if math.isfinite(value := float(text)):
            return value
        raise ValueError(f"{text} is beyond what a column of type {column_type} can hold")
    if is_double and (column_type not in INTEGERS or abs(float(text)) >= EXACT_IN_DOUBLE):
        raise ValueError(f"{text} is no exact number of type {column_type}")
    return _exact(text, column_type)


def _exact(text: str, column_type: str) -> int | Decimal:
    if column_type not in INTEGERS and not column_type.startswith("decimal"):
        raise ValueError(f"a number does not fit a column of type {column_type}: put it in single quotes")
    try:
        value = Decimal(text)
    except InvalidOperation as exc:
        raise ValueError(f"{text!r} is no number that fits {column_type}") from exc
    digits, exponent = value.as_tuple().digits, int(value.as_tuple().exponent)
    if len(digits) + max(0, exponent) > MOST_DIGITS or -exponent > MOST_DIGITS:
        raise ValueError(f"{text} has more than {MOST_DIGITS} digits")
    if column_type in INTEGERS and value == int(value):
        bits = INTEGERS[column_type]
        if not -(2**bits) <= value < 2**bits:
            raise ValueError(f"{text} is beyond what a column of type {column_type} can hold")
        return int(value)
    return value


def _from_text(text: str, column_type: str) -> Literal:
    """Numbers only as their column could write them: of any other DuckDB rounds the text to the column's type."""
    if column_type == "string":
        return text
    if column_type == "date":
        with suppress(ValueError):  # the 31st of June
            if re.fullmatch(_DAY, text):
                return date.fromisoformat(text)
        raise ValueError(f"{text!r} is no date: write '2026-01-31'")
    if column_type in ("timestamp", "timestamp_ntz"):
        return _moment(text, zoned=column_type == "timestamp")
    digits = text.strip()
    if column_type in FLOATS and _DIGITS.fullmatch(digits):
        return float(digits)
    places = len(digits.partition(".")[2])
    if column_type in INTEGERS or column_type.startswith("decimal"):
        if _DIGITS.fullmatch(digits) and places <= _scale(column_type):
            return _exact(digits, column_type)
        raise ValueError(f"{text!r} is no number that fits {column_type}")
    raise ValueError(f"a text does not fit a column of type {column_type}")


def _scale(column_type: str) -> int:
    """Decimal places of a number's type."""
    return int(column_type.rstrip(")").rpartition(",")[2]) if column_type.startswith("decimal(") else 0


def _moment(text: str, *, zoned: bool) -> datetime:
    match = _MOMENT.fullmatch(text.strip())
    example = "'2026-01-31 10:04:31' (UTC) or '2026-01-31T10:04:31+01:00'" if zoned else "'2026-01-31 10:04:31'"
    if match is None:
        raise ValueError(f"{text!r} is no time: write {example}")
    day, clock, zone = match.groups()
    if zone and not zoned:
        raise ValueError(f"the column holds times without a zone: write {example}")
    try:
        moment = datetime.fromisoformat(f"{day}T{clock or '00:00:00'}{'+00:00' if zone == 'Z' else zone or ''}")
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC) if zoned else moment
    except (ValueError, OverflowError) as exc:
        raise ValueError(f"{text!r} is no time: write {example}") from exc


# the predicate for a reader --------------------------------------------------------------------------------------


def predicate_sql(node: Node, row_by_row: Collection[str] = ()) -> str:
    """DataFusion's SQL of terms, from quoted names and typed values alone."""
    if isinstance(node, Not):
        return f"NOT ({predicate_sql(node.operand, row_by_row)})"
    if isinstance(node, All | AnyOf):
        word = " AND " if isinstance(node, All) else " OR "
        return "(" + word.join(predicate_sql(operand, row_by_row) for operand in node.operands) + ")"
    if node.column.type in FLOATS and node.value == 0:  # from which deltalake's look at files tells −0.0
        row_by_row = (node.column.path[0],)
    name = _column_sql(node.column, row_by_row)
    if node.operator == "IS NULL":
        return f"{name} IS NULL"
    if node.operator == "IS NAN":
        return f"isnan({name})"
    assert node.value is not None
    if isinstance(node.value, FilterColumn):
        value = _column_sql(node.value, row_by_row)
    else:
        value = value_sql(node.value, node.column.type)
    if node.column.type in FLOATS and node.operator != "=":
        # DuckDB takes every NaN for the highest number, DataFusion one with a sign for the lowest.
        return f"({name} {node.operator} {value} {'OR' if '>' in node.operator else 'AND NOT'} isnan({name}))"
    return f"{name} {node.operator} {value}"


def name_sql(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _column_sql(column: FilterColumn, row_by_row: Collection[str]) -> str:
    name = name_sql(column.path[0])
    name = f"nullif({name}, NULL)" if column.path[0] in row_by_row else name  # the same, but no column to deltalake
    return name + "".join(f"[{_text_sql(operand)}]" for operand in column.path[1:])


def value_sql(value: Literal, kind: str) -> str:
    """A value as a literal of its column's type."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, datetime):
        zone = 'Some("UTC")' if value.tzinfo else "None"
        return f"arrow_cast('{value.isoformat()}', 'Timestamp(Microsecond, {zone})')"
    if isinstance(value, date):
        return f"CAST('{value.isoformat()}' AS DATE)"
    if isinstance(value, float):
        return f"CAST('{value!r}' AS {'FLOAT' if kind == 'float' else 'DOUBLE'})"
    if isinstance(value, Decimal):
        scale = max(0, -int(value.as_tuple().exponent))
        return f"CAST('{value:f}' AS DECIMAL(38, {scale}))"
    return str(value) if isinstance(value, int) else _text_sql(value)


def _text_sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
