"""What other Spark applications write is taken once, in order, by whoever comes first."""

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from backend.access import Actor
from backend.errors import StreamRefusedError
from backend.store import schema
from backend.store.rows import observed_row
from backend.store.store import ControlStore
from backend.stream_model.attached import AttachedEvent
from backend.stream_model.stream import DesiredState, StreamState
from backend.streams.status import statuses
from tests.backend.streams.test_attached import beat, progress, started
from tests.worlds.store.values import DECLARATION, NOW, OBSERVED

INBOX = sa.table("attached_event", sa.column("app_id"), sa.column("body"), sa.column("at"))


@pytest.fixture
def inbox(store: ControlStore, store_url: str) -> Iterator[sa.Engine]:
    """As an application reaches it: two columns of one table."""
    url = sa.make_url(store_url)
    engine = sa.create_engine(url.set(drivername="postgresql+psycopg") if url.drivername != "sqlite" else url)
    yield engine
    engine.dispose()


def write(inbox: sa.Engine, *events: object) -> None:
    rows = [{"app_id": each.app_id, "body": each.body} for each in events]
    with inbox.begin() as connection:
        connection.execute(sa.insert(INBOX), rows)


def waiting(inbox: sa.Engine) -> int:
    with inbox.connect() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(INBOX)).scalar_one())


def test_events_become_a_stream_and_are_gone(store: ControlStore, inbox: sa.Engine) -> None:
    write(inbox, beat(), started(), progress(3), progress(3))
    store.take_in(["/lake"])

    app = store.apps()["app-1"]
    found = statuses(store, now=app.host.beat_at, heartbeat_stale_s=15)
    assert [(each.declaration.name, each.state, each.desired) for each in found] == [
        ("etl.orders", StreamState.RUNNING, None)
    ]
    assert [batch.batch_id for batch in store.progress("etl.orders")] == [3], "the same event twice"
    assert store.hosts() == []
    assert waiting(inbox) == 0


def test_its_sign_of_life_is_by_the_stores_clock(store: ControlStore, inbox: sa.Engine) -> None:
    """The application writes no time of its own."""
    write(inbox, beat())
    with inbox.connect() as connection:
        at = connection.execute(sa.select(INBOX.c.at)).scalar_one()
    store.take_in([])

    assert store.apps()["app-1"].host.beat_at.timestamp() == pytest.approx(at, abs=1e-3)
    assert abs((datetime.now(UTC) - store.apps()["app-1"].host.beat_at).total_seconds()) < 60  # one machine's here


def test_one_that_falls_silent_is_not_said_to_run(store: ControlStore, inbox: sa.Engine) -> None:
    write(inbox, beat(), started(), progress())
    store.take_in([])

    later = store.apps()["app-1"].host.beat_at + timedelta(minutes=1)
    (found,) = statuses(store, now=later, heartbeat_stale_s=15)
    assert found.state is StreamState.UNKNOWN
    assert "its application has been silent for 1 min" in found.because


def test_nobody_asks_anything_of_it(store: ControlStore, inbox: sa.Engine) -> None:
    write(inbox, beat(), started())
    store.take_in([])

    for action in ("start", "stop", "restart"):
        with pytest.raises(StreamRefusedError, match="another Spark application runs it"):
            store.request("etl.orders", action, reason="why", actor=Actor("ann"), now=NOW)
    assert store.desired() == {}
    assert store.audit_entries() == []


def test_a_stream_that_a_host_declared_is_not_touched(store: ControlStore, inbox: sa.Engine) -> None:
    """Names of attached streams begin with their application's, so only rubbish could meet one."""
    store.declare([replace(DECLARATION, name="etl.orders")], now=NOW)
    store.ensure_desired("etl.orders", DesiredState.RUNNING, now=NOW)
    write(inbox, beat(), started(), progress())
    store.take_in([])

    assert not store.declarations()["etl.orders"].is_attached
    assert store.observed() == {}
    assert store.progress("etl.orders") == []


def test_two_that_take_at_once_count_each_event_once(store: ControlStore, store_url: str, inbox: sa.Engine) -> None:
    write(inbox, beat(), started())
    batches = [progress(n, timestamp=f"2026-11-23T10:{n // 60:02}:{n % 60:02}.000Z") for n in range(200)]
    other = ControlStore(store_url)
    problems: list[BaseException] = []

    def take(one: ControlStore) -> None:
        try:
            for _ in range(60):
                one.take_in([])
        except BaseException as exc:  # noqa: BLE001 - told to the test's own thread
            problems.append(exc)

    threads = [threading.Thread(target=take, args=(one,)) for one in (store, other)]
    for thread in threads:
        thread.start()
    for batch in batches:
        write(inbox, batch)
    for thread in threads:
        thread.join()
    store.take_in([])
    other.close()

    assert problems == []
    assert [batch.batch_id for batch in store.progress("etl.orders")] == list(range(200))


def test_a_silent_application_is_forgotten_after_a_week(store: ControlStore, inbox: sa.Engine) -> None:
    write(inbox, beat(), started(), progress())
    store.take_in([])
    with inbox.begin() as connection:
        later = (datetime.now(UTC) + timedelta(days=8)).timestamp()
        connection.execute(sa.insert(INBOX), [{"app_id": "app-2", "body": beat("app-2").body, "at": later}])
    store.take_in([])

    assert list(store.apps()) == ["app-2"]
    assert store.declarations() == {}
    assert store.observed() == {}


@pytest.mark.parametrize(
    "odd",
    [
        progress(10**30),
        progress(5, numInputRows=10**300),
        progress(5, timestamp="0001-01-01T00:00:00+23:59"),
        progress(5, id="a\ud800"),
        progress(5, runId="a\x00"),
        progress(5, batchDuration=10**15),
        progress(5, durationMs={"triggerExecution": 10**30}),
        replace(progress(5), body="[" * 100_000),
        replace(beat("app-2", name="a\x00"), body=beat("app-2", name="a\x00").body.replace('"pid": 7', '"pid": 1e30')),
    ],
    ids=["batch", "rows", "time", "surrogate", "nul", "end", "phase", "deep", "application"],
)
def test_what_no_column_takes_keeps_nothing_else_waiting(
    store: ControlStore, inbox: sa.Engine, odd: AttachedEvent
) -> None:
    first, last = (progress(n, timestamp=f"2026-11-23T10:00:0{n}.000Z") for n in (1, 2))
    write(inbox, beat(), started(), first, odd, last)
    store.take_in([])

    assert waiting(inbox) == 0
    kept = store.progress("etl.orders")
    assert kept[0].batch_id == 1 and 2 in [batch.batch_id for batch in kept]
    assert all(batch.ended_at for batch in kept), "else no page can be drawn"


def test_a_silent_application_takes_no_hosts_stream_along(store: ControlStore, inbox: sa.Engine) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=30)
    store.declare([replace(DECLARATION, name="ours")], now=long_ago)
    with closing(sa.create_engine(inbox.url).connect()) as connection, connection.begin():
        row = observed_row(replace(OBSERVED, name="ours", generation=0, observed_at=long_ago))
        connection.execute(sa.insert(schema.observed), [row])
    write(inbox, beat(), started())
    store.take_in([])

    assert "ours" in store.declarations() and "ours" in store.observed()
