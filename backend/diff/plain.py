"""Rows of plain parquet files, read by DuckDB itself: several times faster than through a reader of Delta tables.

Rule: only where it cannot make a difference. No deletion vector, column mapping or partition value is beside the files
(`Lake.plain_files`), both versions have one schema, and each column's parquet type holds just what Delta's type does.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from backend.diff.join import Part, SignedRows
from backend.diff.net import column_name
from backend.diff.parts import keyed_files, split
from backend.diff.states import Sides
from backend.lake.metadata_diff import column_types
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
    "timestamp": ("TIMESTAMP WITH TIME ZONE", ("TIMESTAMP WITH TIME ZONE",)),
    "timestamp_ntz": ("TIMESTAMP", ("TIMESTAMP",)),
}
_DECIMAL = re.compile(r"decimal\(\d+,\d+\)")
_PATTERN = re.compile(r"[*?\[\]{}]")


def flat_type(kind: str) -> tuple[str, tuple[str, ...]] | None:
    """What DuckDB casts a column of Delta's type to, and the types of parquet that hold its values; None for a type
    that is not flat."""
    if _DECIMAL.fullmatch(kind):
        return kind.upper(), (kind.upper(),)
    return _FLAT.get(kind)


def plain_columns(sides: Sides, columns: Sequence[str]) -> dict[str, str] | None:
    """Delta's types of the columns where both states have one schema of flat types, else None."""
    if not sides.is_one_table or not sides.schema.is_empty:
        return None
    types = column_types(sides.newer.metadata)
    return {name: types[name] for name in columns} if all(flat_type(types[name]) for name in columns) else None


def signed_files(
    connection: "DuckDBPyConnection", files: tuple[Sequence[str], Sequence[str]], types: Mapping[str, str]
) -> SignedRows | None:
    """The rows of the files of both sides; None when some file does not hold the columns as the table's schema has
    them."""
    if any(holds_pattern(path) for side in files for path in side):
        return None
    query = _signed(connection, files, types)
    if query is None:
        return None
    return SignedRows(query, lambda key, most_rows: _parts(connection, files, types, key, most_rows))


def _signed(
    connection: "DuckDBPyConnection",
    files: tuple[Sequence[str], Sequence[str]],
    types: Mapping[str, str],
    *,
    may_lack: bool = False,
) -> str | None:
    """`may_lack`: a column that no file has is null in all of them."""
    queries = []
    for sign, paths in zip((-1, 1), files, strict=True):
        if not paths:
            continue
        source, kinds = parquet_source(connection, paths)
        values = [_value(name, kind, kinds, may_lack=may_lack) for name, kind in types.items()]
        if None in values:
            return None
        named = ", ".join(f"{value} AS {column_name(i)}" for i, value in enumerate(values))
        queries.append(f"SELECT {named}, CAST({sign} AS TINYINT) AS sign FROM {source}")
    return " UNION ALL ".join(queries) or None


def _value(name: str, kind: str, kinds: Mapping[str, str], *, may_lack: bool) -> str | None:
    """A column in SQL, None where the files hold it as something else."""
    to, fit = flat_type(kind) or ("", ())
    if kinds.get(name) in fit:
        return f"CAST({quoted_name(name)} AS {to})"
    return f"CAST(NULL AS {to})" if may_lack and fit and name not in kinds else None


def _parts(
    connection: "DuckDBPyConnection",
    files: tuple[Sequence[str], Sequence[str]],
    types: Mapping[str, str],
    key: Sequence[int],
    most_rows: int,
) -> list[Part] | None:
    """The same rows in parts by the first column of the key that tells files apart."""
    for place in key:
        keyed = keyed_files(files, list(types)[place])
        found = split(keyed, most_rows) if keyed else None
        if found is None:
            continue
        queries = [_signed(connection, (part.paths(0), part.paths(1)), types, may_lack=True) for part in found]
        if None in queries:
            return None
        bounds = [(place, part.low, part.high) for part in found]
        return [
            Part(query or "", part.num_rows, where) for query, part, where in zip(queries, found, bounds, strict=True)
        ]
    return None


def parquet_source(connection: "DuckDBPyConnection", paths: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Files as a table of a query, and the types of its columns."""
    source = f"read_parquet([{', '.join(map(quoted_text, paths))}], hive_partitioning = false, union_by_name = true)"
    return source, {row[0]: row[1] for row in connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}


def holds_pattern(path: str) -> bool:
    """Whether DuckDB would take a path for several."""
    return _PATTERN.search(path) is not None
