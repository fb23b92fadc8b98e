"""Logins by OpenID Connect in Chromium: in and back to the page that was left, out, and what an open page does when a
login ends."""

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.worlds.browser.weir import Weir, pages_over
from tests.worlds.pages.logins import login_settings, provider, set_user
from tests.worlds.store import stream_store

pytestmark = [pytest.mark.browser]

NAME, ANN = "silver_orders", "ann@example.com"
MAY_ACT = re.compile("^Stop")


@pytest.fixture(scope="module")
def main() -> Iterator[str]:
    with provider() as url:
        yield url


@pytest.fixture(scope="module")
def weir(
    browser_type_launch_args: dict[str, Any], tmp_path_factory: pytest.TempPathFactory, main: str
) -> Iterator[Weir]:
    home = tmp_path_factory.mktemp("logins")
    store, now = stream_store.open_store(home), datetime.now(UTC)
    stream_store.flowing(store, NAME, now)
    stream_store.beat(store, now)
    store.close()
    grants = {"WEIR_AUTH__GRANTS": json.dumps([{"group": "ops", "role": "admin"}])}
    with pages_over(home, WEIR_HOST__HEARTBEAT_STALE_S="6000", **grants, **login_settings(main=main)) as running:
        yield running


@pytest.fixture
def page(browser: Browser, browser_context_args: dict[str, Any]) -> Iterator[Page]:
    """A browser of its own, without cookies."""
    context = browser.new_context(**browser_context_args)
    expect.set_options(timeout=60_000)
    yield context.new_page()
    context.close()


def log_in(page: Page, address: str) -> None:
    """From the page at this address, which asks for it, and back."""
    page.goto(address)
    page.get_by_role("button", name="Log in with Main").click()
    come_back(page, address)


def come_back(page: Page, address: str) -> None:
    page.get_by_placeholder("sub").fill(ANN)
    page.get_by_role("button", name="Authorize").click()
    page.wait_for_url(address)
    expect(page.get_by_role("button", name="Log out")).to_be_visible()


def asks_for_a_login(page: Page, why: str) -> None:
    """By itself, and shows nothing else."""
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    expect(page.get_by_text(why)).to_be_visible()
    expect(page.get_by_role("heading", name=NAME)).to_have_count(0)
    expect(page.get_by_role("button", name="Log out")).to_have_count(0)


@pytest.mark.ci
def test_in_and_out_and_what_another_tab_shows_then(page: Page, weir: Weir, main: str) -> None:
    set_user(main, ANN, groups=["ops"])
    address = f"{weir.url}/stream?stream={NAME}"
    log_in(page, address)
    expect(page.get_by_role("heading", name=NAME)).to_be_visible()
    other = page.context.new_page()
    other.goto(address)
    expect(other.get_by_role("heading", name=NAME)).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    asks_for_a_login(other, "You are logged out, or your groups have changed")
    page.get_by_role("button", name="End session").click()  # the provider's own page
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    other.get_by_role("button", name="Log in with Main").click()
    come_back(other, address)


def test_a_page_that_is_open_when_its_login_ends_says_so_and_keeps_its_address(
    page: Page, weir: Weir, main: str
) -> None:
    set_user(main, ANN, groups=["ops"], iat=int(time.time()) - 12 * 3_600 + 15)
    address = f"{weir.url}/stream?stream={NAME}"
    log_in(page, address)
    asks_for_a_login(page, "Your login has ended: it counted for 12 h")
    set_user(main, ANN, groups=["ops"])
    page.get_by_role("button", name="Log in with Main").click()
    come_back(page, address)
    expect(page.get_by_role("heading", name=NAME)).to_be_visible()


def test_a_group_that_is_taken_away_is_gone_from_the_page_that_is_open(
    page: Page, browser: Browser, browser_context_args: dict[str, Any], weir: Weir, main: str
) -> None:
    set_user(main, ANN, groups=["ops"])
    address = f"{weir.url}/stream?stream={NAME}"
    log_in(page, address)
    expect(page.get_by_role("button", name=MAY_ACT).first).to_be_enabled()
    set_user(main, ANN, groups=[])
    laptop = browser.new_context(**browser_context_args)
    log_in(laptop.new_page(), address)
    laptop.close()
    asks_for_a_login(page, "You are logged out, or your groups have changed")
    page.get_by_role("button", name="Log in with Main").click()
    come_back(page, address)
    expect(page.get_by_role("heading", name=NAME)).to_be_visible()


def test_what_did_not_work_is_said_where_it_was_tried(page: Page, weir: Weir, main: str, tmp_path: Path) -> None:
    address = f"{weir.url}/history?table=none"
    page.goto(address)
    page.get_by_role("button", name="Log in with Main").click()
    page.get_by_role("button", name="Deny").click()
    page.wait_for_url(address)
    asks_for_a_login(page, "The provider does not answer, or its answer was not accepted")
