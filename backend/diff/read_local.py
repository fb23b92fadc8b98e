"""Rows of parquet files of this machine, read by DuckDB itself: several times faster than through a reader of Delta
tables, and the only way to their row ids here.

Rule: only where it cannot make a difference. Both versions have one schema, each column's parquet type holds just what
Delta's type does, and what stands beside the files (values of partition columns, names under column mapping, deleted
rows) is applied as Delta does; where any of it needs a reader of Delta tables, this says so and reads nothing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa

from backend.diff.compare import column_name
from backend.diff.join import Part, SignedRows
from backend.diff.parts import FilesPart, keyed_files, split
from backend.diff.read_stream import Sides
from backend.diff.row_ids import ID_COLUMN
from backend.errors import UnsupportedFeatureError
from backend.lake.model import Metadata
from backend.lake.rows.local_files import LocalFiles
from backend.lake.table.metadata_diff import column_types
from backend.lake.table.partitions import physical_names
from backend.query.quoting import quoted_name, quoted_text

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

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
_BY_KEY = "compare by key, or on the stream host"


def flat_type(kind: str) -> tuple[str, tuple[str, ...]] | None:
    """What DuckDB casts a column of Delta's type to, and the types of parquet that hold its values; None for a type
    that is not flat."""
    if _DECIMAL.fullmatch(kind):
        return kind.upper(), (kind.upper(),)
    return _FLAT.get(kind)


def why_not_by_duckdb(sides: Sides, columns: Sequence[str]) -> str | None:
    """Why DuckDB cannot read these columns of both states; None where it can."""
    if not sides.is_one_table:
        return "two tables have schemas of their own"
    if not sides.schema.is_empty:
        return "the schema changed in between"
    if sides.newer.metadata.configuration.get("delta.columnMapping.mode", "").lower() == "id":
        return "columns go by ids, which names in a file may contradict"
    types, partitions = column_types(sides.newer.metadata), sides.newer.metadata.partition_columns
    odd = [name for name in columns if flat_type(types[name]) is None]
    odd += [name for name in partitions if name in columns and types[name] not in _PARTITION_TYPES]
    return f"column {odd[0]} is {types[odd[0]]}" if odd else None


def signed_files(
    connection: "DuckDBPyConnection",
    files: tuple[LocalFiles, LocalFiles],
    metadata: Metadata,
    columns: Sequence[str],
    *,
    with_ids: bool = False,
) -> SignedRows | None:
    """The rows of the files of both sides, `with_ids` their row ids as the last column; None when no file is apart.
    Raises `UnsupportedFeatureError` for a file that does not hold the columns as the log says."""
    if any(holds_pattern(path) for side in files for path in side.paths):
        raise UnsupportedFeatureError("a file's name holds a wildcard", hint=_BY_KEY)
    reader = _Reader(connection, files, metadata, columns, with_ids)
    query = reader.query((range(len(files[0].files)), range(len(files[1].files))))
    return SignedRows(query, reader.parts) if query else None


@dataclass(slots=True)
class _Reader:
    """Makes queries for files of both sides."""

    connection: "DuckDBPyConnection"
    files: tuple[LocalFiles, LocalFiles]
    metadata: Metadata
    columns: Sequence[str]
    with_ids: bool
    _types: Mapping[str, str] = field(init=False)
    _stored: Mapping[str, str] = field(init=False)
    _numbers: "count[int]" = field(default_factory=count)

    def __post_init__(self) -> None:
        self._types, self._stored = column_types(self.metadata), physical_names(self.metadata)

    def query(self, places: tuple[Sequence[int], Sequence[int]], *, may_lack: bool = False) -> str:
        """Rows of the files at these places; "" for none. `may_lack`: a column that no file has is null in all."""
        sides = [self._side(side, at, may_lack=may_lack) for side, at in enumerate(places) if len(at)]
        return " UNION ALL ".join(sides)

    def parts(self, key: Sequence[int], most_rows: int) -> list[Part] | None:
        """The same rows in parts by the first column of the key that tells files apart."""
        if self.with_ids:
            return None
        for place in key:
            name = self.columns[place]
            keyed = keyed_files([side.paths for side in self.files], self._stored.get(name, name))
            found = split(keyed, most_rows) if keyed else None
            if found is not None:
                return [self._part(part, place) for part in found]
        return None

    def _part(self, part: FilesPart, place: int) -> Part:
        query = self.query((part.places(0), part.places(1)), may_lack=True)
        return Part(query, part.num_rows, (place, part.low, part.high))

    def _side(self, side: int, places: Sequence[int], *, may_lack: bool) -> str:
        files = self.files[side].only(places)
        source, kinds = parquet_source(self.connection, files.paths)
        values = [self._value(name, kinds, may_lack=may_lack) for name in self.columns]
        if self.with_ids:
            values.append(self._row_id(kinds))
        named = ", ".join(f"{value} AS {column_name(i)}" for i, value in enumerate(values))
        query = f"SELECT {named}, CAST({(-1, 1)[side]} AS TINYINT) AS sign FROM {source} r"
        if self.with_ids or self.metadata.partition_columns:
            beside = files.files.append_column("place", [range(len(places))])
            query += f" JOIN {self._registered(beside)} f ON r.file_index = f.place"
        if files.deleted.num_rows:
            gone = self._registered(files.deleted)
            query += f" ANTI JOIN {gone} d ON r.file_index = d.file AND r.file_row_number = d.position"
        return query

    def _registered(self, table: pa.Table) -> str:
        name = f"beside_{next(self._numbers)}"
        self.connection.register(name, table)
        return name

    def _value(self, name: str, kinds: Mapping[str, str], *, may_lack: bool) -> str:
        """A column in SQL."""
        kind = self._types[name]
        to, fit = flat_type(kind) or ("", ())
        if name in self.metadata.partition_columns:
            return f"CAST(nullif(f.{quoted_name(f'partition {name}')}, '') AS {to})"
        stored = self._stored.get(name, name)
        if kinds.get(stored) in fit:
            return f"CAST(r.{quoted_name(stored)} AS {to})"
        if may_lack and stored not in kinds:
            return f"CAST(NULL AS {to})"
        what = kinds.get(stored, "no column")
        raise UnsupportedFeatureError(f"files hold {what} for {name}, which is {kind}", hint=_BY_KEY)

    def _row_id(self, kinds: Mapping[str, str]) -> str:
        fresh = "f.base_row_id + r.file_row_number"
        moved = self.metadata.configuration.get(ID_COLUMN, "")
        return f"coalesce(r.{quoted_name(moved)}, {fresh})" if moved in kinds else fresh


def parquet_source(connection: "DuckDBPyConnection", paths: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Files as a table of a query, and the types of its columns."""
    source = f"read_parquet([{', '.join(map(quoted_text, paths))}], hive_partitioning = false, union_by_name = true)"
    return source, {row[0]: row[1] for row in connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}


def holds_pattern(path: str) -> bool:
    """Whether DuckDB would take a path for several."""
    return _PATTERN.search(path) is not None
