"""Ways between pages: by keyboard alone, by arrows in lists, by a click on a chart's line, and back again."""

import csv
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.worlds.browser.viewer import Viewer

pytestmark = [pytest.mark.browser]

ORDERS, LONG = "silver/silver_orders", "long/history"
COMMITS = "Commits, newest"
MOST_TABS = 120


def tab_to(page: Page, wanted: Locator) -> None:
    """Tab until it has the focus, as whoever has no mouse."""
    wanted.first.wait_for()
    for _ in range(MOST_TABS):
        if wanted.first.evaluate("node => node === document.activeElement || node.contains(document.activeElement)"):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"not reached by {MOST_TABS} times Tab: {wanted}")


def find(viewer: Viewer, text: str) -> Locator:
    """Types into the search; the links that it may come to."""
    expect(viewer.page.get_by_role("button", name="Find in the lake")).to_be_visible()
    viewer.settle()  # what is typed while the page is drawn anew may be lost
    viewer.page.keyboard.press("Control+k")
    expect(viewer.page.get_by_role("dialog").get_by_role("searchbox")).to_be_focused()
    viewer.page.keyboard.type(text, delay=20)
    return viewer.page.get_by_role("dialog").get_by_role("link")


def test_from_the_search_to_a_saved_file_without_a_mouse(viewer: Viewer, tmp_path: Path) -> None:
    page = viewer.page
    viewer.open()
    links = find(viewer, "changed_at")
    expect(links).to_have_text([re.compile(ORDERS)])
    page.keyboard.press("ArrowDown")
    expect(links.first).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(links.first).to_be_focused()  # the last one
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("dialog").get_by_role("searchbox")).to_be_focused()
    tab_to(page, links)
    viewer.press("Enter")
    viewer.heading("silver_orders")
    expect(page).to_have_url(re.compile(r"/table\?table=silver%2Fsilver_orders"))
    expect(page.get_by_role("dialog")).to_have_count(0)

    tab_to(page, page.locator("[data-testid=stSidebar]").get_by_role("link", name="History"))
    viewer.press("Enter")
    expect(page).to_have_url(re.compile("/history"))
    viewer.settle()
    tab_to(page, viewer.list(COMMITS))
    viewer.press("ArrowDown", " ", "ArrowDown", "ArrowDown", " ")
    tab_to(page, viewer.main.get_by_role("link", name=re.compile("Changes from")))
    viewer.press("Enter")
    viewer.sees(re.compile("Export all"))
    viewer.settle()

    export = page.locator(".st-key-export_csv button")
    tab_to(page, export)  # through the list, which chooses a cell on the way
    viewer.settle()
    tab_to(page, export)
    with page.expect_download() as saved:
        page.keyboard.press("Enter")
    saved.value.save_as(tmp_path / "changes.csv")
    rows = list(csv.DictReader((tmp_path / "changes.csv").read_text("utf-8-sig").splitlines()))
    assert {row["change"] for row in rows} <= {"insert", "update", "delete"} and rows
    back(viewer, r"/history\?table=")


@pytest.mark.ci
def test_the_search_leads_to_tables_pages_and_lists(viewer: Viewer) -> None:
    page = viewer.page
    viewer.open()
    find(viewer, "total_amount")
    page.keyboard.press("Enter")  # perhaps before anything was found
    viewer.heading("gold_orders_by_status")
    expect(page.get_by_role("dialog")).to_have_count(0)

    expect(find(viewer, "pipeline").first).to_have_text(re.compile("Pipeline"))
    page.keyboard.press("Enter")
    viewer.heading("Pipeline")

    links = find(viewer, "gold_")
    viewer.settle()  # a page that is left while it is drawn may break: Streamlit's "Bad delta path"
    links.filter(has_text="Open all 2 on Tables").click()
    viewer.sees(re.compile(r"2 of \d+ tables match"))
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV", exact=True).click()
    names = [row["Table"] for row in csv.DictReader(download.value.path().read_text("utf-8-sig").splitlines())]
    assert names == ["gold/gold_events_hourly", "gold/gold_orders_by_status"]


@pytest.mark.ci
def test_arrows_move_enter_opens_and_a_click_still_does(viewer: Viewer) -> None:
    viewer.open("tables", q="gold_")
    viewer.sees(re.compile(r"2 of \d+ tables match"))
    viewer.settle()
    viewer.list("Tables").focus()
    viewer.press("ArrowDown", "ArrowDown")
    expect(viewer.page).to_have_url(re.compile(r"/tables\?"))  # moving opens nothing
    viewer.press("ArrowUp", "Enter")
    viewer.heading("gold_events_hourly")

    viewer.go("Tables")  # and the same on a page that was come to by a link
    viewer.list("Tables").focus()
    viewer.press("ArrowDown")
    expect(viewer.page).to_have_url(re.compile(r"/tables\b"))
    viewer.click_row("Tables", viewer.row_of("Tables", "gold_orders_by_status"))
    viewer.heading("gold_orders_by_status")


SOCKETS = """
const Socket = window.WebSocket
window.cut = false; window.sockets = []
window.WebSocket = class extends Socket {
  constructor(address, ...rest) {
    super(window.cut ? address.replace("_stcore", "nowhere") : address, ...rest)
    window.sockets.push(this)
  }
}"""
SAYS = """() => getComputedStyle(document.querySelector(".stApp"), "::after").content.includes("Not connected")"""


@pytest.mark.ci
def test_a_page_without_its_server_says_so_and_goes_on_where_it_was(page: Page, viewer: Viewer) -> None:
    page.add_init_script(SOCKETS)
    viewer.open("history", table=LONG)
    assert not page.evaluate(SAYS)
    for _ in range(2):
        page.evaluate("() => { window.cut = true; window.sockets.at(-1).close() }")
        page.wait_for_function(SAYS)
        page.evaluate("() => { window.cut = false }")
        page.wait_for_function(f"() => !({SAYS})()")
    viewer.complaints.clear()  # about the connection that was cut
    viewer.go("Files")
    viewer.heading("history")


@pytest.mark.soak
def test_a_tick_moves_no_list_and_two_lead_to_their_changes(viewer: Viewer) -> None:
    viewer.open("history", table=LONG)
    before = viewer.list(COMMITS).bounding_box()
    viewer.list(COMMITS).focus()
    viewer.press("ArrowDown", " ")
    viewer.sees("What it changed")
    viewer.press("ArrowDown", "ArrowDown", " ")
    viewer.sees("v96 → v98")
    assert viewer.list(COMMITS).bounding_box() == before
    viewer.main.get_by_role("button", name="Clear", exact=True).click()
    viewer.sees("Tick a commit")
    viewer.click_row(COMMITS, 0, tick=True)
    viewer.sees("What it changed")
    assert viewer.list(COMMITS).bounding_box() == before


@pytest.mark.soak
def test_a_click_on_the_line_opens_its_commit(viewer: Viewer) -> None:
    viewer.open("history", table=LONG)
    plot = viewer.page.locator(".st-key-history_chart .nsewdrag").first
    box = plot.bounding_box()
    assert box is not None
    viewer.click_at(plot, box["width"] * 0.5, box["height"] * 0.52)
    expect(viewer.page).to_have_url(re.compile(r"commit=\d+$"))
    viewer.sees("What it changed")


@pytest.mark.ci
def test_each_page_is_one_step_back_with_what_was_asked_there(viewer: Viewer) -> None:
    viewer.open("changes", table=ORDERS, from_=1, to=3)
    viewer.main.get_by_role("button", name="Swap").click()
    expect(viewer.page).to_have_url(re.compile(r"from=3.*to=1|to=1.*from=3"))
    viewer.settle()
    viewer.go("History")
    expect(viewer.page).to_have_url(re.compile(r"/history\?table="))

    back(viewer, r"/changes\?.*(from=3.*to=1|to=1.*from=3)")
    viewer.sees(re.compile("Going back from v3 to v1"))
    back(viewer, r"/changes\?.*(from=1.*to=3|to=3.*from=1)")
    viewer.sees(re.compile("v1 → v3"))


def back(viewer: Viewer, to: str) -> None:
    viewer.page.go_back()
    expect(viewer.page).to_have_url(re.compile(to))
    viewer.settle()
