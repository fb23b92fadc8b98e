"""A row that a stranger wrote into the store, or another version of Weir, is passed over and named once. Every row
beside it is read, and what has to be read alone is refused with a message."""

import json
import logging
import zlib
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from backend.access import Actor
from backend.errors import JobNotFoundError, StoreError
from backend.jobs.model import JobEnd, JobKind, JobRequest, JobState
from backend.store import rows, schema
from backend.store.leases import job_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import DesiredState, HostHeartbeat
from tests.backend.store.test_table_expectations import FRESH, said
from tests.worlds.store.values import DECLARATION, NOW, held, observed, progress

JOB = JobRequest(JobKind.DIFF, "silver/orders", "f1", "{}", Actor("ann"), "a first look", 60.0)
NAME = DECLARATION.name
RAW = b"\xff\xff"  # nothing that was packed
SQL = "x'; DROP TABLE audit; --"


@pytest.fixture
def filled(store: ControlStore) -> ControlStore:
    """A store with one good row in each table."""
    store.declare([DECLARATION], now=NOW)
    store.ensure_desired(NAME, DesiredState.RUNNING, now=NOW)
    store.observe(observed(), token=held(store).token)
    store.beat(HostHeartbeat("a", "box", 1, NOW, NOW, "4.2.0", None))
    store.note_judgement(said(FRESH))
    store.add_progress([progress(1)])
    store.jobs.submit(JOB, now=NOW)
    return store


def forge(url: str, table: sa.Table, key: str, **changes: Any) -> None:
    """The same row once more under this key, with these columns changed, past whatever the store would check."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        row = dict(connection.execute(sa.select(table)).mappings().first() or {})
        row[next(iter(table.primary_key)).name] = int(key, 16) if table is schema.progress else key
        connection.execute(sa.insert(table).values({**row, **changes}))
    engine.dispose()


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
    pytest.param(
        schema.job, {"kind": "unheard of"}, lambda store: store.jobs.unfinished(), id="an unknown kind of job"
    ),
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
def test_a_job_whose_name_is_a_path_reaches_no_host_and_none_of_its_folders(
    filled: ControlStore, store_url: str, job_id: str
) -> None:
    ended = {"state": "DONE", "ended_at": NOW - timedelta(days=9), "attempts": 1}
    forge(store_url, schema.job, job_id, **ended)
    good = filled.jobs.find(JOB.fingerprint)
    assert good is not None
    assert filled.jobs.newest(9) == filled.jobs.unfinished() == [good]
    assert filled.jobs.prune(before=NOW - timedelta(days=1)) == [], "whoever prunes deletes their results"
    with pytest.raises(StoreError, match="job_id: it is no name of a job"):
        filled.jobs.cancel(job_id, actor=Actor("ann"), reason="mine", now=NOW)


def test_text_that_is_no_json_is_one_row_s_affair(filled: ControlStore, store_url: str) -> None:
    if not store_url.startswith("sqlite"):
        pytest.skip("PostgreSQL refuses it itself")
    engine = sa.create_engine(store_url)
    with engine.begin() as connection:
        columns = "state, host_id, generation, observed_at, failures"
        garbage = "'RUNNING', 'a', 1, observed_at, '{\"half\": '"
        connection.execute(sa.text(f"INSERT INTO observed (name, {columns}) SELECT 'bad', {garbage} FROM observed"))
    engine.dispose()
    assert list(filled.observed()) == [NAME]


def test_what_is_read_alone_is_refused_with_a_message(filled: ControlStore, store_url: str) -> None:
    forge(store_url, schema.desired, "gold", state="PAUSED")
    filled.declare([replace(DECLARATION, name="gold")], now=NOW)
    with pytest.raises(StoreError, match="holds what cannot be read: state: Input should be"):
        filled.request("gold", "stop", reason="test", actor=Actor("ann"), now=NOW)
    assert "password" not in str(filled.audit_entries())


def test_a_declaration_has_the_name_of_its_row(filled: ControlStore, store_url: str) -> None:
    body = rows.json_of(DECLARATION)
    forge(store_url, schema.declaration, "other", body=body)
    assert {name: stream.name for name, stream in filled.declarations().items()} == {"other": "other", NAME: NAME}


@pytest.mark.parametrize("name", [SQL, "a%_b", "x\ny", "ü" * 5_000, "../../etc"])
def test_names_are_values_and_never_sql(filled: ControlStore, name: str) -> None:
    filled.declare([replace(DECLARATION, name=name)], now=NOW)
    filled.request(name, "stop", reason=name, actor=Actor(name), now=NOW)
    filled.add_progress([progress(1, stream=name)])
    asked = filled.jobs.submit(replace(JOB, subject=name, fingerprint=name, actor=Actor(name)), now=NOW)
    assert filled.desired()[name].reason == name.strip()
    assert [batch.stream for batch in filled.progress(name)] == [name]
    assert filled.jobs.find(name) == asked
    assert {entry.actor for entry in filled.audit_entries(subject=name)} == {name}
    assert list(filled.observed()) == [NAME], "the tables are all there"


def test_a_job_of_another_is_no_secret_and_one_that_is_not_there_is_said(filled: ControlStore) -> None:
    with pytest.raises(JobNotFoundError, match="no job 0123456789ab"):
        filled.jobs.cancel("0123456789ab", actor=Actor("ben"), reason="test", now=NOW)


def test_a_host_says_nothing_of_a_job_that_it_does_not_hold(filled: ControlStore) -> None:
    first = filled.jobs.find(JOB.fingerprint)
    second = filled.jobs.submit(replace(JOB, fingerprint="f2"), now=NOW)
    assert first is not None
    lease = filled.acquire(job_resource(first.job_id), "host-a", ttl_s=60)
    assert lease is not None
    for forged in (lease, replace(lease, resource=job_resource(second.job_id))):
        with pytest.raises(Exception, match="is no longer current"):
            filled.jobs.end(forged, second.job_id, JobEnd(JobState.DONE, "/etc"), now=NOW)
    assert filled.jobs.get(second.job_id) == second
    assert json.loads(second.request) == {}
