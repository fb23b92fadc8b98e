"""A server of the pages over a home that a test made: no stream host, no Spark, no demo."""

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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
    """A server on a port of its own, answering; `settings` are further variables. Gone afterwards."""
    port = free_port()
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
        with urllib.request.urlopen(f"{url}/_stcore/health", timeout=60) as reply:
            return bool(reply.read() == b"ok")
    except OSError:
        return False
