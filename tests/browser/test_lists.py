"""Lists by keyboard, and the history under the hand, in a real browser before a small lake without Spark."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Viewer, Weir
from tests.worlds.browser.server import pages_over
from tests.worlds.lake import builders

pytestmark = [pytest.mark.browser]

TABLES = ("alpha", "beta", "gamma")
COMMITS = "Commits, newest"


@pytest.fixture(scope="module")
def small(browser_type_launch_args: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weir]:
    """The pages alone over three tables; `gamma` has a hundred commits."""
    home = tmp_path_factory.mktemp("small")
    for name in TABLES[:2]:
        builders.write(home / "lake" / name, {"id": [1, 2, 3]})
    log = builders.HandLog(home / "lake" / "gamma")
    log.commit(builders.protocol(), builders.metadata(), builders.commit_info(timestamp=1_763_700_000_000))
    for number in range(1, 100):
        info = builders.commit_info(timestamp=1_763_700_000_000 + number * 12_000, userName="ann")
        log.commit(info, builders.add(f"{number}.parquet"))
    with pages_over(home) as weir:
        yield weir


@pytest.fixture
def viewer(page: Page, small: Weir) -> Iterator[Viewer]:
    viewer = Viewer(page, small)
    yield viewer
    assert viewer.complaints == []


@pytest.mark.ci
def test_arrows_move_enter_opens_and_a_click_still_does(viewer: Viewer) -> None:
    viewer.open("tables")
    viewer.list("Tables").focus()
    viewer.press("ArrowDown", "ArrowDown", "ArrowDown")
    expect(viewer.page).to_have_url(re.compile(r"/tables$"))  # moving opens nothing
    viewer.press("ArrowUp", "Enter")
    viewer.heading("beta")

    viewer.go("Tables")  # and the same on a page that was come to by a link
    viewer.list("Tables").focus()
    viewer.press("ArrowDown")
    expect(viewer.page).to_have_url(re.compile(r"/tables$"))
    viewer.click_row("Tables", 2)
    viewer.heading("gamma")


def test_a_tick_moves_no_list_and_two_lead_to_their_changes(viewer: Viewer) -> None:
    viewer.open("history", table="gamma")
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


@pytest.mark.ci
def test_a_click_on_the_line_opens_its_commit(viewer: Viewer) -> None:
    viewer.open("history", table="gamma")
    plot = viewer.page.locator(".st-key-history_chart .nsewdrag").first
    box = plot.bounding_box()
    assert box is not None
    viewer.click_at(plot, box["width"] * 0.5, box["height"] * 0.52)
    expect(viewer.page).to_have_url(re.compile(r"commit=\d+$"))
    viewer.sees("What it changed")
