"""The graph of the Pipeline page: drawn once, changed in place, and a way to streams by mouse and keyboard."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from backend.store.store import ControlStore
from backend.stream_model.stream import StreamInput, StreamState
from tests.worlds.browser.server import pages_over
from tests.worlds.store import stream_store

pytestmark = [pytest.mark.browser]

ODD = "topic <img src=x onerror=\"document.title='broken in'\"> & co"
# Twenty times a second: is the picture that was there first still there, with all its nodes?
WATCH = """() => {
  const picture = document.querySelector(".weir-graph svg");
  window.watched = { looks: 0, blank: 0 };
  setInterval(() => {
    window.watched.looks += 1;
    window.watched.blank += !picture.isConnected || picture.querySelectorAll(".node").length !== 3
      || picture.getBoundingClientRect().height < 60;
  }, 50);
}"""


@dataclass(frozen=True, slots=True)
class Served:
    url: str
    store: ControlStore


@pytest.fixture
def served(browser_type_launch_args: dict[str, Any], tmp_path: Path) -> Iterator[Served]:
    store, now = stream_store.open_store(tmp_path), datetime.now(UTC)
    stream_store.beat(store, now)
    said = {
        "bronze_events": {"inputs": (StreamInput("kafka", ODD),)},
        "silver_events": {"source_tables": ("bronze/bronze_events",)},
    }
    for name, more in said.items():
        stream_store.flowing(store, name, now)
        store.declare([replace(store.declarations()[name], **more)], now=now)  # type: ignore[arg-type]
    try:
        with pages_over(tmp_path, WEIR_HOST__HEARTBEAT_STALE_S="600", WEIR_UI__LIVE_INTERVAL_S="0.4") as weir:
            yield Served(weir.url, store)
    finally:
        store.close()


@pytest.mark.ci
def test_the_graph_changes_in_place_and_leads_to_streams(page: Page, served: Served) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{served.url}/pipeline")
    graph = page.locator(".weir-graph")
    # Nobody writes batches here, so on a slow machine it may be stalled by now.
    bronze = graph.get_by_role("link", name=re.compile("^bronze_events, streaming table, (running|stalled)"))
    expect(bronze).to_be_visible(timeout=40_000)
    expect(graph.locator(".node")).to_have_count(3)
    expect(graph.locator(".node text").filter(has_text="& co")).to_have_count(1)
    expect(graph.locator("img")).to_have_count(0)
    expect(graph.locator(".edge text")).to_have_text([re.compile("rows/min")] * 2)
    page.evaluate(WATCH)

    stream_store.observe(served.store, "bronze_events", StreamState.FAILED, datetime.now(UTC))

    failed = graph.get_by_role("link", name="bronze_events, streaming table, failed")
    expect(failed.locator("text").nth(2)).to_have_text("✕ Failed")
    expect(graph.locator(".edge text").first).to_have_text("0 rows/min")
    page.wait_for_function("() => window.watched.looks > 40")
    assert page.evaluate("window.watched.blank") == 0

    failed.click()
    expect(page).to_have_url(re.compile(r"/stream\?stream=bronze_events"))
    expect(page.get_by_role("heading", name="bronze_events")).to_be_visible()
    page.go_back()
    silver = graph.get_by_role("link", name=re.compile("^silver_events"))
    expect(silver).to_be_visible()
    silver.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/stream\?stream=silver_events"))
    assert errors == [] and page.title() != "broken in"
