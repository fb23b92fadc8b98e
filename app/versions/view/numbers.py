"""A number over versions as a figure: a line with the commits' operations along the bottom, over versions or time.

Rule: pure; a version without a value is a gap and is named; at most `MAX_POINTS` points; what was left out is said.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from app.ui.axes import count_axis, time_range, value_axis, version_axis, wall_clock
from app.ui.theme import MAX_POINTS, Mode, categories, operation_family, operation_style, template_name
from backend.format import bytes_exact, bytes_text, count_text, things, utc_text
from backend.lake.model import VersionTotals
from backend.query.over_versions import VersionValue

MOST_GLYPHS = MAX_POINTS // 2
MOST_VALUES = MAX_POINTS - MOST_GLYPHS


@dataclass(frozen=True, slots=True)
class Number:
    """What is plotted: its name, the words on the axis, and whether it counts bytes."""

    title: str
    axis: str
    is_bytes: bool = False
    from_zero: bool = True


@dataclass(frozen=True, slots=True)
class Point:
    """One version's value; `value` None: unknown, and `problem` says why."""

    version: int
    at: datetime | None
    operation: str | None
    value: Any
    problem: str | None = None


TABLE_NUMBERS = {
    "Rows": ("num_rows", Number("Rows", "rows")),
    "Size": ("size_bytes", Number("Size", "bytes", is_bytes=True)),
    "Files": ("num_files", Number("Files", "files")),
    "Deleted rows": ("deleted_rows", Number("Deleted rows", "rows marked by deletion vectors")),
    "Small files": ("small_files", Number("Small files", "files")),
}


def table_numbers() -> list[str]:
    """The table's numbers that the timeline knows."""
    known = VersionTotals.__dataclass_fields__
    return [name for name, (field, _) in TABLE_NUMBERS.items() if field in known]


def table_points(totals: Sequence[VersionTotals], name: str) -> list[Point]:
    """One of the table's numbers at each version."""
    field, _ = TABLE_NUMBERS[name]
    return [
        Point(t.version, t.committed_at, t.operation, value, None if value is not None else "files lack statistics")
        for t in totals
        for value in (getattr(t, field),)
    ]


def value_points(values: Sequence[VersionValue], totals: Sequence[VersionTotals]) -> list[Point]:
    """Computed values with the times and operations of their commits."""
    commits = {t.version: t for t in totals}
    points = []
    for found in values:
        commit = commits.get(found.version)
        at, operation = (commit.committed_at, commit.operation) if commit else (None, None)
        points.append(Point(found.version, at, operation, found.value, found.problem))
    return points


def can_be_drawn(points: Sequence[Point]) -> bool:
    """Whether every known value is a number or a moment."""
    known = [point.value for point in points if point.value is not None]
    if not known:
        return False
    moments = [isinstance(value, date) for value in known]
    return all(moments) or (not any(moments) and all(_number(value) is not None for value in known))


def finding(points: Sequence[Point], number: Number) -> str:
    """The figure's title: "Rows grew from 38,200 to 39,404 over 131 versions"."""
    known = [point for point in points if point.value is not None]
    if not known:
        return f"{number.title}: no value at any of {things(len(points), 'version')}" if points else number.title
    first, last = known[0], known[-1]
    if len(known) == 1:
        return f"{number.title}: {value_text(last.value, number)} at v{last.version}"
    span = f"over {things(len(known), 'version')}, v{first.version} to v{last.version}"
    if first.value == last.value:
        verb = "stayed at" if all(p.value == first.value for p in known) else "is again"
        return f"{number.title} {verb} {value_text(last.value, number)} {span}"
    return f"{number.title}: {value_text(first.value, number)} to {value_text(last.value, number)} {span}"


def value_text(value: Any, number: Number) -> str:
    """A value as people read it, at most three digits of a long number; a text as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)
    if number.is_bytes:
        return bytes_text(float(value))
    return count_text(int(value) if isinstance(value, int) else float(value))


def exact_text(value: Any, number: Number) -> str:
    """A value for hovers and lists: every digit."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value_text(value, number)
    if number.is_bytes:
        return bytes_exact(int(value))
    return f"{value:,}"


def number_figure(
    points: Sequence[Point], commits: Sequence[VersionTotals], number: Number, *, by_time: bool, mode: Mode = "light",
    zone: str | None = None,
) -> go.Figure:  # fmt: skip
    """The figure; `commits` are those whose operations are marked. Without times the versions are the axis."""
    by_time = by_time and all(point.at for point in points)
    shown = thinned(points)
    chart = go.Figure()
    chart.add_trace(_line(shown, number, mode, [_x(p.version, p.at, by_time, zone) for p in shown]))
    low, high = (points[0].version, points[-1].version) if points else (0, 0)
    inside = [c for c in commits if low <= c.version <= high and (c.committed_at or not by_time)]
    for trace in _glyphs(_fewer(inside), mode, by_time=by_time, zone=zone):
        chart.add_trace(trace)
    chart.update_layout(
        template=template_name(mode), height=380, title_text=finding(points, number), showlegend=True,
        legend={"y": -0.3, "yanchor": "top", "x": 0, "xanchor": "left"},
        xaxis={"title_text": f"Time ({zone or 'UTC'})" if by_time else "Version", "anchor": "y2"},
        yaxis={"title_text": number.axis, "domain": [0.14, 1]},
        yaxis2={"domain": [0, 0.1], "visible": False, "range": [0, 1], "fixedrange": True},
    )  # fmt: skip
    if points and not any(isinstance(p.value, date) for p in points):
        values = [_number(point.value) for point in shown]
        chart.update_layout(yaxis=count_axis(values) if number.from_zero else value_axis(values))
    if by_time:
        chart.update_layout(xaxis_range=time_range([wall_clock(p.at, zone) for p in points if p.at]))
    else:
        chart.update_layout(xaxis=version_axis(low, high))
    if number.is_bytes:
        chart.update_layout(yaxis={"ticksuffix": "B"})
    return chart


def thinned(points: Sequence[Point]) -> list[Point]:
    """At most `MOST_VALUES`: of each stretch the first, lowest and highest, and always the very last."""
    if len(points) <= MOST_VALUES:
        return list(points)
    stretch = -(-len(points) * 3 // (MOST_VALUES - 1))
    kept = {len(points) - 1}
    for start in range(0, len(points), stretch):
        known = {i: v for i in range(start, min(start + stretch, len(points)))
                 if (v := _number(points[i].value)) is not None}  # fmt: skip
        kept |= {start} | ({min(known, key=known.__getitem__), max(known, key=known.__getitem__)} if known else set())
    return [points[i] for i in sorted(kept)]


def notes(points: Sequence[Point], wanted: int, of: int) -> str:
    """What the figure does not show: versions not chosen, thinned, or without a value, and the first reason."""
    said = []
    if wanted < of:
        said.append(f"{wanted:,} of {things(of, 'version')} chosen, evenly spread.")
    if len(points) > MOST_VALUES:
        said.append(f"{things(len(points), 'version')} thinned to first, lowest and highest of each stretch.")
    lost = [point for point in points if point.problem]
    if lost:
        said.append(f"{things(len(lost), 'version')} without a value; v{lost[-1].version}: {lost[-1].problem}.")
    return " ".join(said)


def value_frame(points: Sequence[Point], number: Number) -> pd.DataFrame:
    """The values as a list, newest first, every digit."""
    newest = list(reversed(points))
    return pd.DataFrame(
        {
            "Version": [point.version for point in newest],
            "Value": [None if p.value is None else exact_text(p.value, number) for p in newest],
            "Why not": [point.problem for point in newest],
            "Committed at": [utc_text(point.at) for point in newest],
            "Operation": [point.operation for point in newest],
        }
    )


def _number(value: Any) -> float | None:
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        try:
            found = float(value)
        except OverflowError:
            return None
        return found if math.isfinite(found) else None
    return value.toordinal() if isinstance(value, date) else None


def _x(version: int, at: datetime | None, by_time: bool, zone: str | None) -> datetime | int:
    return wall_clock(at, zone) if by_time and at is not None else version


def _line(points: Sequence[Point], number: Number, mode: Mode, xs: Sequence[datetime | int]) -> go.Scatter:
    drawn = [p.value if isinstance(p.value, date) else _number(p.value) for p in points]
    return go.Scatter(
        x=xs,
        y=drawn,
        mode="lines+markers" if len(points) <= 60 else "lines",
        line={"shape": "hv", "width": 2, "color": categories(mode)[0]},
        marker={"size": 5},
        name=number.title,
        showlegend=False,
        connectgaps=False,
        customdata=[
            [p.version, p.operation or "not named", "–" if p.value is None else exact_text(p.value, number),
             utc_text(p.at)]
            for p in points
        ],
        hovertemplate="<b>v%{customdata[0]}</b> · %{customdata[1]}<br>%{customdata[2]}<br>%{customdata[3]}"
        "<extra></extra>",
    )  # fmt: skip


def _fewer(commits: Sequence[VersionTotals]) -> list[VersionTotals]:
    """All commits while there is room, else every rare operation and an even choice of the common ones."""
    if len(commits) <= MOST_GLYPHS:
        return list(commits)
    families: dict[str, list[VersionTotals]] = {}
    for commit in commits:
        families.setdefault(operation_family(commit.operation), []).append(commit)
    share = MOST_GLYPHS // len(families)
    return [c for group in families.values() for c in group[:: max(1, -(-len(group) // share))]]


def _glyphs(commits: Sequence[VersionTotals], mode: Mode, *, by_time: bool, zone: str | None) -> list[go.Scatter]:
    families: dict[str, list[VersionTotals]] = {}
    for commit in commits:
        families.setdefault(operation_family(commit.operation), []).append(commit)
    traces = []
    for family, group in families.items():
        style = operation_style(group[0].operation, mode)
        names = sorted({c.operation or "not named" for c in group})
        traces.append(
            go.Scatter(
                x=[_x(c.version, c.committed_at, by_time, zone) for c in group],
                y=[0.5] * len(group),
                yaxis="y2",
                mode="markers",
                marker={"symbol": style.symbol, "color": style.colour, "size": 10},
                name=f"{', '.join(names[:2])}{' …' if len(names) > 2 else ''}" if family != "other" else "other",
                customdata=[[c.version, c.operation or "not named", utc_text(c.committed_at)] for c in group],
                hovertemplate="<b>v%{customdata[0]}</b> · %{customdata[1]}<br>%{customdata[2]}<extra></extra>",
            )
        )
    return traces
