"""The tags of a host, and the streams that it can run.

Rule: a released migration never changes; the next one amends it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("host", sa.Column("tags", sa.JSON))
    op.add_column("host", sa.Column("streams", sa.JSON))


def downgrade() -> None:
    op.drop_column("host", "streams")
    op.drop_column("host", "tags")
