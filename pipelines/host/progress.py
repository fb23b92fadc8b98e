"""What batches report: written to the control store as Spark tells it, added up per minute and hour, deleted when old.

Rule: a callback of Spark neither blocks nor raises: it queues the batch, and a thread writes it. While the store is
silent the newest events are kept, and dropped ones are counted. Every host may add up and delete at any time: nothing
is added up twice.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, Protocol

import structlog
from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from backend.errors import LakehouseError, StoreError
from backend.settings import StoreSettings
from backend.store.batches import CHUNK
from backend.store.store import ControlStore
from backend.stream_model.backlog import Lag
from backend.stream_model.progress import parse_progress, spark_time
from backend.stream_model.rollup import HOUR_S, MINUTE_S
from backend.stream_model.stream import Progress
from backend.streams.backlog import BacklogReader
from pipelines.host.periodic import Rounds

CAPACITY = 5_000
FLUSH_S = 0.5
RETRY_S = 2.0
PAUSE_S = 0.1  # between two pieces that are added up: others write, too
SEEN_WITHIN = timedelta(hours=1)  # of older batches it would take many commits to say what waited after them

log = structlog.get_logger()


class ProgressStore(Protocol):
    def add_progress(self, items: list[Progress]) -> None: ...
    def touch(self, name: str, *, at: datetime) -> None: ...


class ProgressWriter:
    """A bounded queue and the thread that empties it into the store."""

    def __init__(
        self,
        store: ProgressStore,
        *,
        capacity: int = CAPACITY,
        retry_s: float = RETRY_S,
        seen: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        """`seen` is called with each batch once, whether the store takes it or not."""
        self._store, self._capacity, self._retry_s, self._seen = store, capacity, retry_s, seen
        self._queue: deque[Progress] = deque()
        self._signs: dict[str, datetime] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress-writer", daemon=True)
        self._silent = False
        self.dropped = 0

    def start(self) -> None:
        self._thread.start()

    def put(self, event_json: str) -> None:
        """Queues the batch of one progress event. A full queue drops its oldest."""
        try:
            batch = parse_progress(event_json)
        except LakehouseError as exc:
            log.warning("progress_unreadable", error=exc.message)
            return
        with self._lock:
            self._queue.append(batch)
            self._trim()
        self._seen(batch)

    def waiting(self) -> int:
        """How many batches the store has yet to take."""
        return len(self._queue)

    def sign(self, stream: str, at: datetime) -> None:
        """Notes that the stream is alive though it had nothing to read: Spark sent an idle event."""
        with self._lock:
            self._signs[stream] = at

    def close(self, *, timeout_s: float = 2.0) -> None:
        """Writes the queue, within the limit."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._closing.wait(self._retry_s if self._silent else FLUSH_S):
            self.flush()
        self.flush()

    def flush(self) -> None:
        """Writes the queue. Batches that the store did not take are queued again."""
        with self._lock:
            batches, signs = list(self._queue), dict(self._signs)
            self._queue.clear()
            self._signs.clear()
        if not batches and not signs:
            return
        try:
            if batches:
                self._store.add_progress(batches)
            ends = {batch.stream: batch.ended_at for batch in batches}
            for stream, at in {**ends, **signs}.items():
                self._store.touch(stream, at=at)
        except StoreError as exc:
            with self._lock:
                self._queue.extendleft(reversed(batches))
                self._signs = {**signs, **self._signs}  # signs that came meanwhile are newer
                self._trim()
            if not self._silent:
                log.error("progress_waits_for_store", error=exc.message)
            self._silent = True
        except Exception:  # the thread must live: later events may be fine
            log.exception("progress_lost", events=len(batches))
        else:
            if self._silent:
                log.info("progress_written_again", dropped=self.dropped)
            self._silent = False

    def _trim(self) -> None:
        while len(self._queue) > self._capacity:
            self._queue.popleft()
            self.dropped += 1


class ProgressListener(StreamingQueryListener):
    """Receives Spark's events on Spark's thread and hands them on."""

    def __init__(self, writer: ProgressWriter) -> None:
        self._writer = writer
        self._names: dict[str, str] = {}
        self._idle: dict[str, datetime] = {}

    def idle_at(self, stream: str) -> datetime | None:
        """When the newest trigger began that had nothing to read; Spark tells of one in ten seconds."""
        return self._idle.get(stream)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self._names[str(event.runId)] = event.name or ""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        try:
            self._writer.put(event.progress.json)
        except Exception:  # a listener that raises is removed by Spark
            log.exception("progress_event_failed")

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        try:
            name = self._names.get(str(event.runId))
            if name:
                self._idle[name] = spark_time(event.timestamp)
                self._writer.sign(name, self._idle[name])
        except Exception:
            log.exception("idle_event_failed")

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._names.pop(str(event.runId), None)

    @property
    def _jlistener(self) -> Any:
        if not hasattr(self, "_jlistenerobj"):
            from pyspark import SparkContext

            wrapper = SparkContext._jvm.PythonStreamingQueryListenerWrapper  # type: ignore[union-attr]
            self._jlistenerobj = wrapper(_TextListener(self))
        return self._jlistenerobj


class _TextListener(JStreamingQueryListener):
    """Takes the JSON text of a batch alone. PySpark builds the whole event first, and each row of observed counts in it
    has the JVM look for a class in every JAR: a sixth of the host's CPU time with six small streams."""

    def onQueryProgress(self, jevent: Any) -> None:
        event: Any = SimpleNamespace(progress=SimpleNamespace(json=jevent.progress().json()))
        self.pylistener.onQueryProgress(event)


def roll_up(backlogs: BacklogReader, store: ControlStore, clock: Callable[[], datetime], rounds: Rounds) -> None:
    """Adds up all batches that came, per minute and per hour, with what waited after each; raises `StoreError`."""
    while waiting := store.not_rolled_up():
        store.roll_up(waiting.keys(), _lags(backlogs, store, waiting.values(), clock()))
        if len(waiting) < CHUNK or rounds.pause(PAUSE_S):
            return


def _lags(
    backlogs: BacklogReader, store: ControlStore, batches: Iterable[Progress], now: datetime
) -> dict[str, dict[datetime, Lag]]:
    """What waited after each of these batches by stream, where that can still be seen."""
    recent, declared = dict[str, list[Progress]](), store.declarations()
    for batch in sorted(batches, key=lambda batch: batch.progressed_at):
        if now - batch.ended_at < SEEN_WITHIN and batch.stream in declared:
            recent.setdefault(batch.stream, []).append(batch)
    lags = dict[str, dict[datetime, Lag]]()
    for name, of_stream in recent.items():
        try:
            lags[name] = {lag.at: lag for lag in backlogs.look(declared[name], of_stream, now=now).history()}
        except Exception:  # the sums must go on
            log.exception("lags_not_kept", stream=name)
    return lags


def prune(limits: StoreSettings, store: ControlStore, now: datetime) -> None:
    """Deletes what is older than settings say; raises `StoreError`."""
    before = now - timedelta(days=limits.progress_retention_days)
    rows = store.prune_progress(before=before, keep=limits.progress_max_rows)
    for grain_s, days in ((MINUTE_S, limits.minutes_retention_days), (HOUR_S, limits.hours_retention_days)):
        store.prune_rollups(grain_s=grain_s, before=now - timedelta(days=days))
    store.prune_hosts(before=before)
    store.prune_judgements(before=before)
    store.noticed.prune(before=before)
    log.info("progress_pruned", rows=rows, before=before.isoformat())
    if days := limits.audit_retention_days:
        store.cut_audit(before=now - timedelta(days=days), now=now)
    log.info("audit_head", **asdict(store.audit_head()))  # for who holds it elsewhere: `weir audit verify --head`
