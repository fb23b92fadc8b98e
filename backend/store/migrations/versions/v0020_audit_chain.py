"""The audit trail says as what role, by which grant and with what result; each row has a hash of the one before."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from backend.store.audit import CHAINED, NO_ROWS, following
from backend.store.schema import UtcDateTime

revision = "0020"
down_revision = "0019"
_TEXTS = {"role": "", "granted_by": "", "result": "done", "hash": ""}


def upgrade() -> None:
    for name, value in _TEXTS.items():
        op.add_column("audit", sa.Column(name, sa.Text(), nullable=False, server_default=value))
    for name in ("version_before", "version_after"):
        op.add_column("audit", sa.Column(name, sa.BigInteger()))
    columns: list[sa.ColumnClause[Any]] = [sa.column(name) for name in ("id", "hash", *CHAINED)]
    audit = sa.table("audit", sa.column("at", UtcDateTime()), *columns)
    connection, newest, last = op.get_bind(), NO_ROWS, -1
    query = sa.select(audit).order_by(audit.c.id).limit(10_000)
    change = sa.update(audit).values(id=sa.bindparam("number"), hash=sa.bindparam("now"))
    while rows := connection.execute(query.where(audit.c.id > last)).mappings().all():
        changed = []
        for row in rows:
            newest, last = following(newest, row), row["id"]
            changed.append({"was": last, "number": newest.number, "now": newest.hash})
        connection.execute(change.where(audit.c.id == sa.bindparam("was")), changed)
    with op.batch_alter_table("audit") as table:
        for name in _TEXTS:
            table.alter_column(name, server_default=None, existing_type=sa.Text(), existing_nullable=False)


def downgrade() -> None:
    raise NotImplementedError("run the former version of Weir on a copy of the store from before")
