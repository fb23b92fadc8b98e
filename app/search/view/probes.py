"""The probes of a search for the first bad version as a list and a strip, and the rows that break its condition.

Rule: pure; an outcome is told by a sign and a word as well as by colour.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

import pandas as pd
import plotly.graph_objects as go

from app.search.view.words import outcome_text, read_text
from app.ui.view.frames import ages
from app.ui.view.theme import SURFACES, Mode, operation_style, state_style, template_name
from app.ui.view.words import markdown_safe
from backend.format import cut, things, utc_text
from backend.search.model import Bisection, BisectProgress, Examples, Outcome, Probe, Purpose
from backend.sql.values import json_value

SIGNS = {Outcome.GOOD: "✓ good", Outcome.BAD: "✕ bad", Outcome.SKIPPED: "○ skipped"}
_PURPOSES = {Purpose.END: "an end", Purpose.SEARCH: "search", Purpose.CHECK: "check"}
_MARKS = {Outcome.GOOD: ("OK", "circle"), Outcome.BAD: ("FAILED", "x"), Outcome.SKIPPED: ("UNKNOWN", "circle-open")}
_MOST_CELL = 200


def probe_frame(probes: Sequence[Probe], now: datetime) -> pd.DataFrame:
    """The probes in the order they ran."""
    return pd.DataFrame(
        {
            "Version": [probe.version for probe in probes],
            "Outcome": [SIGNS[probe.outcome] for probe in probes],
            "It gave": [outcome_text(probe) for probe in probes],
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


def progress_text(step: BisectProgress) -> tuple[float, str]:
    """How far a search is: share done, and words."""
    done, left = len(step.probes), step.at_most_left
    words = [f"{step.doing[:1].upper()}{step.doing[1:]}"]
    if step.rows_read:
        words.append(f"{things(step.rows_read, 'row')} read")
    words.append(f"{things(done, 'version')} judged")
    if left is not None:
        words.append(f"at most {left} more")
    return (done / max(1, done + left + (step.version is not None)) if left is not None else 0.0), " · ".join(words)


def strip_figure(found: Bisection, *, mode: Mode = "light") -> go.Figure:
    """Every probe at its version, from the first above to the last below; the change is marked."""
    figure = go.Figure()
    order = {probe.version: number + 1 for number, probe in enumerate(found.probes)}
    for outcome, (state, symbol) in _MARKS.items():
        probes = [probe for probe in found.probes if probe.outcome is outcome]
        figure.add_scatter(
            x=[probe.version for probe in probes],
            y=[order[probe.version] for probe in probes],
            mode="markers",
            name=SIGNS[outcome].partition(" ")[2],
            marker={"color": state_style(state, mode).colour, "symbol": symbol, "size": 11, "line": {"width": 1}},
            customdata=[outcome_text(probe) for probe in probes],
            hovertemplate="<b>v%{x}</b>: probe %{y}<br>%{customdata}<extra></extra>",
            showlegend=bool(probes),
        )
    muted = SURFACES[mode].muted
    figure.add_vrect(
        x0=found.candidates[0] - 0.5,
        x1=found.candidates[-1] + 0.5,
        fillcolor=muted,
        opacity=0.18,
        line={"width": 0},
        layer="below",
    )
    figure.update_layout(
        template=template_name(mode), title={"text": strip_title(found)}, height=120 + 16 * min(16, len(found.probes))
    )
    count = len(found.probes)
    step = max(1, -(-count // 5))
    figure.update_yaxes(title="probe", range=[count + 0.7, 0.3], showgrid=False, tick0=1, dtick=step)
    return figure.update_xaxes(title="version", tickformat="d", nticks=12, range=_range(found))


def strip_title(found: Bisection) -> str:
    """What the strip shows: "Good to v37, bad from v38 (20 probes)"."""
    before, after = ("Bad", "good") if found.is_mended else ("Good", "bad")
    again = f", {before.lower()} again at v{found.again[0]}" if found.again else ""
    return f"{before} to v{found.last}, {after} from v{found.first_seen}{again} ({things(len(found.probes), 'probe')})"


def empty_text(example: str) -> str:
    """What the condition is for, where there is none yet; `example` is one on this table's rows."""
    return (
        f"**Write what a good version satisfies**, for instance {markdown_safe(f'`{example}`')} (every row) or "
        "`count(*) > 0` (the version as a whole). Versions between a good and a bad one are then "
        "judged, half of what is left each time, until the commit is found that broke it."
    )


def _range(found: Bisection) -> list[float]:
    low, high = min(found.good, found.bad), max(found.good, found.bad)
    edge = max(0.5, 0.02 * (high - low))
    return [low - edge, high + edge]


def _text(value: object) -> str:
    return cut("null" if value is None else str(json_value(value)), _MOST_CELL)
