"""Changes of a table applied to one of PostgreSQL, by key: the database holds what the table holds, each batch once.

Rule: a batch is one transaction, and its number is written in it. A batch that is there already is passed over. What
differs between the table and the rows is reported before the first row: a type is taken for another only where each of
its values comes through unchanged.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import psycopg
import structlog
from psycopg import Cursor, errors, sql
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from backend.redaction import is_secret, without_secrets
from pipelines.jvm.failures import DeliveryError
from pipelines.sinks.changes import COMMIT_VERSION, DELETED, by_version, check_feed, own_columns
from pipelines.specs.ends import OutputMode, Secret, Target
from pipelines.specs.tables import quoted

BATCHES = "weir_batches"
_ROWS = sql.Identifier("weir_rows")  # the temporary table of one batch
_NEWEST = "_weir_newest"
_NESTED = (StructType, ArrayType, MapType, VariantType)

_CONNECT_S = 10
_STEPS: tuple[tuple[tuple[type[psycopg.Error], ...], str], ...] = (
    ((errors.InsufficientPrivilege,), "grant SELECT, INSERT, UPDATE and DELETE on it, and on weir_batches beside it"),
    ((errors.CardinalityViolation,), "two rows of the table have the same key: name keys that are unique there"),
    ((errors.UndefinedTable, errors.UndefinedColumn), "the table was changed: restart the stream to see what differs"),
    ((errors.IntegrityError,), "drop or quarantine such rows by an expectation, or change the table's constraint"),
    ((errors.DataError,), "the value does not fit its column: alter the column, or the function"),
    (
        (errors.OperationalError,),
        "look whether the server runs, and at user and password; nothing of the batch is lost",
    ),
)
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
    **dict.fromkeys(("struct", "array", "map", "variant"), ("jsonb", "json", "text")),
}
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_SCALE = re.compile(r"numeric\((\d+),(-?\d+)\)")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class PostgresTableSink:
    """`url` without a password; `table` with its schema, or in `public`."""

    url: str = field(repr=False)
    table: str
    keys: tuple[str, ...]
    password: Secret | None = field(default=None, repr=False)  # a declaration may hold a plain one by mistake
    output_mode: OutputMode = "append"
    kind = "postgresql"
    is_native = False

    @property
    def path(self) -> tuple[str, str]:
        """Schema and name."""
        schema, _, name = self.table.rpartition(".")
        return schema or "public", name

    @property
    def outside(self) -> str:
        url = urlsplit(without_secrets(self.url))
        host = url.netloc.rpartition("@")[2]
        return f"{'.'.join(self.path)} at {host}{url.path}"

    def problems(self) -> Iterator[tuple[str, str]]:
        url = urlsplit(self.url)
        options = any(is_secret(name) for name in parse_qs(url.query) if name != "sslkey")  # which names a file
        if url.password or "@" in url.path + url.query or options or isinstance(self.password, str):
            hint = 'write password=secret("env:NAME") or secret("file:PATH")'
            yield "postgres_table: a password stands in plain text", hint
        elif self.password is not None and not self.password.has_place:
            yield "postgres_table: the secret has no place", "name it as env:NAME or file:PATH"
        if url.scheme not in ("postgresql", "postgres") or not url.hostname or len(url.path) < 2:
            yield "postgres_table: names no server and database", 'write "postgresql://user@host:5432/database"'
        if not all(self.path) or "." in self.path[0]:
            yield f"postgres_table: {self.table!r} is no table", 'write "schema.table"'
        if not self.keys:
            yield "postgres_table: names no key", 'write keys=["order_id"]: rows are found by them'

    def judge(self, rows: DataFrame) -> None:
        check_feed("postgres_table", rows.schema, self.keys)

    def prepare(self, rows: DataFrame) -> None:
        """Raises `DeliveryError` with what differs, where the table is not there or does not take such rows."""
        fields = [rows.schema[name] for name in own_columns(rows.columns)]
        with self._transaction() as cursor:
            there = find_columns(cursor, *self.path)
            if not there:
                columns = ", ".join(f"{as_written(of_rows.name)} {_new_type(of_rows.dataType)}" for of_rows in fields)
                statement = f"CREATE TABLE {as_written(*self.path)} ({columns}, {primary_key(self.keys)})"
                raise DeliveryError(f"there is no PostgreSQL table {self.outside}", hint=statement)
            if misfits := differences(fields, there):
                message = f"rows do not fit PostgreSQL table {self.outside}: {'; '.join(misfits)}"
                raise DeliveryError(message, hint="alter the table, or the function")
            if not has_unique_index(cursor, self.path, self.keys):
                message = f"PostgreSQL table {self.outside} has no unique index of {', '.join(self.keys)} alone"
                raise DeliveryError(message, hint=f"ALTER TABLE {as_written(*self.path)} ADD {primary_key(self.keys)}")
            batches = sql.Identifier(self.path[0], BATCHES)  # the last one of each stream, by the id of its checkpoint
            present = cursor.execute("SELECT to_regclass(%s)", [batches.as_string(cursor)]).fetchone()
            if not present or present[0] is None:
                columns = "stream text, query_id text, batch_id bigint NOT NULL"
                columns += ", written_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (stream, query_id)"
                cursor.execute(sql.SQL(f"CREATE TABLE IF NOT EXISTS {{}} ({columns})").format(batches))

    def write(self, batch: DataFrame, target: Target) -> None:
        names = own_columns(batch.columns)
        with self._transaction() as cursor:
            # Who comes second waits here for the first one's end.
            note = sql.SQL(
                "INSERT INTO {0} AS noted (stream, query_id, batch_id) VALUES (%s, %s, %s) ON CONFLICT (stream, "
                "query_id) DO UPDATE SET batch_id = EXCLUDED.batch_id, written_at = now() "
                "WHERE noted.batch_id < EXCLUDED.batch_id"
            ).format(sql.Identifier(self.path[0], BATCHES))
            if not cursor.execute(note, [target.stream, target.query_id, target.batch_id]).rowcount:
                log.info("batch_passed_over", stream=target.stream, batch_id=target.batch_id, table=self.outside)
                return
            self._copy(cursor, self._newest(batch), names)
            self._apply(cursor, names)

    @contextmanager
    def _transaction(self) -> Iterator[Cursor]:
        """Every error of psycopg leaves here as an `DeliveryError`, in one line with the next step."""
        password = self.password.reveal() if self.password else None
        try:
            connected = psycopg.connect(
                self.url, password=password, connect_timeout=_CONNECT_S, application_name="weir"
            )
            with closing(connected) as connection, connection.transaction():
                yield connection.cursor()
        except psycopg.Error as exc:
            step = next((step for kinds, step in _STEPS if isinstance(exc, kinds)), "see PostgreSQL's manual")
            # of a COPY also the line and column
            parts = [exc.diag.message_primary, exc.diag.message_detail, exc.diag.context]
            reason = "; ".join(part.splitlines()[0] for part in parts if part) or str(exc).splitlines()[0]
            raise DeliveryError(f"PostgreSQL table {self.outside}: {reason}", hint=step) from exc

    def _newest(self, batch: DataFrame) -> DataFrame:
        """The last state of each key. Where several rows share it, PostgreSQL refuses them: keys must be unique."""
        last = F.rank().over(Window.partitionBy(*map(quoted, self.keys)).orderBy(F.desc(COMMIT_VERSION)))
        newest = by_version(batch, self.keys).withColumn(_NEWEST, last).where(f"{_NEWEST} = 1")
        own = [batch.schema[name] for name in own_columns(batch.columns)]
        return newest.select(*map(_as_text, own), F.col(DELETED).cast("string"))

    def _copy(self, cursor: Cursor, rows: DataFrame, names: Sequence[str]) -> None:
        """Rows pass through this process one partition of Spark's at a time."""
        parts = {"rows": _ROWS, "columns": _listed(names), "table": sql.Identifier(*self.path)}
        like = "CREATE TEMP TABLE {rows} ON COMMIT DROP AS SELECT {columns}, false AS _weir_deleted FROM {table}"
        cursor.execute(sql.SQL(f"{like} WITH NO DATA").format(**parts))
        with cursor.copy(sql.SQL("COPY {rows} FROM STDIN").format(**parts)) as copy:
            for row in rows.toLocalIterator():
                copy.write_row(row)

    def _apply(self, cursor: Cursor, names: Sequence[str]) -> None:
        others = [sql.Identifier(name) for name in names if name not in self.keys]
        updates = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(name) for name in others)
        parts = {
            "rows": _ROWS,
            "table": sql.Identifier(*self.path),
            "columns": _listed(names),
            "keys": _listed(self.keys),
            "same": sql.SQL(" AND ").join(sql.SQL("t.{0} = r.{0}").format(sql.Identifier(key)) for key in self.keys),
            "act": sql.SQL("UPDATE SET {}").format(updates) if others else sql.SQL("NOTHING"),
        }
        deletion = "DELETE FROM {table} AS t USING {rows} AS r WHERE r._weir_deleted AND {same}"
        cursor.execute(sql.SQL(deletion).format(**parts))
        insertion = "INSERT INTO {table} ({columns}) SELECT {columns} FROM {rows} WHERE NOT _weir_deleted"
        cursor.execute(sql.SQL(f"{insertion} ON CONFLICT ({{keys}}) DO {{act}}").format(**parts))


def postgres_table(url: str, table: str, *, keys: Sequence[str], password: Secret | None = None) -> PostgresTableSink:
    """Keep a table of PostgreSQL equal to one of the lake. The stream reads `table(…).changes()`.

    `url`: `postgresql://user@host:5432/database?sslmode=verify-full`, without the password, which is
    `secret("env:NAME")`. `table`: `schema.name`; it exists, with the function's columns and a unique index of `keys`.
    """
    return PostgresTableSink(url, table, tuple(keys), password)


def _as_text(column: StructField) -> Column:
    """A value as PostgreSQL reads it, exactly: an instant with its offset, bytes in hex, what is nested as JSON."""
    value, kind = F.col(quoted(column.name)), column.dataType
    if isinstance(kind, _NESTED):
        text = F.to_json(value, {"ignoreNullFields": "false"})
    elif isinstance(kind, BinaryType):
        text = F.concat(F.lit("\\x"), F.hex(value))
    elif isinstance(kind, TimestampType):
        text = F.concat(value.cast("string"), F.date_format(value, "xxxxx"))
    else:
        text = value.cast("string")
    return text.alias(column.name)


def _listed(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


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
    lines = []
    for row_column in rows:
        column = there.get(row_column.name)
        if column is None:
            lines.append(f"+ {row_column.name} {_new_type(row_column.dataType)}")
        elif not _takes(column, row_column.dataType):
            lines.append(f"~ {row_column.name}: {column.shown} → {_new_type(row_column.dataType)}")
    given = {row_column.name for row_column in rows}
    needed = [name for name, column in there.items() if column.required and name not in given]
    return [*lines, *(f"- {name}: it needs a value" for name in needed)]


def primary_key(keys: Sequence[str]) -> str:
    return f"PRIMARY KEY ({', '.join(map(as_written, keys))})"


def as_written(*path: str) -> str:
    """A name as a person writes it in SQL: in quotes where it needs them."""
    return ".".join(part if _PLAIN.fullmatch(part) else '"' + part.replace('"', '""') + '"' for part in path)


def _takes(column: PostgresColumn, kind: DataType) -> bool:
    word = _word(kind)
    if column.type_name not in _TAKES.get(word, ()):
        return False
    limits = _SCALE.fullmatch(column.shown)
    if not limits:
        return True
    precision, scale = (kind.precision, kind.scale) if isinstance(kind, DecimalType) else (_DIGITS[word], 0)
    return int(limits[2]) >= scale and int(limits[1]) - int(limits[2]) >= precision - scale


def _new_type(kind: DataType) -> str:
    if isinstance(kind, DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    return next(iter(_TAKES.get(_word(kind), ())), f"(PostgreSQL has nothing like {kind.simpleString()})")


def _word(kind: DataType) -> str:
    return re.split(r"[<( ]", kind.simpleString(), maxsplit=1)[0]
