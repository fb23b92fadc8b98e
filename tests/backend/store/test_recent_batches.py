"""Batches of the last minutes: kept between readings, equal to a reading of the whole window."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from backend.streams.graph import WINDOW
from backend.streams.status import RecentBatches
from tests.worlds.store import stream_store

NAME = "silver_events"


def test_a_second_reading_adds_what_is_new_and_drops_what_is_old(tmp_path: Path) -> None:
    now, recent = datetime.now(UTC), RecentBatches()
    store = stream_store.open_store(tmp_path)
    stream_store.flowing(store, NAME, now)
    declared = list(store.declarations().values())

    def numbers(at: datetime) -> list[int]:
        read = recent.read(store, declared, now=at)[NAME]
        whole = [batch for batch in store.progress(NAME, raw=False) if batch.progressed_at > at - WINDOW]
        assert read == whole
        return [batch.batch_id for batch in read]

    assert numbers(now) == list(range(36))
    later = now + timedelta(minutes=3)
    store.add_progress([stream_store.batch(NAME, 36, later, run_id="r")])
    assert numbers(later) == list(range(13, 37))  # 12 is as old as the window
    assert numbers(later) == list(range(13, 37))
    assert recent.read(store, [], now=later) == {}
    store.close()
