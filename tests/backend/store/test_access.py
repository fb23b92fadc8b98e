"""Every act of a person goes through one check: whoever may not act is refused by the store itself, and an act that
cannot be written into the audit trail does not happen."""

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import sqlalchemy as sa

from backend.access import Actor
from backend.errors import StoreError, StreamRefusedError
from backend.expectations.model import ExpectationKind, TableExpectation
from backend.jobs.model import JobKind, JobRequest
from backend.lake.model import TableRef
from backend.search.notice import Measure, Notice
from backend.store import schema
from backend.store.jobs import Jobs
from backend.store.noticed import Noticed
from backend.store.pins import Pins
from backend.store.saved import SavedQueries
from backend.store.store import ControlStore
from backend.stream_model.stream import Action
from tests.worlds.store.values import DECLARATION, NOW

ROOT = Path(__file__).parents[3]
REFUSED = "Weir is read-only"
TABLE = TableRef("/lake/silver/orders", "silver_orders", "/lake", "silver")
NOTICE = Notice(TABLE.uri, TABLE.name, 9, Measure.ROWS, "", "90", "9", "count(*) >= 50", "DELETE by eve", NOW)
EXPECTED = TableExpectation(TABLE.uri, TABLE.name, ExpectationKind.HOLDS, condition="amount <= 550")
JOB = JobRequest(JobKind.DIFF, "silver_orders", "f1", "{}", Actor("ann"), "a first look", 60.0)

# What hosts report of what they did and saw, and what the store does for itself. No front end calls these.
REPORTS = {
    ControlStore: {
        *("ensure_desired", "ensure_all_desired", "declare", "observe", "add_progress", "touch", "roll_up"),
        *("note_ends", "note_backlogs", "expect", "note_judgement", "beat"),
        *("acquire", "acquire_all", "renew", "renew_all", "release", "alone"),
        *("prune_progress", "prune_rollups", "prune_judgements", "prune_hosts"),
        "note",  # that a query was asked: it changes nothing
        "take_in",  # what other applications left in the inbox; pages call it before they read
    },
    Jobs: {"begin", "report", "requeue", "end", "prune"},
    Pins: set(),
    SavedQueries: set(),
    Noticed: {"keep", "prune"},
}

Act = Callable[[ControlStore, Actor, str], object]


def requested(action: Action) -> Act:
    return lambda store, actor, reason: store.request(DECLARATION.name, action, reason=reason, actor=actor, now=NOW)


def overridden(store: ControlStore, actor: Actor, reason: str) -> object:
    given = {DECLARATION.name: {"trigger": "1 minute"}}
    return store.request_all([DECLARATION.name], "restart", reason=reason, actor=actor, now=NOW, overrides=given)


def submitted(kind: JobKind) -> Act:
    wanted = replace(JOB, kind=kind, fingerprint=kind, parameters={"level": "full"})
    return lambda store, actor, reason: store.jobs.submit(replace(wanted, actor=actor, reason=reason), now=NOW)


def cancelled(store: ControlStore, actor: Actor, reason: str) -> object:
    asked = store.jobs.find(JOB.fingerprint)
    assert asked is not None
    return store.jobs.cancel(asked.job_id, actor=actor, reason=reason, now=NOW)


def pinned(store: ControlStore, actor: Actor, reason: str) -> object:
    return store.pins.add(TABLE, 7, actor=actor, reason=reason, now=NOW)


def unpinned(store: ControlStore, actor: Actor, reason: str) -> object:
    return store.pins.remove(TABLE, 3, actor=actor, reason=reason, now=NOW)


def seen(store: ControlStore, actor: Actor, reason: str) -> object:
    return store.noticed.seen(NOTICE.uri, NOTICE.version, actor=actor, reason=reason, now=NOW)


def expected(store: ControlStore, actor: Actor, reason: str) -> object:
    return store.expect_by_hand(replace(EXPECTED, condition="id > 0"), actor=actor, reason=reason, now=NOW)


def expected_no_more(store: ControlStore, actor: Actor, reason: str) -> object:
    return store.expect_no_more(EXPECTED, actor=actor, reason=reason, now=NOW)


def saved(store: ControlStore, actor: Actor, reason: str) -> object:
    return store.saved.save("silver_orders", "SELECT 1", actor=actor, reason=reason, now=NOW)


def saved_no_more(store: ControlStore, actor: Actor, reason: str) -> object:
    return store.saved.remove("silver_orders", actor=actor, reason=reason, now=NOW)


# By the method that writes: each act through it, and the name that the audit trail gives it.
ACTS: dict[str, dict[str, Act]] = {
    "ControlStore.request_all": {**{str(action): requested(action) for action in get_args(Action)}},
    "Jobs.submit": {f"{kind} job": submitted(kind) for kind in JobKind},
    "Jobs.cancel": {"cancel diff job": cancelled},
    "Pins.add": {"pin": pinned},
    "Pins.remove": {"unpin": unpinned},
    "Noticed.seen": {"seen": seen},
    "ControlStore.expect_by_hand": {"expect": expected},
    "ControlStore.expect_no_more": {"expect no more": expected_no_more},
    "SavedQueries.save": {"save query": saved},
    "SavedQueries.remove": {"remove query": saved_no_more},
}
EACH = [
    *(pytest.param(name, act, id=name) for acts in ACTS.values() for name, act in acts.items()),
    pytest.param("restart", overridden, id="override"),
]


@pytest.fixture
def acted_on(store: ControlStore, request: pytest.FixtureRequest) -> ControlStore:
    """A store with a stream, a notice, a job, a pinned version of ann's and what she expects; and where one is to be
    removed, a saved query."""
    store.declare([DECLARATION], now=NOW)
    store.pins.add(TABLE, 3, actor=Actor("ann"), reason="the audit of May", now=NOW)
    store.noticed.keep([NOTICE], now=NOW)
    store.expect_by_hand(EXPECTED, actor=Actor("ann"), reason="a bad batch", now=NOW)
    store.jobs.submit(JOB, now=NOW)
    if "remove query" in request.node.name:
        store.saved.save("silver_orders", "SELECT 2", actor=Actor("ann"), reason="for all", now=NOW)
    return store


def content(url: str) -> dict[str, Any]:
    """Every row of every table, as another process sees it."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        tables = {table.name: connection.execute(sa.select(table)).all() for table in schema.metadata.sorted_tables}
    engine.dispose()
    return tables


def writers() -> Iterator[tuple[type, str]]:
    for owner in REPORTS:
        for name, function in inspect.getmembers(owner, inspect.isfunction):
            if not name.startswith("_") and ".writing()" in inspect.getsource(function):
                yield owner, name


def test_each_function_that_writes_is_an_act_with_its_check_or_what_a_host_reports() -> None:
    acts = {name for owner, name in writers() if name not in REPORTS[owner]}
    assert {f"{owner.__name__}.{name}" for owner, name in writers() if name in acts} == ACTS.keys()
    assert all(hasattr(owner, name) for owner, names in REPORTS.items() for name in names)


def test_nothing_but_the_store_writes_to_it() -> None:
    files = [file for folder in ("app", "backend", "pages", "pipelines") for file in (ROOT / folder).rglob("*.py")]
    writing = {file.relative_to(ROOT).as_posix() for file in files if ".writing(" in file.read_text()}
    assert writing == {
        "backend/store/store.py",
        "backend/store/jobs.py",
        "backend/store/pins.py",
        "backend/store/saved.py",
        "backend/store/noticed.py",
        "backend/store/told.py",
        "backend/store/migrate.py",
    }


def test_no_front_end_reports_what_only_a_host_knows() -> None:
    reports = set().union(*REPORTS.values()) - {"take_in"}
    calls = [
        f"{file.relative_to(ROOT)}: {ast.unparse(node)}"
        for folder in ("app", "pages")
        for file in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in reports
        if ast.unparse(node.value).endswith(("store", "store()", "store().jobs", "store.jobs"))
    ]
    assert calls == []


@pytest.mark.parametrize(("name", "act"), EACH)
def test_who_may_not_act_is_refused_by_the_act_itself(
    acted_on: ControlStore, store_url: str, name: str, act: Act
) -> None:
    before = content(store_url)
    with pytest.raises(StreamRefusedError, match=f"{name} silver_orders: {REFUSED}"):
        act(acted_on, Actor("eve", REFUSED), "because I can")
    assert content(store_url) == before


@pytest.mark.parametrize(("name", "act"), EACH)
def test_an_act_needs_a_reason(acted_on: ControlStore, store_url: str, name: str, act: Act) -> None:
    before = content(store_url)
    with pytest.raises(StreamRefusedError, match=f"{name} silver_orders: a reason is required"):
        act(acted_on, Actor("ben"), " \n")
    assert content(store_url) == before


@pytest.mark.parametrize(("name", "act"), EACH)
def test_an_act_is_in_the_audit_trail_with_who_why_and_when(
    acted_on: ControlStore, store_url: str, name: str, act: Act
) -> None:
    before = content(store_url)
    act(acted_on, Actor("ben"), " incident 7 ")
    (entry,) = [entry for entry in acted_on.audit_entries() if entry.actor == "ben"]
    assert (entry.action, entry.subject, entry.reason, entry.at) == (name, "silver_orders", "incident 7", NOW)
    after = content(store_url)
    assert {table for table in after if after[table] != before[table]} > {"audit"}


@pytest.mark.parametrize(("name", "act"), EACH)
def test_an_act_that_cannot_be_audited_does_not_happen(
    acted_on: ControlStore, store_url: str, name: str, act: Act
) -> None:
    fault = "ALTER TABLE audit ADD CONSTRAINT full_disk CHECK (false) NOT VALID"
    if store_url.startswith("sqlite"):
        fault = "CREATE TRIGGER full_disk BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'full_disk'); END"
    engine = sa.create_engine(store_url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(sa.text(fault))
    engine.dispose()
    before = content(store_url)
    with pytest.raises(StoreError, match="full_disk"):
        act(acted_on, Actor("ben"), "incident 7")
    assert content(store_url) == before


def test_the_audit_trail_says_with_what_and_whose_it_was(acted_on: ControlStore) -> None:
    overridden(acted_on, Actor("ben"), "too fast")
    submitted(JobKind.RESET)(acted_on, Actor("ben"), "a bad batch")
    cancelled(acted_on, Actor("ben"), "too much")
    details = {entry.action: entry.detail for entry in acted_on.audit_entries() if entry.actor == "ben"}
    asked, reset = acted_on.jobs.find(JOB.fingerprint), acted_on.jobs.find("reset")
    assert asked is not None and reset is not None
    assert details == {
        "restart": "new → RUNNING, generation 1; trigger: 5 seconds → 1 minute",
        "reset job": f"job {reset.job_id}; level: full",
        "cancel diff job": f"job {asked.job_id}; asked for by: ann",
    }
