"""What commits of tables did that none before them did.

Rule: a released migration never changes; the next one amends it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "notice",
        sa.Column("uri", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("table", sa.Text, nullable=False),
        sa.Column("before", sa.Text, nullable=False),
        sa.Column("after", sa.Text, nullable=False),
        sa.Column("condition", sa.Text, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("committed_at", sa.DateTime(timezone=True)),
        sa.Column("mended_at", sa.BigInteger),
        sa.Column("seen_by", sa.Text, nullable=False),
        sa.Column("seen_reason", sa.Text, nullable=False),
        sa.Column("noticed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("uri", "version", "kind", "subject"),
    )


def downgrade() -> None:
    raise NotImplementedError("run the former version of Weir on a copy of the store from before")
