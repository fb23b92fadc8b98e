"""Changed rows as one table: before and after side by side, changed cells marked.

Rule: pure; a changed cell is marked by a sign as well as by colour, and only columns that changed are shown twice.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
import pandas as pd
import pyarrow as pa
from pandas.io.formats.style import Styler

from app.ui.view.commits import writer_text
from backend.cells import cells
from backend.changes.commits import FEED_COLUMNS
from backend.changes.model import RowChange, RowKind, VersionDiff
from backend.format import UNKNOWN, datetime_text, utc_text
from backend.lake.model import Commit
from backend.search.key_history import KeyStep
from backend.sql.values import json_value

PAGE_ROWS = 200
MOST_COLUMNS = 60  # of a table side by side; exports have them all
MOST_CELL = 500  # characters of one value
KIND_TEXTS = {RowKind.INSERT: "+ insert", RowKind.UPDATE: "≠ update", RowKind.DELETE: "− delete"}
CHANGED_MARK = "● "
CHANGED_STYLE = "background-color: rgba(230, 159, 0, 0.28); font-weight: 600"
KIND_STYLES = {
    KIND_TEXTS[RowKind.INSERT]: "background-color: rgba(0, 158, 115, 0.22)",
    KIND_TEXTS[RowKind.UPDATE]: "background-color: rgba(230, 159, 0, 0.22)",
    KIND_TEXTS[RowKind.DELETE]: "background-color: rgba(213, 94, 0, 0.22)",
}


@dataclass(frozen=True, slots=True)
class RowTable:
    """The frame to show, and which of its cells hold a changed value, as (row number, column name).

    `left_out` counts the columns that do not fit, `numbers` are those that stand to the right.
    """

    frame: pd.DataFrame
    changed: tuple[tuple[int, str], ...]
    left_out: int = 0
    numbers: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """What is not shown, empty where everything is."""
        columns = "column is" if self.left_out == 1 else "columns are"
        return f"{self.left_out:,} more {columns} not shown; exports have them" if self.left_out else ""


def filter_rows(
    rows: Iterable[RowChange], *, kinds: Iterable[RowKind] = (), columns: Iterable[str] = ()
) -> list[RowChange]:
    """Rows of the given kinds whose update touches one of the given columns; empty means all.

    With columns named only updates remain: an insert or a delete touches every column.
    """
    wanted, touched = set(kinds), set(columns)
    found = [row for row in rows if not wanted or row.kind in wanted]
    return [row for row in found if touched & set(row.changed)] if touched else found


def build_row_table(diff: VersionDiff, rows: Sequence[RowChange]) -> RowTable:
    """The rows in the order given: kind, key, then changed columns as before and after, then the rest once."""
    key = diff.key.columns if diff.key else ()
    changed = {name for row in rows for name in row.changed} - set(key)
    twice = [name for name in diff.changes.columns if name in changed][: MOST_COLUMNS // 2]
    once = [name for name in diff.changes.columns if name not in changed and name not in key][
        : MOST_COLUMNS - 2 * len(twice)
    ]
    data: dict[str, Any] = {"Change": [KIND_TEXTS[row.kind] for row in rows]}
    for name in key:
        data[name] = _column(diff, name, [_either(row, name) for row in rows])
    for name in twice:
        data[f"{name} · before"] = _column(diff, name, [_cell(row.before, name) for row in rows])
        data[f"{name} · after"] = _column(diff, name, [_cell(row.after, name) for row in rows])
    for name in once:
        data[name] = _column(diff, name, [_either(row, name) for row in rows])
    data |= _extras(rows)
    marks = [
        (at, f"{name} · {side}") for at, row in enumerate(rows) for name in row.changed if name in twice
        for side in ("before", "after")
    ]  # fmt: skip
    decimals = [
        name for name in diff.changes.columns if pa.types.is_decimal(diff.changes.arrow_schema.field(name).type)
    ]
    numbers = [each for name in decimals for each in (name, f"{name} · before", f"{name} · after") if each in data]
    return RowTable(
        pd.DataFrame(data), tuple(marks), len(set(diff.changes.columns) - {*key, *twice, *once}), tuple(numbers)
    )


def build_step_table(
    diff: VersionDiff, steps: Sequence[KeyStep], commits: Mapping[int, Commit], streams: Mapping[str, str]
) -> RowTable:
    """The steps of one key, newest first, each with its commit; then as `build_row_table`. `streams`: the names of
    query ids."""
    newest = sorted(steps, key=lambda step: -step.version)
    table = build_row_table(diff, [step.change for step in newest])
    found = [commits.get(step.version) for step in newest]
    table.frame.insert(0, "Version", [f"v{step.version}" for step in newest])
    table.frame.insert(1, "At", [utc_text(each.committed_at) if each else UNKNOWN for each in found])
    table.frame.insert(2, "Operation", [each.operation or "unnamed" if each else UNKNOWN for each in found])
    table.frame.insert(3, "By", [writer_text(each, streams) if each else UNKNOWN for each in found])
    if any(step.rows and max(step.rows) > 1 for step in steps):
        counts = [f"{step.rows[0]:,} → {step.rows[1]:,}" if step.rows else UNKNOWN for step in newest]
        table.frame.insert(4, "Rows with this key", counts)
    return table


def build_feed_frame(rows: pa.Table) -> pd.DataFrame:
    """Rows of a change feed as they are: version, time and type first; at most `MOST_COLUMNS` of the table."""
    shown = rows.select(rows.column_names[: MOST_COLUMNS + len(FEED_COLUMNS)])
    data = {field.name: _typed(field.type, cells(rows[field.name])) for field in shown.schema}
    return pd.DataFrame(data)


def style(table: RowTable) -> Styler:
    """The table with its changed cells coloured and marked, for `st.dataframe`."""
    styler = table.frame.style.map(lambda text: KIND_STYLES.get(text, ""), subset=["Change"])
    by_column: dict[str, list[int]] = {}
    for at, name in table.changed:
        by_column.setdefault(name, []).append(at)
    plain: list[Hashable] = [name for name in table.frame.columns if name != "Change"]
    styler = styler.format(cell_text, subset=plain)
    for name, places in by_column.items():
        where = pd.IndexSlice[places, [name]]
        styler = styler.map(lambda _: CHANGED_STYLE, subset=where)
        if name.endswith(" · after"):
            styler = styler.format(lambda value: f"{CHANGED_MARK}{cell_text(value)}", subset=where)
    return styler


def cell_text(value: Any) -> str:
    """One cell as text; null is "null", so that it differs from an empty text."""
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value):
        return "null"
    if isinstance(value, datetime):
        return datetime_text(value)
    return str(value)


def _extras(rows: Sequence[RowChange]) -> dict[str, list[Any]]:
    """Columns that only some diffs need: rows that could not be paired, identical rows."""
    extras: dict[str, list[Any]] = {}
    if any(row.set_apart for row in rows):
        extras["Set apart"] = [row.set_apart.value if row.set_apart else "" for row in rows]
    if any(row.copies > 1 for row in rows):
        extras["Copies"] = [row.copies for row in rows]
    return extras


def _either(row: RowChange, name: str) -> Any:
    return _cell(row.after if row.after is not None else row.before, name)


def _cell(side: Any, name: str) -> Any:
    return None if side is None else side.get(name)


def _column(diff: VersionDiff, name: str, values: list[Any]) -> pd.Series:
    return _typed(diff.changes.arrow_schema.field(name).type, values)


def _typed(kind: pa.DataType, values: list[Any]) -> pd.Series:
    """So that numbers sort as numbers; nested and decimal values as text."""
    if pa.types.is_integer(kind):
        return pd.Series(values, dtype="Int64")
    if pa.types.is_boolean(kind):
        return pd.Series(values, dtype="boolean")
    if pa.types.is_floating(kind):
        return pd.Series(values, dtype="Float64")
    return pd.Series([_text(value) for value in values], dtype="object")


def _text(value: Any) -> str | None:
    if value is None:
        return None
    plain = datetime_text(value) if isinstance(value, datetime) else json_value(value)
    text = plain if isinstance(plain, str) else orjson.dumps(plain).decode()
    return text if len(text) <= MOST_CELL else f"{text[:MOST_CELL]}… ({len(text):,} characters)"
