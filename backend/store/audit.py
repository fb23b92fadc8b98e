"""The audit trail: who asked for what, why and when.

Rule: an act is admitted in the transaction that makes it visible, before it changes anything: one that cannot be
written down does not happen.
"""

from datetime import datetime
from functools import partial

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.access import Access, check
from backend.store import rows
from backend.store.schema import audit
from backend.stream_model.stream import OF_QUERIES, AuditEntry


def admit(connection: Connection, access: Access, *, now: datetime, outcome: str) -> None:
    """Checks the act and writes it down; `outcome` is what comes of it. Raises `StreamRefusedError`."""
    check(access)
    detail = [outcome, ", ".join(f"{key}: {value}" for key, value in access.parameters.items())]
    entry = AuditEntry(
        now,
        access.actor.name,
        access.operation,
        access.resource,
        access.reason.strip(),
        "; ".join(filter(None, detail)),
    )
    note(connection, entry)


def note(connection: Connection, entry: AuditEntry) -> None:
    """Writes down what a host made of an act."""
    connection.execute(sa.insert(audit).values(rows.row_of(entry)))


def entries(connection: Connection, *, limit: int, subject: str | None, with_queries: bool) -> list[AuditEntry]:
    """Newest first."""
    query = sa.select(audit).order_by(audit.c.at.desc(), audit.c.id.desc()).limit(limit)
    if not with_queries:
        query = query.where(audit.c.action.not_in(OF_QUERIES))
    if subject is not None:
        query = query.where(audit.c.subject == subject)
    return rows.readable(partial(rows.value_of, AuditEntry), "audit", connection.execute(query).mappings())
