"""Stops a query inside the JVM at the moment its lease runs out, unless the host says in time that it holds it still.

Rule: it needs nothing of this process, which may be frozen, blocked or dead. What it stops is the query; a batch that
does not heed an interrupt ends first.
"""

from collections.abc import Callable
from threading import Lock
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from backend.store.leases import elapsed

THREADS = 8  # a stop waits for what does not heed it


class DeadMansSwitch:
    """Thread-safe. A stream that nobody ever held is never stopped."""

    def __init__(self, jvm: Any, *, elapsed: Callable[[], float] = elapsed) -> None:
        self._elapsed = elapsed
        self._pool = jvm.java.util.concurrent.Executors.newScheduledThreadPool(THREADS)
        self._unit = jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        self._handler = jvm.java.beans.EventHandler
        self._runnable = jvm.java.lang.Class.forName("java.lang.Runnable")
        self._lock = Lock()
        self._until: dict[str, float] = {}
        self._stops: dict[str, Any] = {}
        self._armed: dict[str, Any] = {}
        self._tripped: set[str] = set()

    def hold(self, name: str, until: float) -> None:
        """The stream may run until then, by `elapsed`."""
        with self._lock:
            self._until[name] = until
            if name in self._stops:
                self._arm(name)

    def watch(self, name: str, query: StreamingQuery) -> None:
        """From now on the stream is this query."""
        with self._lock:
            self._stops[name] = self._handler.create(self._runnable, query._jsq, "stop")
            self._arm(name)
            self._tripped.discard(name)

    def allows(self, name: str) -> bool:
        """Whether the stream may run now."""
        return self._elapsed() < self._until.get(name, float("inf"))

    def has_tripped(self, name: str) -> bool:
        """Whether it stopped the query, or is about to."""
        with self._lock:
            return name in self._tripped or self._is_due(self._armed.get(name))

    def close(self) -> None:
        self._pool.shutdownNow()

    def _arm(self, name: str) -> None:
        before = self._armed.pop(name, None)
        if before is not None:
            before.cancel(False)
            if self._is_due(before):
                self._tripped.add(name)
        if name in self._until:
            delay_ms = max(0, round((self._until[name] - self._elapsed()) * 1_000))
            self._armed[name] = self._pool.schedule(self._stops[name], delay_ms, self._unit)

    def _is_due(self, armed: Any) -> bool:
        return armed is not None and armed.getDelay(self._unit) <= 0
