"""Rows with their row ids, read by DuckDB from files as they lie.

Rule: an id is the one written beside the row, or its file's base id and its place in the file; where any column needs
a reader of Delta tables, this says so and reads nothing.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from backend.diff.join import SignedRows
from backend.diff.net import column_name
from backend.diff.plain import flat_type, holds_pattern, parquet_source
from backend.diff.row_ids import ID_COLUMN
from backend.diff.states import Sides
from backend.errors import UnsupportedFeatureError
from backend.lake.metadata_diff import column_types
from backend.lake.partitions import physical_names
from backend.lake.tracked import TrackedFiles
from backend.query.quoting import quoted_name

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_PARTITION_TYPES = ("string", "byte", "short", "integer", "long", "boolean", "date")  # text that DuckDB reads as Delta
_BY_KEY = "compare by key, or on the stream host"


def why_not_here(sides: Sides) -> str | None:
    """Why only Spark can read these rows with their ids; None where they are read here."""
    if not sides.schema.is_empty:
        return "the schema changed in between: only the stream host reads these row ids"
    types, partitions = column_types(sides.newer.metadata), sides.newer.metadata.partition_columns
    odd = [name for name in sides.columns if flat_type(types[name]) is None]
    odd += [name for name in partitions if types[name] not in _PARTITION_TYPES]
    if odd:
        return f"column {odd[0]} is {types[odd[0]]}: only the stream host reads such rows with their ids"
    return None


def signed_tracked(
    connection: "DuckDBPyConnection", files: tuple[TrackedFiles, TrackedFiles], sides: Sides, columns: Sequence[str]
) -> SignedRows | None:
    """The rows of both sides with their ids as the last column; None when no file is apart. Raises
    `UnsupportedFeatureError` for a file that does not hold the columns as the log says."""
    queries = []
    for sign, side in zip((-1, 1), files, strict=True):
        paths = side.files["path"].to_pylist()
        if not paths:
            continue
        if any(holds_pattern(path) for path in paths):
            raise UnsupportedFeatureError("a file's name holds a wildcard", hint=_BY_KEY)
        source, kinds = parquet_source(connection, paths)
        name = "before" if sign < 0 else "after"
        places = side.files.append_column("place", [range(len(paths))])
        connection.register(f"files_{name}", places)
        connection.register(f"deleted_{name}", side.deleted)
        values = ", ".join(f"{text} AS {column_name(i)}" for i, text in enumerate(_values(sides, columns, kinds)))
        queries.append(
            f"SELECT {values}, CAST({sign} AS TINYINT) AS sign FROM {source} r "
            f"JOIN files_{name} f ON r.file_index = f.place "
            f"ANTI JOIN deleted_{name} d ON r.file_index = d.file AND r.file_row_number = d.position"
        )
    return SignedRows(" UNION ALL ".join(queries)) if queries else None


def _values(sides: Sides, columns: Sequence[str], kinds: Mapping[str, str]) -> list[str]:
    """Per column its value in SQL, the row's id last."""
    metadata = sides.newer.metadata
    types, physical = column_types(metadata), physical_names(metadata)
    found = []
    for name in columns:
        to, fit = flat_type(types[name]) or ("", ())
        stored = physical.get(name, name)
        if name in metadata.partition_columns:
            found.append(f"CAST(nullif(f.{quoted_name(f'partition {name}')}, '') AS {to})")
        elif kinds.get(stored) in fit:
            found.append(f"CAST(r.{quoted_name(stored)} AS {to})")
        else:
            what = kinds.get(stored, "no column")
            raise UnsupportedFeatureError(f"files hold {what} for {name}, which is {types[name]}", hint=_BY_KEY)
    fresh = "f.base_row_id + r.file_row_number"
    moved = metadata.configuration.get(ID_COLUMN, "")
    return [*found, f"coalesce(r.{quoted_name(moved)}, {fresh})" if moved in kinds else fresh]
