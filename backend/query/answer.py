"""A query's rows: of a process of its own, or of a job of a stream host.

Rule: nothing is left behind of a process, whatever ends it: no folder, no thread that reads. A person's query is in the
audit trail with who, text, versions and rows once it ended, where there is a store. The host plans the statement again,
and reads the tables of the request or none; what Spark would not answer as DuckDB does, and what only Weir can read, is
refused before a job is asked for.
"""

import difflib
import json
import math
import pickle
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

import pyarrow as pa

from backend.access import Actor, permission
from backend.cells import distinct_names
from backend.errors import JobError, QueryError, UnsupportedFeatureError
from backend.format import cut, things
from backend.jobs.documents import HostAnswer, HostQuery, PinnedRead, of_document, to_document
from backend.jobs.model import Job, JobKind, JobRequest
from backend.jobs.results import read_result
from backend.lake.lake import Lake
from backend.lake.table.schema import CASELESS, readable_names
from backend.query.plan import QueryPlan, TableRead, plan_query
from backend.query.process import start_process
from backend.query.statement import translated
from backend.query.views import World
from backend.query.worker import HandedTable, QueryLimits, QueryRequest
from backend.settings import LakeSettings, Settings
from backend.sql.parquet_rows import table_rows, why_not_as_stored
from backend.sql.saved import audit_text
from backend.sql.session import CancelToken, Connection, session
from backend.times import Clock
from backend.work import Interruptible, Stopped

if TYPE_CHECKING:
    from backend.stream_model.stream import AuditEntry

_HINT = "filter or group earlier, or raise WEIR_LAKE__QUERY_TIME_LIMIT_S"
MOST_BYTES = 64_000_000  # of first rows
PLACE = "place"  # of a row of the answer: the order in which a table's rows are read is nobody's promise


@contextmanager
def answered(
    world: World,
    plan: QueryPlan,
    limits: QueryLimits,
    actor: Actor | None,
    token: Interruptible | None = None,
    *,
    process: "subprocess.Popen[bytes] | None" = None,
) -> Iterator[pa.RecordBatchReader]:
    """The rows as they are computed, held while they are read; `token` ends it from another thread. `actor`: None where
    nobody asked, which no audit trail tells. `process`: one that was started for it.

    Raises `QueryError`, what a table's rows fail with, or `Stopped`, also while the rows are read.
    """
    num_rows, problem = 0, ""

    def counted(batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        nonlocal num_rows
        for batch in batches:
            num_rows += batch.num_rows
            yield batch

    try:
        with _started(world, plan, limits, token or Interruptible(), process) as child:
            rows = child.rows()
            yield pa.RecordBatchReader.from_batches(rows.schema, counted(rows))
    except BaseException as exc:
        problem = f", then {str(exc) or type(exc).__name__}"
        if isinstance(exc, QueryError) and (columns := _near(exc.message, plan)):
            raise QueryError(exc.message, hint=columns) from exc
        raise
    finally:
        if world.store is not None and actor is not None:
            world.store.note(_entry(world, plan, actor, f"{things(num_rows, 'row')}{problem}"))


def _near(message: str, plan: QueryPlan) -> str:
    """What helps where a column is not there: DuckDB knows only those that the statement names."""
    missing = re.search(r'column "([^"]+)" (?:not found|does not exist)', message, re.IGNORECASE)
    tables = [(read.table, readable_names(read.snapshot.metadata)) for read in plan.reads if read.snapshot is not None]
    names = dict.fromkeys(name for _, columns in tables for name in columns)
    if missing is None or not names:
        return ""
    wanted = missing[1].lower()
    if owner := next((table for table, columns in tables if wanted in map(str.lower, columns)), ""):
        return f"{owner} has it, but what FROM gives there does not: select it in the subquery or WITH part as well"
    near = difflib.get_close_matches(wanted, [name.lower() for name in names], n=1)
    every = f"the columns are {', '.join(list(names)[:20])}{' …' if len(names) > 20 else ''}"
    return f"did you mean {near[0]}? {every}" if near else every


def query_limits(lake: LakeSettings) -> QueryLimits:
    return QueryLimits(lake.query_memory_bytes, lake.query_spill_bytes, lake.query_time_limit_s)


@dataclass(slots=True)
class FirstRows:
    """Of an answer, as they come; all for no `limit`, no more beyond `most_bytes`. `is_cut`: there are more."""

    reader: pa.RecordBatchReader
    limit: int | None
    most_bytes: float = math.inf
    num_rows: int = 0
    is_cut: bool = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        num_bytes = 0
        for batch in self.reader:
            left = batch.num_rows if self.limit is None else self.limit - self.num_rows
            part = batch.slice(0, left if num_bytes < self.most_bytes else 0)
            self.is_cut = part.num_rows < batch.num_rows
            self.num_rows, num_bytes = self.num_rows + part.num_rows, num_bytes + part.nbytes
            yield part
            if self.is_cut:
                return


def first_rows(
    world: World, plan: QueryPlan, limits: QueryLimits, actor: Actor | None, token: Interruptible | None = None
) -> tuple[pa.Table, bool]:
    """One less than `plan.most_rows`, or fewer of more than `MOST_BYTES`, each column by a name of its own; and whether
    there are more."""
    with answered(world, plan, limits, actor, token) as reader:
        first = FirstRows(reader, (plan.most_rows or 1) - 1, MOST_BYTES)
        rows = pa.Table.from_batches(first.batches(), reader.schema)
    return rows.rename_columns(distinct_names(rows.column_names)), first.is_cut


def _entry(world: World, plan: QueryPlan, actor: Actor, outcome: str) -> "AuditEntry":
    from backend.stream_model.stream import QUERY, AuditEntry

    versions = ", ".join(f"{table} v{version}" for table, version in plan.versions)
    detail = "; ".join(filter(None, (outcome, versions, audit_text(plan.statement.text))))
    tables = ", ".join(dict.fromkeys(read.table for read in plan.reads))
    by = permission(actor, QUERY, tables)
    result = "failed" if ", then " in outcome else "done"
    return AuditEntry(world.now, actor.name, QUERY, cut(tables, 200), "", detail, by.role or "", by.by, result)


@contextmanager
def _started(
    world: World,
    plan: QueryPlan,
    limits: QueryLimits,
    token: Interruptible,
    process: "subprocess.Popen[bytes] | None",
) -> Iterator["_Child"]:
    with ExitStack() as stack:
        is_stored = any(map(_is_stored, plan.reads))
        with session(CancelToken(), what="the columns of the files") if is_stored else nullcontext() as connection:
            tables = tuple(stack.enter_context(_handed(world, read, connection)) for read in plan.reads)
        fed = [read for read, table in zip(plan.reads, tables, strict=True) if table.query is None]
        streams = [rows for read in fed for rows in (read.before, read.rows) if rows is not None]
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-query-", ignore_cleanup_errors=True))
        is_held = plan.most_rows is not None
        request = QueryRequest(plan.statement.sql, tables, folder, limits, plan.cpu_s, is_held)
        child = _Child(request, streams, token, process or start_process())
        stack.callback(child.close)
        token.take(child)
        stack.callback(token.take, None)
        if token.is_stopped:
            raise Stopped("cancelled")
        yield child


def _is_stored(read: TableRead) -> bool:
    """Whether DuckDB can read its rows as they lie in files."""
    return not (read.snapshot is None or read.files is None or why_not_as_stored(read.snapshot.metadata, read.columns))


@contextmanager
def _handed(world: World, read: TableRead, connection: "Connection | None") -> Iterator[HandedTable]:
    """Files as they lie, where a `connection` that looks at them is given and they are on this machine; else what a
    reader of Delta tables gives is streamed."""
    caseless = tuple(column.name for column in read.collated if column.collation == CASELESS)
    commit = (read.commit.version, read.commit.committed_at) if read.commit else None
    streamed = HandedTable(read.name, is_difference=read.before is not None, commit=commit, caseless=caseless)
    if connection is None or read.snapshot is None or read.files is None or not _is_stored(read):
        yield streamed
        return
    with ExitStack() as stack:
        table = None
        with suppress(UnsupportedFeatureError):  # a file does not hold the columns as the log says
            files = stack.enter_context(world.lake.local_files(read.snapshot, read.files))
            if files is not None:
                noted = _Noted(connection)
                query = table_rows(noted, files, read.snapshot.metadata, read.columns, prefix=read.name)
                beside = tuple(noted.tables.items())
                table = HandedTable(read.name, query, files.paths, beside, caseless=caseless)
        yield table or streamed


@dataclass(slots=True)
class _Noted:
    """A connection that looks at files, and notes which tables the query will want beside them."""

    connection: Connection
    tables: dict[str, pa.Table] = field(default_factory=dict)

    def execute(self, sql: str) -> Connection:
        return self.connection.execute(sql)

    def register(self, name: str, table: pa.Table) -> None:
        self.tables[name] = table


@dataclass(slots=True)
class _Child:
    """The process, the thread that feeds it and the timer that ends it."""

    request: QueryRequest
    streams: Sequence[Callable[[], pa.RecordBatchReader]]
    token: Interruptible
    _process: "subprocess.Popen[bytes]"
    failure: BaseException | None = None
    is_late: bool = False
    _threads: tuple[threading.Thread, threading.Timer] = field(init=False)

    def __post_init__(self) -> None:
        timer = threading.Timer(self.request.limits.time_limit_s, self._end_late)
        self._threads = threading.Thread(target=self._feed, daemon=True), timer
        timer.daemon = True
        for thread in self._threads:
            thread.start()

    def interrupt(self) -> None:
        """At once: it has nothing to tidy up."""
        self._process.kill()

    def query_progress(self) -> float:
        return -1.0

    def rows(self) -> pa.RecordBatchReader:
        """Known once the first are there."""
        try:
            reader = pa.ipc.open_stream(_pipe(self._process.stdout))
        except (pa.ArrowException, OSError) as exc:
            raise self._why() from exc
        return pa.RecordBatchReader.from_batches(reader.schema, self._batches(reader))

    def close(self) -> None:
        feeder, timer = self._threads
        timer.cancel()
        self._process.kill()
        self._process.wait()
        feeder.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            try:
                _pipe(pipe).close()
            except BrokenPipeError:  # what it was still to be fed
                continue

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
            code = self._process.wait()
        except (pa.ArrowException, OSError) as exc:
            raise self._why() from exc
        if code:
            raise self._why()

    def _end_late(self) -> None:
        self.is_late = True
        self._process.kill()

    def _feed(self) -> None:
        """The request and the streams; standard input stays open, by which the child knows that we live."""
        pipe = _pipe(self._process.stdin)
        try:
            pickle.dump(self.request, pipe)
            pipe.flush()
            for open_rows in self.streams:
                rows = open_rows()
                with pa.ipc.new_stream(pipe, rows.schema) as writer:
                    for batch in rows:
                        writer.write_batch(batch)
                pipe.flush()
        except OSError:  # it ended: it says why, or was killed
            return
        except BaseException as exc:  # noqa: BLE001 - a thread: whatever it is, the one who waits gets it
            self.failure = exc
            self._process.kill()

    def _why(self) -> Exception:
        """Why there are no more rows."""
        said = _pipe(self._process.stderr).read().decode(errors="replace")
        code = self._process.wait()
        if self.token.is_stopped:
            return Stopped("cancelled")
        if self.is_late:
            limit_s = self.request.limits.time_limit_s
            return QueryError(f"the query took longer than {limit_s:g} s and was stopped", hint=_HINT)
        if isinstance(self.failure, Exception):
            return self.failure
        if code == -signal.SIGXCPU:
            what = f"the query computed for {self.request.cpu_s:.0f} s, too long for what it reads, and was stopped"
            return QueryError(what, hint="look for a join without a condition; filter or group before joining")
        line = next((line for line in reversed(said.splitlines()) if line.startswith('{"message"')), "")
        if line:
            return QueryError(**json.loads(line))
        return QueryError(
            f"the query's process ended by itself (code {code})", hint="it may need more memory than there is"
        )


def _pipe(pipe: "IO[bytes] | None") -> "IO[bytes]":
    assert pipe is not None
    return pipe


# by a stream host -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HostPlan:
    """What the host runs: Spark's SQL, over tables called as the plan's reads are."""

    plan: QueryPlan
    sql: str


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The first rows of an answer, in its order; `is_cut`: there are more."""

    rows: pa.Table
    is_cut: bool
    by: str


def job_request(plan: QueryPlan, *, actor: Actor, reason: str, time_limit_s: float) -> JobRequest:
    """The job that would answer; raises `QueryError` for what a host cannot do."""
    _spark_sql(plan)
    asked = HostQuery(plan.statement.text, _reads(plan))
    tables = ", ".join(dict.fromkeys(read.table for read in plan.reads))
    versions = ", ".join(f"{table} v{version}" for table, version in plan.versions)
    told = {"versions": versions, "statement": audit_text(plan.statement.text)}
    subject = cut(tables, 200) or "no table"
    return JobRequest(JobKind.QUERY, subject, asked.fingerprint, to_document(asked), actor, reason, time_limit_s, told)


def host_plan(world: World, job: Job, clock: Clock) -> HostPlan:
    """What the host that took the job runs. Every path that the logs name is looked at here, before Spark follows it:
    raises `PathRefusedError` for one outside the roots, `JobError` where another table lies there by now."""
    asked = of_document(HostQuery, job.request)
    plan = plan_query(world, asked.text, clock, pins=[str(read.version) for read in asked.reads])
    sql = _spark_sql(plan)
    if _reads(plan) != asked.reads:
        raise JobError("a table of the query was replaced by another one meanwhile", hint="run it again")
    for read in plan.reads:
        if read.snapshot is not None:
            world.lake.require_files(read.snapshot, read.snapshot.columns(["path"]))
    return HostPlan(plan, sql)


def kept_rows(lake: Lake, settings: Settings, job: Job) -> KeptRows:
    """What a job found; raises `JobError` where it found nothing, `JobResultMissingError`."""
    answer = of_document(HostAnswer, job.require_answer())
    names = [f"c{number}" for number in range(len(answer.columns))]
    rows = read_result(lake, settings, job, [PLACE, *names], again="run it again").sort_by(PLACE)
    return KeptRows(rows.select(names).rename_columns(answer.columns), answer.is_cut, answer.by)


def _spark_sql(plan: QueryPlan) -> str:
    for read in plan.reads:
        if read.snapshot is None:
            hint = "run it here: Weir reads it of the table's log, or of its own store"
            raise QueryError(f"the stream host has no {read.table}", hint=hint)
    return translated(plan.statement, "Spark", {})


def _reads(plan: QueryPlan) -> tuple[PinnedRead, ...]:
    return tuple(
        PinnedRead(snapshot.ref.uri, read.table, snapshot.version, snapshot.metadata.id)
        for read in plan.reads
        if (snapshot := read.snapshot) is not None
    )
