"""One sandboxed DuckDB, for comparing rows and for SQL that a stranger wrote: bounded memory, no extension, no network,
ended from outside.

Rule: nothing else imports duckdb. Its errors leave as `DiffError` or `QueryError`, those of the rows that it reads as
they are.
"""

import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson
import pyarrow as pa

from backend.cells import from_duckdb
from backend.errors import DiffError, LakehouseError, QueryError
from backend.sql.values import quoted_name, quoted_text
from backend.work import Interruptible, Stopped

if TYPE_CHECKING:
    import duckdb

# duckdb is imported late, in functions: it is half a page load for whoever never compares.
Connection: TypeAlias = "duckdb.DuckDBPyConnection"

DIFF_BYTES = 640_000_000  # the least with which ten million rows are joined without much spilling
SQL_LIMIT = "1GB"
THREADS = 2
_SANDBOX = {
    "threads": THREADS,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
}
_DIFF_CONFIG = _SANDBOX | {
    "memory_limit": f"{DIFF_BYTES}B",
    "async_threads": 0,  # of use for remote files alone, as prefetching is
    "preserve_insertion_order": False,
}
_SQL_CONFIG = _SANDBOX | {"temp_directory": ""}  # a stranger's SQL may not fill the disk
_DIFF_SET_UP = (
    "SET TimeZone = 'UTC'; SET enable_progress_bar = true; SET enable_progress_bar_print = false; "
    "SET disable_parquet_prefetching = true; SET enable_profiling = 'no_output'; "
    "PRAGMA verify_parallelism"  # else one thread builds a join of less than a million rows
)
_LATE_S = 0.01  # a timer may be early, and the time must be over when it rings
PIECE_ROWS, PIECE_BYTES = 16_384, 1 << 20
# DuckDB looks up between two slices whether it is to end, and does not count a vector's own texts: these bound them.
SLICE_BYTES = 4 << 20
IDLE = 2  # locked connections kept
_CARET = re.compile(r"^LINE \d+: (?P<shown>.*)\n(?P<blank> *)\^", re.MULTILINE)


class CancelToken(Interruptible):
    """What a computation tells of itself while it runs, and how another thread ends it. `rows_total` is None where it
    is not known before."""

    def __init__(self, time_limit_s: float | None = None) -> None:
        super().__init__()
        self.rows_read = 0
        self.rows_total: int | None = None
        self.time_limit_s = time_limit_s
        self._started = time.monotonic()
        self._failure: LakehouseError | None = None
        self._reading = 0  # rows that the statement which runs now reads

    def begin(self, time_limit_s: float | None) -> None:
        """The limit counts from here."""
        self.time_limit_s, self._started = time_limit_s, time.monotonic()

    @property
    def seconds_left(self) -> float | None:
        """Until the time limit; None without one."""
        return None if self.time_limit_s is None else self._started + self.time_limit_s - time.monotonic()

    def ending(self) -> Stopped | DiffError | None:
        """Why it has to end now, None while it may go on."""
        if self.is_stopped:
            return Stopped("cancelled")
        left = self.seconds_left
        if left is None or left > 0:
            return None
        return DiffError(
            f"comparing rows took longer than {self.time_limit_s:g} s and was stopped",
            hint="compare a shorter range or fewer columns, or raise WEIR_LAKE__DIFF_TIME_LIMIT_S",
        )

    def check(self) -> None:
        """Raise `Stopped`, or `DiffError` when the time is over."""
        ending = self.ending()
        try:
            if ending is not None:
                raise ending
        finally:
            del ending  # its traceback holds this frame: in a circle, the rows that were read would stay open

    @contextmanager
    def reading(self, rows: int | None) -> Iterator[None]:
        """One statement by which DuckDB itself reads so many rows."""
        self.check()
        self._reading = rows or 0
        try:
            yield
            self.rows_read += self._reading
        finally:
            self._reading = 0

    def rows_so_far(self) -> int:
        """Rows read, with DuckDB's word for the statement that runs now. For other threads."""
        rows, reading = self.rows_read, self._reading
        with self._lock:
            percent = self._connection.query_progress() if reading and self._connection is not None else 0.0
        return rows + int(reading * max(0.0, percent) / 100)

    def counted(self, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """The same rows, counted; what breaks them is kept, since DuckDB would pass on no more than its text."""
        return pa.RecordBatchReader.from_batches(rows.schema, self._counted(rows))

    def _counted(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            for batch in rows:
                self.check()
                self.rows_read += batch.num_rows
                yield batch
        except LakehouseError as exc:
            self._failure = exc
            raise

    def why_broken(self) -> Exception | None:
        """What the rows failed with, or why it has to end, where that is why DuckDB raised."""
        failure, self._failure = self._failure, None
        return failure or self.ending()


# comparing rows -------------------------------------------------------------------------------------------------------


def _open() -> Connection:
    import duckdb

    connection = duckdb.connect(":memory:", config=_DIFF_CONFIG)
    connection.execute(_DIFF_SET_UP)
    return connection


class Databases:
    """Opens databases ahead and closes them behind, by a thread of its own: the log is read meanwhile, and an answer
    does not wait for memory to be given back."""

    def __init__(self, open_one: Callable[[], Connection] = _open) -> None:
        self._open = open_one
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="diff-database")
        self._lock = threading.Lock()
        self._ahead: Future[Connection] | None = None

    def open_ahead(self) -> None:
        with self._lock:
            self._ahead = self._ahead or self._thread.submit(self._open)

    def take(self) -> Connection:
        """The one that was opened ahead, else a new one."""
        with self._lock:
            ahead, self._ahead = self._ahead, None
        return ahead.result() if ahead else self._open()

    def close(self, connection: Connection, spill: "tempfile.TemporaryDirectory[str]") -> "Future[None]":
        def both() -> None:
            connection.close()
            shutil.rmtree(spill.name, ignore_errors=True)  # a process that leaves amid cleanup() removes nothing
            spill.cleanup()

        return self._thread.submit(both)


_databases = Databases()


def open_ahead() -> None:
    """A computation is about to come: what it needs is opened meanwhile."""
    _databases.open_ahead()


@contextmanager
def session(
    token: CancelToken, *, memory_bytes: int = DIFF_BYTES, databases: Databases = _databases, what: str = "the changes"
) -> Iterator[Connection]:
    """A fresh in-memory database, gone with its spill files soon after the end; what runs is interrupted at the token's
    limit. Raises `DiffError` about `what` is computed, `Stopped`, and what the rows that it reads failed with."""
    with _timed(token), _mapped(token, partial(_diff_error, what, memory_bytes)):
        connection = databases.take()
        spill = tempfile.TemporaryDirectory(prefix="weir-diff-", ignore_cleanup_errors=True)
        try:
            connection.execute(f"SET temp_directory = {quoted_text(spill.name)}; SET memory_limit = '{memory_bytes}B'")
            token.take(connection)
            token.check()
            yield connection
        finally:
            token.take(None)
            databases.close(connection, spill)


@contextmanager
def _timed(token: CancelToken) -> Iterator[None]:
    left = token.seconds_left
    if left is None:
        yield
        return
    timer = threading.Timer(max(0.0, left) + _LATE_S, token.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def ended_within(token: CancelToken, work: Callable[[], None]) -> bool:
    """Whether the token ended the work, which then raises nothing."""
    import duckdb

    try:
        token.check()
        work()
    except (Stopped, DiffError, duckdb.Error):  # a stream that ends itself is any error to DuckDB
        if token.ending() is None:
            raise
        return True
    return False


def pairs_joined(connection: Connection) -> int | None:
    """How many rows the join of the last statement made, or the LIMIT above it let through; None without a join."""
    profile = orjson.loads(connection.get_profiling_information(format="json"))
    nodes = profile["operator"]
    while nodes:
        for node in nodes:
            if node["type"].endswith(("LIMIT", "JOIN")):
                return int(node["intermediate_rows"])
        nodes = [child for node in nodes for child in node.get("children", ())]
    return None


def engine_version() -> str:
    """DuckDB's own."""
    import duckdb

    return str(duckdb.__version__)


# SQL that a stranger wrote --------------------------------------------------------------------------------------------


class Computation(CancelToken):
    """One aggregate over one stream of rows; `stop` ends it from another thread."""

    def __init__(self, memory_limit: str = SQL_LIMIT) -> None:
        super().__init__()
        self._memory_limit = memory_limit

    def run(self, sql: str, rows: pa.RecordBatchReader) -> Any:
        """The one value of `sql` over the table `rows`; raises `QueryError`, the stream's error, or `Stopped`."""
        with _mapped(self, self._error), _lent(self._memory_limit) as connection:
            self.take(connection)
            try:
                # In pieces of neither few rows (each costs DuckDB most of a millisecond, and a table of small files has
                # one for each) nor many bytes.
                groups = regrouped(self._counted(rows), most_rows=PIECE_ROWS, most_bytes=SLICE_BYTES)
                pieces = (group[0] if len(group) == 1 else pa.concat_batches(group) for group in groups)
                connection.register("rows", pa.RecordBatchReader.from_batches(rows.schema, pieces))
                found = connection.execute(sql).fetchall()
                kind = connection.description[0][1]
            finally:
                self.take(None)
            connection.unregister("rows")  # and with it whatever the stream holds
        if len(found) != 1:
            raise QueryError("the expression gives a value for each row", hint="use an aggregate such as sum(…)")
        return from_duckdb(found[0][0], kind)

    def _error(self, exc: Exception) -> LakehouseError:
        import duckdb

        if isinstance(exc, duckdb.OutOfMemoryException):
            what = f"the expression needs more than {self._memory_limit} of memory"
            return QueryError(what, hint="count fewer distinct values")
        return _not_computed(exc, "the expression")


def parse_tree(sql: str) -> str:
    """DuckDB's own reading of a statement as JSON text; nothing is looked up or run."""
    import duckdb

    with _lent(SQL_LIMIT) as connection:
        try:
            found = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
        except duckdb.Error as exc:
            raise QueryError(f"the expression cannot be read: {_first_line(exc)}") from exc
    return str(found[0][0])


def type_of(sql: str, types: Mapping[str, str]) -> str:
    """DuckDB's type of an expression over columns of these types; raises `QueryError` where the two do not match."""
    import duckdb

    columns = ", ".join(f"NULL::{kind} AS {quoted_name(name)}" for name, kind in types.items())
    with _lent(SQL_LIMIT) as connection:
        try:
            described = connection.execute(f"DESCRIBE SELECT (\n{sql}\n) FROM (SELECT {columns}) rows").fetchall()
        except duckdb.Error as exc:
            raise _not_computed(exc, "the condition") from exc
    return str(described[0][1])


def can_cast(text: str, kind: str) -> bool:
    """Whether a text is a value of one of DuckDB's types."""
    with _lent(SQL_LIMIT) as connection:
        return bool(connection.execute(f"SELECT TRY_CAST(? AS {kind}) IS NOT NULL", [text]).fetchall()[0][0])


def close_doors(connection: Connection, paths: Iterable[str] = ()) -> None:
    """Before SQL that a stranger wrote: no file but these, no network, no setting from here on."""
    allowed = f"SET allowed_paths = [{', '.join(map(quoted_text, paths))}]; " if paths else ""
    connection.execute(f"{allowed}SET enable_external_access = false; SET lock_configuration = true")


def open_alone(folder: str, *, memory_bytes: int, spill_bytes: int) -> Connection:
    """A database for a process that runs one statement; it spills into the folder."""
    import duckdb

    config = _SANDBOX | {"memory_limit": f"{memory_bytes}B", "temp_directory": folder}
    connection = duckdb.connect(":memory:", config=config | {"max_temp_directory_size": f"{spill_bytes}B"})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@contextmanager
def query_errors(memory_bytes: int) -> Iterator[None]:
    """DuckDB's errors of a whole statement, as `QueryError`. After the first rows they come from Arrow, as an `OSError`
    without a number; those of a pipe have one."""
    import duckdb

    try:
        yield
    except (duckdb.Error, OSError) as exc:
        if isinstance(exc, OSError) and exc.errno is not None:
            raise
        if isinstance(exc, duckdb.OutOfMemoryException) or str(exc).startswith("Out of Memory Error"):
            what = f"the query does not fit into {memory_bytes // 10**6:,} MB of memory and its share of the disk"
            raise QueryError(what, hint="group or filter earlier, or join fewer rows") from exc
        raise _not_computed(exc, "the query") from exc


_idle: list[Connection] = []  # making one takes longer than most questions
_lock = threading.Lock()


@contextmanager
def _lent(memory_limit: str) -> Iterator[Connection]:
    """A locked connection that nobody else has; whoever fails with it does not give it back."""
    import duckdb

    with _lock:
        connection = _idle.pop() if _idle and memory_limit == SQL_LIMIT else None
    if connection is None:
        connection = duckdb.connect(":memory:", config=_SQL_CONFIG | {"memory_limit": memory_limit})
        connection.execute("SET TimeZone = 'UTC'")
        close_doors(connection)
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
    with _lock:
        if len(_idle) < IDLE and memory_limit == SQL_LIMIT:
            _idle.append(connection)
            return
    connection.close()


def regrouped(batches: Iterable[pa.RecordBatch], *, most_rows: int, most_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    """The rows in groups of batches, of so many rows and bytes at most where no batch or row by itself holds more."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for part in (part for batch in batches for part in slices(batch, most_bytes)):
        if waiting and (rows + part.num_rows > most_rows or size + part.nbytes > most_bytes):
            yield waiting
            waiting, rows, size = [], 0, 0
        waiting.append(part)
        rows, size = rows + part.num_rows, size + part.nbytes
    if waiting:
        yield waiting


def slices(batch: pa.RecordBatch, most_bytes: int = SLICE_BYTES) -> Iterator[pa.RecordBatch]:
    """Pieces of about so many bytes; one row may hold more."""
    step = max(1, most_bytes * batch.num_rows // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


# errors ---------------------------------------------------------------------------------------------------------------


@contextmanager
def _mapped(token: CancelToken, error_of: Callable[[Exception], LakehouseError]) -> Iterator[None]:
    """DuckDB's errors as what broke the rows, why the computation had to end, or else an error of Weir's."""
    import duckdb

    try:
        yield
    except duckdb.Error as exc:
        raise token.why_broken() or error_of(exc) from exc


def _diff_error(what: str, memory_bytes: int, exc: Exception) -> DiffError:
    import duckdb

    if isinstance(exc, duckdb.OutOfMemoryException):
        too_much = f"{what} do not fit into {memory_bytes // 10**6:,} MB of memory and the disk"
        return DiffError(too_much, hint="compare a shorter range or fewer columns")
    return DiffError(f"{what} could not be computed: {(str(exc) or type(exc).__name__).splitlines()[0]}")


@contextmanager
def row_errors(what: str = "the condition") -> Iterator[None]:
    """What types and values make impossible of a condition on rows, as `QueryError`; being ended, or memory, is not
    its fault."""
    import duckdb

    try:
        yield
    except (duckdb.DataError, duckdb.ProgrammingError, duckdb.NotSupportedError) as exc:
        raise _not_computed(exc, what) from exc


def _not_computed(exc: Exception, what: str) -> QueryError:
    """What the rows or their types make impossible of SQL that may run, as DuckDB says it."""
    caret, position = _CARET.search(str(exc)), None
    if caret is not None and caret[0].startswith("LINE 2: ") and "..." not in caret["shown"]:
        position = max(0, len(caret["blank"]) - len("LINE 2: "))  # in the expression, which is the second line
    return QueryError(f"{what} cannot be computed: {_first_line(exc)}", hint=_hint(exc), position=position)


def _first_line(exc: Exception) -> str:
    line = (str(exc).strip() or type(exc).__name__).splitlines()[0]
    return re.sub(r"^(?:\w+ ){1,4}Error: ", "", line)[:300]


def _hint(exc: Exception) -> str:
    """What helps against the mistakes that the rows or their types make of an expression that may run."""
    import duckdb

    if isinstance(exc, duckdb.ConversionException):
        return "TRY_CAST(… AS …) gives null where a value does not fit"
    if isinstance(exc, duckdb.OutOfRangeException):
        return "cast to a wider type first, such as amount::DOUBLE"
    if isinstance(exc, duckdb.BinderException):
        return "look at the types: a value may have to be cast, such as id::VARCHAR or '2026-01-31'::DATE"
    return "run a part of it alone, or over fewer columns"
