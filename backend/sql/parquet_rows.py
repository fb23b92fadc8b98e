"""Rows of a table's parquet files on this machine, as queries of DuckDB: several times faster than through a reader of
Delta tables, and the only way to their row ids here.

Rule: only where it cannot make a difference. Each column's parquet type holds just what Delta's type does, and what
stands beside the files (values of partition columns, names under column mapping, deleted rows) is applied as Delta
does; where any of it needs a reader of Delta tables, this says so and reads nothing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa

from backend.errors import UnsupportedFeatureError
from backend.lake.model import Metadata
from backend.lake.rows.log_subset import LocalFiles
from backend.lake.table.misreadings import goes_by_id
from backend.lake.table.schema import column_types, physical_names
from backend.sql.session import Connection
from backend.sql.values import quoted_name, quoted_text

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
_PATTERN = re.compile(r"[*?\[\]{}]")  # DuckDB would take such a path for several
_PARTITION_TYPES = ("string", "byte", "short", "integer", "long", "boolean", "date")  # text that DuckDB reads as Delta
_OWN = {"file_index", "file_row_number", "filename"}  # columns of DuckDB that files may hide
_BY_KEY = "compare by key, or on the stream host"
ROW_ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"  # where the ids of rows that moved are written


def why_not_as_stored(metadata: Metadata, columns: Sequence[str]) -> str | None:
    """Why DuckDB cannot read these columns of a table; None where it can."""
    if goes_by_id(metadata):
        return "columns go by ids, which names in a file may contradict"
    stored = [name.lower() for name in physical_names(metadata).values()]
    if alike := [name for name in stored if stored.count(name) > 1]:
        return f"columns called {alike[0]} differ in case alone"
    types, partitions = column_types(metadata.schema_json), metadata.partition_columns
    odd = [name for name in columns if _flat_type(types[name]) is None]
    odd += [name for name in partitions if name in columns and types[name] not in _PARTITION_TYPES]
    return f"column {odd[0]} is {types[odd[0]]}" if odd else None


def table_rows(
    connection: Connection, files: LocalFiles, metadata: Metadata, columns: Sequence[str], *, prefix: str
) -> str:
    """A query for the rows of files of one table, its columns by their names, to be joined with other tables; what
    stands beside the files is registered under names that begin with `prefix`. A column that no file has is null.
    Raises `UnsupportedFeatureError` for a file that does not hold the columns as the log says."""
    reader = _Reader(connection, metadata, columns, prefix=prefix, is_joined=True)
    named = ", ".join(f"c{i} AS {quoted_name(name)}" for i, name in enumerate(columns))
    return f"SELECT {named} FROM ({reader.rows(files)})"


def numbered_rows(
    connection: Connection,
    files: LocalFiles,
    metadata: Metadata,
    columns: Sequence[str],
    *,
    prefix: str = "",
    with_ids: bool = False,
) -> str:
    """A query for the rows of files of one table, its columns as c0, c1 …, `with_ids` the row ids as the last one;
    `prefix` and raises as `table_rows`."""
    return _Reader(connection, metadata, columns, prefix=prefix, with_ids=with_ids).rows(files)


def _flat_type(kind: str) -> tuple[str, tuple[str, ...]] | None:
    """What DuckDB casts a column of Delta's type to, and the types of parquet that hold its values; None for a type
    that is not flat."""
    if _DECIMAL.fullmatch(kind):
        return kind.upper(), (kind.upper(),)
    return _FLAT.get(kind)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A column of files in SQL, and its type."""

    name: str
    kind: str


@dataclass(slots=True)
class _Reader:
    """Makes queries for files of one table. `is_joined`: with other tables, for which DuckDB looks at what the footers
    say of the values."""

    connection: Connection
    metadata: Metadata
    columns: Sequence[str]
    prefix: str = ""
    with_ids: bool = False
    is_joined: bool = False
    _types: Mapping[str, str] = field(init=False)
    _stored: Mapping[str, str] = field(init=False)
    _numbers: "count[int]" = field(default_factory=count)

    def __post_init__(self) -> None:
        self._types, self._stored = column_types(self.metadata.schema_json), physical_names(self.metadata)

    def rows(self, files: LocalFiles) -> str:
        if any(_PATTERN.search(path) for path in files.paths):
            raise UnsupportedFeatureError("a file's name holds a wildcard", hint=_BY_KEY)
        if not files.paths:
            kinds = [self._flat(name)[0] for name in self.columns] + ["BIGINT"] * self.with_ids
            return f"SELECT {', '.join(f'CAST(NULL AS {kind}) AS c{i}' for i, kind in enumerate(kinds))} WHERE false"
        source, stored = self._source(files.paths)
        values = [self._value(name, stored) for name in self.columns]
        if self.with_ids:
            fresh = "f.base_row_id + r.file_row_number"
            moved = stored.get(self.metadata.configuration.get(ROW_ID_COLUMN, "").lower())
            values.append(f"coalesce({moved.name}, {fresh})" if moved else fresh)
        query = f"SELECT {', '.join(f'{value} AS c{i}' for i, value in enumerate(values))} FROM {source} r"
        if self.with_ids or self.metadata.partition_columns:
            beside = files.files.append_column("index", [range(len(files.paths))])
            query += f" JOIN {self._registered(beside)} f ON r.file_index = f.index"
        if files.deleted.num_rows:
            gone = self._registered(files.deleted)
            query += f" ANTI JOIN {gone} d ON r.file_index = d.file AND r.file_row_number = d.position"
        return query

    def _registered(self, table: pa.Table) -> str:
        name = f"{self.prefix}beside_{next(self._numbers)}"
        self.connection.register(name, table)
        return name

    def _flat(self, name: str) -> tuple[str, tuple[str, ...]]:
        return _flat_type(self._types[name]) or ("", ())

    def _source(self, paths: Sequence[str]) -> tuple[str, dict[str, _Stored]]:
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

    def _value(self, name: str, columns: Mapping[str, _Stored]) -> str:
        """A column in SQL."""
        to, fit = self._flat(name)
        if name in self.metadata.partition_columns:
            return f"CAST(f.{quoted_name(f'partition {name}')} AS {to})"
        stored = columns.get(self._stored.get(name, name).lower())
        if stored and stored.kind in fit:
            return f"CAST({stored.name} AS {to})"
        if self.is_joined and stored is None:
            return f"CAST(NULL AS {to})"
        what = stored.kind if stored else "no column"
        raise UnsupportedFeatureError(f"files hold {what} for {name}, which is {self._types[name]}", hint=_BY_KEY)
