"""Who acts on a page, by where the server listens and whom a proxy names; whoever may not is refused by the act, not by
the button alone."""

import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
import sqlalchemy as sa
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from streamlit.testing.v1 import AppTest
from websockets.sync.client import connect

from app import services
from backend.store.store import ControlStore
from backend.stream_model.stream import DesiredState, StreamState
from tests.app.server.conftest import PROXY as TRUSTED
from tests.app.server.conftest import STREAM as NAME
from tests.worlds.pages.opened import again, home, open_page, press, send, words
from tests.worlds.pages.serving import Served
from tests.worlds.processes import wait_until
from tests.worlds.store import stream_store
from tests.worlds.store.statements import past_the_store

__all__ = ["home"]
OUTSIDE, PROXY = {"WEIR_UI__ADDRESS": "0.0.0.0"}, {"WEIR_UI__TRUSTED_PROXIES": '["127.0.0.1"]'}
HEADER = {"WEIR_UI__USER_HEADER": "X-User"}
EVERYBODY = {"WEIR_UI__ALLOW_REMOTE_WRITES": "true"}


@pytest.fixture
def store(home: Path) -> ControlStore:
    store, now = stream_store.open_store(home), datetime.now(UTC)
    stream_store.beat(store, now)
    stream_store.flowing(store, NAME, now)
    return store


def opened(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], named: object = None) -> AppTest:
    """The stream's page, for a session whose handshake came with this name."""
    for key, value in settings.items():
        monkeypatch.setenv(key, value)
    app = open_page("stream", stream=NAME)
    app.user = {"named_by_proxy": named}
    return again(app)


@pytest.mark.parametrize(
    ("settings", "named", "who"),
    [
        pytest.param({}, None, services.actor().name, id="on loopback it is the user of this machine"),
        pytest.param({"WEIR_UI__ADDRESS": "::1"}, None, services.actor().name, id="on IPv6 too"),
        pytest.param(PROXY | HEADER, "ann@example.com", "ann@example.com", id="behind a proxy whom it names"),
        pytest.param(OUTSIDE | PROXY | HEADER, "ann", "ann", id="also beyond loopback"),
        pytest.param(PROXY | HEADER, " José Núñez ".encode().decode("latin-1"), "José Núñez", id="in any alphabet"),
        pytest.param(PROXY | HEADER, "<b>ann</b> *x*", "<b>ann</b> *x*", id="a name is a text"),
        pytest.param(OUTSIDE | EVERYBODY, None, "unknown viewer", id="whoever may act is not made up"),
        pytest.param(PROXY | HEADER | EVERYBODY, "", "unknown viewer", id="nor is one whom the proxy does not name"),
    ],
)
def test_an_act_is_in_the_name_of_who_acts(
    store: ControlStore, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], named: str | None, who: str
) -> None:
    app = opened(monkeypatch, settings, named)
    press(app, "one_stop")
    send(app, "act", "incident 7")
    (entry,) = store.audit_entries()
    assert (entry.action, entry.reason) == ("stop", "incident 7")
    assert entry.actor == store.desired()[NAME].actor
    assert entry.actor == who or (who == "unknown viewer" and entry.actor.startswith(f"{who} at "))


@pytest.mark.parametrize(
    ("settings", "named", "why"),
    [
        pytest.param(OUTSIDE, None, "it listens on 0.0.0.0 and no login is configured", id="nobody logs in"),
        pytest.param(PROXY, None, "it stands behind a proxy", id="a proxy that names nobody"),
        *(
            pytest.param(PROXY | HEADER, name, "no trusted proxy names you in `X-User`", id=f"named {what}")
            for what, name in {
                "nobody": None,
                "nothing": "",
                "spaces": "   ",
                "too long": "a" * 10_000,
                "an escape": "ann\x1b[2J",
                "two lines": "ann\nroot",
                "a tab": "ann\troot",
                "a null": "ann\0",
                "backwards": "\u202enna".encode().decode("latin-1"),
                "half a letter": "\xc3",
            }.items()
        ),
    ],
)
def test_who_is_not_known_looks_and_does_not_act(
    store: ControlStore, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], named: str | None, why: str
) -> None:
    app = opened(monkeypatch, settings, named)
    assert why in words(app) and why in app.sidebar.info[0].value
    assert all(app.button(key=f"one_{action}").disabled for action in ("start", "stop", "restart", "reset"))


def test_a_dialog_that_is_sent_once_its_viewer_may_not_act_any_more_is_refused(
    store: ControlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = opened(monkeypatch, PROXY | HEADER, "ann")
    press(app, "one_stop")
    app.user = {"named_by_proxy": None}
    send(app, "act", "incident 7")
    assert f"stop {NAME}: weir is read-only" in words(app).lower()
    assert (store.desired()[NAME].state, store.audit_entries()) == (DesiredState.RUNNING, [])


# at the socket of a real server ---------------------------------------------------------------------------------------

RERUNS = ForwardMsg.FINISHED_EARLY_FOR_RERUN


class Session(NamedTuple):
    """What a page's runs came to: the session's id, all its words, and the ids of its widgets by their keys."""

    name: str
    text: str
    ids: dict[str, str]


def session(
    url: str,
    headers: dict[str, str],
    *,
    by: str = "127.0.0.1",
    resumed: str = "",
    ids: dict[str, str] | None = None,
    clicks: Sequence[Mapping[str, str]] = (),
    page_name: str = "stream",
    named: str = f"stream={NAME}",
) -> Session:
    """Opens a page, the stream's unless said, with this handshake; `named`: the query of its address. `resumed`: the
    session that it says it goes on with. Each of the `clicks` is a run more: texts by the keys of widgets, an empty one
    for a button; of `ids`, where they are another's."""
    with connect(
        f"{url.replace('http', 'ws', 1)}/_stcore/stream",
        sock=socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), source_address=(by, 0)),
        origin=url,  # type: ignore[arg-type]
        subprotocols=["streamlit", *(["none", resumed] if resumed else [])],  # type: ignore[list-item]
        additional_headers=headers,
        max_size=None,
    ) as page:
        name, text, own = "", "", dict(ids or {})
        for click in ({}, *clicks):
            states = [
                WidgetState(id=own[key], string_value=value) if value else WidgetState(id=own[key], trigger_value=True)
                for key, value in click.items()
            ]
            asked = ClientState(page_name=page_name, query_string=named, widget_states={"widgets": states})
            page.send(BackMsg(rerun_script=asked).SerializeToString())
            while True:
                message = ForwardMsg.FromString(page.recv(timeout=120))  # type: ignore[arg-type]
                if message.WhichOneof("type") == "script_finished" and message.script_finished != RERUNS:
                    break
                if message.WhichOneof("type") == "new_session":
                    name = message.new_session.initialize.session_id or name
                text += str(message.delta)
                element = message.delta.new_element
                widget = getattr(element, element.WhichOneof("type") or "", None)
                if ids is None and getattr(widget, "id", ""):
                    own[widget.id.rpartition("-")[2]] = widget.id
        return Session(name, text, own)


def may_act(opened: Session) -> bool:
    assert NAME in opened.text
    return "Weir is read-only" not in opened.text


def test_a_name_is_believed_from_the_proxy_alone(server: Served) -> None:
    assert may_act(session(server.url, {"X-User": "ann"}, by=TRUSTED))
    for headers, by in (
        ({"X-User": "ann"}, "127.0.0.1"),
        ({"x-user": "ann", "X-Forwarded-For": TRUSTED, "Forwarded": f"for={TRUSTED}"}, "127.0.0.1"),
        ({"named_by_proxy": "ann", "X-Forwarded-User": "ann"}, TRUSTED),
        ({"X-User": "a" * 5_000}, TRUSTED),
        ({}, TRUSTED),
        ({}, "127.0.0.1"),
    ):
        refused = session(server.url, headers, by=by)
        assert not may_act(refused) and "no trusted proxy names you in `X-User`" in refused.text


def test_nobody_of_another_name_goes_on_with_a_session(server: Served) -> None:
    ann = session(server.url, {"X-User": "ann"}, by=TRUSTED)
    assert session(server.url, {"X-User": "ann"}, by=TRUSTED, resumed=ann.name).name == ann.name, "her own goes on"
    assert session(server.url, {"X-User": "ben"}, by=TRUSTED, resumed=ann.name).name != ann.name
    assert session(server.url, {"X-User": "ann"}, resumed=ann.name).name != ann.name


STOP = ({"one_stop": ""}, {"act_reason": "incident 7", "act_send": ""})


def test_the_widgets_of_anothers_session_act_for_nobody_else(server: Served, served_home: Path) -> None:
    """Whoever learns what ann's browser sends may send the same, and is who they are."""
    store = stream_store.open_store(served_home)
    ids = session(server.url, {"X-User": "ann"}, by=TRUSTED, clicks=STOP[:1]).ids
    for headers, by in (({}, TRUSTED), ({"X-User": "ann"}, "127.0.0.1"), ({}, "127.0.0.1")):
        session(server.url, headers, by=by, ids=ids, clicks=STOP)
        assert (store.desired()[NAME].state, store.audit_entries()) == (DesiredState.RUNNING, [])
    session(server.url, {"X-User": "ben"}, by=TRUSTED, ids=ids, clicks=STOP)
    (entry,) = store.audit_entries()
    assert (entry.actor, entry.action, entry.reason) == ("ben", "stop", "incident 7"), "the same messages do act"


def test_no_forged_message_gets_past_a_dialog_and_the_name_to_type(server: Served, served_home: Path) -> None:
    store, ann = stream_store.open_store(served_home), {"X-User": "ann"}
    with past_the_store(store.shown_url) as connection:
        connection.execute(sa.text("UPDATE desired SET state = 'STOPPED', generation = 1"))
    stream_store.observe(store, NAME, StreamState.STOPPED, datetime.now(UTC))
    opens, sends = {"one_reset": ""}, {"reset_reason": "incident 8", "reset_send": ""}
    ids: dict[str, str] = {}

    def asks_for_a_name() -> bool:
        ids.update(session(server.url, ann, by=TRUSTED, clicks=[opens]).ids)
        return "reset_name" in ids

    wait_until(asks_for_a_name, "the page saw that the stream is stopped")
    for clicks in ([sends], [opens, sends], [opens, sends | {"reset_name": "orders"}], [sends | {"reset_name": NAME}]):
        session(server.url, ann, by=TRUSTED, ids=ids, clicks=clicks)
        assert store.jobs.unfinished() == []
    session(server.url, {}, ids=ids, clicks=[opens, sends | {"reset_name": NAME}])
    assert store.jobs.unfinished() == []
    session(server.url, ann, by=TRUSTED, ids=ids, clicks=[opens, sends | {"reset_name": NAME}])
    (job,) = store.jobs.unfinished()
    assert job.actor == "ann", "the same messages do act"
