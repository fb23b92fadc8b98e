"""What figures share: axes, charts of live regions as the JSON that Plotly takes, and a value over a table's versions.

Rule: pure; no tick says "800m" of a row, or half a version. At most `MAX_POINTS` points, an unknown value is a gap, and
what stands out survives the thinning.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, Literal

import plotly.graph_objects as go
import plotly.io as pio

from app.ui.view import theme
from app.ui.view.theme import Mode, categories, operation_family, operation_style, state_style, template_name
from app.ui.view.words import figure_safe
from backend.format import (
    UNKNOWN,
    bytes_exact,
    bytes_text,
    count_text,
    datetime_text,
    percent,
    signed,
    things,
    utc_text,
    zone_of,
)
from backend.lake.history.timeline import Jump
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


FigureJson = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FigureLook:
    """How the charts of one viewer look: light or dark, and whose clock."""

    mode: Mode = "light"
    zone: str | None = None


def base_figure(title: str, unit: str, look: FigureLook) -> FigureJson:
    """A chart over time with no line yet; `unit` names the other axis."""
    legend = {"x": 0, "xanchor": "left", "y": -0.16, "yanchor": "top", "traceorder": "normal", "font": {"size": 11}}
    layout = {
        "template": _template(look.mode), "height": 280, "margin": {"t": 36}, "legend": legend, "barmode": "stack",
        "title": {"text": title, "font": {"size": 14}, "y": 0.98, "yanchor": "top"}, "uirevision": "keep",
        "dragmode": "zoom", "yaxis": {"title": {"text": unit}, "rangemode": "tozero", "fixedrange": True},
        "xaxis": {"type": "date"},
    }  # fmt: skip
    return {"data": [], "layout": layout}


@cache
def _template(mode: Mode) -> FigureJson:
    return {"layout": pio.templates[template_name(mode)].layout.to_plotly_json()}


def moment_json(moment: datetime, zone: str | None) -> str:
    """The viewer's wall clock as Plotly takes it: as a number it would be moved by the browser's zone once more."""
    return wall_clock(moment, zone).isoformat(" ", "milliseconds")


# a number over a table's versions: a step line above, the commits' operations along the bottom ------------------------


GLYPH_SLOTS = 60  # of one kind side by side, with room between them on a wide page
MOST_VALUES = theme.MAX_POINTS // 2
MOST_MARKED = 60  # values with a mark of their own
VERSION_TICKS = 6
HEIGHT_PX = 320
_HOVER_HEAD = "<b>v%{customdata[0]}</b> · %{customdata[1]}"

X = datetime | int  # where a version stands on the x axis: a time on the viewer's clock, or a version


@dataclass(frozen=True, slots=True)
class Series:
    """A number over versions: its name, the words on its axis, what it counts, and whether its axis begins at zero."""

    title: str
    axis: str
    unit: Literal["count", "bytes", "share"] = "count"
    from_zero: bool = True

    def text(self, value: Any) -> str:
        """A value as people read it, at most three digits of a long number; a text as it is."""
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            return datetime_text(value) if isinstance(value, datetime) else str(value)
        if self.unit == "count":
            return count_text(value if isinstance(value, int) else float(value))
        return percent(float(value)) if self.unit == "share" else bytes_text(float(value))

    def exact(self, value: Any) -> str:
        """A value for hovers and lists: every digit."""
        if value is None:
            return UNKNOWN
        if self.unit == "share" or isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            return self.text(value)
        return bytes_exact(int(value)) if self.unit == "bytes" else f"{value:,}"

    def y_axis(self, values: Sequence[float | None]) -> dict[str, Any]:
        """A `yaxis` for these values."""
        if self.unit == "share":
            return SHARE_AXIS
        scale = count_axis(values) if self.from_zero else value_axis(values)
        return scale | ({"ticksuffix": "B"} if self.unit == "bytes" else {})


TABLE_SERIES = {  # by the field of `VersionTotals`
    "num_rows": Series("Rows", "rows"),
    "size_bytes": Series("Size", "bytes", "bytes"),
    "num_files": Series("Files", "files"),
    "small_files": Series("Small files", "files"),
    "small_share": Series("Small files' share", "share of files", "share"),
}
TABLE_NUMBERS = {series.title: field for field, series in TABLE_SERIES.items()}


@dataclass(frozen=True, slots=True)
class Point:
    """One version's value; `value` None: unknown, and `problem` says why. `table_id`: of the table that lay there then,
    None where nobody asked."""

    version: int
    at: datetime | None
    operation: str | None
    value: Any
    problem: str | None = None
    table_id: str | None = None


def table_points(totals: Sequence[VersionTotals], field: str) -> tuple[Point, ...]:
    """One of the table's own numbers at each version."""
    values = [(item, getattr(item, field)) for item in totals]
    return tuple(
        Point(t.version, t.committed_at, t.operation, value, "files lack statistics" if value is None else None)
        for t, value in values
    )


def finding(points: Sequence[Point], series: Series, num_versions: int = 0) -> str:
    """The figure's title: "Rows grew from 37,000 to 38,200 over 131 versions". Where not each of `num_versions` has a
    value it names the ends of those that have."""
    known = [point for point in points if point.value is not None]
    if not known:
        count = things(len(points), "version")
        return f"{series.title}: no value at any of {count}" if points else f"{series.title}: no version to show"
    first, last = known[0], known[-1]
    if len(known) == 1:
        return f"{series.title}: {series.text(last.value)} at v{last.version}"
    ends = f", v{first.version} to v{last.version}" if len(known) < max(len(points), num_versions) else ""
    span = f"over {things(len(known), 'version')}{ends}"
    if all(point.value == first.value for point in known):
        return f"{series.title} stayed at {series.text(last.value)} {span}"
    if last.value == first.value:
        return f"{series.title}: {series.text(last.value)} again {span}"
    verb = "went"  # a moment, or a number that is none
    if not isinstance(last.value, date):
        verb = "grew" if last.value > first.value else "fell" if last.value < first.value else verb
    return f"{series.title} {verb} from {series.text(first.value)} to {series.text(last.value)} {span}"


def notes(points: Sequence[Point], wanted: int, of: int) -> str:
    """What the figure does not show: versions not chosen, thinned, without a value and the first reason, or of a table
    that was replaced since."""
    sentences = []
    if wanted < of:
        sentences.append(f"{wanted:,} of {things(of, 'version')} chosen, evenly spread.")
    if len(points) > MOST_VALUES:
        every = things(len(points), "version")
        sentences.append(f"{every} thinned to first, lowest and highest of each stretch.")
    lost = [point for point in points if point.problem]
    if lost:
        sentences.append(f"{things(len(lost), 'version')} without a value; v{lost[-1].version}: {lost[-1].problem}.")
    ids = [(point.version, point.table_id) for point in points if point.table_id]
    replaced = [version for (_, before), (version, table_id) in pairwise(ids) if before != table_id]
    if replaced:
        times = "" if len(replaced) == 1 else f" {len(replaced):,} times, last"
        sentences.append(f"The table was re-created{times} by v{replaced[-1]}: older values belong to another table.")
    return " ".join(sentences)


@lru_cache(theme.FIGURES_KEPT)
def series_figure(
    points: tuple[Point, ...], commits: tuple[VersionTotals, ...], series: Series, *, by_time: bool = True,
    jumps: tuple[Jump, ...] = (), mode: Mode = "light", zone: str | None = None,
) -> go.Figure:  # fmt: skip
    """A step line over time, with versions on a second axis, or over versions where a commit has no time; the
    operations of `commits` along the bottom, `jumps` marked on the line. Built once: not to be changed."""
    by_time = by_time and bool(points) and all(point.at for point in points)

    def x_of(version: int, at: datetime | None) -> X:
        return wall_clock(at, zone) if by_time and at is not None else version

    shown = [points[index] for index in thinned([number_of(point.value) for point in points])]
    figure = go.Figure(step_line([x_of(point.version, point.at) for point in shown], shown, series, mode=mode))
    figure.update_layout(
        template=template_name(mode), height=HEIGHT_PX, margin_t=72, showlegend=True,
        title_text=figure_safe(finding(points, series, len(commits))),
        legend={"y": -0.3, "yanchor": "top", "x": 0, "xanchor": "left"},
        xaxis={"anchor": "y2", "title_text": f"Time ({zone or 'UTC'})"},
        yaxis={"domain": [0.14, 1], "title_text": figure_safe(series.axis)},
        yaxis2={"domain": [0, 0.1], "visible": False, "range": [0, 1], "fixedrange": True},
    )  # fmt: skip
    low, high = (points[0].version, points[-1].version) if points else (0, 0)
    inside = [item for item in commits if low <= item.version <= high and (item.committed_at or not by_time)]
    figure.add_traces(_glyphs(inside, lambda commit: x_of(commit.version, commit.committed_at), mode=mode))
    marked = {jump.version: jump for jump in jumps}
    for point in points:
        if jump := marked.get(point.version):  # a ring around the version, with its change
            x, colour = x_of(point.version, point.at), state_style("WARNING", mode).colour
            ring = {"symbol": "circle-open", "size": 15, "color": colour, "line": {"width": 2.5}}
            hover = f"<b>v{point.version}</b> · {jump_text(jump)}<extra></extra>"
            figure.add_scatter(
                x=[x], y=[point.value], mode="markers", marker=ring, showlegend=False, customdata=[[point.version]],
                hovertemplate=hover,
            )  # fmt: skip
            figure.add_annotation(
                x=x, y=point.value, text=f"v{point.version}: {signed(jump.change)}", showarrow=False, xanchor="right",
                yanchor="bottom", xshift=-10, font={"color": colour},
            )  # fmt: skip
    if not any(isinstance(point.value, date) for point in points):
        figure.update_layout(yaxis=series.y_axis([number_of(point.value) for point in shown]))
    if by_time:
        _version_axis(figure, [(wall_clock(p.at, zone), p.version) for p in points if p.at])
    else:
        figure.update_layout(xaxis=version_axis(low, high))
    return figure


def number_of(value: Any) -> float | None:
    """A value as it is drawn; None where it is no finite number. Of a day it is its ordinal."""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            return None
        return number if math.isfinite(number) else None
    return value.toordinal() if isinstance(value, date) else None


def step_line(xs: Sequence[X], points: Sequence[Point], series: Series, *, mode: Mode) -> go.Scatter:
    """The line; a hover is version, operation, name and exact value, time. Each value can be clicked, marked or not."""
    return go.Scatter(
        x=list(xs),
        y=[point.value if isinstance(point.value, date) else number_of(point.value) for point in points],
        mode="lines+markers",
        line={"shape": "hv", "width": 2, "color": categories(mode)[0]},
        marker={"size": 5} if len(xs) <= MOST_MARKED else {"size": 8, "opacity": 0},
        name=figure_safe(series.title),
        showlegend=False,
        connectgaps=False,
        customdata=[
            [p.version, figure_safe(p.operation or "not named"), figure_safe(series.exact(p.value)), utc_text(p.at)]
            for p in points
        ],
        hovertemplate=f"{_HOVER_HEAD}<br>%{{fullData.name}}: %{{customdata[2]}}<br>%{{customdata[3]}}<extra></extra>",
    )


def jump_text(jump: Jump) -> str:
    """ "+5,000 rows; a commit usually brings +10"."""
    return f"{signed(jump.change)} rows; a commit usually brings {signed(jump.usual)}"


def _version_axis(figure: go.Figure, moments: Sequence[tuple[datetime, int]]) -> None:
    """A few versions above the figure, so far apart over its time axis that their labels do not overlap."""
    ends = time_range([moment for moment, _ in moments])
    gap = (LEAST_SPAN if ends else moments[-1][0] - moments[0][0]) / VERSION_TICKS
    ticks = [moments[-1]]
    for moment, version in reversed(moments[:-1]):
        if gap and ticks[-1][0] - moment >= gap:
            ticks.append((moment, version))
    xs, names = [moment for moment, _ in ticks], [f"v{version}" for _, version in ticks]
    # An axis is drawn only where something lies on it: a line without a value.
    figure.add_scatter(x=xs, y=[None] * len(xs), xaxis="x2", showlegend=False, hoverinfo="skip")
    above = {"overlaying": "x", "side": "top", "matches": "x", "anchor": "y", "showgrid": False}
    figure.update_layout(xaxis_range=ends, xaxis2={**above, "tickvals": xs, "ticktext": names})


def _glyphs(commits: Sequence[VersionTotals], x_of: Callable[[VersionTotals], X], *, mode: Mode) -> list[go.Scatter]:
    """One trace a kind of operation, along the bottom on its own axis, the rarest on top.

    Commits of one kind that would lie upon each other are one glyph, the newest of them; its hover counts them.
    """
    xs = [x_of(commit) for commit in commits]
    places = [(x - datetime.min).total_seconds() if isinstance(x, datetime) else float(x) for x in xs]
    low, high = min(places, default=0.0), max(places, default=0.0)
    families: dict[str, dict[int, list[tuple[X, VersionTotals]]]] = {}
    for commit, x, place in zip(commits, xs, places, strict=True):
        slot = min(GLYPH_SLOTS - 1, int((place - low) / (high - low) * GLYPH_SLOTS)) if high > low else 0
        families.setdefault(operation_family(commit.operation), {}).setdefault(slot, []).append((x, commit))
    rarest_last = sorted(families.items(), key=lambda item: -sum(map(len, item[1].values())))
    return [_glyphs_of(family, [slots[place] for place in sorted(slots)], mode=mode) for family, slots in rarest_last]


def _glyphs_of(family: str, slots: list[list[tuple[X, VersionTotals]]], *, mode: Mode) -> go.Scatter:
    colour, _, symbol = operation_style(slots[0][-1][1].operation, mode)
    names = sorted({figure_safe(commit.operation or "not named") for slot in slots for _, commit in slot})
    hovers = []
    for slot in slots:
        last, many = slot[-1][1], ""
        if len(slot) > 1:
            many = f"<br>the newest of {len(slot):,} here, from v{slot[0][1].version} on"
        at = f"{utc_text(last.committed_at)}{many}"
        hovers.append([last.version, figure_safe(last.operation or "not named"), at])
    return go.Scatter(
        x=[slot[-1][0] for slot in slots], y=[0.5] * len(slots), yaxis="y2", mode="markers",
        marker={"symbol": symbol, "color": colour, "size": 10, "line": {"color": colour, "width": 1}},
        name=f"{', '.join(names[:2])}{' …' if len(names) > 2 else ''}" if family != "other" else "other",
        customdata=hovers, hovertemplate=f"{_HOVER_HEAD}<br>%{{customdata[2]}}<extra></extra>",
    )  # fmt: skip


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
