"""A query's rows in words, the names that an editor offers, and the rows drawn.

Rule: pure. A chart draws the rows as they are, adding up nothing but what stands upon each other: what is to be grouped
is grouped by the statement. Columns are offered where a chart can use them.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import islice
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.types as pt

from app.ui.view.figures import value_axis, wall_clock
from app.ui.view.frames import NULL, cell_text, is_number
from app.ui.view.theme import Mode, categories, template_name
from app.ui.view.words import figure_safe
from backend.cells import cells
from backend.format import ago, cut, duration_text, figure_text, things
from backend.lake.model import TableCard
from backend.query.tiles import TileRows
from backend.query.views import LAKE_VIEWS, VIEW_COLUMNS
from backend.sql.expression import FUNCTIONS
from backend.sql.saved import KINDS, WIDEST, Chart, Kind, Tile
from backend.sql.values import plain_name, quoted_name

KEYWORDS = (
    "select distinct from where group by having qualify order asc desc nulls first last limit offset with as on using "
    "join left right full outer inner cross natural semi anti asof union intersect except all case when then else end "
    "and or not in is null true false like ilike between exists any filter over partition rows range unbounded "
    "preceding following current row cast try_cast interval exclude version timestamp of values"
)
TYPES = "bigint boolean date decimal double float integer smallint timestamp timestamptz varchar"
MOST_COLUMNS = 30_000  # of a lake, offered before a statement names their tables
MOST_OF_TYPE = 40  # characters
MOST_COLOURS = 8
ONE_COLOUR = "One colour"
MOST_NAMED = 3  # tables of a tile
MARKED = 60  # points with a mark of their own
HEIGHT_PX = 400
FIGURE_PX = 56
FIGURE_WIDE_PX = 500  # of all digits, each half as wide as high: the narrowest tile holds them
UNIT_PX = 20
MOST_OF_UNIT = 16  # characters


@dataclass(frozen=True, slots=True)
class Result:
    """The first rows of a statement at the versions that `pins` names; `is_cut` where there are more. `by`: the host
    that computed and kept them, "" for a process of this machine."""

    text: str
    pins: str
    read: str
    rows: pa.Table
    is_cut: bool
    duration_s: float
    by: str = ""


def result_sentence(result: Result) -> str:
    """ "1,000 rows of at least 1,001 from silver/orders v118, in 0.4 s." """
    num_rows = result.rows.num_rows
    rows = f"{num_rows:,} of at least {num_rows + 1:,} rows" if result.is_cut else things(num_rows, "row")
    by = f", by {result.by}" if result.by else ""
    return f"{rows}{result.read}, in {duration_text(result.duration_s)}{by}."


def named(tables: Iterable[object], text: str) -> frozenset[str]:
    """The tables whose columns are offered: all of a lake of `MOST_COLUMNS`, of a larger one those in the statement."""
    cards = [table for table in tables if isinstance(table, TableCard)]
    is_small = sum(len(card.columns) for card in cards) <= MOST_COLUMNS
    return frozenset(c.ref.name for c in cards if is_small or c.ref.name.rpartition("/")[2].lower() in text.lower())


def completions(tables: Iterable[object], names: Iterable[str], with_columns: frozenset[str]) -> dict[str, Any]:
    """What an editor offers, as a statement writes it: every table of `names` with [column, type] of those read."""
    shown = (table for table in tables if isinstance(table, TableCard) and table.ref.name in with_columns)
    columns = {table.ref.name: [*islice(_columns(table), MOST_COLUMNS)] for table in shown}
    of_lake = {f"weir.{name}": [(column, str(kind)) for column, kind in of.items()] for name, of in LAKE_VIEWS.items()}
    return {
        "keywords": KEYWORDS,
        "types": TYPES,
        "functions": " ".join(sorted(name for name in FUNCTIONS if name.isidentifier())),
        "views": VIEW_COLUMNS,
        "tables": {quoted_name(name): columns.get(name, []) for name in names} | of_lake,
    }


def _columns(card: TableCard) -> Iterator[tuple[str, str]]:
    """Columns and the fields of structs with their types; nothing that arrays and maps hold."""
    nesting = dict[str, tuple[str, str]]()  # a path → as it is written, and its type
    for path, kind, _ in card.columns:
        parents = (parent for parent in nesting if path.startswith(f"{parent}."))
        parent = max(parents, key=len, default="") if "." in path else ""
        name, (above, kind_above) = path[len(parent) + 1 if parent else 0 :], nesting.get(parent, ("", "struct"))
        if not kind_above.startswith("struct") or (path.startswith("`") and "." in path):
            continue
        written = f"{above}.{plain_name(name)}" if parent else plain_name(name)
        if kind.startswith(("struct", "array", "map")):
            nesting[path] = (written, kind)
        yield written, cut(kind, MOST_OF_TYPE)


# tiles ----------------------------------------------------------------------------------------------------------------


def arranged(links: Sequence[str], every: Mapping[str, Tile]) -> tuple[list[Tile], list[str]]:
    """The tiles that a link names, each once ("gold/Revenue:2" is two columns wide), and the names of none."""
    shown, missing = dict[str, Tile](), list[str]()
    for link in links:
        name, _, width = link.rpartition(":")
        if name in every and width in map(str, range(1, WIDEST + 1)):
            shown[name] = replace(every[name], width=int(width))
        elif link in every:
            shown[link] = every[link]
        else:
            missing.append(link)
    return list(shown.values()), missing


def freshness(rows: TileRows, now: datetime) -> str:
    """ "gold_orders v91, 12 s ago": what a tile shows, and since when that is so."""
    texts = []
    for table, version, committed_at in rows.seen:
        name, at = (table, None) if version is None else (f"{table.rpartition('/')[2]} v{version}", committed_at)
        at = rows.read_at if table.startswith("weir.") else at
        texts.append(f"{name}, {ago(at, now)}" if at else name)
    more = len(texts) - MOST_NAMED
    return " · ".join([*texts[:MOST_NAMED], *([f"and {things(more, 'table')} more"] if more > 0 else [])])


# charts ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChartColumns:
    """Columns by what a chart can do with them."""

    times: tuple[str, ...]
    texts: tuple[str, ...]
    numbers: tuple[str, ...]
    is_one_row: bool = False

    def xs(self, kind: str) -> list[str]:
        """What can run along the bottom; one column of numbers has to be left for the height. Nothing of a figure."""
        if kind == "Figure":
            return [""] if self.is_one_row else []
        numbers = self.numbers if len(self.numbers) > 1 else ()
        if kind == "Bar":
            return [*self.texts, *self.times, *numbers]
        return [*self.times, *numbers, *(() if kind == "Scatter" else self.texts)]

    def kinds(self) -> list[Kind]:
        """The kinds of chart that there can be, the most fitting first."""
        first = "Figure" if self.is_one_row else "Line" if self.times else "Bar" if self.texts else "Scatter"
        return sorted((kind for kind in KINDS if self.numbers and self.xs(kind)), key=lambda kind: kind != first)

    def ys(self, x: str) -> list[str]:
        return [name for name in self.numbers if name != x]


def chart_columns(rows: pa.Table) -> ChartColumns:
    """`rows` have each name once."""
    kinds = {field.name: field.type.value_type if pt.is_dictionary(field.type) else field.type for field in rows.schema}
    times = tuple(name for name, kind in kinds.items() if pt.is_timestamp(kind) or pt.is_date(kind))
    is_text = (pt.is_string, pt.is_large_string, pt.is_string_view, pt.is_boolean)
    texts = tuple(name for name, kind in kinds.items() if any(test(kind) for test in is_text))
    numbers = tuple(name for name, kind in kinds.items() if is_number(kind))
    return ChartColumns(times, texts, numbers, is_one_row=rows.num_rows == 1)


def misfit(rows: pa.Table, chart: Chart) -> str:
    """Why a chart cannot be drawn of these rows; "" where it can."""
    columns = chart_columns(rows)
    along = (chart.x,) if chart.kind == "Figure" else (*columns.times, *columns.texts, *columns.numbers)
    for name, options in ((chart.x, along), (chart.y, columns.numbers)):
        if name not in options:
            return f"The chart needs the column {name}, and rows have {', '.join(options) or 'none'} to choose from."
    return f"There is no column {chart.colour}." if chart.colour and chart.colour not in rows.column_names else ""


def colours(rows: pa.Table, columns: ChartColumns, x: str) -> list[str]:
    """Columns that tell a few lines or groups apart; first where the same x comes again."""
    few = [name for name in columns.texts if name != x and 1 < len(set(_texts(rows[name]))) <= MOST_COLOURS]
    return few if len(set(map(str, cells(rows[x])))) < rows.num_rows else []


def figure(
    rows: pa.Table,
    chart: Chart,
    *,
    is_cut: bool,
    mode: Mode,
    zone: str | None,
    title: str = "",
    height: int = HEIGHT_PX,
) -> go.Figure:
    """The rows as one figure; `zone`: of the viewer, whose clock moments stand on; `title`: not what it shows."""
    if chart.kind == "Figure":
        return _first_value(rows, chart.y, mode=mode, title=title, height=height)
    xs = [_x(value, zone) for value in cells(rows[chart.x])]
    ys = [_number(value) for value in cells(rows[chart.y])]
    exact = [cell_text(value) or NULL for value in cells(rows[chart.y])]
    groups = _texts(rows[chart.colour]) if chart.colour else [""] * len(xs)
    points: dict[str, list[tuple[Any, float | None, str]]] = {}
    for group, *point in zip(groups, xs, ys, exact, strict=True):
        points.setdefault(group, []).append((point[0], point[1], point[2]))
    palette = categories(mode)
    title = (title or f"{cut(chart.y)} by {cut(chart.x)}") + (f", the first {len(xs):,} rows" if is_cut else "")
    drawn = go.Figure([
        _trace(chart, name, _ordered(chart.kind, group), palette[number % len(palette)], len(points))
        for number, (name, group) in enumerate(points.items())
    ])  # fmt: skip
    from_zero = {"rangemode": "tozero"} if chart.kind in ("Bar", "Area") else {}
    return drawn.update_layout(
        template=template_name(mode),
        height=height,
        title_text=figure_safe(title),
        showlegend=chart.colour is not None,
        legend={"y": -0.25, "yanchor": "top", "x": 0, "xanchor": "left"},
        barmode="relative",
        xaxis={
            "title_text": figure_safe(cut(chart.x)),
            **({"type": "category"} if chart.x in chart_columns(rows).texts else {}),
        },
        yaxis={"title_text": figure_safe(cut(chart.y)), **value_axis(ys), **from_zero},
    )


def _first_value(rows: pa.Table, name: str, *, mode: Mode, title: str, height: int) -> go.Figure:
    """One number, as large as can be read from afar; the only text of its row stands beside it, as a unit does."""
    value = cells(rows[name].slice(0, 1))[0]
    rest = f", the first of {rows.num_rows:,} rows" if rows.num_rows > 1 else ""
    texts, number = chart_columns(rows).texts, figure_text(value)
    unit = cells(rows[texts[0]].slice(0, 1))[0] if len(texts) == 1 else None
    unit = f" {cut(unit, MOST_OF_UNIT)}" if isinstance(unit, str) and unit.strip() else ""
    beside = unit and f'<span style="font-size:{UNIT_PX}px">{figure_safe(unit)}</span>'
    size = min(FIGURE_PX, FIGURE_WIDE_PX // (len(number) + len(unit) // 2))
    large = {"text": figure_safe(number) + beside, "font": {"size": size}, "showarrow": False}
    return go.Figure().update_layout(
        template=template_name(mode),
        height=height,
        title_text=figure_safe((title or cut(name)) + rest),
        annotations=[{**large, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}],
        xaxis={"visible": False},
        yaxis={"visible": False},
    )


def _trace(
    chart: Chart, name: str, points: Sequence[tuple[Any, float | None, str]], colour: str, num_groups: int
) -> go.Bar | go.Scatter:
    xs, ys, exact = map(list, zip(*points, strict=True))
    head = f"{figure_safe(cut(name))}<br>" if chart.colour else ""
    said: Mapping[str, Any] = {
        "x": xs, "y": ys, "name": figure_safe(cut(name)), "customdata": list(map(figure_safe, exact)),
        "hovertemplate": f"{head}%{{x}}<br>%{{customdata}}<extra></extra>",
    }  # fmt: skip
    if chart.kind == "Bar":
        return go.Bar(**said, marker_color=colour)
    lines = "markers" if chart.kind == "Scatter" else "lines+markers" if len(points) <= MARKED else "lines"
    area = {} if chart.kind != "Area" else {"stackgroup": "one"} if num_groups > 1 else {"fill": "tozeroy"}
    return go.Scatter(**said, **area, mode=lines, line={"color": colour, "width": 2}, marker={"color": colour})


def _ordered(kind: str, points: list[tuple[Any, float | None, str]]) -> list[tuple[Any, float | None, str]]:
    """Lines run from left to right; a point without a place has none on them."""
    if kind not in ("Line", "Area"):
        return points
    known = [point for point in points if point[0] is not None]
    return sorted(known, key=lambda point: point[0]) or points[:1]


def _x(value: Any, zone: str | None) -> Any:
    if isinstance(value, datetime):
        return wall_clock(value, zone) if value.tzinfo else value
    if value is None or isinstance(value, date):
        return value
    return figure_safe(cut(str(value))) if isinstance(value, str | bool) else _number(value)


def _number(value: Any) -> float | None:
    number = None if value is None else float(value)
    return number if number is not None and math.isfinite(number) else None


def _texts(column: pa.ChunkedArray) -> list[str]:
    return [NULL if (text := cell_text(value)) is None else text for value in cells(column)]
