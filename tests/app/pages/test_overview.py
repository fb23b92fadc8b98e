"""Overview: what needs attention, tables by layer, streams; each row opens its page."""

import random
import re
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app import cache
from app.overview.visit import Visit
from backend.lake.model import TableRef
from backend.search.notice import Notice
from backend.search.notices import NoticeLooks
from backend.stream_model.stream import DesiredState
from tests.backend.search.test_notices import orders, write
from tests.worlds.lake import builders
from tests.worlds.pages.opened import again, forget_caches, home, links, metrics, open_page, press, send, words
from tests.worlds.processes import wait_until
from tests.worlds.store import stream_store

__all__ = ["home"]


@pytest.fixture
def lake(home: Path) -> Path:
    return builders.medallion_lake(home / "lake")


def test_a_fresh_lake_needs_nothing(lake: Path) -> None:
    app = open_page("overview")
    assert "Nothing needs attention" in words(app)
    assert metrics(app) == {
        "Tables": "3",
        "Rows": "9",
        "Files": "4",
        "Size": metrics(app)["Size"],
        "Streams running": "–",
    }
    frame = app.dataframe(key="overview_tables").value
    assert frame["Table"].tolist() == ["bronze/orders_raw", "silver/orders", "gold/orders_by_status"]
    assert frame["Rows"].tolist() == [3, 4, 2]


def test_what_needs_attention_is_worked_out_once_for_all_viewers(lake: Path) -> None:
    reading, streams = cache.lake_reading(), cache.streams_reading()
    assert cache.attention(reading, streams) is cache.attention(reading, streams)
    (lake / "silver" / "orders" / "_delta_log" / "00000000000000000003.json").write_text("{\n")
    wait_until(lambda: cache.lake_reading() is not reading, "the lake is read again")
    groups = cache.attention(cache.lake_reading(), cache.streams_reading())
    assert [(group.cause.name, group.items[0].subject) for group in groups] == [("UNREADABLE", "silver/orders")]


def test_an_old_reading_of_the_streams_is_shown_while_a_new_one_is_made(lake: Path) -> None:
    first = cache.streams_reading()
    wait_until(lambda: cache.streams_reading() is not first, "it is read again")
    second = cache.streams_reading()
    assert second.read_at > first.read_at
    cache.forget_streams()
    assert cache.streams_reading().read_at > second.read_at  # after an act nothing old is shown


def test_an_empty_lake_teaches(home: Path) -> None:
    text = words(open_page("overview"))
    assert "No Delta tables here yet" in text and "weir up" in text
    assert "No stream is declared yet" in text and "weir host" in text
    assert "fresh" not in text  # nothing was looked at, so nothing is praised


def test_an_unreadable_table_is_first_and_hides_no_other(lake: Path) -> None:
    log = lake / "gold" / "broken" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("{\n")
    app = open_page("overview")
    assert "1 thing needs attention" in words(app)
    frame = app.dataframe(key="overview_tables").value
    assert frame[frame["Table"] == "gold/broken"]["Version"].tolist() == ["unreadable"]
    assert len(frame) == 4 and metrics(app)["Tables"] == "4"


def test_a_failed_stream_needs_attention_with_a_link_to_it(lake: Path, home: Path) -> None:
    now = datetime.now(UTC)
    store = stream_store.open_store(home)
    stream_store.declare(store, "silver_events", now)
    stream_store.failed(store, "silver_events", now)
    stream_store.beat(store, now)
    store.close()
    app = open_page("overview")
    text = words(app).replace("*", "")
    assert "silver_events failed" in text and "restart it" in text
    assert "Open stream" in [link.label for link in app.main.page_link]
    assert app.dataframe(key="overview_streams").value["Verdict"].tolist() == ["✕ Failed"]


def test_a_dead_host_is_said_and_its_streams_are_unknown(lake: Path, home: Path) -> None:
    now = datetime.now(UTC)
    store = stream_store.open_store(home)
    stream_store.declare(store, "silver_events", now)
    store.ensure_desired("silver_events", DesiredState.RUNNING, now=now)
    stream_store.beat(store, now - timedelta(minutes=10))
    store.close()
    text = words(open_page("overview"))
    assert re.search(r"is silent\. 1 stream should run and nobody runs it · 10 min( \d+ s)? ago", text)
    assert "1 stream: 1 unknown" in text


def test_a_row_opens_its_table(lake: Path) -> None:
    app = open_page("overview")
    app.session_state["overview_tables"] = {"selection": {"rows": [], "columns": [], "cells": [(1, "Table")]}}
    again(app)
    assert app.title[0].value == "orders" and app.query_params == {"table": "silver/orders"}


def test_a_store_that_does_not_answer_is_not_a_healthy_one(
    lake: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "not_a_folder").write_text("")
    monkeypatch.setenv("WEIR_STORE__URL", f"sqlite:///{home}/not_a_folder/weir.db")
    app = open_page("overview")
    assert "Not known: streams could not be read" in words(app)
    assert len(app.dataframe(key="overview_tables").value) == 3


def test_of_many_streams_those_in_trouble_are_shown(lake: Path, home: Path) -> None:
    now, store = datetime.now(UTC), stream_store.open_store(home)
    stream_store.beat(store, now)
    stream_store.failed(store, "silver_broken", now)
    declared = store.declarations()["silver_broken"]
    store.declare([replace(declared, name=f"bronze_{number:03d}") for number in range(60)], now=now)
    app = open_page("overview")
    shown = app.dataframe(key="overview_streams").value["Stream"].tolist()
    assert shown[0] == "silver_broken" and len(shown) == 50
    assert "61 streams: 1 failed, 60 unknown" in words(app) and "50 of them: those in trouble first" in words(app)
    assert links(app)["All streams"] == ""


def test_what_is_new_since_this_browser_looked_last_is_one_line(lake: Path, home: Path) -> None:
    now = datetime.now(UTC)
    app = open_page("overview")
    assert "you last looked" not in words(app), "it is the first visit"
    app.session_state["_visit_before"] = Visit(now - timedelta(hours=3), 3)
    assert "Nothing new since you last looked, 3 h ago" in words(again(app))

    store = stream_store.open_store(home)
    stream_store.declare(store, "silver_events", now)
    stream_store.failed(store, "silver_events", now)
    stream_store.beat(store, now)
    store.close()
    cache.forget_streams()
    app.session_state["_visit_before"] = Visit(now - timedelta(hours=3), 1)
    again(app)
    assert "Since you last looked, 3 h ago" in words(app)
    assert {"1 failed stream", "2 tables more"} <= links(app).keys()


def test_without_a_host_the_server_looks_at_commits_itself_and_says_how_far_it_is(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, table = random.Random(7), home / "lake" / "orders"
    write(table, [*[orders(dice) for _ in range(8)], {**orders(dice), "amount": [47_189.0] * 20}])
    for name in ("a", "b"):
        builders.write(home / "lake" / name, orders(dice))
    let_go, look = threading.Event(), NoticeLooks.look

    def held(looks: NoticeLooks, ref: TableRef, since: datetime, now: datetime) -> list[Notice]:
        assert let_go.wait(60)
        return look(looks, ref, since, now)

    monkeypatch.setattr(NoticeLooks, "look", held)
    app = open_page("overview")
    wait_until(lambda: "0 of 3 tables looked at" in words(again(app)), "it has begun")
    assert "Nothing needs attention so far" in words(app)
    let_go.set()
    wait_until(lambda: "tables looked at" not in words(again(app)), "all are looked at")
    assert "→ 47,189 at v8, WRITE" in words(app) and "so far" not in words(app)

    app = open_page("table", table="orders")
    assert "→ 47,189 at v8, WRITE" in app.warning[0].value.replace("\\", "")
    press(app, "seen_8")
    send(app, "seen", "a price list in cents")
    assert not open_page("table", table="orders").warning
    assert "47,189" not in words(open_page("overview")), "and no more on any page"
    forget_caches()
    wait_until(lambda: "tables looked at" not in words(open_page("overview")), "another server looks")
    assert "47,189" not in words(open_page("overview"))
