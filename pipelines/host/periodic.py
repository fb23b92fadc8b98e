"""What a host does again and again beside its streams: tasks of one table, each in a thread of the same loop.

A slow lake, broker or receiver must hold up neither the streams nor another task: so each has its thread. Of several
hosts that share a store one leads a task that is done once for all of them.

Rule: a round that fails is logged, once for each reason in a row, and the next one comes; a stop waits no longer than
it may. What a round does is not known here.
"""

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import structlog

from backend.errors import LakehouseError, StoreError
from backend.store.store import ControlStore
from backend.stream_model.stream import Lease
from backend.work import Stopped

MOST_BUSY = 0.1  # of the time
LEASE_S = 60.0
STOP_LIMIT_S = 1.0  # of all rounds together: they only ask
HUNG_LOOKS = 4  # at the loop, without a round of it in between
_LEAST_LOOK_S = 15.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Task:
    """A periodic task: `run` every `every_s`, `failed` as the event of the log for a round that failed.

    `run` is given its `Rounds`, and may end them by raising `Stopped`. `by_leader`: by one host of those that share a
    store. `longest_pause_s`: rounds that take long are busy for a tenth of the time, while a pause gets no longer than
    that. `cancel`: called when the rounds are to stop.
    """

    name: str
    every_s: float
    run: Callable[["Rounds"], object]
    failed: str
    by_leader: bool = False
    longest_pause_s: float = 0.0
    cancel: Callable[[], object] = lambda: None


class LeaderLease:
    """The lead among hosts that share a store: kept from round to round, and given up when they end, so that the next
    host need not wait until it has run out."""

    def __init__(self, store: ControlStore, resource: str, host_id: str) -> None:
        self._store, self._resource, self._host_id = store, resource, host_id
        self._lease: Lease | None = None

    def take(self) -> bool:
        """Whether this host leads for `LEASE_S` from now; raises `StoreError`."""
        self._lease = self._store.acquire(self._resource, self._host_id, ttl_s=LEASE_S)
        return self._lease is not None

    def give_up(self) -> None:
        if self._lease is not None:
            with suppress(StoreError):  # it runs out by itself
                self._store.release(self._lease)
            self._lease = None


class Rounds:
    """One task at work; `lease` where a leader does it."""

    def __init__(self, task: Task, lease: LeaderLease | None = None) -> None:
        self._task, self._lease, self._stop = task, lease if task.by_leader else None, threading.Event()
        self._thread = threading.Thread(target=self._repeat, name=task.name, daemon=True)

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    def pause(self, seconds: float) -> bool:
        """Waits amid a round; whether it was told to stop."""
        return self._stop.wait(seconds)

    def leads(self) -> bool:
        """Whether the work is this host's, amid a round too, and for `LEASE_S` from now; raises `StoreError`."""
        return self._lease is None or self._lease.take()

    def once(self) -> None:
        """A round, where the work is this host's."""
        if self.leads():
            self._task.run(self)

    def step_down(self) -> None:
        """Another host may lead from now on."""
        if self._lease is not None:
            self._lease.give_up()

    def start(self) -> None:
        self._thread.start()

    def stop(self, limit_s: float) -> None:
        self._stop.set()
        self._task.cancel()
        if self._thread.is_alive():
            self._thread.join(limit_s)

    def _repeat(self) -> None:
        reason = ""
        while not self.is_stopping:
            began = time.monotonic()
            try:
                self.once()
                reason = ""
            except Stopped:
                break
            except LakehouseError as exc:
                if exc.message != reason:  # a store that is away fails every round
                    log.warning(self._task.failed, error=exc.message)
                reason = exc.message
            except Exception:  # the thread must live: the next round may be fine
                log.exception(self._task.failed)
            took_s = time.monotonic() - began
            self.pause(max(self._task.every_s, min(took_s * (1 / MOST_BUSY - 1), self._task.longest_pause_s)))
        self.step_down()


@contextmanager
def at_work(table: Iterable[Task], store: ControlStore, host_id: str) -> Iterator[None]:
    """All tasks of the table, from now until the end, when they are asked to stop all at once."""
    all_rounds = [Rounds(task, LeaderLease(store, task.name, host_id)) for task in table]
    for rounds in all_rounds:
        rounds.start()
    try:
        yield
    finally:
        deadline = time.monotonic() + STOP_LIMIT_S
        for limit_s in (0.0, STOP_LIMIT_S):
            for rounds in all_rounds:
                rounds.stop(min(limit_s, max(0.0, deadline - time.monotonic())))


def end_process() -> None:
    """With the stack of each thread on standard error. Spark's JVM ends with it."""
    faulthandler.dump_traceback(sys.stderr)
    os._exit(1)


class LoopWatch:
    """A host whose loop hangs ends itself, and is started anew by whatever runs it. `ended`: how many rounds of the
    loop have come to an end.

    The clock is no witness: a process that was frozen finds that much time has passed, and its loop is sound. What
    counts is how often this thread came round while the loop did not.
    """

    def __init__(self, ended: Callable[[], int], *, ttl_s: float, end: Callable[[], None] = end_process) -> None:
        self._ended, self._end, self.every_s = ended, end, max(_LEAST_LOOK_S, ttl_s)
        self._seen, self._missed = -1, 0

    def look(self) -> None:
        ended = self._ended()
        self._missed = self._missed + 1 if ended == self._seen else 0
        self._seen = ended
        if self._missed >= HUNG_LOOKS:
            log.critical("loop_hangs", for_s=round(HUNG_LOOKS * self.every_s), effect="the host ends")
            self._end()
