"""DuckDB for one computation: bounded memory, spill to a folder of its own, no extension, no network, stopped from
outside.

Rule: the only door to duckdb in the diff; its errors leave as `DiffError`, those of what it reads as they are.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from backend.errors import DiffError, LakehouseError
from backend.work import Interruptible

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY_LIMIT = "512MB"
THREADS = 2


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

    def check(self) -> None:
        """Raise `DiffStopped`, or `DiffError` when the time is over."""
        if self.is_stopped:
            raise DiffStopped
        if self.time_limit_s is not None and time.monotonic() - self._started > self.time_limit_s:
            raise DiffError(
                f"comparing rows took longer than {self.time_limit_s:.0f} s and was stopped",
                hint="compare a shorter range or fewer columns, or raise WEIR_LAKE__DIFF_TIME_LIMIT_S",
            )

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


@contextmanager
def engine(watch: Watch) -> Iterator["DuckDBPyConnection"]:
    """A fresh in-memory database, gone with its spill files at the end."""
    import duckdb  # late: half a page load for whoever never diffs

    with tempfile.TemporaryDirectory(prefix="weir-diff-") as spill:
        connection = duckdb.connect(
            ":memory:",
            config={
                "memory_limit": MEMORY_LIMIT,
                "threads": THREADS,
                "temp_directory": spill,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "preserve_insertion_order": False,
            },
        )
        try:
            connection.execute("SET TimeZone = 'UTC'")
            watch.take(connection)
            watch.check()
            yield connection
        except duckdb.Error as exc:
            raise _error(exc, watch, full=isinstance(exc, duckdb.OutOfMemoryException)) from exc
        finally:
            watch.take(None)
            connection.close()


def close_doors(connection: "DuckDBPyConnection") -> None:
    """Before SQL that a stranger wrote: no file, no network, no setting from here on."""
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _error(exc: Exception, watch: Watch, *, full: bool) -> Exception:
    if watch.is_stopped:
        return DiffStopped()
    if failure := watch.take_failure():
        return failure
    if full:
        what = f"the changes do not fit into {MEMORY_LIMIT} of memory and the disk"
        return DiffError(what, hint="compare a shorter range or fewer columns")
    first_line = str(exc).splitlines()[0] if str(exc) else type(exc).__name__
    return DiffError(f"the changes could not be computed: {first_line}")
