"""A query's rows in words, the names that an editor offers, and the rows drawn.

Rule: pure. A chart draws the rows as they are, adding up nothing but what stands upon each other: what is to be grouped
is grouped by the statement. Columns are offered where a chart can use them.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from itertools import islice
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.types as pt

from app.ui.lake import LakeReading
from app.ui.view.figures import FigureLook, value_axis, wall_clock
from app.ui.view.frames import NULL, cell_text, is_number
from app.ui.view.theme import Mode, categories, template_name
from app.ui.view.words import figure_safe
from backend.cells import cells
from backend.format import ago, cut, duration_text, figure_text, things
from backend.lake.model import TableCard
from backend.query.tiles import TileRows, TileState
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
MOST_COLUMNS = 30_000  # of a lake, those of a statement's tables first
MOST_OF_TYPE, MOST_OF_COMMENT = 40, 120  # characters
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


def example(reading: LakeReading) -> str:
    """A statement over a real table: of the topmost layer that is read, else any that is there."""
    cards = [table for table in reading.tables if isinstance(table, TableCard) and table.columns]
    if not cards:
        return f"SELECT * FROM {quoted_name(reading.names[0]) if reading.names else 'weir.tables'} LIMIT 100"
    card = min(cards, key=lambda card: ("gold silver bronze".find(card.ref.layer or "bronze"), card.ref.name))
    columns = islice((name for name, _, _ in _columns(card) if "." not in name), 4)
    return f"SELECT {', '.join(columns) or '*'} FROM {quoted_name(card.ref.name)} LIMIT 100"


def named(reading: LakeReading, text: str) -> frozenset[str]:
    """The tables that a statement names, of a lake of which not all columns are offered; else none."""
    cards = [table for table in reading.tables if isinstance(table, TableCard)]
    if sum(len(card.columns) for card in cards) <= MOST_COLUMNS:
        return frozenset()
    return frozenset(card.ref.name for card in cards if card.ref.name.rpartition("/")[2].lower() in text.lower())


def completions(reading: LakeReading, first: Collection[str]) -> dict[str, Any]:
    """What an editor offers, as a statement writes it: every table with [column, type, comment] as far as
    `MOST_COLUMNS` go, those of the tables `first` before others."""
    cards = [table for table in reading.tables if isinstance(table, TableCard)]
    cards.sort(key=lambda card: card.ref.name not in first)
    columns, left = dict[str, list[tuple[str, str, str]]](), MOST_COLUMNS
    for card in cards:
        columns[card.ref.name] = [*islice(_columns(card), left)]
        left -= len(columns[card.ref.name])
    of_lake = {
        f"weir.{name}": [(column, str(kind), "") for column, kind in of.items()] for name, of in LAKE_VIEWS.items()
    }
    return {
        "keywords": KEYWORDS,
        "types": TYPES,
        "functions": " ".join(sorted(name for name in FUNCTIONS if name.isidentifier())),
        "views": VIEW_COLUMNS,
        "tables": {quoted_name(name): columns.get(name, []) for name in reading.names} | of_lake,
    }


def _columns(card: TableCard) -> Iterator[tuple[str, str, str]]:
    """Columns and the fields of structs with types and comments; nothing that arrays and maps hold."""
    nesting = dict[str, tuple[str, str]]()  # a path → as it is written, and its type
    for path, kind, comment in card.columns:
        parents = (parent for parent in nesting if path.startswith(f"{parent}."))
        parent = max(parents, key=len, default="") if "." in path else ""
        name, (above, kind_above) = path[len(parent) + 1 if parent else 0 :], nesting.get(parent, ("", "struct"))
        if not kind_above.startswith("struct") or (path.startswith("`") and "." in path):
            continue
        written = f"{above}.{plain_name(name)}" if parent else plain_name(name)
        if kind.startswith(("struct", "array", "map")):
            nesting[path] = (written, kind)
        yield written, cut(kind, MOST_OF_TYPE), cut(comment or "", MOST_OF_COMMENT)


def narrowed(rows: pa.Table, words: str, by: str | None, *, is_descending: bool) -> pa.Table:
    """The rows of which some value holds each word, sorted by the exact values of a column; nulls come last."""
    if wanted := words.casefold().split():
        lines = zip(*(_texts(column) for column in rows.columns), strict=True)
        folded = ("\n".join(line).casefold() for line in lines)
        rows = rows.filter(pa.array([all(word in line for word in wanted) for line in folded], pa.bool_()))
    if by is None:
        return rows
    try:
        return rows.sort_by([(by, "descending" if is_descending else "ascending")])
    except pa.ArrowException:  # nested values have no order: their texts have
        keys = _texts(rows[by])
        return rows.take(sorted(range(len(keys)), key=keys.__getitem__, reverse=is_descending))


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


def has_time(rows: pa.Table, chart: Chart) -> bool:
    """Whether the chart runs along a time."""
    return chart.x in chart_columns(rows).times


def newest(rows: pa.Table, chart: Chart, span: timedelta | None) -> pa.Table:
    """The rows of the last `span` of the chart's time, up to its newest row; all where it has no time."""
    if span is None or not has_time(rows, chart):
        return rows
    times = cells(rows[chart.x])
    latest: Any = max((time for time in times if isinstance(time, date)), default=None)
    return rows.filter(pa.array([isinstance(time, date) and latest - time < span for time in times], pa.bool_()))


def refresh_text(states: Sequence[TileState], now: datetime) -> str:
    """ "Live · 4 tiles, last read 12 s ago · 1 failed"."""
    reading = sum(not (state.rows or state.problem) for state in states)
    last = max((state.rows.read_at for state in states if state.rows), default=None)
    failed = sum(state.problem is not None for state in states)
    parts = [f"{things(len(states), 'tile')}{f', last read {ago(last, now)}' if last else ''}"]
    parts += [f"reading {reading:,} …"] if reading else []
    return " · ".join(["Live", *parts, *([f"{failed:,} failed"] if failed else [])])


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


def default_title(chart: Chart) -> str:
    return f"{cut(chart.y)} by {cut(chart.x)}" if chart.x else cut(chart.y)


def figure(
    rows: pa.Table, chart: Chart, look: FigureLook, *, is_cut: bool, title: str = "", height: int = HEIGHT_PX
) -> go.Figure:
    """The rows as one figure; `title`: not the default one."""
    if chart.kind == "Figure":
        return _first_value(rows, chart.y, mode=look.mode, title=title, height=height)
    xs = [_x(value, look.zone) for value in cells(rows[chart.x])]
    ys = [_number(value) for value in cells(rows[chart.y])]
    exact = [cell_text(value) or NULL for value in cells(rows[chart.y])]
    groups = _texts(rows[chart.colour]) if chart.colour else [""] * len(xs)
    points: dict[str, list[tuple[Any, float | None, str]]] = {}
    for group, *point in zip(groups, xs, ys, exact, strict=True):
        points.setdefault(group, []).append((point[0], point[1], point[2]))
    palette = categories(look.mode)
    title = (title or default_title(chart)) + (f", the first {len(xs):,} rows" if is_cut else "")
    drawn = go.Figure([
        _trace(chart, name, group, palette[number % len(palette)], len(points))
        for number, (name, group) in enumerate(points.items())
    ])  # fmt: skip
    from_zero = {"rangemode": "tozero"} if chart.kind in ("Bar", "Area") else {}
    return drawn.update_layout(
        template=template_name(look.mode),
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
    if chart.kind in ("Line", "Area"):  # they run from left to right; a point without a place has none on them
        points = sorted((point for point in points if point[0] is not None), key=lambda point: point[0]) or points[:1]
    xs, ys, exact = map(list, zip(*points, strict=True))
    head = f"{figure_safe(cut(name))}<br>" if chart.colour else ""
    shared: Mapping[str, Any] = {
        "x": xs, "y": ys, "name": figure_safe(cut(name)), "customdata": list(map(figure_safe, exact)),
        "hovertemplate": f"{head}%{{x}}<br>%{{customdata}}<extra></extra>",
    }  # fmt: skip
    if chart.kind == "Bar":
        return go.Bar(**shared, marker_color=colour)
    lines = "markers" if chart.kind == "Scatter" else "lines+markers" if len(points) <= MARKED else "lines"
    area = {} if chart.kind != "Area" else {"stackgroup": "one"} if num_groups > 1 else {"fill": "tozeroy"}
    return go.Scatter(**shared, **area, mode=lines, line={"color": colour, "width": 2}, marker={"color": colour})


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
