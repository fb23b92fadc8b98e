"""A query's rows in words and drawn: what is offered fits, and what is drawn are the rows."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import plotly.graph_objects as go
import pyarrow as pa
import pytest

from app.query import view
from backend.lake.model import CardColumn, TableCard, TableRef
from backend.query.statement import read_statement
from backend.query.tiles import TileRows, TileTable
from backend.sql.saved import Chart

DAYS = [date(2026, 3, 1), date(2026, 3, 2), date(2026, 3, 3)]
ROWS = pa.table({
    "day": [DAYS[1], DAYS[0], DAYS[0], DAYS[1]],
    "status": ["paid", "new", "paid", "new"],
    "amount": pa.array([Decimal("2.50"), Decimal("1.25"), None, Decimal("4.00")], pa.decimal128(10, 2)),
    "n": [1, 2, 3, 4],
})  # fmt: skip


def card(name: str, *columns: tuple[str, str]) -> TableCard:
    ref = TableRef(f"/lake/{name}", name, "/lake")
    return TableCard(ref, 1, 1, 1, 1, 0, None, None, columns=tuple(CardColumn(*each, None) for each in columns))


HOSTILE = ['we"ird', "</script>", "back\\slash", "it's", "ñandú", "two words", "x" * 200, "order"]


def test_an_editor_is_offered_every_table_as_it_is_quoted_and_columns_with_their_types() -> None:
    tables = [card("silver/orders", ("amount", "double"), *((name, "bigint") for name in HOSTILE))]
    names = ["silver/orders", *(f"gold/{name}" for name in HOSTILE)]
    offered = view.completions(tables, names, view.named(tables, ""))["tables"]
    for name in names:
        written = next(text for text in offered if text[1:-1].replace('""', '"') == name)
        (source,) = read_statement(f"SELECT 1 FROM {written}").sources
        assert source.parts == (name,)
    columns = dict(offered['"silver/orders"'])
    assert columns["amount"] == "double" and len(columns) == 1 + len(HOSTILE)
    for name, written in zip(["amount", *HOSTILE], columns, strict=True):
        (source,) = read_statement(f"SELECT {written} FROM t").sources
        assert source.columns is not None and name.lower() in source.columns
    assert dict(offered["weir.columns"])["data_type"] == "string"


def test_fields_of_structs_are_offered_and_nothing_inside_arrays_and_maps() -> None:
    struct = "struct<city:string,two words:struct<x.y:int>>"
    table = card(
        "t", ("to", struct), ("to.city", "string"), ("to.two words", "struct<x.y:int>"), ("to.two words.x.y", "int"),
        ("a.b", "int"), ("items", "array<struct<n:int>>"), ("items.element", "struct<n:int>"),
        ("items.element.n", "int"),
        ("at", "map<string,int>"), ("at.key", "string"), ("long", f"struct<{'x' * 99}:int>"),
    )  # fmt: skip
    columns = dict(view.completions([table], ["t"], view.named([table], ""))["tables"]['"t"'])
    assert list(columns) == [
        '"to"', '"to".city', '"to"."two words"', '"to"."two words"."x.y"', '"a.b"', "items", '"at"', "long",
    ]  # fmt: skip
    assert len(columns["long"]) == view.MOST_OF_TYPE


def test_of_a_large_lake_only_columns_of_named_tables_are_offered() -> None:
    wide = [(f"c{number}", "int") for number in range(view.MOST_COLUMNS // 2 + 1)]
    tables = [card("silver/orders", *wide), card("gold/sales", *wide)]
    assert view.named(tables[:1], "") == {"silver/orders"} and view.named(tables, "") == frozenset()
    names = view.named(tables, 'select * from "silver/ORDERS"')
    offered = view.completions(tables, ["silver/orders", "gold/sales"], names)["tables"]
    assert len(offered['"silver/orders"']) == len(wide) and offered['"gold/sales"'] == []


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


def draw(rows: pa.Table, chart: Chart, *, is_cut: bool = False, **look: str) -> go.Figure:
    return view.figure(rows, chart, is_cut=is_cut, **{"mode": "light", "zone": None} | look)


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
    assert "<b>" not in layout.title.text + layout.annotations[0].text and layout.annotations[0].text.startswith("nan")
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
