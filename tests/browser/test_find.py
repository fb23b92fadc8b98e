"""The search by keyboard alone: a key opens it, typing finds, Tab and Enter lead on. A server of its own, no Spark."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.worlds.browser.server import pages_over
from tests.worlds.lake.builders import HandLog

pytestmark = [pytest.mark.browser]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    HandLog(tmp_path / "lake" / "silver" / "orders").start(columns={"order_id": "long", "customer_id": "string"})
    HandLog(tmp_path / "lake" / "silver" / "shops").start(columns={"shop_id": "long"})
    with pages_over(tmp_path) as weir:
        yield weir.url


@pytest.mark.ci
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
    page.keyboard.press("ArrowDown")
    expect(found.first).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(found.first).to_be_focused()  # the last one
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("dialog").get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", name="orders")).to_be_visible(timeout=60_000)
    expect(page).to_have_url(re.compile(r"/table\?table=silver%2Forders"))
    expect(page.get_by_role("dialog")).to_have_count(0)

    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog").get_by_role("searchbox")).to_be_focused(timeout=60_000)
    page.keyboard.type("shop_id")
    page.keyboard.press("Enter")  # before anything was found
    expect(page.get_by_role("heading", name="shops")).to_be_visible(timeout=60_000)
    expect(page.get_by_role("dialog")).to_have_count(0)

    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog").get_by_role("searchbox")).to_be_focused(timeout=60_000)
    page.keyboard.type("pipeline", delay=20)
    expect(found.first).to_have_text(re.compile("Pipeline"), timeout=60_000)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Pipeline")).to_be_visible(timeout=60_000)

    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog").get_by_role("searchbox")).to_be_focused(timeout=60_000)
    page.keyboard.type("silver", delay=20)
    page.get_by_role("dialog").get_by_role("link", name="Open all 2 on Tables").click(timeout=60_000)
    expect(page.get_by_text("2 of 2 tables match")).to_be_visible(timeout=60_000)
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV", exact=True).click()
    names = [row["Table"] for row in csv.DictReader(download.value.path().read_text("utf-8-sig").splitlines())]
    assert names == ["silver/orders", "silver/shops"]
