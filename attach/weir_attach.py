"""Shows the streaming queries of this PySpark application in Weir, read-only.

    from weir_attach import attach
    attach(spark, store="postgresql+psycopg://orders@db/weir")

Rule: the application never notices. Nothing here raises, blocks a query or waits for the store: events wait in a
bounded queue, and a daemon thread writes them to the store's inbox, the table `attached_event`. Weir takes them there.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import socket
import threading
import time
import uuid
from collections import deque
from typing import Any

import sqlalchemy as sa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

CAPACITY = 5_000  # events that wait while the store is away; the oldest go first
KEPT = 20_000  # events of this application in the inbox, should no Weir ever take them
BEAT_S = 5.0
CLOSE_S = 2.0

log = logging.getLogger("weir_attach")
_inbox = sa.table("attached_event", sa.column("id"), sa.column("app_id"), sa.column("body"))
_attached: dict[SparkSession, Attachment] = {}


def attach(spark: SparkSession, store: str, name: str | None = None) -> Attachment | None:
    """Reports every streaming query of the session from now on, those that run already too.

    `store`: the SQLAlchemy URL of Weir's control store; its user needs INSERT, SELECT and DELETE on `attached_event`
    alone. `name`: what Weir calls the application, Spark's own name for it if left out. A second call gives the first
    one's attachment, until that is closed. None, and a warning in the log of `weir_attach`, where it cannot be
    attached.
    """
    try:
        known = _attached.get(spark)
        if known is None:
            known = _attached[spark] = Attachment(spark, store, name)
            known.start()
        return known
    except Exception as exc:  # the application must run as if this line were not there
        bad_url = isinstance(exc, (sa.exc.ArgumentError, ValueError))  # its words may hold the password
        problem = "the store's URL cannot be read" if bad_url else f"{type(exc).__name__}: {exc}"
        log.warning("not attached to Weir: %s", problem)
        return None


class Attachment:
    """The queue of one session's events and the thread that empties it."""

    def __init__(self, spark: SparkSession, store: str, name: str | None) -> None:
        self._spark = spark
        self._app = _describe(spark, name)
        self._engine = _open(store)
        self._queue: deque[str] = deque()
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._closing = False
        self._silent = False
        self._beat_at = float("-inf")
        self.dropped = 0
        self._listener = _Listener(self)
        self._thread = threading.Thread(target=self._run, name="weir-attach", daemon=True)

    def start(self) -> None:
        self._spark.streams.addListener(self._listener)
        for query in self._spark.streams.active:
            self.put("started", id=str(query.id), run_id=str(query.runId), query=query.name)
        self._thread.start()
        atexit.register(self.close)

    def put(self, event: str, **facts: Any) -> None:
        """Queues an event; a full queue drops its oldest."""
        with self._lock:
            self._queue.append(json.dumps({"event": event, **facts}))
            while len(self._queue) > CAPACITY:
                self._queue.popleft()
                self.dropped += 1
        self._woken.set()

    def close(self) -> None:
        """Takes the listener off, says that the application ends, and waits for that to be written, within `CLOSE_S`.
        The next `attach` begins anew."""
        if _attached.get(self._spark) is not self:
            return
        del _attached[self._spark]
        atexit.unregister(self.close)
        try:
            self._spark.streams.removeListener(self._listener)
        except Exception as exc:  # Spark has ended before
            log.debug("the listener of Weir stays: %s", type(exc).__name__)
        self.put("ended")
        self._closing = True
        self._woken.set()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while True:
            closing = self._closing
            self._woken.clear()
            try:
                self._flush()
            except Exception as exc:  # the store is away, or refuses: the events wait
                self._say_silent(exc)
            if closing:
                self._engine.dispose()
                return
            if self._silent:
                time.sleep(min(1.0, BEAT_S))
            self._woken.wait(BEAT_S)

    def _flush(self) -> None:
        with self._lock:
            events = list(self._queue)
        due = time.monotonic() - self._beat_at >= BEAT_S
        if not events and not due:
            return
        beat = [json.dumps({"event": "beat", **self._app, "dropped": self.dropped})] if due else []
        rows = [{"app_id": self._app["app_id"], "body": body} for body in (*beat, *map(self._with_facts, events))]
        with self._engine.begin() as connection:
            connection.execute(sa.insert(_inbox), rows)
            if due:
                self._prune(connection)
        with self._lock:
            for body in events:  # a full queue may have dropped some of them meanwhile
                if self._queue and self._queue[0] == body:
                    self._queue.popleft()
        if due:
            self._beat_at = time.monotonic()
        if self._silent:
            log.info("Weir's store answers again")
        self._silent = False

    def _prune(self, connection: sa.Connection) -> None:
        mine = _inbox.c.app_id == self._app["app_id"]
        newest = connection.execute(sa.select(sa.func.max(_inbox.c.id)).where(mine)).scalar() or 0
        connection.execute(sa.delete(_inbox).where(mine, _inbox.c.id <= newest - KEPT))

    def _with_facts(self, body: str) -> str:
        """A start with its trigger and checkpoint, which only the JVM knows. Asked here, on no query's thread."""
        event = json.loads(body)
        if event["event"] != "started":
            return body
        try:
            query: Any = self._spark.streams.get(event["id"])
            execution = query._jsq.streamingQuery()
            event["trigger"] = str(execution.trigger().toString())
            event["checkpoint"] = str(execution.resolvedCheckpointRoot())
        except Exception as exc:  # it has ended, or this Spark keeps them elsewhere: Weir does without
            log.debug("no trigger or checkpoint of %s: %s", event.get("query"), exc)
        return json.dumps(event)

    def _say_silent(self, exc: Exception) -> None:
        if not self._silent:
            log.warning("Weir's store does not answer, events wait: %s", type(exc).__name__)
        self._silent = True


class _Listener(StreamingQueryListener):
    """Queues what Spark tells. A callback neither blocks nor raises."""

    def __init__(self, attachment: Attachment) -> None:
        self._attachment = attachment

    def onQueryStarted(self, event: Any) -> None:
        self._attachment.put("started", id=str(event.id), run_id=str(event.runId), query=event.name)

    def onQueryProgress(self, event: Any) -> None:
        self._attachment.put("progress", progress=event.progress.json)

    def onQueryIdle(self, event: Any) -> None:
        self._attachment.put("idle", id=str(event.id), run_id=str(event.runId), at=event.timestamp)

    def onQueryTerminated(self, event: Any) -> None:
        self._attachment.put("terminated", id=str(event.id), run_id=str(event.runId), problem=event.exception)


def _describe(spark: SparkSession, name: str | None) -> dict[str, Any]:
    context = spark.sparkContext
    return {
        "app_id": f"{context.applicationId}-{uuid.uuid4().hex[:8]}",
        "name": name or context.appName,
        "hostname": socket.gethostname(),
        "pid": os.getpid(),
        "spark_version": spark.version,
        "spark_ui_url": context.uiWebUrl,
    }


def _open(store: str) -> sa.Engine:
    url = sa.make_url(store)
    if url.get_backend_name() == "sqlite":
        return sa.create_engine(url, connect_args={"timeout": 5}, hide_parameters=True)
    limits = {"connect_timeout": 5, "options": "-c statement_timeout=10000"}
    return sa.create_engine(url, connect_args=limits, pool_pre_ping=True, hide_parameters=True)
