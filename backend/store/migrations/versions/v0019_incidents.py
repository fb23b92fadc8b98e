"""Incidents: what went wrong with tables, and what people noted of it."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    body = sa.Column("body", sa.JSON(), nullable=False)
    op.create_table("incident", sa.Column("id", number, primary_key=True, autoincrement=True), body)


def downgrade() -> None:
    raise NotImplementedError("run the former version of Weir on a copy of the store from before")
