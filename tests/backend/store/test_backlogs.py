"""What waits for streams, kept by hosts; and the newest batches of all streams in one statement."""

from dataclasses import replace
from datetime import timedelta

from backend.store.store import ControlStore
from backend.stream_model.backlog import Backlog, DataLoss, Lag, SourceBacklog
from backend.stream_model.stream import InputKind
from tests.worlds.store.values import DECLARATION, NOW, progress

LATER = NOW + timedelta(seconds=5)
SOURCE = SourceBacklog(
    "bronze/orders",
    InputKind.TABLE,
    versions=3,
    files=4,
    size_bytes=2**40,
    rows=None,
    oldest_unread_at=NOW,
    lost=1,
    data_loss=DataLoss(LATER, "the log entry of v3", "delta.logRetentionDuration"),
    unknown="some files do not say how many rows they hold",
)
BACKLOG = Backlog((SOURCE,), NOW, (Lag(NOW, 1.5, 7), Lag(LATER, None, None)), has_planned=True)


def test_a_backlog_comes_back_as_it_was_seen(store: ControlStore) -> None:
    store.note_backlogs({"silver_orders": BACKLOG, "gold_orders": Backlog((), NOW)})
    assert store.backlogs() == {"silver_orders": BACKLOG, "gold_orders": Backlog((), NOW)}


def test_the_later_look_stays(store: ControlStore) -> None:
    later = replace(BACKLOG, seen_at=LATER, has_planned=False)
    store.note_backlogs({"silver_orders": BACKLOG})
    store.note_backlogs({"silver_orders": later})
    store.note_backlogs({"silver_orders": BACKLOG})  # of a host that lost the stream meanwhile
    assert store.backlogs() == {"silver_orders": later}


def test_the_newest_batches_of_all_streams_are_those_of_each(store: ControlStore) -> None:
    names = ["silver_orders", "gold_orders", "never_ran"]
    store.declare([replace(DECLARATION, name=name) for name in names], now=NOW)
    at_once = replace(progress(8), run_id="r2", batch_id=99)  # begins when another one does
    store.add_progress([progress(number) for number in range(9)] + [at_once])
    store.add_progress([progress(number, stream="gold_orders") for number in range(2)])
    store.add_progress([progress(1, stream="nobody_declared_it")])
    each = {name: store.progress(name, limit=5) for name in names[:2]}
    assert store.recent(limit=5, raw=True) == each
    assert store.recent(["gold_orders"], limit=5, raw=True) == {"gold_orders": each["gold_orders"]}
    assert [len(batches) for batches in each.values()] == [5, 2]


def test_what_takes_long_to_read_the_newest_batch_alone_has(store: ControlStore) -> None:
    store.declare([DECLARATION], now=NOW)
    store.add_progress([progress(number) for number in range(3)])
    *older, newest = store.recent(limit=5)["silver_orders"]
    whole = store.progress("silver_orders")
    assert newest == whole[-1]
    assert older == [replace(batch, durations_ms={}, expectations=(), raw_json="") for batch in whole[:-1]]


def test_another_newest_batch_has_another_name(store: ControlStore) -> None:
    store.declare([DECLARATION], now=NOW)
    assert store.newest_batches() == {}
    store.add_progress([progress(1)])
    first = store.newest_batches()
    store.add_progress([progress(0)])  # late, and older
    assert store.newest_batches() == first
    store.add_progress([progress(2)])
    assert store.newest_batches().keys() == first.keys()
    assert store.newest_batches() != first
