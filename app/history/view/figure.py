"""A table's figures over its versions: a step line with the operations along the bottom.

Rule: pure; a figure has at most `MAX_POINTS` points and says when it left some out; an unknown figure is a gap.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import plotly.graph_objects as go

from app.ui.axes import count_axis, time_range, version_axis, wall_clock
from app.ui.theme import MAX_POINTS, Mode, categories, operation_family, operation_style, template_name
from backend.format import bytes_exact, bytes_text, count_exact, count_text, things, utc_text
from backend.lake.model import Timeline, VersionTotals

MOST_GLYPHS = MAX_POINTS // 2
VERSION_TICKS = 6
HEIGHT_PX = 380
_HOVER_HEAD = "<b>v%{customdata[0]}</b> · %{customdata[1]}"


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of `VersionTotals` that can be drawn over versions."""

    field: str
    title: str
    axis: str

    @property
    def is_bytes(self) -> bool:
        return self.field == "size_bytes"

    def text(self, value: int | None) -> str:
        return bytes_text(value) if self.is_bytes else count_text(value)

    def exact(self, value: int | None) -> str:
        return bytes_exact(value) if self.is_bytes else count_exact(value)


FIGURES = {
    "Rows": Figure("num_rows", "Rows", "rows"),
    "Files": Figure("num_files", "Files", "files"),
    "Size": Figure("size_bytes", "Size", "bytes"),
}


def history_finding(totals: Sequence[VersionTotals], figure: Figure) -> str:
    """The figure's title: "Rows grew by 1,204 to 38,200 over 131 versions"."""
    known = [value for value in (_value(item, figure) for item in totals) if value is not None]
    if not known:
        return f"{figure.title}: not known, files lack statistics" if totals else f"{figure.title}: no version to show"
    change, last = known[-1] - known[0], figure.text(known[-1])
    span = f"over {things(len(totals), 'version')}"
    if len(known) == 1:
        return f"{figure.title}: {last} at v{totals[-1].version}"
    if change == 0:
        return (
            f"{figure.title} stayed at {last} {span}"
            if len(set(known)) == 1
            else f"{figure.title}: {last} again {span}"
        )
    size = figure.text(abs(change))
    return f"{figure.title} {'grew' if change > 0 else 'fell'} by {size} to {last} {span}"


def history_figure(timeline: Timeline, figure: Figure, *, mode: Mode = "light", zone: str | None = None) -> go.Figure:
    """A step line of the figure over time with operation glyphs along the bottom and versions on a second axis.

    Where a commit has no time the versions are the axis.
    """
    totals = thin(timeline.totals, MAX_POINTS - MOST_GLYPHS, figure)
    by_time = all(item.committed_at for item in timeline.totals)
    x_of, chart = _Axis(by_time=by_time, zone=zone), go.Figure()
    if totals:
        chart.add_trace(_step_line(totals, figure, x_of, mode))
        for trace in _glyphs(_glyph_totals(timeline.totals), figure, x_of, mode):
            chart.add_trace(trace)
    chart.update_layout(
        template=template_name(mode), height=HEIGHT_PX, title_text=history_finding(timeline.totals, figure)
    )
    chart.update_layout(showlegend=True, legend={"y": -0.3, "yanchor": "top", "x": 0, "xanchor": "left"}, margin_t=72)
    _axes(chart, totals, figure, by_time=by_time, zone=zone)
    return chart


def thin(totals: Sequence[VersionTotals], most: int, figure: Figure) -> list[VersionTotals]:
    """At most `most` versions: of each stretch the first, lowest and highest, and always the very last."""
    if len(totals) <= most:
        return list(totals)
    stretch = -(-len(totals) * 3 // (most - 1))
    kept: set[int] = {len(totals) - 1}
    for start in range(0, len(totals), stretch):
        part = range(start, min(start + stretch, len(totals)))
        kept |= {start, *_extremes(part, totals, figure)}
    return [totals[index] for index in sorted(kept)]


def _extremes(part: range, totals: Sequence[VersionTotals], figure: Figure) -> set[int]:
    known = {index: value for index in part if (value := _value(totals[index], figure)) is not None}
    return {min(known, key=known.__getitem__), max(known, key=known.__getitem__)} if known else set()


def _value(totals: VersionTotals, figure: Figure) -> int | None:
    value: int | None = getattr(totals, figure.field)
    return value


def _glyph_totals(totals: Sequence[VersionTotals]) -> list[VersionTotals]:
    """The commits that get a glyph: all while there is room, else all rare ones and an even choice of the rest."""
    if len(totals) <= MOST_GLYPHS:
        return list(totals)
    counts = Counter(operation_family(item.operation) for item in totals)
    kept: list[VersionTotals] = []
    share = MOST_GLYPHS // max(1, len(counts))
    for family, count in counts.items():
        of_family = [item for item in totals if operation_family(item.operation) == family]
        kept += of_family[:: max(1, -(-count // share))]
    return sorted(kept, key=lambda item: item.version)


class _Axis:
    """Where a version stands on the x axis: its time in the viewer's zone, or its number."""

    def __init__(self, *, by_time: bool, zone: str | None) -> None:
        self.by_time = by_time
        self.zone = zone

    def __call__(self, totals: VersionTotals) -> datetime | int:
        if not self.by_time or totals.committed_at is None:
            return totals.version
        return wall_clock(totals.committed_at, self.zone)


def _step_line(totals: Sequence[VersionTotals], figure: Figure, x_of: _Axis, mode: Mode) -> go.Scatter:
    return go.Scatter(
        x=[x_of(item) for item in totals],
        y=[_value(item, figure) for item in totals],
        mode="lines+markers" if len(totals) <= 60 else "lines",
        line={"shape": "hv", "width": 2, "color": categories(mode)[0]},
        marker={"size": 5},
        name=figure.title,
        showlegend=False,
        connectgaps=False,
        customdata=[_hover(item, figure) for item in totals],
        hovertemplate=f"{_HOVER_HEAD}<br>%{{customdata[2]}}<br>%{{customdata[3]}}<extra></extra>",
    )


def _hover(item: VersionTotals, figure: Figure) -> list[object]:
    return [
        item.version,
        item.operation or "not named",
        figure.exact(_value(item, figure)),
        utc_text(item.committed_at),
    ]


def _glyphs(totals: Sequence[VersionTotals], figure: Figure, x_of: _Axis, mode: Mode) -> list[go.Scatter]:
    """One trace a kind of operation, along the bottom on an axis of its own."""
    families: dict[str, list[VersionTotals]] = {}
    for item in totals:
        families.setdefault(operation_family(item.operation), []).append(item)
    traces = []
    for family, items in families.items():
        style = operation_style(items[0].operation, mode)
        marker = {
            "symbol": style.symbol,
            "color": style.colour,
            "size": 10,
            "line": {"color": style.colour, "width": 1},
        }
        names = sorted({item.operation or "not named" for item in items})
        traces.append(
            go.Scatter(
                x=[x_of(item) for item in items],
                y=[0.5] * len(items),
                yaxis="y2",
                mode="markers",
                marker=marker,
                name=f"{', '.join(names[:2])}{' …' if len(names) > 2 else ''}" if family != "other" else "other",
                customdata=[_hover(item, figure) for item in items],
                hovertemplate=f"{_HOVER_HEAD}<br>%{{customdata[3]}}<extra></extra>",
            )
        )
    return traces


def _axes(
    chart: go.Figure, totals: Sequence[VersionTotals], figure: Figure, *, by_time: bool, zone: str | None
) -> None:
    clock = f"Time ({zone or 'UTC'})" if by_time else "Version"
    chart.update_layout(
        xaxis={"title_text": clock, "anchor": "y2"},
        yaxis={
            "title_text": figure.axis,
            "domain": [0.14, 1],
            **count_axis(_value(item, figure) for item in totals),
        },
        yaxis2={"domain": [0, 0.1], "visible": False, "range": [0, 1], "fixedrange": True},
    )
    if figure.is_bytes:
        chart.update_layout(yaxis={"ticksuffix": "B"})
    if totals and not by_time:
        chart.update_xaxes(version_axis(totals[0].version, totals[-1].version), selector={"anchor": "y2"})
    if by_time and totals:
        ticks = _version_ticks(totals, zone)
        ends = time_range([wall_clock(item.committed_at, zone) for item in totals if item.committed_at])
        chart.update_layout(xaxis_range=ends)
        chart.add_trace(
            go.Scatter(x=[x for x, _ in ticks], y=[None] * len(ticks), xaxis="x2", showlegend=False, hoverinfo="skip")
        )
        chart.update_layout(
            xaxis2={
                "overlaying": "x",
                "side": "top",
                "matches": "x",
                "anchor": "y",
                "showgrid": False,
                "tickvals": [x for x, _ in ticks],
                "ticktext": [label for _, label in ticks],
            }
        )


def _version_ticks(totals: Sequence[VersionTotals], zone: str | None) -> list[tuple[datetime, str]]:
    """A few versions, spread over time so that their labels do not overlap."""
    moments = [(item.committed_at, item.version) for item in totals if item.committed_at]
    start, end = moments[0][0], moments[-1][0]
    gap_s = (end - start).total_seconds() / VERSION_TICKS
    chosen = [moments[-1]]
    for moment, version in reversed(moments[:-1]):
        if (chosen[-1][0] - moment).total_seconds() >= gap_s and gap_s:
            chosen.append((moment, version))
    return [(wall_clock(moment, zone), f"v{version}") for moment, version in reversed(chosen)]


def drawn_sentence(timeline: Timeline) -> str:
    """What the figure could not show: the log's beginning, or versions left out for space."""
    notes = []
    if timeline.first_version > 0:
        notes.append(f"The log begins at v{timeline.first_version}; older versions were cleaned up.")
    elif timeline.truncated and timeline.totals:
        notes.append(f"Shown from v{timeline.totals[0].version} on.")
    if len(timeline.totals) > MAX_POINTS - MOST_GLYPHS:
        notes.append(f"{things(len(timeline.totals), 'version')} thinned to first, lowest and highest of each stretch.")
    return " ".join(notes)
