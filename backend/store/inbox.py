"""The inbox in which other Spark applications leave what their queries do.

Rule: events are taken in one transaction with what follows from them, so each counts once, in order.
"""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.store import batches
from backend.store.engine import upsert
from backend.store.schema import Row, attached_app, attached_event, declaration, fetch, observed, readable, value_of
from backend.store.streams import declaration_row, observed_row
from backend.stream_model.attached import Attached, AttachedEvent, at_of
from backend.stream_model.stream import AttachedApp, HostHeartbeat, Observed, StreamDeclaration

MOST = 2_000  # events of one transaction
FORGOTTEN_AFTER = timedelta(days=7)
LAST_S = 1e11  # since 1970: dates end in the year 9999

# What a value is refused with that no column takes: an application may write anything.
_REFUSED = (sa.exc.DataError, sa.exc.IntegrityError, ValueError, OverflowError)

_log = logging.getLogger(__name__)  # a command's own output is no place for it


def is_empty(connection: Connection) -> bool:
    return connection.execute(sa.select(attached_event.c.id).limit(1)).first() is None


def take(connection: Connection, roots: Sequence[str]) -> None:
    """Takes the oldest events. One that the database refuses is left out, and keeps none of the others waiting."""
    oldest = sa.select(attached_event.c.id).order_by(attached_event.c.id).limit(MOST)
    taken = sa.delete(attached_event).where(attached_event.c.id.in_(oldest)).returning(*attached_event.c)
    in_order = sorted(connection.execute(taken).mappings(), key=lambda row: row["id"])
    events = readable(_event_of, "attached_event", in_order)
    attached, unreadable = _taken(connection, _known(connection, roots), events)
    for event in events[-1:]:
        _forget(connection, attached, before=event.at - FORGOTTEN_AFTER)
    if unreadable:
        _log.warning("%d events of attached applications cannot be read", unreadable)


def _taken(connection: Connection, known: Attached, events: Sequence[AttachedEvent]) -> tuple[Attached, int]:
    """What is known after them, and how many could not be read. Where the database refuses one, each half is taken by
    itself, down to that one."""
    attached = known.before_events()
    try:
        attached.take(events)
        with connection.begin_nested():
            for event in events[-1:]:
                _keep(connection, attached, event.at)
    except _REFUSED:
        if len(events) == 1:
            return known, 1
        middle = len(events) // 2
        attached, first = _taken(connection, known, events[:middle])
        attached, second = _taken(connection, attached, events[middle:])
        return attached, first + second
    return attached, attached.unreadable


def apps(connection: Connection) -> dict[str, AttachedApp]:
    """The Spark applications that report their queries, by id."""

    def app_of(row: Row) -> AttachedApp:
        return AttachedApp(row["name"], value_of(HostHeartbeat, row))

    return {app.host.host_id: app for app in fetch(connection, app_of, attached_app)}


def _known(connection: Connection, roots: Sequence[str]) -> Attached:
    every = {stream.name: stream for stream in fetch(connection, StreamDeclaration, declaration)}
    declared = {name: stream for name, stream in every.items() if stream.is_attached}
    seen = fetch(connection, Observed, sa.select(observed).where(observed.c.name.in_(declared)))
    observations = {observation.name: observation for observation in seen}
    return Attached(roots, apps(connection), declared, observations, every.keys() - declared.keys())


def _keep(connection: Connection, attached: Attached, now: datetime) -> None:
    for app in (attached.apps[app_id] for app_id in sorted(attached.reported)):
        row = {column.name: getattr(app.host, column.name) for column in attached_app.c if column.name != "name"}
        upsert(connection, attached_app, {**row, "name": app.name})
    for name in sorted(attached.changed & attached.declarations.keys()):
        upsert(connection, declaration, declaration_row(attached.declarations[name], now))
        upsert(connection, observed, observed_row(attached.observed[name]))
    if attached.progress:
        batches.add(connection, attached.progress)
    for name, at in attached.signs.items():
        batches.touch(connection, name, at=at)


def _forget(connection: Connection, streams: Attached, *, before: datetime) -> None:
    """Applications that fell silent, and their streams: a query without a name is a new stream at each start."""
    connection.execute(sa.delete(attached_app).where(attached_app.c.beat_at < before))
    alive = sa.select(attached_app.c.host_id)
    attached = observed.c.name.in_(streams.declarations)
    gone = attached, observed.c.observed_at < before, observed.c.host_id.not_in(alive)
    names = sa.delete(observed).where(*gone).returning(observed.c.name)
    for name in connection.execute(names).scalars().all():
        connection.execute(sa.delete(declaration).where(declaration.c.name == name))


def _event_of(row: Row) -> AttachedEvent:
    if not 0 <= row["at"] < LAST_S:
        raise ValueError(f"no time: {row['at']}")
    return AttachedEvent(row["app_id"], at_of(row["at"]), row["body"])
