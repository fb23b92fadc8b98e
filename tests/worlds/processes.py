"""Processes of tests: free ports, waiting with a limit, and every process that belongs to one WEIR_HOME.

Rule: a test that has to wait waits here for what it can see, never for a time.
"""

import os
import random
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Event, Thread

# Below what Linux hands out by itself (32768 on), so that no connection takes one between here and its use.
PORTS = range(20_000, 32_000)
_claims: list[socket.socket] = []

# How long a test waits for what must come. Only what is broken takes that long, so a busy machine changes no verdict.
PATIENCE_S = 600.0


def free_port() -> int:
    """A port where nobody listens; no other test process is told the same one while this one lives."""
    first = os.getpid() * 101
    for number in range(len(PORTS)):
        port, claim = PORTS[(first + number) % len(PORTS)], socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0weir-tests-port-{port}")  # an abstract name: gone with this process
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
        else:
            _claims.append(claim)
            return port
    raise AssertionError(f"no free port between {PORTS.start} and {PORTS.stop}")


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(
    what: Callable[[], object], why: str | Callable[[], str], *, limit_s: float = PATIENCE_S, pause_s: float = 0.02
) -> float:
    """Returns when `what()` is true, and after how many seconds; fails saying what was waited for."""
    began = time.monotonic()
    while not what():
        if time.monotonic() - began > limit_s:
            raise AssertionError(f"waited {limit_s:.0f} s: {why if isinstance(why, str) else why()}")
        time.sleep(pause_s)
    return time.monotonic() - began


def let_pass(dice: random.Random, least_s: float, most_s: float) -> None:
    """A fault comes at a drawn moment. No verdict may hang on what happens meanwhile."""
    time.sleep(dice.uniform(least_s, most_s))


def kill_hard(process: "subprocess.Popen[bytes] | None") -> None:
    """kill -9; asserts that it lived until then."""
    assert process is not None
    assert process.poll() is None, "it was dead before"
    process.kill()
    assert process.wait(60) == -9


def end(process: "subprocess.Popen[bytes] | None") -> None:
    """kill -9 of what may have ended by itself."""
    if process is not None and process.poll() is None:
        process.kill()
        process.wait(60)


def query_processes(parent: int) -> list[int]:
    """Those that answer queries and that this process started."""
    running = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            started_by = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if started_by == parent and b"backend.query.worker" in (folder / "cmdline").read_bytes():
                running.append(int(folder.name))
    return running


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


@contextmanager
def each_second(step: Callable[[int], None]) -> Iterator[None]:
    """What goes on meanwhile, in a thread: a step each second, which is told its number."""
    done = Event()

    def work() -> None:
        for number in count(1):
            if done.wait(1):
                return
            step(number)

    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
