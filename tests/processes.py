"""Processes of tests: free ports, waiting with a limit, and every process that belongs to one WEIR_HOME."""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(what: Callable[[], bool], why: str, *, limit_s: float = 20.0, pause_s: float = 0.05) -> None:
    """Returns when `what()` is true; fails saying what was waited for."""
    deadline = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < deadline, f"waited {limit_s:.0f} s: {why}"
        time.sleep(pause_s)


def processes_of(home: Path) -> list[int]:
    """Every live process (zombies are not) that was started with this WEIR_HOME."""
    mark, found = f"WEIR_HOME={home}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue  # it ended while we looked
    return found
