"""nginx from Debian's package, with the configuration of docs/security.md, before a Weir and a stand-in for
oauth2-proxy: that answers whether a cookie is a login, and whose."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.worlds.pages.serving import Answer, answering
from tests.worlds.processes import end, free_port, listens, wait_until
from tests.worlds.programs import require

SECURITY = Path(__file__).parents[3] / "docs" / "security.md"
NAME = "weir.example.com"


def documented(language: str, mark: str) -> str:
    """The block of docs/security.md in this language in which the mark stands."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", SECURITY.read_text(), re.DOTALL | re.MULTILINE)
    (block,) = [block for block in blocks if mark in block]
    return str(block)


def documented_settings() -> dict[str, str]:
    """What Weir is told there."""
    lines = documented("sh", "WEIR_UI__USER_HEADER").splitlines()
    return {name: value.strip("'") for name, _, value in (line.partition("=") for line in lines)}


def _login(request: BaseHTTPRequestHandler) -> Answer:
    """`login=ann@example.com` in a cookie is a login; nobody's request gets the page that asks for one."""
    login = SimpleCookie(request.headers["Cookie"]).get("login")
    if request.path != "/oauth2/auth":
        return 200, {}, b"Sign in"
    groups = {"X-Auth-Request-Groups": "data-platform,oncall"}
    return (202, {"X-Auth-Request-Email": login.value} | groups, b"") if login else (401, {}, b"")


@contextmanager
def nginx_before(upstream: str, folder: Path) -> Iterator[str]:
    """Its URL (https, by name, with a certificate of its own) while it runs before the server at `upstream`."""
    require("nginx")
    with answering(_login) as login_port:
        yield from _running(upstream, folder, login_port)


def _running(upstream: str, folder: Path, login_port: int) -> Iterator[str]:
    port = free_port()
    place = {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "/etc/ssl/weir": str(folder / "weir"),
        "http://127.0.0.1:4180": f"http://127.0.0.1:{login_port}",
        "http://127.0.0.1:8501": upstream,
    }
    server = documented("nginx", "auth_request")
    for stands, runs in place.items():
        assert stands in server
        server = server.replace(stands, runs)
    temporary = " ".join(f"{kind}_temp_path {folder};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; events {{}} http {{ access_log off; {temporary}\n{server}}}\n"
    )
    _certificate(folder)
    argv = ["nginx", "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"]
    with (folder / "nginx.txt").open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: process.poll() is not None or listens(port), (folder / "nginx.txt").read_text)
        assert process.poll() is None, (folder / "nginx.txt").read_text()
        yield f"https://{NAME}:{port}"
        process.terminate()  # its workers go with it
        process.wait(timeout=60)
    finally:
        end(process)


def _certificate(folder: Path) -> None:
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={NAME}"]
    files = ["-keyout", str(folder / "weir.key"), "-out", str(folder / "weir.crt")]
    subprocess.run([*argv, *files], check=True, capture_output=True, timeout=60)
