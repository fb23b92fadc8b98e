"""Rows of a version: how many they are, in which order, and the value of a cell.

Rule: pure.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from app.ui.view.frames import ShownRows
from backend.cells import cell
from backend.format import count_text, things
from backend.lake.rows.rows import RowPage
from backend.lake.table.schema import Column

MOST_COLUMNS = 50
_NESTED = ("struct", "array", "map", "variant")


def rows_sentence(page: RowPage, version: int, *, filtered: bool) -> str:
    """Says how many rows are shown, of how many, and how far the search came."""
    shown = things(page.rows.num_rows, "row")
    what = f"{shown} of v{version}{' that match' if filtered else ''}"
    searched = ""
    if filtered and page.candidates is not None and page.files_read is not None:
        ruled_out = page.files - page.candidates
        searched = f" {things(page.files_read, 'file')} read"
        searched += f", {count_text(ruled_out)} ruled out without opening them." if ruled_out else "."
        if page.files_left:
            searched += f" {things(page.files_left, 'file')} may hold more."
    if not page.truncated and filtered and not page.rows.num_rows:
        return f"No row of v{version} matches.{searched}"
    if not page.truncated and not page.rows.num_rows:
        return f"v{version} has no rows."
    if not page.truncated:
        return f"{'All ' if page.rows.num_rows > 1 else ''}{what}.{searched}"
    if page.total_rows is None:
        return f"The first {what}; there may be more.{searched}" if filtered else f"The first {what}; there are more."
    return f"The first {shown} of {count_text(page.total_rows)} in v{version}.{searched}"


# order ---------------------------------------------------------------------------------------------------------------

_WAYS = {", rising": "ascending", ", falling": "descending"}


def orders(schema: Sequence[Column]) -> list[str]:
    """By what rows can be sorted: every column that is not nested, both ways."""
    flat = [field.path for field in schema if field.depth == 0 and not field.type.startswith(_NESTED)]
    return [f"{name}{way}" for name in flat for way in _WAYS]


def in_order(rows: pa.Table, order: str | None) -> pa.Table:
    """Rows sorted by their values, not by what a cell shows; nulls last. By a column that is not there: as they are."""
    for way, direction in _WAYS.items():
        name = (order or "").removesuffix(way)
        if order and order.endswith(way) and name in rows.column_names:
            column = rows.column(name)
            if pt.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            return rows.take(pc.sort_indices(column, sort_keys=[("", direction)]))
    return rows


def order_sentence(page: RowPage, order: str | None) -> str:
    """Says of what the order is, where there is more."""
    return "Sorted among these rows alone." if order and page.truncated else ""


def place_of(shown: ShownRows, cell: tuple[int, str]) -> tuple[int, int] | None:
    """Row and number of the column of a cell that the list shows; None where it is not there any more."""
    row, column = cell
    names = list(shown.types)
    return (row, names.index(column)) if column in names and row < len(shown.frame) else None


def value_at(rows: pa.Table, row: int, column: int) -> Any:
    """The value itself; None for null."""
    return cell(rows.column(column)[row])
