"""An incident from the history of a table to the commit that did it, and a link that opens the same elsewhere."""

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.worlds.browser.viewer import Viewer

pytestmark = [pytest.mark.browser, pytest.mark.ci]

NAME = "incident/refunds"


def test_from_the_history_to_the_commit_that_did_it(viewer: Viewer, browser: Browser) -> None:
    viewer.open("history", table=NAME)
    viewer.click_row("Commits, newest", 0, tick=True)
    viewer.click_row("Commits, newest", 5, tick=True)
    viewer.click("link", "Changes from v0 to v5")
    viewer.heading(re.compile(r"v0 → v5, 5 commits.*: 3 rows inserted, 3 updated, 0 deleted"))
    viewer.picture("incident_changes")

    viewer.click("button", "update")
    viewer.main.get_by_role("combobox", name="Changed column").fill("amount")
    viewer.page.keyboard.press("Enter")
    viewer.page.keyboard.press("Escape")  # its list of choices
    viewer.settle()
    expect(viewer.page).to_have_url(re.compile(r"kind=update.*column=amount|column=amount.*kind=update"))
    expect(viewer.rows("Changed rows")).to_have_count(3)  # the header and two updates
    viewer.click_row("Changed rows", 0)
    viewer.click("button", re.compile("History of .*3"))
    expect(viewer.rows("Steps of one key").filter(has_text="MERGE").first).to_be_attached()
    link = viewer.page.url

    viewer.go("First bad version")
    viewer.main.get_by_role("textbox", name="A good version satisfies").fill("amount >= 0")
    viewer.page.keyboard.press("Enter")
    viewer.settle()
    viewer.click("button", "Find first bad version")
    viewer.sees(re.compile(r"v3\b.*MERGE|MERGE.*v3\b"))
    viewer.picture("incident_bisect")
    viewer.click("link", "What v3 changed")
    viewer.heading(re.compile(r"v2 → v3, 1 commit.*: 0 rows inserted, 2 updated, 0 deleted"))

    elsewhere = browser.new_context()
    try:
        page = elsewhere.new_page()
        page.goto(link)
        heading = page.get_by_role("heading", name=re.compile(r"v0 → v5, 5 commits.*: 3 rows inserted, 3 updated"))
        expect(heading.first).to_be_visible()
        expect(page.get_by_role("region", name=re.compile("^Changed rows")).first).to_be_attached()
    finally:
        elsewhere.close()
