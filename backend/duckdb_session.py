"""DuckDB for one computation: bounded memory, spill to a folder of its own, no extension, no network, stopped from
outside.

Rule: the only door to duckdb in the diff; its errors leave as `DiffError`, those of what it reads as they are.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from backend.diff.model import ended_words
from backend.errors import DiffError, LakehouseError
from backend.query.quoting import quoted_text
from backend.work import Interruptible

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY_LIMIT = "512MB"
THREADS = 2
_CONFIG = {
    "memory_limit": MEMORY_LIMIT,
    "threads": THREADS,
    "async_threads": 0,  # of use for remote files alone, as prefetching is
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "preserve_insertion_order": False,
}
_SET_UP = (
    "SET TimeZone = 'UTC'; SET enable_progress_bar = true; SET enable_progress_bar_print = false; "
    "SET disable_parquet_prefetching = true; "
    "PRAGMA verify_parallelism"  # else one thread builds a join of less than a million rows
)
_LATE_S = 0.01  # a timer may be early, and the time must be over when it rings


class DiffStopped(Exception):
    """Nobody waits for the answer any more."""


class Watch(Interruptible):
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

    def ending(self) -> "DiffStopped | DiffError | None":
        """Why it has to end now, None while it may go on."""
        if self.is_stopped:
            return DiffStopped("cancelled")
        left = self.seconds_left
        if left is None or left > 0:
            return None
        return DiffError(
            f"comparing rows took longer than {self.time_limit_s:g} s and was stopped",
            hint="compare a shorter range or fewer columns, or raise WEIR_LAKE__DIFF_TIME_LIMIT_S",
        )

    def ended(self) -> str:
        """What ended it, in words."""
        return ended_words(is_cancelled=self.is_stopped, time_limit_s=self.time_limit_s)

    def check(self) -> None:
        """Raise `DiffStopped`, or `DiffError` when the time is over."""
        if (ending := self.ending()) is not None:
            raise ending

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

    def watched(self, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
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

    def take_failure(self) -> LakehouseError | None:
        failure, self._failure = self._failure, None
        return failure


class _Databases:
    """Opens databases ahead and closes them behind, by a thread of its own: the log is read meanwhile, and an answer
    does not wait for memory to be given back."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="diff-database")
        self._lock = threading.Lock()
        self._ahead: Future[DuckDBPyConnection] | None = None

    def open_ahead(self) -> None:
        with self._lock:
            self._ahead = self._ahead or self._thread.submit(_open)

    def take(self) -> "DuckDBPyConnection":
        """The one that was opened ahead, else a new one."""
        with self._lock:
            ahead, self._ahead = self._ahead, None
        return ahead.result() if ahead else _open()

    def close(self, connection: "DuckDBPyConnection", spill: "tempfile.TemporaryDirectory[str]") -> None:
        def both() -> None:
            connection.close()
            spill.cleanup()

        self._thread.submit(both)


_databases = _Databases()


def open_ahead() -> None:
    """A computation is about to come: what it needs is opened meanwhile."""
    _databases.open_ahead()


@contextmanager
def engine(watch: Watch) -> Iterator["DuckDBPyConnection"]:
    """A fresh in-memory database, gone with its spill files soon after the end; what runs is interrupted at the watch's
    limit."""
    import duckdb

    with _timed(watch):
        connection = _databases.take()
        spill = tempfile.TemporaryDirectory(prefix="weir-diff-", ignore_cleanup_errors=True)
        try:
            connection.execute(f"SET temp_directory = {quoted_text(spill.name)}")
            watch.take(connection)
            watch.check()
            yield connection
        except duckdb.Error as exc:
            raise _error(exc, watch, full=isinstance(exc, duckdb.OutOfMemoryException)) from exc
        finally:
            watch.take(None)
            _databases.close(connection, spill)


def _open() -> "DuckDBPyConnection":
    import duckdb  # late: half a page load for whoever never diffs

    connection = duckdb.connect(":memory:", config=_CONFIG)
    connection.execute(_SET_UP)
    return connection


def ended_within(watch: Watch, work: Callable[[], None]) -> bool:
    """Whether the watch ended the work, which then raises nothing."""
    import duckdb

    try:
        watch.check()
        work()
    except (DiffStopped, DiffError, duckdb.Error):  # a stream that ends itself is any error to DuckDB
        if watch.ending() is None:
            raise
        return True
    return False


@contextmanager
def _timed(watch: Watch) -> Iterator[None]:
    left = watch.seconds_left
    if left is None:
        yield
        return
    timer = threading.Timer(max(0.0, left) + _LATE_S, watch.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def engine_version() -> str:
    """DuckDB's own."""
    import duckdb

    return str(duckdb.__version__)


def close_doors(connection: "DuckDBPyConnection") -> None:
    """Before SQL that a stranger wrote: no file, no network, no setting from here on."""
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _error(exc: Exception, watch: Watch, *, full: bool) -> Exception:
    if failure := watch.take_failure():
        return failure
    if (ending := watch.ending()) is not None:
        return ending
    if full:
        what = f"the changes do not fit into {MEMORY_LIMIT} of memory and the disk"
        return DiffError(what, hint="compare a shorter range or fewer columns")
    first_line = str(exc).splitlines()[0] if str(exc) else type(exc).__name__
    return DiffError(f"the changes could not be computed: {first_line}")
