"""Progress reaches the store without a callback ever blocking or raising."""

import json
import threading
from datetime import UTC, datetime
from types import SimpleNamespace

from backend.errors import StoreError
from backend.stream_model.stream import Progress
from pipelines.host.listener import ProgressListener, ProgressWriter
from tests.worlds.processes import wait_until

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def event(batch_id: int, *, name: str = "silver") -> str:
    return json.dumps(
        {"id": "q", "runId": "r", "name": name, "batchId": batch_id, "timestamp": "2026-03-01T12:00:00.000Z"}
    )


class Store:
    """Keeps what it is given; refuses while `silent`; `hang` holds a write up."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.signs: dict[str, datetime] = {}
        self.silent = False
        self.refused = 0
        self.hang = threading.Event()
        self.hang.set()
        self.is_asked = threading.Event()

    def add_progress(self, items: list[Progress]) -> None:
        self.is_asked.set()
        self.hang.wait(60)
        if self.silent:
            self.refused += 1
            raise StoreError("silent")
        self.batches += [item.batch_id for item in items]

    def touch(self, name: str, *, at: datetime) -> None:
        self.signs[name] = at


def test_events_reach_the_store_in_order_and_the_stream_is_touched() -> None:
    store = Store()
    writer = ProgressWriter(store)
    writer.start()
    for number in range(20):
        writer.put(event(number))
    wait_until(lambda: store.batches == list(range(20)), "the events are in the store")
    wait_until(lambda: store.signs, "the stream is touched")
    assert store.signs == {"silver": AT}
    writer.close()


def test_close_writes_what_is_queued() -> None:
    store = Store()
    writer = ProgressWriter(store)
    writer.start()
    writer.put(event(1))
    writer.close()
    assert store.batches == [1]


def test_a_silent_store_costs_only_the_oldest_and_they_are_counted() -> None:
    store = Store()
    writer = ProgressWriter(store, capacity=3)
    store.silent = True
    for number in range(5):
        writer.put(event(number))
        writer.flush()
    assert store.refused == 5
    store.silent = False
    writer.flush()
    assert (store.batches, writer.dropped) == ([2, 3, 4], 2)


def test_the_thread_recovers_by_itself() -> None:
    store = Store()
    store.silent = True
    writer = ProgressWriter(store, retry_s=0.02)
    writer.start()
    writer.put(event(1))
    wait_until(lambda: store.refused >= 2, "the store is tried again")
    store.silent = False
    wait_until(lambda: store.batches == [1], "the event is in the store")
    writer.close()


def test_a_callback_does_not_wait_for_a_hanging_store() -> None:
    store = Store()
    store.hang.clear()
    writer = ProgressWriter(store, capacity=100)
    listener = ProgressListener(writer)
    writer.start()
    listener.onQueryProgress(progress_event(event(0)))
    assert store.is_asked.wait(60)  # the writer hangs in the store now
    for number in range(1, 500):
        listener.onQueryProgress(progress_event(event(number)))
    store.hang.set()
    writer.close()
    assert store.batches[-1] == 499
    assert writer.dropped == 399


def test_an_unreadable_event_does_not_take_the_others_along() -> None:
    store = Store()
    writer = ProgressWriter(store)
    for text in (event(1), "not json", "{}", event(2)):
        writer.put(text)
    writer.flush()
    assert store.batches == [1, 2]


def test_no_callback_raises_whatever_spark_hands_over() -> None:
    listener = ProgressListener(ProgressWriter(Store()))
    listener.onQueryProgress(SimpleNamespace())  # type: ignore[arg-type]
    listener.onQueryStarted(SimpleNamespace(runId="r", name=None))  # type: ignore[arg-type]
    listener.onQueryIdle(SimpleNamespace(runId="r", timestamp="banana"))  # type: ignore[arg-type]
    listener.onQueryTerminated(SimpleNamespace(runId="never seen"))  # type: ignore[arg-type]


def test_idle_is_a_sign_of_life_under_the_streams_name() -> None:
    store = Store()
    writer = ProgressWriter(store)
    listener = ProgressListener(writer)
    listener.onQueryStarted(SimpleNamespace(runId="r", name="silver"))  # type: ignore[arg-type]
    listener.onQueryIdle(SimpleNamespace(runId="r", timestamp="2026-03-01T12:00:00.000Z"))  # type: ignore[arg-type]
    listener.onQueryIdle(SimpleNamespace(runId="unknown", timestamp="2026-03-01T12:00:00.000Z"))  # type: ignore[arg-type]
    writer.flush()
    assert store.signs == {"silver": AT}


def progress_event(text: str) -> SimpleNamespace:
    return SimpleNamespace(progress=SimpleNamespace(json=text))
