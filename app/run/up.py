"""`weir up`: UI, stream host and (for the demo) generator on this machine, as one thing to start and to stop.

Rule: everything that can refuse (a second `up`, a busy port) refuses before anything is started, in one sentence.
"""

import contextlib
import errno
import fcntl
import ipaddress
import json
import os
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from app.run.supervise import GRACE_S, Guard, Service, Supervisor, is_there, say
from backend.errors import LakehouseError, SettingsError
from backend.private_files import open_private, private_folder
from backend.settings import DEMO, Settings, load_settings

PROBE_TIMEOUT_S = 2.0
SLOW_START_S = 30.0


class AlreadyUpError(LakehouseError):
    """Another `weir up` runs on this WEIR_HOME."""

    exit_code = 4


def main(
    settings: Settings | None = None, *, services: Sequence[Service] | None = None, grace_s: float | None = None
) -> int:
    """Run until Ctrl-C or SIGTERM. Raises `LakehouseError` when it must not or cannot start."""
    settings = settings or load_settings()
    services = services if services is not None else demo_services(settings)
    grace_s = settings.host.stop_timeout_s + GRACE_S if grace_s is None else grace_s
    logs = settings.home / "logs"
    try:
        private_folder(logs)
    except OSError as exc:
        raise SettingsError(f"cannot create {logs}: {exc.strerror}", hint="set WEIR_HOME to a folder of yours") from exc
    with only_one(settings.home, grace_s=grace_s) as lock_fd:
        check_port(settings.ui.address, settings.port)
        guard = Guard(grace_s=grace_s, keep_fd=lock_fd)
        env = {"WEIR_HOME": str(settings.home), "WEIR_PORT": str(settings.port), "PYTHONUNBUFFERED": "1"}
        try:
            supervisor = Supervisor(services, logs=logs, env=env, guard=guard, grace_s=grace_s)
            supervisor.run(each_tick=Announcement(settings, logs).tick)
        finally:
            guard.close()
    return 0


def demo_services(settings: Settings) -> tuple[Service, ...]:
    """What runs: always UI and host, the generator when the demo's streams are there to read it.

    With `demo.kafka`, also a broker and what brings the generator's lines into its topics.
    """
    programs: dict[str, tuple[str, ...]] = {"ui": ("app.server.asgi",), "host": ("pipelines.host",)}
    if settings.demo.enabled and DEMO in settings.host.pipelines:
        programs["generator"] = (f"{DEMO}.generator",)
        if settings.demo.kafka:
            folder, port = settings.home / "kafka", settings.demo.kafka.rpartition(":")[2]
            kafka = f"{DEMO}.kafka"
            programs = {"broker": (kafka, "broker", str(folder), port), "topics": (kafka, "topics"), **programs}
    return tuple(Service(name, (sys.executable, "-m", *program)) for name, program in programs.items())


@contextlib.contextmanager
def only_one(home: Path, *, grace_s: float) -> Iterator[int]:
    """Hold the lock of this WEIR_HOME; raises `AlreadyUpError` naming the process that has it."""
    with open_private(home / "up.lock", "a+") as lock:
        _acquire(lock, home, grace_s)
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield lock.fileno()


def _acquire(lock: IO[str], home: Path, grace_s: float) -> None:
    """Take the lock. A holder that is dead was killed: its guard is still ending the children, so wait for that."""
    deadline, told = time.monotonic() + grace_s + 5, False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            lock.seek(0)
            pid = lock.read().strip() or "unknown"
            if (pid.isdecimal() and is_there(int(pid))) or time.monotonic() > deadline:
                raise AlreadyUpError(
                    f"Weir already runs on {home} (process {pid})",
                    hint=f"open its page, stop it with `kill {pid}`, or set WEIR_HOME and WEIR_PORT for a second one",
                ) from exc
        else:
            return
        if not told:
            say(f"an earlier Weir (process {pid}) was killed; waiting for its children to end")
            told = True
        time.sleep(0.2)


def check_port(address: str, port: int) -> None:
    """Raises `SettingsError` when nothing can listen there now."""
    try:
        family, kind, proto, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as exc:
        if exc.errno == errno.EADDRINUSE:
            message = f"port {port} on {address} is taken by another program"
            raise SettingsError(message, hint=f"choose another: WEIR_PORT={port + 1} make run") from exc
        hint = "WEIR_UI__ADDRESS must be an address of this machine and WEIR_PORT above 1023"
        raise SettingsError(f"cannot listen on {address} port {port}: {exc.strerror}", hint=hint) from exc


def page_url(settings: Settings) -> str:
    """Where a browser on this machine reaches the UI."""
    address = settings.ui.address
    with contextlib.suppress(ValueError):
        parsed = ipaddress.ip_address(address)
        if parsed.is_unspecified:
            address = "127.0.0.1"
        elif parsed.version == 6:
            address = f"[{address}]"
    return f"http://{address}:{settings.port}"


def answers(url: str) -> bool:
    """Whether Weir's page is served. The body decides: Streamlit answers 200 on every path."""
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=PROBE_TIMEOUT_S) as reply:
            return "status" in json.load(reply)
    except (OSError, ValueError):
        return False


class Announcement:
    """Says once where the page is, and says once that it takes long."""

    def __init__(self, settings: Settings, logs: Path) -> None:
        self._url, self._logs = page_url(settings), logs
        self._started_at, self._told_url, self._told_slow = time.monotonic(), False, False

    def tick(self) -> None:
        if self._told_url:
            return
        if answers(self._url):
            self._told_url = True
            say(f"ready at {self._url} (Ctrl-C stops everything; logs in {self._logs})")
        elif not self._told_slow and time.monotonic() - self._started_at > SLOW_START_S:
            self._told_slow = True
            say(f"the page does not answer yet; see {self._logs / 'ui.log'}")
