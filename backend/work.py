"""Work in a thread of its own, for somebody who may stop waiting.

Rule: what the work raises is raised where its result is asked for, a fault of Weir's own as an error like any other;
`stop` tells the work to end and never waits for it.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from backend.errors import LakehouseError, QueryError, fault

TIME_LIMIT_S = 120.0  # what a person typed, over one version
_POLL_S = 0.1
_LESS = "ask for less: fewer columns, or fewer versions"

Result = TypeVar("Result")
_log = logging.getLogger(__name__)  # structlog would cost each command 0.2 s


def elapsed() -> float:
    """Seconds that no change of the machine's clock alters; on Linux those while it slept, too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


class Stopped(Exception):
    """The work was told to end: nobody waits for it any more."""


class Work(Generic[Result]):
    """Starts at once. `stop` has to make `run` end soon; leaving a `with` block calls it."""

    def __init__(self, run: Callable[[], Result], stop: Callable[[], None]) -> None:
        self._do, self._tell_to_stop = run, stop
        self._results: list[Result] = []
        self._failure: BaseException | None = None
        self._started = time.monotonic()
        self._over = threading.Event()  # a join that Ctrl-C interrupts takes the thread for ended
        threading.Thread(target=self._run, daemon=True).start()

    def __enter__(self) -> "Work[Result]":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def ended(self, seconds: float = 0.0) -> bool:
        """Whether it ended within so many seconds."""
        return self._over.wait(seconds)

    def stop(self) -> None:
        if not self._over.is_set():
            self._tell_to_stop()

    def result(self) -> Result:
        """Of work that ended."""
        if isinstance(self._failure, Exception) and not isinstance(self._failure, LakehouseError | Stopped):
            raise fault(self._failure) from self._failure
        if self._failure is not None:
            raise self._failure
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._do())
        except BaseException as exc:  # noqa: BLE001 - a thread: whatever it is, the one who waits gets it
            self._failure = exc
            if not isinstance(exc, LakehouseError | Stopped):
                _log.error("a computation failed", exc_info=exc)
        finally:
            self._over.set()


def still_runs(work: Work[Any], what: str, *, hint: str = _LESS, limit_s: float = TIME_LIMIT_S) -> bool:
    """Wait a moment for the work; raises `QueryError` about `what` once it took longer than the limit."""
    if work.ended(_POLL_S):
        return False
    if work.elapsed_s > limit_s:
        raise QueryError(f"{what} took longer than {limit_s:.0f} s and was stopped", hint=hint)
    return True


class Connection(Protocol):
    """What a database's connection lets another thread do."""

    def interrupt(self) -> None: ...
    def query_progress(self) -> float: ...  # percent of the statement that runs, < 0 where that is not known


class Interruptible:
    """A computation on a database connection that `stop` ends from another thread."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._lock = threading.Lock()  # of the connection: it must not be closed while it is told to stop
        self._connection: Connection | None = None

    def stop(self) -> None:
        self._stopped.set()
        self.interrupt()

    def interrupt(self) -> None:
        """End what runs on the connection now, no more."""
        with self._lock:
            if self._connection is not None:
                self._connection.interrupt()

    def take(self, connection: Connection | None) -> None:
        """The connection in use from now on; None before it is closed."""
        with self._lock:
            self._connection = connection

    @contextmanager
    def sheltered(self) -> Iterator[None]:
        """What runs on the connection meanwhile is let run to its end, which is near."""
        with self._lock:
            connection, self._connection = self._connection, None
        try:
            yield
        finally:
            self.take(connection)

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()
