"""nginx from Debian's package, with the configuration of docs/operations.md, before a Weir and a stand-in for
oauth2-proxy: that answers whether a cookie is a login, and whose."""

import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.worlds.processes import end, free_port, listens, wait_until
from tests.worlds.programs import require

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"
NAME = "weir.example.com"


def documented(language: str, mark: str) -> str:
    """The block of docs/operations.md in this language in which the mark stands."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", OPERATIONS.read_text(), re.DOTALL | re.MULTILINE)
    (block,) = [block for block in blocks if mark in block]
    return str(block)


def documented_settings() -> dict[str, str]:
    """What Weir is told there."""
    lines = documented("sh", "WEIR_UI__USER_HEADER").splitlines()
    return {name: value.strip("'") for name, _, value in (line.partition("=") for line in lines)}


class _Login(BaseHTTPRequestHandler):
    """`login=ann@example.com` in a cookie is a login; nobody's request gets the page that asks for one."""

    def do_GET(self) -> None:
        login = SimpleCookie(self.headers["Cookie"]).get("login")
        is_asked_by_nginx = self.path == "/oauth2/auth"
        self.send_response(202 if login else 401 if is_asked_by_nginx else 200)
        if login and is_asked_by_nginx:
            self.send_header("X-Auth-Request-Email", login.value)
        self.end_headers()
        if not is_asked_by_nginx:
            self.wfile.write(b"Sign in")

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def nginx_before(upstream: str, folder: Path) -> Iterator[str]:
    """Its URL (https, by name, with a certificate of its own) while it runs before the server at `upstream`."""
    require("nginx")
    login, port = ThreadingHTTPServer(("127.0.0.1", 0), _Login), free_port()
    threading.Thread(target=login.serve_forever, daemon=True).start()
    place = {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "/etc/ssl/weir": str(folder / "weir"),
        "http://127.0.0.1:4180": f"http://127.0.0.1:{login.server_port}",
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
        login.shutdown()
        login.server_close()


def _certificate(folder: Path) -> None:
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={NAME}"]
    files = ["-keyout", str(folder / "weir.key"), "-out", str(folder / "weir.crt")]
    subprocess.run([*argv, *files], check=True, capture_output=True, timeout=60)
