"""Incidents: opened from a finding, noted, added to, closed; each by its address; the empty list, and the export."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app import services
from app.incidents.text import incident_markdown
from backend.access import Actor
from backend.search.notice import Measure, Notice
from backend.store.store import ControlStore
from backend.streams.timeline import load_incident
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.opened import again, keys, links, open_page, plain, press, send, words

TABLE = "silver/orders"
ANA = Actor("ana")


@pytest.fixture
def jump(orders: Path, store: ControlStore) -> Notice:
    at = datetime.now(UTC) - timedelta(minutes=5)
    found = Notice(
        str(orders), TABLE, 2, Measure.HIGHEST, "amount", "498.2", "47,189", "amount <= 550", "WRITE", at, rows=28
    )
    store.noticed.keep([found], now=at)
    return found


def opened_one(store: ControlStore, *, into: int | None = None, version: int = 2) -> AppTest:
    """The page after the form about a commit was sent."""
    app = open_page("incident", **{"table": TABLE, "from": version - 1, "to": version})
    if into is not None:
        app.selectbox(key="incident_into").set_value(into)
        again(app)
    return send(app, "incident", "wrong by a hundred")


def test_an_empty_list_teaches_where_incidents_are_opened(home: Path) -> None:
    assert "No incident yet" in words(open_page("incident"))


def test_an_incident_is_opened_from_a_finding_with_both_versions_pinned(jump: Notice, store: ControlStore) -> None:
    app = open_page("incident", **{"table": TABLE, "from": 1, "to": 2})
    assert "highest amount 498.2 → 47,189 at v2" in words(app) and not store.incidents.all()
    assert app.checkbox(key="incident_pins").label.startswith("Pin v1 and v2")
    assert "a reason is required" in words(press(app, "incident_send")) and not store.incidents.all()
    app.text_input(key="incident_title").set_value("cents for euros")
    send(app, "incident", "wrong by a hundred")
    (incident,) = store.incidents.all()
    assert (incident.title, incident.findings) == ("cents for euros", (jump.key,))
    assert (incident.tables[0].good, incident.tables[0].bad) == (1, 2) and incident.tables[0].uri == jump.uri
    assert [pin.version for pin in store.pins.of_table(services.lake().find(TABLE))] == [1, 2]

    app = open_page("incident", incident=incident.id)
    assert plain(app.title[0].value) == f"Incident {incident.id}: cents for euros"
    told = words(app)
    for line in (
        "✕ Open; opened 2", ": wrong by a hundred.",
        "silver/orders: v2 is the first bad version, v1 is the last good",
        "28 rows hurt.", "highest amount 498.2 → 47,189 at v2, WRITE; still so.", "No stream is known to read it",
    ):  # fmt: skip
        assert line in told, told
    assert links(app)["What v2 of silver/orders changed"] == "table=silver%2Forders&from=1&to=2"
    events = frame_with(app, "Kind", "What")
    assert set(events["Kind"]) == {"notice", "act"} and len(events) == 4, "found, opened, and two pins"


def test_it_is_noted_added_to_and_over(jump: Notice, store: ControlStore) -> None:
    opened_one(store)
    (first,) = store.incidents.all()
    assert first.title.startswith("highest amount"), "what the finding says"
    app = opened_one(store, into=first.id, version=3)
    assert [table.bad for table in store.incidents.get(first.id).tables] == [2, 3]
    app = open_page("incident", incident=first.id)
    app.text_area(key="incident_said").set_value("paged BO")
    press(app, "incident_send")
    assert "◑ Seen" in words(app) and any("paged BO" in what for what in frame_with(app, "Kind", "What")["What"])
    app.text_area(key="incident_said").set_value("divided again")
    app.checkbox(key="incident_over").check()
    press(app, "incident_send")
    assert "✓ Over" in words(app) and "incident_send" not in keys(app.button)
    (label,) = (label for label in links(open_page("incident")) if label.startswith(f"Incident {first.id}: "))
    assert label.endswith(" · ✓ Over · silver/orders")


def test_a_link_to_a_commit_leads_to_the_incident_about_it(jump: Notice, store: ControlStore) -> None:
    opened_one(store)
    (incident,) = store.incidents.all()
    app = open_page("incident", **{"table": TABLE, "from": 1, "to": 2})
    assert f"Incident {incident.id}: highest amount" in words(app)
    assert [*links(open_page("incident")).values()] == [f"incident={incident.id}"]


@pytest.mark.parametrize("number", ["99", "0"])
def test_an_unknown_incident_says_so(store: ControlStore, number: str) -> None:
    app = open_page("incident", incident=number)
    assert f"no incident {number}" in words(app).casefold() and "All incidents" in links(app)


def test_whoever_may_not_act_reads_on(jump: Notice, store: ControlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_one(store)
    (incident,) = store.incidents.all()
    monkeypatch.setenv("WEIR_UI__ADDRESS", "0.0.0.0")
    services.forget()
    app = open_page("incident", incident=incident.id)
    assert "28 rows hurt" in words(app) and "incident_send" not in keys(app.button)
    app = open_page("incident", **{"table": TABLE, "from": 2, "to": 3})
    assert app.button(key="incident_send").disabled


def test_a_table_that_is_gone_takes_no_incident_with_it(jump: Notice, orders: Path, store: ControlStore) -> None:
    opened_one(store)
    shutil.rmtree(orders)
    (incident,) = store.incidents.all()
    told = words(open_page("incident", incident=incident.id))
    assert "28 rows hurt." in told and "left out: commits of silver/orders: " in told.casefold()
    report = load_incident(services.lake(), store, (), incident.id, now=datetime.now(UTC))
    assert "silver/orders cannot be compared: " in incident_markdown(report, services.lake())


def test_markdown_has_the_versions_the_changes_and_no_markup_of_others(jump: Notice, store: ControlStore) -> None:
    opened_one(store)
    (incident,) = store.incidents.all()
    store.incidents.act(
        "note on incident", "# [x](http://evil) <b>", number=incident.id, actor=ANA, now=datetime.now(UTC)
    )
    lake = services.lake()
    report = load_incident(lake, store, (), incident.id, now=datetime.now(UTC))
    made = incident_markdown(report, lake)
    assert made.startswith(f"# Incident {incident.id}: highest amount 498.2 → 47,189 at v2, WRITE\n")
    assert "silver/orders: v2 is the first bad version, v1 is the last good one." in made and "28 rows hurt." in made
    assert (
        "**silver/orders** · v1 → v2, 1 commit: " in made
        and " updated" in made
        and "[x](" not in made
        and "<b>" not in made
    )
