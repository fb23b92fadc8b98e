"""Who looks at a page: their name, their clock, their theme, and whether they may act.

Rule: asked anew in every run of a page, since viewers of one server differ.
"""

from time import monotonic
from typing import Literal

import streamlit as st
from streamlit import config
from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME

from app import logins, services
from app.logins import Login
from backend.access import Actor, is_loopback
from backend.errors import LoginRefusedError, StoreError
from backend.format import zone_of
from backend.jobs.model import why_no_host
from backend.settings import UiSettings
from backend.times import Clock

_NAMED, _GROUPED = "named_by_proxy", "grouped_by_proxy"  # of Streamlit's user
FAILED = "weir_login_failed"  # a cookie that is there for some seconds after


def mode() -> Literal["light", "dark"]:
    """Whether this viewer looks at the light or the dark theme."""
    return "dark" if st.context.theme.type == "dark" else "light"


def timezone() -> str | None:
    """The viewer's time zone, None when the browser did not say."""
    return st.context.timezone


def clock() -> Clock:
    """On which `14:30` and `yesterday` are this viewer's."""
    return Clock(services.now(), zone_of(timezone()))


def believe_headers(ui: UiSettings) -> None:
    """For a server behind its door, which lets only a trusted proxy send these headers: what they hold at a session's
    handshake is the session's own, and nobody of another name or of other groups goes on with that session."""
    names = {ui.user_header: _NAMED, ui.groups_header: _GROUPED}
    config.set_option("server.trustedUserHeaders", {header: name for header, name in names.items() if header})


def actor() -> Actor:
    """Who acts: whom a trusted proxy names, or a login; where neither is asked for and only this machine gets in, its
    user; else nobody whom Weir knows, who may look."""
    settings = services.settings()
    if name := _named_by_proxy():
        groups = str(st.user.to_dict().get(_GROUPED) or "").split(",") if settings.ui.groups_header else []
        return settings.auth.actor(name, filter(None, map(clean_name, groups)))
    address = clean_name(st.context.ip_address)
    unknown = f"unknown viewer at {address}" if address else "unknown viewer"
    if (reason := why_no_login()) is not None:
        return Actor(unknown, f"Weir is read-only: {reason or 'nobody is logged in'}")
    if settings.auth.providers:
        known = login()
        return settings.auth.actor(known.name, known.groups)
    if is_loopback(settings.ui.address) and not settings.ui.trusted_proxies:
        return services.actor()
    return Actor(unknown, _why_unknown(settings.ui))


def _named_by_proxy() -> str:
    """Without the header the server sets no such name, and a provider's token may hold a claim that is called so."""
    return clean_name(st.user.to_dict().get(_NAMED)) if services.settings().ui.user_header else ""


def login() -> Login:
    """Who is logged in; raises `LoginRefusedError` where nobody is or the login counts no more, and `StoreError`."""
    claims, cookies = st.user.to_dict(), st.context.cookies
    if FAILED in cookies and not claims.get("is_logged_in"):
        raise LoginRefusedError("the provider does not answer, or its answer was not accepted")
    if not claims.get("is_logged_in"):
        raise LoginRefusedError("your login was not made here" if USER_COOKIE_NAME in cookies else "")
    known = logins.read_login(claims, services.settings().auth, services.now())
    logins.require(known, int(monotonic()))
    return known


def why_no_login() -> str | None:
    """Why this viewer, who has to log in, is not logged in, empty for no reason; None where there is nothing to do."""
    try:
        if services.settings().auth.providers and not _named_by_proxy():
            login()
    except (LoginRefusedError, StoreError) as exc:
        return exc.message
    return None


def read_only_reason() -> str | None:
    """Why this viewer may not act, None when they may."""
    return actor().refused or None


def why_no_job() -> str | None:
    """Why this viewer can ask no stream host for anything; None when they can."""
    if (refused := read_only_reason()) is not None:
        return refused
    now, stale_s = services.now(), services.settings().host.heartbeat_stale_s
    try:
        store = services.existing_store()
        return why_no_host(store.hosts(now=now) if store is not None else (), now=now, stale_s=stale_s)
    except StoreError as exc:
        return exc.message


def clean_name(header: object) -> str:
    """The name in a header; empty for what is none, or no text."""
    try:
        return logins.clean_text(str(header or "").encode("latin-1").decode())
    except UnicodeError:
        return ""


def _why_unknown(ui: UiSettings) -> str:
    if ui.allow_remote_writes:
        return ""
    reason = f"it listens on {ui.address} and no login is configured (`auth.providers`, or `ui.user_header` of a proxy)"
    if ui.user_header:
        reason = f"no trusted proxy names you in `{ui.user_header}`"
    elif is_loopback(ui.address):
        reason = "it stands behind a proxy, and `ui.user_header` is not set"
    return f"Weir is read-only: {reason}. `WEIR_UI__ALLOW_REMOTE_WRITES=true` lets every viewer act."
