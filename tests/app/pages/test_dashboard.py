"""Dashboard: tiles of files and of saved queries, moved by commits, arranged in the link."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from streamlit.testing.v1 import AppTest

from backend.access import Actor
from backend.query.tiles import AGAIN_S
from backend.sql.saved import Chart
from backend.store.store import ControlStore
from tests.worlds.lake import builders
from tests.worlds.pages.opened import MAIN, TIMEOUT_S, again, linked_params, links, open_page, param, press, words
from tests.worlds.processes import wait_until

TEXT = 'SELECT status, sum(amount) AS total FROM "silver/orders" GROUP BY status ORDER BY status'
TILE = f"""
[[tile]]
title = "{{title}}"
sql = '''{TEXT}'''
chart = {{{{ kind = "Bar", x = "status", y = "total" }}}}
"""


@pytest.fixture
def dashboards(home: Path, orders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The empty folder of dashboards beside a `weir.toml`, over a lake with orders."""
    (home / "weir.toml").write_text("")
    monkeypatch.setenv("WEIR_CONFIG", str(home / "weir.toml"))
    monkeypatch.setenv("WEIR_DEMO__ENABLED", "false")
    (home / "dashboards").mkdir()
    return home / "dashboards"


def write(folder: Path, name: str, *titles: str, more: str = "") -> None:
    (folder / f"{name}.toml").write_text("".join(TILE.format(title=title) for title in titles) + more)


def shown(app: AppTest, words_wanted: str = "") -> AppTest:
    """The page once every tile has run, and shows these words."""

    def is_shown() -> bool:
        said = words(again(app))
        return "Reading …" not in said and words_wanted in said

    wait_until(is_shown, lambda: words(app), pause_s=0.2, limit_s=60 + AGAIN_S)
    return app


def drawn(app: AppTest) -> list[dict[str, Any]]:
    """The figures of the page."""
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


def bars(app: AppTest) -> list[dict[str, float]]:
    return [dict(zip(figure["data"][0]["x"], figure["data"][0]["y"], strict=True)) for figure in drawn(app)]


def drawn_titles(app: AppTest) -> list[str]:
    return [figure["layout"]["title"]["text"] for figure in drawn(app)]


def add_order(home: Path) -> None:
    builders.write(home / "lake" / "silver" / "orders", {"order_id": [9], "status": ["lost"], "amount": [7.0]})


def totals(home: Path) -> dict[str, float]:
    rows = DeltaTable(str(home / "lake" / "silver" / "orders")).to_pandas()
    found: dict[str, float] = rows.groupby("status")["amount"].sum().to_dict()
    return found


def tile_params(app: AppTest) -> list[str]:
    value = app.query_params.get("tile", [])
    return [value] if isinstance(value, str) else list(value)


def test_without_any_tile_it_says_how_to_have_one(dashboards: Path) -> None:
    app = open_page("dashboard")
    assert "No tile is shown" in words(app) and "A saved query with a chart is a tile" in words(app)
    assert "Query" in links(app) and not app.get("plotly_chart")


def test_a_file_is_drawn_says_how_fresh_it_is_leads_to_its_rows_and_moves_with_a_commit(
    dashboards: Path, home: Path
) -> None:
    write(dashboards, "sales", "Totals by status")
    app = shown(open_page("dashboard"))
    assert bars(app) == [totals(home)] and drawn_titles(app) == ["Totals by status"]
    assert app.title[0].value == "sales" and "Live · 1 tile, last read " in words(app)
    assert "orders v3, " in words(app)
    link = linked_params(links(app)["Open in Query"])
    assert link == {
        "query": TEXT, "versions": "3", "view": "Chart", "chart": "Bar", "x": "status", "y": "total",
        "colour": "One colour",
    }  # fmt: skip
    query = press(open_page("query", **link), "query_run_linked")
    assert "from silver/orders v3, in" in words(query) and bars(query) == bars(app)
    add_order(home)
    shown(app, "orders v4, ")
    assert bars(app) == [totals(home)] and totals(home)["lost"] == 7.0


def test_a_tile_that_cannot_run_says_why_and_hides_no_other(dashboards: Path) -> None:
    more = TILE.format(title="Gone").replace("silver/orders", "silver/nowhere")
    more += TILE.format(title="Odd").replace('y = "total"', 'y = "n"')
    write(dashboards, "sales", "Totals by status", more=more)
    (dashboards / "wrong.toml").write_text("tile = 3")
    app = shown(open_page("dashboard"))
    said = words(app)
    assert len(drawn(app)) == 1 and "o table 'silver/nowhere'" in said
    assert "The chart needs the column n, and rows have total" in said
    assert "wrong.toml" in said and "Its tiles are not shown." in said


def test_one_of_several_files_is_chosen_by_its_title(dashboards: Path) -> None:
    write(dashboards, "a", "First")
    write(dashboards, "b", "Second")
    assert drawn_titles(shown(open_page("dashboard"))) == ["First"]
    linked = shown(open_page("dashboard", dashboard="b"))
    assert drawn_titles(linked) == ["Second"]
    linked.selectbox(key="dashboard_choice_b").select("a")
    assert drawn_titles(shown(linked)) == ["First"] and param(linked, "dashboard") == "a"
    assert "There is no dashboard c" in words(open_page("dashboard", dashboard="c"))


def test_tiles_are_chosen_ordered_and_sized_in_the_link_and_taken_along_as_a_file(
    dashboards: Path, home: Path, store: ControlStore, now: datetime
) -> None:
    write(dashboards, "sales", "One", "Two")
    for name, chart in (("Saved totals", Chart("Bar", "status", "total")), ("Without a chart", None)):
        store.saved.save(name, TEXT, chart, actor=Actor("ana"), reason="for all", now=now)
    app = shown(open_page("dashboard"))
    assert app.selectbox(key="dashboard_added").options == ["Saved totals"]
    app.selectbox(key="dashboard_added").select("Saved totals")
    assert tile_params(again(app)) == ["sales/One:1", "sales/Two:1", "Saved totals:1"]
    assert app.button(key="tile_up_0").disabled and app.button(key="tile_down_2").disabled
    press(app, "tile_up_2")
    press(app, "tile_width_1")
    press(app, "tile_remove_0")
    assert tile_params(app) == ["Saved totals:2", "sales/Two:1"]
    assert drawn_titles(shown(app)) == ["Saved totals", "Two"]
    assert app.title[0].value == "Dashboard" and app.text_input(key="dashboard_title").value == "My dashboard"
    (written,) = [code.value for code in app.code if "[[tile]]" in code.value]

    (dashboards / "mine.toml").write_text(written)
    kept = shown(open_page("dashboard", dashboard="mine"))
    assert drawn_titles(kept) == ["Saved totals", "Two"]
    assert bars(kept) == [totals(home)] * 2


def test_a_link_to_a_tile_that_is_gone_says_so_and_shows_the_others(dashboards: Path) -> None:
    write(dashboards, "sales", "One")
    app = AppTest.from_file(str(MAIN), default_timeout=TIMEOUT_S)
    app.switch_page("../pages/dashboard.py")
    app.query_params["tile"] = ["sales/One:3", "Removed:1"]
    assert len(drawn(shown(again(app)))) == 1
    assert "There is no tile Removed" in words(app)


def test_the_demo_s_dashboard_is_there_with_the_demo(home: Path) -> None:
    app = shown(open_page("dashboard"))
    assert app.selectbox(key="dashboard_choice_gold").value == "gold"
    assert "gold_orders_by_status" in words(app), "it says which table is not there yet"
