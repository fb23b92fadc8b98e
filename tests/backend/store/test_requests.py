"""What people ask of streams, do and note of tables: checked and audited by the store itself; one lake for hosts."""

import ast
import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
import sqlalchemy as sa

from backend.access import Access, Actor
from backend.errors import (
    IncidentNotFoundError,
    OverrideError,
    QueryError,
    SavedQueryNotFoundError,
    StoreError,
    StreamNotFoundError,
    StreamRefusedError,
    VersionFormatError,
)
from backend.expectations.model import ExpectationKind, Finding, State, TableExpectation
from backend.format import utc_text
from backend.jobs.model import JobKind
from backend.lake.model import Pin, TableRef
from backend.search.notice import Measure
from backend.sql.saved import Chart, SavedQuery
from backend.store import schema
from backend.store.annotations import Noticed, Pins, SavedQueries
from backend.store.incidents import Incident, IncidentAct, Incidents, IncidentTable
from backend.store.jobs import Jobs
from backend.store.store import ControlStore
from backend.stream_model.stream import Action, DesiredState, StreamState
from tests.worlds.store.statements import past_the_store, statements
from tests.worlds.store.values import DECLARATION, FRESH, JOB, JUMP, NOW, held, judgement, observed

NAME, HOME = DECLARATION.name, "/var/lib/other"
ELSEWHERE = replace(
    DECLARATION, checkpoint_location=f"{HOME}/checkpoints/silver_orders", sink_uri=f"{HOME}/lake/silver/orders"
)


@pytest.fixture
def declared(store: ControlStore) -> ControlStore:
    store.declare([DECLARATION], now=NOW)
    return store


def ask(store: ControlStore, action: str, *, reason: str = "because", **more: object) -> int:
    (wanted,) = store.request_all((NAME,), action, reason=reason, actor=Actor("ann"), now=NOW, **more)  # type: ignore[arg-type]
    return wanted.generation


def test_what_another_host_has_declared_alike_is_not_written_again(store: ControlStore) -> None:
    """Hosts that start together wait for each other there."""
    streams = [replace(DECLARATION, name=f"s{number}", sink_table=f"s{number}") for number in range(100)]
    store.declare(streams, now=NOW)
    with statements(store) as sent:
        store.declare([*streams[1:], replace(streams[0], description="another")], now=NOW)
    assert len(sent) < 7
    assert store.declarations()["s0"].description == "another"


def test_a_request_is_audited_and_grows_the_generation(declared: ControlStore) -> None:
    assert (ask(declared, "start"), ask(declared, "stop", reason=" upgrade "), ask(declared, "restart")) == (1, 2, 3)
    wanted = declared.desired()["silver_orders"]
    assert (wanted.state, wanted.actor, wanted.requested_at) == (DesiredState.RUNNING, "ann", NOW)
    assert [(entry.action, entry.reason) for entry in declared.audit_entries(subject="silver_orders")] == [
        ("restart", "because"),
        ("stop", "upgrade"),
        ("start", "because"),
    ]


def test_starting_what_flows_does_not_restart_it_unless_with_other_settings(declared: ControlStore) -> None:
    generation = ask(declared, "start")
    declared.observe(observed(generation=generation), token=held(declared).token)
    assert ask(declared, "start") == generation
    assert ask(declared, "restart") == generation + 1
    declared.observe(observed(generation=generation + 1), token=held(declared).token)
    assert ask(declared, "start", overrides={NAME: {"trigger": "1 minute"}}) == generation + 2
    assert len(declared.audit_entries()) == 4


@pytest.mark.parametrize("state", [StreamState.FAILED, StreamState.BACKOFF, StreamState.STOPPED])
def test_starting_what_does_not_flow_is_a_new_generation(declared: ControlStore, state: StreamState) -> None:
    generation = ask(declared, "start")
    declared.observe(observed(generation=generation, state=state), token=held(declared).token)
    assert ask(declared, "start") == generation + 1


def test_an_unknown_stream_is_refused_and_the_nearest_named(declared: ControlStore) -> None:
    with pytest.raises(StreamNotFoundError) as refused:
        declared.request("silver_order", "stop", reason="x", actor=Actor("ann"), now=NOW)
    assert "silver_orders" in refused.value.hint
    assert declared.audit_entries() == []


def test_of_several_streams_all_are_asked_or_none(declared: ControlStore) -> None:
    with pytest.raises(StreamNotFoundError):
        declared.request_all(("silver_orders", "nobody"), "stop", reason="x", actor=Actor("ann"), now=NOW)
    assert (declared.desired(), declared.audit_entries()) == ({}, [])
    declared.declare([replace(DECLARATION, name="gold_orders")], now=NOW)
    asked = declared.request_all(("silver_orders", "gold_orders"), "stop", reason="x", actor=Actor("ann"), now=NOW)
    assert [each.name for each in asked] == ["silver_orders", "gold_orders"]
    assert sorted(entry.subject for entry in declared.audit_entries()) == ["gold_orders", "silver_orders"]


def test_the_default_never_overwrites_a_wish(declared: ControlStore) -> None:
    ask(declared, "stop")
    declared.ensure_all_desired(["silver_orders"], DesiredState.RUNNING, now=NOW)
    declared.ensure_all_desired(["other"], DesiredState.RUNNING, now=NOW)
    states = {name: wanted.state for name, wanted in declared.desired().items()}
    assert states == {"other": DesiredState.RUNNING, "silver_orders": DesiredState.STOPPED}


def test_the_audit_trail_is_newest_first_and_limited(declared: ControlStore) -> None:
    names = ["silver_orders", "other"]
    declared.declare([replace(DECLARATION, name="other")], now=NOW)
    for n, name in enumerate((*names, *names)):
        declared.request(name, "stop", reason=f"why {n}", actor=Actor("ann"), now=NOW + timedelta(seconds=n))
    assert [entry.reason for entry in declared.audit_entries(limit=2)] == ["why 3", "why 2"]
    assert [entry.reason for entry in declared.audit_entries(subject="other")] == ["why 3", "why 1"]


def test_overrides_stay_until_others_are_asked_for(declared: ControlStore) -> None:
    def asked(action: str, overrides: dict[str, str] | None = None) -> dict[str, str]:
        ask(declared, action, overrides={} if overrides is None else {NAME: overrides})
        return dict(declared.desired()[NAME].overrides)

    slower = {"trigger": "30 seconds"}
    assert asked("start") == {}
    assert asked("restart", slower) == asked("stop") == asked("start") == slower
    declared.observe(observed(generation=3), token=held(declared).token)
    assert asked("restart", {}) == {}
    details = [entry.detail for entry in reversed(declared.audit_entries())]
    assert details[1].endswith("generation 2; trigger: 5 seconds → 30 seconds")
    assert details[4].endswith("generation 5; trigger: 30 seconds → 5 seconds")
    assert "trigger" not in details[0] + details[2] + details[3]


def test_an_override_that_cannot_be_changes_nothing(declared: ControlStore) -> None:
    with pytest.raises(OverrideError, match="not understood"):
        ask(declared, "start", overrides={NAME: {"trigger": "now and then"}})
    assert declared.desired() == {} and declared.audit_entries() == []


@pytest.fixture
def wanted(declared: ControlStore) -> ControlStore:
    declared.ensure_all_desired([NAME], DesiredState.RUNNING, now=NOW)
    return declared


def test_a_host_with_a_home_of_its_own_is_refused_and_told_both_addresses(wanted: ControlStore) -> None:
    bronze = replace(DECLARATION, name="bronze", checkpoint_location="/checkpoints/bronze")
    wanted.declare([bronze], now=NOW)
    with pytest.raises(StreamRefusedError) as refused:
        wanted.declare([ELSEWHERE, replace(bronze, checkpoint_location=f"{HOME}/checkpoints/bronze")], now=NOW)
    assert refused.value.message == (
        "this host would write a second lake. silver_orders (and 1 more): its checkpoint is "
        "/var/lib/other/checkpoints/silver_orders here and /checkpoints/silver_orders in the store, its table is "
        "/var/lib/other/lake/silver/orders here and /lake/silver/orders in the store"
    )
    assert "WEIR_HOST__CHECKPOINTS_URI=/checkpoints and WEIR_LAKE__TABLES_URI=/lake" in refused.value.hint
    assert wanted.declarations()["silver_orders"] == DECLARATION, "the last one does not win"


def test_one_address_is_enough_and_only_its_setting_is_named(wanted: ControlStore) -> None:
    with pytest.raises(StreamRefusedError) as refused:  # nobody stopped it, though no host is there
        wanted.declare([replace(DECLARATION, sink_uri="s3://other/silver/orders")], now=NOW)
    assert "CHECKPOINTS_URI" not in refused.value.hint
    assert "WEIR_LAKE__TABLES_URI=/lake" in refused.value.hint


@pytest.mark.parametrize(
    "same", [{"checkpoint_location": "file:///checkpoints/silver_orders"}, {"sink_uri": "", "sink_table": ""}]
)
def test_another_spelling_and_no_table_at_all_are_no_other_lake(wanted: ControlStore, same: dict[str, str]) -> None:
    wanted.declare([replace(DECLARATION, **same)], now=NOW)  # type: ignore[arg-type]


def test_what_a_person_stopped_may_be_moved_once_no_host_has_it(wanted: ControlStore) -> None:
    lease = held(wanted)
    ask(wanted, "stop")
    with pytest.raises(StreamRefusedError):
        wanted.declare([ELSEWHERE], now=NOW)
    wanted.release(lease)
    wanted.declare([ELSEWHERE], now=NOW + timedelta(seconds=1))
    assert wanted.declarations()["silver_orders"] == ELSEWHERE


ROOT = Path(__file__).parents[3]
REFUSED = "Weir is read-only"
TABLE = TableRef("/lake/silver/orders", "silver_orders", "/lake", "silver")
NOTICE = replace(JUMP, uri=TABLE.uri, table=TABLE.name)
EXPECTED = TableExpectation(TABLE.uri, TABLE.name, ExpectationKind.HOLDS, condition="amount <= 550")

# What hosts report of what they did and saw, and what the store does for itself. No front end calls these.
REPORTS = {
    ControlStore: {
        *("ensure_all_desired", "declare", "observe", "add_progress", "touch", "roll_up"),
        *("note_ends", "note_backlogs", "expect", "note_judgement", "beat"),
        *("acquire", "acquire_all", "renew", "renew_all", "release", "alone"),
        *("prune_progress", "prune_rollups", "prune_judgements", "prune_hosts"),
        "note",  # that a query was asked: it changes nothing
        "note_of_viewer",  # of a front end: logins, and rows that it did not show
        "take_in",  # what other applications left in the inbox; pages call it before they read
        "cut_audit",  # what changes nothing but the trail
    },
    Jobs: {"begin", "report", "requeue", "end", "prune"},
    Pins: set(),
    SavedQueries: set(),
    Noticed: {"keep", "prune"},
    Incidents: set(),
}

Act = Callable[..., object]  # of a store and of who acts, why and when


def overridden(store: ControlStore, **who: Any) -> object:
    given = {DECLARATION.name: {"trigger": "1 minute"}}
    return store.request_all([DECLARATION.name], "restart", overrides=given, **who)


def submitted(store: ControlStore, kind: JobKind, *, actor: Actor, reason: str, now: datetime) -> object:
    wanted = replace(JOB, kind=kind, fingerprint=kind, parameters={"level": "full"}, actor=actor, reason=reason)
    return store.jobs.submit(wanted, now=now)


def cancelled(store: ControlStore, **who: Any) -> object:
    return store.jobs.cancel(store.jobs.find(JOB.fingerprint).job_id, **who)


def of_incident(store: ControlStore, act: IncidentAct, *, reason: str, **who: Any) -> object:
    table = None if act.startswith(("note", "close")) else IncidentTable(TABLE.uri, TABLE.name, 4, 5, NOW)
    return store.incidents.act(act, reason, number=1, title="cents", table=table, pins=False, **who)


# By the method that writes: each act through it, and the name that the audit trail gives it.
ACTS: dict[str, dict[str, Act]] = {
    "ControlStore.request_all": {
        action: lambda store, action=action, **who: store.request(DECLARATION.name, action, **who)
        for action in get_args(Action)
    },
    "Jobs.submit": {f"{kind} job": partial(submitted, kind=kind) for kind in JobKind},
    "Jobs.cancel": {"cancel diff job": cancelled},
    "ControlStore.admit": {
        "look as": lambda store, *, actor, reason, now: store.admit(
            Access(actor, DECLARATION.name, "look as", reason), now=now, outcome="reading only"
        )
    },
    "Pins.add": {"pin": lambda store, **who: store.pins.add(TABLE, 7, **who)},
    "Pins.remove": {"unpin": lambda store, **who: store.pins.remove(TABLE, 3, **who)},
    "Noticed.seen": {"seen": lambda store, **who: store.noticed.seen(NOTICE.uri, NOTICE.version, **who)},
    "ControlStore.expect_by_hand": {
        "expect": lambda store, **who: store.expect_by_hand(replace(EXPECTED, condition="id > 0"), **who)
    },
    "ControlStore.expect_no_more": {"expect no more": lambda store, **who: store.expect_no_more(EXPECTED, **who)},
    "SavedQueries.save": {"save query": lambda store, **who: store.saved.save("silver_orders", "SELECT 1", **who)},
    "Incidents.act": {act: partial(of_incident, act=act) for act in get_args(IncidentAct)},
    "SavedQueries.remove": {"remove query": lambda store, **who: store.saved.remove("silver_orders", **who)},
}
EACH = [
    *(pytest.param(name, act, id=name) for acts in ACTS.values() for name, act in acts.items()),
    pytest.param("restart", overridden, id="override"),
]
ANN, BEN = Actor("ann"), Actor("ben")


@pytest.fixture
def acted_on(store: ControlStore, request: pytest.FixtureRequest) -> ControlStore:
    """A store with a stream, a notice, a job, an incident, a pinned version of ann's and what she expects; and where
    one is to be removed, a saved query."""
    store.declare([DECLARATION], now=NOW)
    store.pins.add(TABLE, 3, actor=ANN, reason="the audit of May", now=NOW)
    store.noticed.keep([NOTICE], now=NOW)
    store.expect_by_hand(EXPECTED, actor=ANN, reason="a bad batch", now=NOW)
    store.jobs.submit(JOB, now=NOW)
    hurt = IncidentTable(TABLE.uri, TABLE.name, 2, 3, NOW)
    store.incidents.act("open incident", "a bad batch", title="nulls", table=hurt, pins=False, actor=ANN, now=NOW)
    if "remove query" in request.node.name:
        store.saved.save("silver_orders", "SELECT 2", actor=ANN, reason="for all", now=NOW)
    return store


def content(url: str) -> dict[str, Any]:
    """Every row of every table, as another process sees it."""
    with past_the_store(url) as connection:
        return {table.name: connection.execute(sa.select(table)).all() for table in schema.metadata.sorted_tables}


def writers() -> Iterator[tuple[type, str]]:
    for owner in REPORTS:
        for name, function in inspect.getmembers(owner, inspect.isfunction):
            if not name.startswith("_") and ".writing()" in inspect.getsource(function.__code__):
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
        "backend/store/annotations.py",
        "backend/store/engine.py",
        "backend/store/incidents.py",
        "backend/store/jobs.py",
    }


def test_no_front_end_reports_what_only_a_host_knows() -> None:
    reports = set().union(*REPORTS.values()) - {"take_in", "note_of_viewer"}
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
def test_an_act_is_refused_done_and_audited_or_neither(
    acted_on: ControlStore, store_url: str, name: str, act: Act
) -> None:
    before = content(store_url)
    for actor, reason, why in (
        (Actor("eve", REFUSED), "because I can", REFUSED),
        (BEN, " \n", "a reason is required"),
    ):
        with pytest.raises(StreamRefusedError, match=f"{name} silver_orders: {why}"):
            act(acted_on, actor=actor, reason=reason, now=NOW)
    denied, *_ = acted_on.audit_entries()
    assert (denied.actor, denied.action, denied.result, denied.granted_by) == ("eve", name, "denied", REFUSED)
    after = content(store_url)
    assert len(after.pop("audit")) == len(before["audit"]) + 1
    assert after == {table: rows for table, rows in before.items() if table != "audit"}, "but for the denial"
    before = content(store_url)

    fault = "ALTER TABLE audit ADD CONSTRAINT full_disk CHECK (false) NOT VALID"
    mended = "ALTER TABLE audit DROP CONSTRAINT full_disk"
    if store_url.startswith("sqlite"):
        fault = "CREATE TRIGGER full_disk BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'full_disk'); END"
        mended = "DROP TRIGGER full_disk"
    with past_the_store(store_url) as connection:
        connection.execute(sa.text(fault))
    with pytest.raises(StoreError, match="full_disk"):
        act(acted_on, actor=BEN, reason="incident 7", now=NOW)
    assert content(store_url) == before
    with past_the_store(store_url) as connection:
        connection.execute(sa.text(mended))

    act(acted_on, actor=BEN, reason=" incident 7 ", now=NOW)
    (entry,) = [entry for entry in acted_on.audit_entries() if entry.actor == "ben"]
    assert (entry.action, entry.subject, entry.reason, entry.at) == (name, "silver_orders", "incident 7", NOW)
    after = content(store_url)
    changed = {table for table in after if after[table] != before[table]}
    assert changed == {"audit"} if name == "look as" else changed > {"audit"}


def test_the_audit_trail_says_with_what_and_whose_it_was(acted_on: ControlStore) -> None:
    overridden(acted_on, actor=BEN, reason="too fast", now=NOW)
    submitted(acted_on, JobKind.RESET, actor=BEN, reason="a bad batch", now=NOW)
    cancelled(acted_on, actor=BEN, reason="too much", now=NOW)
    details = {entry.action: entry.detail for entry in acted_on.audit_entries() if entry.actor == "ben"}
    asked, reset = acted_on.jobs.find(JOB.fingerprint), acted_on.jobs.find("reset")
    assert details == {
        "restart": "new → RUNNING, generation 1; trigger: 5 seconds → 1 minute",
        "reset job": f"job {reset.job_id}; level: full",
        "cancel diff job": f"job {asked.job_id}; asked for by: ann",
    }


# pins, saved queries, notices, and what is expected of rows ----------------------------------------------------------

ORDERS = TableRef("s3://lake/silver/orders", "silver/orders", "s3://lake")
OTHER = TableRef("s3://lake/silver/other", "silver/other", "s3://lake")


def test_a_pin_is_kept_and_let_go(store: ControlStore) -> None:
    store.pins.add(ORDERS, 118, actor=ANA, reason=" audit of May ", now=NOW)
    store.pins.add(ORDERS, 7, actor=BO, reason="the first load", now=NOW)
    store.pins.add(OTHER, 118, actor=ANA, reason="audit", now=NOW)
    may = Pin(ORDERS.uri, 118, "ana", "audit of May", NOW)
    assert store.pins.of_table(ORDERS) == [Pin(ORDERS.uri, 7, "bo", "the first load", NOW), may]

    gone = store.pins.remove(ORDERS, 118, actor=BO, reason="audited", now=NOW + timedelta(days=1))
    assert gone == may
    assert [pin.version for pin in store.pins.of_table(ORDERS)] == [7] and len(store.pins.of_table(OTHER)) == 1


def test_a_version_is_pinned_once_and_what_is_not_pinned_cannot_be_let_go(store: ControlStore) -> None:
    pin = store.pins.add(ORDERS, 1, actor=BO, reason="ours", now=NOW)
    with pytest.raises(StreamRefusedError, match="v1 of silver/orders is pinned already, by bo: ours"):
        store.pins.add(ORDERS, 1, actor=ANA, reason="once more", now=NOW)
    with pytest.raises(StreamRefusedError, match="v2 of silver/orders is not pinned") as refused:
        store.pins.remove(ORDERS, 2, actor=ANA, reason="audited", now=NOW)
    assert refused.value.hint == "pinned: v1"
    assert store.pins.of_table(ORDERS) == [pin] and len(store.audit_entries()) == 1


def test_nothing_is_pinned_while_a_vacuum_is_under_way(store: ControlStore) -> None:
    vacuum = replace(JOB, kind=JobKind.VACUUM, subject=ORDERS.name)
    job = store.jobs.submit(vacuum, now=NOW)
    with pytest.raises(StreamRefusedError, match="a VACUUM of this table is running"):
        store.pins.add(ORDERS, 1, actor=ANA, reason="audit", now=NOW)
    store.pins.add(OTHER, 1, actor=ANA, reason="audit", now=NOW)
    store.jobs.cancel(job.job_id, actor=ANA, reason="first the pin", now=NOW)
    assert store.pins.add(ORDERS, 1, actor=ANA, reason="audit", now=NOW).version == 1


def test_a_name_is_one_of_its_table_alone_and_a_pin_may_end(store: ControlStore) -> None:
    end = NOW + timedelta(days=30)
    made = store.pins.add(ORDERS, 118, actor=ANA, reason="the model", now=NOW, name=" features-2026-11 ", until=end)
    assert made == Pin(ORDERS.uri, 118, "ana", "the model", NOW, "features-2026-11", end)
    assert store.pins.of_table(ORDERS) == [made]
    assert made.holds(end - timedelta(seconds=1)) and not made.holds(end)
    store.pins.add(OTHER, 3, actor=ANA, reason="the model", now=NOW, name="features-2026-11")
    with pytest.raises(StreamRefusedError, match="'features-2026-11' names v118 of silver/orders already"):
        store.pins.add(ORDERS, 119, actor=ANA, reason="once more", now=NOW, name="features-2026-11")
    with pytest.raises(StreamRefusedError, match="which has passed"):
        store.pins.add(ORDERS, 119, actor=ANA, reason="too late", now=NOW, until=NOW)
    with pytest.raises(VersionFormatError, match="no name for a version: 'latest'"):
        store.pins.add(ORDERS, 119, actor=ANA, reason="confusing", now=NOW, name="latest")
    for version in (1, 2):
        store.pins.add(ORDERS, version, actor=ANA, reason="without a name", now=NOW, name=" ")
    store.pins.remove(ORDERS, 118, actor=ANA, reason="trained", now=NOW)
    store.pins.add(ORDERS, 119, actor=ANA, reason="once more", now=NOW, name="features-2026-11")
    assert [entry.detail for entry in store.audit_entries(subject=ORDERS.name)] == [
        "v119 as features-2026-11",
        "v118, pinned as features-2026-11 by ana: the model",
        "v2",
        "v1",
        f"v118 as features-2026-11, until {utc_text(end)}",
    ]


ANA, BO = Actor("ana"), Actor("bo")
CHART = Chart("Bar", "status", "n", None)
TEXT = "SELECT status,\n  count(*) AS n FROM orders GROUP BY 1"


def test_a_query_is_kept_with_its_chart_replaced_by_its_owner_and_removed(store: ControlStore) -> None:
    made = store.saved.save(" By status ", TEXT, CHART, actor=ANA, reason="for the stand-up", now=NOW)
    assert made == SavedQuery("By status", "ana", TEXT, CHART, NOW) == store.saved.get("By status")
    plain = store.saved.save("All", "SELECT 1", actor=BO, reason="a first look", now=NOW)
    assert store.saved.all() == [plain, made]

    later = NOW + timedelta(days=1)
    again = store.saved.save("By status", "SELECT 2", actor=ANA, reason="shorter", now=later)
    assert store.saved.all() == [plain, replace(made, text="SELECT 2", chart=None, saved_at=later)] == [plain, again]

    assert store.saved.remove("By status", actor=BO, reason="nobody looks", now=later) == again
    assert store.saved.all() == [plain]
    acts = [(entry.actor, entry.action, entry.reason, entry.detail) for entry in store.audit_entries()]
    assert acts == [
        ("bo", "remove query", "nobody looks", "of ana: SELECT 2"),
        ("ana", "save query", "shorter", "of ana: SELECT 2"),
        ("bo", "save query", "a first look", "of bo: SELECT 1"),
        ("ana", "save query", "for the stand-up", "of ana: SELECT status, count(*) AS n FROM orders GROUP BY 1"),
    ]


def test_nobody_replaces_what_somebody_else_saved(store: ControlStore) -> None:
    mine = store.saved.save("Totals", TEXT, actor=ANA, reason="mine", now=NOW)
    entries = store.audit_entries()
    with pytest.raises(StreamRefusedError, match="Totals is a saved query of ana"):
        store.saved.save("Totals", "SELECT 2", actor=BO, reason="better", now=NOW)
    assert store.saved.all() == [mine] and store.audit_entries() == entries


@pytest.mark.parametrize("name", ["  ", "a/b", "two\nlines", "n" * 61, "\u202eslatot"])
def test_a_name_is_one_that_a_link_can_hold(store: ControlStore, name: str) -> None:
    with pytest.raises(QueryError, match="a saved query needs a name"):
        store.saved.save(name, TEXT, actor=ANA, reason="mine", now=NOW)
    assert store.saved.all() == [] and store.audit_entries() == []


def test_one_that_is_not_there_is_told_with_those_that_are(store: ControlStore) -> None:
    store.saved.save("Totals", TEXT, actor=ANA, reason="mine", now=NOW)
    for ask in (store.saved.get, lambda name: store.saved.remove(name, actor=ANA, reason="gone", now=NOW)):
        with pytest.raises(SavedQueryNotFoundError, match="no saved query 'totals'") as missing:
            ask("totals")
        assert missing.value.hint == "saved: Totals"
    assert [entry.action for entry in store.audit_entries()] == ["save query"]


NULLS = replace(JUMP, kind=Measure.NULLS, subject="email", committed_at=NOW - timedelta(seconds=1))
OTHER_JUMP = replace(JUMP, uri="s3://lake/other", table="other", committed_at=None)


def test_what_is_noticed_twice_is_kept_once_and_mended(store: ControlStore) -> None:
    store.noticed.keep([JUMP, NULLS, OTHER_JUMP], now=NOW)
    store.noticed.keep([JUMP], now=NOW + timedelta(hours=1))
    assert {notice.key: notice for notice in store.noticed.open()} == {n.key: n for n in (JUMP, NULLS, OTHER_JUMP)}
    store.noticed.keep([replace(JUMP, mended_at=33)], now=NOW)
    assert {notice.key for notice in store.noticed.open()} == {NULLS.key, OTHER_JUMP.key}
    assert store.noticed.prune(before=NOW) == 0 and store.noticed.prune(before=NOW + timedelta(seconds=1)) == 3
    with pytest.raises(StreamRefusedError, match="nothing is open of v30"):
        store.noticed.seen(JUMP.uri, 30, actor=ANA, reason="mine", now=NOW)


def test_one_finding_of_a_version_is_seen_and_the_others_stay_open(store: ControlStore) -> None:
    other = replace(NULLS, subject="phone")
    store.noticed.keep([JUMP, NULLS, other], now=NOW)
    one = partial(store.noticed.seen, JUMP.uri, 31, lambda notice: notice.key == NULLS.key, actor=ANA, now=NOW)
    (seen,) = one(reason="agreed")
    assert seen.key == NULLS.key and {notice.key for notice in store.noticed.open()} == {JUMP.key, other.key}
    (entry,) = store.audit_entries()
    assert entry.action == "seen" and "share of nulls of email" in entry.detail
    with pytest.raises(StreamRefusedError, match="nothing is open of v31"):
        one(reason="again")


def test_what_no_host_knows_is_seen_as_a_page_told_it_and_what_one_knows_stays_as_it_is(store: ControlStore) -> None:
    store.noticed.keep([replace(JUMP, mended_at=33)], now=NOW)
    seen = store.noticed.seen(JUMP.uri, 31, actor=ANA, reason="agreed", now=NOW, told=[JUMP, NULLS])
    assert [notice.key for notice in seen] == [NULLS.key] and store.noticed.open() == []
    assert store.noticed.seen_keys() == {NULLS.key}
    with pytest.raises(StreamRefusedError, match="a reason is required"):
        store.noticed.seen(OTHER_JUMP.uri, 31, actor=ANA, reason="", now=NOW, told=[OTHER_JUMP])
    assert store.noticed.open() == [], "what was refused was not written either"


HURT = IncidentTable(ORDERS.uri, ORDERS.name, 30, 31, NOW - timedelta(hours=1))


def open_incident(store: ControlStore, table: IncidentTable = HURT, **more: object) -> Incident:
    asked = {"reason": "half of the orders cost a hundred times as much", "title": "cents for euros", "actor": ANA}
    asked |= {"act": "open incident", "table": table, "now": NOW} | more
    return store.incidents.act(asked.pop("act"), asked.pop("reason"), **asked)


def test_an_incident_keeps_what_people_say_of_it_until_it_is_over(store: ControlStore) -> None:
    assert store.incidents.all() == []
    jump = replace(JUMP, uri=ORDERS.uri)
    made = open_incident(store, notices=[jump], pins=False)
    assert (made.state, made.tables, made.findings, made.title) == ("open", (HURT,), (jump.key,), "cents for euros")
    assert store.incidents.get(made.id) == made and store.noticed.open() == [jump], "which no host knew"
    assert made.is_about(ORDERS.uri, 31) and not made.is_about(ORDERS.uri, 30) and not made.is_about(OTHER.uri, 31)
    later = NOW + timedelta(minutes=1)
    noted = store.incidents.act("note on incident", " paged BO ", number=made.id, actor=BO, now=later)
    assert noted == replace(made, state="seen", acted_at=later) == store.incidents.get(made.id)
    second = open_incident(store, replace(HURT, bad=32), pins=False)
    assert [each.id for each in store.incidents.all()] == [second.id, made.id]
    over = store.incidents.act("close incident", "divided again", number=second.id, actor=ANA, now=NOW)
    assert over.state == "over" and not over.is_about(ORDERS.uri, 32)
    assert [each.id for each in store.incidents.all()] == [made.id, second.id], "what is over comes last"
    opened = ("ana", "open incident", "half of the orders cost a hundred times as much", ORDERS.name)
    assert [(entry.actor, entry.action, entry.reason, entry.subject) for entry in store.audit_entries()] == [
        ("bo", "note on incident", "paged BO", ORDERS.name),
        ("ana", "close incident", "divided again", ORDERS.name), opened, opened,
    ]  # fmt: skip
    assert store.audit_entries()[-1].detail == f"incident {made.id}: cents for euros"


def test_a_commit_is_in_one_open_incident_and_another_table_can_be_added_to_it(store: ControlStore) -> None:
    made = open_incident(store, pins=False)
    with pytest.raises(StreamRefusedError, match=f"v31 of silver/orders is in incident {made.id}") as refused:
        open_incident(store)
    assert refused.value.hint == "cents for euros"
    other = IncidentTable(OTHER.uri, OTHER.name, None, 0, NOW)
    both = open_incident(store, other, act="add to incident", number=made.id, notices=[OTHER_JUMP, OTHER_JUMP])
    assert (both.id, both.tables, both.findings, both.state) == (made.id, (HURT, other), (OTHER_JUMP.key,), "seen")
    assert [pin.version for pin in store.pins.of_table(OTHER)] == [0], "there is no version before it"
    store.incidents.act("close incident", "mended", number=made.id, actor=ANA, now=NOW)
    for act in ("note on incident", "add to incident", "close incident"):
        with pytest.raises(StreamRefusedError, match=f"incident {made.id} is over"):
            store.incidents.act(act, "once more", number=made.id, actor=ANA, now=NOW)
    with pytest.raises(IncidentNotFoundError, match="no incident 99"):
        store.incidents.act("note on incident", "once more", number=99, actor=ANA, now=NOW)
    with pytest.raises(IncidentNotFoundError, match="no incident 99"):
        store.incidents.get(99)
    assert open_incident(store, pins=False).id == made.id + 1, "the one about it is over"


def test_an_incident_pins_its_versions_with_it_or_is_not_opened(store: ControlStore) -> None:
    store.pins.add(ORDERS, 30, actor=BO, reason="audit of May", now=NOW)
    made = open_incident(store)
    pins = {pin.version: pin.reason for pin in store.pins.of_table(ORDERS)}
    assert pins[30] == "audit of May" and pins[31].startswith(f"incident {made.id}: half of the orders")
    before = store.audit_entries(acts_only=True)
    vacuum = store.jobs.submit(replace(JOB, kind=JobKind.VACUUM, subject=OTHER.name), now=NOW)
    with pytest.raises(StreamRefusedError, match="a VACUUM of this table is running"):
        open_incident(store, IncidentTable(OTHER.uri, OTHER.name, 0, 1, NOW), notices=[OTHER_JUMP])
    with pytest.raises(StreamRefusedError, match="a reason is required"):
        open_incident(store, replace(HURT, bad=40), reason=" ")
    with pytest.raises(StreamRefusedError, match="read-only"):
        open_incident(store, replace(HURT, bad=40), actor=Actor("eve", "you are read-only here"))
    assert [each.id for each in store.incidents.all()] == [made.id] and store.noticed.open() == []
    assert len(store.audit_entries(acts_only=True)) == len(before) + 1 and store.pins.of_table(OTHER) == [], (
        "but for the VACUUM"
    )
    store.jobs.cancel(vacuum.job_id, actor=ANA, reason="first the incident", now=NOW)


def test_nobody_loses_what_is_added_where_many_add_at_once(store: ControlStore) -> None:
    made = open_incident(store, pins=False)
    tables = [IncidentTable(OTHER.uri, OTHER.name, version, version + 1, NOW) for version in range(8)]
    with ThreadPoolExecutor(4) as people:
        list(people.map(
            lambda table: open_incident(store, table, act="add to incident", number=made.id, pins=False), tables
        ))  # fmt: skip
    assert set(store.incidents.get(made.id).tables) == {HURT, *tables}


KEY = TableExpectation("s3://lake/orders", "s3://lake/orders", ExpectationKind.UNIQUE, "shop", columns=("a", "b"))
REFERS = replace(
    KEY, kind=ExpectationKind.REFERENCES, columns=("a",), other="c", other_uri="/lake/c", other_column="id"
)
WITH_ALL = Finding(
    State.BROKEN, "because", NOW, 131, 7, NOW - timedelta(days=1), "2026-02-28", 12, (800, 1_200), 20, 3, 9, ("1", "2"),
    seen={"table": "id", "days": {"2026-02-28": 12, "2026-02-27": None}},
)  # fmt: skip


def test_a_judgement_comes_back_as_it_was_given(store: ControlStore) -> None:
    assert store.judgements() == []
    for each in (FRESH, KEY, REFERS):
        judged = replace(judgement(each, WITH_ALL), broken_since=NOW - timedelta(hours=2))
        store.note_judgement(judged)
        assert judged in store.judgements()
    later = replace(judgement(KEY, replace(WITH_ALL, state=State.MET)), judged_at=NOW + timedelta(seconds=1))
    store.note_judgement(later)
    assert len(store.judgements()) == 3 and later in store.judgements()


def test_what_a_pipeline_expects_no_more_is_forgotten_and_what_was_found_stays(store: ControlStore) -> None:
    of_others = judgement(replace(FRESH, uri="/lake/x", pipeline="other"))
    store.expect(["other"], [of_others])
    store.expect(["shop"], [judgement(FRESH), judgement(KEY)])
    found = judgement(FRESH, WITH_ALL)
    store.note_judgement(found)
    store.expect(["shop"], [judgement(FRESH), judgement(REFERS)])
    assert sorted(store.judgements(), key=lambda each: each.expectation.name) == [found, of_others, judgement(REFERS)]
    store.expect(["shop"], [])
    assert store.judgements() == [of_others]


def test_what_no_host_judges_is_forgotten_after_a_while_and_no_person_takes_it_back(store: ControlStore) -> None:
    store.note_judgement(judgement(FRESH))
    with pytest.raises(StreamRefusedError, match="nobody expects fresh by hand"):
        store.expect_no_more(FRESH, actor=ANA, reason="late anyway", now=NOW)
    assert store.prune_judgements(before=NOW) == 0
    assert store.judgements() == [judgement(FRESH)]
    assert store.prune_judgements(before=NOW + timedelta(seconds=1)) == 1
    assert store.judgements() == []


def test_what_a_person_expects_stays_until_a_person_takes_it_back(store: ControlStore) -> None:
    asked = TableExpectation(FRESH.uri, "gold_orders", ExpectationKind.HOLDS, condition="amount <= 550")
    ann, later = Actor("ann"), NOW + timedelta(days=900)
    store.expect_by_hand(asked, actor=ann, reason=" cents, not euros ", now=NOW)
    (begun,) = store.judgements()
    kept = replace(asked, by="ann", why="cents, not euros")
    assert (begun.expectation, begun.host_id, begun.finding.is_early) == (kept, "", True)
    found = judgement(kept, Finding(State.BROKEN, "2 of 4 rows violate it", version=3))
    store.note_judgement(found)
    store.expect_by_hand(asked, actor=Actor("ben"), reason="so do I", now=NOW)
    store.expect(["shop"], [judgement(FRESH)])
    store.expect(["shop"], [])
    assert store.prune_judgements(before=later) == 0 and store.judgements() == [found]

    store.expect_no_more(kept, actor=ann, reason="prices went up", now=NOW)
    store.note_judgement(found)  # by a host that looked meanwhile
    assert store.judgements() == []
    with pytest.raises(StreamRefusedError, match=r"nobody expects holds\(amount <= 550\) by hand"):
        store.expect_no_more(kept, actor=ann, reason="twice", now=NOW)
    acts = [(each.actor, each.action, each.detail) for each in store.audit_entries(subject="gold_orders")]
    name = "holds(amount <= 550)"
    assert acts == [("ann", "expect no more", name), ("ben", "expect", name), ("ann", "expect", name)]
