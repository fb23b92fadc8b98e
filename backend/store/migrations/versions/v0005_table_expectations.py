"""What hosts found of expectations on tables.

Rule: a released migration never changes; the next one amends it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "table_expectation",
        sa.Column("uri", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("host_id", sa.Text, nullable=False),
        sa.Column("judged_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("broken_since", sa.DateTime(timezone=True)),
        sa.Column("expectation", sa.JSON, nullable=False),
        sa.Column("finding", sa.JSON, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("table_expectation")
