"""A server of the pages over a home that a test made: no stream host, no Spark, no demo; and small servers of this
process."""

import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from tests.worlds.processes import end, free_port, wait_until

PAGES = (sys.executable, "-m", "app.server.asgi")


@dataclass(frozen=True, slots=True)
class Served:
    """Where it answers, with which variables it runs, and its process."""

    url: str
    env: dict[str, str]
    process: "subprocess.Popen[bytes]"


@contextmanager
def served(home: Path, command: Sequence[str] = PAGES, **settings: str) -> Iterator[Served]:
    """A server on a port of its own, answering; `settings` are further variables, in which `{port}` is that port. Gone
    afterwards."""
    port = free_port()
    settings = {name: value.replace("{port}", str(port)) for name, value in settings.items()}
    own = {
        "WEIR_HOME": str(home),
        "WEIR_PORT": str(port),
        "WEIR_CONFIG": os.devnull,
        "STREAMLIT_SERVER_PORT": str(port),
    }
    env, output = {**os.environ, **own, **settings}, home / "ui.txt"
    with output.open("wb") as out:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: process.poll() is not None or answers(url), output.read_text, pause_s=0.1)
        assert process.poll() is None, output.read_text()
        yield Served(url, env, process)
        process.terminate()
        process.wait(timeout=120)
    finally:
        end(process)


def answers(url: str) -> bool:
    """Whether Streamlit serves there, Weir's or a plain one."""
    try:
        return got(f"{url}/_stcore/health") == "ok"
    except OSError:
        return False


def got(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as reply:
        return str(reply.read().decode())


Answer = tuple[int, dict[str, str], bytes]


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler], Answer]) -> Iterator[int]:
    """The port of a server that answers each GET with a status, headers and a body."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answer(self)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


@contextmanager
def serving(app: ASGIApp, **config: Any) -> Iterator[int]:
    """The port where uvicorn serves an application in a thread of this process."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1, **config))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started, "the server answers")
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(60)
    assert not thread.is_alive()
