"""When a stream has read what was there as its drain was asked for, while its source goes on growing."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from backend.access import Actor
from backend.lake.lake import Lake
from backend.settings import Settings, load_settings
from backend.store.leases import stream_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import (
    Desired,
    DesiredState,
    Observed,
    StreamDeclaration,
    StreamInput,
    StreamState,
    TopicEnds,
)
from pipelines.host.drain_watch import DrainWatch
from tests.worlds.lake import builders
from tests.worlds.streams.checkpoints import delta_offset, write_checkpoint

A_MOMENT = timedelta(seconds=0.5)


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(home=tmp_path, lake={"roots": [str(tmp_path / "lake")]})


@pytest.fixture
def store(settings: Settings) -> Iterator[ControlStore]:
    opened = ControlStore.open(settings)
    yield opened
    opened.close()


@pytest.fixture
def bronze(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "bronze" / "events"


def write(path: Path) -> None:
    builders.write(path, {"id": [1, 2, 3]})


def drained(store: ControlStore, settings: Settings, *inputs: StreamInput) -> Desired:
    """A stream `silver` over these sources that was asked to drain."""
    place = str(settings.home / "checkpoints" / "silver")
    declared = StreamDeclaration("silver", "", "", "/l/s", "silver/x", (), "silver", 5_000, place, inputs=inputs)
    store.declare([declared], now=now())
    return store.request("silver", "drain", reason="a move", actor=Actor("ann"), now=now())


def reached(settings: Settings, *offsets: str | None) -> None:
    """The stream's checkpoint ends here."""
    write_checkpoint(settings.home / "checkpoints" / "silver", {7: list(offsets)})


def read_until(store: ControlStore, settings: Settings, idle_at: datetime | None = None) -> datetime | None:
    watch = DrainWatch(settings, Lake(settings), store, lambda _: idle_at, now)
    watch.look()
    return watch.read_until("silver")


def test_a_table_is_read_up_to_its_oldest_unread_commit(store: ControlStore, settings: Settings, bronze: Path) -> None:
    for _ in range(2):
        write(bronze)
    asked_at = drained(store, settings, StreamInput("table", "bronze/events", str(bronze))).requested_at
    write(bronze)  # it goes on
    table, lake = DeltaTable(str(bronze)), Lake(settings)
    written = {commit.version: commit.committed_at for commit in lake.history(lake.find("events"))}

    reached(settings, delta_offset(table.metadata().id, 1))
    assert read_until(store, settings) == written[1] < asked_at, "version 1 was there, and is not read"
    reached(settings, delta_offset(table.metadata().id, 2))
    assert read_until(store, settings) == written[2] > asked_at, "version 2 came later"
    reached(settings, delta_offset(table.metadata().id, 3))
    started = now()
    until = read_until(store, settings)
    assert until is not None and until >= started, "nothing waits"


def test_a_topic_is_read_up_to_the_ends_that_were_told_after_the_request(
    store: ControlStore, settings: Settings
) -> None:
    asked_at = drained(store, settings, StreamInput("kafka", "orders", "")).requested_at
    idle_at = asked_at + timedelta(minutes=1)  # Spark leaves records to wait, and says that it is idle
    watch = DrainWatch(settings, Lake(settings), store, lambda _: idle_at, now)

    def tell(end: int, after_s: float) -> datetime:
        at = asked_at + timedelta(seconds=after_s)
        first, ends = {"orders": {0: 0}}, {"orders": {0: end}}
        store.note_ends(TopicEnds("silver", "orders", at, firsts=first, ends=ends, starts=first))
        watch.look()
        return at

    def seen(read: int) -> datetime | None:
        reached(settings, json.dumps({"orders": {"0": read}}))
        watch.look()
        return watch.read_until("silver")

    before = tell(80, -1)
    assert seen(70) is None
    assert seen(80) == before < asked_at, "80 were there before the request: how many at the request nobody said"
    mark = tell(100, 1)
    assert seen(90) is None
    tell(300, 2)
    assert seen(100) == mark > asked_at


def test_what_cannot_be_read_is_not_said_to_be_read(store: ControlStore, settings: Settings, bronze: Path) -> None:
    asked_at = drained(store, settings, StreamInput("table", "bronze/events", str(bronze))).requested_at
    reached(settings, delta_offset("gone", 3))
    assert read_until(store, settings) is None
    idle_at = asked_at + timedelta(seconds=3)
    assert read_until(store, settings, idle_at) == pytest.approx(idle_at, abs=A_MOMENT), "Spark found nothing more"


def test_what_spark_tells_by_its_machines_clock_is_held_against_the_stores(
    store: ControlStore, settings: Settings
) -> None:
    asked_at = drained(store, settings, StreamInput("table", "bronze/events", "/gone")).requested_at
    hour = timedelta(hours=1)
    watch = DrainWatch(settings, Lake(settings), store, lambda _: asked_at + hour, lambda: now() - hour)
    watch.look()
    assert watch.read_until("silver") == pytest.approx(asked_at, abs=A_MOMENT), "this machine is an hour ahead"


def test_rows_that_are_made_up_do_not_wait(store: ControlStore, settings: Settings) -> None:
    asked_at = drained(store, settings, StreamInput("rate", "rate", "")).requested_at
    until = read_until(store, settings)
    assert until is not None and until > asked_at


def test_a_stream_that_nobody_drains_is_not_looked_at(store: ControlStore, settings: Settings, bronze: Path) -> None:
    drained(store, settings, StreamInput("rate", "rate", ""))
    store.request("silver", "start", reason="go on", actor=Actor("ann"), now=now())
    assert read_until(store, settings) is None


def test_drained_through_it_waits_for_those_that_feed_it_and_for_what_they_brought(
    store: ControlStore, settings: Settings, bronze: Path
) -> None:
    write(bronze)
    drained(store, settings, StreamInput("table", "bronze/events", str(bronze)))
    reads = replace(store.declarations()["silver"], source_tables=("bronze/events",))
    feeds = StreamDeclaration("bronze", "", "", str(bronze), "bronze/events", (), "bronze", 5_000, "/c/bronze")
    store.declare([reads, feeds], now=now())
    names = ("bronze", "silver")
    feeding, reading = store.request_all(names, "drain through", reason="a move", actor=Actor("ann"), now=now())
    assert (feeding.state, reading.drains) == (DesiredState.DRAINED_THROUGH, True)
    lease = store.acquire(stream_resource("bronze"), "host", ttl_s=60)
    assert lease is not None

    def bronze_is(state: StreamState, generation: int = feeding.generation) -> None:
        store.observe(Observed("bronze", state, "host", generation, now()), token=lease.token)

    table_id = str(DeltaTable(str(bronze)).metadata().id)
    reached(settings, delta_offset(table_id, 1))
    assert read_until(store, settings) is None, "nobody has seen what feeds it"
    bronze_is(StreamState.RUNNING)
    assert read_until(store, settings) is None, "all is read, and more may come"
    bronze_is(StreamState.STOPPED, feeding.generation - 1)
    assert read_until(store, settings) is None, "it was stopped before that was asked"
    write(bronze)
    bronze_is(StreamState.STOPPED)
    assert read_until(store, settings) is None, "its last rows are not read"
    reached(settings, delta_offset(table_id, 2))
    rested_at, until = store.observed()["bronze"].observed_at, read_until(store, settings)
    assert until is not None
    assert until > rested_at
    bronze_is(StreamState.FAILED)
    assert read_until(store, settings) is not None, "one that failed brings no more"


def test_drained_without_that_it_waits_for_nobody(store: ControlStore, settings: Settings, bronze: Path) -> None:
    write(bronze)
    drained(store, settings, StreamInput("table", "bronze/events", str(bronze)))
    feeds = StreamDeclaration("bronze", "", "", str(bronze), "bronze/events", (), "bronze", 5_000, "/c/bronze")
    store.declare([replace(store.declarations()["silver"], source_tables=("bronze/events",)), feeds], now=now())
    store.request("bronze", "drain through", reason="a move", actor=Actor("ann"), now=now())
    reached(settings, delta_offset(str(DeltaTable(str(bronze)).metadata().id), 1))
    assert read_until(store, settings) is not None
