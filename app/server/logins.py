"""Logins at the server: what Streamlit is told of providers, and what it leaves open.

Rule: only where `auth.providers` are set. Inside the door, so that host and scheme are believed.
"""

import re
from typing import Any
from urllib.parse import quote, unquote

import streamlit as st
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import config
from streamlit.runtime.fragment import MemoryFragmentStorage
from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME

from app import viewer
from backend.settings import AuthSettings

_LOGIN, _CALLBACK = "/auth/login", "/oauth2callback"
_RETURN = "weir_return"  # a cookie: where somebody was who left for the provider
_COOKIE = "{}={}; HttpOnly; Path={}; Max-Age={}; SameSite=lax"
_PAGE = r"/(?!/|auth/|oauth2callback)[!-\[\]-~]{0,3000}"  # of ours: no host, and nothing that a browser takes for one


def streamlit_secrets(auth: AuthSettings) -> dict[str, Any]:
    """What Streamlit knows of the providers, in the memory of this process alone."""
    providers = {
        name: {
            "client_id": provider.client_id,
            "client_secret": provider.client_secret.get_secret_value(),
            "server_metadata_url": provider.metadata_url,
            "client_kwargs": {"scope": provider.scope},
        }
        for name, provider in auth.providers.items()
    }
    own = {"redirect_uri": auth.redirect_url, "cookie_secret": auth.cookie_secret.get_secret_value()}
    return {"auth": own | providers} if providers else {}


def with_logins(app: ASGIApp, auth: AuthSettings) -> ASGIApp:
    """The application, and for providers what Streamlit leaves open: a live region or dialog of a page whose login has
    ended is not drawn again (the whole page is, and says why), and who logs in comes back to the page they left."""
    if not auth.providers:
        return app
    config.set_option("server.cookieSecret", auth.cookie_secret.get_secret_value())  # of who is at the provider
    lookup = MemoryFragmentStorage.lookup

    def checked(self: MemoryFragmentStorage, fragment_id: str) -> Any:
        if viewer.why_no_login() is not None:
            st.rerun()
        return lookup(self, fragment_id)

    MemoryFragmentStorage.lookup = checked  # type: ignore[method-assign, assignment]

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_kept(message: Message) -> None:
            if message["type"] == "http.response.start":
                _keep_address(HTTPConnection(scope), message)
            await send(message)

        await app(scope, receive, send_kept)

    return answered


def _keep_address(asks: HTTPConnection, message: Message) -> None:
    """On the way to a provider and back: in a cookie; and another that tells the page what failed."""
    path, headers, failed = asks.scope["path"], MutableHeaders(scope=message), False
    if path == _LOGIN:
        before = asks.headers.get("referer", "").removeprefix(f"{asks.scope['scheme']}://{asks.headers['host']}")
        here = before if re.fullmatch(_PAGE, before) else "/"
        headers.append("Set-Cookie", _COOKIE.format(_RETURN, quote(here, safe=""), _CALLBACK, 900))
        if failed := message["status"] >= 400:  # nobody answers there
            message["status"], headers["Location"] = 302, here
    elif path == _CALLBACK:
        before = unquote(asks.cookies.get(_RETURN, ""))
        headers["Location"] = before if re.fullmatch(_PAGE, before) else "/"
        cookies = [text for text in headers.getlist("set-cookie") if text.startswith(f"{USER_COOKIE_NAME}=")]
        failed = bool(asks.url.query) and all("Max-Age=0" in text for text in cookies)
    if failed:
        headers.append("Set-Cookie", _COOKIE.format(viewer.FAILED, 1, "/", 30))
    if asks.scope["scheme"] == "https":
        pairs = headers.raw
        message["headers"] = [(key, text + b"; Secure" if key == b"set-cookie" else text) for key, text in pairs]
