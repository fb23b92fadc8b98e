"""Stop and start a stream from its page: it stops, the others go on, and nothing is lost or doubled."""

import re

import pytest
from deltalake import DeltaTable
from playwright.sync_api import Locator, expect

from app.ui.lists import TWO_LINES_PX
from tests.browser.conftest import STREAMS, Viewer, Weir, batches
from tests.worlds.processes import wait_until
from tests.worlds.streams.demo_ledger import Ledger

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("flowing")]

NAME = "silver_events"
OTHERS = [name for name in STREAMS if name != NAME]
FED = [name for name in OTHERS if name != "gold_events_hourly"]  # that one reads what the stopped stream writes


def ask(viewer: Viewer, action: str, reason: str) -> None:
    """Press a button of the stream's page and give the reason."""
    viewer.main.get_by_role("button", name=action, exact=True).click()
    dialog = viewer.page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_role("button", name=action, exact=True).click()
    expect(dialog).to_have_count(0)


def observed(viewer: Viewer, state: str) -> Locator:
    return viewer.page.locator(".st-key-state_row").filter(has_text=re.compile(rf"observed\s*\S*\s*{state}"))


def ticked(viewer: Viewer, *names: str) -> bool:
    """Tick the rows that are not; the list is live and sorted by urgency, so one may have moved under the mouse."""
    rows = [viewer.rows("Streams with").filter(has_text=name).first for name in names]
    for name, row in zip(names, rows, strict=True):
        if row.get_attribute("aria-selected") != "true":
            viewer.click_row("Streams with", viewer.row_of("Streams with", name), tick=True, row_px=TWO_LINES_PX)
    return all(row.get_attribute("aria-selected") == "true" for row in rows)


def silver_ids(weir: Weir) -> list[str]:
    table = DeltaTable(str(weir.home / "lake" / "silver" / "silver_events"))
    return table.to_pyarrow_table(columns=["event_id"])["event_id"].to_pylist()


@pytest.mark.ci
def test_a_stream_is_stopped_and_started_from_its_page(viewer: Viewer, weir: Weir) -> None:
    before = weir.streams()[NAME]
    viewer.open("stream", stream=NAME)
    expect(observed(viewer, "Running")).to_be_visible()

    ask(viewer, "Stop", "browser test: maintenance")
    expect(observed(viewer, "Stopped")).to_be_visible(timeout=120_000)
    viewer.picture("stream-stopped")

    with weir.store() as store:
        stopped_at = batches(store)
        viewer.page.get_by_role("link", name="All streams").click()
        viewer.heading("Streams")
        wait_until(
            lambda: all(batches(store)[name] > stopped_at[name] for name in FED),
            "the others go on",
            pause_s=0.5,
        )
    now = weir.streams()
    assert now[NAME]["state"] == "STOPPED"
    assert now[NAME]["batch_id"] == stopped_at[NAME]
    assert {now[name]["state"] for name in OTHERS} == {"RUNNING"}
    wait_until(lambda: weir.streams()[NAME]["backlog"]["rows"], "its host saw what waits", pause_s=2)
    assert weir.streams()[NAME]["backlog"]["oldest_unread_at"]
    wait_until(lambda: weir.streams()["gold_events_hourly"]["starved_by"] == NAME, "gold is starved", pause_s=2)

    viewer.open("stream", stream=NAME)
    waiting = viewer.page.locator(".st-key-flow_figures")
    expect(waiting).to_contain_text(re.compile(r"Waiting.*\d rows.*Input", re.DOTALL))
    viewer.picture("stream-waiting")
    ask(viewer, "Start", "browser test: done")
    expect(observed(viewer, "Running")).to_be_visible(timeout=120_000)
    expected = Ledger(weir.home).expected_silver_event_ids()
    wait_until(lambda: expected <= set(silver_ids(weir)), "every good event is in silver", pause_s=0.5)

    after, ids = weir.streams()[NAME], silver_ids(weir)
    assert after["query_id"] == before["query_id"]
    assert after["run_id"] != before["run_id"]
    assert after["batch_id"] > before["batch_id"]
    assert len(ids) == len(set(ids))
    flows = ("OK", "IDLE")
    wait_until(lambda: weir.streams()[NAME]["verdict"] in flows, "it has caught up", pause_s=2)


def test_an_act_without_a_reason_is_not_carried_out(viewer: Viewer, weir: Weir) -> None:
    viewer.open("stream", stream=NAME)
    viewer.main.get_by_role("button", name="Restart", exact=True).click()
    dialog = viewer.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Restart", exact=True).click()

    expect(dialog.get_by_text("A reason is needed")).to_be_visible()
    viewer.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert weir.streams()[NAME]["state"] == "RUNNING"


def test_several_streams_are_chosen_in_the_list(viewer: Viewer) -> None:
    viewer.open("streams")
    wait_until(lambda: ticked(viewer, "gold_events_hourly", "bronze_orders"), "two rows are ticked", pause_s=0.5)
    viewer.main.get_by_role("button", name="Restart", exact=True).click()

    expect(viewer.page.get_by_role("dialog").get_by_text("Restart 2 streams?")).to_be_visible()
    viewer.page.keyboard.press("Escape")


def test_a_live_page_moves_by_itself(viewer: Viewer) -> None:
    viewer.open("stream", stream="bronze_events")
    rows = viewer.page.locator(".st-key-flow_figures")
    first = rows.inner_text()

    wait_until(lambda: rows.inner_text() != first, "figures change without a hand", pause_s=0.5)
    viewer.picture("stream-live")
