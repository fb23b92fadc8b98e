"""From a question to a tile that moves when its table does, in a real browser, and on to the same rows as a file."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from playwright.sync_api import expect

from tests.browser.conftest import Viewer, Weir, viewer_alone
from tests.browser.test_live_charts import WATCH
from tests.worlds.browser.server import pages_over
from tests.worlds.lake import builders

pytestmark = [pytest.mark.browser]

TEXT = 'SELECT status, sum(amount) AS total FROM "silver/orders" GROUP BY status ORDER BY status'
FIGURE = ".weir-figure"


@pytest.fixture(scope="module")
def server(browser_type_launch_args: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weir]:
    home = tmp_path_factory.mktemp("dashboard")
    builders.orders_table(home / "lake" / "silver" / "orders")
    with pages_over(home, WEIR_DEMO__ENABLED="false") as weir:
        yield weir


viewer = viewer_alone


@pytest.mark.ci
def test_from_a_question_to_a_tile_that_moves_and_on_to_a_file_of_its_rows(viewer: Viewer, tmp_path: Path) -> None:
    path, page = viewer.weir.home / "lake" / "silver" / "orders", viewer.page
    viewer.open("table", table="silver/orders", view="Data")
    viewer.main.get_by_role("link", name="Open in Query").click()
    editor = page.get_by_role("textbox", name="SQL")
    expect(editor).to_have_text(re.compile('FROM "silver/orders" VERSION AS OF 3'))
    editor.fill(TEXT)
    editor.press("Control+Enter")
    expect(page.get_by_text(re.compile("2 rows from silver/orders v3, in"))).to_be_visible()
    viewer.settle()
    viewer.main.get_by_role("radio", name="Chart").click()
    expect(page.get_by_text("total by status")).to_be_visible()

    viewer.main.get_by_role("button", name="Save…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Name").fill("Totals")
    dialog.get_by_role("textbox", name="Reason").fill("for the stand-up")
    dialog.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Totals is saved")).to_be_visible()

    viewer.go("Dashboard")
    viewer.sees("No tile is shown.")
    viewer.main.get_by_role("button", name="Arrange").click()
    page.locator(".st-key-dashboard_added input").fill("Totals")
    page.get_by_role("option", name="Totals").click()
    page.keyboard.press("Escape")
    tile = page.locator(".st-key-tile_0")
    expect(tile.get_by_text(re.compile("^orders v3, "))).to_be_visible()
    expect(tile.locator(f"{FIGURE} .bars .point")).to_have_count(2)
    assert parse_qs(urlparse(page.url).query) == {"tile": ["Totals:1"]}
    viewer.picture("dashboard_tile")

    assert page.evaluate(WATCH) == 1
    builders.write(path, {"order_id": [9], "status": ["lost"], "amount": [1.0]})
    expect(tile.get_by_text(re.compile("^orders v4, "))).to_be_visible()
    expect(tile.locator(f"{FIGURE} .bars .point")).to_have_count(3)
    page.wait_for_function("() => window.watched.looks > 40")
    assert page.evaluate("window.watched")["blank"] == 0
    assert page.evaluate(f"document.querySelector('{FIGURE}').marked") == 0, "it is another node"

    tile.get_by_role("link", name="Open in Query").click()
    expect(page.get_by_text(re.compile("3 rows from silver/orders v4, in"))).to_be_visible()
    expect(page.get_by_text("total by status")).to_be_visible()
    viewer.settle()
    link = page.url
    viewer.main.get_by_role("button", name="Export").click()
    dialog.get_by_role("radio", name="Parquet").click()
    dialog.get_by_role("link", name="Download query.parquet").wait_for()
    expect(dialog.get_by_role("link", name="Download")).to_have_count(1)  # the other form's has gone
    with page.expect_download() as saved:
        dialog.get_by_role("link", name="Download").click()
    saved.value.save_as(tmp_path / "saved.parquet")
    totals = dict(zip(*pq.read_table(tmp_path / "saved.parquet").to_pydict().values(), strict=True))
    assert totals == DeltaTable(str(path), version=4).to_pandas().groupby("status")["amount"].sum().to_dict()

    builders.write(path, {"order_id": [10], "status": ["odd"], "amount": [2.0]})
    page.goto(link)
    expect(page.get_by_text(re.compile("3 rows from silver/orders v4, in"))).to_be_visible()
    expect(page.get_by_text("total by status")).to_be_visible()
