"""Who is there and what is theirs: leases with fencing tokens, hosts' signs of life, and the store's own clock, which
judges both, for machines' clocks differ.

Rule: a time that several machines must agree on is written and compared inside the database. A lease's token grows with
every grant and never falls, so a write that carries an older token is from a former owner
(https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).
"""

import hashlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.caches import Lru
from backend.store.engine import insert, upsert
from backend.store.schema import EPOCH, UtcDateTime, fetch, host, lease, readable, row_of, value_of
from backend.stream_model.stream import HostHeartbeat, Lease
from backend.work import elapsed

_SQLITE = "%Y-%m-%d %H:%M:%f"  # milliseconds: padded below to the microseconds that the columns hold


def moment(connection: Connection, after_s: float = 0.0) -> sa.ColumnElement[datetime]:
    """The database's time when it gets to this, so many seconds on. SQLite's is its machine's."""
    if connection.dialect.name == "sqlite":
        text = sa.func.strftime(_SQLITE, "now", f"{after_s:+.3f} seconds", type_=sa.Text)
        return sa.type_coerce(text + "000", UtcDateTime)
    now = sa.func.clock_timestamp(type_=sa.DateTime(timezone=True))
    return sa.type_coerce(now + timedelta(seconds=after_s), UtcDateTime)


class StoreClock:
    """The store's time as of the last `look`, and from there on by what has elapsed here."""

    def __init__(self, look: Callable[[], datetime], *, elapsed: Callable[[], float] = elapsed) -> None:
        self._look, self._elapsed = look, elapsed
        self._zero = datetime.now(UTC) - timedelta(seconds=elapsed())

    def __call__(self) -> datetime:
        return self._zero + timedelta(seconds=self._elapsed())

    def look(self) -> None:
        """Asks the store; raises `StoreError`."""
        asked = self._elapsed()
        store_time = self._look()
        self._zero = store_time - timedelta(seconds=(asked + self._elapsed()) / 2)


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
    """Grants each lease with the next token, by resource, but for those of other owners that have not expired."""
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
    """These leases with a later end, by resource, also late ones that nobody took; not those with a new owner."""
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
    is_same = lease.c.resource == held.resource, lease.c.owner == held.owner, lease.c.token == held.token
    connection.execute(sa.update(lease).where(*is_same).values(owner=NOBODY, expires_at=EPOCH))


def held(connection: Connection) -> dict[str, Lease]:
    """By resource, those that have not expired."""
    return {lease.resource: lease for lease in fetch(connection, Lease, sa.select(lease).where(*_is_held(connection)))}


def sign(connection: Connection) -> object:
    """Another one once a lease has another owner, or none any more."""
    counted = sa.select(sa.func.count(), sa.func.sum(lease.c.token)).where(*_is_held(connection))
    return tuple(connection.execute(counted).one())


def _is_held(connection: Connection) -> tuple[sa.ColumnElement[bool], ...]:
    return lease.c.owner != NOBODY, lease.c.expires_at > moment(connection)


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
    return {row["resource"]: value_of(Lease, row) for row in connection.execute(statement).mappings()}


def _pieces(values: list[Value]) -> Iterator[list[Value]]:
    """No statement takes endless values."""
    return (values[at : at + AT_ONCE] for at in range(0, len(values), AT_ONCE))


Names = Lru[str, tuple[str, ...]]
_SHORT = tuple(column for column in host.c if column.name != "streams")


def beat(connection: Connection, heartbeat: HostHeartbeat) -> bool:
    """Keeps it; whether its streams are others than before."""
    key = hashlib.sha256("\n".join(heartbeat.streams).encode()).hexdigest()[:32]
    row = row_of(heartbeat) | {"streams_key": key}
    is_same = host.c.host_id == heartbeat.host_id, host.c.streams_key == key
    short = {name: value for name, value in row.items() if name != "streams"}
    if connection.execute(sa.update(host).where(*is_same).values(short)).rowcount:
        return False
    upsert(connection, host, row)
    return True


def hosts(connection: Connection, names: Names, *where: sa.ColumnElement[bool]) -> list[HostHeartbeat]:
    """By host id. `names`: by key, what was read before."""
    every = connection.execute(sa.select(*_SHORT).where(*where).order_by(host.c.host_id)).mappings().all()
    keys = {row["host_id"]: row["streams_key"] or row["host_id"] for row in every}  # a former Weir writes no key
    streams = names.find({row["streams_key"] for row in every if row["streams_key"]})
    unread = {key: host_id for host_id, key in keys.items() if key not in streams}
    if unread:
        for row in connection.execute(sa.select(host).where(host.c.host_id.in_(unread.values()))).mappings():
            for heartbeat in readable(HostHeartbeat, "host", [row]):
                streams[keys[heartbeat.host_id]] = heartbeat.streams
                if row["streams_key"] == keys[heartbeat.host_id]:
                    names.put(row["streams_key"], heartbeat.streams)
    heartbeats = readable(HostHeartbeat, "host", every)
    return [replace(heartbeat, streams=streams.get(keys[heartbeat.host_id], ())) for heartbeat in heartbeats]


def prune_hosts(connection: Connection, *, before: datetime) -> int:
    return int(connection.execute(sa.delete(host).where(host.c.beat_at < before)).rowcount)
