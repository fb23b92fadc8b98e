"""Leases with fencing tokens: who may run a resource, until when.

Rule: the token grows with every grant and never falls, so a write that carries an older token is from a former owner
(https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html). The database's clock alone says when a
lease ends, in the statement that grants it.
"""

from collections.abc import Collection, Iterator
from functools import partial
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.store import rows
from backend.store.clock import moment
from backend.store.engine import insert
from backend.store.schema import EPOCH, lease
from backend.stream_model.stream import Lease

NOBODY = ""
AT_ONCE = 1_000
Value = TypeVar("Value")


def stream_resource(name: str) -> str:
    """The lease of one stream."""
    return f"stream/{name}"


def job_resource(job_id: str) -> str:
    """The lease of one job."""
    return f"job/{job_id}"


def acquire_all(connection: Connection, resources: Collection[str], owner: str, *, ttl_s: float) -> dict[str, Lease]:
    """Grants each lease with the next token, but for those of other owners that have not expired."""
    granted = {"owner": owner, "expires_at": moment(connection, ttl_s)}
    is_free = sa.or_(lease.c.owner.in_((NOBODY, owner)), lease.c.expires_at <= moment(connection))
    leases = dict[str, Lease]()
    for piece in _pieces(sorted(resources)):
        statement = (
            insert(connection, lease)
            .values([{"resource": resource, "token": 1, **granted} for resource in piece])
            .on_conflict_do_update(
                index_elements=["resource"], set_={**granted, "token": lease.c.token + 1}, where=is_free
            )
            .returning(*lease.c)
        )
        leases |= _by_resource(connection, statement)
    return leases


def renew_all(connection: Connection, held: Collection[Lease], *, ttl_s: float) -> dict[str, Lease]:
    """Extends these leases, also late ones that nobody took, but for those that have a new owner."""
    renewed = dict[str, Lease]()
    for piece in _pieces(sorted(held, key=lambda former: former.resource)):
        keys = [(former.resource, former.owner, former.token) for former in piece]
        still = sa.select(lease.c.resource).where(sa.tuple_(lease.c.resource, lease.c.owner, lease.c.token).in_(keys))
        locked = still.order_by(lease.c.resource).with_for_update()  # in the order of `acquire_all`
        later = sa.update(lease).where(lease.c.resource.in_(locked)).values(expires_at=moment(connection, ttl_s))
        renewed |= _by_resource(connection, later.returning(*lease.c))
    return renewed


def release(connection: Connection, held: Lease) -> None:
    """Gives the lease up; does nothing when it has a new owner."""
    connection.execute(sa.update(lease).where(*_is(held)).values(owner=NOBODY, expires_at=EPOCH))


def held(connection: Connection) -> dict[str, Lease]:
    """By resource, those that have not expired."""
    now = moment(connection)
    current = connection.execute(sa.select(lease).where(lease.c.owner != NOBODY, lease.c.expires_at > now)).mappings()
    return {lease.resource: lease for lease in rows.readable(partial(rows.value_of, Lease), "lease", current)}


def sign(connection: Connection) -> object:
    """Another one once a lease has ended or has another owner."""
    is_held = lease.c.owner != NOBODY, lease.c.expires_at > moment(connection)
    counted = sa.select(sa.func.count(), sa.func.sum(lease.c.token)).where(*is_held)
    return tuple(connection.execute(counted).one())


def is_current(connection: Connection, resource: str, token: int) -> bool:
    """Whether `token` is the newest grant; locks the lease until the transaction ends."""
    row = connection.execute(sa.select(lease).where(lease.c.resource == resource).with_for_update()).mappings().first()
    return row is not None and row["token"] == token and row["owner"] != NOBODY


def lock(connection: Connection, resource: str) -> None:
    """Nobody else locks it until the transaction ends."""
    row = {"resource": resource, "owner": NOBODY, "token": 0, "expires_at": EPOCH}
    connection.execute(insert(connection, lease).values(**row).on_conflict_do_nothing())
    connection.execute(sa.select(lease.c.token).where(lease.c.resource == resource).with_for_update())


def _by_resource(connection: Connection, statement: sa.Executable) -> dict[str, Lease]:
    return {row["resource"]: rows.value_of(Lease, row) for row in connection.execute(statement).mappings()}


def _pieces(values: list[Value]) -> Iterator[list[Value]]:
    """No statement takes endless values."""
    return (values[at : at + AT_ONCE] for at in range(0, len(values), AT_ONCE))


def _is(held: Lease) -> tuple[sa.ColumnElement[bool], ...]:
    return (lease.c.resource == held.resource, lease.c.owner == held.owner, lease.c.token == held.token)
