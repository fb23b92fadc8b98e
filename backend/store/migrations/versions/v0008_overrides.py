"""Settings that a person gives a stream in place of declared ones.

Rule: a released migration never changes; the next one amends it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("desired", sa.Column("overrides", sa.JSON))


def downgrade() -> None:
    op.drop_column("desired", "overrides")
