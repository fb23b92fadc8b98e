"""Runs a handful of programs as children, restarts the ones that die, and ends them all when asked.

Rule: no child outlives the supervisor, however that ends. After a SIGKILL a guard does it: this module as a program,
`python -m app.run.supervise GRACE_S`, reads `+PGID` and `-PGID` lines until its input ends, then ends every group still
known. So only the standard library is imported: the guard starts in milliseconds and has nothing to fail on.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from backend.private_files import open_private

GRACE_S = 10.0  # beside what the host's batches get; it takes 5 s of these to close
POLL_S = 0.1
LEFTOVERS_S = 2.0  # what a leader that ended leaves behind (a JVM closing down) gets so long
STEADY_S = 60.0  # a child that lived this long starts again at the shortest pause
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Service:
    """One program to keep running."""

    name: str
    argv: tuple[str, ...]


@dataclass(slots=True)
class Child:
    """A service's current process (None between two lives) and when the next one is due."""

    service: Service
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    deaths: int = 0
    due_at: float = 0.0


def restart_pause_s(deaths: int) -> float:
    """Pause before life number `deaths` + 1: doubles with each death in a row."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** max(0, deaths - 1))


def ending_text(returncode: int) -> str:
    """How a process ended, in words: "exit code 1", "killed by SIGKILL"."""
    if returncode >= 0:
        return f"exit code {returncode}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-returncode).name}"
    return f"killed by signal {-returncode}"


def say(line: str) -> None:
    """One line for the person at the terminal."""
    with contextlib.suppress(OSError):  # the terminal may be gone; stopping the children matters more than the words
        sys.stdout.write(f"weir: {line}\n")
        sys.stdout.flush()


class Guard:
    """The supervisor's end of the pipe to the guard. `keep_fd` stays open until the guard has ended the children."""

    def __init__(self, *, grace_s: float, keep_fd: int | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "app.run.supervise", str(grace_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=() if keep_fd is None else (keep_fd,),
        )
        assert self._process.stdin is not None
        self._pipe: IO[bytes] = self._process.stdin

    def add(self, pgid: int) -> None:
        self._tell(f"+{pgid}\n")

    def forget(self, pgid: int) -> None:
        self._tell(f"-{pgid}\n")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._pipe.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # a guard that someone killed must not take the supervisor along
            self._pipe.write(line.encode())
            self._pipe.flush()


class Supervisor:
    """Keeps `services` running until asked to stop; each writes to `<logs>/<name>.log`."""

    def __init__(
        self, services: Sequence[Service], *, logs: Path, env: Mapping[str, str], guard: Guard, grace_s: float
    ) -> None:
        self._children = [Child(service) for service in services]
        self._logs, self._env, self._guard, self._grace_s = logs, {**os.environ, **env}, guard, grace_s
        self._asked_to_stop = 0

    def run(self, *, each_tick: Callable[[], None] = lambda: None) -> None:
        """Start everything, watch, and return when SIGINT, SIGTERM or SIGHUP came and nothing is left."""
        with self._signals():
            try:
                while not self._asked_to_stop:
                    self._tick(time.monotonic())
                    each_tick()
                    time.sleep(POLL_S)
            finally:
                self._stop_all()

    def _tick(self, now: float) -> None:
        for child in self._children:
            if child.process is None and now >= child.due_at:
                self._start(child, now)
            elif child.process is not None and child.process.poll() is not None:
                self._bury(child, now)

    def _start(self, child: Child, now: float) -> None:
        with open_private(self._log(child), "ab") as log:  # the child bounds its size, see backend.logs
            child.process = subprocess.Popen(
                child.service.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                start_new_session=True,
            )
        self._guard.add(child.process.pid)
        child.started_at = now

    def _bury(self, child: Child, now: float) -> None:
        """A child died: end what it left behind (a JVM still writing), then plan its next life."""
        assert child.process is not None
        pgid, returncode = child.process.pid, child.process.returncode
        end_groups((pgid,), grace_s=0)
        self._guard.forget(pgid)
        child.deaths = 1 if now - child.started_at >= STEADY_S else child.deaths + 1
        pause_s = restart_pause_s(child.deaths)
        child.process, child.due_at = None, now + pause_s
        ending = f"{child.service.name} ended ({ending_text(returncode)})"
        say(f"{ending}, starting it again in {pause_s:.0f} s; see {self._log(child)}")

    def _stop_all(self) -> None:
        alive = [child.process for child in self._children if child.process is not None]
        say("stopping; once more Ctrl-C ends it at once")
        asked_before = self._asked_to_stop

        def reap_and_hurry() -> bool:
            for process in alive:
                process.poll()
            return self._asked_to_stop > asked_before

        end_groups([process.pid for process in alive], grace_s=self._grace_s, cut_short=reap_and_hurry)
        for process in alive:
            self._guard.forget(process.pid)
        say("stopped")

    def _log(self, child: Child) -> Path:
        return self._logs / f"{child.service.name}.log"

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        # SIGINT also where it is ignored: a shell ignores it for all that it starts in the background. An ignored
        # SIGHUP is somebody's wish (nohup) to outlive the terminal.
        wanted = [s for s in STOP_SIGNALS if s != signal.SIGHUP or signal.getsignal(s) is not signal.SIG_IGN]
        before = {signum: signal.signal(signum, self._on_signal) for signum in wanted}
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)

    def _on_signal(self, *_: object) -> None:
        self._asked_to_stop += 1


# process groups, and the guard of them --------------------------------------------------------------------------------


def is_there(number: int, send: Callable[[int, int], None] = os.kill) -> bool:
    """Whether the process, or with `os.killpg` any of the group, is there, unreaped ones included."""
    try:
        send(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it is there and not ours
    return True


def end_groups(pgids: Collection[int], *, grace_s: float, cut_short: Callable[[], bool] = lambda: False) -> None:
    """End whole groups: SIGTERM to each leader, SIGKILL to what is left when all leaders ended or `grace_s` is over.

    Only leaders are asked: the stream host's JVM sits in its group and, asked too, would vanish under the running
    micro-batch. `cut_short` is called while waiting (reap there) and ends the waiting when true.
    """
    for pgid in pgids:
        with contextlib.suppress(ProcessLookupError):  # already gone, which is what was wanted
            os.kill(pgid, signal.SIGTERM)
    _wait_while(os.kill, pgids, grace_s, cut_short)
    if grace_s and not cut_short():
        _wait_while(os.killpg, pgids, LEFTOVERS_S, cut_short)
    for pgid in pgids:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pgid, signal.SIGKILL)
    _wait_while(os.killpg, pgids, LEFTOVERS_S, lambda: cut_short() and False)


def _wait_while(
    send: Callable[[int, int], None], pgids: Collection[int], limit_s: float, cut_short: Callable[[], bool]
) -> None:
    deadline = time.monotonic() + limit_s
    while not cut_short() and any(is_there(pgid, send) for pgid in pgids) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def guard() -> None:
    # A terminal's Ctrl-C or a service manager's stop is for the supervisor: the guard goes when its input ends.
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    groups = set[int]()
    for line in sys.stdin:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    end_groups(groups, grace_s=float(sys.argv[1]))


if __name__ == "__main__":
    guard()
