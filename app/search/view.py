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
    values = ([row.get(name) for name in examples.columns] for row in examples.rows)
    texts = [[cut("null" if value is None else str(json_value(value)), _MOST_CELL) for value in row] for row in values]
    return pd.DataFrame(texts, columns=list(examples.columns))


def number_columns(examples: Examples) -> list[str]:
    """The columns that stand to the right."""
    types = {name: {type(row.get(name)) for row in examples.rows} - {type(None)} for name in examples.columns}
    return [name for name, kinds in types.items() if kinds and kinds <= {int, float, Decimal}]


def held_frame(held: Sequence[Held]) -> pd.DataFrame:
    """One row a column: what it holds at the newest of the versions, "a → b" where the oldest is known to differ."""
    first, last = held[0], held[-1]
    rows = []
    for name in list(last.columns)[:MOST_COLUMNS]:
        ends = zip(_cells(first, name), _cells(last, name), strict=True)
        rows.append([name, *(new if old in (new, UNKNOWN) else f"{old} → {new}" for old, new in ends)])
    return pd.DataFrame(rows, columns=["Column", *HEADS])


def _cells(held: Held, name: str) -> list[str]:
    column = held.columns.get(name)
    if column is None:
        return [UNKNOWN] * len(HEADS)
    quantiles = [figure_text(value) for value in held.quantiles.get(name, ())] or [UNKNOWN] * len(QUANTILES)
    low, high = (UNKNOWN if end is None else figure_text(end) for end in (column.lowest, column.highest))
    return [low, *quantiles, high, percent(column.null_share)]
