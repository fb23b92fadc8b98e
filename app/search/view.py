"""First bad version as lists: probes, rows that break the condition, what columns hold at the two ends.

Rule: pure; an outcome is told by a sign and a word, and what is not known is a dash.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

import pandas as pd

from app.search.text import read_text
from app.ui.view.frames import ages
from app.ui.view.theme import operation_style
from backend.format import UNKNOWN, cut, figure_text, percent, utc_text
from backend.search.condition import Examples
from backend.search.search import Probe, ProbeOutcome, Purpose, gave_text
from backend.search.suggest import QUANTILES, Held
from backend.sql.values import json_value

SIGNS = {ProbeOutcome.GOOD: "✓ good", ProbeOutcome.BAD: "✕ bad", ProbeOutcome.SKIPPED: "○ skipped"}
_PURPOSES = {Purpose.END: "an end", Purpose.SEARCH: "search", Purpose.CHECK: "check"}
_MOST_CELL = 200
MOST_COLUMNS = 40
HEADS = ("Lowest", *(("1 % below", "Median", "1 % above")[: len(QUANTILES)]), "Highest", "Null")


def probe_frame(probes: Sequence[Probe], now: datetime) -> pd.DataFrame:
    """The probes in the order they ran."""
    return pd.DataFrame(
        {
            "Version": [probe.version for probe in probes],
            "Outcome": [SIGNS[probe.outcome] for probe in probes],
            "It gave": [gave_text(probe) for probe in probes],
            "Probed for": [_PURPOSES[probe.purpose] for probe in probes],
            "Operation": [
                f"{operation_style(probe.operation).glyph} {probe.operation or 'not named'}" for probe in probes
            ],
            "When": ages([probe.committed_at for probe in probes], now),
            "Read": [read_text(probe) for probe in probes],
            "Took": pd.Series([probe.duration_s for probe in probes], dtype="Float64"),
            "At": [utc_text(probe.committed_at) for probe in probes],
        }
    )


def example_frame(examples: Examples) -> pd.DataFrame:
    """Rows that break the condition, every value as text."""
    return pd.DataFrame(
        [[_text(row.get(name)) for name in examples.columns] for row in examples.rows], columns=list(examples.columns)
    )


def number_columns(examples: Examples) -> list[str]:
    """The columns that stand to the right."""
    values = {name: [row[name] for row in examples.rows if row.get(name) is not None] for name in examples.columns}
    return [name for name, known in values.items() if known and all(_is_number(value) for value in known)]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _text(value: object) -> str:
    return cut("null" if value is None else str(json_value(value)), _MOST_CELL)


def held_frame(held: Sequence[Held]) -> pd.DataFrame:
    """One row a column: what it holds at the newest of the versions, "a → b" where the oldest is known to differ."""
    first, last = held[0], held[-1]
    names = list(last.columns)[:MOST_COLUMNS]
    rows = [[_both(_cells(first, name)[i], _cells(last, name)[i]) for i in range(len(HEADS))] for name in names]
    frame = pd.DataFrame(rows, columns=list(HEADS))
    frame.insert(0, "Column", names)
    return frame


def _cells(held: Held, name: str) -> list[str]:
    column = held.columns.get(name)
    if column is None:
        return [UNKNOWN] * len(HEADS)
    quantiles = [figure_text(value) for value in held.quantiles.get(name, ())] or [UNKNOWN] * len(QUANTILES)
    low, high = (UNKNOWN if end is None else figure_text(end) for end in (column.lowest, column.highest))
    return [low, *quantiles, high, percent(column.null_share)]


def _both(first: str, last: str) -> str:
    return last if first in (last, UNKNOWN) else f"{first} → {last}"
