"""Signs of life of hosts: small and often, for the names of a host's streams are written and read when they change.

Rule: `streams_key` is made of the names alone, so hosts that can run the same share one reading of them.
"""

import hashlib
from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.caches import Lru
from backend.store import rows
from backend.store.engine import upsert
from backend.store.schema import host
from backend.stream_model.stream import HostHeartbeat

Names = Lru[str, tuple[str, ...]]
_SHORT = tuple(column for column in host.c if column.name != "streams")


def beat(connection: Connection, heartbeat: HostHeartbeat) -> bool:
    """Keeps it; whether its streams are others than before."""
    key = hashlib.sha256("\n".join(heartbeat.streams).encode()).hexdigest()[:32]
    row = rows.row_of(heartbeat) | {"streams_key": key}
    is_same = host.c.host_id == heartbeat.host_id, host.c.streams_key == key
    short = {name: value for name, value in row.items() if name != "streams"}
    if connection.execute(sa.update(host).where(*is_same).values(short)).rowcount:
        return False
    upsert(connection, host, row)
    return True


def read(connection: Connection, names: Names, *where: sa.ColumnElement[bool]) -> list[HostHeartbeat]:
    """By host id. `names`: by key, what was read before."""
    every = connection.execute(sa.select(*_SHORT).where(*where).order_by(host.c.host_id)).mappings().all()
    keys = {row["host_id"]: row["streams_key"] or row["host_id"] for row in every}  # a former Weir writes no key
    streams = names.find({row["streams_key"] for row in every if row["streams_key"]})
    unread = {key: host_id for host_id, key in keys.items() if key not in streams}
    if unread:
        for row in connection.execute(sa.select(host).where(host.c.host_id.in_(unread.values()))).mappings():
            for heartbeat in rows.readable(rows.host_of, "host", [row]):
                streams[keys[heartbeat.host_id]] = heartbeat.streams
                if row["streams_key"] == keys[heartbeat.host_id]:
                    names.put(row["streams_key"], heartbeat.streams)
    heartbeats = rows.readable(rows.host_of, "host", every)
    return [replace(heartbeat, streams=streams.get(keys[heartbeat.host_id], ())) for heartbeat in heartbeats]
