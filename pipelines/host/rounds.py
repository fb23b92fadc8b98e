"""What a host does again and again beside its streams, in a thread of its own.

Rule: a round that fails is logged, once for each reason in a row, and the next one comes; a stop waits no longer than
it may.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import structlog

from backend.errors import LakehouseError, StoreError
from backend.store.store import ControlStore
from backend.stream_model.stream import Lease
from backend.work import Stopped

MOST_BUSY = 0.1  # of the time
LEASE_S = 60.0

log = structlog.get_logger()


class Turn:
    """Of several hosts that share a store one makes these rounds: by a lease that it keeps from round to round, and
    gives up when they end, so that the next host need not wait until it has run out."""

    def __init__(self, store: ControlStore, resource: str, host_id: str) -> None:
        self._store, self._resource, self._host_id = store, resource, host_id
        self._lease: Lease | None = None

    def take(self) -> bool:
        """Whether this round is ours; raises `StoreError`."""
        self._lease = self._store.acquire(self._resource, self._host_id, ttl_s=LEASE_S)
        return self._lease is not None

    def keep(self) -> bool:
        """Whether it still is, amid the round, and for `LEASE_S` from now; raises `StoreError`."""
        if self._lease is not None:
            self._lease = self._store.renew(self._lease, ttl_s=LEASE_S)
        return self._lease is not None

    def give_up(self) -> None:
        if self._lease is not None:
            self._store.release(self._lease)
            self._lease = None


class Rounds:
    """`failed` is the event of the log for a round that failed. A round may end them all by raising `Stopped`. `turn`:
    where one host at a time makes them.

    `longest_pause_s`: rounds that take long are busy for a tenth of the time, while a pause gets no longer than that.
    """

    def __init__(
        self, name: str, once: Callable[[], None], *, every_s: float, failed: str, longest_pause_s: float = 0.0,
        turn: Turn | None = None,
    ) -> None:  # fmt: skip
        self._once, self._every_s, self._failed, self._longest_pause_s = once, every_s, failed, longest_pause_s
        self._turn, self._stop = turn, threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    def pause(self, seconds: float) -> bool:
        """Waits amid a round; whether it was told to stop."""
        return self._stop.wait(seconds)

    def start(self) -> None:
        self._thread.start()

    def stop(self, limit_s: float) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(limit_s)

    def _run(self) -> None:
        self._repeat()
        if self._turn is not None:
            with suppress(StoreError):  # it runs out by itself
                self._turn.give_up()

    def _repeat(self) -> None:
        reason = ""
        while not self.is_stopping:
            began = time.monotonic()
            try:
                self._once()
                reason = ""
            except Stopped:
                return
            except LakehouseError as exc:
                if exc.message != reason:  # a store that is away fails every round
                    log.warning(self._failed, error=exc.message)
                reason = exc.message
            except Exception:  # the thread must live: the next round may be fine
                log.exception(self._failed)
            took_s = time.monotonic() - began
            self._stop.wait(max(self._every_s, min(took_s * (1 / MOST_BUSY - 1), self._longest_pause_s)))
