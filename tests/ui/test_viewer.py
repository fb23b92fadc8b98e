"""Who acts on a page, by where the server listens and whom a proxy names; whoever may not is refused by the act, not by
the button alone."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app import services, viewer
from backend.store.store import ControlStore
from backend.stream_model.stream import DesiredState
from tests.ui import stream_store
from tests.ui.opened import again, home, open_page, press, send, words

__all__ = ["home"]
NAME = "silver_orders"
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


def test_a_name_is_what_a_screen_shows() -> None:
    assert viewer.clean_name(None) == viewer.clean_name(7 * " ") == ""
    assert viewer.clean_name("ann" * 66) and not viewer.clean_name("ann" * 67)
