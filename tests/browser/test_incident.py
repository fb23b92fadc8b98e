"""An incident from the history to the commit that caused it, and the link that shows it to somebody else."""

import re

import pytest
from deltalake import DeltaTable, write_deltalake
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Viewer, Weir

pytestmark = [pytest.mark.browser, pytest.mark.ci, pytest.mark.usefixtures("resting")]

NAME = "incident/payments"


@pytest.fixture(scope="module")
def payments(weir: Weir) -> str:
    """v0 six rows · v1 two more · v2 one settled · v3 a MERGE turns two amounts negative · v4 a row · v5 compaction."""
    import pyarrow as pa

    path = weir.home / "lake" / NAME

    def rows(ids: list[int], amounts: list[float]) -> pa.Table:
        return pa.table({"id": ids, "amount": amounts, "status": ["open"] * len(ids)})

    write_deltalake(path, rows([1, 2, 3, 4, 5, 6], [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]))
    write_deltalake(path, rows([7, 8], [70.0, 80.0]), mode="append")
    DeltaTable(path).update(updates={"status": "'settled'"}, predicate="id = 2")
    merge = DeltaTable(path).merge(rows([3, 5], [-30.0, -50.0]), "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().execute()
    write_deltalake(path, rows([9], [90.0]), mode="append")
    DeltaTable(path).optimize.compact()
    return NAME


def test_from_the_history_to_the_commit_that_did_it(viewer: Viewer, payments: str, browser: Browser) -> None:
    viewer.open("history", table=payments)
    viewer.click_row("Commits, newest", 0, tick=True)
    viewer.click_row("Commits, newest", 5, tick=True)
    viewer.main.get_by_role("link", name="Changes from v0 to v5").click()
    viewer.settle()
    viewer.heading(re.compile(r"v0 → v5, 5 commits.*: 3 rows inserted, 3 updated, 0 deleted"))
    viewer.picture("incident_changes")

    viewer.main.get_by_role("button", name="update", exact=True).click()
    viewer.settle()
    viewer.main.get_by_role("combobox", name="Changed column").fill("amount")
    viewer.page.keyboard.press("Enter")
    viewer.page.keyboard.press("Escape")  # its list of choices
    viewer.settle()
    expect(viewer.page).to_have_url(re.compile(r"kind=update.*column=amount|column=amount.*kind=update"))
    expect(viewer.rows("Changed rows")).to_have_count(3)  # the header and two updates
    viewer.click_row("Changed rows", 0)
    viewer.main.get_by_role("button", name=re.compile("History of .*3")).click()
    viewer.settle()
    expect(viewer.rows("Steps of one key").filter(has_text="MERGE").first).to_be_attached()
    link = viewer.page.url

    viewer.go("First bad version")
    viewer.main.get_by_role("textbox", name="A good version satisfies").fill("amount >= 0")
    viewer.page.keyboard.press("Enter")
    viewer.settle()
    viewer.main.get_by_role("button", name="Find first bad version").click()
    viewer.settle()
    viewer.sees(re.compile(r"v3\b.*MERGE|MERGE.*v3\b"))
    viewer.picture("incident_bisect")
    viewer.main.get_by_role("link", name="What v3 changed").click()
    viewer.settle()
    viewer.heading(re.compile(r"v2 → v3, 1 commit.*: 0 rows inserted, 2 updated, 0 deleted"))

    elsewhere = browser.new_context()
    try:
        page = elsewhere.new_page()
        page.goto(link)
        heading = page.get_by_role("heading", name=re.compile(r"v0 → v5, 5 commits.*: 3 rows inserted, 3 updated"))
        expect(heading.first).to_be_visible(timeout=40_000)
        expect(page.get_by_role("region", name=re.compile("^Changed rows")).first).to_be_attached()
    finally:
        elsewhere.close()
