"""A whole table as a file, in a real browser: saved whole, cancelled, and a link that gives nothing twice."""

import csv
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from playwright.sync_api import expect

from tests.browser.conftest import Viewer, Weir, viewer_alone
from tests.worlds.browser.server import pages_over
from tests.worlds.lake import builders
from tests.worlds.processes import wait_until

pytestmark = [pytest.mark.browser]

ROWS, FILES = 400_000, 10


@pytest.fixture(scope="module")
def server(browser_type_launch_args: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weir]:
    """Two tables: `small`, and `large` whose CSV is about 1.2 GB, which takes seconds to make."""
    home = tmp_path_factory.mktemp("export")
    builders.orders_table(home / "lake" / "small")
    text = pa.array([f"{number:0300d}" for number in range(1_000)] * (ROWS // 1_000))
    for _ in range(FILES):
        builders.write(home / "lake" / "large", pa.table({"id": list(range(ROWS)), "text": text}), mode="append")
    with pages_over(home) as weir:
        yield weir


viewer = viewer_alone


def offer(viewer: Viewer, table: str, form: str, **params: object) -> None:
    viewer.open("table", table=table, view="Data", **params)
    viewer.main.get_by_role("button", name="Export").click()
    viewer.settle()
    viewer.page.get_by_role("dialog").get_by_role("radio", name=form).click()
    viewer.page.get_by_role("link", name=re.compile(rf"Download .*{form.lower()}")).wait_for()
    expect(viewer.page.get_by_role("link", name="Download")).to_have_count(1)  # the other form's link has gone


def test_the_file_holds_the_rows_of_the_pinned_version_and_filter(viewer: Viewer, tmp_path: Path) -> None:
    offer(viewer, "small", "Parquet", version=1, where="amount%20>%2015", columns="order_id")
    dialog = viewer.page.get_by_role("dialog")
    assert "4 rows of 1 column" in dialog.inner_text() and "amount > 15" in dialog.inner_text()
    viewer.picture("export")
    with viewer.page.expect_download() as saved:
        dialog.get_by_role("link", name="Download").click()
    assert saved.value.suggested_filename == "small_v1_filtered.parquet"
    saved.value.save_as(tmp_path / "saved.parquet")
    wanted = DeltaTable(str(viewer.weir.home / "lake" / "small"), version=1).to_pandas()
    found = pq.read_table(tmp_path / "saved.parquet").to_pandas()
    assert sorted(found["order_id"]) == sorted(wanted[wanted["amount"] > 15]["order_id"]) == [2, 3, 4, 5]
    assert list(found.columns) == ["order_id"]
    dialog.get_by_text(re.compile("Sent whole: 4 rows")).wait_for()


def test_a_large_file_can_be_cancelled_on_the_page(viewer: Viewer) -> None:
    offer(viewer, "large", "CSV")
    with viewer.page.expect_download() as saved:
        viewer.page.get_by_role("dialog").get_by_role("link", name="Download").click()
    cancel = viewer.page.get_by_role("dialog").get_by_role("button", name="Cancel")
    cancel.wait_for()
    viewer.picture("export_running")
    cancel.click()
    viewer.page.get_by_role("dialog").get_by_text(re.compile("^Cancelled after")).wait_for()
    assert saved.value.failure() is not None, "half a file must not look like a whole one"
    assert_ended(viewer.weir, "cancelled")


@pytest.mark.ci
def test_a_browser_that_leaves_ends_the_export(viewer: Viewer) -> None:
    offer(viewer, "large", "CSV")
    link = viewer.page.get_by_role("link", name="Download")
    ended = ends(viewer.weir)
    with urllib.request.urlopen(link.evaluate("link => link.href"), timeout=60) as answer:
        assert answer.headers["Content-Disposition"].startswith("attachment")
        assert "Content-Length" not in answer.headers
        assert len(answer.read(1_000)) == 1_000
    wait_until(lambda: len(ends(viewer.weir)) > len(ended), "the export ended")
    assert_ended(viewer.weir, "cancelled")


@pytest.mark.ci
def test_a_link_gives_its_file_once_and_a_guessed_one_nothing(viewer: Viewer) -> None:
    offer(viewer, "small", "CSV")
    href = viewer.page.get_by_role("link", name="Download").evaluate("link => link.href")
    with urllib.request.urlopen(href, timeout=60) as answer:
        rows = list(csv.DictReader(answer.read().decode("utf-8-sig").splitlines()))
    assert sorted(row["order_id"] for row in rows) == ["2", "3", "4", "5"]
    base = viewer.weir.url
    for url in (
        href,
        f"{base}/export/guessed",
        f"{base}/export/..%2F..%2Fetc%2Fpasswd",
        f"{base}/export/x?table=small",
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url, timeout=60)
        assert refused.value.code in (400, 410), url


def ends(weir: Weir) -> list[str]:
    return [line for line in (weir.home / "ui.txt").read_text().splitlines() if "export ended" in line]


def assert_ended(weir: Weir, state: str) -> None:
    said = f'"state":"{state}"'
    wait_until(lambda: said in "".join(ends(weir)[-1:]).replace(" ", ""), "the export ended")
