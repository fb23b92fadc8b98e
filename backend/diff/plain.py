"""Rows of plain parquet files, read by DuckDB itself: several times faster than through a reader of Delta tables.

Rule: only where it cannot make a difference. No deletion vector, column mapping or partition value is beside the files
(`Lake.plain_files`), both versions have one schema, and each column's parquet type holds just what Delta's type does.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from backend.diff.states import Sides
from backend.lake.metadata_diff import column_types

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Delta's type: what a column is cast to, and the types of parquet (as DuckDB names them) that hold the same values.
_TYPES: Mapping[str, tuple[str, tuple[str, ...]]] = {
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
_GLOB = re.compile(r"[*?\[\]{}]")


def plain_columns(sides: Sides, columns: Sequence[str]) -> dict[str, str] | None:
    """Delta's types of the columns where both states have one schema of flat types, else None."""
    if not sides.is_one_table or not sides.schema.is_empty:
        return None
    types = column_types(sides.newer.metadata)
    return {name: types[name] for name in columns} if all(types[name] in _TYPES for name in columns) else None


def signed_files(
    connection: "DuckDBPyConnection", files: tuple[Sequence[str], Sequence[str]], types: Mapping[str, str]
) -> str | None:
    """A query for the rows of the files of both sides as c0, c1 … and `sign`; None when some file does not hold the
    columns as the table's schema has them."""
    if any(_GLOB.search(path) for side in files for path in side):
        return None
    queries = []
    for sign, paths in zip((-1, 1), files, strict=True):
        if not paths:
            continue
        source = f"read_parquet([{', '.join(map(_text, paths))}], hive_partitioning = false, union_by_name = true)"
        kinds = {row[0]: row[1] for row in connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}
        if not all(kinds.get(name) in _TYPES[kind][1] for name, kind in types.items()):
            return None
        cast = (f"CAST({_name(name)} AS {_TYPES[kind][0]}) AS c{i}" for i, (name, kind) in enumerate(types.items()))
        queries.append(f"SELECT {', '.join(cast)}, CAST({sign} AS TINYINT) AS sign FROM {source}")
    return " UNION ALL ".join(queries) or None


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _name(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'
