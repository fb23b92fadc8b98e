"""A query's rows in words and drawn: what is offered fits, and what is drawn are the rows."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import plotly.graph_objects as go
import pyarrow as pa
import pytest

from app.query import view
from app.ui.lake import LakeReading
from app.ui.view.figures import FigureLook
from backend.errors import QueryError
from backend.lake.model import CardColumn, TableCard, TableRef
from backend.query.statement import read_statement
from backend.query.tiles import TileRows, TileState, TileTable
from backend.sql.saved import Chart

DAYS = [date(2026, 3, 1), date(2026, 3, 2), date(2026, 3, 3)]
ROWS = pa.table({
    "day": [DAYS[1], DAYS[0], DAYS[0], DAYS[1]],
    "status": ["paid", "new", "paid", "new"],
    "amount": pa.array([Decimal("2.50"), Decimal("1.25"), None, Decimal("4.00")], pa.decimal128(10, 2)),
    "n": [1, 2, 3, 4],
})  # fmt: skip


def card(name: str, *columns: tuple[str, str]) -> TableCard:
    ref = TableRef(f"/lake/{name}", name, "/lake", name.rpartition("/")[0])
    return TableCard(ref, 1, 1, 1, 1, 0, None, None, columns=tuple(CardColumn(*each, None) for each in columns))


def offered(cards: list[TableCard], text: str = "", names: tuple[str, ...] = ()) -> dict[str, list[tuple[str, ...]]]:
    """What an editor offers of each table, as a statement writes it."""
    reading = LakeReading(tuple(cards), datetime(2026, 3, 1, tzinfo=UTC), (*(each.ref.name for each in cards), *names))
    tables: dict[str, list[tuple[str, ...]]] = view.completions(reading, view.named(reading, text))["tables"]
    return tables


HOSTILE = ['we"ird', "</script>", "back\\slash", "it's", "ñandú", "two words", "x" * 200, "order"]


def test_an_editor_is_offered_every_table_as_it_is_quoted_and_columns_with_their_types() -> None:
    tables = [card("silver/orders", ("amount", "double"), *((name, "bigint") for name in HOSTILE))]
    names = tuple(f"gold/{name}" for name in HOSTILE)
    written_tables = offered(tables, names=names)
    for name in ("silver/orders", *names):
        written = next(text for text in written_tables if text[1:-1].replace('""', '"') == name)
        (source,) = read_statement(f"SELECT 1 FROM {written}").sources
        assert source.parts == (name,)
    columns = {column: kind for column, kind, _ in written_tables['"silver/orders"']}
    assert columns["amount"] == "double" and len(columns) == 1 + len(HOSTILE)
    for name, written in zip(["amount", *HOSTILE], columns, strict=True):
        (source,) = read_statement(f"SELECT {written} FROM t").sources
        assert source.columns is not None and name.lower() in source.columns
    assert ("data_type", "string", "") in written_tables["weir.columns"]


def test_fields_of_structs_are_offered_and_nothing_inside_arrays_and_maps() -> None:
    struct = "struct<city:string,two words:struct<x.y:int>>"
    table = card(
        "t", ("to", struct), ("to.city", "string"), ("to.two words", "struct<x.y:int>"), ("to.two words.x.y", "int"),
        ("a.b", "int"), ("items", "array<struct<n:int>>"), ("items.element", "struct<n:int>"),
        ("items.element.n", "int"),
        ("at", "map<string,int>"), ("at.key", "string"), ("long", f"struct<{'x' * 99}:int>"),
    )  # fmt: skip
    columns = {column: kind for column, kind, _ in offered([table])['"t"']}
    assert list(columns) == [
        '"to"', '"to".city', '"to"."two words"', '"to"."two words"."x.y"', '"a.b"', "items", '"at"', "long",
    ]  # fmt: skip
    assert len(columns["long"]) == view.MOST_OF_TYPE


def test_of_a_large_lake_the_columns_of_the_statement_s_tables_come_first() -> None:
    wide = [(f"c{number}", "int") for number in range(view.MOST_COLUMNS // 2 + 1)]
    tables = [card("silver/orders", *wide), card("gold/sales", *wide)]
    left = view.MOST_COLUMNS - len(wide)
    for text, first, second in (
        ("", "silver/orders", "gold/sales"),
        ("from gold.SALES", "gold/sales", "silver/orders"),
    ):
        by_table = offered(tables, text)
        assert (len(by_table[f'"{first}"']), len(by_table[f'"{second}"'])) == (len(wide), left)


def test_the_example_reads_a_real_table_and_says_its_columns() -> None:
    tables = [card("silver/orders", ("a.b", "int"), ("amount", "double")), card("bronze/raw", ("x", "int"))]
    reading = LakeReading(tuple(tables), datetime(2026, 3, 1, tzinfo=UTC), ("bronze/raw", "silver/orders"))
    assert view.example(reading) == 'SELECT amount FROM "silver/orders" LIMIT 100'
    assert 'FROM "bronze/raw"' in view.example(replace(reading, tables=()))


def test_rows_are_filtered_by_their_texts_and_sorted_by_their_values() -> None:
    def amounts(words: str = "", by: str | None = None, *, is_descending: bool = False) -> list[str]:
        rows = view.narrowed(ROWS, words, by, is_descending=is_descending)
        return [str(value) for value in rows["amount"].to_pylist()]

    assert amounts("PAID") == ["2.50", "None"] and amounts("new 4") == ["4.00"] and amounts("nowhere") == []
    assert amounts(by="amount") == ["1.25", "2.50", "4.00", "None"]
    assert amounts(by="amount", is_descending=True) == ["4.00", "2.50", "1.25", "None"]
    nested = pa.table({"s": [{"a": 2}, {"a": 1}]})
    assert view.narrowed(nested, "", "s", is_descending=False)["s"].to_pylist() == [{"a": 1}, {"a": 2}]


def test_what_fits_is_offered_the_most_fitting_first() -> None:
    fit = view.chart_columns(ROWS)
    assert fit == view.ChartColumns(("day",), ("status",), ("amount", "n"))
    assert fit.kinds() == ["Line", "Bar", "Area", "Scatter"] and fit.xs("Line")[0] == "day"
    assert fit.xs("Bar")[0] == "status" and "status" not in fit.xs("Scatter") and fit.ys("n") == ["amount"]
    assert view.chart_columns(ROWS.select(["status", "n"])).kinds()[0] == "Bar"
    assert view.chart_columns(ROWS.select(["status", "n"])).xs("Bar") == ["status"], "the only numbers are the height"
    assert (
        view.chart_columns(ROWS.select(["n"])).kinds() == []
        and view.chart_columns(ROWS.select(["status", "day"])).kinds() == []
    )


def draw(rows: pa.Table, chart: Chart, *, is_cut: bool = False, title: str = "", zone: str | None = None) -> go.Figure:
    return view.figure(rows, chart, FigureLook("light", zone), is_cut=is_cut, title=title)


def test_a_figure_is_the_number_of_one_row() -> None:
    one = pa.table({"what": ["revenue"], "total": [Decimal("1234567.50")]})
    fit, chart = view.chart_columns(one), Chart("Figure", y="total")
    assert fit.kinds()[0] == "Figure" and fit.ys("") == ["total"] and "Figure" not in view.chart_columns(ROWS).kinds()
    layout = draw(one, chart).layout
    beside = '<span style="font-size:20px"> revenue</span>'
    assert (layout.title.text, layout.annotations[0].text) == ("total", f"1,234,567.5{beside}")
    assert view.misfit(one, chart) == ""
    assert "the column n, and rows have total" in view.misfit(one, Chart("Figure", y="n"))
    layout = draw(pa.table({"n": pa.array([None, 2], pa.int64())}), Chart("Figure", y="n"), title="Orders").layout
    assert (layout.title.text, layout.annotations[0].text) == ("Orders, the first of 2 rows", "–")
    layout = draw(pa.table({"<b>n": [float("nan")], "unit": ["<b>EUR"]}), Chart("Figure", y="<b>n")).layout
    assert "<b>" not in layout.title.text + layout.annotations[0].text and layout.annotations[0].text.startswith("NaN")
    with pytest.raises(ValueError, match="a Bar needs x and y"):
        Chart("Bar", y="")


def test_colours_tell_lines_apart_only_where_the_same_x_comes_again() -> None:
    fit = view.chart_columns(ROWS)
    assert view.colours(ROWS, fit, "day") == ["status"] and view.colours(ROWS, fit, "n") == []
    many = pa.table({"x": [1] * 9, "name": list("abcdefghi"), "n": list(range(9))})
    assert view.colours(many, view.chart_columns(many), "x") == []


def test_how_fresh_a_tile_is_says_what_it_read_and_since_when_that_is_so() -> None:
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def fresh(*seen: TileTable) -> str:
        return view.freshness(TileRows(ROWS, False, (), seen, now - timedelta(seconds=3)), now)

    orders = TileTable("gold/gold_orders", 91, now - timedelta(seconds=12))
    assert fresh(orders) == "gold_orders v91, 12 s ago"
    assert fresh(orders, TileTable("weir.tables", None, None)) == "gold_orders v91, 12 s ago · weir.tables, 3 s ago"
    assert fresh(TileTable("orders$changes(1, 3)", None, None)) == "orders$changes(1, 3)"
    many = fresh(*(TileTable(f"t{number}", 1, now - timedelta(hours=2)) for number in range(5)))
    assert many == "t0 v1, 2 h ago · t1 v1, 2 h ago · t2 v1, 2 h ago · and 2 tables more"
    assert fresh() == ""


def test_a_time_range_keeps_the_newest_rows_and_a_chart_without_time_whole() -> None:
    by_day = Chart("Bar", "day", "n")
    assert view.newest(ROWS, by_day, timedelta(hours=24))["n"].to_pylist() == [1, 4]
    assert view.newest(ROWS, by_day, timedelta(days=2)) == view.newest(ROWS, by_day, None) == ROWS
    assert view.newest(ROWS, Chart("Bar", "status", "n"), timedelta(hours=1)) == ROWS and not view.has_time(
        ROWS, Chart("Bar", "status", "n")
    )


def test_the_state_of_a_dashboard_counts_what_is_read_and_what_failed() -> None:
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    read = TileState(TileRows(ROWS, False, (), (), now - timedelta(seconds=12)))
    states = [read, TileState(problem=QueryError("no table")), TileState()]
    assert view.refresh_text(states, now) == "Live · 3 tiles, last read 12 s ago · reading 1 … · 1 failed"
    assert view.refresh_text(states[2:], now) == "Live · 1 tile · reading 1 …"


def test_a_line_runs_by_x_a_null_is_a_gap_and_bars_are_the_rows_from_zero() -> None:
    figure = draw(ROWS, Chart("Line", "day", "amount", "status"), is_cut=True)
    lines = {trace.name: (list(trace.x), list(trace.y)) for trace in figure.data}
    assert lines == {"paid": ([DAYS[0], DAYS[1]], [None, 2.5]), "new": ([DAYS[0], DAYS[1]], [1.25, 4.0])}
    assert figure.layout.title.text == "amount by day, the first 4 rows"
    assert list(figure.data[0].customdata) == ["NULL", "2.50"], "a hover has the exact value"
    figure = draw(ROWS, Chart("Bar", "status", "n"))
    (bars,) = figure.data
    assert (bars.type, list(bars.x), list(bars.y)) == ("bar", ["paid", "new", "paid", "new"], [1, 2, 3, 4])
    assert figure.layout.yaxis.rangemode == "tozero" and figure.layout.xaxis.type == "category"


@pytest.mark.parametrize("kind", [kind for kind in view.KINDS if kind != "Figure"])
def test_every_kind_draws_odd_rows(kind: str) -> None:
    odd = pa.table({
        "at": pa.array([datetime(2026, 3, 1, 12, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "<b>n</b>": [float("nan"), float("inf")],
        "m": [1, 2],
    })  # fmt: skip
    figure = draw(odd, Chart(kind, "at", "<b>n</b>"), zone="Asia/Tokyo")
    assert list(figure.data[0].y)[:1] == [None] and "<b>" not in figure.layout.title.text
    assert figure.data[0].x[0] == datetime(2026, 3, 1, 21) and "at" in view.chart_columns(odd).xs(kind)
