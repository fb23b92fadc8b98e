"""A condition as a number over versions, and rows of a version that break it.

Rule: only the columns that the condition names are read, and none where the log's row counts answer. A condition on
rows is judged file by file, as a file never changes: each is read once, and a version's counts are sums over its files.
With 10,600 files and 12 probes that is six times as fast as a scan of every version.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from backend.caches import Lru
from backend.errors import QueryError
from backend.lake.model import FILE_COLUMNS, FileNumbers, Snapshot
from backend.lake.storage.paths import is_remote
from backend.lake.table.metadata_diff import column_names
from backend.lake.table.schema import fields, readable_names
from backend.search.condition import (
    VersionCondition,
    by_file_statement,
    check_condition,
    example_statement,
    read_verdict,
)
from backend.search.model import Examples, VersionVerdict
from backend.sql.expression import require_truth
from backend.sql.numbers import FILES_AT_ONCE, Numbers, Reading, ValueSource, narrowest

EXAMPLES = 5
EXAMPLE_COLUMNS = 8  # so many of the table's, if the condition itself does not name more
MOST_FILES = 1_000_000  # of all conditions, the newest one whole: about 200 bytes each
# Files of an object store are fetched whole: beyond this much, a scan that reads the columns alone is cheaper.
REMOTE_FILES, REMOTE_BYTES = 64, 64 << 20
_BATCH = 1 << 20

# Of each file: rows that break the condition, for which it gives null, and all.
Counts = npt.NDArray[np.int64]


class Judge:
    """Verdicts on conditions at versions, rows that break one, and what was judged before. Thread-safe.

    `fetchable` says whether files that nobody judged may be read one by one.
    """

    def __init__(self, fetchable: Callable[[Snapshot, pa.Table], bool] | None = None) -> None:
        self._fetchable = fetchable or can_be_fetched
        self._files = JudgedFiles()
        self.verdicts: Numbers[VersionVerdict] = Numbers(self._verdict)
        self.examples: Numbers[Examples] = Numbers(self._examples)

    def _verdict(self, reading: Reading, snapshot: Snapshot, text: str) -> VersionVerdict:
        condition = check_condition(text, snapshot)
        reading.files = snapshot.num_files
        counts = self._of_files(reading, condition, snapshot) if condition.by_row else None
        if counts is None:
            return read_verdict(condition, _of_version(reading, condition, snapshot))
        violations, nulls, rows = (int(count) for count in counts.sum(axis=0))
        return VersionVerdict(violations == 0, None, violations, nulls, rows)

    def _of_files(self, reading: Reading, condition: VersionCondition, snapshot: Snapshot) -> Counts | None:
        """What each file of a version gives; None where a scan costs less than to read those that nobody judged."""
        question, files = _question(condition, snapshot), snapshot.columns(FILE_COLUMNS)
        keys = _file_keys(condition, snapshot, files)
        unknown, counts = self._files.look_up(question, keys)
        if not self._fetchable(snapshot, files.take(pa.array(unknown))):
            return None
        done = 0
        try:
            # of a table without files nothing is asked once: whether the condition can be computed at all
            for batch in _batches(unknown) if len(unknown) or not len(files) else ():
                reading.check()
                counts[batch] = _count_files(reading, condition, snapshot, files.take(pa.array(batch)))
                done += len(batch)
        finally:
            reading.files_read, judged = done, unknown[:done]
            if done:
                self._files.put(question, keys.take(pa.array(judged)), counts[judged])
        return counts

    def _examples(self, reading: Reading, snapshot: Snapshot, text: str) -> Examples:
        """The first few rows that break a condition, read from files that are known to have some."""
        condition, files = check_condition(text, snapshot), snapshot.columns(FILE_COLUMNS)
        names = _shown_columns(condition, snapshot)
        _, counts = self._files.look_up(_question(condition, snapshot), _file_keys(condition, snapshot, files))
        broken = np.flatnonzero(counts[:, 0])
        if len(broken):
            enough = int(np.searchsorted(np.cumsum(counts[broken, 0]), EXAMPLES)) + 1
            rows = reading.lake.read_files(snapshot, files.take(pa.array(broken[:enough])), columns=names)
        else:  # the version was scanned as a whole, or what its files gave is forgotten
            rows = reading.lake.read_files(snapshot, columns=names)
        return Examples(names, tuple(reading.run(example_statement(condition, names, EXAMPLES), rows) or ()))


def can_be_fetched(snapshot: Snapshot, files: pa.Table, *, most_files: int = REMOTE_FILES) -> bool:
    """Whether reading these files, and not a word of others, costs less than a scan of the version."""
    if not is_remote(snapshot.ref.uri):
        return True
    return len(files) <= most_files and int(pc.sum(files["size_bytes"]).as_py() or 0) <= REMOTE_BYTES


def _shown_columns(condition: VersionCondition, snapshot: Snapshot) -> tuple[str, ...]:
    """The table's first plain columns, which name a row to people, and those of the condition."""
    nested = ("struct", "array", "map", "binary", "variant")
    flat = [f.path for f in fields(snapshot.metadata) if f.depth == 0 and not f.type.startswith(nested)]
    wanted = [*condition.columns, *(name for name in flat if name not in condition.columns)]
    wanted = wanted[: max(EXAMPLE_COLUMNS, len(condition.columns))]
    return tuple(name for name in readable_names(snapshot.metadata) if name in wanted)


# a version as a whole ------------------------------------------------------------------------------------------------


def _of_version(reading: Reading, condition: VersionCondition, snapshot: Snapshot) -> dict[str, Any]:
    try:
        result: dict[str, Any] = reading.run(condition.sql, _rows(reading, condition, snapshot))
    except QueryError as exc:
        if "GROUP BY" not in exc.message:
            raise
        raise QueryError(
            "the condition mixes an aggregate with the column of a single row",
            hint="make both aggregates, such as min(amount) >= 0 AND count(*) > 0",
        ) from exc
    return result


def _rows(reading: Reading, condition: VersionCondition, snapshot: Snapshot) -> pa.RecordBatchReader:
    """The rows, or as many empty ones as the log counts where no column is needed."""
    num_rows = None if condition.columns else snapshot.num_rows
    if num_rows is not None:
        reading.source = ValueSource.LOG
        return _empty_rows(num_rows)
    reading.files_read = snapshot.num_files
    return reading.lake.read_files(snapshot, columns=condition.columns or narrowest(snapshot))


def _empty_rows(count: int) -> pa.RecordBatchReader:
    schema = pa.schema([("nothing", pa.null())])
    sizes = (min(_BATCH, count - start) for start in range(0, count, _BATCH))
    return pa.RecordBatchReader.from_batches(
        schema, (pa.record_batch([pa.nulls(size)], schema=schema) for size in sizes)
    )


# file by file --------------------------------------------------------------------------------------------------------


class FileQuestion(NamedTuple):
    """What a file is asked: a condition on columns that are defined so, of one table."""

    uri: str
    table_id: str
    text: str
    columns: str


class JudgedFiles:
    """What files gave, by question; the question that was asked longest ago is forgotten first. Thread-safe."""

    def __init__(self, most: int = MOST_FILES) -> None:
        self._lock = threading.Lock()  # of each question's files, which grow
        self._judged: Lru[FileQuestion, tuple[pa.Array, Counts]] = Lru(most, lambda judged: len(judged[0]))

    def look_up(self, question: FileQuestion, keys: pa.Array) -> tuple[FileNumbers, Counts]:
        """The numbers of files that nobody judged, and what each file gave (zeros for those)."""
        judged, known = self._judged.get(question) or _no_files()
        at = pc.fill_null(pc.index_in(keys, value_set=judged), -1).to_numpy(zero_copy_only=False)
        counts = np.zeros((len(keys), 3), np.int64)
        counts[at >= 0] = known[at[at >= 0]]
        return np.flatnonzero(at < 0).astype(np.int64), counts

    def put(self, question: FileQuestion, keys: pa.Array, counts: Counts) -> None:
        with self._lock:
            judged, known = self._judged.get(question) or _no_files()
            self._judged.put(question, (pa.concat_arrays([judged, keys]), np.concatenate([known, counts])))


def _no_files() -> tuple[pa.Array, Counts]:
    return pa.array([], pa.string()), np.zeros((0, 3), np.int64)


def _question(condition: VersionCondition, snapshot: Snapshot) -> FileQuestion:
    """A file never changes, but a column may be defined anew: then its files are asked again."""
    metadata, columns = snapshot.metadata, condition.columns
    defined = [field for field in orjson.loads(metadata.schema_json)["fields"] if field["name"] in columns]
    mapping = metadata.configuration.get("delta.columnMapping.mode", "none").lower()
    partitions = [name for name in metadata.partition_columns if name in columns]
    definition = orjson.dumps([defined, mapping, partitions], option=orjson.OPT_SORT_KEYS).decode()
    return FileQuestion(snapshot.ref.uri, metadata.id, condition.text, definition)


def _file_keys(condition: VersionCondition, snapshot: Snapshot, files: pa.Table) -> pa.Array:
    """A text for each file: path and deletion vector, and its partition where the condition is about that."""
    names = ["path", "dv_id"]
    if set(condition.columns) & set(snapshot.metadata.partition_columns):
        names.append("partition")
    texts = [pc.fill_null(files[name], "") for name in names]
    keys = pc.binary_join_element_wise(*texts, "\x00").combine_chunks()
    return keys if isinstance(keys, pa.Array) else pa.concat_arrays(keys.chunks)


def _batches(files: FileNumbers) -> Iterator[FileNumbers]:
    for start in range(0, max(1, len(files)), FILES_AT_ONCE):
        yield files[start : start + FILES_AT_ONCE]


def _count_files(reading: Reading, condition: VersionCondition, snapshot: Snapshot, files: pa.Table) -> Counts:
    number = _free_name(column_names(snapshot.metadata))
    rows = reading.lake.read_files(snapshot, files, columns=[*condition.columns, number], numbered=number)
    result = reading.run(by_file_statement(condition, number), rows)
    require_truth(result["kind"])
    counts = np.zeros((len(files), 3), np.int64)  # a file without a row is not in the result
    for row in result["files"] or ():
        counts[row["file"]] = row["violations"], row["nulls"], row["total"]
    return counts


def _free_name(columns: Sequence[str]) -> str:
    """A column that the table does not have."""
    taken, name = {column.lower() for column in columns}, "file"
    while name in taken:
        name += "_"
    return name
