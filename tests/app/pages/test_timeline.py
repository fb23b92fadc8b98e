"""The timeline page: full, empty, broken, without streams; its links, and the ways to it."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from backend.search.notice import Measure, Notice
from backend.store.store import ControlStore
from tests.backend.streams.test_timeline import NOW, store
from tests.worlds.lake.builders import write
from tests.worlds.pages.frames import frame_with, titles
from tests.worlds.pages.opened import again, forget_caches, links, open_page, words

__all__ = ["store"]


def test_what_happened_is_drawn_listed_and_leads_to_changes(store: ControlStore) -> None:
    app = open_page("timeline", table="silver")
    frame = frame_with(app, "Kind", "What")
    assert len(frame) == 26 and frame["Kind"].value_counts()["commit"] == 10
    assert frame["When"].is_monotonic_increasing, "the newest first"
    assert links(app)["What changed: v0 → v3"] == "table=silver&from=0&to=3"
    said = "1 notice, 2 failures, 2 acts, 2 stops, 3 starts, 6 batches, 10 commits"
    assert said in words(app) and titles(app) == said
    assert "Left out" not in words(app)


def test_a_time_of_the_url_is_the_time_that_is_shown(store: ControlStore) -> None:
    since, until = (f"{NOW - timedelta(minutes=minutes):%Y-%m-%d %H:%M:%SZ}" for minutes in (45, 29))
    app = open_page("timeline", table="silver", since=since, until=until)
    assert len(frame_with(app, "Kind", "What")) == 3
    assert "What changed" not in str(links(app))
    app.text_input(key="until").set_value("")
    assert len(frame_with(again(app), "Kind", "What")) > 3 and app.query_params["since"] == since
    app.text_input(key="since").set_value("one day")
    assert "not a time" in words(again(app)).lower()


def test_nothing_happened_or_the_store_does_not_answer(home: Path) -> None:
    write(home / "lake" / "orders", {"id": [1]})
    app = open_page("timeline", table="orders", since="2000-01-01", until="2000-01-02")
    assert "Nothing happened in this time" in words(app) and not app.get("plotly_chart")
    forget_caches()
    shutil.rmtree(home / "store", ignore_errors=True)
    (home / "store").mkdir()
    (home / "store" / "weir.db").write_text("no database" * 100)
    app = open_page("timeline", table="orders")
    assert app.error and len(frame_with(app, "Kind", "What")) == 1
    assert "Left out: all but commits: no control store is read." in words(app)


def test_a_table_whose_state_cannot_be_read(store: ControlStore, home: Path) -> None:
    (home / "lake" / "silver" / "_delta_log" / f"{0:020d}.json").write_text("{")
    app = open_page("timeline", table="silver")
    assert len(frame_with(app, "Kind", "What")) == 26 and app.error


def test_ways_to_it(store: ControlStore, home: Path) -> None:
    uri = str(home / "lake" / "silver")
    open_one = Notice(uri, "silver", 1, Measure.ROWS, "", "9", "1", "", "DELETE", datetime(2026, 1, 1, 12, tzinfo=UTC))
    store.noticed.keep([open_one], now=datetime.now(UTC))
    page = open_page("table", table="silver")
    around = "since=2026-01-01+11%3A30%3A00+UTC&until=2026-01-01+12%3A30%3A00+UTC"
    assert links(page)["Timeline"] == f"table=silver&{around}"
    assert links(open_page("stream", stream="clean"))["Timeline"] == "table=silver"
