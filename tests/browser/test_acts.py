"""A table is put right from the page that found the fault: what was said first is what its log says afterwards."""

import json
import re

import pytest
from deltalake import DeltaTable
from playwright.sync_api import expect

from tests.browser.conftest import Viewer, Weir
from tests.worlds.processes import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.ci]

TABLE = "bronze/bronze_events"
LAST = "gold/gold_orders_by_status"


@pytest.mark.usefixtures("resting")
def test_small_files_are_merged_and_the_rows_proven_the_same(viewer: Viewer, weir: Weir) -> None:
    before = files(weir)
    rows, version = len(table(weir).to_pyarrow_table()), table(weir).version()
    viewer.open("health", table=TABLE)
    viewer.main.get_by_role("button", name="Optimize…").click()
    dialog = viewer.page.get_by_role("dialog")
    expect(dialog.get_by_text(f"{before} files")).to_be_visible()
    viewer.settle()
    viewer.picture("act-optimize")
    dialog.get_by_label("Reason").fill("browser test: readers are slow")
    dialog.locator(".st-key-table_act_send button").click()
    expect(dialog).to_have_count(0)

    wait_until(lambda: table(weir).version() > version, "the host has merged the files", pause_s=0.5)
    assert files(weir) == 1 < before and len(table(weir).to_pyarrow_table()) == rows
    viewer.open("acts")
    wait_until(lambda: [act["state"] for act in weir.json("jobs")] == ["DONE"], "the job has ended", pause_s=0.5)
    viewer.open("acts")
    viewer.click_row("Acts on tables", 0)
    viewer.sees(re.compile(r"The same rows: proven"))
    told = re.search(r"reads ([\d.]+) files?, before ([\d.,]+)", viewer.main.inner_text())
    assert told and float(told[1]) < float(told[2].replace(",", "")), "a look-up reads fewer files"
    viewer.picture("acts")


@pytest.mark.usefixtures("resting")
def test_a_version_is_restored_and_that_is_taken_back(viewer: Viewer, weir: Weir) -> None:
    """Of a table that no stream reads: one that does stops at a restore, as the preview says."""
    latest = table(weir, LAST).version()
    before = rows_at(weir, latest)
    restore(viewer, latest - 1, f"The table, now v{latest}, becomes v{latest - 1} again")
    wait_until(lambda: table(weir, LAST).version() > latest, "the host has restored the version", pause_s=0.5)
    assert rows_at(weir, None) == rows_at(weir, latest - 1)
    restored = table(weir, LAST).version()
    restore(viewer, latest, f"becomes v{latest} again")
    wait_until(lambda: table(weir, LAST).version() > restored, "the host has taken it back", pause_s=0.5)
    assert rows_at(weir, None) == before
    stamp = json.loads(table(weir, LAST).history(1)[0]["userMetadata"])
    assert stamp["reason"] == f"browser test: v{latest}" and "restore" in stamp


def restore(viewer: Viewer, version: int, says: str) -> None:
    viewer.open("versions", table=LAST, at=version)
    viewer.main.get_by_role("button", name="Restore…").click()
    dialog = viewer.page.get_by_role("dialog")
    expect(dialog.get_by_text(says)).to_be_visible()
    viewer.settle()
    viewer.picture("act-restore")
    dialog.get_by_label("Reason").fill(f"browser test: v{version}")
    dialog.get_by_label(f"Type {LAST} to confirm").fill(LAST)
    dialog.locator(".st-key-table_act_send button").click()
    expect(dialog).to_have_count(0)


def rows_at(weir: Weir, version: int | None) -> list[str]:
    read = DeltaTable(str(weir.home / "lake" / LAST), version=version)
    return sorted(map(str, read.to_pyarrow_table().to_pylist()))


def table(weir: Weir, name: str = TABLE) -> DeltaTable:
    return DeltaTable(str(weir.home / "lake" / name))


def files(weir: Weir) -> int:
    return len(table(weir).file_uris())
