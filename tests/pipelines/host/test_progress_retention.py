"""What a host keeps of progress, for how long, on a real store with days that pass in no time."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backend.lake.lake import Lake
from backend.settings import load_settings
from backend.store.store import ControlStore
from backend.stream_model.rollup import HOUR_S, MINUTE_S, merged
from backend.stream_model.stream import InputKind, StreamDeclaration, StreamInput
from pipelines.host.retention import Retention
from tests.worlds.store.stream_store import batch

START = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO = START - timedelta(days=1)
EVERY = timedelta(minutes=40)
DAYS = 60
KEPT_DAYS = {"PROGRESS_RETENTION_DAYS": 2, "MINUTES_RETENTION_DAYS": 7, "HOURS_RETENTION_DAYS": 30}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlStore]:
    monkeypatch.setenv("WEIR_HOME", str(tmp_path))
    for key, value in KEPT_DAYS.items():
        monkeypatch.setenv(f"WEIR_STORE__{key}", str(value))
    opened = ControlStore.open(load_settings())
    yield opened
    opened.close()


def retention(store: ControlStore, clock: Callable[[], datetime]) -> Retention:
    settings = load_settings()
    return Retention(settings, Lake(settings), store, clock)


def test_after_sixty_days_there_is_what_settings_say_and_no_more(store: ControlStore) -> None:
    now, number = START, 0
    watch = retention(store, lambda: now)
    per_day = timedelta(days=1) // EVERY
    for _ in range(DAYS):
        store.add_progress([batch("a", number + place, now + EVERY * place, run_id="r") for place in range(per_day)])
        number, now = number + per_day, now + timedelta(days=1)
        watch.once()
        assert len(store.progress("a", raw=False)) <= 2 * per_day
    assert len(store.progress("a", raw=False)) == 2 * per_day
    minutes = store.rollups("a", grain_s=MINUTE_S, since=LONG_AGO)
    hours = store.rollups("a", grain_s=HOUR_S, since=LONG_AGO)
    assert (len(minutes), len(hours)) == (7 * per_day, 30 * 24)
    assert merged(hours).batches == 30 * per_day
    (run,) = store.runs("a")
    assert (run.first_batch, run.last_batch) == (30 * per_day, DAYS * per_day - 1)


def test_more_batches_than_may_stay_go_at_the_next_round(store: ControlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_STORE__PROGRESS_MAX_ROWS", "50")
    store.add_progress([batch("a", number, START + number * timedelta(seconds=10), run_id="a") for number in range(80)])
    retention(store, lambda: START + timedelta(hours=1)).once()
    assert [each.batch_id for each in store.progress("a")] == list(range(30, 80))
    assert merged(store.rollups("a", grain_s=HOUR_S, since=LONG_AGO)).batches == 80


def test_the_most_that_waited_is_kept_of_batches_of_the_last_hour(store: ControlStore) -> None:
    topic = StreamInput(InputKind.KAFKA, "orders", options={"subscribe": "orders"})
    store.declare([StreamDeclaration("a", "", "", "", "", (), None, 10_000, "/c/a", inputs=(topic,))], now=START)
    waited = {0: 7, 1: 900, 2: 30, 3: 0, 4: 12}  # by batch, one each half hour
    told = [
        replace(
            batch("a", number, START + number * timedelta(minutes=30), run_id="a"),
            raw_json=json.dumps({"sources": [{"endOffset": offsets(5), "latestOffset": offsets(5 + rows)}]}),
        )
        for number, rows in waited.items()
    ]
    store.add_progress(told)
    retention(store, lambda: START + timedelta(minutes=125)).once()
    hours = store.rollups("a", grain_s=HOUR_S, since=LONG_AGO)
    assert [(each.batches, each.most_unread_rows) for each in hours] == [(2, None), (2, 0), (1, 12)]
    late = replace(told[2], batch_id=9, progressed_at=told[2].progressed_at + timedelta(minutes=20))
    store.add_progress([late])
    retention(store, lambda: START + timedelta(minutes=125)).once()
    assert [each.most_unread_rows for each in store.rollups("a", grain_s=HOUR_S, since=LONG_AGO)] == [None, 30, 12]


def offsets(of_one: int) -> dict[str, dict[str, int]]:
    return {"orders": {"0": of_one}}
