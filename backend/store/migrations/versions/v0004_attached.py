"""What other Spark applications tell of their queries: an inbox, and the applications themselves.

Rule: a released migration never changes; the next one amends it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    big_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    # Seconds since 1970 by the store's own clock: applications' clocks differ.
    sqlite = op.get_bind().dialect.name == "sqlite"
    now = "(julianday('now') - 2440587.5) * 86400.0" if sqlite else "extract(epoch from clock_timestamp())"
    op.create_table(
        "attached_event",
        sa.Column("id", big_id, primary_key=True, autoincrement=True),
        sa.Column("app_id", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("at", sa.Float(53), nullable=False, server_default=sa.text(f"({now})")),
        sa.Index("ix_attached_event_app", "app_id", "id"),
    )
    op.create_table(
        "attached_app",
        sa.Column("host_id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("hostname", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("beat_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("spark_version", sa.Text),
        sa.Column("spark_ui_url", sa.Text),
    )


def downgrade() -> None:
    op.drop_table("attached_app")
    op.drop_table("attached_event")
