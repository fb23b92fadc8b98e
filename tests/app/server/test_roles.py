"""Roles at the socket of a real server: what another's browser may send does nothing for who has a lesser role, and who
has none is sent nothing of the lake."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.stream_model.stream import DesiredState
from tests.app.server.conftest import PROXY, STREAM
from tests.app.server.test_viewer import STOP, session
from tests.worlds.pages.serving import Served, served
from tests.worlds.processes import wait_until
from tests.worlds.store import stream_store

GRANTS = [
    {"role": "operator", "user": "ann", "on": ["stream:silver_*"]},
    {"role": "viewer", "user": "ben", "on": ["gold/*"]},
    {"role": "admin", "user": "root"},
    {"role": "viewer", "user": "ben", "on": ["s\u0456lver/*", "Gold/*"]},
]
LOOK = ({"look_as": ""}, {"look_as_name": "root", "look_as_reason": "to see more", "look_as_send": ""})
OF_THE_LAKE = ("silver/orders", "gold/sums", STREAM)


@pytest.fixture(scope="module")
def roles(served_home: Path) -> Iterator[Served]:
    settings = {
        "WEIR_UI__TRUSTED_PROXIES": f'["{PROXY}"]',
        "WEIR_UI__USER_HEADER": "X-User",
        "WEIR_AUTH__GRANTS": json.dumps(GRANTS),
        "WEIR_AUTH__DEFAULT_ROLE": "none",
        "WEIR_HOST__HEARTBEAT_STALE_S": "6000",
    }
    with served(served_home, **settings) as running:
        yield running


def test_a_start_says_which_grants_name_nothing(roles: Served, served_home: Path) -> None:
    output = served_home / "ui.txt"

    def problems() -> list[str]:
        lines = map(json.loads, output.read_text().splitlines())
        return [line["problem"].rpartition(": ")[2] for line in lines if line["event"] == "grant_names_nothing"]

    wait_until(lambda: len(problems()) == 2, output.read_text)
    assert problems() == ["no table is named 's\\u0456lver/*'", "no table is named 'Gold/*'"]


@pytest.mark.parametrize(
    ("name", "by"),
    [("ben", PROXY), ("cy", PROXY), ("Ann", PROXY), ("ann,root", PROXY), ("ann", "127.0.0.1"), (None, PROXY)],
)
def test_the_messages_of_who_may_act_for_nobody_of_a_lesser_role(
    roles: Served, served_home: Path, name: str | None, by: str
) -> None:
    store, ann = stream_store.open_store(served_home), {"X-User": "ann"}
    opened = session(roles.url, ann, by=PROXY, clicks=STOP[:1])
    assert "act_send" in opened.ids, "hers opens the dialog"
    headers = {"X-User": name} if name else {}
    for resumed in ("", opened.name):
        session(roles.url, headers, by=by, ids=opened.ids, clicks=STOP, resumed=resumed)
        session(roles.url, headers, by=by, ids=opened.ids, clicks=STOP[1:], resumed=resumed)
    assert (store.desired()[STREAM].state, store.audit_entries()) == (DesiredState.RUNNING, [])
    store.close()


def test_nobody_but_an_admin_looks_through_an_admin_s_eyes(roles: Served, served_home: Path) -> None:
    store, root = stream_store.open_store(served_home), {"X-User": "root"}
    opened = session(roles.url, root, by=PROXY, clicks=LOOK[:1], page_name="access")
    assert "look_as_send" in opened.ids
    for name in ("ben", "ann", "cy"):
        text = session(roles.url, {"X-User": name}, by=PROXY, ids=opened.ids, clicks=LOOK, page_name="access").text
        assert "You look as" not in text
    assert store.audit_entries() == []
    store.close()


@pytest.mark.parametrize(
    "page_name",
    ["", "overview", "tables", "query", "dashboard", "table", "history", "stream", "acts", "access", "../x"],
)
def test_who_has_no_role_is_sent_nothing_of_the_lake(roles: Served, page_name: str) -> None:
    for headers, by in (({"X-User": "cy"}, PROXY), ({}, PROXY), ({"X-User": "root"}, "127.0.0.1")):
        text = session(roles.url, headers, by=by, page_name=page_name, named="").text
        assert "You have no role here" in text and "Ask user root" in text
        assert not any(name in text for name in OF_THE_LAKE)
