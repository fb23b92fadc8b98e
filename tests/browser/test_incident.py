"""An incident in a table that nobody here knows: from its search to commit, job, rows, the way back, and a link."""

import re

import pytest
from deltalake import DeltaTable
from playwright.sync_api import Browser, expect

from tests.worlds.browser.viewer import Viewer
from tests.worlds.lake.planted import METADATA, Planted

pytestmark = [pytest.mark.browser, pytest.mark.ci, pytest.mark.xdist_group("browser")]

PLANTED, NAME = "shop/payments", "incident/refunds"
MOST_INTERACTIONS = 5


def test_the_incident_is_told_within_five_interactions(viewer: Viewer, payments: Planted) -> None:
    page, made = viewer.page, payments
    viewer.open()
    steps = 0

    picker = page.locator("[data-testid=stSidebar]").get_by_role("combobox").first
    picker.fill("payments")
    page.keyboard.press("Enter")
    viewer.settle()
    steps += 1
    viewer.go("First bad version")
    steps += 1
    viewer.click("button", re.compile("amount <= "))
    steps += 1
    viewer.click("button", "Find first bad version")
    steps += 1

    assert steps <= MOST_INTERACTIONS
    viewer.heading(re.compile(rf"v{made.bad_version} \(MERGE by fx-loader.*is the first version that breaks"))
    for text in (METADATA["job"], METADATA["userName"], METADATA["ticket"], "delta-rs"):
        viewer.sees(re.compile(text))  # who and how
    viewer.sees(re.compile(rf"{made.changed} rows \(0 inserted, {made.changed} updated, 0 deleted\)"))
    condition = viewer.main.get_by_role("textbox", name="A good version satisfies").input_value()
    limit = float(condition.removeprefix("amount <= "))
    bad = DeltaTable(str(viewer.weir.home / "lake" / PLANTED), version=made.bad_version)
    amounts = bad.to_pyarrow_table(columns=["amount"])["amount"].to_pylist()
    assert made.highest <= limit < max(amounts)
    broken = sum(amount > limit for amount in amounts)
    viewer.sees(re.compile(rf"{broken:,} rows of v{made.bad_version} break the condition"))
    viewer.sees(re.compile(rf"× 100 in all {made.changed} updated rows"))
    expect(viewer.main.get_by_text(re.compile(r"= JPY")).first).to_contain_text("2026-11-11 or 2026-11-12")
    after = made.versions - made.bad_version
    viewer.sees(re.compile(rf"It undoes {after} commits"))
    viewer.sees(re.compile(rf"{made.later:,} rows go, 0 come back, {made.changed} rows get older values"))
    viewer.picture("first_bad_version")


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
