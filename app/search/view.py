"""First bad version as lists: probes, rows that break the condition, what columns hold at the two ends.

Rule: pure; an outcome is told by a sign and a word, and what is not known is a dash.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from app.columns import Column
from app.search.text import read_text
from app.ui.view.theme import operation_style
from backend.format import UNKNOWN, age_s, cut, figure_text, percent
from backend.search.condition import Examples
from backend.search.search import Probe, ProbeOutcome, Purpose, gave_text
from backend.search.suggest import QUANTILES, Held
from backend.sql.values import json_value

SIGNS = {ProbeOutcome.GOOD: "✓ good", ProbeOutcome.BAD: "✕ bad", ProbeOutcome.SKIPPED: "○ skipped"}
_PURPOSES = {Purpose.END: "an end", Purpose.SEARCH: "search", Purpose.CHECK: "check"}
_MOST_CELL = 200
MOST_COLUMNS = 40
HEADS = ("Lowest", *(("1 % below", "Median", "1 % above")[: len(QUANTILES)]), "Highest", "Null")
WIDE_PX, ENDS_PX = 140, 205  # "890.91 → 83,137.07", "2026-11-20 10:04:31.522 UTC"


def probe_columns(now: datetime) -> list[Column[Probe]]:
    return [
        Column("Version", lambda probe: probe.version, "version", key="version"),
        Column("Outcome", lambda probe: SIGNS[probe.outcome]),
        Column("It gave", gave_text, width="large"),
        Column("Probed for", lambda probe: _PURPOSES[probe.purpose]),
        Column("Operation", lambda probe: f"{operation_style(probe.operation).glyph} {probe.operation or 'not named'}"),
        Column("When", lambda probe: age_s(probe.committed_at, now), "ago"),
        Column("Read", read_text),
        Column("Took", lambda probe: probe.duration_s, "duration"),
        Column("At", lambda probe: probe.committed_at, "moment", key="committed_at"),
    ]


def example_columns(examples: Examples) -> list[Column[Mapping[str, Any]]]:
    """Of rows that break the condition every value as text; numbers stand to the right."""

    def text(value: object) -> str:
        return cut("null" if value is None else str(json_value(value)), _MOST_CELL)

    def column(name: str) -> Column[Mapping[str, Any]]:
        kinds = {type(row.get(name)) for row in examples.rows} - {type(None)}
        is_number = bool(kinds) and kinds <= {int, float, Decimal}
        return Column(name, lambda row: text(row.get(name)), "figure" if is_number else "text")

    return [column(name) for name in examples.columns]


def held_columns(held: Sequence[Held]) -> list[Column[str]]:
    """Of a column, by its name, what it holds at the newest of the versions, "a → b" where the oldest is known to
    differ."""
    first, last = held[0], held[-1]

    def column(place: int, head: str) -> Column[str]:
        def text(name: str) -> str:
            old, new = _cells(first, name)[place], _cells(last, name)[place]
            return new if old in (new, UNKNOWN) else f"{old} → {new}"

        width = None if head == HEADS[-1] else ENDS_PX if head in (HEADS[0], HEADS[-2]) else WIDE_PX
        return Column(head, text, width=width)

    return [Column("Column", str), *(column(place, head) for place, head in enumerate(HEADS))]


def _cells(held: Held, name: str) -> list[str]:
    column = held.columns.get(name)
    if column is None:
        return [UNKNOWN] * len(HEADS)
    quantiles = [figure_text(value) for value in held.quantiles.get(name, ())] or [UNKNOWN] * len(QUANTILES)
    low, high = (UNKNOWN if end is None else figure_text(end) for end in (column.lowest, column.highest))
    return [low, *quantiles, high, percent(column.null_share)]
