"""The Pipeline page: what feeds what, as words and as a list; its picture is drawn in a browser."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.store.store import ControlStore
from backend.stream_model.stream import StreamInput, StreamState
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.opened import home, open_page, words
from tests.worlds.store import stream_store

__all__ = ["home"]
LANDING = StreamInput("files", "files in landing/events")


def declared(store: ControlStore, name: str, now: datetime, **said: object) -> None:
    """A running stream that was declared with more than `stream_store` says."""
    stream_store.flowing(store, name, now)
    store.declare([replace(store.declarations()[name], **said)], now=now)  # type: ignore[arg-type]


@pytest.fixture
def store(home: Path):
    now, store = datetime.now(UTC), stream_store.open_store(home)
    stream_store.beat(store, now)
    declared(store, "bronze_events", now, inputs=(LANDING,), pipeline="events")
    declared(store, "silver_events", now, source_tables=("bronze/bronze_events",), pipeline="events")
    declared(store, "gold_orders", now, source_tables=("silver/orders",), pipeline="orders")
    yield store
    store.close()


def test_the_list_shows_what_each_stream_reads_and_how_fast(store: ControlStore) -> None:
    app = open_page("pipeline")
    rows = frame_with(app, "Reads").set_index("Name")
    assert rows["Reads"].to_dict() == {
        "files in landing/events": "–", "bronze_events": "files in landing/events", "silver_events": "bronze_events",
        "orders": "–", "gold_orders": "orders",
    }  # fmt: skip
    read = sum(batch.num_input_rows for batch in store.progress("silver_events"))
    assert rows.loc["silver_events", "Rows/min"] == pytest.approx(read / 5, abs=0.1)
    assert rows.loc["silver_events", "Row expectations"] == "–"
    assert rows.loc["silver_events", "Why"].startswith("Keeps up")
    assert "3 streams, 3 running. 1 source, 1 other table." in words(app)


def test_a_link_opens_one_pipeline(store: ControlStore) -> None:
    app = open_page("pipeline", pipeline="orders")
    assert frame_with(app, "Reads")["Name"].tolist() == ["orders", "gold_orders"]
    assert app.query_params["pipeline"] == "orders"


def test_without_streams_the_page_says_how_to_declare_them(home: Path) -> None:
    said = words(open_page("pipeline"))
    assert "No streams: no host has declared any yet." in said and "docs/pipelines.md" in said
    assert "weir host" in said


def test_a_silent_store_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_STORE__URL", f"sqlite:///{home / 'is-a-folder'}")
    (home / "is-a-folder").mkdir()
    app = open_page("pipeline")
    assert "The control store does not answer." in words(app) and not app.dataframe


def test_a_failed_stream_says_so(store: ControlStore) -> None:
    stream_store.observe(store, "gold_orders", StreamState.FAILED, datetime.now(UTC))
    rows = frame_with(open_page("pipeline"), "Reads").set_index("Name")
    assert rows.loc["gold_orders", "State"] == "✕ Failed" and rows.loc["gold_orders", "Rows/min"] == 0
