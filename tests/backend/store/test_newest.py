"""Many streams cost as many statements as one, and what hosts saw to wait for them is not looked at again."""

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta

import pytest

from backend.store.store import ControlStore
from backend.stream_model.backlog import Backlog
from backend.stream_model.stream import HostHeartbeat, Progress
from backend.streams.newest import RECENT, ByStream
from backend.streams.status import gather_evidence, statuses
from tests.worlds.store.looks import Looks, waits
from tests.worlds.store.statements import statements
from tests.worlds.store.values import DECLARATION, NOW, OBSERVED, progress

NAME = DECLARATION.name
AT = NOW + timedelta(seconds=30)


def run(store: ControlStore, *names: str, batches: int = RECENT + 2) -> None:
    """Streams that a live host runs, with so many batches each."""
    store.declare([replace(DECLARATION, name=name) for name in names], now=NOW)
    store.beat(HostHeartbeat("host-a", "machine", 1, NOW, AT, None, None))
    for name in names:
        lease = store.acquire(f"stream/{name}", "host-a", ttl_s=60)
        assert lease is not None
        store.observe(replace(OBSERVED, name=name), token=lease.token)
        store.add_progress([progress(number, stream=name) for number in range(batches)])


def test_many_streams_take_as_many_statements_as_one(store: ControlStore) -> None:
    def count(backlogs: Looks) -> int:
        with statements(store) as sent:
            statuses(store, backlogs, now=AT, heartbeat_stale_s=60)
        return len(sent)

    run(store, "s0")
    count(Looks())  # the store knows the host from now on
    one = count(Looks())
    run(store, *(f"s{number}" for number in range(1, 12)))
    looks = Looks()
    assert count(looks) == one
    assert len(looks.at) == 12


def test_only_what_changed_is_read_again(store: ControlStore) -> None:
    asked: list[str] = []

    def recent(store: ControlStore, names: Collection[str]) -> dict[str, list[Progress]]:
        asked.extend(names)
        return store.recent(names, limit=RECENT)

    def backlogs(store: ControlStore, names: Collection[str]) -> dict[str, Backlog]:
        asked.extend(names)
        return store.backlogs(names)

    batches, waiting = ByStream(ControlStore.newest_batches, recent), ByStream(ControlStore.backlogs_seen_at, backlogs)

    def read() -> list[str]:
        asked.clear()
        assert batches.read(store) == store.recent(limit=RECENT)
        assert waiting.read(store) == store.backlogs()
        return sorted(asked)

    run(store, "s1", "s2")
    store.note_backlogs({"s1": waits(NOW), "s2": waits(NOW)})
    assert read() == ["s1", "s1", "s2", "s2"]
    assert read() == []
    store.add_progress([progress(20, stream="s2")])
    assert read() == ["s2"]
    store.note_backlogs({"s1": waits(AT)})
    assert read() == ["s1"]
    run(store, "s3")
    assert read() == ["s3"]


@pytest.mark.parametrize(
    ("seen_after_s", "idle_after_s", "now_after_s", "looked"),
    [
        (0, None, 59, False),
        (0, None, 61, True),  # older than a minute
        (-1, None, 30, True),  # before the run that is observed began
        (5, 25, 30, True),  # then a batch ended, after which there was nothing to read
        (5, 11.9, 30, False),  # the last sign is that batch itself: it goes on
        (12, 25, 30, False),
    ],
)
def test_a_look_of_the_host_counts_while_it_tells_of_now(
    store: ControlStore, seen_after_s: float, idle_after_s: float | None, now_after_s: float, looked: bool
) -> None:
    run(store, NAME)  # its last batch ends 11.9 s after it began to run
    if idle_after_s is not None:
        store.touch(NAME, at=NOW + timedelta(seconds=idle_after_s))
    store.note_backlogs({NAME: waits(NOW + timedelta(seconds=seen_after_s))})
    looks = Looks()
    (evidence,) = gather_evidence(store, looks, now=NOW + timedelta(seconds=now_after_s), heartbeat_stale_s=60)
    assert looks.at == ([NAME] if looked else [])
    assert evidence.backlog is not None and evidence.backlog.files == (7 if looked else 3)


def test_rows_of_each_batch_since_a_moment(store: ControlStore) -> None:
    run(store, "s1", "s2", batches=4)
    store.add_progress([replace(progress(9, stream="s1"), num_input_rows=77)])
    rows = store.input_rows(["s1", "unknown"], since=NOW + timedelta(seconds=2))
    assert rows == {"s1": [10, 10, 77]}
