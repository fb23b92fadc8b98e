"""The pages alone, over a lake that a test made: no stream host, no Spark, no demo."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.browser.conftest import Weir
from tests.processes import free_port, wait_until


@contextmanager
def pages_over(home: Path, **settings: str) -> Iterator[Weir]:
    """A server of its own over the tables below `home/lake`; `settings` are further variables. Gone afterwards."""
    port, output = free_port(), home / "ui.txt"
    env = {
        **os.environ, "WEIR_HOME": str(home), "WEIR_PORT": str(port), "WEIR_CONFIG": os.devnull,
        "WEIR_LAKE__ROOTS": json.dumps([str(home / "lake")]), **settings,
    }  # fmt: skip
    (home / "lake").mkdir(exist_ok=True)
    with output.open("wb") as out:
        argv = [sys.executable, "-m", "app.server.asgi"]
        process = subprocess.Popen(argv, env=env, stdout=out, stderr=subprocess.STDOUT)
    weir = Weir(f"http://127.0.0.1:{port}", home, env, process)
    try:
        wait_until(lambda: _answers(weir.url), output.read_text, limit_s=60, pause_s=0.2)
        yield weir
    finally:
        process.terminate()
        process.wait(timeout=60)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=5) as reply:
            return b"status" in reply.read()
    except OSError:
        return False
