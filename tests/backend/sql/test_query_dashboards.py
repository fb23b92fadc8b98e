"""Dashboards are files: what they say, what is wrong with one, and what is arranged on the page as a file again."""

import re
import tomllib
from pathlib import Path

import pytest

from backend.query.dashboards import Dashboard, Tile, read_dashboards, tiles, toml_text
from backend.query.statement import read_statement
from backend.settings import load_settings
from backend.sql.saved import Chart, SavedQuery
from tests.worlds.store.values import NOW

ROOT = Path(__file__).parents[3]
DEMO = ROOT / "pipelines" / "demo" / "dashboards"
SALES = """
title = "Sales of the day"
[[tile]]
title = "Orders / hour"
sql = "SELECT hour, n FROM orders"
chart = { kind = "Line", x = "hour", y = "n", colour = "shop" }
width = 2
[[tile]]
title = "By status"
sql = "SELECT 1"
chart = { kind = "Bar", x = "status", y = "n" }
"""


def test_a_file_is_a_dashboard_with_its_tiles_in_order(tmp_path: Path) -> None:
    (tmp_path / "sales.toml").write_text(SALES)
    (board,), problems = read_dashboards([tmp_path])
    first = Tile("Orders / hour", "SELECT hour, n FROM orders", Chart("Line", "hour", "n", "shop"), 2, "sales")
    second = Tile("By status", "SELECT 1", Chart("Bar", "status", "n"), board="sales")
    assert board == Dashboard(name="sales", title="Sales of the day", tile=(first, second)) and problems == []
    assert [tile.name for tile in board.tile] == ["sales/Orders / hour", "sales/By status"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (('"Line"', '"Pie"'), "tile.0.chart.kind: Input should be 'Line', 'Bar', 'Area', 'Scatter' or 'Figure'"),
        (("width = 2", "width = 4"), "tile.0.width"),
        (("colour", "color"), "tile.0.chart.color: Unexpected keyword argument"),
        (("width = 2", "wide = 2"), "tile.0.wide: Unexpected keyword argument"),
        (('y = "n", ', ""), "a Line needs y"),
        (('title = "Sales', 'titel = "Sales'), "titel: Extra inputs are not permitted"),
        (("By status", "Orders / hour"), "two tiles have one title"),
        (("[[tile]]", "[[tile"), "cannot be read"),
    ],
)
def test_a_wrong_file_says_what_is_wrong_and_hides_no_other(tmp_path: Path, change: tuple[str, str], why: str) -> None:
    (tmp_path / "sales.toml").write_text(SALES)
    (tmp_path / "wrong.toml").write_text(SALES.replace(*change))
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    boards, problems = read_dashboards([tmp_path])
    assert [board.name for board in boards] == ["sales"]
    binary, wrong = sorted(problems, key=lambda problem: problem.message)
    assert "binary.toml cannot be read" in binary.message
    assert "wrong.toml" in wrong.message and why in wrong.message


def test_dashboards_lie_beside_weir_toml_and_hide_the_demo_s_of_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "weir.toml").write_text("")
    (tmp_path / "dashboards").mkdir()
    (tmp_path / "dashboards" / "gold.toml").write_text(SALES)
    monkeypatch.setenv("WEIR_CONFIG", str(tmp_path / "weir.toml"))
    assert load_settings().dashboard_folders == (tmp_path / "dashboards", DEMO)
    boards, problems = read_dashboards(load_settings().dashboard_folders)
    assert [board.title for board in boards] == ["Sales of the day"] and problems == []
    other_lake = load_settings(lake={"roots": [str(tmp_path)]})
    assert other_lake.dashboard_folders == (tmp_path / "dashboards",), "nothing shows the demo's tables"
    monkeypatch.setenv("WEIR_DEMO__ENABLED", "false")
    assert load_settings().dashboard_folders == (tmp_path / "dashboards",)
    assert read_dashboards([tmp_path / "nowhere"]) == ([], [])


def test_the_demo_s_statements_can_be_read() -> None:
    (board,), problems = read_dashboards([DEMO])
    assert problems == [] and board.title == "Gold" and len(board.tile) == 6
    named = {source.written for tile in board.tile for source in read_statement(tile.sql, most_rows=9).sources}
    assert {"gold_orders_by_status", "gold_events_hourly", "silver_events_quarantine", "weir.tables"} <= named


def test_the_file_that_the_docs_show_is_one(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "query.md").read_text(), re.DOTALL)
    (tmp_path / "sales.toml").write_text(example)
    (board,), problems = read_dashboards([tmp_path])
    assert problems == [] and board.tile[0].width == 2
    assert [source.written for source in read_statement(board.tile[0].sql).sources] == ["silver.silver_orders"]


def test_saved_queries_with_a_chart_are_tiles_beside_those_of_files(tmp_path: Path) -> None:
    (tmp_path / "sales.toml").write_text(SALES)
    boards, _ = read_dashboards([tmp_path])
    drawn = SavedQuery("Totals", "ana", "SELECT 2", Chart("Bar", "a", "b"), NOW)
    every = tiles(boards, [drawn, SavedQuery("Plain", "ana", "SELECT 3", None, NOW)])
    assert list(every) == ["sales/Orders / hour", "sales/By status", "Totals"]
    assert every["Totals"] == Tile("Totals", "SELECT 2", Chart("Bar", "a", "b")) and every["Totals"].title == "Totals"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "SELECT 'a' AS \"b\"\nFROM t\n",
        "SELECT '''quoted'''\nFROM t",
        "SELECT 1 -- \\n is no line\nFROM t WHERE a = 'ä☃'",
        "ends in a quote\n'",
        "tab\tand\x7f\x01\r\ncontrols",
    ],
)
def test_what_is_arranged_is_the_same_once_it_is_a_file(tmp_path: Path, text: str) -> None:
    shown = [
        Tile("Totals", text, Chart("Area", 'x "1"', "y", "c"), 3),
        Tile("N", text, Chart("Bar", "a\nb", "ä😀"), board="sales"),
    ]
    written = toml_text('Mine "two"', shown)
    assert tomllib.loads(written)["title"] == 'Mine "two"'
    (tmp_path / "mine.toml").write_text(written, newline="")
    (board,), problems = read_dashboards([tmp_path])
    assert problems == []
    assert [(tile.title, tile.sql, tile.chart, tile.width) for tile in board.tile] == [
        (tile.title, tile.sql, tile.chart, tile.width) for tile in shown
    ]
