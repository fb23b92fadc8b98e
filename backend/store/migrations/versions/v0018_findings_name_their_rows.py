"""What commits did says who ran them, how many rows it hurt and which, and what would repair them."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.add_column("notice", sa.Column("job", sa.Text(), nullable=False, server_default=""))
    op.add_column("notice", sa.Column("rows", sa.BigInteger()))
    op.add_column("notice", sa.Column("where", sa.Text(), nullable=False, server_default=""))
    op.add_column("notice", sa.Column("repair", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    raise NotImplementedError("run the former version of Weir on a copy of the store from before")
