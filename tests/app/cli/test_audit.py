"""`weir audit`: found by who, what, on what and since when, as a terminal's role may see it; and checked."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from backend.settings import load_settings
from backend.store.store import ControlStore
from backend.stream_model.stream import AuditEntry
from tests.worlds.store.statements import past_the_store
from tests.worlds.terminal import Weir

NOW = datetime.now(UTC)
TEXT = "1 row; silver/orders v3; SELECT iban FROM silver.orders"
QUERY = AuditEntry(NOW, "ann", "query", "silver/orders", "", TEXT)


@pytest.fixture
def told(store: ControlStore) -> ControlStore:
    for entry in (
        AuditEntry(NOW - timedelta(days=30), "ann", "pin", "silver/orders", "May"),
        AuditEntry(NOW, "ben", "stop", "gold_orders", "upgrade", "RUNNING → STOPPED, generation 2"),
        QUERY,
        AuditEntry(NOW, "mallory", "login refused", "weir", "", "a forged state", result="denied"),
    ):
        store.note(entry)
    return store


def test_entries_are_found(weir: Weir, told: ControlStore) -> None:
    def actions(*asked: str) -> list[str]:
        return [entry["action"] for entry in weir("audit", *asked, "--json").document]

    assert actions() == ["login refused", "query", "stop"], "of seven days"
    assert actions("--since", "60d") == ["login refused", "query", "stop", "pin"]
    assert actions("--since", "60d", "--by", "ann") == ["query", "pin"]
    assert actions("--on", "gold*") == ["stop"] and actions("--on", "*") == actions()
    assert actions("--action", "login refused") == ["login refused"]
    assert actions("--by", "nobody") == [] and weir("audit", "--by", "nobody").code == 0
    lines = weir("audit").out.splitlines()
    assert len(lines) == 4 and "mallory" in lines[1] and "denied" in lines[1]
    assert weir("audit", "--since", "whenever").code == 2


def test_a_terminals_role_sees_no_texts_and_no_logins(
    weir: Weir, told: ControlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_AUTH__TERMINAL_ROLE", "viewer")
    answer = weir("audit", "--since", "60d", "--json")
    assert TEXT not in answer.out and [entry["action"] for entry in answer.document] == ["query", "stop", "pin"]
    queried = weir("query", "SELECT detail, action FROM weir.acts", "--json")
    assert queried.code == 0 and TEXT not in queried.out and "login" not in queried.out


def test_everybody_sees_all_where_nothing_is_configured(weir: Weir, told: ControlStore) -> None:
    assert TEXT in weir("audit", "--json").out
    assert TEXT in weir("query", "SELECT detail FROM weir.acts", "--json").out


def test_a_trail_is_checked_and_what_is_wrong_is_named(weir: Weir, told: ControlStore) -> None:
    head = told.audit_head().hash
    whole = weir("audit", "verify", "--head", head)
    assert (whole.code, whole.out) == (0, f"rows 1 to 4 are as they were written, hash {head}\n")
    assert weir("audit", "verify", "--head", "f" * 64).code == 1
    with past_the_store(load_settings().store_url) as connection:
        connection.execute(sa.text("UPDATE audit SET actor = 'ben' WHERE id = 3"))
    broken = weir("audit", "verify", "--json")
    assert broken.code == 1 and broken.document["head"]["number"] == 2
    assert broken.document["problem"].startswith("row 3 was changed")


def test_ones_own_query_is_seen_with_its_text(weir: Weir, told: ControlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_AUTH__TERMINAL_ROLE", "viewer")
    from app import services

    told.note(replace(QUERY, actor=services.actor().name, detail="mine alone"))
    assert "mine alone" in weir("audit", "--json").out


def test_there_is_no_trail_without_a_store(weir: Weir) -> None:
    assert weir("audit").code == 3
