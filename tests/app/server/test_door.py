"""The door of a server: what strangers try is refused at its socket, every right way in works, also behind nginx."""

import asyncio
import re
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from app.server.door import Door
from backend.settings import load_settings
from tests.app.server.conftest import NAME, PROXY
from tests.worlds.pages.nginx import NAME as NGINX_NAME
from tests.worlds.pages.nginx import documented_settings, nginx_before
from tests.worlds.pages.serving import Answer as Answered
from tests.worlds.pages.serving import Served, answering, served


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    head: str
    body: str


def sent(url: str, *lines: str, by: str = "127.0.0.1") -> Answer:
    """What the server answers to these lines of a request; `HERE` stands for its port."""
    port = int(url.rpartition(":")[2])
    head = "\r\n".join((*lines, "", "")).replace("HERE", str(port))
    opened = socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(by, 0))
    with ssl._create_unverified_context().wrap_socket(opened) if url.startswith("https") else opened as connection:
        connection.sendall(head.encode("latin-1"))
        response = HTTPResponse(connection, method=lines[0].partition(" ")[0])
        response.begin()
        body = b"" if response.status == 101 else response.read()
        answered = "\n".join(f"{name}: {value}" for name, value in response.getheaders())
    return Answer(response.status, answered.lower(), body.decode("latin-1"))


def get(path: str, *lines: str, method: str = "GET", version: str = "1.1") -> tuple[str, ...]:
    return (f"{method} {path} HTTP/{version}", "Connection: close", *lines)


def handshake(*lines: str, path: str = "/_stcore/stream") -> tuple[str, ...]:
    return (
        f"GET {path} HTTP/1.1",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol: streamlit",
        *lines,
    )


US = "Host: localhost:HERE"
REBOUND = "Host: rebound.example:HERE"
OURS = "Origin: http://localhost:HERE"
PROXIED = ("Host: 127.0.0.1:HERE", f"X-Forwarded-Host: {NAME}", "X-Forwarded-Proto: https", "X-User: ann")

REFUSED = {
    "a name that points here": get("/healthz", REBOUND),
    "its page": get("/", REBOUND),
    "its figures": get("/metrics", REBOUND),
    "its export": get("/export/abc", REBOUND),
    "Streamlit's health under it": get("/_stcore/health", REBOUND),
    "Streamlit's media under it": get("/media/abc.csv", REBOUND),
    "an upload under it": get("/_stcore/upload_file/a/b", REBOUND, "Content-Length: 0", method="PUT"),
    "its own origin and host": handshake(REBOUND, "Origin: http://rebound.example:HERE"),
    "its own origin and host, posted": get("/healthz", REBOUND, "Origin: http://rebound.example:HERE", method="POST"),
    "the head alone": get("/healthz", REBOUND, method="HEAD"),
    "a name that ends like ours": get("/healthz", f"Host: evil-{NAME}"),
    "a name below ours": get("/healthz", f"Host: a.{NAME}"),
    "a name that begins like ours": get("/healthz", f"Host: {NAME}.rebound.example"),
    "no port": get("/healthz", "Host: localhost"),
    "upper case of a stranger": get("/healthz", "Host: REBOUND.EXAMPLE:HERE"),
    "a user before the host": get("/healthz", "Host: localhost:HERE@rebound.example"),
    "a path in the host": get("/healthz", "Host: localhost:HERE/healthz"),
    "two hosts in one": get("/healthz", "Host: localhost:HERE, rebound.example"),
    "a space in the host": get("/healthz", "Host: localhost:HERE rebound.example"),
    "an empty host": get("/healthz", "Host:"),
    "no host": get("/healthz"),
    "no host, as once": get("/healthz", version="1.0"),
    "two hosts": get("/healthz", US, REBOUND),
    "twice our own host": get("/healthz", US, US),
    "the address of everything": get("/healthz", "Host: 0.0.0.0:HERE"),
    "IPv4 in IPv6": get("/healthz", "Host: [::ffff:127.0.0.1]:HERE"),
    "IPv6 with a zone": get("/healthz", "Host: [::1%25lo]:HERE"),
    "letters that look alike": get("/healthz", "Host: l\xf6calhost:HERE"),
    "a whole address": get("http://rebound.example/healthz", US),
    "our whole address": get("http://localhost:HERE/healthz", US),
    "a star": get("*", US, method="OPTIONS"),
    "a page of another port": handshake(US, "Origin: http://localhost:1"),
    "a page of another scheme": handshake(US, "Origin: https://localhost:HERE"),
    "a page of our other name": handshake(US, "Origin: http://127.0.0.1:HERE"),
    "a foreign page": handshake(US, "Origin: https://evil.example"),
    "a foreign page elsewhere": handshake(US, "Origin: https://evil.example", path="/_stcore/other"),
    "a page of nowhere": handshake(US, "Origin: null"),
    "no page": handshake(US),
    "two pages": handshake(US, OURS, "Origin: https://evil.example"),
    "ours as the user of another": handshake(US, "Origin: http://localhost:HERE@evil.example"),
    "a foreign page reads": get("/healthz", US, "Origin: https://evil.example"),
    "a foreign page asks whether it may": get("/healthz", US, "Origin: https://evil.example", method="OPTIONS"),
    "a foreign page posts": get("/healthz", US, "Origin: https://evil.example", method="POST"),
    "nobody's page posts": get("/_stcore/upload_file/a/b", US, "Content-Length: 0", method="PUT"),
    "our own page uploads": get("/_stcore/upload_file/a/b", US, OURS, "Content-Length: 0", method="PUT"),
    "our own page takes an upload away": get("/_stcore/upload_file/a/b", US, OURS, method="DELETE"),
    "our own page posts": get("/healthz", US, OURS, "Content-Length: 0", method="POST"),
    "a method of nobody": get("/healthz", US, OURS, method="PROPFIND"),
    "another way to name the host": get("/healthz", REBOUND, "X-Forwarded-Host: localhost:HERE"),
    "a forged name": handshake(US, f"X-Forwarded-Host: {NAME}", f"Origin: http://{NAME}"),
    "a forged scheme": handshake(US, "X-Forwarded-Proto: https", "Origin: https://localhost:HERE"),
    "a forged address of the proxy": handshake(*PROXIED, f"X-Forwarded-For: {PROXY}", f"Origin: https://{NAME}"),
}


@pytest.mark.parametrize("attempt", REFUSED)
def test_refused(server: Served, attempt: str) -> None:
    answer = sent(server.url, *REFUSED[attempt])
    if answer.status == 400:  # what is no HTTP ends before the door
        assert re.match("Invalid HTTP request received|Failed to open a WebSocket connection: invalid", answer.body)
    else:
        assert answer.status == 403 and "content-type: text/plain" in answer.head
        assert answer.body.startswith("Refused: ") or (attempt, answer.body) == ("the head alone", "")


WORKS = {
    "localhost": get("/healthz", US),
    "loopback": get("/healthz", "Host: 127.0.0.1:HERE"),
    "loopback as IPv6": get("/healthz", "Host: [::1]:HERE"),
    "upper case of ours": get("/healthz", "Host: LOCALHOST:HERE"),
    "a configured name": get("/healthz", f"Host: {NAME}"),
    "a configured name with its port": get("/healthz", f"Host: {NAME}:HERE"),
    "our own page reads": get("/healthz", US, OURS),
    "what others forward is nothing": get("/healthz", US, "X-Forwarded-Host: evil.example", "X-Forwarded-Proto: https"),
}


@pytest.mark.parametrize("way", WORKS)
def test_works(server: Served, way: str) -> None:
    answer = sent(server.url, *WORKS[way])
    assert answer.status == 200 and '"status"' in answer.body


@pytest.mark.parametrize("host", ["localhost:HERE", "127.0.0.1:HERE", "[::1]:HERE", NAME])
def test_a_page_of_ours_gets_its_websocket(server: Served, host: str) -> None:
    assert sent(server.url, *handshake(f"Host: {host}", f"Origin: http://{host}")).status == 101


def test_a_page_behind_the_trusted_proxy_gets_its_websocket(server: Served) -> None:
    assert sent(server.url, *handshake(*PROXIED, f"Origin: https://{NAME}"), by=PROXY).status == 101
    assert sent(server.url, *handshake(*PROXIED, "X-User: ben", f"Origin: https://{NAME}"), by=PROXY).status == 403
    assert sent(server.url, *handshake(*PROXIED, f"Origin: http://{NAME}"), by=PROXY).status == 403
    assert sent(server.url, *handshake(*PROXIED, "Origin: http://127.0.0.1:HERE"), by=PROXY).status == 403


def test_a_refusal_is_in_the_log_with_its_reason(server: Served) -> None:
    sent(server.url, *get("/only-here", "Host: rebound.example\x1b[2J:HERE"))
    answer = sent(server.url, *get("/only-here", REBOUND))
    port = server.url.rpartition(":")[2]
    assert answer.body.startswith(f"Refused: Weir is not known as 'rebound.example:{port}'; `ui.allowed_hosts`")
    log = Path(server.env["WEIR_HOME"], "logs", "ui.log").read_text()
    (line,) = [line for line in log.splitlines() if "/only-here" in line and f"example:{port}" in line]
    assert '"request refused"' in line and '"client": "127.0.0.1"' in line


@pytest.mark.parametrize(
    "path", ["/", "/streams", "/healthz", "/metrics", "/export/gone", "/favicon.png", "/_stcore/health"]
)
def test_every_answer_says_that_code_comes_from_here_alone(server: Served, path: str) -> None:
    head, port = sent(server.url, *get(path, US)).head, server.url.rpartition(":")[2]
    (policy,) = re.findall(r"^content-security-policy: (.*)$", head, re.MULTILINE)
    sources = dict(part.split(" ", 1) for part in policy.strip().split("; "))
    assert sources["default-src"] == "'self'" and sources["frame-ancestors"] == sources["object-src"] == "'none'"
    assert sources["connect-src"] == f"'self' ws://localhost:{port} wss://localhost:{port}"
    assert "unsafe-inline" not in sources["script-src"] and "'unsafe-eval'" not in sources["script-src"]
    assert head.count("x-content-type-options: nosniff") == 1 and head.count("referrer-policy: same-origin") == 1


# which hosts an address stands for, and whose headers count -----------------------------------------------------------

LAN = "192.168.7.5"
HERE = socket.gethostname().lower()


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

    encoded = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    scope = {"type": "http", "method": "GET", "scheme": "http", "path": "/", "client": (client, 4711), **more}
    door = Door(application, load_settings(ui=ui, port=8501))
    with ThreadPoolExecutor(1) as thread:  # a browser's tests leave a loop running in this one
        thread.submit(asyncio.run, door(scope | {"headers": encoded}, None, send)).result()  # type: ignore[arg-type]
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
    own = "weir.example.com:7", "WEIR.example.com", "lake.example.com:8443", "[2001:db8::5]", "localhost:8501"
    assert [host for host in (*own, "example.com", "lake.example.com") if not opens(ui, host)] == [
        "example.com",
        "lake.example.com",
    ]


BEHIND = {"trusted_proxies": ["10.0.0.0/8"], "allowed_hosts": ["weir.example.com"], "user_header": "X-User"}
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
    status, seen = asked(BEHIND, *FORWARDED, ("Origin", "https://weir.example.com"), client=proxy)
    assert status == 200 and seen["client"][0] == "198.51.100.7" and seen["scheme"] == "https"
    headers = dict(seen["headers"])
    assert headers[b"host"] == b"weir.example.com"  # as Origin has it: Streamlit looks no further
    assert headers[b"x-user"] == b"ann"


def test_groups_come_from_the_proxy_alone_and_in_one_header() -> None:
    ui, groups = BEHIND | {"groups_header": "X-Groups"}, ("x-groups", "ops")
    status, seen = asked(ui, *FORWARDED, groups, client="10.9.8.7")
    assert status == 200 and dict(seen["headers"])[b"x-groups"] == b"ops"
    status, seen = asked(ui, *FORWARDED, groups, ("X-GROUPS", "root"), client="11.0.0.1")
    assert status == 200 and b"x-groups" not in dict(seen["headers"])
    assert asked(ui, *FORWARDED, groups, ("X-Groups", "admins"), client="10.9.8.7")[0] == 403


def test_what_others_say_of_a_client_does_not_come_in() -> None:
    more = ("X-Real-IP", "198.51.100.7"), ("Forwarded", "for=198.51.100.7"), ("X-Forwarded-Prefix", "/p")
    status, seen = asked(BEHIND, *FORWARDED, *more, client="11.0.0.1")
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
    assert asked(BEHIND, *(dict(FORWARDED) | change).items(), client="10.9.8.7")[0] == 403, by


# behind nginx, as docs/security.md sets it up -----------------------------------------------------------------------

ANN = "Cookie: login=ann@example.com"
WEIRS = f"Host: {NGINX_NAME}:HERE"
FORGED = (
    "X-Auth-Request-Email: root@example.com",
    "X-Forwarded-For: 127.0.0.1",
    "X-Forwarded-Host: localhost:8501",
    "X-Forwarded-Proto: http",
)


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("proxied")
    (home / "lake").mkdir()
    with served(home, **documented_settings()) as weir, nginx_before(weir.url, home) as url:
        yield url


def test_without_a_login_there_is_the_page_that_asks_for_one(proxied: str) -> None:
    for path in ("/", "/healthz", "/metrics", "/export/a", "/_stcore/health"):
        answer = sent(proxied, *get(path, WEIRS, *FORGED, version="1.0"))
        assert (answer.status, answer.body) == (403, "Sign in")
    assert sent(proxied, *handshake(WEIRS, f"Origin: https://{NGINX_NAME}:HERE", *FORGED)).status == 403


def test_who_is_logged_in_reaches_pages_and_their_websockets(proxied: str) -> None:
    answer = sent(proxied, *get("/healthz", WEIRS, ANN, *FORGED))
    assert answer.status == 200 and '"status"' in answer.body
    assert "<title>" in sent(proxied, *get("/streams", WEIRS, ANN)).body
    assert sent(proxied, *handshake(WEIRS, ANN, f"Origin: https://{NGINX_NAME}:HERE", *FORGED)).status == 101


@pytest.mark.parametrize(
    "origin", ["https://evil.example", f"https://{NGINX_NAME}", f"https://{NGINX_NAME}:1", f"http://{NGINX_NAME}:HERE"]
)
def test_a_foreign_page_in_the_browser_of_somebody_logged_in_gets_nothing(proxied: str, origin: str) -> None:
    assert sent(proxied, *handshake(WEIRS, ANN, f"Origin: {origin}")).status == 403
    answer = sent(proxied, *get("/healthz", WEIRS, ANN, f"Origin: {origin}"))
    assert answer.status == 403 and "Refused: it comes from a page of " in answer.body
    answer = sent(proxied, *get("/healthz", "Host: rebound.example", ANN))
    assert answer.status == 403 and "Refused: Weir is not known as 'rebound.example'" in answer.body


def test_nginx_replaces_what_a_browser_claims(tmp_path: Path) -> None:
    arrived: list[tuple[str, str]] = []

    def mirror(request: BaseHTTPRequestHandler) -> Answered:
        arrived.extend((name.lower(), value) for name, value in request.headers.items())
        return 200, {}, b""

    with answering(mirror) as port, nginx_before(f"http://127.0.0.1:{port}", tmp_path) as url:
        claims = (
            (), ("x-auth-request-email: root", "X-AUTH-REQUEST-EMAIL: root"), ("X_Auth_Request_Email: root",),
            ("x-auth-request-groups: root", "X-AUTH-REQUEST-GROUPS: root"), ("X_Auth_Request_Groups: root",),
        )  # fmt: skip
        for more in claims:
            arrived.clear()
            sent(url, *get("/", WEIRS, ANN, *FORGED, *more, version="1.0"))
            headers = [header for header in arrived if header[0].startswith(("x-", "x_", "host"))]
            assert sorted(headers) == [
                ("host", url.removeprefix("https://")),
                ("x-auth-request-email", "ann@example.com"),
                ("x-auth-request-groups", "data-platform,oncall"),
                ("x-forwarded-for", "127.0.0.1"),
                ("x-forwarded-proto", "https"),
            ]
