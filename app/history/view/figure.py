"""A table's figures over its versions: a step line with the operations along the bottom.

Rule: pure; a figure has at most `MAX_POINTS` points and says when it left some out; an unknown figure is a gap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

import plotly.graph_objects as go

from app.ui.view.figures import (
    MOST_VALUES,
    SHARE_AXIS,
    count_axis,
    glyphs,
    over_versions_figure,
    step_line,
    thinned,
    thinned_sentence,
    time_range,
    version_axis,
    wall_clock,
)
from app.ui.view.theme import FIGURES_KEPT, Mode, state_style
from backend.format import bytes_exact, bytes_text, count_exact, count_text, percent, signed, things, utc_text
from backend.lake.history.timeline import Jump
from backend.lake.model import Timeline, VersionTotals

VERSION_TICKS = 6


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of `VersionTotals` that can be drawn over versions."""

    field: str
    title: str
    axis: str

    @property
    def is_bytes(self) -> bool:
        return self.field == "size_bytes"

    @property
    def is_share(self) -> bool:
        return self.field == "small_share"

    def text(self, value: float | None) -> str:
        return percent(value) if self.is_share else (bytes_text if self.is_bytes else count_text)(value)

    def exact(self, value: float | None) -> str:
        if value is None or self.is_share:
            return percent(value)
        return (bytes_exact if self.is_bytes else count_exact)(int(value))


FIGURES = {
    "Rows": Figure("num_rows", "Rows", "rows"),
    "Files": Figure("num_files", "Files", "files"),
    "Size": Figure("size_bytes", "Size", "bytes"),
    "Small files": Figure("small_files", "Small files", "files"),
    "Small share": Figure("small_share", "Small files' share", "share of files"),
}


def history_finding(totals: Sequence[VersionTotals], figure: Figure) -> str:
    """The figure's title: "Rows grew from 37,000 to 38,200 over 131 versions". Where not all are known it names the
    ends of those that are."""
    values = [(item.version, value) for item in totals if (value := _value(item, figure)) is not None]
    if not values:
        return f"{figure.title}: not known, files lack statistics" if totals else f"{figure.title}: no version to show"
    (first_version, first), (last_version, last) = values[0], values[-1]
    if len(values) == 1:
        return f"{figure.title}: {figure.text(last)} at v{last_version}"
    ends = f", v{first_version} to v{last_version}" if len(values) < len(totals) else ""
    span = f"over {things(len(values), 'version')}{ends}"
    if all(value == first for _, value in values):
        return f"{figure.title} stayed at {figure.text(last)} {span}"
    if last == first:
        return f"{figure.title}: {figure.text(last)} again {span}"
    return (
        f"{figure.title} {'grew' if last > first else 'fell'} from {figure.text(first)} to {figure.text(last)} {span}"
    )


def history_figure(
    timeline: Timeline,
    figure: Figure,
    *,
    jumps: Sequence[Jump] = (),
    mode: Mode = "light",
    zone: str | None = None,
) -> go.Figure:
    """A step line of the figure over time with operation glyphs along the bottom and versions on a second axis.

    Where a commit has no time the versions are the axis. `jumps` are marked on the line.

    Built once: not to be changed.
    """
    return _history_figure(timeline, figure, tuple(jumps), mode, zone)


@lru_cache(FIGURES_KEPT)
def _history_figure(
    timeline: Timeline, figure: Figure, jumps: tuple[Jump, ...], mode: Mode, zone: str | None
) -> go.Figure:
    totals = [timeline.totals[index] for index in thinned([_value(item, figure) for item in timeline.totals])]
    by_time = all(item.committed_at for item in timeline.totals)

    def x_of(item: VersionTotals) -> datetime | int:
        return wall_clock(item.committed_at, zone) if by_time and item.committed_at else item.version

    chart = over_versions_figure(history_finding(timeline.totals, figure), mode=mode)
    if totals:
        xs, values = [x_of(item) for item in totals], [_value(item, figure) for item in totals]
        hovers = [_hover(item, figure) for item in totals]
        chart.add_trace(step_line(xs, values, hovers, name=figure.title, mode=mode))
        chart.add_traces(glyphs(timeline.totals, x_of, mode=mode, edge_px=1))
        marked = {jump.version: jump for jump in jumps}
        jumped = [item for item in timeline.totals if item.version in marked]
        for item in jumped:
            _mark(chart, item, marked[item.version], (x_of(item), _value(item, figure)), mode=mode)
    clock = f"Time ({zone or 'UTC'})" if by_time else "Version"
    heights = SHARE_AXIS if figure.is_share else count_axis(_value(item, figure) for item in totals)
    chart.update_layout(margin_t=72, xaxis_title_text=clock, yaxis={"title_text": figure.axis, **heights})
    if figure.is_bytes:
        chart.update_layout(yaxis={"ticksuffix": "B"})
    if totals and by_time:
        _version_axis(chart, totals, zone)
    elif totals:
        chart.update_layout(xaxis=version_axis(totals[0].version, totals[-1].version))
    return chart


def _mark(
    chart: go.Figure, item: VersionTotals, jump: Jump, at: tuple[datetime | int, float | None], *, mode: Mode
) -> None:
    """A ring around the version, with its change."""
    colour = state_style("WARNING", mode).colour
    chart.add_trace(
        go.Scatter(
            x=[at[0]],
            y=[at[1]],
            mode="markers",
            marker={"symbol": "circle-open", "size": 15, "color": colour, "line": {"width": 2.5}},
            showlegend=False,
            customdata=[[item.version]],
            hovertemplate=f"<b>v{item.version}</b> · {jump_text(jump)}<extra></extra>",
        )
    )
    chart.add_annotation(
        x=at[0], y=at[1], text=f"v{item.version}: {signed(jump.change)}", showarrow=False, xanchor="right",
        yanchor="bottom", xshift=-10, font={"color": colour},
    )  # fmt: skip


def jump_text(jump: Jump) -> str:
    """ "+5,000 rows; a commit usually brings +10"."""
    return f"{signed(jump.change)} rows; a commit usually brings {signed(jump.usual)}"


def _value(totals: VersionTotals, figure: Figure) -> float | None:
    value: float | None = getattr(totals, figure.field)
    return value


def _hover(item: VersionTotals, figure: Figure) -> list[object]:
    exact = figure.exact(_value(item, figure))
    return [item.version, item.operation or "not named", exact, utc_text(item.committed_at)]


def _version_axis(chart: go.Figure, totals: Sequence[VersionTotals], zone: str | None) -> None:
    """A few versions above the figure, over the time axis."""
    ticks = _version_ticks(totals, zone)
    ends = time_range([wall_clock(item.committed_at, zone) for item in totals if item.committed_at])
    # An axis is drawn only where something lies on it: a line without a value.
    chart.add_trace(
        go.Scatter(x=[x for x, _ in ticks], y=[None] * len(ticks), xaxis="x2", showlegend=False, hoverinfo="skip")
    )
    chart.update_layout(
        xaxis_range=ends,
        xaxis2={
            "overlaying": "x",
            "side": "top",
            "matches": "x",
            "anchor": "y",
            "showgrid": False,
            "tickvals": [x for x, _ in ticks],
            "ticktext": [label for _, label in ticks],
        },
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
    if len(timeline.totals) > MOST_VALUES:
        notes.append(thinned_sentence(things(len(timeline.totals), "version")))
    return " ".join(notes)
