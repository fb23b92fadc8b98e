"""The door: who may reach Weir, decided before Streamlit or a route of ours sees a request.

Rule: what is behind the door may be believed. `Host` and `Origin` are our own there, and a header in which a proxy
speaks of its client (`X-Forwarded-*`, `ui.user_header`, `ui.groups_header`) is there only if a trusted proxy sent it.
"""

import re
import socket
from base64 import b64encode
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.file_util import get_static_dir
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from backend.access import is_loopback
from backend.settings import HOST, Settings, UiSettings

_READS = ("GET", "HEAD", "OPTIONS")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_QUOTED_CHARACTERS = 200  # of what a stranger sent, in answers and logs
_ANSWER_HEADERS = {
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}

_log = structlog.get_logger(__name__)


class Door:
    """ASGI middleware around the whole application: it knows proxies from others, then comes `_OwnPages`."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        proxies = settings.ui.trusted_proxies
        self._app = ProxyHeadersMiddleware(_OwnPages(app, settings), proxies)  # type: ignore[arg-type]
        self._proxies = [ip_network(proxy) for proxy in proxies]
        self._own_headers = [name.lower().encode() for name in (settings.ui.user_header, settings.ui.groups_header)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            name, port = scope["client"] or ("", 0)
            peer = _address(name)
            is_proxy = peer is not None and any(peer in network for network in self._proxies)
            headers = [(key, value) for key, value in scope["headers"] if is_proxy or not self._is_of_proxies(key)]
            scope = {**scope, "client": (str(peer or name), port), "headers": headers}
        await self._app(scope, receive, send)  # type: ignore[arg-type]

    def _is_of_proxies(self, name: bytes) -> bool:
        return name.startswith(b"x-forwarded-") or name in (b"forwarded", b"x-real-ip", *self._own_headers)


class _OwnPages:
    """Only pages of ours read and act. One of another name, also a name that somebody makes point at our address (DNS
    rebinding), of another port or scheme gets a 403 with one sentence, and the log a line."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        ui = settings.ui
        self._app = app
        self._names = {_lowered(name) for name in ui.allowed_hosts} | _names_listened_on(ui.address, settings.port)
        self._any_address = _listens_everywhere(ui.address)
        self._named_once = ui.user_header, ui.groups_header
        self._policy = _policy(ui)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)

        headers = Headers(scope=scope)
        reason = self._reason_against(scope, headers)
        host = "" if reason else (headers.getlist("x-forwarded-host") or headers.getlist("host"))[0]
        # Not every browser takes a websocket for 'self', and a policy cannot name an IPv6 address.
        sockets = f" ws://{host} wss://{host}" if host and not host.startswith("[") else ""

        async def send_guarded(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                answer_headers = MutableHeaders(scope=message)
                answer_headers.update(_ANSWER_HEADERS)
                answer_headers["Content-Security-Policy"] = f"{self._policy}; connect-src 'self'{sockets}"
            await send(message)

        if reason is None:
            others = [(name, value) for name, value in scope["headers"] if name != b"host"]
            # Streamlit compares Origin with Host, and where they differ it asks an outside address for our own.
            scope = {**scope, "headers": [(b"host", host.encode("latin-1")), *others]}
            return await self._app(scope, receive, send_guarded)
        path, client = scope["path"][:_QUOTED_CHARACTERS], scope["client"][0]
        _log.warning("request refused", reason=reason, client=client, path=path)
        return await PlainTextResponse(f"Refused: {reason}.\n", 403)(scope, receive, send_guarded)

    def _reason_against(self, scope: Scope, headers: Headers) -> str | None:
        scheme = scope["scheme"].replace("ws", "http")
        hosts, forwarded, origins = map(headers.getlist, ("host", "x-forwarded-host", "origin"))
        if not scope["path"].startswith("/"):
            return "a request must name a path, not a whole address"
        if len(hosts) != 1 or len(forwarded) > 1 or any(len(headers.getlist(name)) > 1 for name in self._named_once):
            return "a request must name one host and one user"
        for host in hosts + forwarded:
            if not self._is_ours(host, scheme):
                return f"Weir is not known as {_quoted(host)}; `ui.allowed_hosts` names the hosts that it answers for"
        if scope["type"] == "http" and scope["method"] not in _READS:  # Streamlit keeps what anybody uploads
            return f"no request writes here; {', '.join(_READS)} are answered"
        own = f"{scheme}://{(forwarded or hosts)[0]}"
        if not origins and scope["type"] == "http":
            return None
        if origins != [own]:
            page, hint = (
                _quoted(", ".join(origins)),
                "what a proxy says of it counts only from `ui.trusted_proxies`",
            )
            return f"it comes from a page of {page}, and Weir is {own} here; {hint}"
        return None

    def _is_ours(self, host: str, scheme: str) -> bool:
        match = re.fullmatch(HOST, host)
        if match is None:
            return False
        name = _lowered(match["name"])
        return (
            name in self._names
            or f"{name}:{match['port'] or _DEFAULT_PORTS[scheme]}" in self._names
            # Nobody can make an address point elsewhere, and a container does not know which of them lead to it.
            or (self._any_address and _address(name.strip("[]")) is not None)
        )


def _policy(ui: UiSettings) -> str:
    """Code, styles and data come from Weir alone, as its pages need them; who may frame it."""
    sources = {
        "default-src": "'self'",
        "script-src": f"'self' blob: 'wasm-unsafe-eval' {_inline_scripts()}",
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' blob: data:",
        "font-src": "'self' data:",
        "object-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": " ".join(ui.frame_ancestors) or "'none'",
    }
    return "; ".join(f"{name} {allowed}" for name, allowed in sources.items())


def _inline_scripts() -> str:
    """The hashes of the scripts that stand in the page itself: Streamlit's own, as it was installed."""
    page = Path(get_static_dir(), "index.html").read_text("utf-8")
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    return " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)


def _names_listened_on(address: str, port: int) -> set[str]:
    """The hosts, lowered, that lead to this address; without a port where it may be published under another one."""
    if _listens_everywhere(address):
        return {"localhost", socket.gethostname().lower()}
    loopback = ("localhost", "127.0.0.1", "[::1]")
    others = loopback if is_loopback(address) else (socket.gethostname().lower(),)
    own = f"[{address}]" if ":" in address else address
    return {f"{name}:{port}" for name in (_lowered(own), *others)}


def _listens_everywhere(address: str) -> bool:
    numbers = _address(address)
    return numbers is not None and numbers.is_unspecified


def _lowered(host: str) -> str:
    """`name` or `name:port` in the one way it is compared: an IPv6 address is written as short as can be."""
    name, bracket, port = host.lower().partition("]")
    return f"[{_address(name[1:]) or name[1:]}]{port}" if bracket else name


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Its numbers, None for a name. An IPv4 address that an IPv6 socket shows is that IPv4 address."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _quoted(text: str) -> str:
    return repr(text[:_QUOTED_CHARACTERS])
