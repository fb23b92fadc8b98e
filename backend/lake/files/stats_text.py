"""Statistics of many files (JSON texts) read into typed columns.

Rule: vectorised; only a text that the fast reader refuses is read by itself. What is not as the protocol says is
unknown, never an error.
Source: Delta protocol, "Per-file Statistics".
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from backend.cells import far_number
from backend.lake.table.schema import SchemaColumn

_ODD_NUMBERS = r'"\s*[-+]?(NaN|Infinity)\s*"'
_MIN, _MAX, _NULLS, _TIGHT = "minValues", "maxValues", "nullCount", "tightBounds"


class StatKind(StrEnum):
    """What a column's bounds are made of; for OTHER there are only counts of nulls."""

    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp_ntz"
    STRING = "string"
    BOOLEAN = "boolean"
    OTHER = "other"


_KINDS = {
    **dict.fromkeys(("byte", "short", "integer", "long"), StatKind.INTEGER),
    **dict.fromkeys(("float", "double"), StatKind.FLOAT),
    "date": StatKind.DATE,
    "timestamp": StatKind.TIMESTAMP,
    "timestamp_ntz": StatKind.TIMESTAMP_NTZ,
    "string": StatKind.STRING,
    "boolean": StatKind.BOOLEAN,
}
_TYPES = {
    StatKind.INTEGER: pa.int64(),
    StatKind.FLOAT: pa.float64(),
    StatKind.DATE: pa.date32(),
    StatKind.TIMESTAMP: pa.timestamp("us", "UTC"),
    StatKind.TIMESTAMP_NTZ: pa.timestamp("us"),
    StatKind.STRING: pa.string(),
    StatKind.BOOLEAN: pa.bool_(),
}
_AS_TEXT = (StatKind.DATE, StatKind.TIMESTAMP, StatKind.TIMESTAMP_NTZ)  # text in JSON, cast afterwards


@dataclass(frozen=True, slots=True)
class FileStats:
    """One column's statistics of some files, in their order; null is unknown."""

    min: pa.Array
    max: pa.Array
    null_count: pa.Array


def stat_kind(column: SchemaColumn) -> StatKind:
    if column.kind.startswith("decimal"):
        return StatKind.DECIMAL
    return _KINDS.get(column.kind, StatKind.OTHER)


def value_type(column: SchemaColumn) -> pa.DataType:
    """The Arrow type of a column's bounds; `null` where it has none."""
    kind = stat_kind(column)
    return _decimal_type(column.kind) if kind is StatKind.DECIMAL else _TYPES.get(kind, pa.null())


def read_stats(texts: pa.Array, columns: Sequence[SchemaColumn]) -> tuple[list[FileStats], pa.Array]:
    """Each column's statistics, and `tightBounds` (null where a text does not say), one entry a text."""
    texts = pc.fill_null(texts, "{}")
    # A number that is written as a word, which the fast reader refuses.
    has_floats = any(stat_kind(column) is StatKind.FLOAT for column in columns)
    odd = pc.match_substring_regex(texts, _ODD_NUMBERS) if has_floats else None
    odd = odd if odd is not None and pc.any(odd).as_py() else None
    fast = pc.if_else(odd, "{}", texts) if odd is not None else texts
    try:
        block, tight = _read_block(fast, columns)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return _read_singly(texts, columns)
    if odd is None:
        return block, tight
    slow, slow_tight = _read_singly(texts.filter(odd), columns)
    patched = [
        FileStats(_put(a.min, b.min, odd), _put(a.max, b.max, odd), _put(a.null_count, b.null_count, odd))
        for a, b in zip(block, slow, strict=True)
    ]
    return patched, _put(tight, slow_tight, odd)


# all at once -----------------------------------------------------------------------------------------------------


def _read_block(texts: pa.Array, columns: Sequence[SchemaColumn]) -> tuple[list[FileStats], pa.Array]:
    bounded = [c for c in columns if stat_kind(c) is not StatKind.OTHER]
    bounds = _nested({c.physical: pa.string() if stat_kind(c) in _AS_TEXT else value_type(c) for c in bounded})
    nulls = _nested({c.physical: pa.int64() for c in columns})
    layout = [(name, bounds) for name in (_MIN, _MAX) if bounded] + [(_NULLS, nulls)]
    schema, content = pa.schema([*layout, (_TIGHT, pa.bool_())]), _joined(texts)
    if content.count(b"\n") != len(texts) - 1:  # inside a JSON string a line end cannot stand raw
        content = _joined(pc.replace_substring(texts, "\n", " "))
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    # One thread and one block: the caller reads several blocks at once.
    reading = pj.ReadOptions(use_threads=False, block_size=len(content) + 1)
    table = pj.read_json(pa.BufferReader(content), reading, options)
    if table.num_rows != len(texts):
        raise pa.ArrowInvalid("a text is no JSON object")
    sections = {name: pa.concat_arrays(table[name].chunks) for name in schema.names}
    return [_column_stats(column, sections) for column in columns], sections[_TIGHT]


def _joined(texts: pa.Array) -> bytes:
    """One text a line."""
    one_list = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    content: bytes = pc.binary_join(one_list, "\n")[0].as_buffer().to_pybytes()
    return content


def _nested(leaves: dict[tuple[str, ...], pa.DataType]) -> pa.DataType:
    """A struct type from paths: {("a", "b"): int64} is struct<a: struct<b: int64>>."""
    fields: dict[str, dict[tuple[str, ...], pa.DataType]] = {}
    for (name, *inner), kind in leaves.items():
        fields.setdefault(name, {})[tuple(inner)] = kind
    return pa.struct([(name, kinds[()] if () in kinds else _nested(kinds)) for name, kinds in fields.items()])


def _column_stats(column: SchemaColumn, sections: dict[str, pa.Array]) -> FileStats:
    nulls = _leaf(sections[_NULLS], column.physical)
    if stat_kind(column) is StatKind.OTHER:
        nothing = pa.nulls(len(nulls))
        return FileStats(nothing, nothing, nulls)
    low, high = (_typed(_leaf(sections[name], column.physical), column) for name in (_MIN, _MAX))
    return FileStats(low, high, nulls)


def _leaf(struct: pa.Array, path: tuple[str, ...]) -> pa.Array:
    for name in path:
        struct = pc.struct_field(struct, [struct.type.get_field_index(name)])
    return struct


def _typed(values: pa.Array, column: SchemaColumn) -> pa.Array:
    wanted = value_type(column)
    if values.type == wanted:
        return values
    try:
        return values.cast(wanted)
    except pa.ArrowInvalid:
        return pa.array([bound_value(text, column) for text in values.to_pylist()], wanted)


# one by one ------------------------------------------------------------------------------------------------------


def _read_singly(texts: pa.Array, columns: Sequence[SchemaColumn]) -> tuple[list[FileStats], pa.Array]:
    documents = [_document(text) for text in texts.to_pylist()]
    tight = [document.get(_TIGHT) for document in documents]
    stats = [
        FileStats(
            pa.array([_bound(document, _MIN, column) for document in documents], value_type(column)),
            pa.array([_bound(document, _MAX, column) for document in documents], value_type(column)),
            pa.array([_whole(_dig(document.get(_NULLS), column.physical)) for document in documents], pa.int64()),
        )
        for column in columns
    ]
    return stats, pa.array([value if isinstance(value, bool) else None for value in tight], pa.bool_())


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text, parse_float=Decimal)
    except (json.JSONDecodeError, RecursionError, InvalidOperation):
        return {}
    return document if isinstance(document, dict) else {}


def _dig(node: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        node = node.get(name) if isinstance(node, dict) else None
    return node


def _bound(document: dict[str, Any], section: str, column: SchemaColumn) -> Any:
    return bound_value(_dig(document.get(section), column.physical), column)


def bound_value(value: Any, column: SchemaColumn) -> Any:
    """One bound as a value of its type; None where it is not one."""
    kind = stat_kind(column)
    try:
        match kind:
            case StatKind.INTEGER:
                return _whole(value)
            case StatKind.FLOAT:
                return None if isinstance(value, bool) or value is None else float(value)
            case StatKind.DECIMAL:
                if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
                    return None
                # Rounded to the column's scale: delta-rs writes decimals through a double.
                decimal = value_type(column)
                number = Decimal(value).quantize(Decimal(1).scaleb(-decimal.scale))
                return number if number.is_finite() and len(number.as_tuple().digits) <= decimal.precision else None
            case StatKind.DATE:
                return _within(far_number(re.split("[T ]", value)[0]), 31) if isinstance(value, str) else None
            case StatKind.TIMESTAMP | StatKind.TIMESTAMP_NTZ:
                return _moment(value, zoned=kind is StatKind.TIMESTAMP)
            case StatKind.STRING:
                return value if isinstance(value, str) else None
            case StatKind.BOOLEAN:
                return value if isinstance(value, bool) else None
    except (ValueError, TypeError, ArithmeticError):
        return None
    return None


def _whole(value: Any) -> int | None:
    if isinstance(value, Decimal) and value == value.to_integral_value():
        value = int(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and -(2**63) <= value < 2**63 else None


def _within(number: int | None, bits: int) -> int | None:
    """None also for an end of what the type holds, beside which no file could be ruled out."""
    return None if number is None or abs(number) > 2**bits - 10**6 else number


def _moment(value: Any, *, zoned: bool) -> datetime | int | None:
    """A moment; its number of microseconds where Python's calendar ends."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return _within(far_number(value), 63) if ":" in value else None
    if zoned:
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment.replace(tzinfo=None)


def _decimal_type(kind: str) -> pa.DataType:
    try:
        precision, scale = (int(part) for part in kind.removeprefix("decimal").strip("()").split(","))
        return pa.decimal128(precision, scale)
    except ValueError:
        return pa.decimal128(10, 0)


def _put(values: pa.Array, others: pa.Array, mask: pa.Array) -> pa.Array:
    return pc.replace_with_mask(values, mask, others) if values.type != pa.null() else values
