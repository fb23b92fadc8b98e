"""A running Weir before a browser: the pages alone over a home that a test made, or the whole demo with its streams."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from backend.access import Actor
from backend.settings import load_settings
from backend.store.store import ControlStore
from backend.stream_model.stream import StreamState
from tests.worlds.pages.serving import served
from tests.worlds.processes import free_port, processes_of, wait_until
from tests.worlds.store.values import newest

STREAMS = (
    "bronze_events",
    "silver_events",
    "gold_events_hourly",
    "bronze_orders",
    "silver_orders",
    "gold_orders_by_status",
)
RUNNING = StreamState.RUNNING


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@dataclass(frozen=True, slots=True)
class Weir:
    """Running pages, or a running `weir up`: its address, its home, and the command on the same home."""

    url: str
    home: Path
    env: dict[str, str]
    process: subprocess.Popen[bytes]

    def json(self, *words: str, differs: bool = False) -> Any:
        """What `weir … --json` prints. `differs`: it ends as `weir diff` does where something differs."""
        argv = [sys.executable, "-m", "app.cli", *words, "--json"]
        run = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=60, check=False)
        assert run.returncode == (10 if differs else 0), run.stderr
        return json.loads(run.stdout)

    def streams(self) -> dict[str, dict[str, Any]]:
        return {stream["name"]: stream for stream in self.json("streams")}

    @contextmanager
    def store(self) -> Iterator[ControlStore]:
        """For what is looked at again and again: a command is a process."""
        store = ControlStore.open(load_settings(home=self.home))
        try:
            yield store
        finally:
            store.close()

    def until_flowing(self, batch: int) -> None:
        """Wait until all six run and have done this micro-batch."""
        with self.store() as store:
            wait_until(
                lambda: (
                    states(store) == dict.fromkeys(STREAMS, RUNNING)
                    and all(batches(store).get(name, -1) >= batch for name in STREAMS)
                ),
                lambda: f"six streams run with batch_id ≥ {batch}: {states(store)}, {batches(store)}",
                pause_s=0.5,
            )

    def ask_all(self, action: Literal["start", "stop"], state: StreamState) -> None:
        """Start or stop those that are not so, and wait until all six are."""
        with self.store() as store:
            for name, now in states(store).items():
                if now is not state:
                    store.request(
                        name, action, reason="for the next tests", actor=Actor("tests"), now=datetime.now(UTC)
                    )
            wanted = dict.fromkeys(STREAMS, state)
            wait_until(lambda: states(store) == wanted, f"all streams are {state}", pause_s=0.5)

    def log(self, name: str) -> str:
        return (self.home / "logs" / f"{name}.log").read_text(errors="replace")


def states(store: ControlStore) -> dict[str, StreamState]:
    return {name: seen.state for name, seen in store.observed().items()}


def batches(store: ControlStore) -> dict[str, int]:
    """The last micro-batch that each stream has done."""
    return {name: progress.batch_id for name, progress in newest(store).items()}


@contextmanager
def pages_over(home: Path, **settings: str) -> Iterator[Weir]:
    """A server of its own over the tables below `home/lake`; `settings` are further variables. Gone afterwards."""
    (home / "lake").mkdir(exist_ok=True)
    with served(home, WEIR_LAKE__ROOTS=json.dumps([str(home / "lake")]), **settings) as server:
        yield Weir(server.url, home, server.env, server.process)


@contextmanager
def demo(home: Path, **settings: str) -> Iterator[Weir]:
    """The demo, running, after a micro-batch of each stream. Afterwards nothing of it may be left."""
    port = free_port()
    env = {**os.environ, "WEIR_HOME": str(home), "WEIR_PORT": str(port), **settings}
    home.parent.mkdir(parents=True, exist_ok=True)
    output = home.parent / "up.txt"
    with output.open("wb") as out:
        argv = [sys.executable, "-m", "app.cli", "up"]
        process = subprocess.Popen(argv, env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    weir = Weir(f"http://127.0.0.1:{port}", home, env, process)
    try:
        ready = f"ready at {weir.url}"
        wait_until(lambda: ready in output.read_text(), "the page is served", pause_s=0.5)
        weir.until_flowing(0)
        yield weir
    except AssertionError:
        sys.stderr.write(output.read_text() + "".join(weir.log(name)[-4_000:] for name in ("ui", "host", "spark")))
        raise
    finally:
        stop(weir)


def stop(weir: Weir) -> None:
    """Ctrl-C, as a person would; nothing is left."""
    weir.process.send_signal(signal.SIGINT)
    weir.process.wait(timeout=120)
    left = processes_of(weir.home)
    assert left == [], f"processes are left after Ctrl-C: {left}"
