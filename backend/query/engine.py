"""DuckDB for SQL that a stranger wrote: no files, no network, no settings, bounded memory, stopped from outside.

Rule: a computation has a locked connection to itself; what it reads is the one Arrow stream handed in. Its errors leave
as `QueryError`, those of the stream as they are. A connection that ended well serves the next one, for making one takes
longer than most questions; one that did not is closed.
"""

import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from backend.errors import LakehouseError, QueryError
from backend.work import Interruptible, Stopped

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY_LIMIT = "1GB"
THREADS = 2
PIECE_ROWS, PIECE_BYTES = 16_384, 1 << 20
SLICE_BYTES = 16 << 20  # DuckDB does not count a vector's own texts: what is handed in at once bounds them
_CONFIG = {
    "memory_limit": MEMORY_LIMIT,
    "threads": THREADS,
    "temp_directory": "",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
}
IDLE = 2  # connections kept
_idle: "list[DuckDBPyConnection]" = []
_lock = threading.Lock()
_CARET = re.compile(r"^LINE \d+: (?P<shown>.*)\n(?P<blank> *)\^", re.MULTILINE)


class Computation(Interruptible):
    """One aggregate over one stream of rows; `stop` ends it from another thread."""

    def __init__(self, memory_limit: str = MEMORY_LIMIT) -> None:
        super().__init__()
        self.rows_read = 0
        self.memory_limit = memory_limit
        self._failure: LakehouseError | None = None

    def run(self, sql: str, rows: pa.RecordBatchReader) -> Any:
        """The one value of `sql` over the table `rows`; raises `QueryError`, the stream's error, or `Stopped`."""
        with _connected(self) as connection:
            self.take(connection)
            try:
                connection.register("rows", _handed(rows.schema, self._watched(rows)))
                found = connection.execute(sql).fetchall()
            finally:
                self.take(None)
            connection.unregister("rows")  # and with it whatever the stream holds
        if len(found) != 1:
            raise QueryError("the expression gives a value for each row", hint="use an aggregate such as sum(…)")
        return found[0][0]

    def _watched(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            for batch in rows:
                if self.is_stopped:
                    raise Stopped
                self.rows_read += batch.num_rows
                yield batch
        except LakehouseError as exc:
            self._failure = exc
            raise

    @property
    def failure(self) -> LakehouseError | None:
        """What the stream of rows failed with."""
        return self._failure


def _handed(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    """The rows in pieces that DuckDB takes well: neither few rows (each piece costs it most of a millisecond, and a
    table of small files has one for each) nor many bytes."""
    gathered = _gathered(batch for batch in batches if batch.num_rows)
    return pa.RecordBatchReader.from_batches(schema, (piece for batch in gathered for piece in _slices(batch)))


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        is_large = batch.num_rows >= PIECE_ROWS or batch.nbytes >= PIECE_BYTES
        if waiting and (is_large or rows >= PIECE_ROWS or size >= PIECE_BYTES):
            yield pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
        if is_large:
            yield batch
        else:
            waiting.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
    if waiting:
        yield pa.concat_batches(waiting)


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    step = max(1, SLICE_BYTES * batch.num_rows // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def parse_tree(sql: str) -> str:
    """DuckDB's own reading of a statement as JSON text; nothing is looked up or run."""
    import duckdb  # late: half a page load for whoever never asks

    with _lent(MEMORY_LIMIT) as connection:
        try:
            found = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
        except duckdb.Error as exc:
            raise QueryError(f"the expression cannot be read: {_first_line(exc)}") from exc
    return str(found[0][0])


@contextmanager
def _lent(memory_limit: str) -> Iterator["DuckDBPyConnection"]:
    """A locked connection that nobody else has; whoever fails with it does not give it back."""
    import duckdb

    with _lock:
        connection = _idle.pop() if _idle and memory_limit == MEMORY_LIMIT else None
    if connection is None:
        connection = duckdb.connect(":memory:", config=_CONFIG | {"memory_limit": memory_limit})
        _close_doors(connection)
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
    with _lock:
        if len(_idle) < IDLE and memory_limit == MEMORY_LIMIT:
            _idle.append(connection)
            return
    connection.close()


def _close_doors(connection: "DuckDBPyConnection") -> None:
    """No file, no network, no setting from here on; the settings themselves have to come first."""
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


@contextmanager
def _connected(job: Computation) -> Iterator["DuckDBPyConnection"]:
    import duckdb

    try:
        with _lent(job.memory_limit) as connection:
            yield connection
    except duckdb.OutOfMemoryException as exc:
        raise QueryError(
            f"the expression needs more than {job.memory_limit} of memory", hint="count fewer distinct values"
        ) from exc
    except duckdb.Error as exc:
        if job.is_stopped:
            raise Stopped from exc
        if job.failure is not None:
            raise job.failure from exc
        raise not_computed(exc, "the expression") from exc


def not_computed(exc: Exception, what: str) -> QueryError:
    """What the rows or their types make impossible of SQL that may run, as DuckDB says it."""
    return QueryError(f"{what} cannot be computed: {_first_line(exc)}", hint=_hint(exc), position=_caret(exc))


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
    return "try a part of it by itself, or over fewer columns"


def _caret(exc: Exception) -> int | None:
    """Where DuckDB's caret points in the second line of the statement, which is the expression's first."""
    match = _CARET.search(str(exc))
    if match is None or not match[0].startswith("LINE 2: ") or "..." in match["shown"]:
        return None
    return max(0, len(match["blank"]) - len("LINE 2: "))
