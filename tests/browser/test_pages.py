"""Every page on the recorded demo, the way people go: by clicks and links, wide and on a phone, shutting nobody out."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from app.ui.lists import TWO_LINES_PX
from tests.worlds.browser.viewer import NARROW, Viewer
from tests.worlds.browser.weir import STREAMS
from tests.worlds.cases import few
from tests.worlds.processes import wait_until
from tests.worlds.store import stream_store

pytestmark = [pytest.mark.browser]

PAGES = {path.stem for path in (Path(__file__).parents[2] / "pages").glob("*.py")}
ORDERS, EVENTS = "silver/silver_orders", "bronze/bronze_events"


@pytest.mark.ci
@pytest.mark.parametrize("name", few(1, ["stream", *sorted(PAGES - {"stream"})]))
def test_a_deep_link_leaves_the_console_empty(viewer: Viewer, name: str) -> None:
    said: list[str] = []
    viewer.page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    params = {"stream": "silver_events"} if name == "stream" else {"table": ORDERS}
    viewer.open(name, **params)
    expect(viewer.page).to_have_url(re.compile(r":\d+/(\?|$)" if name == "overview" else rf":\d+/{name}\b"))
    assert said == []


def test_lake(viewer: Viewer) -> None:
    viewer.open()
    viewer.heading("Overview")
    figures = viewer.page.locator(".st-key-overview_figures")
    expect(figures).to_contain_text(re.compile(r"Tables\D*\d"))
    viewer.sees(re.compile(r"^6 of \d$"))  # streams running
    viewer.shuts_nobody_out()
    viewer.click_row("Every table", viewer.row_of("Every table", "silver_orders"))
    viewer.heading("silver_orders")
    expect(viewer.page).to_have_url(re.compile(r"/table\?.*silver_orders"))

    viewer.go("Tables")
    viewer.shuts_nobody_out()
    viewer.open("health")
    viewer.heading("Tables")
    viewer.click_row("Tables of the lake", viewer.row_of("Tables of the lake", "bronze_events"))
    viewer.heading("bronze_events")
    viewer.heading("Where small files come from")
    viewer.shuts_nobody_out()
    viewer.click("link", "Whole lake")
    viewer.heading("Tables")

    viewer.open("table", table="silver/silver_ordres")
    viewer.sees("Tables that are there")
    viewer.page.locator(".st-key-table_picker input").fill("gold_events")
    viewer.page.get_by_role("option", name="gold_events_hourly").click()
    viewer.settle()
    viewer.heading("gold_events_hourly")
    expect(viewer.page).to_have_url(re.compile("gold_events_hourly"))


def test_table_and_what_changed_in_it(viewer: Viewer) -> None:
    viewer.open("table", table=ORDERS, version=1)
    viewer.sees(re.compile(r"You look at v1\b"))
    viewer.click("button", "Back to latest")
    expect(viewer.main.get_by_text("You look at")).to_have_count(0)
    expect(viewer.page).not_to_have_url(re.compile("version="))
    viewer.sees("Last commit")
    viewer.shuts_nobody_out()
    viewer.choose("Data")
    expect(viewer.rows("Rows of").first).to_be_attached()

    viewer.go("History")
    expect(viewer.rows("Commits, newest").filter(has_text="MERGE").first).to_be_attached()
    viewer.shuts_nobody_out()
    viewer.click_row("Commits, newest", 0, tick=True)
    viewer.sees("What it changed")
    viewer.click_row("Commits, newest", 2, tick=True)
    viewer.click("link", re.compile(r"Changes from v\d+ to v\d+"))

    viewer.heading(re.compile(r"v\d+ → v\d+, \d+ commits?.*: [\d,]+ rows? inserted, [\d,]+ updated, [\d,]+ deleted"))
    expect(viewer.rows("Changed rows").nth(1)).to_be_attached()
    viewer.shuts_nobody_out()
    viewer.choose("Commits")
    expect(viewer.rows("Commits in between").filter(has_text="MERGE").first).to_be_attached()


def test_files_versions_and_properties_of_a_table(viewer: Viewer) -> None:
    viewer.open("files", table=EVENTS)
    viewer.sees("Median file")
    viewer.shuts_nobody_out()
    viewer.click_at(viewer.page.locator(".st-key-files_chart .barlayer .point").first)
    expect(viewer.page).to_have_url(re.compile("bucket="))
    expect(viewer.rows("Data files").nth(1)).to_be_attached()
    viewer.click("button", "All sizes")
    expect(viewer.rows("Data files").filter(has_text=".parquet").first).to_be_attached()

    viewer.open("properties", table=ORDERS)
    viewer.sees("data-platform")
    viewer.shuts_nobody_out()
    for page in ("timeline", "versions", "bisect"):
        viewer.open(page, table=ORDERS)
        viewer.shuts_nobody_out()


def test_operate(viewer: Viewer) -> None:
    viewer.open("streams")
    viewer.shuts_nobody_out()
    wait_until(lambda: ticked(viewer, "gold_events_hourly", "bronze_orders"), "two rows are ticked")
    dialog = viewer.dialog("Restart…")
    expect(dialog.get_by_text("Restart 2 streams?")).to_be_visible()
    viewer.page.keyboard.press("Escape")

    viewer.open("stream", stream="silver_events")
    expect(viewer.observed("Running")).to_be_visible()
    viewer.shuts_nobody_out()
    viewer.dialog("Restart…").get_by_role("button", name="Restart", exact=True).click()
    expect(dialog.get_by_text("A reason is needed")).to_be_visible()
    viewer.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    with viewer.weir.store() as store:
        assert store.audit_entries() == []

    viewer.open("stream", stream="bronze_orders")
    figures = viewer.page.locator(".st-key-flow_figures")
    before = figures.inner_text()
    with viewer.weir.store() as store:
        store.add_progress([stream_store.batch("bronze_orders", 36, store.now(), run_id="bronze_orders-run-2", rows=7)])
    wait_until(lambda: figures.inner_text() != before, "figures change without a hand")
    viewer.open("stream", stream="shop etl.files")
    viewer.sees("The Spark application shop etl runs it: start and stop it there.")
    expect(viewer.main.get_by_role("button", name="Stop…", exact=True)).to_have_count(0)
    for page in ("pipeline", "query", "dashboard"):
        viewer.open(page)
        viewer.shuts_nobody_out()


def ticked(viewer: Viewer, *names: str) -> bool:
    """Ticks these rows and no others; the list is live and sorted by urgency, so one may have moved under the mouse."""

    def is_wrong(name: str) -> bool:
        row = viewer.rows("Streams with").filter(has_text=name).first
        return (row.get_attribute("aria-selected") == "true") is not (name in names)

    wrong = [name for name in STREAMS if is_wrong(name)]
    for name in wrong:
        viewer.click_row("Streams with", viewer.row_of("Streams with", name), tick=True, row_px=TWO_LINES_PX)
    return not wrong


OF_ORDERS = ("changes", "table", "history", "timeline", "versions", "properties", "bisect")
OF_ALL = ("", "health", "query", "dashboard", "tables", "streams", "pipeline", "acts", "incident", "audit")
ON_A_PHONE = few(1, ["stream", "changes", *OF_ALL, *OF_ORDERS[1:], "files"])


@pytest.mark.ci
@pytest.mark.parametrize("name", ON_A_PHONE)
def test_a_page_opened_on_a_phone_fits(viewer: Viewer, name: str) -> None:
    """And its pictures are kept, wide and narrow."""
    params = {} if name in OF_ALL else {"table": EVENTS if name == "files" else ORDERS, "stream": "silver_events"}
    viewer.open(name, **params)
    viewer.picture(f"{name or 'overview'}-wide")
    viewer.page.set_viewport_size(NARROW)
    viewer.open(name, **params)
    assert not viewer.overflows()
    viewer.picture(f"{name or 'overview'}-narrow")
