"""Weir behind nginx with the configuration of docs/operations.md: who is logged in comes in under their name, and
nothing that a browser claims about itself does."""

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.worlds.lake import builders
from tests.worlds.pages.nginx import NAME, documented_settings, nginx_before
from tests.worlds.pages.serving import served

ANN = {"Cookie": "login=ann@example.com"}
FORGED = {
    "X-Auth-Request-Email": "root@example.com",
    "X-Forwarded-For": "127.0.0.1",
    "X-Forwarded-Host": "localhost:8501",
    "X-Forwarded-Proto": "http",
}


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("proxied")
    builders.write(home / "lake" / "orders", {"id": [1]})
    with served(home, **documented_settings()) as weir, nginx_before(weir.url, home) as url:
        yield url


def ask(url: str, path: str, headers: dict[str, str], *, method: str = "GET") -> tuple[int, str]:
    port = int(url.rpartition(":")[2])
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=_any_certificate())
    host = {"Host": url.removeprefix("https://")}
    try:
        connection.request(method, path, headers=host | headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def handshake(url: str, origin: str, headers: dict[str, str]) -> int:
    """The status that a page of this origin gets for its WebSocket."""
    port = int(url.rpartition(":")[2])
    address = f"{url.replace('https', 'wss')}/_stcore/stream"
    try:
        with connect(
            address,
            sock=socket.create_connection(("127.0.0.1", port), timeout=60),
            ssl=_any_certificate(),
            origin=origin,  # type: ignore[arg-type]
            subprotocols=["streamlit"],  # type: ignore[list-item]
            additional_headers=headers,
        ) as page:
            return int(page.response.status_code) if page.response else 0
    except InvalidStatus as exc:
        return int(exc.response.status_code)


def _any_certificate() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def test_without_a_login_there_is_the_page_that_asks_for_one(proxied: str) -> None:
    for path in ("/", "/healthz", "/metrics", "/export/a", "/_stcore/health"):
        assert ask(proxied, path, FORGED) == (403, "Sign in")
    assert handshake(proxied, proxied, FORGED) == 403


def test_who_is_logged_in_reaches_pages_and_their_websockets(proxied: str) -> None:
    status, text = ask(proxied, "/healthz", ANN | FORGED)
    assert status == 200 and "status" in json.loads(text)
    assert "<title>" in ask(proxied, "/streams", ANN)[1]
    assert handshake(proxied, proxied, ANN | FORGED) == 101


@pytest.mark.parametrize("origin", ["https://evil.example", f"https://{NAME}", f"https://{NAME}:1", "null"])
def test_a_foreign_page_in_the_browser_of_somebody_logged_in_gets_nothing(proxied: str, origin: str) -> None:
    assert handshake(proxied, origin, ANN) == 403
    assert handshake(proxied, proxied.replace("https", "http"), ANN) == 403
    status, text = ask(proxied, "/healthz", ANN | {"Origin": origin}, method="POST")
    assert status == 403 and text.startswith("Refused: it comes from a page of ")


def test_another_name_for_the_proxy_is_none_of_weirs(proxied: str) -> None:
    status, text = ask(proxied, "/healthz", ANN | {"Host": "rebound.example"})
    assert status == 403 and text.startswith("Refused: Weir is not known as 'rebound.example'")


class _Mirror(BaseHTTPRequestHandler):
    """Answers with the headers it got."""

    def do_GET(self) -> None:
        body = json.dumps([[name.lower(), value] for name, value in self.headers.items()]).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_nginx_replaces_what_a_browser_claims(tmp_path: Path) -> None:
    mirror = ThreadingHTTPServer(("127.0.0.1", 0), _Mirror)
    threading.Thread(target=mirror.serve_forever, daemon=True).start()
    try:
        with nginx_before(f"http://127.0.0.1:{mirror.server_port}", tmp_path) as url:
            _, text = ask(url, "/", ANN | FORGED)
    finally:
        mirror.shutdown()
        mirror.server_close()
    got = [tuple(header) for header in json.loads(text) if header[0].startswith("x-") or header[0] == "host"]
    assert sorted(got) == [
        ("host", url.removeprefix("https://")),
        ("x-auth-request-email", "ann@example.com"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "https"),
    ]
