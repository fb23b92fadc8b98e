"""Rows of a version: exactly these files, or the first that a filter lets through.

Rule: of a million files only those are opened that the filter cannot rule out and the limit needs; what was not
searched is said, and a total is exact or unknown.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backend.lake.model import FILE_COLUMNS, FileNumbers, RowPage, Snapshot
from backend.lake.rows import scan
from backend.lake.rows.filters import Node, predicate_sql
from backend.lake.rows.log_subset import log_subset
from backend.lake.rows.pruning import FEW_FILES, may_match
from backend.lake.storage.paths import is_remote
from backend.lake.storage.storage import Storage
from backend.lake.table.schema import fields

# A search opens few files first, for most find enough in them, then ever more at once: each opening has its price.
FIRST_FILES, MOST_AT_ONCE, GROWTH = 8, 512, 4
SEARCH_FILES, SEARCH_S = 2_000, 10.0
GROUP_BYTES = 256 * 10**6  # of files that are read whole: whoever ends the reading waits for one group at most


@dataclass(frozen=True, slots=True)
class RowQuery:
    """`search_files` bounds how many files one search opens (None: no bound by files or by time). Up to `few_files` are
    opened without a look at their statistics."""

    columns: tuple[str, ...] | None = None
    where: Node | None = None
    limit: int = 100
    search_files: int | None = SEARCH_FILES
    few_files: int = FEW_FILES


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows of a search. `candidates`: files that the filter cannot rule out; `files_read` of them were opened.

    None for both: the table was read as a whole (an object store), and nothing is known of its files.
    """

    page: RowPage
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
    files: pa.Table,
    *,
    columns: Sequence[str] | None = None,
    where: Node | None = None,
    as_of: Snapshot | None = None,
    numbered: str | None = None,
) -> pa.RecordBatchReader:
    """Rows of files (columns `FILE_COLUMNS`) of a snapshot, as any Delta reader gives them: deletion vectors applied,
    columns by their names (of `as_of`'s schema where given), partition values typed; in the column `numbered`, if it is
    asked for, the file's number in `files`. Files on an object store are fetched first, so ask for few. Raises what
    `log_subset` raises."""
    predicate, wanted = predicate_sql(where) if where else None, files.select(FILE_COLUMNS)
    with ExitStack() as stack:
        folder = stack.enter_context(log_subset(storage, snapshot, wanted, as_of=as_of, numbered=numbered))
        reader = scan.scan(folder, snapshot.ref.uri, columns=columns, predicate=predicate)
        if not is_remote(snapshot.ref.uri):
            return reader
        return pa.RecordBatchReader.from_batches(reader.schema, _closing(reader, stack.pop_all()))


def _closing(reader: pa.RecordBatchReader, stack: ExitStack) -> Iterator[pa.RecordBatch]:
    """The fetched files go when the last row was read."""
    with stack:
        yield from reader


def find_rows(storage: Storage, snapshot: Snapshot, query: RowQuery) -> FoundRows:
    """At most `query.limit` rows of a version; raises `DataFileMissingError` when a data file is gone."""
    if not snapshot.num_files and not fields(snapshot.metadata):  # deltalake opens no table without a schema
        return FoundRows(RowPage(pa.table({}), truncated=False, total_rows=0), 0, None, None)
    if is_remote(snapshot.ref.uri) or not snapshot.num_files:
        return _whole_table(storage, snapshot, query)
    candidates = np.arange(snapshot.num_files)
    if query.where is not None:
        candidates = may_match(query.where, snapshot, few_files=query.few_files)
    batches: list[pa.RecordBatch] = []
    found, read, started = 0, 0, time.monotonic()
    schema = read_files(storage, snapshot, _files_at(snapshot, candidates[:0]), columns=query.columns).schema
    for batch_files in _batches(snapshot, candidates, query):
        files = _files_at(snapshot, batch_files)
        reader = read_files(storage, snapshot, files, columns=query.columns, where=query.where)
        for batch in reader:
            batches.append(batch)
            found += batch.num_rows
            if found > query.limit:
                break
        read += len(batch_files)
        if found > query.limit or time.monotonic() - started > _patience_s(query):
            break
    rows = pa.Table.from_batches(batches, schema=schema).slice(0, query.limit)
    truncated = found > query.limit or read < len(candidates)
    return FoundRows(_page(snapshot, query, rows, truncated=truncated), snapshot.num_files, len(candidates), read)


def all_rows(
    storage: Storage, snapshot: Snapshot, *, columns: Sequence[str], where: Node | None = None
) -> pa.RecordBatchReader:
    """Every row of a version that a filter lets through; files are opened some at a time, none before the ones in front
    were read. Raises what `read_files` raises."""
    if is_remote(snapshot.ref.uri):
        predicate, options = predicate_sql(where) if where else None, storage.options(snapshot.ref.uri)
        return scan.scan_version(
            snapshot.ref.uri, snapshot.version, columns=columns, options=options, predicate=predicate
        )
    groups = list(_groups(snapshot, candidates(snapshot, where)))
    read = partial(read_files, storage, snapshot, columns=columns, where=where)
    first = read(_files_at(snapshot, groups[0]))  # whatever keeps rows from being read is known here
    rest = chain.from_iterable(read(_files_at(snapshot, group)) for group in groups[1:])
    return pa.RecordBatchReader.from_batches(first.schema, chain(first, rest))


def candidates(snapshot: Snapshot, where: Node | None) -> FileNumbers:
    """The files that a filter cannot rule out."""
    return np.arange(snapshot.num_files) if where is None else may_match(where, snapshot)


def _groups(snapshot: Snapshot, numbers: FileNumbers) -> Iterator[FileNumbers]:
    """At least one group: without a file there is still a schema."""
    sizes = np.cumsum(snapshot.columns(["size_bytes"])["size_bytes"].to_numpy()[numbers])
    start = 0
    while start < len(numbers):
        before = sizes[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(sizes, before + GROUP_BYTES, side="right")))
        end = min(end, start + MOST_AT_ONCE)
        yield numbers[start:end]
        start = end
    if not len(numbers):
        yield numbers


def _files_at(snapshot: Snapshot, numbers: FileNumbers) -> pa.Table:
    return snapshot.rows_at(numbers, FILE_COLUMNS)


def _patience_s(query: RowQuery) -> float:
    """How long one search may go on: longer for one that may open more files."""
    return math.inf if query.search_files is None else SEARCH_S * max(1.0, query.search_files / SEARCH_FILES)


def _page(snapshot: Snapshot, query: RowQuery, rows: pa.Table, *, truncated: bool) -> RowPage:
    total = snapshot.num_rows if query.where is None else None
    return RowPage(rows, truncated, total if truncated else rows.num_rows)


def _whole_table(storage: Storage, snapshot: Snapshot, query: RowQuery) -> FoundRows:
    """The plain way, for object stores: deltalake opens the table itself."""
    rows, truncated = scan.read_rows(
        snapshot.ref.uri,
        snapshot.version,
        columns=query.columns,
        limit=query.limit,
        options=storage.options(snapshot.ref.uri),
        predicate=predicate_sql(query.where) if query.where else None,
    )
    return FoundRows(_page(snapshot, query, rows, truncated=truncated), snapshot.num_files, None, None)


def _batches(snapshot: Snapshot, candidates: FileNumbers, query: RowQuery) -> Iterator[FileNumbers]:
    """Batches of the candidates: without a filter as many as the limit needs by their row counts, else growing."""
    at = 0
    if query.where is None:
        at = _files_needed(snapshot, query.limit)
        yield candidates[:at]
    bound = len(candidates) if query.search_files is None else min(len(candidates), at + query.search_files)
    size = FIRST_FILES
    while at < bound:
        yield candidates[at : min(at + size, bound)]
        at, size = at + size, min(size * GROWTH, MOST_AT_ONCE)


def _files_needed(snapshot: Snapshot, limit: int) -> int:
    """How many files from the first hold more than `limit` live rows; at most `MOST_AT_ONCE`, fewer where a count is
    unknown."""
    files = snapshot.columns(["num_records", "deleted_rows"])
    counts = pc.subtract(files["num_records"], files["deleted_rows"]).slice(0, MOST_AT_ONCE)
    live = np.cumsum(pc.fill_null(counts, 0).to_numpy())
    enough = int(np.searchsorted(live, limit, side="right")) + 1
    return min(enough, len(live), MOST_AT_ONCE)
