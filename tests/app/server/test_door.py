"""The door of a real server, at its socket: what strangers try is refused, every right way in works."""

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.worlds.lake import builders
from tests.worlds.pages.serving import Served, served

PROXY = "127.0.0.2"  # on Linux all of 127.0.0.0/8 is this machine: the proxy is told from others by its address
NAME = "weir.example.com"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    head: str
    body: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("door")
    builders.write(home / "lake" / "orders", {"id": [1]})
    settings = {
        "WEIR_UI__ALLOWED_HOSTS": f'["{NAME}"]',
        "WEIR_UI__TRUSTED_PROXIES": f'["{PROXY}"]',
        "WEIR_UI__USER_HEADER": "X-User",
    }
    with served(home, **settings) as running:
        yield running


def sent(server: Served, *lines: str, by: str = "127.0.0.1") -> Answer:
    """What the server answers to these lines of a request; `HERE` stands for its port."""
    port = int(server.url.rpartition(":")[2])
    head = "\r\n".join((*lines, "", "")).replace("HERE", str(port))
    with socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(by, 0)) as connection:
        connection.sendall(head.encode("latin-1"))
        answer = b""
        while b"\r\n\r\n" not in answer and (piece := connection.recv(65_536)):
            answer += piece
        status = int(answer.split(b" ", 2)[1])
        while status != 101 and (piece := connection.recv(65_536)):  # it closes, as it was asked to
            answer += piece
    answered_head, _, body = answer.decode("latin-1").partition("\r\n\r\n")
    return Answer(status, answered_head.lower(), body)


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
    "a deep link of it": get("/streams?stream=a", REBOUND),
    "its scripts": get("/favicon.png", REBOUND),
    "its figures": get("/metrics", REBOUND),
    "its export": get("/export/abc", REBOUND),
    "Streamlit's health under it": get("/_stcore/health", REBOUND),
    "Streamlit's settings under it": get("/_stcore/host-config", REBOUND),
    "Streamlit's media under it": get("/media/abc.csv", REBOUND),
    "an upload under it": get("/_stcore/upload_file/a/b", REBOUND, "Content-Length: 0", method="PUT"),
    "its own origin and host": handshake(REBOUND, "Origin: http://rebound.example:HERE"),
    "its own origin and host, posted": get("/healthz", REBOUND, "Origin: http://rebound.example:HERE", method="POST"),
    "the head alone": get("/healthz", REBOUND, method="HEAD"),
    "a name that ends like ours": get("/healthz", f"Host: evil-{NAME}"),
    "a name below ours": get("/healthz", f"Host: a.{NAME}"),
    "a name that begins like ours": get("/healthz", f"Host: {NAME}.rebound.example"),
    "another port": get("/healthz", "Host: localhost:1"),
    "no port": get("/healthz", "Host: localhost"),
    "an empty port": get("/healthz", "Host: localhost:"),
    "a port that is none": get("/healthz", "Host: localhost:HERE0000"),
    "a trailing dot": get("/healthz", "Host: localhost.:HERE"),
    "upper case of a stranger": get("/healthz", "Host: REBOUND.EXAMPLE:HERE"),
    "a user before the host": get("/healthz", "Host: localhost:HERE@rebound.example"),
    "a user before ours": get("/healthz", "Host: me@localhost:HERE"),
    "a path in the host": get("/healthz", "Host: localhost:HERE/healthz"),
    "two hosts in one": get("/healthz", "Host: localhost:HERE, rebound.example"),
    "a space in the host": get("/healthz", "Host: localhost:HERE rebound.example"),
    "an empty host": get("/healthz", "Host:"),
    "no host": get("/healthz"),
    "no host, as once": get("/healthz", version="1.0"),
    "two hosts": get("/healthz", US, REBOUND),
    "twice our own host": get("/healthz", US, US),
    "the address of everything": get("/healthz", "Host: 0.0.0.0:HERE"),
    "a number for loopback": get("/healthz", "Host: 2130706433:HERE"),
    "a short loopback": get("/healthz", "Host: 127.1:HERE"),
    "IPv4 in IPv6": get("/healthz", "Host: [::ffff:127.0.0.1]:HERE"),
    "IPv6 without brackets": get("/healthz", "Host: ::1:HERE"),
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
    "a page of a file": handshake(US, "Origin: file://"),
    "no page": handshake(US),
    "two pages": handshake(US, OURS, "Origin: https://evil.example"),
    "ours as the user of another": handshake(US, "Origin: http://localhost:HERE@evil.example"),
    "a foreign page reads": get("/healthz", US, "Origin: https://evil.example"),
    "a foreign page asks whether it may": get("/healthz", US, "Origin: https://evil.example", method="OPTIONS"),
    "a foreign page posts": get("/healthz", US, "Origin: https://evil.example", method="POST"),
    "nobody's page posts": get("/_stcore/upload_file/a/b", US, "Content-Length: 0", method="PUT"),
    "another way to name the host": get("/healthz", REBOUND, "X-Forwarded-Host: localhost:HERE"),
    "a forged name": handshake(US, f"X-Forwarded-Host: {NAME}", f"Origin: http://{NAME}"),
    "a forged scheme": handshake(US, "X-Forwarded-Proto: https", "Origin: https://localhost:HERE"),
    "a forged address of the proxy": handshake(*PROXIED, f"X-Forwarded-For: {PROXY}", f"Origin: https://{NAME}"),
}


@pytest.mark.parametrize("attempt", REFUSED)
def test_refused(server: Served, attempt: str) -> None:
    answer = sent(server, *REFUSED[attempt])
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
    answer = sent(server, *WORKS[way])
    assert answer.status == 200 and '"status"' in answer.body


@pytest.mark.parametrize("host", ["localhost:HERE", "127.0.0.1:HERE", "[::1]:HERE", NAME])
def test_a_page_of_ours_gets_its_websocket(server: Served, host: str) -> None:
    assert sent(server, *handshake(f"Host: {host}", f"Origin: http://{host}")).status == 101


def test_a_page_behind_the_trusted_proxy_gets_its_websocket(server: Served) -> None:
    assert sent(server, *handshake(*PROXIED, f"Origin: https://{NAME}"), by=PROXY).status == 101
    assert sent(server, *handshake(*PROXIED, f"Origin: http://{NAME}"), by=PROXY).status == 403
    assert sent(server, *handshake(*PROXIED, "Origin: http://127.0.0.1:HERE"), by=PROXY).status == 403


def test_a_refusal_is_in_the_log_with_its_reason(server: Served) -> None:
    sent(server, *get("/only-here", "Host: rebound.example\x1b[2J:HERE"))
    answer = sent(server, *get("/only-here", REBOUND))
    port = server.url.rpartition(":")[2]
    assert answer.body.startswith(f"Refused: Weir is not known as 'rebound.example:{port}'; `ui.allowed_hosts`")
    log = Path(server.env["WEIR_HOME"], "logs", "ui.log").read_text()
    (line,) = [line for line in log.splitlines() if "/only-here" in line and f"example:{port}" in line]
    assert '"request refused"' in line and '"client": "127.0.0.1"' in line


@pytest.mark.parametrize(
    "path", ["/", "/streams", "/healthz", "/metrics", "/export/gone", "/favicon.png", "/_stcore/health"]
)
def test_every_answer_says_that_code_comes_from_here_alone(server: Served, path: str) -> None:
    head, port = sent(server, *get(path, US)).head, server.url.rpartition(":")[2]
    (policy,) = re.findall(r"^content-security-policy: (.*)$", head, re.MULTILINE)
    sources = dict(part.split(" ", 1) for part in policy.strip().split("; "))
    assert sources["default-src"] == "'self'" and sources["frame-ancestors"] == sources["object-src"] == "'none'"
    assert sources["connect-src"] == f"'self' ws://localhost:{port} wss://localhost:{port}"
    assert "unsafe-inline" not in sources["script-src"] and "'unsafe-eval'" not in sources["script-src"]
    assert head.count("x-content-type-options: nosniff") == 1 and head.count("referrer-policy: same-origin") == 1
