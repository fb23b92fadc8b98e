"""The Audit page: what each viewer sees of it, what an address may name, and who may take all of it away."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from streamlit.testing.v1 import AppTest

from app import services
from app.ui import export
from backend.errors import ExportError
from backend.query.views import lake_view
from backend.store.audit import HIDDEN
from backend.store.store import ControlStore
from backend.stream_model.stream import AuditEntry
from tests.worlds.pages.opened import again, open_page, param, press, words

NOW = datetime.now(UTC)
TEXT = "1 row; silver/orders v3; SELECT iban FROM silver.orders"
GRANTS = [
    {"user": "root", "role": "admin"},
    {"user": "gil", "role": "maintainer", "on": ["gold/*"]},
    {"user": "sid", "role": "admin", "on": ["silver/*"]},
]
TEXT_ROW, GOLD_ROW, LOGIN_ROW, OLD_ROW = 2, 3, 4, 1


@pytest.fixture
def told(store: ControlStore, monkeypatch: pytest.MonkeyPatch) -> ControlStore:
    """A trail of four rows, behind a proxy that names its viewers."""
    for entry in (
        AuditEntry(NOW - timedelta(days=30), "ann", "pin", "silver/orders", "May"),
        AuditEntry(NOW, "ann", "query", "silver/orders", "", TEXT),
        AuditEntry(NOW, "<b>ben</b>", "pin", "gold/orders", "*now*", role="admin", granted_by="admin of everything"),
        AuditEntry(NOW, "mallory", "login refused", "weir", "", "a forged state", result="denied"),
    ):
        store.note(entry)
    monkeypatch.setenv("WEIR_UI__TRUSTED_PROXIES", '["127.0.0.1"]')
    monkeypatch.setenv("WEIR_UI__USER_HEADER", "X-User")
    monkeypatch.setenv("WEIR_AUTH__GRANTS", json.dumps(GRANTS))
    return store


def seen_by(name: str | None, *, page: str = "audit", **address: str | int) -> AppTest:
    app = open_page(page, **address)
    app.user = {"named_by_proxy": name}
    return again(app)


def acts(app: AppTest) -> list[str]:
    return [*app.dataframe[0].value["Act"]] if app.dataframe and len(app.dataframe[0].value.columns) else []


def everything(app: AppTest) -> str:
    """All that the page's elements hold."""
    return words(app) + "".join(each.value.to_csv() for each in (*app.dataframe, *app.table))


def test_an_admin_sees_all_of_it(told: ControlStore) -> None:
    assert acts(seen_by("root")) == ["login refused", "pin", "query"], "of seven days"
    assert TEXT in everything(seen_by("root"))
    assert acts(seen_by("root", since="60 d", by="ann")) == ["query", "pin"]
    assert acts(seen_by("root", operation="pin", acted_on="gold*")) == ["pin"]
    assert acts(seen_by("root", by="nobody")) == []


def test_a_viewer_sees_neither_texts_nor_logins(told: ControlStore) -> None:
    app = seen_by("eve", since="60 d")
    assert acts(app) == ["pin", "query", "pin"] and "its author's alone" in everything(app)
    assert "iban" not in everything(app) and "mallory" not in everything(app)
    assert TEXT in everything(seen_by("ann")), "it is her own"
    assert TEXT in everything(seen_by("sid")) and "mallory" not in everything(seen_by("sid"))


@pytest.mark.parametrize("name", ["eve", "Ann", "ANN", "ann,root", "\u0430nn", "gil", None, "*", "Root"])
@pytest.mark.parametrize(
    "address",
    [{"row": TEXT_ROW}, {"by": "ann"}, {"acted_on": "silver/*"}, {"by": "%"}, {"row": "2' OR 1=1"}],
)
def test_no_name_and_no_address_shows_anothers_query(
    told: ControlStore, name: str | None, address: dict[str, str | int]
) -> None:
    assert "iban" not in everything(seen_by(name, **address))


def test_a_row_has_an_address(told: ControlStore) -> None:
    app = seen_by("gil", row=GOLD_ROW)
    (facts,) = (each.value for each in app.table)
    assert "admin of everything" in facts.to_csv() and param(app, "row") == str(GOLD_ROW)
    assert "<b>ben</b>" in everything(app).replace("\\", ""), "a name is a text"
    for name, row in (("eve", LOGIN_ROW), ("gil", LOGIN_ROW), ("root", 0), ("root", 99), ("root", 2**63 - 1)):
        assert not seen_by(name, row=row).table, (name, row)
    assert seen_by("root", row=OLD_ROW).table, "also one that the list does not reach"


def test_a_time_that_is_none_is_said(told: ControlStore) -> None:
    assert "not a time" in words(seen_by("root", since="whenever"))


def test_only_an_admin_takes_all_of_it_away_and_that_is_an_act(told: ControlStore) -> None:
    for name in ("eve", "gil", "sid", None):
        app = seen_by(name)
        (button,) = [each for each in app.button if each.label == "Export"]
        assert button.disabled and "user root" in (button.help or "") + "user root" * (name is None)
    app = seen_by("root")
    (button,) = [each for each in app.button if each.label == "Export"]
    assert not button.disabled


def test_a_file_is_an_act_that_is_written_down_and_refused_where_it_cannot_be(told: ControlStore) -> None:
    export.serve()
    app = seen_by("root")
    press(app, "export_rows")
    (link,) = app.get("link_button")
    taken = export.exports().take(link.proto.url.removeprefix("export/"))
    content = b"".join(taken.pieces()).decode()
    assert TEXT in content and "mallory" in content and "'*now*" not in content
    newest = told.audit_entries()[0]
    assert (newest.actor, newest.action, newest.reason) == ("root", "export audit", "as CSV")
    with pytest.raises(ExportError):
        export.exports().take(link.proto.url.removeprefix("export/"))


def test_no_file_runs_a_formula(told: ControlStore) -> None:
    export.serve()
    told.note(AuditEntry(NOW, "=HYPERLINK(1)", "login refused", "weir", "", "@SUM(1)", result="denied"))
    app = press(seen_by("root"), "export_rows")
    (link,) = app.get("link_button")
    content = b"".join(export.exports().take(link.proto.url.removeprefix("export/")).pieces()).decode()
    assert "'=HYPERLINK(1)" in content and "'@SUM(1)" in content


# the other places that show the trail ---------------------------------------------------------------------------------

ASKED = [
    "SELECT action, detail FROM weir.acts ORDER BY id",
    "WITH a AS (SELECT * FROM weir.acts) SELECT a.detail FROM a JOIN weir.acts b ON a.id = b.id",
]


@pytest.mark.parametrize("statement", ASKED)
def test_a_query_of_the_acts_shows_what_its_viewer_may_see(told: ControlStore, statement: str) -> None:
    """One after the other on one server."""
    for name, is_seen in (("root", True), ("eve", False), ("ann", True), ("gil", False), (None, False)):
        app = open_page("query", query=statement)
        app.user = {"named_by_proxy": name}
        press(again(app), "query_run")
        assert app.dataframe, words(app)
        assert ("iban" in everything(app)) is is_seen, name


def test_a_dashboards_tile_is_nobodys(told: ControlStore) -> None:
    seen = lake_view(services.world(services.public_lake()), "acts", None).to_pylist()
    assert {row["detail"] for row in seen if row["action"] == "query"} == {HIDDEN}
    assert not [row for row in seen if row["action"].startswith("login")]


def test_no_page_shows_a_denial_as_an_act(told: ControlStore) -> None:
    told.note(AuditEntry(NOW, "eve", "stop", "gold_orders", "because I can", result="denied"))
    assert "because I can" not in everything(seen_by("root", page="acts"))
    assert "because I can" in everything(seen_by("root"))
