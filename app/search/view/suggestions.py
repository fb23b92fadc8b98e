"""What columns hold at the two ends, and what jumped in between, in words and a list.

Rule: pure. A value is of the log's statistics, quantiles are of rows read; what is not known is a dash.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pandas as pd

from app.ui.view.explanation import value_text
from backend.format import UNKNOWN, count_text, percent
from backend.search.suggest import QUANTILES, Held, Measure, Suggestion

MOST_COLUMNS = 40


def suggestion_text(each: Suggestion) -> str:
    """ "highest `amount` 1,998.4 up to v36, 1,284,900 from v38"."""
    before, after = (measure_text(each, value) for value in (each.before, each.after))
    what = f"{each.measure.value} of `{each.column}`" if each.column else each.measure.value
    return f"{what}: {before} up to v{each.last}, {after} at v{each.first}"


def measure_text(each: Suggestion, value: Any) -> str:
    if each.measure is Measure.NULLS:
        return percent(value)
    return count_text(value) if each.measure is Measure.ROWS else bound_text(value)


def bound_text(value: Any) -> str:
    """A value of a column; numbers with two decimals, small ones with four digits."""
    if isinstance(value, float | Decimal):
        return f"{value:,.2f}".rstrip("0").rstrip(".") if abs(float(value)) >= 1 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value_text(value)


def held_frame(held: Sequence[Held]) -> pd.DataFrame:
    """One row a column: what it holds at the oldest and at the newest of the versions, "a → b" where that differs."""
    first, last = held[0], held[-1]
    names = list(last.columns)[:MOST_COLUMNS]
    rows = [[_both(_cells(first, name)[i], _cells(last, name)[i]) for i in range(len(HEADS))] for name in names]
    frame = pd.DataFrame(rows, columns=list(HEADS))
    frame.insert(0, "Column", names)
    return frame


HEADS = ("Lowest", *(("1 %", "Median", "99 %")[: len(QUANTILES)]), "Highest", "Null")


def _cells(held: Held, name: str) -> list[str]:
    column = held.columns.get(name)
    if column is None:
        return [UNKNOWN] * len(HEADS)
    quantiles = [bound_text(value) for value in held.quantiles.get(name, ())] or [UNKNOWN] * len(QUANTILES)
    low, high = (UNKNOWN if end is None else bound_text(end) for end in (column.lowest, column.highest))
    return [low, *quantiles, high, percent(column.null_share)]


def _both(first: str, last: str) -> str:
    return last if first == last else f"{first} → {last}"
