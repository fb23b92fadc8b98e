"""Rows of a table as a frame for the page, with every value as it is.

Rule: pure; nothing is rounded on the way to the screen. Decimals, times and integers beyond 2^53 become text, binary
becomes hex, nested values become JSON, and NaN is no null. What is cut has a mark and is counted.
"""

import json
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from backend.cells import cells, distinct_names
from backend.format import datetime_text, things

EXACT_INTEGER = 2**53  # beyond, a browser's number loses digits
MOST_HEX_BYTES = 32
NULL = "NULL"
CELL_LIMITS = (2_000, 500, 120, 30)  # characters of one cell: the first with which the page stays small
MOST_BYTES = 400_000  # of all cells; the frame around them is small

Cells = list[Any]


@dataclass(frozen=True, slots=True)
class ShownRows:
    """Rows for the page, which may be fewer than were read.

    `right` names the columns of numbers that are sent as text; `cell_limit` is the number of characters after which a
    cell was cut.
    """

    frame: pd.DataFrame
    types: dict[str, str]
    right: tuple[str, ...]
    cell_limit: int
    cut_cells: int
    left_out: int


def shown_rows(rows: pa.Table) -> ShownRows:
    """Rows as they are, cut to what one message may hold."""
    names = distinct_names(rows.column_names)
    columns = {name: _cells(rows.column(index)) for index, name in enumerate(names)}
    limit = next((limit for limit in CELL_LIMITS if _weight(columns, limit) <= MOST_BYTES), CELL_LIMITS[-1])
    weight = _weight(columns, limit)
    shown = rows.num_rows if weight <= MOST_BYTES else max(1, rows.num_rows * MOST_BYTES // weight)
    cut = sum(isinstance(cell, str) and len(cell) > limit for cells in columns.values() for cell in cells[:shown])
    frame = pd.DataFrame(
        {name: _series([_cut(cell, limit) for cell in cells[:shown]]) for name, cells in columns.items()},
        index=range(shown),
    )
    types = {name: type_text(rows.schema.field(index).type) for index, name in enumerate(names)}
    numbers = [name for index, name in enumerate(names) if is_number(rows.schema.field(index).type)]
    right = tuple(name for name in numbers if frame[name].dtype == object)
    return ShownRows(frame, types, right, limit, cut, rows.num_rows - shown)


def exact_numbers(frame: pd.DataFrame) -> Any:
    """The frame with every number in its own digits; sorting still goes by the numbers.

    A browser rounds fractions, and its format for whole numbers shows 902 as 901.9999999999999.
    """
    whole = [str(name) for name in frame if frame[name].dtype == "Int64"]
    broken = [str(name) for name in frame if frame[name].dtype == "float64"]
    shown: dict[Any, Any] = dict.fromkeys(whole, lambda value: str(int(value)))
    shown |= dict.fromkeys(broken, lambda value: repr(float(value)))
    return frame.style.format(shown, na_rep=NULL, subset=[*whole, *broken]) if shown else frame


def type_text(kind: pa.DataType) -> str:
    """A column's type for its head; the two kinds of timestamp are told apart."""
    if pt.is_timestamp(kind):
        return f"timestamp, {'UTC' if kind.tz else 'without zone'}"
    return str(kind)


def cell_text(value: Any) -> str | None:
    """One value as exact text; None stays None."""
    if value is None:
        return None
    if isinstance(value, bytes):
        text = value[:MOST_HEX_BYTES].hex(" ")
        return f"{text}{' …' if len(value) > MOST_HEX_BYTES else ''} ({things(len(value), 'byte')})".strip()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return datetime_text(value)
    if isinstance(value, dict | list | tuple):
        return json.dumps(_plain(value), ensure_ascii=False)
    return str(value)


def cut_sentence(shown: ShownRows) -> str:
    """What was left out so that the page stays small; "" for nothing."""
    parts = []
    if shown.cut_cells:
        parts.append(f"{things(shown.cut_cells, 'long value')} cut after {things(shown.cell_limit, 'character')}")
    if shown.left_out:
        parts.append(f"{things(shown.left_out, 'row')} left out: too big for a page, choose fewer columns")
    return f"{'; '.join(parts)}." if parts else ""


# cells -----------------------------------------------------------------------------------------------------------


def _cells(column: pa.ChunkedArray) -> Cells:
    """Values that a frame can hold: numbers a browser keeps exact, booleans, and text."""
    if pt.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pt.is_integer(kind):
        low, high = pc.min_max(column).as_py().values()
        as_text = low is not None and (low < -EXACT_INTEGER or high > EXACT_INTEGER)
        return [None if value is None else str(value) if as_text else value for value in column.to_pylist()]
    if pt.is_floating(kind):
        return _floats(column)
    if pt.is_boolean(kind):
        return list(column.to_pylist())
    return [cell_text(value) for value in cells(column)]


def _floats(column: pa.ChunkedArray) -> Cells:
    """Numbers, or text for all where one is NaN or infinite: JSON and pandas take those for null."""
    if not pt.is_float64(column.type):  # the short text that stands for it: 1.1 and not 1.10000002384
        texts = column.cast(pa.float32()).to_numpy().astype(str)
        values = [None if value is None else float(text) for value, text in zip(column.to_pylist(), texts, strict=True)]
    else:
        values = column.to_pylist()
    if pc.all(pc.is_finite(column), skip_nulls=True).as_py() is False:
        return [None if value is None else repr(value) for value in values]
    return list(values)


def _series(cells: Cells) -> pd.Series:
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds == {int}:
        return pd.Series(cells, dtype="Int64")
    if kinds == {float}:
        return pd.Series(cells, dtype="float64")
    return pd.Series(cells, dtype="boolean" if kinds == {bool} else "object")


def _cut(cell: Any, limit: int) -> Any:
    if not isinstance(cell, str) or len(cell) <= limit:
        return cell
    return f"{cell[:limit]} … ({len(cell):,} characters)"


def _weight(columns: dict[str, Cells], limit: int) -> int:
    """About how many bytes the cells take in a message."""
    return sum(
        min(len(cell), limit) * (1 if cell.isascii() else 3) + 24 if isinstance(cell, str) else 32
        for cells in columns.values()
        for cell in cells
    )


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of this type holds whole numbers, fractions or decimals."""
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind))


def _plain(value: Any) -> Any:
    """Nested values as JSON can hold them; map entries as pairs."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.hex(" ")
    if isinstance(value, Decimal | date | timedelta) or (isinstance(value, float) and value - value != 0):
        return cell_text(value)
    return value
