"""Starts, watches and stops the queries of declared streams. Only this module calls `writeStream` and `.stop()`.

Rule: what a query does is asked of the query, never remembered. Every Spark error leaves here as a `LakehouseError`.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from backend.errors import LakehouseError, StorageError, StreamError
from backend.lake.storage.folder import is_remote, normal_uri
from backend.private_files import private_folder
from backend.settings import Settings
from backend.stream_model.overrides import TABLE_CHANGES
from backend.stream_model.stream import StreamFailure, StreamState
from backend.streams.reconcile import Live
from backend.streams.table_changes import approved_changes
from backend.work import elapsed
from pipelines.jvm.failures import SparkLostError, StreamStartError, describe, describe_java
from pipelines.jvm.hadoop import CheckpointFiles, spark_uri
from pipelines.spark import writing
from pipelines.spark.session import KEPT, open_session
from pipelines.spark.tables import Analysis, TableSchemas, change_table, create_table, fit_table, table_schemas
from pipelines.specs.ends import ExportSink
from pipelines.specs.expectations import BROKEN
from pipelines.specs.streams import Registry, StreamKind, StreamSpec
from pipelines.specs.tables import Problem, quoted

_LOOK_S = 0.05
SWITCH_THREADS = 8  # a stop waits for what does not heed it
NO_OVERRIDES: Mapping[str, str] = MappingProxyType({})


NOT_RENEWED = ("LEASE_RAN_OUT", "the host could not renew its lease in time")  # error class and message


class DeadMansSwitch:
    """Stops a query inside the JVM at the moment its lease runs out, unless the host says in time that it holds it
    still.

    It needs nothing of this process, which may be frozen, blocked or dead. What it stops is the query; a batch that
    does not heed an interrupt ends first. Thread-safe. A stream that nobody ever held is never stopped.
    """

    def __init__(self, jvm: Any, *, elapsed: Callable[[], float] = elapsed) -> None:
        self._elapsed = elapsed
        self._pool = jvm.java.util.concurrent.Executors.newScheduledThreadPool(SWITCH_THREADS)
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


class Runtime:
    """The queries of this process. Open it first; methods may be called from several threads."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings = settings
        self._registry = registry
        self._session: SparkSession | None = None
        self._switch: DeadMansSwitch | None = None
        self._queries: dict[str, StreamingQuery] = {}
        self._sessions: dict[str, SparkSession] = {}
        self._own_conf: dict[str, tuple[str, ...]] = {}  # what is set in those
        self._listeners: list[StreamingQueryListener] = []

    @property
    def spark_version(self) -> str | None:
        return self._session.version if self._session else None

    @property
    def jvm_pid(self) -> int | None:
        """The process that the driver's JVM is; None where this one did not start it."""
        gateway = self._session.sparkContext._gateway if self._session else None
        process = getattr(gateway, "proc", None)
        return process.pid if process else None

    @property
    def spark_ui_url(self) -> str | None:
        return self._session.sparkContext.uiWebUrl if self._session else None

    @property
    def session(self) -> SparkSession:
        """The Spark session; raises `StreamError` before `open`."""
        if self._session is None:
            raise StreamError("the runtime is not open", hint="call open() first")
        return self._session

    def open(
        self, alone: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()
    ) -> tuple[Problem, ...]:
        """Start Spark and create every table that is not there yet; returns why some streams will not start.

        `alone`: no other host makes that stream's tables meanwhile. On S3 the second to write a table's first version
        would replace the first.
        """
        self._close_folders()
        self._session = open_session(self._settings)
        self._switch = DeadMansSwitch(self._session._jvm)
        with _spark_errors("streams cannot be looked into"):
            analysis = Analysis(self._registry, self.session, self._settings).run()
        problems = list(analysis.problems)
        broken = {problem.name for problem in problems}
        # Before any source reads: a stream on a Delta table that is not there fails (DELTA_SCHEMA_NOT_SET).
        for stream in analysis.streams:
            try:
                if stream.name not in broken:
                    with alone(f"tables of {stream.name}"), _spark_errors(f"tables of {stream.name} cannot be made"):
                        session = self._session_of(stream)  # whose settings may say what new tables have
                        for table in stream.writes:
                            if table.name in analysis.schemas:
                                uri = table.spark_uri(self._settings)
                                create_table(session, table, analysis.schemas[table.name], uri)
                for source in stream.sources:
                    source.prepare(self._settings)
            except (StreamError, OSError) as exc:  # it will fail when it starts; the others must not
                problems.append(Problem(stream.declared_at, stream.name, str(exc)))
        return tuple(problems)

    def _close_folders(self) -> None:
        """Positions and rows lie there. A folder outside `$WEIR_HOME` that is there already may hold more than ours."""
        for uri in (self._settings.checkpoints_uri, self._settings.results_uri):
            folder = Path(normal_uri(uri))
            try:
                if not is_remote(uri) and (self._settings.home in folder.parents or not folder.exists()):
                    private_folder(folder)
            except OSError as exc:
                raise StorageError(
                    f"{folder} cannot be made: {exc.strerror}", hint="the host's user must own it"
                ) from exc

    def close(self) -> None:
        """Stop every query at once and Spark with them."""
        for name in tuple(self._queries):
            self.cut(name)
        if self._switch is not None:
            self._switch.close()
            self._switch = None
        if self._session is not None:
            self._session.stop()
            self._session = None

    def add_listener(self, listener: StreamingQueryListener) -> None:
        self._listeners.append(listener)
        for session in (self.session, *self._sessions.values()):
            session.streams.addListener(listener)

    def start(self, name: str, overrides: Mapping[str, str] = NO_OVERRIDES) -> Live:
        """Start a declared stream from its checkpoint; raises `StreamNotFoundError` or `StreamStartError`."""
        spec = self._registry.get(name).with_overrides(overrides)
        running = self._queries.get(name)
        if running is not None and running.isActive:  # before anything of its checkpoint is touched
            raise StreamStartError(f"stream {name} runs already", error_class="ALREADY_RUNNING", hint="stop it first")
        if self._switch and not self._switch.allows(name):
            raise StreamStartError(f"stream {name} did not start: {NOT_RENEWED[1]}", error_class=NOT_RENEWED[0])
        try:
            query = self._start(spec, overrides)
            if self._switch:
                self._switch.watch(name, query)
        except Py4JNetworkError as exc:
            raise _lost() from exc
        except LakehouseError:
            raise
        except Exception as exc:  # job boundary: the transform is a user's
            error_class, message = _described(exc)
            raise StreamStartError(
                f"stream {name} did not start: {message}", error_class=error_class, hint="see logs/spark.log"
            ) from exc
        self._queries[name] = query
        return Live(StreamState.RUNNING, str(query.id), str(query.runId))

    def stop(self, name: str, *, timeout_s: float) -> None:
        """Let the running micro-batch end, up to the limit, then stop. Does nothing where no query has this name."""
        query = self._queries.get(name)
        if query is None:
            return
        with _spark_errors(f"stream {name} cannot be stopped"):
            deadline, asked_at = time.monotonic() + timeout_s, _last_batch(query)
            while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
                if _last_batch(query) != asked_at:
                    break  # `isTriggerActive` never falls for a stream that is behind: its next batch begins at once
                time.sleep(_LOOK_S)
        self.cut(name)

    def cut(self, name: str) -> None:
        """Stop at once. The next start replays the batch that was running."""
        query = self._queries.get(name)
        if query is not None:
            with _spark_errors(f"stream {name} cannot be stopped"):
                query.stop()

    def hold(self, name: str, until: float) -> None:
        """The stream may run until then, by `elapsed`: Spark stops its query at that moment, unasked."""
        if self._switch:
            with _spark_errors(f"stream {name} cannot be held"):
                self._switch.hold(name, until)

    def poll(self, name: str) -> Live:
        """What the stream's query is now; a failure names the innermost error, and the batch that was planned or
        run."""
        query = self._queries.get(name)
        if query is None:
            return Live(StreamState.STOPPED)
        with _spark_errors(f"stream {name} does not answer"):
            ids = str(query.id), str(query.runId)
            if query.isActive:
                return Live(StreamState.RUNNING, *ids)
            if (raised := query._jsq.exception()).isDefined():  # the Python wrapper loses the cause
                why = describe_java(raised.get())
            elif self._switch and self._switch.has_tripped(name):
                why = NOT_RENEWED
            else:
                return Live(StreamState.COMPLETED, *ids)
            # Spark tells no progress of a batch before it ends; the checkpoint may be silent
            begun: int = query._jsq.streamingQuery().getLatestExecutionContext().batchId()
            failure = StreamFailure(*why, begun if begun >= 0 else None, datetime.now(UTC))
            return Live(StreamState.FAILED, *ids, failure)

    def _start(self, spec: StreamSpec, overrides: Mapping[str, str]) -> StreamingQuery:
        session = self._session_of(spec)
        inputs = replace(self._registry.inputs(session, self._settings, spec.name), overrides=overrides)
        is_view = spec.kind is StreamKind.MATERIALIZED_VIEW
        rows = spec.rows(replace(inputs, versions={}) if is_view else inputs)
        schemas = table_schemas(session, spec, rows.schema)
        self._prepare_tables(spec, rows, schemas, approved_changes(overrides.get(TABLE_CHANGES, "")))
        if is_view:
            tables = self._registry.tables_read(spec)
            rows = writing.read_versions(session, [inputs.uri(table) for table in tables])
        elif writing.is_native(spec, inputs):
            rows = rows.select(*map(quoted, schemas[0][1].names))
        checkpoint = spark_uri(spec.checkpoint_location(self._settings))
        CheckpointFiles(session).remove_drafts(checkpoint)
        writer = rows.writeStream.queryName(spec.name).option("checkpointLocation", checkpoint)
        if spec.trigger_interval_s is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(spec.trigger_interval_s * 1_000)} milliseconds")
        return writing.configure(writer, spec, inputs).start()

    def _session_of(self, spec: StreamSpec) -> SparkSession:
        """The host's session, or one of the stream's own where it has or had settings of its own."""
        if not spec.spark_conf and spec.name not in self._sessions:
            return self.session
        if spec.name not in self._sessions:  # one for all its starts: Spark never lets go of a session's event bus
            own = self._sessions[spec.name] = self.session.newSession()
            for listener in self._listeners:
                own.streams.addListener(listener)
        session, conf = self._sessions[spec.name], dict[str, str | None]({**spec.spark_conf, **KEPT})
        former = {key: self.session.conf.get(key, None) for key in self._own_conf.get(spec.name, ())}
        for key, value in {**former, **conf}.items():
            if value is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, value)
        self._own_conf[spec.name] = tuple(conf)
        return session

    def _prepare_tables(
        self, spec: StreamSpec, rows: DataFrame, schemas: TableSchemas, approved: Collection[str]
    ) -> None:
        """Make what is missing, and let tables grow and change as they may; raises `SchemaMismatchError` or
        `DeliveryError`."""
        session = rows.sparkSession
        for table, schema in schemas:
            uri = table.spark_uri(self._settings)
            create_table(session, table, schema, uri)
            if spec.kind is not StreamKind.MATERIALIZED_VIEW:  # that one is written whole, columns and all
                fit_table(session, table, schema, uri)
            change_table(session, table, self._settings, approved)
        if isinstance(spec.sink, ExportSink):
            spec.sink.prepare(rows.drop(BROKEN))


def _last_batch(query: StreamingQuery) -> tuple[int, str] | None:
    """Which batch ended last, and when it had begun."""
    progress = query._jsq.lastProgress()
    return (progress.batchId(), progress.timestamp()) if progress else None


def _lost() -> SparkLostError:
    return SparkLostError("Spark's JVM does not answer any more", hint="restart the stream host; see logs/jvm.log")


def _described(exc: Exception) -> tuple[str, str]:
    """Class and message; raises `SparkLostError` where the whole application has ended under its queries."""
    context = SparkContext._active_spark_context
    if context is not None and context._jsc is not None and context._jsc.sc().isStopped():
        hint = "logs/spark.log says why: no executor came up, or somebody ended it on the master's page"
        raise SparkLostError("the Spark application has ended: its master removed it", hint=hint) from exc
    return describe(exc)


@contextmanager
def _spark_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except (Py4JNetworkError, ConnectionError) as exc:
        raise _lost() from exc
    except LakehouseError:
        raise
    except Exception as exc:  # py4j and pyspark raise many kinds, without a common base
        error_class, message = _described(exc)
        raise StreamError(f"{doing}: {error_class}: {message}", hint="see logs/spark.log") from exc
