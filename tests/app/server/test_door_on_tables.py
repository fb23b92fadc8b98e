"""The door alone: which hosts an address stands for, whose headers count, and what every answer carries.

What a stranger can really send over a socket is tried in tests/app/server/test_door.py.
"""

import asyncio
import socket
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from app.server.door import Door
from backend.settings import load_settings

LAN = "192.168.7.5"
HERE = socket.gethostname().lower()


def _run(answer: Coroutine[Any, Any, None]) -> None:
    """In a thread of its own: a browser's tests leave a loop running in this one."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, answer).result()


def asked(ui: dict[str, Any], *headers: tuple[str, str], client: str = "127.0.0.1", **more: Any) -> tuple[int, Scope]:
    """The status that a request with these headers gets, and what the application behind the door saw of it."""
    seen: Scope = {}
    sent: list[Message] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        seen.update(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "scheme": "http",
        "path": "/",
        "client": (client, 4711),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
        **more,
    }
    door = Door(application, load_settings(ui=ui, port=8501))
    _run(door(scope, None, send))  # type: ignore[arg-type]
    return sent[0]["status"], seen


def opens(ui: dict[str, Any], host: str) -> bool:
    status, seen = asked(ui, ("Host", host))
    assert (status, bool(seen)) in ((200, True), (403, False))
    return status == 200


@pytest.mark.parametrize(
    ("address", "own", "foreign"),
    [
        (
            "127.0.0.1",
            ["localhost:8501", "127.0.0.1:8501", "[::1]:8501", "[0:0::1]:8501", "LocalHost:8501"],
            ["localhost", "localhost:8502", f"{HERE}:8501", f"{LAN}:8501", "0.0.0.0:8501", "[::ffff:127.0.0.1]:8501"],
        ),
        ("localhost", ["localhost:8501", "127.0.0.1:8501"], ["localhost.:8501", "a.localhost:8501"]),
        ("::1", ["[::1]:8501", "localhost:8501"], ["::1:8501", "[::1]", "[::2]:8501"]),
        (LAN, [f"{LAN}:8501", f"{HERE}:8501"], ["localhost:8501", "192.168.7.6:8501", f"{LAN}:80", LAN]),
        ("2001:db8::5", ["[2001:db8::5]:8501", "[2001:DB8:0::5]:8501"], ["[2001:db8::6]:8501"]),
        # Published under what is not known here: any address, since no name is needed to reach it, and no other name.
        (
            "0.0.0.0",
            ["localhost:9000", f"{HERE}:80", "10.1.2.3:8501", LAN, "[fd00::1]:8501"],
            ["evil.example:8501", "127.1:8501", "0x7f000001:8501", "2130706433:8501", "10.1.2.3.evil.example"],
        ),
        ("::", ["localhost:9000", "10.1.2.3:8501"], ["evil.example:8501"]),
    ],
)
def test_hosts_that_lead_to_an_address(address: str, own: list[str], foreign: list[str]) -> None:
    assert [host for host in own if not opens({"address": address}, host)] == []
    assert [host for host in foreign if opens({"address": address}, host)] == []


def test_configured_names_come_beside_the_address() -> None:
    ui = {"allowed_hosts": ["Weir.example.com", "lake.example.com:8443", "[2001:DB8::0:5]:80"]}
    own = "weir.example.com", "weir.example.com:7", "WEIR.example.com", "lake.example.com:8443", "[2001:db8::5]"
    assert [host for host in (*own, "localhost:8501") if not opens(ui, host)] == []
    foreign = "example.com", "a.weir.example.com", "weir.example.com.", "weir.example.comx", "lake.example.com"
    assert [host for host in foreign if opens(ui, host)] == []


PROXY = {"trusted_proxies": ["10.0.0.0/8"], "allowed_hosts": ["weir.example.com"], "user_header": "X-User"}
FORWARDED = (
    ("Host", "localhost:8501"),
    ("X-Forwarded-For", "198.51.100.7"),
    ("X-Forwarded-Host", "weir.example.com"),
    ("X-Forwarded-Proto", "https"),
    ("X-User", "ann"),
    ("Accept", "text/html"),
)


@pytest.mark.parametrize("proxy", ["10.9.8.7", "::ffff:10.9.8.7"])
def test_a_trusted_proxy_speaks_for_its_client(proxy: str) -> None:
    status, seen = asked(PROXY, *FORWARDED, ("Origin", "https://weir.example.com"), client=proxy, method="POST")
    assert status == 200 and seen["client"][0] == "198.51.100.7" and seen["scheme"] == "https"
    headers = dict(seen["headers"])
    assert headers[b"host"] == b"weir.example.com"  # as Origin has it: Streamlit looks no further
    assert headers[b"x-user"] == b"ann"


def test_what_others_say_of_a_client_does_not_come_in() -> None:
    more = ("X-Real-IP", "198.51.100.7"), ("Forwarded", "for=198.51.100.7"), ("X-Forwarded-Prefix", "/p")
    status, seen = asked(PROXY, *FORWARDED, *more, client="11.0.0.1")
    assert status == 200 and seen["client"] == ("11.0.0.1", 4711) and seen["scheme"] == "http"
    assert seen["headers"] == [(b"host", b"localhost:8501"), (b"accept", b"text/html")]


@pytest.mark.parametrize(
    ("change", "by"),
    [
        ({"Host": "rebound.example"}, "a browser on the proxy's machine"),
        ({"X-Forwarded-Host": "rebound.example"}, "a proxy that hands on what it got"),
        ({"X-Forwarded-Host": "weir.example.com, rebound.example"}, "two proxies"),
        ({"Origin": "http://weir.example.com"}, "a page without TLS"),
        ({"Origin": "https://weir.example.com:8443"}, "a page of another port"),
    ],
)
def test_behind_a_trusted_proxy_names_and_pages_are_judged_all_the_same(change: dict[str, str], by: str) -> None:
    assert asked(PROXY, *(dict(FORWARDED) | change).items(), client="10.9.8.7")[0] == 403, by


def test_two_users_are_none() -> None:
    assert asked(PROXY, *FORWARDED, ("X-User", "root"), client="10.9.8.7")[0] == 403


def test_the_lifespan_passes() -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "lifespan.startup.complete"})

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    _run(Door(application, load_settings())({"type": "lifespan"}, None, send))  # type: ignore[arg-type]
    assert sent == [{"type": "lifespan.startup.complete"}]
