"""Who looks at a page: their name, their clock, their theme, and whether they may act.

Rule: asked anew in every run of a page, since viewers of one server differ.
"""

from collections.abc import Sequence
from dataclasses import replace
from time import monotonic
from typing import Literal

import streamlit as st
from streamlit import config
from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME

from app import logins, services
from app.logins import Login
from backend.access import LOOK_AS, Actor, is_loopback, permission
from backend.errors import LoginRefusedError, StoreError
from backend.format import zone_of
from backend.jobs.model import why_no_host
from backend.lake.lake import Lake
from backend.settings import UiSettings
from backend.times import Clock

_NAMED, _GROUPED = "named_by_proxy", "grouped_by_proxy"  # of Streamlit's user
FAILED = "weir_login_failed"  # a cookie that is there for some seconds after
_LOOKS_AS = "looks_as"  # of a session: a name and groups


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
    """Who acts; reading alone while they look through another's eyes, for which they must still be an admin."""
    own, (name, groups) = own_actor(), st.session_state.get(_LOOKS_AS, ("", ()))
    if not name or not permission(own, LOOK_AS, name).allowed:
        return own
    other = services.settings().auth.actor(name, groups)
    return replace(other, name=own.name, looks_as=name, refused=f"You look as {name}: reading only")


def own_actor() -> Actor:
    """Whom a trusted proxy names, or who is logged in; where neither is asked for and only this machine gets in, its
    user; else nobody whom Weir knows, who may look."""
    settings = services.settings()
    if name := _named_by_proxy():
        groups = str(st.user.to_dict().get(_GROUPED) or "").split(",") if settings.ui.groups_header else []
        return settings.auth.actor(name, filter(None, map(clean_name, groups)))
    address, reason = clean_name(st.context.ip_address), why_no_login()
    if settings.auth.providers and reason is None:
        return settings.auth.actor((known := login()).name, known.groups)
    if reason is None and is_loopback(settings.ui.address) and not settings.ui.trusted_proxies:
        return services.actor()
    why = _why_unknown(settings.ui) if reason is None else f"Weir is read-only: {reason or 'nobody is logged in'}"
    name = f"unknown viewer at {address}" if address else "unknown viewer"
    return replace(settings.auth.actor(name), refused=why)


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


def lake() -> Lake:
    """The lake as this viewer may see it, through another's eyes as well; asked in the run of a page alone, since
    threads do not know who looks."""
    return services.lake().seen_by(own_actor(), actor())


def look_as(name: str = "", groups: Sequence[str] = ()) -> None:
    """From the next run on; nothing that one's own eyes saw stays. Without a name: through one's own again."""
    st.session_state.clear()
    st.session_state[_LOOKS_AS] = name, tuple(groups)


def why_not(operation: str, *resources: str, owner: str = "") -> str | None:
    """Why this viewer may not do this to one of these streams or tables, and who may; None when they may. `owner`: as
    of `Access`."""
    who = actor()
    if who.refused or who.grants is None:
        return who.refused or None
    permissions = (permission(who, operation, resource, owner=owner) for resource in resources)
    return next((each.by for each in permissions if not each.allowed), None)


def why_no_job(operation: str, resource: str) -> str | None:
    """Why this viewer can ask no stream host for this; None when they can."""
    if (refused := why_not(operation, resource)) is not None:
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
