"""The Streams page: what flows and what does not; acting on streams through the dialog."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pandas as pd
import pytest
import sqlalchemy as sa
import streamlit as st
from streamlit.testing.v1 import AppTest

from app.ui.view.words import PAGE_ROWS
from backend.access import Actor
from backend.format import rate_text
from backend.store.store import ControlStore
from backend.stream_model.stream import ATTACHED, DesiredState
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.opened import again, click, forget_caches, metrics, open_page, plain, press, send, tick, words
from tests.worlds.store import stream_store
from tests.worlds.store.statements import statements


def stream_list(app: AppTest) -> pd.DataFrame:
    """The list of streams, by name."""
    return frame_with(app, "Wanted").set_index("Stream")


def test_flowing_and_failed_streams_are_listed_most_urgent_first(store: ControlStore, now: datetime) -> None:
    stream_store.flowing(store, "bronze_events", now)
    stream_store.failed(store, "gold_events_hourly", now)
    listed = stream_list(app := open_page("streams"))
    assert list(listed.index) == ["gold_events_hourly", "bronze_events"]
    assert "2 streams: 1 running, 1 failed" in words(app)
    failed = listed.loc["gold_events_hourly"]
    assert failed["Wanted"] == "▶ Running"
    assert failed["Observed"] == "✕ Failed"
    assert failed["Last error"].startswith("ZeroDivisionError: division by zero")
    flowing = listed.loc["bronze_events"]
    assert flowing["Verdict"] == "✓ OK"
    assert flowing["Rows in"] == pytest.approx(sum(100 + 7 * (number % 5) for number in range(30, 36)) / 30)
    assert len(flowing["Last 5 min"]) == 36


def test_a_row_is_counted_once_and_every_page_says_the_same_rate(store: ControlStore, now: datetime) -> None:
    stream_store.flowing(store, "bronze_events", now)
    stream_store.flowing(store, "silver_events", now, source_tables=("bronze/bronze_events",))
    stream_store.flowing(store, "gold_events", now, source_tables=("silver/silver_events",))
    rows = stream_list(app := open_page("streams"))["Rows in"]
    said = f"3 streams: 3 running · {rate_text(rows['bronze_events'])} in"
    assert said in words(app) and said in words(open_page("overview"))
    for name, rate in rows.items():
        assert metrics(open_page("stream", stream=name))["Input"] == rate_text(rate)


def test_rows_that_nobody_can_read_are_left_out_and_counted(store: ControlStore, now: datetime) -> None:
    stream_store.flowing(store, "bronze_events", now)
    engine = sa.create_engine(store.shown_url)
    with engine.begin() as connection:
        forged = "SELECT 'gold\n<script>', '{\"half\": ', declared_at FROM declaration"
        connection.execute(sa.text(f"INSERT INTO declaration (name, body, declared_at) {forged}"))
    engine.dispose()
    listed = stream_list(app := open_page("streams"))
    assert list(listed.index) == ["bronze_events"]
    assert "row of the control store that cannot be read" in words(app)


def test_without_any_host_ever_the_page_says_how_to_start_one(home: Path, now: datetime) -> None:
    text = words(open_page("streams"))
    assert "No stream is declared yet" in text and "Click a cell" not in text and "weir host" in text
    stream_store.declare(stream_store.open_store(home), "bronze_events", now)
    forget_caches()
    app = open_page("streams")
    assert "No stream host has ever reported" in words(app)
    assert stream_list(app).loc["bronze_events", "Observed"] == "? Unknown"


@pytest.fixture
def two(store: ControlStore, now: datetime) -> ControlStore:
    """Two streams that keep up."""
    for name in ("bronze_events", "silver_events"):
        stream_store.flowing(store, name, now)
    return store


def test_ticked_streams_are_stopped_together_with_one_reason(two: ControlStore) -> None:
    app = open_page("streams")
    assert app.button(key="many_stop").disabled
    tick(app, "stream_list", 0, 1)
    press(app, "many_stop")
    send(app, "act", "upstream is being repaired")
    assert {wanted.state for wanted in two.desired().values()} == {DesiredState.STOPPED}
    assert {(entry.subject, entry.reason) for entry in two.audit_entries()} == {
        ("bronze_events", "upstream is being repaired"), ("silver_events", "upstream is being repaired"),
    }  # fmt: skip
    click(app, "stream_list", 0, "Stream")
    assert plain(app.title[0].value) == "bronze_events", "a cell opens its stream"


def test_a_tick_wins_over_what_was_chosen_before_and_over_what_becomes_urgent(two: ControlStore, now: datetime) -> None:
    app = open_page("streams")
    app.selectbox(key="act_scope").set_value("All streams")
    assert list(stream_list(again(app)).index) == ["bronze_events", "silver_events"]
    stream_store.failed(two, "silver_events", now)
    st.cache_data.clear()
    tick(app, "stream_list", 0)
    assert list(stream_list(app).index) == ["bronze_events", "silver_events"], "the row stays under the tick"
    assert (app.selectbox(key="act_scope").value, app.selectbox(key="act_scope").disabled) == ("Ticked rows", True)
    press(app, "many_stop")
    send(app, "act", "this one")
    assert [entry.subject for entry in two.audit_entries()] == ["bronze_events"]


def test_a_whole_layer_or_everything_is_acted_on_without_a_tick(store: ControlStore, now: datetime) -> None:
    stream_store.flowing(store, "silver_events", now, source_tables=("bronze/bronze_events",))
    stream_store.flowing(store, "bronze_events", now)
    stream_store.failed(store, "gold_events_hourly", now)
    store.request("gold_events_hourly", "stop", reason="since monday", actor=Actor("ann"), now=now)
    theirs = replace(store.declarations()["silver_events"], name="theirs", kind=ATTACHED, pipeline="nightly")
    store.declare([theirs], now=now)
    app = open_page("streams")
    layers = ["Layer bronze", "Layer gold", "Layer silver"]
    assert app.selectbox(key="act_scope").options == ["Ticked rows", "All streams", *layers]
    app.selectbox(key="act_scope").set_value("Layer gold")
    again(app)
    assert (app.button(key="many_stop").disabled, app.button(key="many_start").disabled) == (True, False)
    app.selectbox(key="act_scope").set_value("All streams")
    again(app)
    press(app, "many_stop")
    text = words(app)
    assert "2 streams, sources first: bronze_events, silver_events." in text.replace("\\", "")
    assert "Left out: theirs. Why: nightly, another Spark application, runs it" in text
    assert "Left out: gold_events_hourly. Why: It is wanted stopped already" in text.replace("\\", "")
    send(app, "act", "power cut")
    assert {each.state for each in store.desired().values()} == {DesiredState.STOPPED}
    asked = [entry.subject for entry in store.audit_entries() if entry.reason == "power cut"]
    assert asked == ["silver_events", "bronze_events"], "newest first"
    assert store.desired()["gold_events_hourly"].reason == "since monday"
    assert app.selectbox(key="act_scope").value == "All streams"


@pytest.fixture
def many(store: ControlStore, now: datetime) -> ControlStore:
    """So many streams that the list has two pages."""
    stream_store.flowing(store, "bronze_000", now)
    declared = store.declarations()["bronze_000"]
    store.declare([replace(declared, name=f"bronze_{number:03d}") for number in range(PAGE_ROWS + 3)], now=now)
    return store


def test_a_long_list_has_pages_and_a_search_through_all_of_them(many: ControlStore) -> None:
    first, second = open_page("streams"), open_page("streams", page_=2)
    assert (len(stream_list(first)), len(stream_list(second))) == (PAGE_ROWS, 3)
    assert f"Rows 101 to {PAGE_ROWS + 3} of {PAGE_ROWS + 3}." in words(second)
    found = open_page("streams", q="RUNNING bronze")
    assert list(stream_list(found).index) == ["bronze_000"] and "1 stream found." in words(found)


def test_a_tick_counts_on_the_page_and_in_the_search_where_it_was_made(many: ControlStore) -> None:
    app = open_page("streams", page_=2)
    name = stream_list(app).index[1]
    tick(app, "stream_list_2_", 1)
    press(app, "many_stop")
    send(app, "act", "this one")
    assert [entry.subject for entry in many.audit_entries()] == [name]
    app.text_input(key="q").set_value("bronze_00")
    again(app)
    assert app.button(key="many_stop").disabled


def test_many_streams_take_as_many_statements_as_few(store: ControlStore, now: datetime) -> None:
    """Of a refresh."""

    def count() -> int:
        app = open_page("streams")
        with statements(store) as sent:
            again(app)
        return len(sent)

    stream_store.flowing(store, "bronze_0", now)
    few = count()
    for number in range(1, 8):
        stream_store.flowing(store, f"bronze_{number}", now)
    st.cache_resource.clear()
    assert count() == few
