"""An operator before the running demo: a stream stopped and started, what waits for it meanwhile, files merged.

Each effect is looked up outside the page.
"""

import os
import re
from pathlib import Path

import pytest
from deltalake import DeltaTable
from playwright.sync_api import Page, expect

from tests.worlds.browser.viewer import Viewer
from tests.worlds.browser.weir import RUNNING, STREAMS, Weir, batches, demo, states
from tests.worlds.processes import wait_until
from tests.worlds.streams.demo_ledger import Ledger

pytestmark = [pytest.mark.browser, pytest.mark.spark, pytest.mark.ci]

NAME = "silver_events"
OTHERS = [name for name in STREAMS if name != NAME]
FED = [name for name in OTHERS if not name.startswith("gold")]  # one of those reads what the stopped stream writes
MANY_FILES = "bronze/bronze_events"
CALM_MINUTES = float(os.environ.get("WEIR_TEST_CALM_MINUTES", "30"))
# Four times a second: how far has what stands below the list of what needs attention moved?
WATCH_SHIFTS = """() => {
  const below = () => document.querySelector(".st-key-overview_lists").getBoundingClientRect().top
  let top = below()
  window.shifts = []
  setInterval(() => {
    const moved = Math.round(below() - top)
    if (moved) window.shifts.push([Math.round(performance.now() / 1000), moved])
    top += moved
  }, 250)
}"""


def silver_ids(weir: Weir) -> list[str]:
    table = DeltaTable(str(weir.home / "lake" / "silver" / "silver_events"))
    return table.to_pyarrow_table(columns=["event_id"])["event_id"].to_pylist()


@pytest.mark.usefixtures("flowing")
def test_a_stream_is_stopped_and_started_from_its_page(operator: Viewer, weir: Weir) -> None:
    operator.open("stream", stream=NAME)
    expect(operator.observed("Running")).to_be_visible()
    with weir.store() as store:
        before = store.observed()[NAME]
        operator.ask("Stop", "browser test: maintenance")
        expect(operator.observed("Stopped")).to_be_visible(timeout=120_000)
        assert {state for name, state in states(store).items() if name != NAME} == {RUNNING}
        operator.picture("stream-stopped")
        operator.ask("Start", "browser test: done")
        expect(operator.observed("Running")).to_be_visible(timeout=120_000)
        after = store.observed()[NAME]
    assert after.query_id == before.query_id and after.run_id != before.run_id


@pytest.mark.soak
@pytest.mark.usefixtures("flowing")
def test_what_waits_for_a_stopped_stream_is_told_and_read_once_it_runs_again(operator: Viewer, weir: Weir) -> None:
    operator.open("stream", stream=NAME)
    operator.ask("Stop", "browser test: maintenance")
    expect(operator.observed("Stopped")).to_be_visible(timeout=120_000)
    with weir.store() as store:
        stopped_at = batches(store)
        operator.page.get_by_role("link", name="All streams").click()
        operator.heading("Streams")
        wait_until(
            lambda: all(batches(store)[name] > stopped_at[name] for name in FED), "the others go on", pause_s=0.5
        )
    now = weir.streams()
    assert now[NAME]["state"] == "STOPPED"
    assert now[NAME]["batch_id"] == stopped_at[NAME]
    assert {now[name]["state"] for name in OTHERS} == {"RUNNING"}
    wait_until(lambda: weir.streams()[NAME]["backlog"]["rows"], "its host saw what waits", pause_s=4)
    assert weir.streams()[NAME]["backlog"]["oldest_unread_at"]
    wait_until(lambda: weir.streams()["gold_events_hourly"]["starved_by"] == NAME, "gold is starved", pause_s=4)

    operator.open("stream", stream=NAME)
    waiting = operator.page.locator(".st-key-flow_figures")
    expect(waiting).to_contain_text(re.compile(r"Waiting.*\d rows.*Input", re.DOTALL))
    operator.picture("stream-waiting")
    operator.ask("Start", "browser test: done")
    expect(operator.observed("Running")).to_be_visible(timeout=120_000)
    expected = Ledger(weir.home).expected_silver_event_ids()
    wait_until(lambda: expected <= set(silver_ids(weir)), "every good event is in silver", pause_s=0.5)

    ids = silver_ids(weir)
    assert weir.streams()[NAME]["batch_id"] > stopped_at[NAME]
    assert len(ids) == len(set(ids))
    flows = ("OK", "IDLE")
    wait_until(lambda: weir.streams()[NAME]["verdict"] in flows, "it has caught up", pause_s=4)


@pytest.mark.usefixtures("resting")
def test_small_files_are_merged_and_the_rows_proven_the_same(operator: Viewer, weir: Weir) -> None:
    before = files(weir)
    rows, version = len(table(weir).to_pyarrow_table()), table(weir).version()
    operator.open("health", table=MANY_FILES)
    dialog = operator.dialog("Optimize…")
    expect(dialog.get_by_text(f"{before} files (")).to_be_visible()
    operator.settle()
    operator.picture("act-optimize")
    operator.send("browser test: readers are slow", dialog.locator(".st-key-table_act_send button"))

    wait_until(lambda: table(weir).version() > version, "the host has merged the files", pause_s=0.5)
    assert files(weir) == 1 < before and len(table(weir).to_pyarrow_table()) == rows
    operator.open("acts")
    wait_until(lambda: {act["state"] for act in weir.json("jobs")} == {"DONE"}, "the job has ended", pause_s=0.5)
    operator.open("acts")
    operator.click_row("Acts on tables", 0)
    operator.sees(re.compile(r"The same rows: proven"))
    told = re.search(r"reads ([\d.]+) files?, before ([\d.,]+)", operator.main.inner_text())
    assert told and float(told[1]) < float(told[2].replace(",", "")), "a look-up reads fewer files"
    operator.picture("acts")


def table(weir: Weir) -> DeltaTable:
    return DeltaTable(str(weir.home / "lake" / MANY_FILES))


def files(weir: Weir) -> int:
    return len(table(weir).file_uris())


@pytest.mark.soak
@pytest.mark.timeout(CALM_MINUTES * 60 + 900)
def test_overview_hardly_ever_moves(page: Page, tmp_path: Path) -> None:
    """Over the demo as people start it."""
    with demo(tmp_path / "demo") as weir:
        page.goto(weir.url)
        expect(page.locator(".st-key-overview_streams")).to_be_visible()
        page.wait_for_timeout(120_000)  # the first batches of all streams
        page.evaluate(WATCH_SHIFTS)
        page.wait_for_timeout(CALM_MINUTES * 60_000)
        shifts = page.evaluate("window.shifts")
        page.screenshot(path=tmp_path / "overview.png", full_page=True)
    assert len(shifts) <= 2 and all(abs(pixels) <= 40 for _, pixels in shifts), shifts
