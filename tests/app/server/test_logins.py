"""Logins by OpenID Connect: what a token must say, and what a real server makes of cookies, states, answers and pages
that are not somebody's own, or not of now."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from streamlit.web.server.starlette.starlette_app_utils import create_signed_value

from app.logins import read_login
from app.ui.view.words import markdown_safe
from backend.access import Actor
from backend.errors import LoginRefusedError, SettingsError
from backend.settings import load_settings
from backend.store.store import ControlStore
from backend.stream_model.stream import DesiredState
from tests.app.server.conftest import STREAM as NAME
from tests.app.server.test_viewer import STOP, Session, session
from tests.worlds.pages.logins import CLIENT, COOKIE_SECRET, Person, login_settings, provider, set_user
from tests.worlds.pages.serving import served
from tests.worlds.processes import wait_until
from tests.worlds.store import stream_store

# what a token says ----------------------------------------------------------------------------------------------------

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
PROVIDER = {"metadata_url": "https://id.example/.well-known/x", "client_id": CLIENT, "client_secret": "s" * 9}
AUTH: dict[str, object] = {
    "providers": {"main": PROVIDER},
    "cookie_secret": COOKIE_SECRET,
    "redirect_url": "https://weir.example.com/oauth2callback",
}
CLAIMS: dict[str, object] = {
    "provider": "main", "iss": "https://id.example", "sub": "7", "nonce": "n", "aud": CLIENT, "iat": NOW.timestamp(),
    "email": "ann@example.com",
}  # fmt: skip


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"aud": "another"}, "for another application"),
        ({"aud": "another", "azp": CLIENT}, "for another application"),
        ({"aud": ["another", "weirs", "WEIR"]}, "for another application"),
        ({"aud": None}, "for another application"),
        ({"aud": {CLIENT: CLIENT}}, "for another application"),
        ({"provider": "Main"}, "provider that is not configured"),
        ({"provider": None}, "provider that is not configured"),
        ({"iat": None}, "when it was made"),
        ({"iat": "now"}, "when it was made"),
        ({"iat": True}, "has ended"),
        ({"iat": -1}, "when it was made"),
        ({"iat": float("nan")}, "when it was made"),
        ({"iat": 1e300}, "when it was made"),
        ({"iat": NOW.timestamp() + 121}, "its clock is wrong"),
        ({"iat": NOW.timestamp() - 12 * 3_600}, "has ended: it counted for 12 h"),
        ({"email": None}, "names nobody in `email`"),
        ({"email": ["ann@example.com"]}, "names nobody"),
        ({"email": "  "}, "names nobody"),
        ({"email": "a" * 201}, "names nobody"),
        ({"email": "ann\x1b[2J"}, "names nobody"),
        ({"email": "\u202emoc.elpmaxe@nna"}, "names nobody"),
        ({"email_verified": False}, "not verified"),
        ({"email_verified": "false"}, "not verified"),
    ],
)
def test_a_token_that_says_something_else_is_no_login(claims: dict[str, object], why: str) -> None:
    read_login(CLAIMS, load_settings(auth=AUTH).auth, NOW)
    with pytest.raises(LoginRefusedError, match=why):
        read_login(CLAIMS | claims, load_settings(auth=AUTH).auth, NOW)


@pytest.mark.parametrize(
    ("claim", "claims", "groups"),
    [
        ("groups", {}, set()),
        ("groups", {"groups": "data-platform"}, {"data-platform"}),
        ("groups", {"groups": ["a", ["b", ["c"]], {"d": "e"}, 7, None]}, {"a", "b", "c"}),
        ("groups", {"groups": ["a,admins", "a admins"]}, {"a,admins", "a admins"}),
        ("groups", {"groups": [" ops ", "op\u200bs", "\nops", ""]}, {"ops"}),
        ("realm_access.roles", {"realm_access": {"roles": ["ops"]}, "roles": ["admins"]}, {"ops"}),
        ("realm_access.roles", {"realm_access": ["roles"]}, set()),
        ("https://id.example/groups", {"https://id.example/groups": ["ops"], "groups": ["admins"]}, {"ops"}),
    ],
)
def test_groups_are_those_of_the_claim_and_never_two_for_one(
    claim: str, claims: dict[str, object], groups: set[str]
) -> None:
    assert read_login(CLAIMS | claims, load_settings(auth=AUTH | {"groups_claim": claim}).auth, NOW).groups == groups


def test_logins_of_one_person_are_told_apart() -> None:
    auth = load_settings(auth=AUTH).auth
    keys = {read_login(CLAIMS | {name: "8"}, auth, NOW).key for name in ("iss", "sub", "nonce")}
    assert len(keys | {read_login(CLAIMS, auth, NOW).key}) == 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"cookie_secret": "short"},
        {"redirect_url": ""},
        {"redirect_url": "http://weir.example.com/oauth2callback"},
        {"redirect_url": "https://weir.example.com/other"},
        {"redirect_url": "https://weir.example.com@evil.example/oauth2callback"},
        {"providers": {"main": PROVIDER | {"metadata_url": "http://id.example/x"}}},
        {"providers": {"a_b": PROVIDER}},
    ],
)
def test_settings_that_would_let_somebody_listen_are_refused(wrong: dict[str, object]) -> None:
    load_settings(auth=AUTH)
    with pytest.raises(SettingsError, match="auth"):
        load_settings(auth=AUTH | wrong)


def test_a_secret_comes_from_the_environment_and_the_rest_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "weir.toml").write_text(
        '[auth]\nredirect_url = "https://weir.example.com/oauth2callback"\n'
        '[auth.providers.main]\nmetadata_url = "https://id.example/x"\nclient_id = "weir"\n'
    )
    monkeypatch.setenv("WEIR_CONFIG", str(tmp_path / "weir.toml"))
    monkeypatch.setenv("WEIR_AUTH__COOKIE_SECRET", COOKIE_SECRET)
    monkeypatch.setenv("WEIR_AUTH__PROVIDERS__MAIN__CLIENT_SECRET", "from the environment")
    settings = load_settings()
    assert settings.auth.providers["main"].client_secret.get_secret_value() == "from the environment"
    assert "from the environment" not in repr(settings) and COOKIE_SECRET not in repr(settings)


# at a real server -----------------------------------------------------------------------------------------------------

HERE = f"/stream?stream={NAME}"


@dataclass(frozen=True, slots=True)
class Served:
    url: str
    main: str  # addresses of the providers
    leaving: ExitStack
    store: ControlStore
    home: Path


@pytest.fixture(scope="module")
def weir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The pages before three providers: one that answers, one that does until it leaves, one that never did."""
    home = tmp_path_factory.mktemp("logins")
    (home / "lake").mkdir()
    store, now = stream_store.open_store(home), datetime.now(UTC)
    stream_store.flowing(store, NAME, now)
    stream_store.beat(store, now)
    grants = [{"group": "ops", "role": "admin"}, {"user": "root", "role": "admin"}]
    with ExitStack() as leaving, provider() as main:
        addresses = {"main": main, "leaving": leaving.enter_context(provider()), "away": "http://127.0.0.1:1"}
        settings = login_settings(**addresses) | {"WEIR_AUTH__GRANTS": json.dumps(grants)}
        with served(home, WEIR_HOST__HEARTBEAT_STALE_S="6000", **settings) as running:
            yield Served(running.url, main, leaving, store, home)
    store.close()


@pytest.fixture
def ann(weir: Served) -> Person:
    """She is in the group `ops`, whose members are admins, and is not logged in."""
    set_user(weir.main, "ann@example.com", groups=["ops"])
    return Person(weir.url)


def page(person: Person, **more: object) -> Session:
    """The stream's page in the browser of this person."""
    token = person.token
    return session(person.url, person.headers, token=token, **more)  # type: ignore[arg-type]


def is_in(opened: Session) -> bool:
    """Whether a page shows what it is about; else it must be the login, and nothing else."""
    assert ("log_out" in opened.ids) == (NAME in opened.text)
    assert ("log_in_main" in opened.ids) != ("log_out" in opened.ids)
    return "log_out" in opened.ids


def shown(name: str) -> str:
    """A name as it stands in a message to the browser."""
    return markdown_safe(name).replace("\\", "\\\\")


def stop_by(person: Person) -> dict[str, str]:
    """The widgets with which this person could stop the stream."""
    return page(person, clicks=STOP[:1]).ids


def trail(weir: Served, action: str) -> list[str]:
    """What the entries of this action say, newest first."""
    return [entry.reason for entry in weir.store.audit_entries(limit=1_000) if entry.action == action]


def test_a_page_asks_for_a_login_and_comes_back_with_it(weir: Served, ann: Person) -> None:
    assert not is_in(page(ann)) and "You come back to this page." in page(ann).text
    answer = ann.log_in(here=f"{HERE}&note=a%26b")
    assert (answer.status_code, answer.headers["location"]) == (302, f"{HERE}&note=a%26b")
    opened = page(ann)
    assert is_in(opened) and shown("ann@example.com") in opened.text and "Weir is read-only" not in opened.text
    (entry,) = [entry for entry in weir.store.audit_entries() if entry.action == "login"]
    assert (entry.actor, entry.subject) == ("ann@example.com", "login of ann@example.com by main")
    page(ann, ids=stop_by(ann), clicks=STOP)
    assert weir.store.audit_entries()[0].actor == "ann@example.com" and weir.store.audit_entries()[0].action == "stop"
    weir.store.request(NAME, "start", reason="again", actor=Actor("tests"), now=datetime.now(UTC))
    assert len(trail(weir, "login")) == 1, "once, however often it is used"


def test_what_streamlit_holds_is_not_among_the_files(weir: Served, ann: Person) -> None:
    ann.log_in()
    assert is_in(page(ann))
    for file in weir.home.rglob("*"):
        if file.is_file() and file.suffix in (".txt", ".log", ".toml", ".json"):
            assert COOKIE_SECRET not in file.read_text(errors="replace"), file
            assert "secret-of-the-client" not in file.read_text(errors="replace"), file


# cookies


def forged(payload: dict[str, object], *, secret: str = COOKIE_SECRET, name: str = "_streamlit_user") -> str:
    return create_signed_value(secret, name, json.dumps(payload)).decode()


def valid(weir: Served, **changed: object) -> dict[str, object]:
    return CLAIMS | {
        "iat": int(time.time()), "iss": weir.main, "origin": weir.url, "is_logged_in": True, "groups": ["ops"],
        "nonce": str(time.monotonic_ns()),
    } | changed  # fmt: skip


def with_cookie(weir: Served, cookie: str) -> Person:
    person = Person(weir.url)
    person.client.cookies.set("_streamlit_user", cookie, domain="127.0.0.1", path="/")
    return person


def test_a_cookie_counts_as_signed_here_and_for_this_address(weir: Served) -> None:
    assert is_in(page(with_cookie(weir, forged(valid(weir))))), "as Streamlit makes them"
    good = forged(valid(weir))
    head, _, signature = good.rpartition(".")
    for attempt, cookie in {
        "unsigned": json.dumps(valid(weir)),
        "of another secret": forged(valid(weir), secret="x" * 40),
        "of the known default": forged(valid(weir), secret=""),
        "of another cookie": forged(valid(weir), name="_streamlit_user_tokens"),
        "of another address": forged(valid(weir, origin="https://weir.example.com")),
        "of no address": forged(valid(weir, origin=None)),
        "with another body": f"{head[:-4]}AAAA.{signature}",
        "with no signature": head,
        "of pieces that are not there": forged({}).replace("e", "f"),
        "nobody is logged in": forged(valid(weir, is_logged_in=False)),
        "for another application": forged(valid(weir, aud="another", azp=CLIENT)),
        "of an old login": forged(valid(weir, iat=int(time.time()) - 13 * 3_600)),
        "of a provider that is not there": forged(valid(weir, provider="was-there")),
        "of an unverified address": forged(valid(weir, email_verified=False)),
    }.items():
        assert not is_in(page(with_cookie(weir, cookie))), attempt
    refusals = set(trail(weir, "login refused"))
    assert {
        "your login was not made here",
        "the provider's token is for another application",
        "your login has ended: it counted for 12 h",
    } <= refusals


def test_whoever_tries_again_and_again_does_not_fill_the_trail(weir: Served) -> None:
    before = len(trail(weir, "login refused"))
    for number in range(5):
        assert not is_in(page(with_cookie(weir, f"forged-{number}")))
    assert len(trail(weir, "login refused")) <= before + 1


def test_a_claim_makes_nobody_somebody_else(weir: Served, ann: Person) -> None:
    """Claims that are called as the server calls a proxy's names, or as Streamlit calls its own."""
    set_user(
        weir.main, "eve@example.com", named_by_proxy="root", grouped_by_proxy="ops", is_logged_in=False,
        provider="leaving", origin="https://evil.example", tokens={"id": "x"}, preferred_username="root",
    )  # fmt: skip
    eve = Person(weir.url, "eve@example.com")
    eve.log_in()
    ann.log_in()
    opened = page(eve)
    assert is_in(opened) and shown("eve@example.com") in opened.text
    page(eve, ids=stop_by(ann), clicks=STOP)
    assert weir.store.desired()[NAME].state is DesiredState.RUNNING


def test_without_streamlits_token_a_cookie_is_not_read(weir: Served, ann: Person) -> None:
    ann.log_in()
    assert is_in(page(ann))
    assert not is_in(session(weir.url, ann.headers)) and not is_in(session(weir.url, ann.headers, token="a" * 40))


# logout, and what ends a login


def test_a_logout_ends_every_page_and_copy_of_the_cookie(weir: Served, ann: Person) -> None:
    ann.log_in()
    copy = ann.cookie("_streamlit_user")
    other_browser = with_cookie(weir, copy)
    opened, elsewhere, ids = page(ann), page(other_browser), stop_by(ann)
    assert is_in(opened) and is_in(elsewhere)
    region = re.findall('fragment_id: "(.+?)"', elsewhere.text)[-1]
    ask = {"resumed": elsewhere.name, "fragment": region}
    assert (region in page(other_browser, **ask).text) and "Log in" not in page(other_browser, **ask).text
    page(ann, ids=opened.ids, clicks=[{"log_out": ""}])
    answer = ann.client.get(f"{weir.url}/auth/logout")
    assert answer.headers["location"].startswith(f"{weir.main}/oauth2/end_session")
    assert not ann.cookie("_streamlit_user")
    for person in (ann, other_browser, with_cookie(weir, copy)):
        assert not is_in(page(person))
    # The session itself is there still, and so is what a browser may ask of it: a region alone, or a dialog.
    for clicks in ((), STOP):
        again = page(other_browser, **ask, ids=ids, clicks=clicks)
        assert NAME not in again.text and "You are logged out" in again.text
    assert weir.store.desired()[NAME].state is DesiredState.RUNNING
    assert len(trail(weir, "logout")) == 1
    ann.log_in()
    assert is_in(page(ann)), "who comes back is let in"


def test_a_page_that_is_open_ends_with_its_login(weir: Served, ann: Person) -> None:
    """By its own live regions, and without a word of what they showed."""
    cookie = forged(valid(weir, iat=int(time.time()) - 12 * 3_600 + 6))
    person = with_cookie(weir, cookie)
    ids = stop_by(person)
    assert "log_out" in ids
    wait_until(lambda: not is_in(page(person)), "the login is too old", pause_s=0.5)
    ended = page(person, ids=ids, clicks=STOP)
    assert NAME not in ended.text and "it counted for 12 h" in ended.text
    assert weir.store.desired()[NAME].state is DesiredState.RUNNING


def test_a_group_that_is_taken_away_ends_the_pages_that_were_opened_with_it(weir: Served, ann: Person) -> None:
    ann.log_in()
    opened, ids = page(ann), stop_by(ann)
    assert is_in(opened) and "Weir is read-only" not in opened.text
    set_user(weir.main, "ann@example.com", groups=[])
    laptop = Person(weir.url)
    laptop.log_in()
    assert is_in(page(laptop))
    time.sleep(1.1)  # a login is asked for once a second
    ended = page(ann, resumed=opened.name, ids=ids, clicks=STOP)
    assert NAME not in ended.text and "your groups have changed" in ended.text
    page(laptop, ids=ids, clicks=STOP)
    assert weir.store.desired()[NAME].state is DesiredState.RUNNING, "nor may she act without it"
    set_user(weir.main, "ann@example.com", groups=["ops"])
    ann.log_in()
    assert is_in(page(ann))


def test_nobody_goes_on_with_the_session_of_another_login(weir: Served, ann: Person) -> None:
    ann.log_in()
    opened = page(ann)
    assert page(ann, resumed=opened.name).name == opened.name
    ben = Person(weir.url, "ben@example.com")
    assert page(ben, resumed=opened.name).name != opened.name, "before a login"
    ben.log_in()
    assert page(ben, resumed=opened.name, ids=opened.ids).name != opened.name
    ann.log_in()
    assert page(ann, resumed=opened.name).name != opened.name, "nor do they themselves with that of another time"


# the way to a provider and back


def refused_callback(weir: Served, person: Person, url: str) -> None:
    answer = person.client.get(url)
    assert answer.status_code == 302 and answer.headers["location"].startswith("/")
    assert not person.cookie("_streamlit_user")
    opened = page(person)
    assert not is_in(opened) and "The provider does not answer, or its answer was not accepted" in opened.text


def test_an_answer_that_this_browser_did_not_ask_for_is_no_login(weir: Served, ann: Person) -> None:
    callback = ann.consent(ann.leave())
    eve = Person(weir.url, "eve@example.com")
    refused_callback(weir, eve, callback)  # ann's answer, in eve's browser
    eve = Person(weir.url, "eve@example.com")
    eve.leave()
    refused_callback(weir, eve, callback)  # the same, while eve waits for one of her own
    code = callback.partition("code=")[2].partition("&")[0]
    for query in (f"code={code}", f"code={code}&state=", f"code={code}&state=forged", "error=access_denied&state=x"):
        refused_callback(weir, Person(weir.url), f"{weir.url}/oauth2callback?{query}")
    assert "the provider does not answer, or its answer was not accepted" in trail(weir, "login refused")
    assert ann.client.get(callback).headers["location"] == "/" and is_in(page(ann)), "hers is as good as ever"


def test_an_answer_is_taken_once(weir: Served, ann: Person) -> None:
    ann.leave()
    cookies = dict(ann.client.cookies.items())
    callback = ann.consent(ann.leave())
    ann.client.get(callback)
    eve = Person(weir.url)
    for name, value in cookies.items():  # an older copy of ann's cookies
        eve.client.cookies.set(name, value, domain="127.0.0.1", path="/")
    refused_callback(weir, eve, callback)


def test_a_token_of_another_application_or_time_is_no_login(weir: Served) -> None:
    for number, claims in enumerate(
        ({"aud": "another", "azp": CLIENT}, {"aud": "another"}, {"iss": "https://evil.example"}, {"exp": 1})
    ):
        name = f"mallory-{number}@example.com"
        set_user(weir.main, name, **claims)
        mallory = Person(weir.url, name)
        mallory.log_in()
        assert not is_in(page(mallory)), claims


def test_a_provider_that_is_away_is_said_on_the_page_that_was_left(weir: Served, ann: Person) -> None:
    answer = ann.leave(provider_name="away", here=HERE)
    assert (answer.status_code, answer.headers["location"]) == (302, HERE)
    opened = page(ann)
    assert not is_in(opened) and "The provider does not answer" in opened.text
    callback = ann.consent(ann.leave(provider_name="leaving", here=HERE))
    weir.leaving.close()
    refused_callback(weir, ann, callback)
    ann.log_in()
    assert is_in(page(ann)), "the other one answers"


@pytest.mark.parametrize(
    "page_before",
    [
        "https://evil.example/", "https://evil.example/stream", "//evil.example", "/\\evil.example", "/\tevil",
        "/oauth2callback?code=a", "/auth/logout/../auth/login", "/" + "a" * 3_100, "/%0d%0aSet-Cookie:a=b#x", "",
    ],
)  # fmt: skip
def test_nobody_is_sent_elsewhere_after_a_login(weir: Served, ann: Person, page_before: str) -> None:
    def is_ours(location: str) -> bool:
        return location.startswith("/") and location[1:2] not in ("/", "\\") and location.isprintable()

    if "\t" not in page_before:  # no client sends such a header
        assert is_ours(ann.log_in(here=page_before).headers["location"])
    callback = ann.consent(ann.leave())
    ann.client.cookies.set("weir_return", quote(page_before, safe=""), domain="127.0.0.1", path="/oauth2callback")
    assert is_ours(ann.client.get(callback).headers["location"])


def test_the_way_to_a_provider_is_one_that_a_page_of_ours_made(weir: Served, ann: Person) -> None:
    for attempt in (ann.leave(token_for_s=-1), ann.client.get(f"{weir.url}/auth/login?provider=main")):
        assert attempt.status_code == 302 and attempt.headers["location"] == "/"
    for method in ("POST", "PUT", "DELETE"):
        for path in ("/auth/login", "/auth/logout", "/oauth2callback"):
            assert ann.client.request(method, f"{weir.url}{path}").status_code == 403
    foreign = {"Origin": "https://evil.example"}
    assert httpx.get(f"{weir.url}/auth/logout", headers=foreign).status_code == 403
