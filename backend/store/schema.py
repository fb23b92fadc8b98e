"""The tables of the control store, made of the values that they keep, and how a row becomes a value again.

Rule: a field of a value is a column of its name: times as the database has them, what is nested as JSON. What differs
from that is said at its table. A change of a value that is kept is a change of a table and comes with a migration; a
test brings a store of the baseline to the newest schema and compares. A row that cannot be read is a `ValueError`,
which leaves the store as a `StoreError`.
"""

import logging
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from enum import StrEnum
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine

from backend.expectations.model import Judgement
from backend.jobs.model import Job
from backend.lake.model import Pin
from backend.search.notice import Notice
from backend.sql.saved import SavedQuery
from backend.stream_model.backlog import Backlog
from backend.stream_model.rollup import Rollup
from backend.stream_model.stream import (
    AuditEntry,
    Desired,
    HostHeartbeat,
    Lease,
    Observed,
    Progress,
    StreamDeclaration,
    TopicEnds,
)

EPOCH, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
UNREADABLE: dict[str, None] = {}  # rows that were passed over, by table and key
_MOST_NAMED = 1_000
_log = logging.getLogger(__name__)
Row = Mapping[Any, Any]  # keys are column names; SQLAlchemy types them more widely
Value = TypeVar("Value")
Read = type[Value] | Callable[[Row], Value]  # a kind of values, or what makes one of a row


# types ---------------------------------------------------------------------------------------------------------------


class UtcDateTime(TypeDecorator[datetime]):
    """An aware UTC datetime; SQLite keeps it without its zone, PostgreSQL as `timestamptz`."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("the store takes aware datetimes only")
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class StoreSeconds(FunctionElement[float]):
    """Seconds since 1970 by the store's own clock: applications leave their events without a time."""

    type = sa.Float(53)
    inherit_cache = True


@compiles(StoreSeconds)
def _sql_of_seconds(_element: StoreSeconds, compiler: Any, **_: object) -> str:
    is_sqlite = compiler.dialect.name == "sqlite"
    return "((julianday('now') - 2440587.5) * 86400.0)" if is_sqlite else "extract(epoch from clock_timestamp())"


_BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite counts up INTEGER keys only
_TYPES: dict[type, TypeEngine[Any]] = {
    str: sa.Text(),
    int: sa.BigInteger(),
    float: sa.Float(53),
    bool: sa.Boolean(),
    datetime: UtcDateTime(),
}
_SHORT = ("generation", "pid", "max_streams", "attempts")  # whole numbers of 32 bits


def _columns(
    kind: type,
    *,
    key: Collection[str] = (),
    only: Sequence[str] = (),
    without: Collection[str] = (),
    nullable: Collection[str] = (),
) -> Iterator[sa.Column[Any]]:
    """One for each field of a value; NULL for None, and in `nullable` ones for the field's default."""
    hints = get_type_hints(kind)
    for name in only or [name for name in hints if name not in without]:
        given = set(get_args(hints[name])) if NoneType in get_args(hints[name]) else {hints[name]}
        (plain,) = given - {NoneType}
        is_text = isinstance(plain, type) and issubclass(plain, StrEnum)
        type_ = sa.Integer() if name in _SHORT else _TYPES.get(str if is_text else plain, sa.JSON())
        yield sa.Column(
            name, type_, primary_key=name in key, nullable=NoneType in given or name in nullable, autoincrement=False
        )


def _number() -> sa.Column[int]:
    """The key of rows that are counted up."""
    return sa.Column("id", _BIG_ID, primary_key=True, autoincrement=True)


# streams -------------------------------------------------------------------------------------------------------------

metadata = sa.MetaData()

desired = sa.Table("desired", metadata, *_columns(Desired, key=["name"], nullable=["overrides"]))
observed = sa.Table("observed", metadata, *_columns(Observed, key=["name"]))

# Values into which no statement looks: `body` is all of one but for the other columns.
declaration = sa.Table(
    "declaration",
    metadata,
    *_columns(StreamDeclaration, key=["name"], only=["name"]),
    sa.Column("body", sa.JSON, nullable=False),
    sa.Column("declared_at", UtcDateTime, nullable=False),
)
topic_ends = sa.Table(
    "topic_ends",
    metadata,
    *_columns(TopicEnds, key=["stream", "source"], only=["stream", "source", "at"]),
    sa.Column("body", sa.JSON, nullable=False),
)
backlog = sa.Table(
    "backlog",
    metadata,
    sa.Column("stream", sa.Text, primary_key=True),
    *_columns(Backlog, only=["seen_at"]),
    sa.Column("body", sa.JSON, nullable=False),
)

_NOT_YET = sa.text("counted IS NULL")
progress = sa.Table(
    "progress",
    metadata,
    _number(),
    *_columns(Progress, without=["raw_json"]),
    sa.Column("raw", sa.LargeBinary, nullable=False),  # Spark's JSON, packed
    sa.Column("counted", sa.Boolean),  # whether `progress_rollup` holds it; NULL for not yet
    sa.UniqueConstraint("run_id", "batch_id", "progressed_at", name="uq_progress_event"),
    sa.Index("ix_progress_stream", "stream", "progressed_at"),
    sa.Index("ix_progress_age", "progressed_at"),
    sa.Index("ix_progress_new", "stream", "id", sqlite_where=_NOT_YET, postgresql_where=_NOT_YET),
)
PROGRESS_LONG = ("durations_ms", "expectations", "raw")  # takes long to read

# The batches of one run that began in `grain_s` seconds from `at`. Of a sum, `…_known` batches told.
ROLLUP_SUMS = ("output_rows", "dropped_rows", "input_rows_per_s", "processed_rows_per_s", "duration_ms")
progress_rollup = sa.Table(
    "progress_rollup",
    metadata,
    sa.Column("stream", sa.Text, primary_key=True),
    sa.Column("grain_s", sa.Integer, primary_key=True),
    sa.Column("at", UtcDateTime, primary_key=True),
    *_columns(Rollup, key=["run_id"], without=ROLLUP_SUMS),
    *(
        sa.Column(name, sa.Float(53) if name.endswith("_per_s") else sa.BigInteger, nullable=False)
        for name in ROLLUP_SUMS
    ),
    *(sa.Column(f"{name}_known", sa.BigInteger, nullable=False) for name in ROLLUP_SUMS),
    sa.Index("ix_progress_rollup_age", "grain_s", "at"),
)

# hosts and other applications ----------------------------------------------------------------------------------------

host = sa.Table(
    "host",
    metadata,
    *_columns(HostHeartbeat, key=["host_id"], nullable=["tags", "streams"]),
    sa.Column("streams_key", sa.Text),  # says what is in `streams`, which is long and rarely changes
)
lease = sa.Table("lease", metadata, *_columns(Lease, key=["resource"]))  # owner "" once released: the token stays

# Written by `weir_attach` in other Spark applications, to whom this table's columns are a contract.
attached_event = sa.Table(
    "attached_event",
    metadata,
    _number(),
    sa.Column("app_id", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),  # JSON
    sa.Column("at", sa.Float(53), nullable=False, server_default=StoreSeconds()),
    sa.Index("ix_attached_event_app", "app_id", "id"),
)
attached_app = sa.Table(
    "attached_app",
    metadata,
    *_columns(HostHeartbeat, key=["host_id"], without=["tags", "streams", "max_streams"]),
    sa.Column("name", sa.Text, nullable=False),
)

# acts, and what is noted of tables -----------------------------------------------------------------------------------

audit = sa.Table(
    "audit",
    metadata,
    _number(),  # without a gap
    *_columns(AuditEntry, without=["id"]),
    sa.Column("hash", sa.Text, nullable=False),  # of this row and of the hash before: backend/store/audit.py
    sa.Index("ix_audit_subject", "subject", "at"),
)

job = sa.Table(
    "job",
    metadata,
    *_columns(Job, key=["job_id"], without=["progress"]),
    sa.Column("phase", sa.Text, nullable=False),
    sa.Column("done_units", sa.BigInteger, nullable=False),
    sa.Column("total_units", sa.BigInteger),
    sa.Index("ix_job_fingerprint", "fingerprint", "requested_at"),
    sa.Index("ix_job_state", "state", "requested_at"),
)

# Columns that name the expectation are copies of what is in it.
table_expectation = sa.Table(
    "table_expectation",
    metadata,
    sa.Column("uri", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("pipeline", sa.Text, nullable=False),
    *_columns(Judgement),
)
notice = sa.Table(
    "notice",
    metadata,
    *_columns(Notice, key=["uri", "version", "kind", "subject"]),
    sa.Column("noticed_at", UtcDateTime, nullable=False),
)
incident = sa.Table("incident", metadata, _number(), sa.Column("body", sa.JSON, nullable=False))  # all but its number
pin = sa.Table(
    "pin", metadata, *_columns(Pin, key=["uri", "version"]), sa.Index("ix_pin_name", "uri", "name", unique=True)
)
saved_query = sa.Table("saved_query", metadata, *_columns(SavedQuery, key=["name"]))
told = sa.Table(
    "told",
    metadata,
    sa.Column("receiver", sa.Text, primary_key=True),
    sa.Column("items", sa.JSON, nullable=False),
    sa.Column("error", sa.Text, nullable=False),
    sa.Column("failed_at", UtcDateTime),
)


# rows ----------------------------------------------------------------------------------------------------------------


_KINDS: dict[object, tuple[TypeAdapter[Any], frozenset[str]]] = {}  # each takes a millisecond to make


def _kind(kind: Any) -> tuple[TypeAdapter[Any], frozenset[str]]:
    """How a kind of values is checked and written, and which of its fields have a default."""
    if kind not in _KINDS:
        defaults = {
            field.name for field in fields(kind) if (field.default, field.default_factory) != (MISSING, MISSING)
        }
        _KINDS[kind] = TypeAdapter(kind), frozenset(defaults)
    return _KINDS[kind]


def value_of(kind: type[Value], row: Row) -> Value:
    """A value from a row or from JSON; columns that are no field of it are passed over, NULL is the field's default."""
    adapter, defaults = _kind(kind)
    given = {**row["body"], **row} if "body" in row else row
    try:
        value: Value = adapter.validate_python(
            {name: field for name, field in given.items() if field is not None or name not in defaults}
        )
    except ValidationError as exc:
        error = exc.errors(include_url=False)[0]
        raise ValueError(f"{'.'.join(map(str, error['loc']))}: {error['msg']}") from exc
    return value


def json_of(value: object) -> dict[str, Any]:
    body: dict[str, Any] = _kind(type(value))[0].dump_python(value, mode="json")
    return body


def row_of(value: object) -> dict[str, Any]:
    return {
        name: at if isinstance(at := getattr(value, name), datetime) else field
        for name, field in json_of(value).items()
    }


def row_with_body(value: object, **columns: object) -> dict[str, Any]:
    """These columns, and whatever else is in the value as its body."""
    return {**columns, "body": {name: field for name, field in json_of(value).items() if name not in columns}}


def fetch(connection: Connection, read: Read[Value], query: sa.Select[Any] | sa.Table) -> list[Value]:
    """The values of those rows that can be read."""
    if isinstance(query, sa.Table):
        query = sa.select(query)
    table = str(next(iter(query.selected_columns))).partition(".")[0]
    return readable(read, table, connection.execute(query).mappings())


def readable(read: Read[Value], table: str, rows: Iterable[Row]) -> list[Value]:
    """Those that can be read. One that another version of Weir wrote, or a stranger, keeps nobody from the others: it
    is passed over, and the log names it once."""
    values = []
    for row in rows:
        try:
            values.append(_read(read, row))
        except (ValueError, TypeError, KeyError, zlib.error) as exc:
            name = f"{table} {next(iter(row.values()))!r:.80}"
            if name not in UNREADABLE and len(UNREADABLE) < _MOST_NAMED:
                UNREADABLE[name] = None
                _log.warning("a row of the control store cannot be read: %s: %.200s", name, exc)
    return values


def fetch_one(connection: Connection, read: Read[Value], query: sa.Select[Any]) -> Value | None:
    """The value of the first row; None where there is none. Raises `ValueError` for one that cannot be read."""
    row = connection.execute(query.limit(1)).mappings().first()
    return None if row is None else _read(read, row)


def _read(read: Read[Value], row: Row) -> Value:
    return value_of(read, row) if isinstance(read, type) else read(row)
