"""The rows that tell two states apart: those of the files that only one of them has.

Rule: a file that both states have (path and deletion vector) is not opened. Old files are read with the newer schema,
as Delta reads them today (column mapping, added columns, wider types); where that cannot be, each side with its own.
DuckDB reads files of this machine itself where it can, else deltalake does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from backend.changes.compare import SIGN, Sides
from backend.changes.model import ROW_ID
from backend.errors import DiffError, UnsupportedFeatureError
from backend.lake.files.file_difference import DIFFERENCE_COLUMNS, FileDifference
from backend.lake.model import FileReader, Snapshot
from backend.lake.rows.log_subset import LocalFiles
from backend.lake.table.metadata_diff import SchemaDiff, diff_schemas
from backend.lake.table.properties import is_row_tracked
from backend.lake.table.restricted import hidden_columns
from backend.lake.table.schema import column_types, physical_names, readable_names
from backend.sql.parquet_rows import ROW_ID_COLUMN, numbered_rows, why_not_as_stored
from backend.sql.session import Connection

FILES_AT_ONCE = 64
_WIDER = {
    "byte": ("short", "integer", "long", "double", "decimal"),
    "short": ("integer", "long", "double", "decimal"),
    "integer": ("long", "double", "decimal"),
    "long": ("decimal",),
    "float": ("double",),
    "decimal": ("decimal",),
    "date": ("timestamp_ntz",),
}


@dataclass(frozen=True, slots=True)
class DiffInput:
    """Two states as asked for, of one table or of two, and the files that only one of them has.

    `as_of` is the version whose schema all files are read with, None: each side with its own. `columns` can be
    compared, `unfit` are those of the newer version (the second table) that cannot.
    """

    first: Snapshot
    second: Snapshot
    apart: FileDifference
    as_of: Snapshot | None
    columns: tuple[str, ...]
    unfit: tuple[str, ...]
    schema: SchemaDiff  # from the older version to the newer, from the first table to the second
    is_one_table: bool = True

    @property
    def is_reverse(self) -> bool:
        """Whether the first version is the newer one."""
        return self.is_one_table and self.first.version > self.second.version

    @property
    def newer(self) -> Snapshot:
        return self.first if self.is_reverse else self.second

    @property
    def low(self) -> int:
        return min(self.first.version, self.second.version)

    @property
    def high(self) -> int:
        return max(self.first.version, self.second.version)

    @property
    def size_bytes(self) -> int:
        """Of the data files to read."""
        return sum(total(files["size_bytes"]) or 0 for _, files in self.states())

    @property
    def num_rows(self) -> int | None:
        """Rows to read, those marked as deleted among them; None where statistics do not say it."""
        counts = [total(files["num_records"]) for _, files in self.states()]
        return None if None in counts else sum(count or 0 for count in counts)

    def row_counts(self) -> tuple[int | None, int | None]:
        """Rows of both states, from the statistics of all their files."""
        if self.is_reverse:
            return self.first.num_rows, self.second.num_rows
        after = self.second.num_rows  # the newer state first: what it looks up is all that the older one asks for
        return self.first.num_rows, after

    def states(self) -> tuple[tuple[Snapshot, pa.Table], tuple[Snapshot, pa.Table]]:
        """Each state with the files (`file_difference.DIFFERENCE_COLUMNS`) that only it has."""
        return (self.first, self.apart.only_first), (self.second, self.apart.only_second)


def _closed(*sides: Snapshot) -> set[str]:
    return {name for each in sides for name in hidden_columns(each.hidden, each.metadata)}


def two_versions(first: Snapshot, second: Snapshot, apart: FileDifference) -> DiffInput:
    older, newer = sorted((first, second), key=lambda snapshot: snapshot.version)
    changes = diff_schemas(older.metadata, newer.metadata)
    types = [change for change in changes.changed if change.what == "type"]
    names = tuple(name for name in readable_names(newer.metadata) if name not in _closed(older, newer))
    # A wider type holds every value of the one before (PROTOCOL.md, "Type Widening").
    kinds = [[(kind or "").partition("(")[0] for kind in (change.before, change.after)] for change in types]
    is_wider = all(after in _WIDER.get(before, ()) for before, after in kinds)
    if _partitioning(older) == _partitioning(newer) and is_wider:
        return DiffInput(first, second, apart, newer, names, (), changes)
    odd = {change.names[0] for change in types} | {field.names[0] for field in changes.added}
    fit = tuple(name for name in names if name not in odd)
    return DiffInput(first, second, apart, None, fit, tuple(name for name in names if name in odd), changes)


def two_tables(first: Snapshot, second: Snapshot) -> DiffInput:
    """Every file of both; columns go together by name and type."""
    apart = FileDifference(first.columns(DIFFERENCE_COLUMNS), second.columns(DIFFERENCE_COLUMNS))
    other, kinds = column_types(first.metadata.schema_json), column_types(second.metadata.schema_json)
    readable = [name for name in readable_names(second.metadata) if name not in _closed(first, second)]
    fit = tuple(name for name, kind in kinds.items() if other.get(name) == kind and name in readable)
    unfit = tuple(name for name in kinds if name not in fit and name not in _closed(first, second))
    schema = diff_schemas(first.metadata, second.metadata)
    return DiffInput(first, second, apart, None, fit, unfit, schema, is_one_table=False)


def why_no_row_ids(given: DiffInput) -> str | None:
    """Why rows cannot be paired by their ids; None where they can."""
    if not given.is_one_table:
        return "two tables number their rows apart"
    off = [
        f"v{each.version}"
        for each in sorted((given.first, given.second), key=lambda each: each.version)
        if not is_row_tracked(each.metadata)
    ]
    if off:
        return f"row tracking is off at {' and '.join(off)}"
    if len({each.metadata.configuration.get(ROW_ID_COLUMN) for each in (given.first, given.second)}) > 1:
        return "row tracking was set up again in between: rows got other ids"
    if ROW_ID in map(str.lower, given.columns):
        return f"the table has a column {ROW_ID} of its own"
    return None


def why_not_by_duckdb(given: DiffInput, columns: Sequence[str]) -> str | None:
    """Why DuckDB cannot read these columns of both states; None where it can."""
    if not given.is_one_table:
        return "two tables have schemas of their own"
    if not given.schema.is_empty:
        return "the schema changed in between"
    return why_not_as_stored(given.newer.metadata, columns)


def _partitioning(snapshot: Snapshot) -> list[str]:
    physical = physical_names(snapshot.metadata)
    return [physical.get(name, name) for name in snapshot.metadata.partition_columns]


def local_rows(
    connection: Connection,
    given: DiffInput,
    files: tuple[LocalFiles, LocalFiles] | None,
    columns: Sequence[str],
    *,
    with_ids: bool = False,
) -> Sides:
    """The rows of the files apart as DuckDB reads them, `with_ids` their row ids as the last column. Raises
    `UnsupportedFeatureError` for files that are not on this machine, or do not hold what the log says."""
    if files is None:
        raise UnsupportedFeatureError(
            f"row ids of {given.first.ref.name} are not read from an object store", hint="compare on the stream host"
        )
    queries = list[str]()
    for (snapshot, _), side, sign, prefix in zip(given.states(), files, (-1, 1), ("before", "after"), strict=True):
        missing = side.files["base_row_id"].null_count
        if with_ids and missing:
            raise UnsupportedFeatureError(
                f"{missing:,} of {side.files.num_rows:,} files of v{snapshot.version} without a base row id: tracking "
                "began later",
                hint="compare by key",
            )
        rows = numbered_rows(connection, side, given.newer.metadata, columns, prefix=f"{prefix}_", with_ids=with_ids)
        queries.append(f"SELECT *, CAST({sign} AS TINYINT) AS n FROM ({rows})")
    return queries[0], queries[1]


def signed_rows(reader: FileReader, given: DiffInput, columns: Sequence[str]) -> pa.RecordBatchReader:
    """Every row of the files apart as c0, c1 … with −1 for the first state's and +1 for the second's."""
    readers = [_read(reader, given, side, columns) for side in (0, 1)]
    kinds = [field.type for field in readers[1][0]]
    fields = [pa.field(f"c{i}", kind) for i, kind in enumerate(kinds)]
    schema = pa.schema([*fields, SIGN])

    def signed() -> Iterator[pa.RecordBatch]:
        for sign, (_, batches) in zip((-1, 1), readers, strict=True):
            for batch in batches:
                signs = pa.array([sign], pa.int8()).take(pa.array([0] * batch.num_rows, pa.int8()))
                yield pa.record_batch([*_cast(batch, columns, kinds), signs], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, signed())


def _read(
    reader: FileReader, given: DiffInput, side: int, columns: Sequence[str]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema of one side's rows, and the rows, some files at a time."""
    snapshot, files = given.states()[side]
    first = reader.read_files(snapshot, files.slice(0, FILES_AT_ONCE), columns=columns, as_of=given.as_of)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from first
        for start in range(FILES_AT_ONCE, len(files), FILES_AT_ONCE):
            some = files.slice(start, FILES_AT_ONCE)
            yield from reader.read_files(snapshot, some, columns=columns, as_of=given.as_of)

    return first.schema, batches()


def _cast(batch: pa.RecordBatch, columns: Sequence[str], kinds: Sequence[pa.DataType]) -> Iterator[pa.Array]:
    for name, kind in zip(columns, kinds, strict=True):
        column = batch.column(name)
        try:
            yield column if column.type == kind else column.cast(kind)
        except pa.ArrowException as exc:
            raise DiffError(
                f"column {name} cannot be compared: {column.type} at one version, {kind} at the other",
                hint=f"leave it out: compare other columns than {name}",
            ) from exc


def total(column: pa.ChunkedArray) -> int | None:
    """The sum over files; None where one does not tell."""
    return None if column.null_count else int(pc.sum(column).as_py() or 0)
