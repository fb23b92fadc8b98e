"""The Pipeline page: what feeds what as a list, and how late each layer is; its picture is drawn in a browser."""

import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from app.server import metrics
from backend.format import duration_text
from backend.store.store import ControlStore
from backend.stream_model.stream import StreamInput, StreamState
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.opened import forget_caches, open_page, words
from tests.worlds.processes import wait_until
from tests.worlds.store import stream_store
from tests.worlds.streams.checkpoints import declare_anew
from tests.worlds.terminal import Weir, weir

__all__ = ["weir"]
LANDING = StreamInput("files", "files in landing/events")


def declare(store: ControlStore, name: str, now: datetime, **changes: Any) -> None:
    """A running stream that was declared with more than `stream_store` says."""
    stream_store.flowing(store, name, now)
    store.declare([replace(store.declarations()[name], **changes)], now=now)


@pytest.fixture
def events(store: ControlStore, now: datetime) -> ControlStore:
    """Two streams of the pipeline events, one of orders."""
    declare(store, "bronze_events", now, inputs=(LANDING,), pipeline="events")
    declare(store, "silver_events", now, source_tables=("bronze/bronze_events",), pipeline="events")
    declare(store, "gold_orders", now, source_tables=("silver/orders",), pipeline="orders")
    return store


def test_the_list_shows_what_each_stream_reads_and_how_fast(events: ControlStore, now: datetime) -> None:
    app = open_page("pipeline")
    rows = frame_with(app, "Reads").set_index("Name")
    assert rows["Reads"].to_dict() == {
        "files in landing/events": None, "bronze_events": "files in landing/events", "silver_events": "bronze_events",
        "orders": None, "gold_orders": "orders",
    }  # fmt: skip
    read = sum(batch.num_input_rows for batch in events.progress("silver_events"))
    assert rows.loc["silver_events", "Rows/min"] == pytest.approx(read / 5, abs=0.1)
    assert rows.loc["silver_events", "Row expectations, 5 min"] is None
    assert rows.loc["silver_events", "Why"].startswith("Keeps up")
    assert "3 streams, 3 running. 1 source, 1 other table." in words(app)
    stream_store.observe(events, "gold_orders", StreamState.FAILED, now)
    forget_caches()
    app = open_page("pipeline", pipeline="orders")
    assert app.query_params["pipeline"] == "orders", "a link opens one pipeline"
    rows = frame_with(app, "Reads").set_index("Name")
    assert list(rows.index) == ["orders", "gold_orders"]
    assert rows.loc["gold_orders", "State"] == "✕ Failed" and rows.loc["gold_orders", "Rows/min"] == 0


def test_without_streams_the_page_says_how_to_declare_them(home: Path) -> None:
    text = words(open_page("pipeline"))
    assert "No stream is declared yet" in text and "docs/pipelines.md" in text
    assert "weir host" in text and "Landing" not in text, "without layers there is no latency"


# Latency, over real tables, with the commits' times as the recount ----------------------------------------------------


def commit(uri: Path, at: datetime) -> None:
    """One more version, whose log says this time."""
    write_deltalake(uri, pa.table({"id": [1, 2]}), mode="append")
    entry = uri / "_delta_log" / f"{DeltaTable(uri).version():020}.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["timestamp"] = int(at.timestamp() * 1_000)
    entry.write_text("\n".join(map(json.dumps, actions)))
    os.utime(entry, (at.timestamp(), at.timestamp()))


def reads(store: ControlStore, name: str, source: Path, ends: list[tuple[datetime, int]], home: Path) -> None:
    """A running stream: when its batches ended, and the version of its source before which each had read all."""
    now = datetime.now(UTC)
    stream_store.declare(store, name, now)
    stream_store.observe(store, name, stream_store.StreamState.RUNNING, now)
    said = replace(
        store.declarations()[name],
        inputs=(StreamInput("table", source.name, str(source)),),
        source_tables=(f"{source.parent.name}/{source.name}",),
        sink_uri=str(home / "lake" / name.split("_")[0] / name),
        pipeline="shop",
    )
    declare_anew(store, said, now=now)
    for number, (ended, version) in enumerate(ends):
        end = {"reservoirId": DeltaTable(source).metadata().id, "reservoirVersion": version, "index": -1}
        batch = stream_store.batch(name, number, ended, run_id="r")
        raw = json.dumps({"sources": [{"endOffset": {**end, "isStartingVersion": False}}]})
        began = ended - timedelta(milliseconds=batch.batch_duration_ms or 0)
        store.add_progress([replace(batch, progressed_at=began, raw_json=raw)])


@pytest.fixture
def layers(home: Path, store: ControlStore, now: datetime) -> ControlStore:
    """Raw rows came 300, 200 and 100 s ago. Silver read two of them, one at 250 s and one at 150 s; gold the first."""
    raw, silver = home / "lake" / "bronze" / "raw", home / "lake" / "silver" / "silver_rows"
    for ago in (300, 200, 100):
        commit(raw, now - timedelta(seconds=ago))
    for ago in (250, 150):
        commit(silver, now - timedelta(seconds=ago + 1))
    reads(store, "silver_rows", raw, [(now - timedelta(seconds=ago), n) for ago, n in ((250, 1), (150, 2))], home)
    reads(store, "gold_rows", silver, [(now - timedelta(seconds=240), 1)], home)
    return store


def test_a_layer_is_as_old_as_the_oldest_commit_that_it_lacks(layers: ControlStore, now: datetime, weir: Weir) -> None:
    app = open_page("pipeline")
    shown = {each.label: each.value for each in app.metric}
    silver, gold = weir("pipelines", "latency", "--json").document
    past_s = (datetime.now(UTC) - now).total_seconds()
    for layer, ago, why in (("silver", 100, "raw's third commit"), ("gold", 200, "raw's second, written by silver")):
        assert shown[f"Landing to {layer}"] in {duration_text(ago + s) for s in range(int(past_s) + 2)}, why

    assert (silver["layer"], gold["layer"], gold["pipeline"]) == ("silver", "gold", "shop")
    for found, ago in ((silver, 100), (gold, 200)):
        assert datetime.fromisoformat(found["complete_until"]) == pytest.approx(
            now - timedelta(seconds=ago), abs=timedelta(milliseconds=1)
        )
        assert ago <= found["latency_s"] <= ago + past_s
    assert "gold_rows" in weir("pipelines", "latency").out


def test_the_metric_is_that_age_and_absent_where_it_is_not_known_and_the_page_names_the_stream(
    layers: ControlStore, now: datetime, home: Path
) -> None:
    def told() -> dict[str, float]:
        families = {each.name: each.samples for each in metrics.Scrape().collect()}
        samples = families.get("weir_pipeline_latency_seconds", [])
        assert {each.labels["pipeline"] for each in samples} <= {"shop"}
        return {each.labels["layer"]: each.value for each in samples}

    wait_until(lambda: len(told()) == 2, "both layers are told")
    ages_s, past_s = told(), (datetime.now(UTC) - now).total_seconds()
    assert 100 <= ages_s["silver"] <= 100 + past_s and 200 <= ages_s["gold"] <= 200 + past_s
    reads(layers, "silver_more", home / "lake" / "bronze" / "raw", [], home)
    forget_caches()
    wait_until(lambda: set(told()) == {"gold"}, "nobody knows how far that one has read")
    app = open_page("pipeline")
    (silver,) = (each for each in app.metric if each.label == "Landing to silver")
    assert silver.value == "–" and "silver" in silver.help and "more and what feeds it" in silver.help
    assert "Landing to gold" in {each.label for each in app.metric}
