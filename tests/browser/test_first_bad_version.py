"""An incident in a table that nobody here knows: from the search for it to commit, job, rows and the way back.

A server of its own without Spark, on a lake written by deltalake.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from playwright.sync_api import Page, expect

from tests.browser.conftest import Viewer, Weir
from tests.worlds.browser.server import pages_over
from tests.worlds.lake.planted import METADATA, Planted, plant

pytestmark = [pytest.mark.browser]

NAME = "shop/payments"
MOST_INTERACTIONS = 5


@pytest.fixture(scope="module")
def server(
    browser_type_launch_args: object, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Weir, Planted]]:
    home = tmp_path_factory.mktemp("incident")
    planted = plant(home / "lake" / NAME)
    with pages_over(home) as weir:
        yield weir, planted


def _amounts(path: Path, version: int) -> list[float]:
    found: list[float] = DeltaTable(str(path), version=version).to_pandas()["amount"].tolist()
    return found


def test_the_incident_is_told_within_five_interactions(page: Page, server: tuple[Weir, Planted]) -> None:
    weir, made = server
    viewer = Viewer(page, weir)
    viewer.open()
    steps = 0

    picker = page.locator("[data-testid=stSidebar]").get_by_role("combobox").first
    picker.fill("payments")
    page.keyboard.press("Enter")
    viewer.settle()
    steps += 1
    viewer.go("First bad version")
    steps += 1
    viewer.main.get_by_role("button", name=re.compile("amount <= ")).click()
    viewer.settle()
    steps += 1
    viewer.main.get_by_role("button", name="Find first bad version").click()
    viewer.settle()
    steps += 1

    assert steps <= MOST_INTERACTIONS
    viewer.heading(re.compile(rf"v{made.bad_version} \(MERGE by fx-loader.*is the first version that breaks"))
    for text in (METADATA["job"], METADATA["userName"], METADATA["ticket"], "delta-rs"):
        viewer.sees(re.compile(text))  # who and how
    viewer.sees(re.compile(rf"{made.changed} rows \(0 inserted, {made.changed} updated, 0 deleted\)"))
    condition = viewer.main.get_by_role("textbox", name="A good version satisfies").input_value()
    limit, amounts = float(condition.removeprefix("amount <= ")), _amounts(weir.home / "lake" / NAME, made.bad_version)
    assert made.highest <= limit < max(amounts)
    broken = sum(amount > limit for amount in amounts)
    viewer.sees(re.compile(rf"{broken:,} rows of v{made.bad_version} break the condition"))
    viewer.sees(re.compile(rf"× 100 in all {made.changed} updated rows"))
    expect(viewer.main.get_by_text(re.compile(r"= JPY")).first).to_contain_text("2026-11-11 or 2026-11-12")
    after = made.versions - made.bad_version
    viewer.sees(re.compile(rf"It undoes {after} commits"))
    viewer.sees(re.compile(rf"{made.later:,} rows go, 0 come back, {made.changed} rows get older values"))
    viewer.picture("first_bad_version")
    assert viewer.complaints == []
