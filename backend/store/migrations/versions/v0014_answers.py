"""What acts on tables and streams did, beside the job that did it.

Rule: a released migration never changes; the next one amends it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job", sa.Column("answer", sa.Text))


def downgrade() -> None:
    raise NotImplementedError("run the former version of Weir on a copy of the store from before")
