"""Jobs that a stream host does once.

Rule: a released migration never changes; the next one amends it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

UTC = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "job",
        sa.Column("job_id", sa.Text, primary_key=True),
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
    )
    op.create_index("ix_job_fingerprint", "job", ["fingerprint", "requested_at"])
    op.create_index("ix_job_state", "job", ["state", "requested_at"])


def downgrade() -> None:
    op.drop_table("job")
