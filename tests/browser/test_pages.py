"""Every page on the demo lake in a real browser, the way people go: by clicks, by links, wide and narrow."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Viewer

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("resting")]

PAGES = {
    "overview": {},
    "table": {"table": "silver/silver_orders"},
    "history": {"table": "silver/silver_orders"},
    "timeline": {"table": "silver/silver_orders"},
    "versions": {"table": "silver/silver_orders"},
    "files": {"table": "bronze/bronze_events"},
    "properties": {"table": "silver/silver_orders"},
    "changes": {"table": "silver/silver_orders"},
    "bisect": {"table": "silver/silver_orders"},
    "health": {"table": "bronze/bronze_events"},
    "query": {},
    "dashboard": {},
    "tables": {},
    "streams": {},
    "stream": {"stream": "silver_events"},
    "pipeline": {},
}
SHOWN = ("overview", "table", "changes", "streams")  # a list, a chart, a grid of rows, what is live


def test_from_the_overview_to_the_rows_that_changed(viewer: Viewer) -> None:
    viewer.open()
    viewer.heading("Overview")
    figures = viewer.page.locator(".st-key-overview_figures")
    expect(figures).to_contain_text(re.compile(r"Tables\D*[89]"))  # another test's incident may lie beside the demo
    viewer.sees("0 of 6")  # streams running: the tests of streams start them

    viewer.click_row("Every table", viewer.row_of("Every table", "silver_orders"))
    viewer.heading("silver_orders")
    expect(viewer.page).to_have_url(re.compile(r"/table\?.*silver_orders"))
    viewer.sees("Last commit")
    viewer.choose("Data")
    expect(viewer.rows("Rows of").first).to_be_attached()

    viewer.go("History")
    expect(viewer.rows("Commits, newest").filter(has_text="MERGE").first).to_be_attached()
    viewer.click_row("Commits, newest", 0, tick=True)
    viewer.sees("What it changed")
    viewer.click_row("Commits, newest", 2, tick=True)  # not 1: a new commit may have moved the first choice there
    viewer.main.get_by_role("link", name=re.compile(r"Changes from v\d+ to v\d+")).click()

    viewer.heading(re.compile(r"v\d+ → v\d+, \d+ commits?.*: [\d,]+ rows? inserted, [\d,]+ updated, [\d,]+ deleted"))
    expect(viewer.rows("Changed rows").nth(1)).to_be_attached()
    with viewer.page.expect_download() as download:
        viewer.page.locator(".st-key-export_csv button").click()
    assert "order_id" in download.value.path().read_text().splitlines()[0]
    viewer.choose("Commits")
    expect(viewer.rows("Commits in between").filter(has_text="MERGE").first).to_be_attached()


def test_a_pinned_version_says_so_and_leads_back(viewer: Viewer) -> None:
    viewer.open("table", table="silver/silver_orders", version=1)
    viewer.sees(re.compile(r"You look at v1\b"))

    viewer.main.get_by_role("button", name="Back to latest").click()
    viewer.settle()

    expect(viewer.main.get_by_text("You look at")).to_have_count(0)
    expect(viewer.page).not_to_have_url(re.compile("version="))


def test_a_bar_of_the_file_sizes_opens_its_files(viewer: Viewer) -> None:
    viewer.open("files", table="bronze/bronze_events")
    viewer.sees("Median file")

    viewer.click_at(viewer.page.locator(".st-key-files_chart .barlayer .point").first)
    expect(viewer.page).to_have_url(re.compile("bucket="))
    expect(viewer.rows("Data files").nth(1)).to_be_attached()

    viewer.main.get_by_role("button", name="All sizes").click()
    viewer.settle()
    expect(viewer.rows("Data files").filter(has_text=".parquet").first).to_be_attached()


def test_properties_are_searched(viewer: Viewer) -> None:
    viewer.open("properties", table="silver/silver_orders")
    viewer.sees("data-platform")

    viewer.main.get_by_placeholder("Name, value or meaning").fill("ChangeDataFeed")
    viewer.page.keyboard.press("Enter")
    viewer.settle()

    expect(viewer.page).to_have_url(re.compile("q=ChangeDataFeed"))
    expect(viewer.main.get_by_role("row").filter(has_text="delta.enableChangeDataFeed").first).to_be_attached()
    expect(viewer.main.get_by_role("row").filter(has_text="delta.appendOnly")).to_have_count(0)


def test_the_health_of_the_lake_leads_to_a_table_and_back(viewer: Viewer) -> None:
    viewer.open("health")
    viewer.heading("Health of the lake")

    viewer.click_row("Health of every table", viewer.row_of("Health of every table", "bronze_events"))
    viewer.heading("bronze_events")
    viewer.heading("Where small files come from")

    viewer.main.get_by_role("button", name="Whole lake").click()
    viewer.settle()
    viewer.heading("Health of the lake")


def test_the_picker_finds_a_table_and_a_missing_one_is_told(viewer: Viewer) -> None:
    viewer.open("table", table="silver/silver_ordres")
    viewer.sees("Tables that are there")

    viewer.page.locator(".st-key-table_picker input").fill("gold_events")
    viewer.page.get_by_role("option", name="gold_events_hourly").click()
    viewer.settle()

    viewer.heading("gold_events_hourly")
    expect(viewer.page).to_have_url(re.compile("gold_events_hourly"))


@pytest.mark.parametrize(
    "name", [*SHOWN, *(pytest.param(name, marks=pytest.mark.ci) for name in PAGES if name not in SHOWN)]
)
def test_every_page_fits_wide_and_narrow_and_shuts_nobody_out(viewer: Viewer, name: str) -> None:
    viewer.open("" if name == "overview" else name, **PAGES[name])
    assert not viewer.overflows()
    assert viewer.barriers() == ()
    viewer.picture(f"{name}-wide")

    viewer.page.set_viewport_size({"width": 390, "height": 844})
    viewer.open("" if name == "overview" else name, **PAGES[name])
    assert not viewer.overflows()
    viewer.picture(f"{name}-narrow")
