"""The browser's Back leads to where one was, at once, with what was chosen there."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Viewer, Weir

pytestmark = [pytest.mark.browser]


def back(viewer: Viewer, to: str) -> None:
    viewer.page.go_back()
    expect(viewer.page).to_have_url(re.compile(to))
    viewer.settle()


def test_each_page_is_one_step_back_with_what_was_asked_there(page: Page, server: Weir) -> None:
    viewer = Viewer(page, server)
    viewer.open("changes", table="silver/orders", from_=1, to=3)
    viewer.main.get_by_role("button", name="Swap").click()
    expect(page).to_have_url(re.compile(r"from=3.*to=1|to=1.*from=3"))
    viewer.settle()
    viewer.go("Timeline")
    since = viewer.main.get_by_role("textbox", name="Since")
    since.fill("2 d ago")
    since.press("Enter")
    expect(page).to_have_url(re.compile(r"since=2"))
    viewer.settle()
    viewer.go("History")
    expect(page).to_have_url(re.compile(r"/history\?table="))

    back(viewer, r"/timeline\?.*since=2")
    expect(since).to_have_value("2 d ago")
    back(viewer, r"/changes\?.*(from=3.*to=1|to=1.*from=3)")
    viewer.sees(re.compile("Going back from v3 to v1"))
    back(viewer, r"/changes\?.*(from=1.*to=3|to=3.*from=1)")
    viewer.sees(re.compile("v1 → v3"))
    assert viewer.complaints == []
