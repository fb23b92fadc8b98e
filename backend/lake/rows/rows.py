"""Rows of a version: exactly these files, or the first that a filter lets through.

Rule: of a million files only those are opened that the filter cannot rule out and the limit needs; what was not
searched is said, and a total is exact or unknown.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backend.caches import Lru
from backend.errors import DataFileMissingError
from backend.lake.files.footer import parquet_errors
from backend.lake.history.change_feed import feed_files, require_files, require_plain_files
from backend.lake.log.commits import CommitSlice
from backend.lake.model import FILE_COLUMNS, FileNumbers, Snapshot
from backend.lake.rows.filters import (
    FEW_FILES,
    AnyOf,
    FilterColumn,
    RowFilter,
    Test,
    may_match,
    misread_partitions,
)
from backend.lake.rows.log_subset import feed_subset, files_at_once, files_on_disk, log_subset
from backend.lake.storage.folder import is_remote
from backend.lake.storage.storage import Storage, TableFiles
from backend.lake.table.misreadings import goes_by_id, misspelled, old_calendar, perhaps_misspelled
from backend.lake.table.properties import ROW_FEATURES
from backend.lake.table.schema import columns as schema_columns
from backend.lake.table.schema import has_decimals, read_schema

# A search opens few files first, for most find enough in them, then ever more at once: each opening has its price.
FIRST_FILES, MOST_AT_ONCE, GROWTH = 8, 512, 4
SEARCH_FILES, SEARCH_S = 2_000, 10.0
LOOKS_AT_ONCE = 8  # into footers on an object store
_NEW_SINCE = {"date": date(1582, 10, 15), "timestamp": datetime(1900, 1, 1, tzinfo=UTC)}
_is_misread: Lru[tuple[str, str, int], bool] = Lru(256)  # versions of tables on object stores
_COMMITTED = pa.timestamp("ms", tz="UTC")
GROUP_BYTES = 256 * 10**6  # of files that are read whole: whoever ends the reading waits for one group at most


@dataclass(frozen=True, slots=True)
class RowQuery:
    """`search_files` bounds how many files one search opens (None: no bound by files or by time). Up to `few_files` are
    opened without a look at their statistics. `check` is called with each batch, and raises to end the search."""

    columns: tuple[str, ...] | None = None
    where: RowFilter | None = None
    limit: int = 100
    search_files: int | None = SEARCH_FILES
    few_files: int = FEW_FILES
    check: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class RowPage:
    """The first rows of a search. `truncated`: there are or may be more; `total_rows` is the exact count when it is
    known.

    `candidates`: of the version's `files` those that the filter cannot rule out; `files_read` of them were opened. None
    for both: the table was read as a whole (an object store), and nothing is known of its files.
    """

    rows: pa.Table
    truncated: bool
    total_rows: int | None
    files: int
    candidates: int | None
    files_read: int | None

    @property
    def files_left(self) -> int:
        """Files that may hold more such rows and were not opened."""
        if self.candidates is None or self.files_read is None:
            return 0
        return self.candidates - self.files_read


def read_files(
    storage: Storage,
    snapshot: Snapshot,
    files: pa.Table | None = None,
    *,
    columns: Sequence[str] | None = None,
    where: RowFilter | None = None,
    as_of: Snapshot | None = None,
    numbered: str | None = None,
) -> pa.RecordBatchReader:
    """Rows as any Delta reader gives them, batch by batch: deletion vectors applied, columns by their names (of
    `as_of`'s schema where given), partition values typed.

    `files` (columns `FILE_COLUMNS`) are some of the snapshot's; None for all that the filter cannot rule out, of which
    none is opened before the ones in front were read. The column `numbered`, if it is asked for, gives each row its
    file's number in `files`. Files on an object store are fetched first, so ask for few. Raises what `log_subset`
    raises."""
    reads = None
    if columns is not None:
        needed = where.check.columns if where is not None and where.check is not None else ()
        reads = list(dict.fromkeys((*columns, *needed)))
    predicate = None if where is None else where.predicate(snapshot.metadata.partition_columns)
    if files is not None:
        size = files_at_once()
        read = partial(_read_some, storage, snapshot, what=(reads, predicate), as_of=as_of)
        reader = _chained(
            read(files.slice(start, size), numbered=None if numbered is None else (numbered, start))
            for start in range(0, max(1, len(files)), size)
        )
    elif (
        is_remote(snapshot.ref.uri)
        and not _is_odd(snapshot)
        and not _is_misread.get_or_make(
            (snapshot.ref.uri, snapshot.metadata.id, snapshot.version), lambda: _has_misread_files(storage, snapshot)
        )
    ):
        from backend.lake.rows import scan

        uri, version, options = snapshot.ref.uri, snapshot.version, storage.options(snapshot.ref.uri)
        predicate = None if where is None else where.predicate(misread_partitions(snapshot))
        reader = scan.scan(uri, uri, columns=reads, predicate=predicate, version=version, options=options)
    else:
        groups = [_files_at(snapshot, group) for group in _groups(snapshot, candidates(snapshot, where))]
        reader = _chained(_read_some(storage, snapshot, group, (reads, predicate)) for group in groups)
    if where is None or where.check is None:
        return reader
    shown = reader.schema.names if columns is None else list(columns)
    batches = (batch.select(shown) for batch in where.check.passing(reader))
    return pa.RecordBatchReader.from_batches(pa.schema([reader.schema.field(name) for name in shown]), batches)


def _chained(readers: Iterator[pa.RecordBatchReader]) -> pa.RecordBatchReader:
    """One behind the other; whatever keeps the first from being read is known here."""
    first = next(readers)
    return pa.RecordBatchReader.from_batches(first.schema, chain(first, chain.from_iterable(readers)))


def _read_some(
    storage: Storage,
    snapshot: Snapshot,
    files: pa.Table,
    what: tuple[Sequence[str] | None, str | None],
    *,
    as_of: Snapshot | None = None,
    numbered: tuple[str, int] | None = None,
) -> pa.RecordBatchReader:
    """`what`: columns, and the predicate of the reader."""
    from backend.lake.rows import scan  # late: what DuckDB reads needs no deltalake

    columns, predicate = what
    with ExitStack() as stack:
        on_disk = stack.enter_context(files_on_disk(storage, snapshot.ref.uri))
        some = files.select(FILE_COLUMNS)
        folder = log_subset(on_disk, snapshot, some, as_of=as_of, numbered=numbered, columns=columns)
        reader = scan.scan(folder, snapshot.ref.uri, columns=columns, predicate=predicate)
        return pa.RecordBatchReader.from_batches(reader.schema, _closing(reader, stack.pop_all()))


def _is_odd(snapshot: Snapshot) -> bool:
    """Whether rows are read with another log than the table's: its schema, its reader features, texts of decimals; or
    columns found by field ids."""
    metadata = snapshot.metadata
    return (
        goes_by_id(metadata)
        or read_schema(metadata.schema_json).json != metadata.schema_json
        or not ROW_FEATURES.issuperset(snapshot.protocol.reader_features)
        or has_decimals(metadata)
    )


def _has_misread_files(storage: Storage, snapshot: Snapshot) -> bool:
    """Whether a file counts days in the old calendar, or writes names in another case: a look into those of which
    statistics leave it open."""
    numbers = np.union1d(_perhaps_old(snapshot), perhaps_misspelled(snapshot))
    files, table = TableFiles(storage, snapshot.ref.uri), snapshot.ref.uri

    def is_misread(path: str) -> bool:
        try:
            with files.open(path) as source, parquet_errors(path, table):
                return old_calendar(source, path) is not None or misspelled(source, snapshot.metadata) is not None
        except DataFileMissingError:  # whoever reads it says so; a filter may leave it out
            return False

    with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
        return any(pool.map(is_misread, _files_at(snapshot, numbers)["path"].to_pylist()))


def _perhaps_old(snapshot: Snapshot) -> FileNumbers:
    """The files of which statistics do not say that all their days are new."""
    times = [column for column in schema_columns(snapshot.metadata) if column.kind in _NEW_SINCE]
    if any(column.in_collection for column in times):
        return np.arange(snapshot.num_files)
    old = AnyOf(tuple(Test(FilterColumn(c.names, c.kind), "<", _NEW_SINCE[c.kind]) for c in times))
    return may_match(old, snapshot, few_files=0) if times else np.arange(0)


def _closing(reader: pa.RecordBatchReader, stack: ExitStack) -> Iterator[pa.RecordBatch]:
    """The files are let go when the last row was read."""
    with stack:
        yield from reader


def read_changes(
    storage: Storage,
    snapshot: Snapshot,
    commits: Sequence[CommitSlice],
    times: Mapping[int, datetime | None],
    *,
    columns: Sequence[str] | None = None,
) -> pa.RecordBatchReader:
    """The change feed of consecutive commits, the last of which is the snapshot's, as `scan.scan_changes` gives it, but
    for the commits' own `times`: its reader knows what writers reported. Raises `DataFileMissingError`, and
    `UnsupportedFeatureError` where its reader would misread a time or a name."""
    from backend.lake.rows import scan

    paths = [path for commit in commits for path in feed_files(commit.actions)["path"].to_pylist()]
    require_files(storage, snapshot, paths)
    require_plain_files(storage, snapshot, paths)
    uri, first = snapshot.ref.uri, snapshot.version - len(commits) + 1
    moments = pa.array([times.get(first + at) for at in range(len(commits))], _COMMITTED)
    if is_remote(uri):
        reader = scan.scan_changes(uri, uri, (first, snapshot.version), columns=columns, options=storage.options(uri))
        return _committed(reader, reader.schema, moments, read_first=first, first=first)

    def read(start: int, end: int) -> pa.RecordBatchReader:
        with ExitStack() as stack:
            on_disk = stack.enter_context(files_on_disk(storage, uri, is_for_many=True))
            folder = feed_subset(on_disk, snapshot, commits[start:end])
            reader = scan.scan_changes(folder, uri, (1, end - start), columns=columns)
            batches = _closing(reader, stack.pop_all())
            return _committed(batches, reader.schema, moments[start:end], read_first=1, first=first + start)

    counts = np.cumsum([feed_files(commit.actions).num_rows for commit in commits])
    return _chained(read(start, end) for start, end in _runs(counts, files_at_once()))


def _committed(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, moments: pa.Array, *, read_first: int, first: int
) -> pa.RecordBatchReader:
    """Changes with their commits' versions, of which `first` was read as `read_first`, and times."""
    version, moment = map(schema.get_field_index, ("_commit_version", "_commit_timestamp"))
    kind, schema = schema.field(version).type, schema.set(moment, pa.field("_commit_timestamp", _COMMITTED))

    def committed() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = pc.subtract(batch.column(version), pa.scalar(read_first, kind))
            columns = batch.columns
            columns[version] = pc.add(numbers, pa.scalar(first, kind))
            columns[moment] = moments.take(numbers)
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, committed())


def find_rows(storage: Storage, snapshot: Snapshot, query: RowQuery) -> RowPage:
    """At most `query.limit` rows of a version; raises `DataFileMissingError` when a data file is gone."""
    if not snapshot.num_files and not schema_columns(snapshot.metadata):  # deltalake opens no table without a schema
        return RowPage(pa.table({}), False, 0, 0, None, None)
    is_whole = is_remote(snapshot.ref.uri) or not snapshot.num_files  # then deltalake opens the table itself
    possible = np.arange(0) if is_whole else candidates(snapshot, query.where, few_files=query.few_files)
    read = partial(read_files, storage, snapshot, columns=query.columns, where=query.where)
    groups = [None] if is_whole else _batches(snapshot, possible, query)
    patience_s = math.inf  # longer for a search that may open more files
    if query.search_files is not None:
        patience_s = SEARCH_S * max(1.0, query.search_files / SEARCH_FILES)
    batches: list[pa.RecordBatch] = []
    num_rows, num_read, started = 0, 0, time.monotonic()
    for numbers in groups:
        reader = read(None if numbers is None else _files_at(snapshot, numbers))
        query.check()
        for batch in reader:
            query.check()
            batches.append(batch)
            num_rows += batch.num_rows
            if num_rows > query.limit:
                break
        num_read += 0 if numbers is None else len(numbers)
        if num_rows > query.limit or time.monotonic() - started > patience_s:
            break
    rows = pa.Table.from_batches(batches, schema=reader.schema).slice(0, query.limit)
    truncated = num_rows > query.limit or num_read < len(possible)
    total = rows.num_rows if not truncated else snapshot.num_rows if query.where is None else None
    read_of = (None, None) if is_whole else (len(possible), num_read)
    return RowPage(rows, truncated, total, snapshot.num_files, *read_of)


def candidates(snapshot: Snapshot, where: RowFilter | None, *, few_files: int = FEW_FILES) -> FileNumbers:
    """The files that a filter cannot rule out."""
    if where is None or where.terms is None:
        return np.arange(snapshot.num_files)
    return may_match(where.terms, snapshot, few_files=few_files)


def _groups(snapshot: Snapshot, numbers: FileNumbers) -> Iterator[FileNumbers]:
    """At least one group: without a file there is still a schema."""
    sizes = np.cumsum(snapshot.columns(["size_bytes"])["size_bytes"].to_numpy()[numbers])
    for start, end in _runs(sizes, GROUP_BYTES):
        yield numbers[start:end]
    if not len(numbers):
        yield numbers


def _runs(sums: FileNumbers, most: int) -> Iterator[tuple[int, int]]:
    """Where runs begin and end that add up to at most so much, by the sums so far: at least one in each, and
    at most as many as may be open at once."""
    start, longest = 0, files_at_once()
    while start < len(sums):
        before = sums[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(sums, before + most, side="right")))
        end = min(end, start + longest)
        yield start, end
        start = end


def _files_at(snapshot: Snapshot, numbers: FileNumbers) -> pa.Table:
    return snapshot.rows_at(numbers, FILE_COLUMNS)


def _batches(snapshot: Snapshot, candidates: FileNumbers, query: RowQuery) -> Iterator[FileNumbers]:
    """Batches of the candidates: without a filter as many as the limit needs by their row counts, else growing. At
    least one: without a file there is still a schema."""
    at = 0
    if query.where is None:  # so many that they hold more live rows than the limit; fewer where a count is unknown
        files = snapshot.columns(["num_records", "deleted_rows"])
        counts = pc.subtract(files["num_records"], files["deleted_rows"]).slice(0, MOST_AT_ONCE)
        live = np.cumsum(pc.fill_null(counts, 0).to_numpy())
        at = min(int(np.searchsorted(live, query.limit, side="right")) + 1, len(live))
        yield candidates[:at]
    bound = len(candidates) if query.search_files is None else min(len(candidates), at + query.search_files)
    if not bound:
        yield candidates[:0]
    size = FIRST_FILES
    while at < bound:
        yield candidates[at : min(at + size, bound)]
        at, size = at + size, min(size * GROWTH, MOST_AT_ONCE)
