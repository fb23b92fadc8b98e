"""What figures share: axes, charts of live regions as the JSON that Plotly takes, and a value over a table's versions.

Rule: pure; no tick says "800m" of a row, or half a version. At most `MAX_POINTS` points, an unknown value is a gap, and
what stands out survives the thinning.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio

from app.ui.view.theme import MAX_POINTS, Mode, categories, operation_family, operation_style, template_name
from app.ui.view.words import figure_safe
from backend.format import utc_text, zone_of
from backend.lake.model import VersionTotals

SHARE_AXIS = {"range": [0, 1.04], "tickvals": [0, 0.5, 1], "ticktext": ["0 %", "50 %", "100 %"]}
FEW = 6  # up to here each whole number has its tick
LEAST_SPAN = timedelta(seconds=60)
HOVER_MOMENT = "%Y-%m-%d %H:%M:%S"  # as `backend.format.utc_text` writes a moment; Plotly puts the point's own in


def count_axis(values: Iterable[float | None]) -> dict[str, Any]:
    """A `yaxis` of counts or bytes from zero: 1, 2, 3 for a few, 1.2k for many."""
    highest = max((value for value in values if value is not None), default=0)
    if highest < FEW:
        return {"tickformat": ",d", "dtick": 1, "range": [0, max(1.0, highest) * 1.08]}
    return {"tickformat": "~s", "exponentformat": "SI", "rangemode": "tozero"}


def value_axis(values: Iterable[float | None]) -> dict[str, Any]:
    """A `yaxis` of any numbers: 1.2k for large ones, 0.003 as it is."""
    largest = max((abs(value) for value in values if value is not None), default=0)
    return {"tickformat": "~s", "exponentformat": "SI"} if largest >= 1000 else {"exponentformat": "none"}


def version_axis(first: int, last: int) -> dict[str, Any]:
    """An `xaxis` of versions: whole numbers, each its own while there are few."""
    few = {"dtick": 1, "tick0": 0} if last - first < FEW else {}
    return {"title_text": "Version", "tickformat": ",d", "range": [first - 0.5, last + 0.5], **few}


def time_range(moments: Sequence[datetime]) -> list[datetime] | None:
    """The ends of a time axis whose moments lie too close together for readable ticks; else None."""
    if not moments or max(moments) - min(moments) >= timedelta(seconds=2):
        return None
    middle = min(moments) + (max(moments) - min(moments)) / 2
    return [middle - LEAST_SPAN / 2, middle + LEAST_SPAN / 2]


def wall_clock(moment: datetime, zone: str | None) -> datetime:
    """The moment on the viewer's clock, without a zone: Plotly draws what it is given."""
    return moment.astimezone(zone_of(zone)).replace(tzinfo=None)


# charts of live regions: building Plotly's Python objects takes fifty times as long -----------------------------------


CHART_HEIGHT = 280

FigureJson = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FigureLook:
    """How the charts of one viewer look: light or dark, and whose clock."""

    mode: Mode = "light"
    zone: str | None = None


def base_figure(title: str, unit: str, look: FigureLook) -> FigureJson:
    """A chart over time with no line yet; `unit` names the other axis."""
    layout = {
        "template": _template(look.mode),
        "title": {"text": title, "font": {"size": 14}, "y": 0.98, "yanchor": "top"},
        "height": CHART_HEIGHT,
        "margin": {"t": 36},
        "legend": {
            "x": 0,
            "xanchor": "left",
            "y": -0.16,
            "yanchor": "top",
            "traceorder": "normal",
            "font": {"size": 11},
        },
        "barmode": "stack",
        "uirevision": "keep",
        "dragmode": "zoom",
        "yaxis": {"title": {"text": unit}, "rangemode": "tozero", "fixedrange": True},
        "xaxis": {"type": "date"},
    }
    return {"data": [], "layout": layout}


@cache
def _template(mode: Mode) -> FigureJson:
    return {"layout": pio.templates[template_name(mode)].layout.to_plotly_json()}


def moment_json(moment: datetime, zone: str | None) -> str:
    """The viewer's wall clock as Plotly takes it: as a number it would be moved by the browser's zone once more."""
    return wall_clock(moment, zone).isoformat(" ", "milliseconds")


# a step line above, the commits' operations along the bottom ----------------------------------------------------------


GLYPH_SLOTS = 60  # of one kind side by side, with room between them on a wide page
MOST_VALUES = MAX_POINTS // 2
MOST_MARKED = 60  # values with a mark of their own
HEIGHT_PX = 320
_HOVER_HEAD = "<b>v%{customdata[0]}</b> · %{customdata[1]}"

X = datetime | int  # where a version stands on the x axis: a time on the viewer's clock, or a version


def over_versions_figure(title: str, *, mode: Mode) -> go.Figure:
    """An empty figure with room for the operations below the line."""
    figure = go.Figure()
    return figure.update_layout(
        template=template_name(mode),
        height=HEIGHT_PX,
        title_text=figure_safe(title),
        showlegend=True,
        legend={"y": -0.3, "yanchor": "top", "x": 0, "xanchor": "left"},
        xaxis={"anchor": "y2"},
        yaxis={"domain": [0.14, 1]},
        yaxis2={"domain": [0, 0.1], "visible": False, "range": [0, 1], "fixedrange": True},
    )


def step_line(
    xs: Sequence[X], values: Sequence[object], hovers: Sequence[Sequence[object]], *, name: str, mode: Mode
) -> go.Scatter:
    """The line; a hover is version, operation, exact value and time. Each value can be clicked, marked or not."""
    return go.Scatter(
        x=list(xs),
        y=list(values),
        mode="lines+markers",
        line={"shape": "hv", "width": 2, "color": categories(mode)[0]},
        marker={"size": 5} if len(xs) <= MOST_MARKED else {"size": 8, "opacity": 0},
        name=name,
        showlegend=False,
        connectgaps=False,
        customdata=[[figure_safe(cell) if isinstance(cell, str) else cell for cell in hover] for hover in hovers],
        hovertemplate=f"{_HOVER_HEAD}<br>%{{customdata[2]}}<br>%{{customdata[3]}}<extra></extra>",
    )


def glyphs(
    commits: Sequence[VersionTotals], x_of: Callable[[VersionTotals], X], *, mode: Mode, edge_px: int = 0
) -> list[go.Scatter]:
    """One trace a kind of operation, along the bottom on its own axis, the rarest on top.

    Commits of one kind that would lie upon each other are one glyph, the newest of them; its hover counts them.
    """
    families: dict[str, list[VersionTotals]] = {}
    for commit in commits:
        families.setdefault(operation_family(commit.operation), []).append(commit)
    xs = [x_of(commit) for commit in commits]
    groups = sorted(families.items(), key=lambda item: -len(item[1]))
    return [
        _glyphs_of(family, _by_slot(group, x_of, (min(xs), max(xs))), x_of, mode=mode, edge_px=edge_px)
        for family, group in groups
    ]


def _by_slot(
    commits: Sequence[VersionTotals], x_of: Callable[[VersionTotals], X], ends: tuple[X, X]
) -> list[list[VersionTotals]]:
    """The commits of each stretch of the axis that has room for one glyph."""
    low, high = (_place(end) for end in ends)
    slots: dict[int, list[VersionTotals]] = {}
    for commit in commits:
        at = (_place(x_of(commit)) - low) / (high - low) if high > low else 0.0
        slots.setdefault(min(GLYPH_SLOTS - 1, int(at * GLYPH_SLOTS)), []).append(commit)
    return [slots[number] for number in sorted(slots)]


def _place(x: X) -> float:
    return (x - datetime.min) / timedelta(seconds=1) if isinstance(x, datetime) else float(x)


def _glyphs_of(
    family: str, slots: list[list[VersionTotals]], x_of: Callable[[VersionTotals], X], *, mode: Mode, edge_px: int
) -> go.Scatter:
    newest = [slot[-1] for slot in slots]
    style = operation_style(newest[0].operation, mode)
    names = sorted({figure_safe(commit.operation or "not named") for slot in slots for commit in slot})
    return go.Scatter(
        x=[x_of(commit) for commit in newest],
        y=[0.5] * len(newest),
        yaxis="y2",
        mode="markers",
        marker={
            "symbol": style.symbol,
            "color": style.colour,
            "size": 10,
            "line": {"color": style.colour, "width": edge_px},
        },
        name=f"{', '.join(names[:2])}{' …' if len(names) > 2 else ''}" if family != "other" else "other",
        customdata=[
            [c.version, figure_safe(c.operation or "not named"), _slot_text(slot)]
            for c, slot in zip(newest, slots, strict=True)
        ],
        hovertemplate=f"{_HOVER_HEAD}<br>%{{customdata[2]}}<extra></extra>",
    )


def _slot_text(slot: Sequence[VersionTotals]) -> str:
    """When; of several commits also how many they are."""
    at = utc_text(slot[-1].committed_at)
    return at if len(slot) == 1 else f"{at}<br>the newest of {len(slot):,} here, from v{slot[0].version} on"


def thinned(values: Sequence[float | None], most: int = MOST_VALUES) -> list[int]:
    """The positions of at most `most` values: the first, lowest and highest of each stretch, and the very last."""
    if len(values) <= most:
        return list(range(len(values)))
    stretch = -(-len(values) * 3 // (most - 1))
    chosen = {len(values) - 1}
    for start in range(0, len(values), stretch):
        part = range(start, min(start + stretch, len(values)))
        known = {index: value for index in part if (value := values[index]) is not None}
        chosen.add(start)
        if known:
            chosen |= {min(known, key=known.__getitem__), max(known, key=known.__getitem__)}
    return sorted(chosen)


def thinned_sentence(versions: str) -> str:
    """What a thinned line leaves out; `versions` says how many there are."""
    return f"{versions} thinned to first, lowest and highest of each stretch."
