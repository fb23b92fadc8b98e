"""How many streams a host takes, and what names the streams that it can run.

Rule: a released migration never changes; the next one amends it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("host", sa.Column("streams_key", sa.Text))
    op.add_column("host", sa.Column("max_streams", sa.Integer))


def downgrade() -> None:
    raise NotImplementedError("run the former version of Weir on a copy of the store from before")
