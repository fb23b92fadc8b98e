"""The Health page: the whole lake as a list, one table in depth."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.worlds.lake import builders
from tests.worlds.pages.frames import titles
from tests.worlds.pages.opened import again, forget_caches, links, metrics, open_page, tick, words


@pytest.fixture
def lake(lake: Path, clicks: Path) -> Path:
    """bronze/clicks with 2 × 17 small files; the small tables of the medallion beside it."""
    return lake


def test_the_whole_lake_is_listed_most_to_merge_first_and_a_row_opens_its_table(lake: Path) -> None:
    app = open_page("health")
    assert (app.title[0].value, app.query_params) == ("Tables", {"sort": "Most to merge"})
    app = open_page("tables", sort="Most to merge")
    listed = app.dataframe[0].value.set_index("Table")
    assert listed.index[0] == "bronze/clicks"
    assert listed.loc["bronze/clicks", "Judgement"] == "● Note"
    assert listed.loc["bronze/clicks", "Small files"] == "34 of 34"
    assert listed.loc["silver/orders", "Judgement"] == "✓ OK"
    assert listed.loc["bronze/clicks", "Spared"] == 32
    tick(app, "catalog", 0)
    assert (app.title[0].value, links(app)["Whole lake"]) == ("clicks", "sort=Most+to+merge")
    assert "bronze/gone" in words(open_page("health", table="bronze/gone"))


def test_a_click_opens_the_table_that_was_under_the_mouse_though_another_came_on_top(lake: Path) -> None:
    app = open_page("tables", sort="Most to merge")
    assert app.dataframe[0].value["Table"].iloc[0] == "bronze/clicks"
    builders.partitioned_table(lake / "bronze" / "busier", days=3, files_per_day=17)
    forget_caches()
    tick(app, "catalog", 0)
    assert app.title[0].value == "clicks"
    assert open_page("health").dataframe[0].value["Table"].iloc[0] == "bronze/busier"


def test_one_table_shows_counts_rule_offenders_what_to_do_and_that_it_was_done(clicks: Path) -> None:
    app = open_page("health", table="bronze/clicks")
    shown, text = metrics(app), words(app)
    assert (shown["Small files"], shown["Last OPTIMIZE"]) == ("34 of 34", "–")
    assert "OPTIMIZE would leave about 2 files of 34" in text and "A file is small below" in text
    offenders = app.dataframe[0].value
    assert set(offenders["Where"]) == {"engine", "partition"}
    assert sum(offenders[offenders["Where"] == "partition"]["Small files"]) == 34
    DeltaTable(str(clicks)).optimize.compact()
    app.run()
    shown = metrics(app)
    assert (shown["Small files"], len(app.get("plotly_chart"))) == ("OK (2)", 1)
    assert "Files grew from" in titles(app) or "Files fell from" in titles(app)
    app.segmented_control(key="health_number").set_value("Small files' share")
    assert "Small files' share" in titles(again(app))
    assert shown["Last OPTIMIZE"].endswith("ago") or shown["Last OPTIMIZE"] == "just now"
