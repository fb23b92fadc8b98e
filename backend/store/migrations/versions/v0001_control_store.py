"""The first schema: desired, declared and observed streams, progress, hosts, leases, audit.

Rule: a released migration never changes; the next one amends it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

UTC = sa.DateTime(timezone=True)
BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _streams()
    _progress()
    _hosts()
    _audit()


def downgrade() -> None:
    for table in ("audit", "lease", "host", "progress", "observed", "declaration", "desired"):
        op.drop_table(table)


def _streams() -> None:
    op.create_table(
        "desired",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("requested_at", UTC, nullable=False),
    )
    op.create_table(
        "declaration",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("body", sa.JSON, nullable=False),
        sa.Column("declared_at", UTC, nullable=False),
    )
    op.create_table(
        "observed",
        sa.Column("name", sa.Text, primary_key=True),
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
    )


def _progress() -> None:
    op.create_table(
        "progress",
        sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
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
        sa.UniqueConstraint("run_id", "batch_id", "progressed_at", name="uq_progress_event"),
    )
    op.create_index("ix_progress_stream", "progress", ["stream", "progressed_at"])
    op.create_index("ix_progress_age", "progress", ["progressed_at"])


def _hosts() -> None:
    op.create_table(
        "host",
        sa.Column("host_id", sa.Text, primary_key=True),
        sa.Column("hostname", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("started_at", UTC, nullable=False),
        sa.Column("beat_at", UTC, nullable=False),
        sa.Column("spark_version", sa.Text),
        sa.Column("spark_ui_url", sa.Text),
    )
    op.create_table(
        "lease",
        sa.Column("resource", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("expires_at", UTC, nullable=False),
    )


def _audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
        sa.Column("at", UTC, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_index("ix_audit_subject", "audit", ["subject", "at"])
