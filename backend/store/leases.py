"""Leases with fencing tokens: who may run a resource, until when.

Rule: the token grows with every grant and never falls, so a write that carries an older token is from a former owner
(https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).
"""

from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.store import rows
from backend.store.schema import EPOCH, lease
from backend.store.upsert import insert
from backend.streams.model import Lease

NOBODY = ""


def stream_resource(name: str) -> str:
    """The lease of one stream."""
    return f"stream/{name}"


def job_resource(job_id: str) -> str:
    """The lease of one job."""
    return f"job/{job_id}"


def acquire(connection: Connection, wanted: Lease, *, now: datetime) -> Lease | None:
    """Grants `wanted` with the next token; None while another owner's lease has not expired."""
    held = lock(connection, wanted.resource)
    if held.owner not in (NOBODY, wanted.owner) and held.expires_at > now:
        return None
    granted = Lease(wanted.resource, wanted.owner, held.token + 1, wanted.expires_at)
    connection.execute(
        sa.update(lease)
        .where(lease.c.resource == granted.resource)
        .values(owner=granted.owner, token=granted.token, expires_at=granted.expires_at)
    )
    return granted


def renew(connection: Connection, held: Lease, *, ttl_s: float, now: datetime) -> Lease | None:
    """Extends the lease, also a late one that nobody took; None when it has a new owner."""
    expires_at = now + timedelta(seconds=ttl_s)
    changed = connection.execute(sa.update(lease).where(*_is(held)).values(expires_at=expires_at))
    return Lease(held.resource, held.owner, held.token, expires_at) if changed.rowcount else None


def release(connection: Connection, held: Lease) -> None:
    """Gives the lease up; does nothing when it has a new owner."""
    connection.execute(sa.update(lease).where(*_is(held)).values(owner=NOBODY, expires_at=EPOCH))


def held(connection: Connection) -> dict[str, Lease]:
    found = connection.execute(sa.select(lease).where(lease.c.owner != NOBODY)).mappings()
    return {row["resource"]: rows.lease_of(row) for row in found}


def is_current(connection: Connection, resource: str, token: int) -> bool:
    """Whether `token` is the newest grant; locks the lease until the transaction ends."""
    row = connection.execute(sa.select(lease).where(lease.c.resource == resource).with_for_update()).mappings().first()
    return row is not None and row["token"] == token and row["owner"] != NOBODY


def lock(connection: Connection, resource: str) -> Lease:
    """The lease as it is, nobody's when it is new; nobody else changes it until the transaction ends."""
    connection.execute(
        insert(connection, lease)
        .values(resource=resource, owner=NOBODY, token=0, expires_at=EPOCH)
        .on_conflict_do_nothing()
    )
    query = sa.select(lease).where(lease.c.resource == resource).with_for_update()
    return rows.lease_of(connection.execute(query).mappings().one())


def _is(held: Lease) -> tuple[sa.ColumnElement[bool], ...]:
    return (lease.c.resource == held.resource, lease.c.owner == held.owner, lease.c.token == held.token)
