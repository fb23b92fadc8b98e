"""The search by keyboard alone: a key opens it, typing finds, Tab and Enter lead on. A server of its own, no Spark."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.server import pages_over
from tests.builders import HandLog

pytestmark = [pytest.mark.browser]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    HandLog(tmp_path / "lake" / "silver" / "orders").start(columns={"order_id": "long", "customer_id": "string"})
    HandLog(tmp_path / "lake" / "silver" / "shops").start(columns={"shop_id": "long"})
    with pages_over(tmp_path) as weir:
        yield weir.url


@pytest.mark.long
def test_a_column_is_found_and_its_table_opened_by_keyboard(page: Page, url: str) -> None:
    page.set_default_timeout(60_000)
    page.goto(url)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible(timeout=60_000)
    expect(page.get_by_role("button", name="Find in the lake")).to_be_visible(timeout=60_000)

    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog").get_by_role("searchbox")).to_be_focused(timeout=60_000)
    page.keyboard.type("customer_id", delay=20)
    found = page.get_by_role("dialog").get_by_role("link")
    expect(found).to_have_text([re.compile("silver/orders")], timeout=60_000)
    while not found.first.evaluate("link => link === document.activeElement"):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", name="orders")).to_be_visible(timeout=60_000)
    expect(page).to_have_url(re.compile(r"/table\?table=silver%2Forders"))
    expect(page.get_by_role("dialog")).to_have_count(0)
