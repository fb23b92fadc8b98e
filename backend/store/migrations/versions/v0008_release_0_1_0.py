"""The schema of release 0.1.0.

Rule: a released migration never changes; the next one amends it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"  # stores that were made on the way to the release end here, too
down_revision = None
branch_labels = None
depends_on = None

UTC = sa.DateTime(timezone=True)
BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _streams()
    _progress()
    _hosts()
    _acts()


def downgrade() -> None:
    raise NotImplementedError("nothing is older than the first release")


def _streams() -> None:
    op.create_table(
        "desired",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("requested_at", UTC, nullable=False),
        sa.Column("overrides", sa.JSON),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "declaration",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.Column("declared_at", UTC, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "observed",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("host_id", sa.Text, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("observed_at", UTC, nullable=False),
        sa.Column("query_id", sa.Text),
        sa.Column("run_id", sa.Text),
        sa.Column("started_at", UTC),
        sa.Column("next_start_at", UTC),
        sa.Column("failures", sa.JSON, nullable=False),
        sa.Column("last_trigger_at", UTC),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "topic_ends",
        sa.Column("stream", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("at", UTC, nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("stream", "source"),
    )


def _progress() -> None:
    op.create_table(
        "progress",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("stream", sa.Text, nullable=False),
        sa.Column("query_id", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("batch_id", sa.BigInteger, nullable=False),
        sa.Column("progressed_at", UTC, nullable=False),
        sa.Column("num_input_rows", sa.BigInteger, nullable=False),
        sa.Column("input_rows_per_s", sa.Float(53)),
        sa.Column("processed_rows_per_s", sa.Float(53)),
        sa.Column("batch_duration_ms", sa.BigInteger),
        sa.Column("durations_ms", sa.JSON, nullable=False),
        sa.Column("watermark", UTC),
        sa.Column("state_rows", sa.BigInteger),
        sa.Column("state_bytes", sa.BigInteger),
        sa.Column("rows_dropped_by_watermark", sa.BigInteger),
        sa.Column("output_rows", sa.BigInteger),
        sa.Column("expectations", sa.JSON, nullable=False),
        sa.Column("raw", sa.LargeBinary, nullable=False),
        sa.Column("counted", sa.Boolean),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("run_id", "batch_id", "progressed_at", name="uq_progress_event"),
    )
    op.create_index("ix_progress_age", "progress", ["progressed_at"])
    op.create_index(
        "ix_progress_new",
        "progress",
        ["stream", "id"],
        sqlite_where=sa.text("counted IS NULL"),
        postgresql_where=sa.text("counted IS NULL"),
    )
    op.create_index("ix_progress_stream", "progress", ["stream", "progressed_at"])
    op.create_table(
        "progress_rollup",
        sa.Column("stream", sa.Text, nullable=False),
        sa.Column("grain_s", sa.Integer, nullable=False),
        sa.Column("at", UTC, nullable=False),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("query_id", sa.Text, nullable=False),
        sa.Column("batches", sa.BigInteger, nullable=False),
        sa.Column("first_at", UTC, nullable=False),
        sa.Column("first_batch", sa.BigInteger, nullable=False),
        sa.Column("last_at", UTC, nullable=False),
        sa.Column("last_batch", sa.BigInteger, nullable=False),
        sa.Column("ended_at", UTC, nullable=False),
        sa.Column("input_rows", sa.BigInteger, nullable=False),
        sa.Column("output_rows", sa.BigInteger, nullable=False),
        sa.Column("output_rows_known", sa.BigInteger, nullable=False),
        sa.Column("dropped_rows", sa.BigInteger, nullable=False),
        sa.Column("dropped_rows_known", sa.BigInteger, nullable=False),
        sa.Column("input_rows_per_s", sa.Float(53), nullable=False),
        sa.Column("input_rows_per_s_known", sa.BigInteger, nullable=False),
        sa.Column("processed_rows_per_s", sa.Float(53), nullable=False),
        sa.Column("processed_rows_per_s_known", sa.BigInteger, nullable=False),
        sa.Column("duration_ms", sa.BigInteger, nullable=False),
        sa.Column("duration_ms_known", sa.BigInteger, nullable=False),
        sa.Column("longest_ms", sa.BigInteger),
        sa.Column("phases_ms", sa.JSON, nullable=False),
        sa.Column("watermark", UTC),
        sa.Column("state_rows", sa.BigInteger),
        sa.Column("most_behind_ms", sa.BigInteger),
        sa.Column("most_unread_rows", sa.BigInteger),
        sa.Column("expectations", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("stream", "grain_s", "at", "run_id"),
    )
    op.create_index("ix_progress_rollup_age", "progress_rollup", ["grain_s", "at"])


def _hosts() -> None:
    op.create_table(
        "host",
        sa.Column("host_id", sa.Text, nullable=False),
        sa.Column("hostname", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("started_at", UTC, nullable=False),
        sa.Column("beat_at", UTC, nullable=False),
        sa.Column("spark_version", sa.Text),
        sa.Column("spark_ui_url", sa.Text),
        sa.Column("tags", sa.JSON),
        sa.Column("streams", sa.JSON),
        sa.PrimaryKeyConstraint("host_id"),
    )
    op.create_table(
        "lease",
        sa.Column("resource", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("expires_at", UTC, nullable=False),
        sa.PrimaryKeyConstraint("resource"),
    )
    op.create_table(
        "attached_app",
        sa.Column("host_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("hostname", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("started_at", UTC, nullable=False),
        sa.Column("beat_at", UTC, nullable=False),
        sa.Column("spark_version", sa.Text),
        sa.Column("spark_ui_url", sa.Text),
        sa.PrimaryKeyConstraint("host_id"),
    )
    sqlite = op.get_bind().dialect.name == "sqlite"
    # Seconds since 1970 by the store's own clock: applications leave their events without a time.
    now = "(julianday('now') - 2440587.5) * 86400.0" if sqlite else "extract(epoch from clock_timestamp())"
    op.create_table(
        "attached_event",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("app_id", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("at", sa.Float(53), nullable=False, server_default=sa.text(f"({now})")),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_attached_event_app", "attached_event", ["app_id", "id"])


def _acts() -> None:
    op.create_table(
        "job",
        sa.Column("job_id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("time_limit_s", sa.Float(53), nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("requested_at", UTC, nullable=False),
        sa.Column("started_at", UTC),
        sa.Column("ended_at", UTC),
        sa.Column("host_id", sa.Text),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("done_units", sa.BigInteger, nullable=False),
        sa.Column("total_units", sa.BigInteger),
        sa.Column("cancel_requested", sa.Boolean, nullable=False),
        sa.Column("result_uri", sa.Text),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("hint", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_index("ix_job_fingerprint", "job", ["fingerprint", "requested_at"])
    op.create_index("ix_job_state", "job", ["state", "requested_at"])
    op.create_table(
        "audit",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("at", UTC, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_audit_subject", "audit", ["subject", "at"])
    op.create_table(
        "table_expectation",
        sa.Column("uri", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("host_id", sa.Text, nullable=False),
        sa.Column("judged_at", UTC, nullable=False),
        sa.Column("broken_since", UTC),
        sa.Column("expectation", sa.JSON, nullable=False),
        sa.Column("finding", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("uri", "name"),
    )
