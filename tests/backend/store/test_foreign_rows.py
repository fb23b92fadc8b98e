"""What others write into the store: reports of other applications, and forged rows, which are passed over and named."""

import logging
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from backend.access import Actor
from backend.errors import StoreError, StreamRefusedError
from backend.store import schema
from backend.store.store import ControlStore
from backend.store.streams import observed_row
from backend.stream_model.attached import AttachedEvent
from backend.stream_model.stream import DesiredState, HostHeartbeat, StreamState
from backend.streams.status import statuses
from tests.worlds.store.statements import past_the_store, statements
from tests.worlds.store.values import DECLARATION, FRESH, JOB, NOW, OBSERVED, held, judgement, observed
from tests.worlds.store.values import progress as batch
from tests.worlds.streams.attached import INBOX, beat, progress, report, started, waiting


@pytest.fixture
def inbox(store: ControlStore, store_url: str) -> Iterator[sa.Engine]:
    """As an application reaches it: two columns of one table."""
    engine = sa.create_engine(store_url)
    yield engine
    engine.dispose()


def test_events_become_a_stream_and_are_gone(store: ControlStore, inbox: sa.Engine) -> None:
    report(inbox, beat(), started(), progress(3), progress(3))
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
    report(inbox, beat())
    with inbox.connect() as connection:
        at = connection.execute(sa.select(INBOX.c.at)).scalar_one()
    report(inbox, started(), progress())
    store.take_in([])

    beat_at = store.apps()["app-1"].host.beat_at
    assert beat_at.timestamp() == pytest.approx(at, abs=1e-3)
    assert abs((datetime.now(UTC) - beat_at).total_seconds()) < 60  # one machine's here
    (status,) = statuses(store, now=beat_at + timedelta(minutes=1), heartbeat_stale_s=15)
    assert status.state is StreamState.UNKNOWN
    assert "its application has been silent for 1 min" in status.because


def test_nobody_asks_anything_of_it(store: ControlStore, inbox: sa.Engine) -> None:
    report(inbox, beat(), started())
    store.take_in([])

    for action in ("start", "stop", "restart"):
        with pytest.raises(StreamRefusedError, match="another Spark application runs it"):
            store.request("etl.orders", action, reason="why", actor=Actor("ann"), now=NOW)
    assert store.desired() == {}
    assert store.audit_entries() == []


def test_a_stream_that_a_host_declared_is_not_touched(store: ControlStore, inbox: sa.Engine) -> None:
    """Names of attached streams begin with their application's, so only rubbish could meet one."""
    store.declare([replace(DECLARATION, name="etl.orders")], now=NOW)
    store.ensure_all_desired(["etl.orders"], DesiredState.RUNNING, now=NOW)
    report(inbox, beat(), started(), progress())
    store.take_in([])

    assert not store.declarations()["etl.orders"].is_attached
    assert store.observed() == {}
    assert store.progress("etl.orders") == []


def test_two_that_take_at_once_count_each_event_once(store: ControlStore, store_url: str, inbox: sa.Engine) -> None:
    report(inbox, beat(), started())
    batches = [progress(n, timestamp=f"2026-11-23T10:{n // 60:02}:{n % 60:02}.000Z") for n in range(200)]
    other = ControlStore(store_url)

    def take(one: ControlStore) -> None:
        for _ in range(60):
            one.take_in([])

    with ThreadPoolExecutor(2) as pool:
        takers = [pool.submit(take, one) for one in (store, other)]
        for batch in batches:
            report(inbox, batch)
        for taker in takers:
            taker.result(120)
    store.take_in([])
    other.close()
    assert [batch.batch_id for batch in store.progress("etl.orders")] == list(range(200))


def test_a_silent_application_alone_is_forgotten_after_a_week(store: ControlStore, inbox: sa.Engine) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=30)
    store.declare([replace(DECLARATION, name="ours")], now=long_ago)
    ours = observed_row(replace(OBSERVED, name="ours", generation=0, observed_at=long_ago))
    with inbox.begin() as connection:
        connection.execute(sa.insert(schema.observed), [ours])
    report(inbox, beat(), started(), progress())
    store.take_in([])
    assert store.declarations().keys() == store.observed().keys() == {"ours", "etl.orders"}
    with inbox.begin() as connection:
        later = (datetime.now(UTC) + timedelta(days=8)).timestamp()
        connection.execute(sa.insert(INBOX), [{"app_id": "app-2", "body": beat("app-2").body, "at": later}])
    store.take_in([])

    assert list(store.apps()) == ["app-2"]
    assert store.declarations().keys() == store.observed().keys() == {"ours"}


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
def test_what_no_column_takes_keeps_nothing_waiting(store: ControlStore, inbox: sa.Engine, odd: AttachedEvent) -> None:
    first, last = (progress(n, timestamp=f"2026-11-23T10:00:0{n}.000Z") for n in (1, 2))
    report(inbox, beat(), started(), first, odd, last)
    store.take_in([])

    assert waiting(inbox) == 0
    kept = store.progress("etl.orders")
    assert kept[0].batch_id == 1 and 2 in [batch.batch_id for batch in kept]
    assert all(batch.ended_at for batch in kept), "else no page can be drawn"


def test_one_bad_event_among_many_is_found_by_halves(store: ControlStore, inbox: sa.Engine) -> None:
    batches = [progress(n, timestamp=f"2026-11-23T10:{n // 60:02}:{n % 60:02}.000Z") for n in range(500)]
    report(inbox, beat(), started(), *batches[:321], progress(10**30), *batches[321:])
    with inbox.begin() as connection:
        rows = [{"app_id": "app-1", "body": beat().body, "at": at} for at in (1e300, -1e300, 3e11, -7e10)]
        connection.execute(sa.insert(INBOX), rows)
    with statements(store) as sent:
        store.take_in([])
    assert waiting(inbox) == 0
    assert len(store.progress("etl.orders", limit=1_000)) == 500
    assert len(sent) < 200, "each of 500 alone sends 5,000"


NAME = DECLARATION.name
RAW = b"\xff\xff"  # nothing that was packed
SQL = "x'; DROP TABLE audit; --"


@pytest.fixture
def filled(store: ControlStore) -> ControlStore:
    """A store with one good row in each table."""
    store.declare([DECLARATION], now=NOW)
    store.ensure_all_desired([NAME], DesiredState.RUNNING, now=NOW)
    store.observe(observed(), token=held(store).token)
    store.beat(HostHeartbeat("a", "box", 1, NOW, NOW, "4.2.0", None))
    store.note_judgement(judgement(FRESH))
    store.add_progress([batch(1)])
    store.jobs.submit(JOB, now=NOW)
    return store


def forge(url: str, table: sa.Table, key: str, **changes: Any) -> None:
    """The same row once more under this key, with these columns changed, past whatever the store would check."""
    with past_the_store(url) as connection:
        row = dict(connection.execute(sa.select(table)).mappings().first() or {})
        row[next(iter(table.primary_key)).name] = int(key, 16) if table is schema.progress else key
        connection.execute(sa.insert(table).values({**row, **changes}))


Read = Callable[[ControlStore], Any]
GARBAGE = [
    pytest.param(schema.desired, {"state": "PAUSED"}, lambda store: store.desired(), id="a state of another version"),
    pytest.param(schema.desired, {"overrides": [1]}, lambda store: store.desired(), id="overrides that are a list"),
    pytest.param(schema.declaration, {"body": []}, lambda store: store.declarations(), id="a declaration without any"),
    pytest.param(schema.declaration, {"body": "no"}, lambda store: store.declarations(), id="a text for a declaration"),
    pytest.param(schema.observed, {"state": SQL}, lambda store: store.observed(), id="SQL for a state"),
    pytest.param(schema.observed, {"failures": {"a": 1}}, lambda store: store.observed(), id="failures of no kind"),
    pytest.param(schema.host, {"tags": 7}, lambda store: store.hosts(), id="tags that are a number"),
    pytest.param(schema.table_expectation, {"finding": []}, lambda store: store.judgements(), id="no finding"),
    pytest.param(schema.progress, {"run_id": "r2", "raw": RAW}, lambda store: store.progress(NAME), id="no packed"),
    pytest.param(schema.progress, {"run_id": "r2", "durations_ms": 1}, lambda store: store.runs(NAME), id="durations"),
    pytest.param(schema.progress, {"run_id": "r2", "raw": RAW}, lambda store: store.not_rolled_up(), id="roll up"),
    pytest.param(schema.job, {"kind": "unheard of"}, lambda store: store.jobs.unfinished(), id="an unknown kind"),
    pytest.param(schema.job, {"state": "PAUSED"}, lambda store: store.jobs.newest(9), id="an unknown state of a job"),
]


@pytest.mark.parametrize(("table", "changes", "read"), GARBAGE)
def test_a_row_that_cannot_be_read_keeps_nobody_from_the_others(
    filled: ControlStore,
    store_url: str,
    caplog: pytest.LogCaptureFixture,
    request: pytest.FixtureRequest,
    table: sa.Table,
    changes: dict[str, Any],
    read: Read,
) -> None:
    before = read(filled)
    key = f"{zlib.crc32(request.node.name.encode()):012x}"  # one of its own, since each is named once
    forge(store_url, table, key, **changes)
    with caplog.at_level(logging.WARNING):
        assert [read(filled) for _ in range(3)] == [before] * 3
    assert len(before) == 1
    named = [line for line in caplog.messages if "cannot be read" in line]
    assert len(named) == 1 and table.name in named[0]
    assert any(table.name in name for name in filled.unreadable())


@pytest.mark.parametrize("job_id", ["../../../home", "/etc", "a/b", "..", "", "0123456789ab/..", SQL, "0123456789AB"])
def test_a_job_whose_name_is_a_path_reaches_no_host(filled: ControlStore, store_url: str, job_id: str) -> None:
    ended = {"state": "DONE", "ended_at": NOW - timedelta(days=9), "attempts": 1}
    forge(store_url, schema.job, job_id, **ended)
    good = filled.jobs.find(JOB.fingerprint)
    assert filled.jobs.newest(9) == filled.jobs.unfinished() == [good]
    assert filled.jobs.prune(before=NOW - timedelta(days=1)) == [], "whoever prunes deletes their results"
    with pytest.raises(StoreError, match="job_id: it is no name of a job"):
        filled.jobs.cancel(job_id, actor=Actor("ann"), reason="mine", now=NOW)


def test_text_that_is_no_json_is_one_row_s_affair(filled: ControlStore, store_url: str) -> None:
    if not store_url.startswith("sqlite"):
        pytest.skip("PostgreSQL refuses it itself")
    with past_the_store(store_url) as connection:
        columns = "state, host_id, generation, observed_at, failures"
        garbage = "'RUNNING', 'a', 1, observed_at, '{\"half\": '"
        connection.execute(sa.text(f"INSERT INTO observed (name, {columns}) SELECT 'bad', {garbage} FROM observed"))
    assert list(filled.observed()) == [NAME]


def test_what_is_read_alone_is_refused_with_a_message(filled: ControlStore, store_url: str) -> None:
    forge(store_url, schema.desired, "gold", state="PAUSED")
    filled.declare([replace(DECLARATION, name="gold")], now=NOW)
    with pytest.raises(StoreError, match="holds what cannot be read: state: Input should be"):
        filled.request("gold", "stop", reason="test", actor=Actor("ann"), now=NOW)
    assert "password" not in str(filled.audit_entries())


def test_a_declaration_has_the_name_of_its_row(filled: ControlStore, store_url: str) -> None:
    body = schema.json_of(DECLARATION)
    forge(store_url, schema.declaration, "other", body=body)
    assert {name: stream.name for name, stream in filled.declarations().items()} == {"other": "other", NAME: NAME}


@pytest.mark.parametrize("name", [SQL, "a%_b", "x\ny", "ü" * 5_000, "../../etc"])
def test_names_are_values_and_never_sql(filled: ControlStore, name: str) -> None:
    filled.declare([replace(DECLARATION, name=name)], now=NOW)
    filled.request(name, "stop", reason=name, actor=Actor(name), now=NOW)
    filled.add_progress([batch(1, stream=name)])
    asked = filled.jobs.submit(replace(JOB, subject=name, fingerprint=name, actor=Actor(name)), now=NOW)
    assert filled.desired()[name].reason == name.strip()
    assert [batch.stream for batch in filled.progress(name)] == [name]
    assert filled.jobs.find(name) == asked
    assert {entry.actor for entry in filled.audit_entries(subject=name)} == {name}
    assert list(filled.observed()) == [NAME], "the tables are all there"
