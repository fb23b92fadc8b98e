"""`/metrics` of the page over a lake with streams: each number beside what the command line says at the same moment."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import sqlalchemy as sa
from deltalake import DeltaTable
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from app import cache, services
from app.server import metrics
from app.ui.lake import LakeReader
from backend.caches import LatestAnswer
from backend.errors import StorageError
from backend.metrics import OF_PAGE
from backend.store.store import ControlStore
from backend.stream_model.stream import StreamDeclaration, StreamInput, StreamState
from tests.worlds.lake import builders
from tests.worlds.pages.opened import forget_caches, home, printed_json
from tests.worlds.processes import wait_until
from tests.worlds.programs import promtool
from tests.worlds.store import stream_store
from tests.worlds.streams.attached import INBOX, beat, report
from tests.worlds.streams.checkpoints import delta_offset, write_checkpoint

__all__ = ["home"]
HOSTILE = 'no"w \\ then}\n7'
NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Streams that are behind, caught up, failed and unknown; tables large and small, one broken, one oddly named."""
    home = tmp_path_factory.mktemp("metrics")
    lake = home / "lake"
    for rows in (10, 20, 30):
        builders.write(lake / "bronze" / "events", {"id": list(range(rows))})
    builders.orders_table(lake / "silver" / "orders")
    builders.write(lake / "renamed", {"id": [1]}).rename(lake / HOSTILE)
    builders.HandLog(lake / "broken").raw("00000000000000000000.json", "{\n")
    store = stream_store.open_store(home)
    _reading(store, home, "behind", version=1)
    _reading(store, home, "caught_up", version=3)
    stream_store.flowing(store, "uncounted", NOW)
    stream_store.failed(store, "failed", NOW)
    stream_store.declare(store, "never_seen", NOW)
    stream_store.beat(store, NOW)
    store.close()
    with pytest.MonkeyPatch.context() as env:
        env.setenv("WEIR_HOME", str(home))
        env.setenv("WEIR_CONFIG", os.devnull)
        env.setenv("WEIR_HOST__HEARTBEAT_STALE_S", "6000")
        forget_caches()
        yield home
    forget_caches()


@pytest.fixture(scope="module")
def text(world: Path) -> str:
    return page_text()


def _reading(store: ControlStore, folder: Path, name: str, *, version: int) -> None:
    """A stream that reads bronze/events and stands before `version`; the log is kept for ten days."""
    table = folder / "lake" / "bronze" / "events"
    place = folder / "checkpoints" / name
    offset = delta_offset(str(DeltaTable(str(table)).metadata().id), version)
    write_checkpoint(place, {4: [offset]})
    source = StreamInput("table", "bronze/events", str(table))
    declared = StreamDeclaration(
        name, "", "bronze/events", f"/l/{name}", name, (), "silver", 5_000, str(place), inputs=(source,), pipeline=name
    )
    store.declare([declared], now=NOW)
    stream_store.observe(store, name, StreamState.RUNNING, NOW)
    quality = {HOSTILE: 2.5, "rows": version, "word": "no number", "nothing": None}
    raw_json = json.dumps({"sources": [{"endOffset": json.loads(offset)}], "observedMetrics": {"quality": quality}})
    store.add_progress([replace(each, raw_json=raw_json) for each in stream_store.batches(name, NOW)])


def page_text() -> str:
    """A whole answer: the first ones tell nothing of what is still being read."""
    forget_caches()  # of a test with other settings
    found = [""]

    def is_whole() -> bool:
        found[0] = generate_latest(metrics.Scrape()).decode()
        of_streams = any(f"\n{name}" in found[0] for name in ("weir_store_up 0", "weir_pipeline_latency_seconds{"))
        return of_streams and "\nweir_lake_tables_read" in found[0]

    wait_until(is_whole, lambda: found[0])
    return found[0]


def samples(text: str, name: str) -> list[Sample]:
    return [one for family in text_string_to_metric_families(text) for one in family.samples if one.name == name]


def series(text: str, name: str) -> dict[str, float]:
    """By stream or table."""
    return {next(iter(sample.labels.values()), ""): sample.value for sample in samples(text, name)}


def one_of(text: str, name: str, label: str) -> dict[str, str]:
    """What holds of each stream: the label whose series is 1, of which there is one."""
    holds = [sample.labels for sample in samples(text, name) if sample.value]
    assert len(holds) == len({labels["stream"] for labels in holds})
    return {labels["stream"]: labels[label] for labels in holds}


def known(found: Mapping[str, float | None]) -> dict[str, float]:
    return {name: float(value) for name, value in found.items() if value is not None}


def test_streams_are_as_the_command_line_says(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, streams = page_text(), printed_json(capsys, "streams")
    assert {each["name"] for each in streams} == {"behind", "caught_up", "uncounted", "failed", "never_seen"}
    assert one_of(text, "weir_stream_state", "state") == {each["name"]: each["state"] for each in streams}
    assert one_of(text, "weir_stream_verdict", "verdict") == {each["name"]: each["verdict"] for each in streams}
    for unit in ("bytes", "files", "rows", "versions"):
        told = {each["name"]: (each["backlog"] or {}).get(unit) for each in streams}
        assert series(text, f"weir_stream_backlog_{unit}") == known(told)
    assert series(text, "weir_stream_drain_seconds") == known({s["name"]: s["backlog"]["drain_s"] for s in streams})
    lost_at = {s["name"]: datetime.fromisoformat(s["data_loss_at"]).timestamp() for s in streams if s["data_loss_at"]}
    assert set(lost_at) == {"behind"}
    assert series(text, "weir_stream_data_loss_timestamp_seconds") == pytest.approx(lost_at)
    for metric, key in (
        ("weir_stream_batch_id", "batch_id"),
        ("weir_stream_input_rows_per_second", "input_rows_per_s"),
        ("weir_stream_processed_rows_per_second", "processed_rows_per_s"),
    ):
        assert series(text, metric) == pytest.approx(known({each["name"]: each[key] for each in streams}))
    age_s = series(text, "weir_stream_backlog_seconds")
    assert age_s["caught_up"] == 0 < age_s["behind"]
    assert series(text, "weir_stream_recent_failures")["failed"] == 1
    assert series(text, "weir_stream_last_batch_duration_seconds")["behind"] == 0.9 + 0.04 * (35 % 7) + 0.4


def test_what_functions_observed_is_as_the_command_line_says(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    served = {
        (sample.labels["stream"], sample.labels["metric"]): sample.value
        for sample in samples(text, "weir_stream_observed")
        if sample.labels["observation"] == "quality"
    }
    told = {
        (name, each["name"]): each["value"]
        for name in ("behind", "caught_up")
        for each in printed_json(capsys, "stream", name)["metrics"]
    }
    assert len(told) == 8 and {told[name, "word"] for name in ("behind", "caught_up")} == {"no number"}
    assert served == {key: value for key, value in told.items() if not isinstance(value, str) and value is not None}
    assert set(served) == {(name, key) for name in ("behind", "caught_up") for key in (HOSTILE, "rows")}


def test_tables_are_as_the_command_line_says(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    tables = printed_json(capsys, "tables")
    cards = {each["name"]: each for each in tables if "reason" not in each}
    assert HOSTILE in cards and len(tables) == len(cards) + 1
    for metric, key in (
        ("weir_table_size_bytes", "size_bytes"),
        ("weir_table_files", "num_files"),
        ("weir_table_small_files", "small_files"),
        ("weir_table_rows", "num_rows"),
        ("weir_table_version", "version"),
    ):
        assert series(text, metric) == known({name: card[key] for name, card in cards.items()})
    times = {name: datetime.fromisoformat(card["last_commit_at"]).timestamp() for name, card in cards.items()}
    assert series(text, "weir_table_last_commit_timestamp_seconds") == pytest.approx(times)
    assert series(text, "weir_table_unreadable") == {"broken": 1}
    assert series(text, "weir_lake_size_bytes")[""] == sum(card["size_bytes"] for card in cards.values())
    assert series(text, "weir_lake_tables_unreadable")[""] == 1
    assert series(text, "weir_lake_tables_left_out")[""] == 0


def test_beyond_the_limit_the_largest_tables_are_told_and_the_others_counted(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_UI__METRICS_TABLES", "2")
    text = page_text()
    assert set(series(text, "weir_table_size_bytes")) == {"silver/orders", "bronze/events"}
    assert series(text, "weir_table_unreadable") == {"broken": 1}
    assert series(text, "weir_lake_tables_left_out")[""] == 1
    assert series(text, "weir_lake_tables_read")[""] == 3


def test_promtool_takes_it_and_kinds_and_names_are_those_of_the_docs(text: str) -> None:
    promtool("check", "metrics", given=text)
    documented = {metric.name: (metric.kind.value, metric.help) for metric in OF_PAGE}
    given = {metric.name: (metric.type, metric.documentation) for metric in text_string_to_metric_families(text)}
    assert given == {name: documented[name] for name in given}


def test_a_store_that_is_away_takes_its_streams_along(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_STORE__URL", f"sqlite:///{world}/no/such/folder/weir.db")
    (world / "no").write_text("a file where a folder should be")
    text = page_text()
    assert series(text, "weir_store_up")[""] == 0
    assert "weir_stream_" not in text and "weir_hosts_up" not in text
    assert series(text, "weir_lake_tables_read")[""] == 3


def test_health_waits_for_no_store_that_is_busy(home: Path) -> None:
    """As while it takes in what thousands of events of other applications left."""
    stream_store.open_store(home).close()
    report(engine := sa.create_engine(services.settings().store_url), beat())
    with engine.begin() as writer:
        writer.execute(sa.delete(INBOX).where(sa.false()))  # nobody else writes until this ends
        begun = time.monotonic()
        assert metrics.health()["store"] == {"status": "reading"}
        assert time.monotonic() - begun < 4, "a writer waits for ten seconds"
    wait_until(lambda: metrics.health()["store"] == {"status": "ok"}, "the store is read")
    engine.dispose()


def test_what_is_old_is_not_told_as_if_it_were_now() -> None:
    reading = cache.StreamsReading((), (), NOW - timedelta(seconds=metrics.STALE_S + 5))
    samples = {each.name: each.samples[0].value for each in metrics.streams_metrics(reading, NOW)}
    assert samples == {"weir_streams_read_age_seconds": metrics.STALE_S + 5, "weir_store_up": 0}


def test_nobody_waits_for_an_answer_that_does_not_come() -> None:
    answered, answers = Event(), iter(("first", "second"))
    answered.set()

    def ask() -> str:
        assert answered.wait(120)
        return next(answers)

    kept = LatestAnswer(ask, patience_s=0.05)
    wait_until(lambda: kept.latest() == "first", "the first answer")
    answered.clear()
    assert [kept.latest() for _ in range(3)] == ["first"] * 3
    answered.set()
    wait_until(lambda: kept.latest() == "second", "the second answer")


class Roots:
    """A lake whose listing takes as long as the test wants."""

    def __init__(self) -> None:
        self.may_end, self.looks = Event(), 0

    def found(self) -> Any:
        self.looks += 1
        assert self.may_end.wait(120)
        raise StorageError("the bucket is away")

    def read_cards(self, refs: object) -> Any:
        return iter(())


def test_a_scrape_waits_for_no_listing_and_tells_why_the_last_one_failed() -> None:
    roots = Roots()
    reader = LakeReader(roots, refresh_s=0.0, now=lambda: NOW)
    assert not reader.known(refresh_after_s=60).is_listed
    assert not reader.known(refresh_after_s=60).is_listed
    wait_until(lambda: roots.looks, "a pass")
    assert roots.looks == 1
    roots.may_end.set()
    wait_until(lambda: _fails(reader), "the failure is told")


def _fails(reader: LakeReader) -> bool:
    try:
        reader.known(refresh_after_s=60)
    except StorageError:
        return True
    return False
