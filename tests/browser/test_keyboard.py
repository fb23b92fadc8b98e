"""Keyboard alone: find a table, open its history, compare two versions, save what differs. No mouse, no address."""

import csv
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Viewer, Weir

pytestmark = [pytest.mark.browser]

MOST_TABS = 120


def tab_to(page: Page, wanted: Locator) -> None:
    """Tab until it has the focus, as whoever has no mouse."""
    wanted.first.wait_for()
    for _ in range(MOST_TABS):
        if wanted.first.evaluate("node => node === document.activeElement || node.contains(document.activeElement)"):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"not reached by {MOST_TABS} times Tab: {wanted}")


@pytest.mark.ci
def test_from_the_search_to_a_saved_file(page: Page, server: Weir, tmp_path: Path) -> None:
    viewer = Viewer(page, server)
    viewer.open()
    expect(page.get_by_role("button", name="Find in the lake")).to_be_visible()
    viewer.press("Control+k")
    expect(page.get_by_role("dialog").get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("amount", delay=20)
    found = page.get_by_role("dialog").get_by_role("link")
    expect(found).to_have_text([re.compile("silver/orders")])
    tab_to(page, found)
    viewer.press("Enter")
    viewer.heading("orders")

    tab_to(page, page.locator("[data-testid=stSidebar]").get_by_role("link", name="History"))
    viewer.press("Enter")
    expect(page).to_have_url(re.compile("/history"))
    viewer.settle()
    tab_to(page, viewer.list("Commits, newest"))
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
    assert viewer.complaints == []
