"""What waits for each stream, as its host last saw it.

Rule: a released migration never changes; the next one amends it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "backlog",
        sa.Column("stream", sa.Text, nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("stream"),
    )


def downgrade() -> None:
    raise NotImplementedError("run the former version of Weir on a copy of the store from before")
