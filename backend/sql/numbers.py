"""Numbers over versions: one value of each of some versions of a table, computed in a thread that whoever waits can
leave.

Rule: progress is told ten times a second; leaving ends the work at once for the caller, and the thread as soon as its
computation can be stopped. A version that fails keeps its reason and hides no other. As a version never changes, its
value is computed once.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from backend.caches import Lru
from backend.errors import LakehouseError, QueryError
from backend.lake.files.stats import ColumnTotals, column_totals
from backend.lake.model import FileReader, Snapshot, SnapshotReader, TableRef
from backend.lake.table.schema import fields, readable_names
from backend.sql.expression import Expression, check_expression
from backend.sql.session import Computation
from backend.work import Stopped, Work, still_runs

MOST_VALUES = 20_000
FILES_AT_ONCE = 512

Key = tuple[str, str, int, str]
Value = TypeVar("Value")


class ScannedLake(SnapshotReader, FileReader, Protocol):
    """The part of `backend.lake.lake.Lake` that the rows of a version need."""


class ValueSource(StrEnum):
    """What a value rests on."""

    ROWS = "rows"
    LOG = "log"  # what the log counts: no row was needed
    KEPT = "kept"  # computed before


class Reading:
    """The work on one version: what it has read so far (`files` is None where nobody counted them), and the way to end
    it. `bytes_read` are values in memory, decompressed."""

    def __init__(self, lake: ScannedLake) -> None:
        self.lake = lake
        self.source = ValueSource.ROWS
        self.files: int | None = None
        self.files_read = 0
        self.bytes_read = 0
        self._computation = Computation()

    @property
    def rows_read(self) -> int:
        return 0 if self.source is ValueSource.LOG else self._computation.rows_read

    def stop(self) -> None:
        """Ends a computation; a log is read to its end, with nobody waiting."""
        self._computation.stop()

    def check(self) -> None:
        """Raise `Stopped` where nobody waits any more."""
        if self._computation.is_stopped:
            raise Stopped

    def run(self, sql: str, rows: pa.RecordBatchReader) -> Any:
        """The one value of a statement over `rows`; raises as `Computation.run` does."""

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                self.bytes_read += batch.nbytes
                yield batch

        return self._computation.run(sql, pa.RecordBatchReader.from_batches(rows.schema, batches()))


@dataclass(frozen=True, slots=True)
class VersionValue(Generic[Value]):
    """The value of one version, or the `error` that it failed with; and what was read for it. `table_id`: of the table
    that lay there at that version, None where that is not known."""

    version: int
    value: Value | None = None
    error: LakehouseError | None = None
    source: ValueSource = ValueSource.ROWS
    files: int | None = None
    files_read: int = 0
    rows_read: int = 0
    bytes_read: int = 0
    table_id: str | None = None

    @property
    def problem(self) -> str | None:
        return self.error.message if self.error else None


@dataclass(frozen=True, slots=True)
class NumbersProgress(Generic[Value]):
    """How far it is: `values` oldest first, the version in work and the rows read of it."""

    values: tuple[VersionValue[Value], ...]
    total: int
    version: int | None = None
    rows_read: int = 0

    @property
    def is_done(self) -> bool:
        return len(self.values) >= self.total


class Numbers(Generic[Value]):
    """Values of one kind by version and by what was asked, each computed once. Thread-safe.

    `compute` gets the version and what is asked of it. `check` raises where that is refused, before anything is read.
    """

    def __init__(
        self,
        compute: Callable[[Reading, Snapshot, str], Value],
        *,
        check: Callable[[Snapshot, str], object] | None = None,
        most: int = MOST_VALUES,
    ) -> None:
        self._compute, self._check = compute, check
        self._values: Lru[Key, tuple[Value, str]] = Lru(most)  # with the id of the table that it is of

    def over(
        self, lake: ScannedLake, ref: TableRef, asked: str, versions: Sequence[int]
    ) -> Generator[NumbersProgress[Value], None, None]:
        """Compute what is asked at each version, oldest first; close the iterator to cancel.

        Raises at once what `check` raises of the newest of the versions, and later as `still_runs` does.
        """
        wanted = sorted(set(versions))
        if wanted and self._check:
            self._check(lake.snapshot(ref, wanted[-1]), asked)
        return self._each(lake, ref, asked, wanted)

    def known(self, snapshot: Snapshot, asked: str, versions: Sequence[int]) -> tuple[VersionValue[Value], ...]:
        """What was computed before of these versions of the snapshot's table, in their order; where the snapshot is the
        latest, of the tables that it replaced too."""
        values = self._values.find(_key(snapshot, version, asked) for version in versions)
        return tuple(
            VersionValue(version, value, source=ValueSource.KEPT, table_id=table_id)
            for (_, _, version, _), (value, table_id) in values.items()
        )

    def _each(
        self, lake: ScannedLake, ref: TableRef, asked: str, versions: Sequence[int]
    ) -> Generator[NumbersProgress[Value], None, None]:
        values: tuple[VersionValue[Value], ...] = ()
        for version in versions:
            yield NumbersProgress(values, len(versions), version)
            reading = Reading(lake)
            with Work(partial(self._value, reading, ref, version, asked), reading.stop) as work:
                while still_runs(work, f"version {version}"):
                    yield NumbersProgress(values, len(versions), version, reading.rows_read)
            values = (*values, work.result())
        yield NumbersProgress(values, len(versions))

    def _value(self, reading: Reading, ref: TableRef, version: int, asked: str) -> VersionValue[Value]:
        value, error, table_id = None, None, None
        try:
            snapshot = reading.lake.snapshot(ref, version)
            table_id = snapshot.metadata.id
            kept = self._values.get(_key(snapshot, version, asked))
            reading.source = reading.source if kept is None else ValueSource.KEPT
            value = self._compute(reading, snapshot, asked) if kept is None else kept[0]
            self._keep(reading.lake, snapshot, asked, value)
        except Stopped:
            error = LakehouseError("stopped")
        except LakehouseError as exc:
            error = _without_frames(exc)
        files, rows, size = reading.files_read, reading.rows_read, reading.bytes_read
        return VersionValue(version, value, error, reading.source, reading.files, files, rows, size, table_id)

    def _keep(self, lake: ScannedLake, snapshot: Snapshot, asked: str, value: Value) -> None:
        """By the table's id then, and by the one that it has now: a CREATE OR REPLACE gives it another."""
        named = [snapshot]
        with suppress(LakehouseError):  # a latest version that cannot be read keeps nobody from the others
            named.append(lake.snapshot(snapshot.ref))
        kept = value, snapshot.metadata.id
        self._values.put_all({_key(each, snapshot.version, asked): kept for each in named})


def _key(snapshot: Snapshot, version: int, asked: str) -> Key:
    # with the table's id: another table may be made under the same path
    return snapshot.ref.uri, snapshot.metadata.id, version, asked


def _without_frames(exc: LakehouseError) -> LakehouseError:
    """The same error without what led to it, which would keep a connection alive."""
    if isinstance(exc, QueryError):
        return QueryError(exc.message, hint=exc.hint, position=exc.position)
    return LakehouseError(exc.message, hint=exc.hint)


# the numbers that a page shows: an SQL aggregate over the rows, a column's statistics --------------------------------


def aggregates() -> Numbers[Any]:
    """SQL aggregates, which read only the columns that they name."""
    return Numbers(_aggregate, check=_checked)


def column_numbers() -> Numbers[ColumnTotals]:
    """What columns hold by the log's statistics: no data file is opened."""
    return Numbers(lambda _, snapshot, column: column_totals(snapshot, [column])[0])


def _aggregate(reading: Reading, snapshot: Snapshot, text: str) -> Any:
    expression = _checked(snapshot, text)
    rows = reading.lake.read_files(snapshot, columns=expression.columns or narrowest(snapshot))
    value = reading.run(expression.sql, rows)
    if isinstance(value, list | dict | tuple):
        raise QueryError("the expression gives a list or a struct, not one value")
    return value


def _checked(snapshot: Snapshot, text: str) -> Expression:
    return check_expression(text, list(readable_names(snapshot.metadata)))


# rows and versions ---------------------------------------------------------------------------------------------------


def narrowest(snapshot: Snapshot) -> tuple[str, ...]:
    """The cheapest column to count rows by: a partition column, else the first that is not nested."""
    if snapshot.metadata.partition_columns:
        return snapshot.metadata.partition_columns[:1]
    names = readable_names(snapshot.metadata)
    top = [field for field in fields(snapshot.metadata) if field.depth == 0 and field.path in names]
    flat = [field for field in top if not field.type.startswith(("struct", "array", "map"))]
    return tuple(field.path for field in (flat or top)[:1])


def spread(spans: Sequence[tuple[int, int]], most: int, *, within: tuple[int, int] | None = None) -> tuple[int, ...]:
    """At most `most` versions out of runs (first, last), evenly spread, the first and the last always among them."""
    low, high = within or (0, max((last for _, last in spans), default=0))
    runs = (range(max(first, low), min(last, high) + 1) for first, last in spans)
    versions = [version for run in runs for version in run]
    if len(versions) <= most:
        return tuple(versions)
    places = [round(number * (len(versions) - 1) / (most - 1)) for number in range(most)] if most > 1 else [-1]
    return tuple(dict.fromkeys(versions[place] for place in places))
