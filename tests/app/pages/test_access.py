"""Roles on every screen: what a person may not press is off and says who may, the page Access says why, an admin looks
through another's eyes, and who has no role sees nothing."""

import json
from datetime import datetime
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app import services
from backend.access import Actor
from backend.errors import StreamRefusedError
from backend.jobs.model import JobKind, JobRequest
from backend.settings import load_settings
from backend.store.incidents import IncidentTable
from backend.store.store import ControlStore
from backend.stream_model.stream import AuditEntry, DesiredState
from tests.worlds.pages.opened import MAIN, TIMEOUT_S, again, keys, press, send, words
from tests.worlds.store import stream_store

GRANTS = (
    {"role": "maintainer", "user": "ann", "on": ["silver/*", "stream:silver_*"]},
    {"role": "operator", "user": "bo", "on": ["stream:silver_*"]},
    {"role": "admin", "user": "root"},
    {"role": "admin", "user": "eve", "on": ["gold*", "stream:gold_*"]},
)
TABLE, STREAM = "silver/orders", "silver_orders"


def done(store: ControlStore) -> list[AuditEntry]:
    return [entry for entry in store.audit_entries() if entry.result == "done"]


@pytest.fixture(autouse=True)
def world(lake: Path, store: ControlStore, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (STREAM, "gold_orders"):
        stream_store.flowing(store, name, now)
    monkeypatch.setenv("WEIR_UI__TRUSTED_PROXIES", '["127.0.0.1"]')
    monkeypatch.setenv("WEIR_UI__USER_HEADER", "X-User")
    monkeypatch.setenv("WEIR_AUTH__GRANTS", json.dumps(GRANTS))


def opened(name: str | None, page: str, **params: str | int) -> AppTest:
    app = AppTest.from_file(str(MAIN), default_timeout=TIMEOUT_S)
    app.switch_page(f"../pages/{page}.py")
    app.query_params.update({key: str(value) for key, value in params.items()})
    app.user = {"named_by_proxy": name}
    return again(app)


def off(app: AppTest, key: str) -> str:
    """Why a button is off; empty where it is on."""
    button = app.button(key=key)
    return button.help.replace("\\", "") if button.disabled else ""


def forged(app: AppTest, key: str) -> AppTest:
    """The run after a click on a button that is off, as a program sends it."""
    app.button(key=key).proto.disabled = False
    return press(app, key)


def looking(name: str = "bo", groups: str = "") -> AppTest:
    """What root sees once looking as somebody else."""
    app = press(opened("root", "access"), "look_as")
    app.text_input(key="look_as_name").set_value(name)
    app.text_area(key="look_as_groups").set_value(groups)
    return send(app, "look_as", "bo asks what is wrong")


# what is off, and why -------------------------------------------------------------------------------------------------


def test_acts_on_a_stream_are_on_for_whoever_may_and_say_who_else_may() -> None:
    everybody = opened("cy", "stream", stream=STREAM)
    assert off(everybody, "one_stop") == ("operators of silver_orders may: user ann, user bo, user root"), (
        "a grant of tables is none of streams"
    )
    assert off(everybody, "one_reset") == "maintainers of silver_orders may: user ann, user root"
    operator = opened("bo", "stream", stream=STREAM)
    assert not off(operator, "one_stop") and "maintainers of" in off(operator, "one_reset")
    assert not off(opened("ann", "stream", stream=STREAM), "one_reset")
    assert (
        off(opened("bo", "stream", stream="gold_orders"), "one_stop")
        == "operators of gold_orders may: user root, user eve"
    )


@pytest.mark.parametrize(
    ("page", "params", "key"),
    [
        ("health", {}, "optimize"),
        ("versions", {"at": 1}, "restore"),
        ("versions", {"at": 1}, "pin"),
        ("properties", {}, "alter"),
        ("properties", {}, "drop"),
    ],
)
def test_acts_on_a_table_are_off_for_others(page: str, params: dict[str, int], key: str) -> None:
    for name in ("bo", "eve"):
        why = off(opened(name, page, table=TABLE, **params), key)
        assert why == "maintainers of silver/orders may: user ann, user root"
    assert not off(opened("ann", page, table=TABLE, **params), key)


def test_an_incident_needs_a_role_for_its_table_and_pins_another(monkeypatch: pytest.MonkeyPatch) -> None:
    link = {"table": TABLE, "from": 2, "to": 3}
    assert off(opened("bo", "incident", **link), "incident_send").startswith("operators of silver/orders may")
    ann = opened("ann", "incident", **link)
    assert not off(ann, "incident_send") and ann.checkbox(key="incident_pins").value
    monkeypatch.setenv("WEIR_AUTH__DEFAULT_ROLE", "operator")
    services.forget()
    cy = opened("cy", "incident", **link)
    assert not off(cy, "incident_send") and cy.checkbox(key="incident_pins").disabled
    cy.text_area(key="incident_reason").set_value("a bad batch")
    assert "a bad batch" in words(press(cy, "incident_send"))


# forged messages: the button is off, and what it would send is refused by the store --------------------------------


@pytest.mark.parametrize(
    "name",
    ["cy", "Bo", "BO", "b\u043e", "bo\u200b", "bo,root", "bo\nroot", "user bo", "*", "b?", "[b]o", "", None, "eve"],
)
def test_a_forged_click_and_dialog_stop_nothing(store: ControlStore, name: str | None) -> None:
    """By case, by twins of a letter, as a pattern, as nobody, as an admin of other streams."""
    named = name and name.encode().decode("latin-1")
    assert "act_send" not in keys(forged(opened(named, "stream", stream=STREAM), "one_stop").button)
    app = press(opened("bo", "stream", stream=STREAM), "one_stop")
    app.user = {"named_by_proxy": named}
    send(app, "act", "because I can")
    assert "may: user ann, user bo, user root" in words(app) or "no trusted proxy names you" in words(app)
    assert store.desired()[STREAM].state is DesiredState.RUNNING


def test_a_forged_dialog_of_an_act_on_a_table_asks_no_host(store: ControlStore) -> None:
    for page, key in (("health", "optimize"), ("properties", "drop")):
        assert "table_act_send" not in keys(forged(opened("bo", page, table=TABLE), key).button)
        app = press(opened("ann", page, table=TABLE), key)
        app.user = {"named_by_proxy": "bo"}
        assert "Maintainers of silver/orders may: user ann, user root." in words(again(app))
        assert "table_act_send" not in keys(app.button)
    assert store.jobs.newest(9) == []


def test_another_s_comparison_is_cancelled_by_an_admin_alone(store: ControlStore, now: datetime) -> None:
    wanted = JobRequest(JobKind.DIFF, TABLE, "f", "{}", Actor("bo"), "asked for", 60.0)
    store.jobs.submit(wanted, now=now)
    auth, (job,) = load_settings().auth, store.jobs.unfinished()
    for name in ("cy", "ann", "Bo", "eve"):
        with pytest.raises(StreamRefusedError, match="admins of silver/orders may: user root"):
            store.jobs.cancel(job.job_id, actor=auth.actor(name), reason="too slow", now=now)
    assert store.jobs.cancel(job.job_id, actor=auth.actor("bo"), reason="too slow", now=now).cancel_requested


def test_an_incident_of_others_is_not_closed_over_a_table_of_one_s_own(store: ControlStore, now: datetime) -> None:
    auth, incidents, root = load_settings().auth, store.incidents, Actor("root")
    gold = IncidentTable("/lake/gold/sums", "gold/sums", 1, 2, now)
    incidents.act("open incident", "cents", title="cents", table=gold, pins=False, actor=root, now=now)
    own = IncidentTable("/lake/silver/orders", TABLE, 2, 3, now)
    for act, table in (("add to incident", own), ("note on incident", None), ("close incident", None)):
        with pytest.raises(StreamRefusedError, match="operators of gold/sums may: user root, user eve"):
            incidents.act(act, "mine", number=1, table=table, pins=False, actor=auth.actor("ann"), now=now)
    incidents.act("add to incident", "same batch", number=1, table=own, pins=False, actor=root, now=now)
    with pytest.raises(StreamRefusedError, match="operators of gold/sums may"):
        incidents.act("close incident", "mine", number=1, actor=auth.actor("ann"), now=now)
    assert incidents.get(1).state == "seen"


def test_a_saved_query_of_others_is_removed_by_an_admin_of_everything(store: ControlStore, now: datetime) -> None:
    auth, saved = load_settings().auth, store.saved
    saved.save("gold_sales", "SELECT 1", actor=auth.actor("bo"), reason="for all", now=now)
    for name in ("cy", "eve"):  # eve is an admin of tables that are called like it
        with pytest.raises(StreamRefusedError, match="admins may: user root"):
            saved.remove("gold_sales", actor=auth.actor(name), reason="mine", now=now)
    saved.remove("gold_sales", actor=auth.actor("root"), reason="asked to", now=now)


# through another's eyes -----------------------------------------------------------------------------------------------


def test_an_admin_looks_through_another_s_eyes_and_acts_on_nothing(store: ControlStore) -> None:
    app = looking()
    (entry,) = store.audit_entries()
    assert (entry.actor, entry.action, entry.subject) == ("root", "look as", "bo")
    assert entry.reason == "bo asks what is wrong" and entry.detail == "reading only"
    assert "You look as **bo**: reading only." in words(app) and "You are **bo**." in words(app)
    assert not app.sidebar.info
    for page, params in (("stream", {"stream": STREAM}), ("overview", {}), ("versions", {"table": TABLE, "at": "1"})):
        app.switch_page(f"../pages/{page}.py")
        app.query_params.update(params)
        assert "You look as **bo**: reading only." in words(again(app)), page
    assert off(app, "pin") == "You look as bo: reading only"
    assert "pin_send" not in keys(forged(app, "pin").button)
    press(app, "back_to_yourself")
    assert "You look as" not in words(app) and not off(app, "pin")


def test_a_dialog_that_was_opened_before_asks_for_nothing_under_another_s_eyes(store: ControlStore) -> None:
    app = press(opened("root", "stream", stream=STREAM), "one_stop")
    app.session_state["looks_as"] = ("bo", ())
    send(app, "act", "because bo may")
    assert "You look as bo: reading only" in words(app)
    assert (store.desired()[STREAM].state, done(store)) == (DesiredState.RUNNING, [])


@pytest.mark.parametrize("name", ["cy", "ann", "eve", "Root", None])
def test_nobody_else_looks_through_another_s_eyes(store: ControlStore, name: str | None) -> None:
    app = opened(name, "access")
    assert off(app, "look_as") and "look_as_send" not in keys(forged(app, "look_as").button)
    app = press(opened("root", "access"), "look_as")
    app.text_input(key="look_as_name").set_value("root")
    app.user = {"named_by_proxy": name}
    send(app, "look_as", "to see more")
    assert "admins may: user root" in words(app) or "no trusted proxy names you" in words(app)
    assert "You look as" not in words(app) and done(store) == []
    assert [entry.result for entry in store.audit_entries()] == ["denied"]
    app.session_state["looks_as"] = ("root", ())
    assert "You look as" not in words(again(app)), "who is no admin any more has their own eyes"


def test_a_group_with_a_comma_is_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_AUTH__GRANTS", json.dumps([*GRANTS, {"role": "operator", "group": "a, b"}]))
    services.forget()
    app = looking("cy", "a, b\nc")
    assert "You are **cy**, in a, b, c." in words(app)
    app.selectbox(key="why_operation").set_value("start")
    app.text_input(key="why_resource").set_value(STREAM)
    assert "Yes, cy may start silver_orders: operator of everything: group a, b." in words(again(app))


# the page Access ------------------------------------------------------------------------------------------------------


def test_access_lists_grants_by_person_and_by_table() -> None:
    app = opened("cy", "access")
    assert "You are **cy**." in words(app)
    assert list(app.dataframe[0].value["Who"]) == [
        *(
            "user ann",
            "user bo",
            "user root",
            "user eve",
            "everybody else who is logged in",
            "whoever has a terminal here",
        )
    ]
    app.text_input(key="role_on").set_value("gold/sums")
    assert list(again(app).dataframe[0].value["Who"]) == [
        "user root",
        "user eve",
        "everybody else who is logged in",
        "whoever has a terminal here",
    ]
    linked = opened("cy", "access", role_on="gold/sums", q="ROOT")
    assert linked.dataframe[0].value.to_numpy().tolist() == [["user root", "admin", "everything"]]


def test_access_says_why_somebody_may() -> None:
    app = opened("cy", "access")
    app.selectbox(key="why_operation").set_value("drop job")
    app.text_input(key="why_resource").set_value(TABLE)
    denied = "No, cy may not drop job silver/orders: maintainers of silver/orders may: user ann, user root."
    assert denied in words(again(app))
    app.text_input(key="why_name").set_value("ann")
    allowed = "Yes, ann may drop job silver/orders: maintainer of silver/*, stream:silver_*: user ann."
    assert allowed in words(again(app))


def test_without_grants_nothing_is_different(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEIR_AUTH__GRANTS")
    services.forget()
    app = opened("cy", "stream", stream=STREAM)
    assert not any(off(app, f"one_{act}") for act in ("stop", "restart", "reset"))
    assert "whoever may act may do everything" in words(opened("cy", "access"))


# no role --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["overview", "tables", "query", "acts", "access", "incident", "stream"])
@pytest.mark.parametrize("name", ["cy", None])
def test_who_has_no_role_sees_whom_to_ask_and_nothing_else(
    page: str, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_AUTH__DEFAULT_ROLE", "none")
    services.forget()
    app = opened(name, page, table=TABLE, stream=STREAM, query="SELECT 1")
    assert app.title[0].value == "You have no role here" and "Ask user root." in words(app)
    assert "orders" not in str(app._tree) and not app.button and not app.selectbox
    assert TABLE in str(opened("bo", page, table=TABLE, stream=STREAM)._tree), "any grant lets in"


def test_an_admin_sees_what_somebody_without_a_role_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_AUTH__DEFAULT_ROLE", "none")
    services.forget()
    app = looking("cy")
    assert "You have no role here" in words(app) and "You are **cy**" in words(app)
    assert "Who may do what" in words(press(app, "back_to_yourself"))
