"""A query is saved by a name for everybody; its owner replaces it, whoever may act removes it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.access import Actor
from backend.errors import QueryError, SavedQueryNotFoundError, StreamRefusedError
from backend.sql.saved import Chart, SavedQuery
from backend.store.store import ControlStore
from tests.worlds.store.values import NOW

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
    told = [(entry.actor, entry.action, entry.reason, entry.detail) for entry in store.audit_entries()]
    assert told == [
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


@pytest.mark.parametrize("name", ["", "  ", "a/b", "two\nlines", "n" * 61, "\u202eslatot"])
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
