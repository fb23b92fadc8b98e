"""A pinned version may have a name, one of its own in its table, and an end.

Rule: a released migration never changes; the next one amends it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pin", sa.Column("name", sa.Text))
    op.add_column("pin", sa.Column("until", sa.DateTime(timezone=True)))
    op.create_index("ix_pin_name", "pin", ["uri", "name"], unique=True)


def downgrade() -> None:
    raise NotImplementedError("run the former version of Weir on a copy of the store from before")
