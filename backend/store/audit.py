"""The audit trail: who asked for what, why and when.

Rule: an act is admitted in the transaction that makes it visible, before it changes anything: one that cannot be
written down does not happen.
"""

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.access import Access, check
from backend.store.schema import audit, fetch, row_of
from backend.stream_model.stream import OF_LOGINS, OF_QUERIES, AuditEntry


def admit(connection: Connection, access: Access, *, now: datetime, outcome: str) -> None:
    """Checks the act and writes it down; `outcome` is what comes of it. Raises `StreamRefusedError`."""
    check(access)
    parameters = ", ".join(f"{key}: {value}" for key, value in access.parameters.items())
    detail = "; ".join(filter(None, [outcome, parameters]))
    reason = access.reason.strip()
    note(connection, AuditEntry(now, access.actor.name, access.operation, access.resource, reason, detail))


def note(connection: Connection, entry: AuditEntry) -> None:
    """Writes down what a host made of an act, or what was done and changed nothing, such as a query."""
    connection.execute(sa.insert(audit).values(row_of(entry)))


def note_login(connection: Connection, entry: AuditEntry) -> None:
    """Writes down a login, a logout or a refused login: of a front end, before anybody may act."""
    if entry.action not in OF_LOGINS:
        raise ValueError(entry.action)
    note(connection, entry)


def entries(
    connection: Connection, *, limit: int = 100, subject: str | None = None, with_queries: bool = True
) -> list[AuditEntry]:
    """Newest first. `with_queries`: also what was read by SQL, and logins, which are no acts."""
    query = sa.select(audit).order_by(audit.c.at.desc(), audit.c.id.desc()).limit(limit)
    if not with_queries:
        query = query.where(audit.c.action.not_in((*OF_QUERIES, *OF_LOGINS)))
    if subject is not None:
        query = query.where(audit.c.subject == subject)
    return fetch(connection, AuditEntry, query)
