"""A table is put right from the page that found the fault: what was said first is what its log says afterwards."""

import json
import re

import pytest
from deltalake import DeltaTable
from playwright.sync_api import expect

from tests.browser.conftest import Viewer, Weir
from tests.processes import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.long]

TABLE = "bronze/bronze_events"


@pytest.mark.usefixtures("resting")
def test_small_files_are_merged_and_a_version_is_restored(viewer: Viewer, weir: Weir) -> None:
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
    viewer.picture("acts")

    viewer.open("versions", table=TABLE, at=version)
    viewer.main.get_by_role("button", name="Restore…").click()
    dialog = viewer.page.get_by_role("dialog")
    expect(dialog.get_by_text(f"The table, now v{version + 1}, becomes v{version} again")).to_be_visible()
    viewer.settle()
    viewer.picture("act-restore")
    dialog.get_by_label("Reason").fill("browser test: as it was")
    dialog.get_by_label(f"Type {TABLE} to confirm").fill(TABLE)
    dialog.locator(".st-key-table_act_send button").click()
    expect(dialog).to_have_count(0)
    wait_until(lambda: files(weir) == before, "the host has restored the version", pause_s=0.5)
    assert len(table(weir).to_pyarrow_table()) == rows
    stamps = [json.loads(commit["userMetadata"]) for commit in table(weir).history(2)]
    assert [(stamp["reason"], *({*stamp} - {"by", "reason"})) for stamp in stamps] == [
        ("browser test: as it was", "restore"),
        ("browser test: readers are slow", "optimize"),
    ]


def table(weir: Weir) -> DeltaTable:
    return DeltaTable(str(weir.home / "lake" / TABLE))


def files(weir: Weir) -> int:
    return len(table(weir).file_uris())
