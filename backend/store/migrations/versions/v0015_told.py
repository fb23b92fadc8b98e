"""What a webhook was told of what needs attention.

Rule: a released migration never changes; the next one amends it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "told",
        sa.Column("receiver", sa.Text, primary_key=True),
        sa.Column("items", sa.JSON, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("failed_at", sa.DateTime(timezone=True)),
    )


def downgrade() -> None:
    raise NotImplementedError("run the former version of Weir on a copy of the store from before")
