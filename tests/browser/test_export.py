"""A whole table as a file, in a real browser: saved whole, cancelled, and refused."""

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from playwright.sync_api import expect

from tests.worlds.browser.viewer import Viewer
from tests.worlds.processes import wait_until

pytestmark = [pytest.mark.browser]

SMALL, LARGE = "small/orders", "large/texts"


def offer(viewer: Viewer, table: str, form: str, **params: object) -> None:
    viewer.open("table", table=table, view="Data", **params)
    viewer.main.get_by_role("button", name="Export").click()
    viewer.settle()
    viewer.page.get_by_role("dialog").get_by_role("radio", name=form).click()
    viewer.page.get_by_role("link", name=re.compile(rf"Download .*{form.lower()}")).wait_for()
    expect(viewer.page.get_by_role("link", name="Download")).to_have_count(1)  # the other form's link has gone


def test_the_file_holds_the_rows_of_the_pinned_version_and_filter(viewer: Viewer, tmp_path: Path) -> None:
    offer(viewer, SMALL, "Parquet", version=1, where="amount%20>%2015", columns="order_id")
    dialog = viewer.page.get_by_role("dialog")
    assert "amount > 15" in dialog.inner_text()
    viewer.picture("export")
    with viewer.page.expect_download() as saved:
        dialog.get_by_role("link", name="Download").click()
    assert saved.value.suggested_filename == "orders_v1_filtered.parquet"
    saved.value.save_as(tmp_path / "saved.parquet")
    wanted = DeltaTable(str(viewer.weir.home / "lake" / SMALL), version=1).to_pandas()
    found = pq.read_table(tmp_path / "saved.parquet").to_pandas()
    assert sorted(found["order_id"]) == sorted(wanted[wanted["amount"] > 15]["order_id"]) == [2, 3, 4, 5]
    assert list(found.columns) == ["order_id"]
    wait_until(lambda: '"state": "done", "rows": 4' in viewer.weir.log("ui"), "the log tells of it")
    with viewer.page.expect_download() as saved:  # the link is another one
        dialog.get_by_role("link", name="Download").click()
    assert saved.value.failure() is None


@pytest.mark.ci
def test_a_large_file_can_be_cancelled_in_the_browser(viewer: Viewer) -> None:
    offer(viewer, LARGE, "CSV")
    assert re.search(r"Every row of v\d+: .* rows, \d+ files?\.", viewer.page.get_by_role("dialog").inner_text())
    with viewer.page.expect_download() as saved:
        viewer.page.get_by_role("dialog").get_by_role("link", name="Download").click()
    saved.value.cancel()
    assert saved.value.failure() is not None, "half a file must not look like a whole one"
    wait_until(lambda: '"state": "cancelled"' in viewer.weir.log("ui"), "the log tells of it")
