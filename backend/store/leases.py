"""Leases with fencing tokens: who may run a resource, until when.

Rule: the token grows with every grant and never falls, so a write that carries an older token is from a former owner
(https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html). The database's clock alone says when a
lease ends, in the statement that grants it.
"""

from functools import partial

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.store import rows
from backend.store.clock import moment
from backend.store.engine import insert
from backend.store.schema import EPOCH, lease
from backend.stream_model.stream import Lease

NOBODY = ""


def stream_resource(name: str) -> str:
    """The lease of one stream."""
    return f"stream/{name}"


def job_resource(job_id: str) -> str:
    """The lease of one job."""
    return f"job/{job_id}"


def acquire(connection: Connection, resource: str, owner: str, *, ttl_s: float) -> Lease | None:
    """Grants the lease with the next token; None while another owner's has not expired."""
    granted = {"owner": owner, "expires_at": moment(connection, ttl_s)}
    is_free = sa.or_(lease.c.owner.in_((NOBODY, owner)), lease.c.expires_at <= moment(connection))
    statement = (
        insert(connection, lease)
        .values(resource=resource, token=1, **granted)
        .on_conflict_do_update(index_elements=["resource"], set_={**granted, "token": lease.c.token + 1}, where=is_free)
        .returning(*lease.c)
    )
    return _first(connection, statement)


def renew(connection: Connection, held: Lease, *, ttl_s: float) -> Lease | None:
    """Extends the lease, also a late one that nobody took; None when it has a new owner."""
    later = sa.update(lease).where(*_is(held)).values(expires_at=moment(connection, ttl_s)).returning(*lease.c)
    return _first(connection, later)


def release(connection: Connection, held: Lease) -> None:
    """Gives the lease up; does nothing when it has a new owner."""
    connection.execute(sa.update(lease).where(*_is(held)).values(owner=NOBODY, expires_at=EPOCH))


def held(connection: Connection) -> dict[str, Lease]:
    """By resource, those that have not expired."""
    now = moment(connection)
    current = connection.execute(sa.select(lease).where(lease.c.owner != NOBODY, lease.c.expires_at > now)).mappings()
    return {lease.resource: lease for lease in rows.readable(partial(rows.value_of, Lease), "lease", current)}


def is_current(connection: Connection, resource: str, token: int) -> bool:
    """Whether `token` is the newest grant; locks the lease until the transaction ends."""
    row = connection.execute(sa.select(lease).where(lease.c.resource == resource).with_for_update()).mappings().first()
    return row is not None and row["token"] == token and row["owner"] != NOBODY


def lock(connection: Connection, resource: str) -> None:
    """Nobody else locks it until the transaction ends."""
    row = {"resource": resource, "owner": NOBODY, "token": 0, "expires_at": EPOCH}
    connection.execute(insert(connection, lease).values(**row).on_conflict_do_nothing())
    connection.execute(sa.select(lease.c.token).where(lease.c.resource == resource).with_for_update())


def _first(connection: Connection, statement: sa.Executable) -> Lease | None:
    row = connection.execute(statement).mappings().first()
    return rows.value_of(Lease, row) if row else None


def _is(held: Lease) -> tuple[sa.ColumnElement[bool], ...]:
    return (lease.c.resource == held.resource, lease.c.owner == held.owner, lease.c.token == held.token)
