"""A table of PostgreSQL beside the rows that a stream returns: what differs, reported before the first row.

Rule: a type is taken for another only where each of its values comes through unchanged.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from psycopg import Cursor, sql
from pyspark.sql.types import DataType, DecimalType, StructField

_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
# What takes a type of Spark's; the first is what a new column should be.
_TAKES: Mapping[str, tuple[str, ...]] = {
    "boolean": ("bool",),
    "tinyint": ("int2", "int4", "int8", "numeric"),
    "smallint": ("int2", "int4", "int8", "numeric"),
    "int": ("int4", "int8", "numeric"),
    "bigint": ("int8", "numeric"),
    "float": ("float4",),
    "double": ("float8",),
    "decimal": ("numeric",),
    "string": ("text", "varchar", "uuid", "json", "jsonb"),
    "binary": ("bytea",),
    "date": ("date",),
    "timestamp": ("timestamptz",),
    "timestamp_ntz": ("timestamp",),
}
_NESTED = dict.fromkeys(("struct", "array", "map", "variant"), ("jsonb", "json", "text"))
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_SCALE = re.compile(r"numeric\((\d+),(-?\d+)\)")


@dataclass(frozen=True, slots=True)
class PostgresColumn:
    """`type_name` as PostgreSQL calls it inside, `shown` as it writes it. `required`: it must be given a value."""

    type_name: str
    shown: str
    required: bool


def find_columns(cursor: Cursor, schema: str, name: str) -> dict[str, PostgresColumn]:
    """Its columns by name; none where it does not exist."""
    query = """
        SELECT a.attname, t.typname, format_type(a.atttypid, a.atttypmod),
               a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
        FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
    """
    rows = cursor.execute(query, [sql.Identifier(schema, name).as_string(cursor)])
    return {column: PostgresColumn(*about) for column, *about in rows}


def has_unique_index(cursor: Cursor, path: tuple[str, str], keys: Collection[str]) -> bool:
    """Whether an index, or a primary key, makes exactly these columns unique, for all rows."""
    query = """
        SELECT array_agg(a.attname::text) FROM pg_index i
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
        WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indisvalid AND i.indimmediate
              AND i.indpred IS NULL AND i.indexprs IS NULL
        GROUP BY i.indexrelid
    """
    indexes = cursor.execute(query, [sql.Identifier(*path).as_string(cursor)])
    return any(set(names) == set(keys) for (names,) in indexes)


def differences(rows: Sequence[StructField], there: Mapping[str, PostgresColumn]) -> list[str]:
    """`+ column type`: the table lacks it. `~ column: type → type`: it takes no such value. `-`: it gets no value."""
    return list(_differences(rows, there))


def _differences(rows: Sequence[StructField], there: Mapping[str, PostgresColumn]) -> Iterator[str]:
    for row_column in rows:
        column = there.get(row_column.name)
        if column is None:
            yield f"+ {row_column.name} {_new_type(row_column.dataType)}"
        elif not _takes(column, row_column.dataType):
            yield f"~ {row_column.name}: {column.shown} → {_new_type(row_column.dataType)}"
    given = {row_column.name for row_column in rows}
    needed = [name for name, column in there.items() if column.required and name not in given]
    yield from (f"- {name}: it needs a value" for name in needed)


def create_statement(path: tuple[str, str], rows: Sequence[StructField], keys: Sequence[str]) -> str:
    columns = ", ".join(f"{as_written(row_column.name)} {_new_type(row_column.dataType)}" for row_column in rows)
    return f"CREATE TABLE {as_written(*path)} ({columns}, {primary_key(keys)})"


def primary_key(keys: Sequence[str]) -> str:
    return f"PRIMARY KEY ({', '.join(map(as_written, keys))})"


def as_written(*path: str) -> str:
    """A name as a person writes it in SQL: in quotes where it needs them."""
    quoted = ['"' + part.replace('"', '""') + '"' for part in path]
    return ".".join(part if _PLAIN.fullmatch(part) else in_quotes for part, in_quotes in zip(path, quoted, strict=True))


def _takes(column: PostgresColumn, kind: DataType) -> bool:
    if column.type_name not in _taking(kind):
        return False
    limits = _SCALE.fullmatch(column.shown)
    if not limits:
        return True
    precision, scale = (kind.precision, kind.scale) if isinstance(kind, DecimalType) else (_DIGITS[_word(kind)], 0)
    return int(limits[2]) >= scale and int(limits[1]) - int(limits[2]) >= precision - scale


def _new_type(kind: DataType) -> str:
    if isinstance(kind, DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    return next(iter(_taking(kind)), f"(PostgreSQL has nothing like {kind.simpleString()})")


def _taking(kind: DataType) -> tuple[str, ...]:
    return {**_TAKES, **_NESTED}.get(_word(kind), ())


def _word(kind: DataType) -> str:
    return re.split(r"[<( ]", kind.simpleString(), maxsplit=1)[0]
