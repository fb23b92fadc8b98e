"""A query's rows in words and drawn: what is offered fits, and what is drawn are the rows."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from app.query import view
from backend.lake.model import CardColumn, TableCard, TableRef
from backend.query.dashboards import Tile
from backend.query.tiles import TableSeen, TileRows
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


def test_how_many_rows_there_are_is_said_honestly() -> None:
    whole = view.Result("SELECT 1", "", " from a v3", ROWS, is_cut=False, duration_s=0.4)
    assert view.result_sentence(whole) == "4 rows from a v3, in 400 ms."
    cut = view.Result("SELECT 1", "", " from a v3", ROWS, is_cut=True, duration_s=0.4)
    assert view.result_sentence(cut).startswith("4 of at least 5 rows from a v3")


def test_names_are_those_of_every_table_and_the_columns_of_named_ones() -> None:
    tables = [card("silver/orders", ("amount", "double")), card("gold/sales", ('od"d', "long"))]
    names = view.names(tables, "select * from ORDERS")
    assert names["amount · double · silver/orders"] == '"amount"'
    assert names["gold/sales"] == '"gold/sales"' and names["silver/orders$files"] == '"silver/orders$files"'
    assert names["weir.tables"] == "weir.tables" and not [label for label in names if "od" in label and "·" in label]
    odd = view.names(tables, "sales")
    assert odd['od"d · long · gold/sales'] == '"od""d"'


def test_a_name_goes_to_the_end_and_a_table_alone_is_a_statement() -> None:
    assert view.with_name("SELECT ", "amount · double · t", '"amount"') == 'SELECT "amount"'
    assert view.with_name("", "silver/orders", '"silver/orders"') == 'SELECT * FROM "silver/orders"'


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


def test_colours_tell_lines_apart_only_where_the_same_x_comes_again() -> None:
    fit = view.chart_columns(ROWS)
    assert view.colours(ROWS, fit, "day") == ["status"] and view.colours(ROWS, fit, "n") == []
    many = pa.table({"x": [1] * 9, "name": list("abcdefghi"), "n": list(range(9))})
    assert view.colours(many, view.chart_columns(many), "x") == []


def test_a_line_runs_by_x_and_a_null_is_a_gap() -> None:
    figure = view.figure(ROWS, view.Chart("Line", "day", "amount", "status"), is_cut=True, mode="light", zone=None)
    lines = {trace.name: (list(trace.x), list(trace.y)) for trace in figure.data}
    assert lines == {"paid": ([DAYS[0], DAYS[1]], [None, 2.5]), "new": ([DAYS[0], DAYS[1]], [1.25, 4.0])}
    assert figure.layout.title.text == "amount by day, the first 4 rows"
    assert list(figure.data[0].customdata) == ["NULL", "2.50"], "a hover has the exact value"


def test_bars_are_the_rows_as_they_are_from_zero() -> None:
    figure = view.figure(ROWS, view.Chart("Bar", "status", "n"), is_cut=False, mode="dark", zone=None)
    (bars,) = figure.data
    assert (bars.type, list(bars.x), list(bars.y)) == ("bar", ["paid", "new", "paid", "new"], [1, 2, 3, 4])
    assert figure.layout.yaxis.rangemode == "tozero" and figure.layout.xaxis.type == "category"
    assert figure.layout.title.text == "n by status"


@pytest.mark.parametrize("kind", view.KINDS)
def test_every_kind_draws_odd_rows(kind: str) -> None:
    odd = pa.table({
        "at": pa.array([datetime(2026, 3, 1, 12, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "<b>n</b>": [float("nan"), float("inf")],
        "m": [1, 2],
    })  # fmt: skip
    fit = view.chart_columns(odd)
    figure = view.figure(odd, view.Chart(kind, "at", "<b>n</b>"), is_cut=False, mode="light", zone="Asia/Tokyo")
    assert list(figure.data[0].y)[:1] == [None] and "<b>" not in figure.layout.title.text
    assert figure.data[0].x[0] == datetime(2026, 3, 1, 21) and "at" in fit.xs(kind)


def test_a_link_chooses_orders_and_sizes_tiles() -> None:
    chart = Chart("Bar", "a", "b")
    some = (Tile(title, "SELECT 1", chart, board="gold") for title in ("Revenue: all", "Orders"))
    every = {tile.name: tile for tile in (*some, Tile("Totals", "SELECT 1", chart))}
    links = ["Totals:3", "gold/Revenue: all", "gold/Orders:9", "gone:2", "Totals:2"]
    shown, missing = view.arranged(links, every)
    assert [(tile.name, tile.width) for tile in shown] == [("Totals", 2), ("gold/Revenue: all", 1)]
    assert missing == ["gold/Orders:9", "gone:2"]
    assert view.arranged(view.tile_links(shown), every) == (shown, [])


def test_how_fresh_a_tile_is_says_what_it_read_and_since_when_that_is_so() -> None:
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def fresh(*seen: TableSeen) -> str:
        return view.freshness(TileRows(ROWS, False, (), seen, now - timedelta(seconds=3)), now)

    orders = TableSeen("gold/gold_orders", 91, now - timedelta(seconds=12))
    assert fresh(orders) == "gold_orders v91, 12 s ago"
    assert fresh(orders, TableSeen("weir.tables", None, None)) == "gold_orders v91, 12 s ago · weir.tables, 3 s ago"
    assert fresh(TableSeen("orders$changes(1, 3)", None, None)) == "orders$changes(1, 3)"
    many = fresh(*(TableSeen(f"t{number}", 1, now - timedelta(hours=2)) for number in range(5)))
    assert many == "t0 v1, 2 h ago · t1 v1, 2 h ago · t2 v1, 2 h ago · and 2 tables more"
    assert fresh() == ""


def test_a_chart_that_rows_do_not_fit_says_why() -> None:
    assert view.misfit(ROWS, Chart("Bar", "status", "amount", "day")) == ""
    assert "the column total, and rows have amount, n" in view.misfit(ROWS, Chart("Bar", "status", "total"))
    assert "the column status, and rows have amount, n" in view.misfit(ROWS, Chart("Bar", "day", "status"))
    assert view.misfit(ROWS, Chart("Bar", "day", "n", "shop")) == "There is no column shop."
    assert "have none to choose from" in view.misfit(ROWS.select(["status"]), Chart("Bar", "status", "n"))
