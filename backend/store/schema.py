"""The tables of the control store, of which a new one is made.

Rule: a change here comes with a migration; a test brings a store of the baseline to the newest schema and compares.
"""

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator

EPOCH, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


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


metadata = sa.MetaData()
BigId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite counts up INTEGER keys only

desired = sa.Table(
    "desired",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("requested_at", UtcDateTime, nullable=False),
    sa.Column("overrides", sa.JSON),
)

declaration = sa.Table(
    "declaration",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("body", sa.JSON, nullable=False),
    sa.Column("declared_at", UtcDateTime, nullable=False),
)

observed = sa.Table(
    "observed",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("host_id", sa.Text, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("observed_at", UtcDateTime, nullable=False),
    sa.Column("query_id", sa.Text),
    sa.Column("run_id", sa.Text),
    sa.Column("started_at", UtcDateTime),
    sa.Column("next_start_at", UtcDateTime),
    sa.Column("failures", sa.JSON, nullable=False),
    sa.Column("last_trigger_at", UtcDateTime),
)

topic_ends = sa.Table(
    "topic_ends",
    metadata,
    sa.Column("stream", sa.Text, primary_key=True),
    sa.Column("source", sa.Text, primary_key=True),
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Column("body", sa.JSON, nullable=False),
)

backlog = sa.Table(
    "backlog",
    metadata,
    sa.Column("stream", sa.Text, primary_key=True),
    sa.Column("seen_at", UtcDateTime, nullable=False),
    sa.Column("body", sa.JSON, nullable=False),
)

table_expectation = sa.Table(
    "table_expectation",
    metadata,
    sa.Column("uri", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("pipeline", sa.Text, nullable=False),
    sa.Column("host_id", sa.Text, nullable=False),
    sa.Column("judged_at", UtcDateTime, nullable=False),
    sa.Column("broken_since", UtcDateTime),
    sa.Column("expectation", sa.JSON, nullable=False),
    sa.Column("finding", sa.JSON, nullable=False),
)

notice = sa.Table(
    "notice",
    metadata,
    sa.Column("uri", sa.Text, primary_key=True),
    sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("subject", sa.Text, primary_key=True),
    sa.Column("table", sa.Text, nullable=False),
    sa.Column("before", sa.Text, nullable=False),
    sa.Column("after", sa.Text, nullable=False),
    sa.Column("condition", sa.Text, nullable=False),
    sa.Column("by", sa.Text, nullable=False),
    sa.Column("committed_at", UtcDateTime),
    sa.Column("mended_at", sa.BigInteger),
    sa.Column("seen_by", sa.Text, nullable=False),
    sa.Column("seen_reason", sa.Text, nullable=False),
    sa.Column("noticed_at", UtcDateTime, nullable=False),
)

told = sa.Table(
    "told",
    metadata,
    sa.Column("receiver", sa.Text, primary_key=True),
    sa.Column("items", sa.JSON, nullable=False),
    sa.Column("error", sa.Text, nullable=False),
    sa.Column("failed_at", UtcDateTime),
)

_NOT_YET = sa.text("counted IS NULL")
progress = sa.Table(
    "progress",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("stream", sa.Text, nullable=False),
    sa.Column("query_id", sa.Text, nullable=False),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("batch_id", sa.BigInteger, nullable=False),
    sa.Column("progressed_at", UtcDateTime, nullable=False),
    sa.Column("num_input_rows", sa.BigInteger, nullable=False),
    sa.Column("input_rows_per_s", sa.Float(53)),
    sa.Column("processed_rows_per_s", sa.Float(53)),
    sa.Column("batch_duration_ms", sa.BigInteger),
    sa.Column("durations_ms", sa.JSON, nullable=False),
    sa.Column("watermark", UtcDateTime),
    sa.Column("state_rows", sa.BigInteger),
    sa.Column("state_bytes", sa.BigInteger),
    sa.Column("rows_dropped_by_watermark", sa.BigInteger),
    sa.Column("output_rows", sa.BigInteger),
    sa.Column("expectations", sa.JSON, nullable=False),
    sa.Column("raw", sa.LargeBinary, nullable=False),  # Spark's JSON, packed (packed.py)
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
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("query_id", sa.Text, nullable=False),
    sa.Column("batches", sa.BigInteger, nullable=False),
    sa.Column("first_at", UtcDateTime, nullable=False),
    sa.Column("first_batch", sa.BigInteger, nullable=False),
    sa.Column("last_at", UtcDateTime, nullable=False),
    sa.Column("last_batch", sa.BigInteger, nullable=False),
    sa.Column("ended_at", UtcDateTime, nullable=False),
    sa.Column("input_rows", sa.BigInteger, nullable=False),
    *(
        sa.Column(
            f"{name}{part}", sa.Float(53) if name.endswith("_per_s") and not part else sa.BigInteger, nullable=False
        )
        for name in ROLLUP_SUMS
        for part in ("", "_known")
    ),
    sa.Column("longest_ms", sa.BigInteger),
    sa.Column("phases_ms", sa.JSON, nullable=False),
    sa.Column("watermark", UtcDateTime),
    sa.Column("state_rows", sa.BigInteger),
    sa.Column("most_behind_ms", sa.BigInteger),
    sa.Column("most_unread_rows", sa.BigInteger),
    sa.Column("expectations", sa.JSON, nullable=False),
    sa.Index("ix_progress_rollup_age", "grain_s", "at"),
)

host = sa.Table(
    "host",
    metadata,
    sa.Column("host_id", sa.Text, primary_key=True),
    sa.Column("hostname", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("started_at", UtcDateTime, nullable=False),
    sa.Column("beat_at", UtcDateTime, nullable=False),
    sa.Column("spark_version", sa.Text),
    sa.Column("spark_ui_url", sa.Text),
    sa.Column("tags", sa.JSON),
    sa.Column("streams", sa.JSON),
    sa.Column("streams_key", sa.Text),  # says what is in `streams`, which is long and rarely changes
    sa.Column("max_streams", sa.Integer),
)
HOSTS_ALONE = ("host_id", "tags", "streams", "streams_key", "max_streams")  # what no attached application has

# Written by `weir_attach` in other Spark applications, to whom this table's columns are a contract.
attached_event = sa.Table(
    "attached_event",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("app_id", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),  # JSON
    sa.Column("at", sa.Float(53), nullable=False, server_default=StoreSeconds()),
    sa.Index("ix_attached_event_app", "app_id", "id"),
)

attached_app = sa.Table(
    "attached_app",
    metadata,
    sa.Column("host_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    *(column.copy() for column in host.c if column.name not in HOSTS_ALONE),
)

lease = sa.Table(
    "lease",
    metadata,
    sa.Column("resource", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),  # "" once released: the row keeps the token
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("expires_at", UtcDateTime, nullable=False),
)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Index("ix_audit_subject", "subject", "at"),
)

job = sa.Table(
    "job",
    metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("request", sa.Text, nullable=False),  # JSON that the kind understands
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("time_limit_s", sa.Float(53), nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("requested_at", UtcDateTime, nullable=False),
    sa.Column("started_at", UtcDateTime),
    sa.Column("ended_at", UtcDateTime),
    sa.Column("host_id", sa.Text),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("phase", sa.Text, nullable=False),
    sa.Column("done_units", sa.BigInteger, nullable=False),
    sa.Column("total_units", sa.BigInteger),
    sa.Column("cancel_requested", sa.Boolean, nullable=False),
    sa.Column("result_uri", sa.Text),
    sa.Column("answer", sa.Text),  # JSON
    sa.Column("error", sa.Text, nullable=False),
    sa.Column("hint", sa.Text, nullable=False),
    sa.Index("ix_job_fingerprint", "fingerprint", "requested_at"),
    sa.Index("ix_job_state", "state", "requested_at"),
)

pin = sa.Table(
    "pin",
    metadata,
    sa.Column("uri", sa.Text, primary_key=True),
    sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("pinned_at", UtcDateTime, nullable=False),
    sa.Column("name", sa.Text),
    sa.Column("until", UtcDateTime),
    sa.Index("ix_pin_name", "uri", "name", unique=True),
)

saved_query = sa.Table(
    "saved_query",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("chart", sa.JSON),
    sa.Column("saved_at", UtcDateTime, nullable=False),
)
