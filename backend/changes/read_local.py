"""Rows of parquet files of this machine, read by DuckDB itself: several times faster than through a reader of Delta
tables, and the only way to their row ids here.

Rule: only where it cannot make a difference. Both versions have one schema, each column's parquet type holds just what
Delta's type does, and what stands beside the files (values of partition columns, names under column mapping, deleted
rows) is applied as Delta does; where any of it needs a reader of Delta tables, this says so and reads nothing. Files
are compared in parts where their footers say that no key of one is in another; whoever reads them holds them to it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import count
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backend.changes.compare import FileRows, Part, column_name
from backend.changes.read_stream import ROW_ID_COLUMN, DiffInput
from backend.errors import UnsupportedFeatureError
from backend.lake.model import Metadata
from backend.lake.rows.log_subset import LocalFiles
from backend.lake.table.metadata_diff import column_types
from backend.lake.table.misreadings import goes_by_id
from backend.lake.table.partitions import physical_names
from backend.sql.quoting import quoted_name, quoted_text
from backend.sql.session import Connection

# Delta's type: what a column is cast to, and the types of parquet (as DuckDB names them) that hold the same values.
_FLAT: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "byte": ("TINYINT", ("TINYINT",)),
    "short": ("SMALLINT", ("TINYINT", "SMALLINT")),
    "integer": ("INTEGER", ("TINYINT", "SMALLINT", "INTEGER")),
    "long": ("BIGINT", ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")),
    "float": ("FLOAT", ("FLOAT",)),
    "double": ("DOUBLE", ("FLOAT", "DOUBLE")),
    "boolean": ("BOOLEAN", ("BOOLEAN",)),
    "string": ("VARCHAR", ("VARCHAR",)),
    "binary": ("BLOB", ("BLOB",)),
    "date": ("DATE", ("DATE",)),
    "timestamp": ("TIMESTAMP WITH TIME ZONE", ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE")),  # INT96 does not say UTC
    "timestamp_ntz": ("TIMESTAMP", ("TIMESTAMP",)),
}
_DECIMAL = re.compile(r"decimal\(\d+,\d+\)")
_PATTERN = re.compile(r"[*?\[\]{}]")
_PARTITION_TYPES = ("string", "byte", "short", "integer", "long", "boolean", "date")  # text that DuckDB reads as Delta
_OWN = {"file_index", "file_row_number", "filename"}  # columns of DuckDB that files may hide
_BY_KEY = "compare by key, or on the stream host"
_ORDERED = (int, date, str)  # of these Python, parquet and DuckDB have one order


def flat_type(kind: str) -> tuple[str, tuple[str, ...]] | None:
    """What DuckDB casts a column of Delta's type to, and the types of parquet that hold its values; None for a type
    that is not flat."""
    if _DECIMAL.fullmatch(kind):
        return kind.upper(), (kind.upper(),)
    return _FLAT.get(kind)


def why_not_by_duckdb(given: DiffInput, columns: Sequence[str]) -> str | None:
    """Why DuckDB cannot read these columns of both states; None where it can."""
    if not given.is_one_table:
        return "two tables have schemas of their own"
    if not given.schema.is_empty:
        return "the schema changed in between"
    return why_not_as_stored(given.newer.metadata, columns)


def why_not_as_stored(metadata: Metadata, columns: Sequence[str]) -> str | None:
    """Why DuckDB cannot read these columns of a table; None where it can."""
    if goes_by_id(metadata):
        return "columns go by ids, which names in a file may contradict"
    stored = [name.lower() for name in physical_names(metadata).values()]
    if alike := [name for name in stored if stored.count(name) > 1]:
        return f"columns called {alike[0]} differ in case alone"
    types, partitions = column_types(metadata), metadata.partition_columns
    odd = [name for name in columns if flat_type(types[name]) is None]
    odd += [name for name in partitions if name in columns and types[name] not in _PARTITION_TYPES]
    return f"column {odd[0]} is {types[odd[0]]}" if odd else None


@dataclass(frozen=True, slots=True)
class KeyedFile:
    """A data file, by its index among those of the first (0) or the second side (1), and between which values one
    column of its rows lies."""

    index: int
    side: int
    num_rows: int
    low: Any
    high: Any


def keyed_files(sides: Iterable[Sequence[str]], column: str) -> list[KeyedFile] | None:
    """The files of both sides that have rows, by their footers; None where one does not tell the column's values, or
    cannot be read: whoever reads its rows says why."""
    found = []
    for side, paths in enumerate(sides):
        for index, path in enumerate(paths):
            try:
                footer = pq.read_metadata(path)
            except (OSError, pa.ArrowException):
                return None
            bounds = _bounds(footer, column) if footer.num_rows else ()
            if bounds is None:
                return None
            if bounds:
                found.append(KeyedFile(index, side, footer.num_rows, *bounds))
    return found


def split(files: Iterable[KeyedFile], most_rows: int) -> list[list[KeyedFile]]:
    """Groups of files that share no value, in the order of their values. Small ones go together up to so many rows;
    files that share values stay together however many rows they have."""
    groups: list[list[KeyedFile]] = []
    for sharing in _sharing(sorted(files, key=attrgetter("low"))):
        if groups and sum(file.num_rows for file in (*groups[-1], *sharing)) <= most_rows:
            groups[-1] += sharing
        else:
            groups.append(sharing)
    return groups


def _sharing(files: Iterable[KeyedFile]) -> Iterator[list[KeyedFile]]:
    """Files in the order of their lowest value, those together whose values lie between each other's."""
    group: list[KeyedFile] = []
    high: Any = None
    for file in files:
        if group and file.low > high:
            yield group
            group = []
        high = max(high, file.high) if group else file.high
        group.append(file)
    if group:
        yield group


def _bounds(footer: pq.FileMetaData, column: str) -> tuple[Any, Any] | None:
    """None where they are not said, or of a type without a plain order. Nulls are not among them: rows with such a key
    are set apart."""
    leaves = [footer.schema.column(number) for number in range(footer.num_columns)]
    # the name of a field inside of a struct is only the end of its path, in which a dot may be part of a name
    numbers = [i for i, leaf in enumerate(leaves) if leaf.name == leaf.path and leaf.name.lower() == column.lower()]
    if len(numbers) != 1:
        return None
    (number,) = numbers
    lows, highs = [], []
    for group in range(footer.num_row_groups):
        said = footer.row_group(group).column(number).statistics
        if said is None or not said.has_min_max:
            return None
        try:
            ends = said.min, said.max
        except (ValueError, OverflowError):  # beyond Python's calendar
            return None
        lows.append(ends[0])
        highs.append(ends[1])
    if any(type(value) not in _ORDERED for value in (*lows, *highs)):
        return None
    return min(lows), max(highs)


def with_row_ids(given: DiffInput, files: tuple[LocalFiles, LocalFiles] | None) -> tuple[LocalFiles, LocalFiles]:
    """The files of both sides, each of which has to tell its rows' ids; raises `UnsupportedFeatureError`."""
    if files is None:
        raise UnsupportedFeatureError(
            f"row ids of {given.first.ref.name} are not read from an object store", hint="compare on the stream host"
        )
    for (snapshot, _), side in zip(given.states(), files, strict=True):
        base = side.files["base_row_id"]
        if base.null_count:
            raise UnsupportedFeatureError(
                f"{base.null_count:,} of {len(base):,} files of v{snapshot.version} without a base row id: "
                "tracking began later",
                hint="compare by key",
            )
    return files


def file_rows(
    connection: Connection,
    files: tuple[LocalFiles, LocalFiles],
    metadata: Metadata,
    columns: Sequence[str],
    *,
    num_rows: int | None = None,
    with_ids: bool = False,
) -> FileRows:
    """The rows of the files of both sides, `with_ids` their row ids as the last column; `num_rows` are all of them
    where that is known. Raises `UnsupportedFeatureError` for a file that does not hold the columns as the log says."""
    if any(holds_pattern(path) for side in files for path in side.paths):
        raise UnsupportedFeatureError("a file's name holds a wildcard", hint=_BY_KEY)
    reader = _Reader(connection, files, metadata, columns, with_ids)
    before, after = (reader.rows(side, range(len(files[side].files))) for side in (0, 1))
    whole = Part(before, after, num_rows or 0)
    return FileRows(whole, lambda key, most_rows: reader.parts(key, most_rows) or [whole])


def table_rows(
    connection: Connection, files: LocalFiles, metadata: Metadata, columns: Sequence[str], *, prefix: str
) -> str:
    """A query for the rows of files of one table, its columns by their names; what stands beside the files is
    registered under names that begin with `prefix`. Raises `UnsupportedFeatureError` for a file that does not hold the
    columns as the log says."""
    if any(holds_pattern(path) for path in files.paths):
        raise UnsupportedFeatureError("a file's name holds a wildcard", hint=_BY_KEY)
    reader = _Reader(connection, (files, files), metadata, columns, with_ids=False, prefix=prefix, is_joined=True)
    named = ", ".join(f"{column_name(i)} AS {quoted_name(name)}" for i, name in enumerate(columns))
    return f"SELECT {named} FROM ({reader.rows(0, range(len(files.files)), may_lack=True)})"


@dataclass(slots=True)
class _Reader:
    """Makes queries for files of both sides."""

    connection: Connection
    files: tuple[LocalFiles, LocalFiles]
    metadata: Metadata
    columns: Sequence[str]
    with_ids: bool
    prefix: str = ""
    is_joined: bool = False  # with other tables, for which DuckDB looks at what the footers say of the values
    _types: Mapping[str, str] = field(init=False)
    _stored: Mapping[str, str] = field(init=False)
    _numbers: "count[int]" = field(default_factory=count)

    def __post_init__(self) -> None:
        self._types, self._stored = column_types(self.metadata), physical_names(self.metadata)

    def parts(self, key: Sequence[int], most_rows: int) -> list[Part]:
        """The rows in parts by the column of the key that tells most files apart; none where no column does."""
        best: list[Part] = []
        for number in () if self.with_ids else key:
            name = self.columns[number]
            files = keyed_files([side.paths for side in self.files], self._stored.get(name, name))
            groups = split(files or (), most_rows)
            if len(groups) > max(1, len(best)):
                best = [self._part(group, number) for group in groups]
        return best

    def _part(self, group: Sequence[KeyedFile], number: int) -> Part:
        indexes = ([file.index for file in group if file.side == side] for side in (0, 1))
        before, after = (self.rows(side, mine, may_lack=True) for side, mine in enumerate(indexes))
        bounds = number, min(file.low for file in group), max(file.high for file in group)
        return Part(before, after, sum(file.num_rows for file in group), bounds)

    def rows(self, side: int, indexes: Sequence[int], *, may_lack: bool = False) -> str:
        """A query for rows of files of one side. `may_lack`: a column that no file has is null in all."""
        if not len(indexes):
            return self._no_rows()
        files = self.files[side].only(indexes)
        source, stored = self._source(files.paths)
        values = [self._value(name, stored, may_lack=may_lack) for name in self.columns]
        if self.with_ids:
            values.append(self._row_id(stored))
        named = ", ".join(f"{value} AS {column_name(i)}" for i, value in enumerate(values))
        query = f"SELECT {named}, CAST({(-1, 1)[side]} AS TINYINT) AS n FROM {source} r"
        if self.with_ids or self.metadata.partition_columns:
            beside = files.files.append_column("index", [range(len(indexes))])
            query += f" JOIN {self._registered(beside)} f ON r.file_index = f.index"
        if files.deleted.num_rows:
            gone = self._registered(files.deleted)
            query += f" ANTI JOIN {gone} d ON r.file_index = d.file AND r.file_row_number = d.position"
        return query

    def _no_rows(self) -> str:
        kinds = [self._flat(name)[0] for name in self.columns] + ["BIGINT"] * self.with_ids
        values = ", ".join(f"CAST(NULL AS {kind}) AS {column_name(i)}" for i, kind in enumerate(kinds))
        return f"SELECT {values}, CAST(0 AS TINYINT) AS n WHERE false"

    def _registered(self, table: pa.Table) -> str:
        name = f"{self.prefix}beside_{next(self._numbers)}"
        self.connection.register(name, table)
        return name

    def _flat(self, name: str) -> tuple[str, tuple[str, ...]]:
        return flat_type(self._types[name]) or ("", ())

    def _source(self, paths: Sequence[str]) -> "tuple[str, dict[str, _Stored]]":
        """Files as a table of a query, and their columns by name in lower case, as Delta matches names. There they go
        by numbers where a name of theirs would hide DuckDB's own, and where its look at every footer gains nothing."""
        files = f"read_parquet([{', '.join(map(quoted_text, paths))}], hive_partitioning = false"
        described = self.connection.execute(f"DESCRIBE SELECT * FROM {files}, union_by_name = true)").fetchall()
        if self.is_joined and not _OWN & {name.lower() for name, *_ in described}:
            by_name = {name.lower(): _Stored(f"r.{quoted_name(name)}", kind) for name, kind, *_ in described}
            return f"{files}, union_by_name = true)", by_name
        stored = {name.lower(): _Stored(f"r.p{i}", kind) for i, (name, kind, *_) in enumerate(described)}
        fields = ", ".join(
            f"{quoted_text(name)}: {{name: 'p{i}', type: {quoted_text(kind)}, default_value: NULL}}"
            for i, (name, kind, *_) in enumerate(described)
        )
        return f"{files}, schema = MAP {{{fields}}})", stored

    def _value(self, name: str, columns: "Mapping[str, _Stored]", *, may_lack: bool) -> str:
        """A column in SQL."""
        to, fit = self._flat(name)
        if name in self.metadata.partition_columns:
            return f"CAST(f.{quoted_name(f'partition {name}')} AS {to})"
        stored = columns.get(self._stored.get(name, name).lower())
        if stored and stored.kind in fit:
            return f"CAST({stored.name} AS {to})"
        if may_lack and stored is None:
            return f"CAST(NULL AS {to})"
        what = stored.kind if stored else "no column"
        raise UnsupportedFeatureError(f"files hold {what} for {name}, which is {self._types[name]}", hint=_BY_KEY)

    def _row_id(self, columns: "Mapping[str, _Stored]") -> str:
        fresh = "f.base_row_id + r.file_row_number"
        moved = columns.get(self.metadata.configuration.get(ROW_ID_COLUMN, "").lower())
        return f"coalesce({moved.name}, {fresh})" if moved else fresh


@dataclass(frozen=True, slots=True)
class _Stored:
    """A column of files in SQL, and its type."""

    name: str
    kind: str


def holds_pattern(path: str) -> bool:
    """Whether DuckDB would take a path for several."""
    return _PATTERN.search(path) is not None
