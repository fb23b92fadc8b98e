"""What people ask of streams and do: checked and audited by the store itself; and one lake for all hosts."""

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
import sqlalchemy as sa

from backend.access import Actor
from backend.errors import OverrideError, StoreError, StreamNotFoundError, StreamRefusedError
from backend.expectations.model import ExpectationKind, TableExpectation
from backend.jobs.model import JobKind
from backend.lake.model import TableRef
from backend.store import schema
from backend.store.jobs import Jobs
from backend.store.noticed import Noticed
from backend.store.pins import Pins
from backend.store.saved import SavedQueries
from backend.store.store import ControlStore
from backend.stream_model.stream import Action, DesiredState, StreamState
from tests.worlds.store.statements import past_the_store, statements
from tests.worlds.store.values import DECLARATION, JOB, JUMP, NOW, held, observed

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


def test_declaring_twice_keeps_the_later(declared: ControlStore) -> None:
    later = replace(DECLARATION, trigger_interval_ms=7_000)
    declared.declare([later], now=NOW)
    assert declared.declarations() == {"silver_orders": later}


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
    declared.ensure_desired("silver_orders", DesiredState.RUNNING, now=NOW)
    declared.ensure_desired("other", DesiredState.RUNNING, now=NOW)
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
    declared.ensure_desired(NAME, DesiredState.RUNNING, now=NOW)
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

Act = Callable[..., object]  # of a store and of who acts, why and when


def overridden(store: ControlStore, **who: Any) -> object:
    given = {DECLARATION.name: {"trigger": "1 minute"}}
    return store.request_all([DECLARATION.name], "restart", overrides=given, **who)


def submitted(store: ControlStore, kind: JobKind, *, actor: Actor, reason: str, now: datetime) -> object:
    wanted = replace(JOB, kind=kind, fingerprint=kind, parameters={"level": "full"}, actor=actor, reason=reason)
    return store.jobs.submit(wanted, now=now)


def cancelled(store: ControlStore, **who: Any) -> object:
    return store.jobs.cancel(store.jobs.find(JOB.fingerprint).job_id, **who)


# By the method that writes: each act through it, and the name that the audit trail gives it.
ACTS: dict[str, dict[str, Act]] = {
    "ControlStore.request_all": {
        action: lambda store, action=action, **who: store.request(DECLARATION.name, action, **who)
        for action in get_args(Action)
    },
    "Jobs.submit": {f"{kind} job": partial(submitted, kind=kind) for kind in JobKind},
    "Jobs.cancel": {"cancel diff job": cancelled},
    "Pins.add": {"pin": lambda store, **who: store.pins.add(TABLE, 7, **who)},
    "Pins.remove": {"unpin": lambda store, **who: store.pins.remove(TABLE, 3, **who)},
    "Noticed.seen": {"seen": lambda store, **who: store.noticed.seen(NOTICE.uri, NOTICE.version, **who)},
    "ControlStore.expect_by_hand": {
        "expect": lambda store, **who: store.expect_by_hand(replace(EXPECTED, condition="id > 0"), **who)
    },
    "ControlStore.expect_no_more": {"expect no more": lambda store, **who: store.expect_no_more(EXPECTED, **who)},
    "SavedQueries.save": {"save query": lambda store, **who: store.saved.save("silver_orders", "SELECT 1", **who)},
    "SavedQueries.remove": {"remove query": lambda store, **who: store.saved.remove("silver_orders", **who)},
}
EACH = [
    *(pytest.param(name, act, id=name) for acts in ACTS.values() for name, act in acts.items()),
    pytest.param("restart", overridden, id="override"),
]
ANN, BEN = Actor("ann"), Actor("ben")


@pytest.fixture
def acted_on(store: ControlStore, request: pytest.FixtureRequest) -> ControlStore:
    """A store with a stream, a notice, a job, a pinned version of ann's and what she expects; and where one is to be
    removed, a saved query."""
    store.declare([DECLARATION], now=NOW)
    store.pins.add(TABLE, 3, actor=ANN, reason="the audit of May", now=NOW)
    store.noticed.keep([NOTICE], now=NOW)
    store.expect_by_hand(EXPECTED, actor=ANN, reason="a bad batch", now=NOW)
    store.jobs.submit(JOB, now=NOW)
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
def test_who_may_not_act_or_has_no_reason_is_refused(
    acted_on: ControlStore, store_url: str, name: str, act: Act
) -> None:
    before = content(store_url)
    for actor, reason, why in (
        (Actor("eve", REFUSED), "because I can", REFUSED),
        (BEN, " \n", "a reason is required"),
    ):
        with pytest.raises(StreamRefusedError, match=f"{name} silver_orders: {why}"):
            act(acted_on, actor=actor, reason=reason, now=NOW)
    assert content(store_url) == before


@pytest.mark.parametrize(("name", "act"), EACH)
def test_an_act_is_audited_with_who_why_and_when(acted_on: ControlStore, store_url: str, name: str, act: Act) -> None:
    before = content(store_url)
    act(acted_on, actor=BEN, reason=" incident 7 ", now=NOW)
    (entry,) = [entry for entry in acted_on.audit_entries() if entry.actor == "ben"]
    assert (entry.action, entry.subject, entry.reason, entry.at) == (name, "silver_orders", "incident 7", NOW)
    after = content(store_url)
    assert {table for table in after if after[table] != before[table]} > {"audit"}


@pytest.mark.parametrize(("name", "act"), EACH)
def test_an_act_that_cannot_be_audited_is_not_done(acted_on: ControlStore, store_url: str, name: str, act: Act) -> None:
    fault = "ALTER TABLE audit ADD CONSTRAINT full_disk CHECK (false) NOT VALID"
    if store_url.startswith("sqlite"):
        fault = "CREATE TRIGGER full_disk BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'full_disk'); END"
    with past_the_store(store_url) as connection:
        connection.execute(sa.text(fault))
    before = content(store_url)
    with pytest.raises(StoreError, match="full_disk"):
        act(acted_on, actor=BEN, reason="incident 7", now=NOW)
    assert content(store_url) == before


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
