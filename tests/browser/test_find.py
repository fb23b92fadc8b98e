"""The search by keyboard alone: a key opens it, typing finds, Tab and Enter lead on. A server of its own, no Spark."""

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.builders import HandLog
from tests.processes import free_port, wait_until

pytestmark = [pytest.mark.browser]


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except OSError:
        return False
    return True


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    HandLog(tmp_path / "lake" / "silver" / "orders").start(columns={"order_id": "long", "customer_id": "string"})
    HandLog(tmp_path / "lake" / "silver" / "shops").start(columns={"shop_id": "long"})
    port = free_port()
    env = {**os.environ, "WEIR_HOME": str(tmp_path), "WEIR_PORT": str(port)}
    with subprocess.Popen([sys.executable, "-m", "app.cli", "ui"], env=env, stdout=subprocess.DEVNULL) as process:
        try:
            served = f"http://127.0.0.1:{port}"
            wait_until(lambda: answers(f"{served}/healthz"), "the page is served", limit_s=60, pause_s=0.2)
            yield served
        finally:
            process.terminate()


def test_a_column_is_found_and_its_table_opened_by_keyboard(page: Page, url: str) -> None:
    page.set_default_timeout(30_000)
    page.goto(url)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible(timeout=30_000)
    expect(page.get_by_role("button", name="Find in the lake")).to_be_visible(timeout=30_000)

    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog").get_by_role("searchbox")).to_be_focused(timeout=30_000)
    page.keyboard.type("customer_id", delay=20)
    found = page.get_by_role("dialog").get_by_role("link")
    expect(found).to_have_text([re.compile("silver/orders")], timeout=30_000)
    while not found.first.evaluate("link => link === document.activeElement"):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", name="orders")).to_be_visible(timeout=30_000)
    expect(page).to_have_url(re.compile(r"/table\?table=silver%2Forders"))
    expect(page.get_by_role("dialog")).to_have_count(0)
