"""A question from a table to its answer in a real browser: asked, drawn, saved, and opened again by its link."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from playwright.sync_api import Page, expect

from tests import builders
from tests.browser.conftest import Viewer, Weir
from tests.processes import wait_until

pytestmark = [pytest.mark.browser]

TEXT = 'SELECT status, sum(amount) AS total FROM "silver/orders" GROUP BY status ORDER BY status'


@pytest.fixture
def viewer(page: Page, server: Weir) -> Iterator[Viewer]:
    viewer = Viewer(page, server)
    yield viewer
    assert viewer.complaints == []
    assert '"page failed"' not in (server.home / "ui.txt").read_text()


@pytest.mark.long
def test_from_a_table_to_a_chart_a_file_and_a_link_that_stays(viewer: Viewer, tmp_path: Path) -> None:
    path = viewer.weir.home / "lake" / "silver" / "orders"
    page = viewer.page
    viewer.open("table", table="silver/orders", view="Data")
    viewer.main.get_by_role("link", name="Open in Query").click()
    editor = page.get_by_role("textbox", name="SQL")
    expect(editor).to_have_value(re.compile('FROM "silver/orders" VERSION AS OF 3'), timeout=60_000)
    expect(page.get_by_text(re.compile("Reads at most .* from silver/orders v3"))).to_be_visible(timeout=60_000)

    editor.fill(TEXT)
    editor.press("Control+Enter")
    expect(page.get_by_text(re.compile("2 rows from silver/orders v3, in"))).to_be_visible(timeout=60_000)
    viewer.settle()
    viewer.main.get_by_role("radio", name="Chart").click()
    expect(page.get_by_text("total by status")).to_be_visible(timeout=60_000)
    assert page.locator(".js-plotly-plot .bars .point").count() == 2
    viewer.picture("query_chart")

    viewer.main.get_by_role("button", name="Export").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("radio", name="Parquet").click()
    dialog.get_by_role("link", name="Download query.parquet").wait_for(timeout=60_000)
    expect(dialog.get_by_role("link", name="Download")).to_have_count(1, timeout=60_000)  # the other form's has gone
    with page.expect_download() as saved:
        dialog.get_by_role("link", name="Download").click()
    saved.value.save_as(tmp_path / "saved.parquet")
    totals = dict(zip(*pq.read_table(tmp_path / "saved.parquet").to_pydict().values(), strict=True))
    wanted = DeltaTable(str(path)).to_pandas().groupby("status")["amount"].sum().to_dict()
    assert totals == wanted == {"new": 120.0, "paid": 25.0}

    link = page.url
    assert parse_qs(urlparse(link).query) | {"view": []} == {"query": [TEXT], "versions": ["3"], "view": []}
    builders.write(path, {"order_id": [9], "status": ["lost"], "amount": [1.0]})
    page.goto(link)
    expect(page.get_by_text(re.compile("2 rows from silver/orders v3, in"))).to_be_visible(timeout=60_000)
    expect(page.get_by_text("total by status")).to_be_visible(timeout=60_000)
    viewer.main.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text(re.compile("3 rows from silver/orders v4, in"))).to_be_visible(timeout=60_000)


def test_a_query_that_is_cancelled_leaves_no_process(viewer: Viewer) -> None:
    ten = "(SELECT unnest([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) AS x)"
    page, endless = viewer.page, f"SELECT count(*) FROM {', '.join(f'{ten} t{n}' for n in range(13))}"
    viewer.open("query")
    editor = page.get_by_role("textbox", name="SQL")
    editor.fill(endless)
    editor.press("Control+Enter")
    expect(page.get_by_text(re.compile("Reading 0 files"))).to_be_visible(timeout=60_000)
    wait_until(lambda: queries_of(viewer.weir), "the query runs")
    page.get_by_role("button", name="Cancel").click()
    wait_until(lambda: not queries_of(viewer.weir), "the query's process is gone")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0, timeout=60_000)
    expect(editor).to_have_value(endless)


def queries_of(weir: Weir) -> list[Path]:
    """The processes of queries that the server started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == weir.process.pid and b"backend.query.worker" in (folder / "cmdline").read_bytes():
                found.append(folder)
    return found
