"""A number over versions as a figure: a line over versions or time, with the commits' operations along the bottom.

Rule: pure; a version without a value is a gap and is named; what was left out is said.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from app.ui.view.axes import count_axis, time_range, value_axis, version_axis, wall_clock
from app.ui.view.over_versions import (
    MOST_VALUES,
    glyphs,
    over_versions_figure,
    step_line,
    thinned,
    thinned_sentence,
)
from app.ui.view.theme import FIGURES_KEPT, Mode
from backend.format import UNKNOWN, bytes_exact, bytes_text, count_text, datetime_text, things, utc_text
from backend.lake.model import VersionTotals
from backend.sql.numbers import VersionValue


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


def value_points(values: Sequence[VersionValue[Any]], totals: Sequence[VersionTotals]) -> list[Point]:
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
        return datetime_text(value) if isinstance(value, datetime) else str(value)
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
    """The figure; `commits` are those whose operations are marked. Without times the versions are the axis.

    Built once: not to be changed.
    """
    return _number_figure(tuple(points), tuple(commits), number, by_time, mode, zone)


@lru_cache(FIGURES_KEPT)
def _number_figure(
    points: tuple[Point, ...], commits: tuple[VersionTotals, ...], number: Number, by_time: bool, mode: Mode,
    zone: str | None,
) -> go.Figure:  # fmt: skip
    by_time = by_time and all(point.at for point in points)

    def x_of(version: int, at: datetime | None) -> datetime | int:
        return wall_clock(at, zone) if by_time and at is not None else version

    shown = [points[index] for index in thinned([_number(point.value) for point in points])]
    xs, drawn = [x_of(p.version, p.at) for p in shown], [_drawn(point.value) for point in shown]
    chart = over_versions_figure(finding(points, number), mode=mode)
    chart.add_trace(step_line(xs, drawn, [_hover(point, number) for point in shown], name=number.title, mode=mode))
    low, high = (points[0].version, points[-1].version) if points else (0, 0)
    inside = [c for c in commits if low <= c.version <= high and (c.committed_at or not by_time)]
    chart.add_traces(glyphs(inside, lambda commit: x_of(commit.version, commit.committed_at), mode=mode))
    clock = f"Time ({zone or 'UTC'})" if by_time else "Version"
    chart.update_layout(xaxis_title_text=clock, yaxis_title_text=number.axis)
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


def _hover(point: Point, number: Number) -> list[object]:
    exact = UNKNOWN if point.value is None else exact_text(point.value, number)
    return [point.version, point.operation or "not named", exact, utc_text(point.at)]


def notes(points: Sequence[Point], wanted: int, of: int) -> str:
    """What the figure does not show: versions not chosen, thinned, or without a value, and the first reason."""
    said = []
    if wanted < of:
        said.append(f"{wanted:,} of {things(of, 'version')} chosen, evenly spread.")
    if len(points) > MOST_VALUES:
        said.append(thinned_sentence(things(len(points), "version")))
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


def _drawn(value: Any) -> Any:
    return value if isinstance(value, date) else _number(value)
