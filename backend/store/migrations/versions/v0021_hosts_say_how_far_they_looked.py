"""A host says at how many of the lake's tables it has looked, while it leads."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    for table in ("host", "attached_app"):  # which is kept as a host is
        for name in ("tables_looked_at", "tables_found"):
            op.add_column(table, sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    raise NotImplementedError("run the former version of Weir on a copy of the store from before")
