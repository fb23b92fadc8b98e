"""A filter on rows in terms of columns and typed values: what a reader skips rows by, and which files of a version it
cannot rule out, from partition values and the statistics in the log.

Rule: `backend.sql.filters` makes these terms of what a person typed, and nothing of the text is passed on: the
predicate for a reader is written anew from typed values, and means what DuckDB means by the same comparison. When in
doubt a file stays. A null makes a comparison neither true nor false, as in SQL; statistics are bounds (writers cut long
texts and times), and those of floats say nothing (they leave out NaN).
"""

import math
import operator
import re
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import TableError
from backend.lake.files.file_sizes import partition_codes
from backend.lake.files.stats import ColumnStats, column_stats
from backend.lake.files.stats_text import StatKind
from backend.lake.model import Snapshot
from backend.lake.table.schema import columns, partition_values

COMPARISONS = ("=", "<", "<=", ">", ">=")
INTEGERS = {"bigint": 63, "int": 31, "smallint": 15, "tinyint": 7}
FLOATS = ("double", "float")
MOST_DIGITS = 38
EXACT_IN_DOUBLE = 2**53
_DAY = r"\d{4}-\d{2}-\d{2}"
_MOMENT = re.compile(rf"({_DAY})(?:[T ](\d{{2}}:\d{{2}}(?::\d{{2}}(?:\.\d{{1,6}})?)?)(Z|[+-]\d{{2}}(?::?\d{{2}})?)?)?")
_DIGITS = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)", re.ASCII)

Literal = str | int | float | bool | bytes | Decimal | date | datetime
Engine = typing.Literal["DataFusion", "DuckDB"]


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
    """A number as a value of its column. With an exponent DuckDB takes it for a double, and compares as doubles."""
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
    scale = int(column_type.rstrip(")").rpartition(",")[2]) if column_type.startswith("decimal(") else 0
    if column_type in INTEGERS or column_type.startswith("decimal"):
        if _DIGITS.fullmatch(digits) and places <= scale:
            return _exact(digits, column_type)
        raise ValueError(f"{text!r} is no number that fits {column_type}")
    raise ValueError(f"a text does not fit a column of type {column_type}")


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


# terms as SQL: for deltalake's reader, and for a person ---------------------------------------------------------


def predicate_sql(node: Node, row_by_row: Collection[str] = (), *, engine: Engine = "DataFusion") -> str:
    """Terms from quoted names and typed values alone, as DataFusion (deltalake's reader) or DuckDB writes them."""
    if isinstance(node, Not):
        return f"NOT ({predicate_sql(node.operand, row_by_row, engine=engine)})"
    if isinstance(node, All | AnyOf):
        word = " AND " if isinstance(node, All) else " OR "
        return "(" + word.join(predicate_sql(operand, row_by_row, engine=engine) for operand in node.operands) + ")"
    if node.column.type in FLOATS and node.value == 0 and engine == "DataFusion":
        row_by_row = (node.column.path[0],)  # deltalake's look at files tells −0.0 from it
    name = _column_sql(node.column, row_by_row, engine)
    if node.operator == "IS NULL":
        return f"{name} IS NULL"
    if node.operator == "IS NAN":
        return f"isnan({name})"
    assert node.value is not None
    if isinstance(node.value, FilterColumn):
        value = _column_sql(node.value, row_by_row, engine)
    else:
        value = _value_sql(node.value, node.column.type, engine)
    if node.column.type in FLOATS and node.operator != "=":
        # DuckDB takes every NaN for the highest number, DataFusion one with a sign for the lowest, Trino for none.
        return f"({name} {node.operator} {value} {'OR' if '>' in node.operator else 'AND NOT'} isnan({name}))"
    return f"{name} {node.operator} {value}"


def name_sql(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _column_sql(column: FilterColumn, row_by_row: Collection[str], engine: Engine) -> str:
    name = name_sql(column.path[0])
    if engine == "DuckDB" and len(column.path) > 1:  # in brackets it is no table's name
        return ".".join((f"({name})", *map(name_sql, column.path[1:])))
    name = f"nullif({name}, NULL)" if column.path[0] in row_by_row else name  # the same, but no column to deltalake
    return name + "".join(f"[{_text_sql(operand)}]" for operand in column.path[1:])


def _value_sql(value: Literal, kind: str, engine: Engine) -> str:
    """A value as a literal of its column's type."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, bytes):
        return f"unhex('{value.hex()}')" if engine == "DuckDB" else f"X'{value.hex()}'"
    if isinstance(value, datetime) and engine == "DuckDB":
        clock = value.replace(tzinfo=None)
        return f"TIMESTAMPTZ '{clock} UTC'" if value.tzinfo else f"TIMESTAMP '{clock}'"
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


# which files may hold such rows -----------------------------------------------------------------------------------

_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARROW = {"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_FOUR_DIGITS = re.compile(r"\d{4}-")
FEW_FILES = 64  # to open so many costs less than to read the statistics of all

Mask = npt.NDArray[np.bool_]
Leaf = Callable[[Test, bool], Mask]


def may_match(node: Node, snapshot: Snapshot, *, few_files: int = FEW_FILES) -> npt.NDArray[np.int64]:
    """Numbers, in `snapshot.columns`' order, of the files that may hold a row for which the filter is true."""
    leaves = _Leaves(snapshot)
    possible = _may(node, leaves.by_partition, wanted=True)
    if np.count_nonzero(possible) > few_files:
        possible &= _may(node, leaves.by_all, wanted=True)
    return np.flatnonzero(possible).astype(np.int64)


def _may(node: Node, leaf: Leaf, *, wanted: bool) -> Mask:
    """Whether a file may hold a row for which the node is true (or, with `wanted` False, is false)."""
    if isinstance(node, Not):
        return _may(node.operand, leaf, wanted=not wanted)
    if isinstance(node, Test):
        return leaf(node, wanted)
    masks = [_may(operand, leaf, wanted=wanted) for operand in node.operands]
    both = isinstance(node, All) == wanted
    return np.asarray(np.logical_and.reduce(masks) if both else np.logical_or.reduce(masks), np.bool_)


class _Leaves:
    """Single tests over the files of one snapshot; what is read for one test serves the next."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._partitions: tuple[npt.NDArray[np.int64], list[dict[str, str | None]]] | None = None
        self._stats: dict[tuple[str, ...], ColumnStats | None] = {}

    def by_partition(self, test: Test, wanted: bool) -> Mask:
        """Exact for a test on a partition column, everything for another."""
        if test.column.path[0] not in self._snapshot.metadata.partition_columns or isinstance(test.value, FilterColumn):
            return np.ones(self._snapshot.num_files, np.bool_)
        if self._partitions is None:
            self._partitions = _distinct_partitions(self._snapshot)
        codes, values = self._partitions
        verdicts = [_verdict(test, each[test.column.path[0]]) for each in values]
        possible = np.fromiter((verdict is None or verdict == wanted for verdict in verdicts), np.bool_, len(verdicts))
        return possible[codes]

    def by_all(self, test: Test, wanted: bool) -> Mask:
        """By partition values, and for the other columns by statistics."""
        if test.column.path[0] in self._snapshot.metadata.partition_columns or isinstance(test.value, FilterColumn):
            return self.by_partition(test, wanted)
        column = test.column.path
        if column not in self._stats:
            self._stats[column] = None  # without statistics no file can be ruled out
            with suppress(TableError):
                self._stats[column] = column_stats(self._snapshot, column)
        stats = self._stats[column]
        return np.ones(self._snapshot.num_files, np.bool_) if stats is None else by_bounds(stats, test, wanted=wanted)


def by_bounds(stats: ColumnStats, test: Test, *, wanted: bool) -> Mask:
    """Files whose statistics leave it open that the test is true (or false) for a row."""
    if test.operator == "IS NULL":
        none, only = pc.equal(stats.null_count, 0), pc.equal(stats.null_count, stats.num_records)
        return _open(pc.invert(none if wanted else only))
    if test.operator not in COMPARISONS or (test.operator == "=" and not wanted):
        return np.ones(len(stats.min), np.bool_)
    sign = test.operator if wanted else _OPPOSITE[test.operator]
    bounds = _bounds(stats, test.value, sign)
    if bounds is None:
        return np.ones(len(stats.min), np.bool_)
    low, high, value = bounds
    only_nulls = pc.fill_null(pc.equal(stats.null_count, stats.num_records), False)
    if sign == "=":
        inside = pc.and_kleene(pc.less_equal(low, value), pc.greater_equal(high, value))
    else:
        inside = _ARROW[sign](low if sign in ("<", "<=") else high, value)
    return _open(inside) & ~np.asarray(only_nulls.to_numpy(zero_copy_only=False), np.bool_)


def _bounds(stats: ColumnStats, value: Any, sign: str) -> tuple[pa.Array, pa.Array, pa.Scalar] | None:
    """Bounds that surely enclose the file's values, and the value in their type; None where nothing can be said."""
    if stats.kind in (StatKind.INTEGER, StatKind.DATE, StatKind.STRING) and not isinstance(value, Decimal):
        return stats.min, stats.max, pa.scalar(value, stats.min.type)
    if stats.kind in (StatKind.TIMESTAMP, StatKind.TIMESTAMP_NTZ):  # writers cut them to the millisecond
        cut = pa.scalar(timedelta(milliseconds=1), pa.duration("us"))
        low, high = stats.min.cast(pa.timestamp("us")), stats.max.cast(pa.timestamp("us"))
        moment = pa.scalar(value, stats.min.type).cast(pa.timestamp("us"))
        return pc.subtract(low, cut), pc.add(high, cut), moment
    if stats.kind is StatKind.DECIMAL:  # delta-rs writes them through a double
        low, high = stats.min.cast(pa.float64()), stats.max.cast(pa.float64())
        slack = pc.add(pc.multiply(pc.max_element_wise(pc.abs(low), pc.abs(high), abs(float(value))), 1e-9), 1e-9)
        return pc.subtract(low, slack), pc.add(high, slack), pa.scalar(float(value))
    if stats.type == "double" and sign in ("=", "<", "<=") and not math.isnan(float(value)):
        low, high = (pc.if_else(pc.is_nan(ends), None, ends) for ends in (stats.min, stats.max))  # it has no order
        return low, high, pa.scalar(float(value))
    return None


def _open(answers: pa.Array) -> Mask:
    """True where the statistics say yes or do not say."""
    return np.asarray(pc.fill_null(answers, True).to_numpy(zero_copy_only=False), np.bool_)


def _distinct_partitions(snapshot: Snapshot) -> tuple[npt.NDArray[np.int64], list[dict[str, str | None]]]:
    codes, partitions = partition_codes(snapshot)
    return codes, [partition_values(text, snapshot.metadata) for text in partitions]


def misread_partitions(snapshot: Snapshot) -> set[str]:
    """The partition columns of times outside of years of four digits, by which deltalake (1.6.6, tried) can rule out no
    file, but fails."""
    partition_columns = (column for column in columns(snapshot.metadata) if column.is_partition)
    times = [column.names[0] for column in partition_columns if column.kind in ("timestamp", "timestamp_ntz")]
    _, partitions = _distinct_partitions(snapshot) if times else (None, [])
    return {name for name in times for each in partitions if not _FOUR_DIGITS.match(each[name] or "0000-")}


def _verdict(test: Test, text: str | None) -> bool | str | None:
    """What a test says of all rows of a partition: True, False, "null" for neither; None where it cannot be judged."""
    if test.operator == "IS NULL":
        return text is None
    if text is None:
        return "null"
    own = from_log(text, test.column.type)
    if own is None or test.value is None or isinstance(test.value, FilterColumn) or test.operator not in COMPARISONS:
        return None
    return compare(own, test.operator, test.value)


def compare(own: Literal, sign: str, value: Literal) -> bool | None:
    """`own sign value`; None where the two have no order."""
    try:
        return bool(_OPERATORS[sign](own, value))
    except TypeError:
        return None
