"""Streams in the store: what people want of them, what hosts declare and observe, what waits for them, and the inbox in
which other Spark applications leave what their queries do.

Rule: a request is in the audit trail in the transaction that makes it visible; an observation counts only under the
current token of its lease. Where a checkpoint and a table lie, the store says to all hosts: one with other addresses
would begin on an empty checkpoint and write a second lake, so it is refused, unless a person stopped the stream and no
host holds its lease. Events of the inbox are taken in one transaction with what follows from them, so each counts once,
in order.
"""

import difflib
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.access import Access, Actor
from backend.errors import StreamNotFoundError, StreamRefusedError
from backend.jobs.model import JobKind
from backend.lake.storage.folder import normal_uri
from backend.store import audit, batches, leases, schema
from backend.store.engine import insert, upsert
from backend.store.jobs import unfinished_act
from backend.store.leases import stream_resource
from backend.store.schema import Row, fetch, fetch_one, readable, row_of, row_with_body, value_of
from backend.stream_model.attached import Attached, AttachedEvent
from backend.stream_model.backlog import Backlog
from backend.stream_model.overrides import changes, check_overrides, compare
from backend.stream_model.stream import (
    Action,
    AttachedApp,
    Desired,
    DesiredState,
    HostHeartbeat,
    Observed,
    StreamDeclaration,
    StreamState,
    TopicEnds,
)

MOST_EVENTS = 2_000  # of other applications, in one transaction
FORGOTTEN_AFTER = timedelta(days=7)
LAST_S = 1e11  # since 1970: dates end in the year 9999
NO_OVERRIDES: Mapping[str, Mapping[str, str]] = MappingProxyType({})
_STATE_OF = {
    "start": DesiredState.RUNNING,
    "stop": DesiredState.STOPPED,
    "drain": DesiredState.DRAINED,
    "drain through": DesiredState.DRAINED_THROUGH,
    "restart": DesiredState.RUNNING,
}
_BUSY = {
    JobKind.RESET: "it is being reset",
    JobKind.REQUEUE: "rows of its quarantine are being requeued",
    JobKind.REWIND: "it is being rewound",
}
# What a value is refused with that no column takes: an application may write anything.
_REFUSED = (sa.exc.DataError, sa.exc.IntegrityError, ValueError, OverflowError)
_log = logging.getLogger(__name__)  # a command's own output is no place for it


# wanted --------------------------------------------------------------------------------------------------------------


def request_all(
    connection: Connection,
    names: Sequence[str],
    action: Action,
    *,
    reason: str,
    actor: Actor,
    now: datetime,
    overrides: Mapping[str, Mapping[str, str]] = NO_OVERRIDES,
) -> list[Desired]:
    """Writes who wants what of these streams and why, then their desired states, in this order: of all, or of none
    where one is refused.

    Every request grows the generation, which also clears a FAILED or BACKOFF state; only starting what is wanted and
    flows already keeps it, because a new generation of a running stream means a restart. `overrides`: by stream, the
    settings to run with from now on in place of declared ones. Those of other streams stay as they are. Raises
    `StreamRefusedError`, `StreamNotFoundError`, `OverrideError`.
    """
    before = {
        name: fetch_one(
            connection, Desired, sa.select(schema.desired).where(schema.desired.c.name == name).with_for_update()
        )
        for name in sorted(names)  # one order of locks for everyone
    }
    accesses = [Access(actor, name, action, reason) for name in names]
    return [
        _request(connection, before[access.resource], access, now, overrides.get(access.resource))
        for access in accesses
    ]


def _request(
    connection: Connection, before: Desired | None, access: Access, now: datetime, overrides: Mapping[str, str] | None
) -> Desired:
    name, action = access.resource, access.operation
    overridden = before.overrides if before else {}
    if before is None and (declared := _declared(connection, name)).is_attached:
        raise StreamRefusedError(
            f"{action} {name}: another Spark application runs it", hint=f"{action} it in {declared.pipeline}"
        )
    if action in ("start", "restart") and (act := unfinished_act(connection, name)):
        raise StreamRefusedError(f"{action} {name}: {_BUSY[act.kind]}", hint="`weir jobs` says how far that is")
    if overrides is not None:
        declared = _declared(connection, name)
        check_overrides(declared, overrides)
        access = replace(access, parameters=changes(compare(declared, overridden, overrides)))
        overridden = overrides
    generation = before.generation if before else 0
    after = Desired(name, _STATE_OF[action], generation + 1, access.reason.strip(), access.actor.name, now, overridden)
    is_same = before is not None and (before.state, before.overrides) == (after.state, after.overrides)
    if action == "start" and is_same:
        query = sa.select(schema.observed.c.state, schema.observed.c.generation).where(schema.observed.c.name == name)
        seen = connection.execute(query).first()
        if seen is not None and StreamState(seen.state).flows and seen.generation == generation:
            after = replace(after, generation=generation)
    outcome = f"{before.state if before else 'new'} → {after.state}, generation {after.generation}"
    audit.admit(connection, access, now=now, outcome=outcome)
    upsert(connection, schema.desired, row_of(after))
    return after


def _declared(connection: Connection, name: str) -> StreamDeclaration:
    query = sa.select(schema.declaration).where(schema.declaration.c.name == name)
    if declared := fetch_one(connection, StreamDeclaration, query):
        return declared
    names = list(connection.execute(sa.select(schema.declaration.c.name)).scalars())
    near = difflib.get_close_matches(name, names, n=3) or sorted(names)[:5]
    hint = f"known: {', '.join(near)}" if near else "no host has declared a stream yet: start one with `weir host`"
    raise StreamNotFoundError(f"no stream is called {name!r}", hint=hint)


def ensure_all_desired(connection: Connection, names: Collection[str], state: DesiredState, *, now: datetime) -> None:
    """Registers the default of these streams; what a person asked for stays."""
    first = [row_of(Desired(name, state, 1, "declared", "host", now)) for name in sorted(names)]
    if first:
        connection.execute(insert(connection, schema.desired).on_conflict_do_nothing(), first)


def desired(connection: Connection) -> dict[str, Desired]:
    wanted = fetch(connection, Desired, sa.select(schema.desired).order_by(schema.desired.c.name))
    return {desired.name: desired for desired in wanted}


def desired_sign(connection: Connection) -> object:
    """Another one once something else is wanted of a stream."""
    return tuple(connection.execute(sa.select(sa.func.count(), sa.func.sum(schema.desired.c.generation))).one())


# declared and observed -----------------------------------------------------------------------------------------------


def declare(connection: Connection, declared: Sequence[StreamDeclaration], *, now: datetime) -> None:
    """Keeps what a host can run. Raises `StreamRefusedError` where one would lie elsewhere than what is kept. Nobody
    else declares until the transaction ends."""
    leases.lock(connection, "declarations")
    of_these = schema.declaration.c.name.in_([stream.name for stream in declared])
    kept = fetch(connection, StreamDeclaration, sa.select(schema.declaration).where(of_these))
    before = {stream.name: stream for stream in kept}
    moved = [stream for stream in declared if stream.name in before and _apart(stream, before[stream.name])]
    if moved:
        held, wanted = leases.held(connection), desired(connection)
        stopped = {name for name, want in wanted.items() if want.wants_stop and stream_resource(name) not in held}
        if refused := [stream for stream in moved if stream.name not in stopped]:
            raise _second_lake(refused[0], before[refused[0].name], more=len(refused) - 1)
    for stream in declared:
        if before.get(stream.name) != stream:
            upsert(connection, schema.declaration, declaration_row(stream, now))


def declaration_row(stream: StreamDeclaration, now: datetime) -> dict[str, object]:
    return row_with_body(stream, name=stream.name) | {"declared_at": now}


def _apart(here: StreamDeclaration, there: StreamDeclaration) -> list[tuple[str, str, str, str]]:
    """Of what lies elsewhere: what it is, where it is here and there, and the setting that joins them."""
    checkpoints = there.checkpoint_location.removesuffix(f"/{there.name}")
    tables = there.sink_uri.removesuffix(f"/{there.sink_table}")
    places = [
        ("checkpoint", here.checkpoint_location, there.checkpoint_location, f"HOST__CHECKPOINTS_URI={checkpoints}"),
        ("table", here.sink_uri, there.sink_uri, f"LAKE__TABLES_URI={tables}"),
    ]
    return [place for place in places if place[1] and place[2] and normal_uri(place[1]) != normal_uri(place[2])]


def _second_lake(here: StreamDeclaration, there: StreamDeclaration, *, more: int) -> StreamRefusedError:
    apart = _apart(here, there)
    places = ", ".join(f"its {what} is {ours} here and {theirs} in the store" for what, ours, theirs, _ in apart)
    others = f" (and {more} more)" if more else ""
    return StreamRefusedError(
        f"this host would write a second lake. {here.name}{others}: {places}",
        hint=f"set {' and '.join(f'WEIR_{place[3]}' for place in apart)}, as the other hosts have it. Moved on "
        "purpose? Stop these streams and every host, then start this one",
    )


def declarations(connection: Connection) -> dict[str, StreamDeclaration]:
    declared = fetch(connection, StreamDeclaration, sa.select(schema.declaration).order_by(schema.declaration.c.name))
    return {stream.name: stream for stream in declared}


def observe(connection: Connection, seen: Observed, *, token: int) -> None:
    """Writes what the owning host saw; `StreamRefusedError` when the lease has gone to another host."""
    if not leases.is_current(connection, stream_resource(seen.name), token):
        raise StreamRefusedError(
            f"{seen.name}: the lease of {seen.host_id} is no longer current", hint="another host runs the stream now"
        )
    upsert(connection, schema.observed, observed_row(seen))


def observed_row(seen: Observed) -> dict[str, object]:
    """Without `last_trigger_at`: the listener owns that column."""
    return {name: field for name, field in row_of(seen).items() if name != "last_trigger_at"}


def observed(connection: Connection) -> dict[str, Observed]:
    seen = fetch(connection, Observed, sa.select(schema.observed).order_by(schema.observed.c.name))
    return {observed.name: observed for observed in seen}


# what waits ----------------------------------------------------------------------------------------------------------


def note_ends(connection: Connection, ends: TopicEnds) -> None:
    """Keeps what a broker last answered of one source."""
    upsert(connection, schema.topic_ends, row_with_body(ends, stream=ends.stream, source=ends.source, at=ends.at))


def topic_ends(connection: Connection) -> dict[str, list[TopicEnds]]:
    """What brokers last answered, by stream."""
    by_stream: dict[str, list[TopicEnds]] = {}
    for ends in fetch(connection, TopicEnds, schema.topic_ends):
        by_stream.setdefault(ends.stream, []).append(ends)
    return by_stream


def note_backlogs(connection: Connection, waiting: Mapping[str, Backlog]) -> None:
    """Keeps what waits for each of these streams, unless a later look is kept."""
    if not waiting:
        return
    new = [
        {"stream": stream, **row_with_body(waiting[stream], seen_at=waiting[stream].seen_at)}
        for stream in sorted(waiting)  # one order of locks
    ]
    statement = insert(connection, schema.backlog)
    later = statement.on_conflict_do_update(
        index_elements=["stream"],
        set_={"seen_at": statement.excluded.seen_at, "body": statement.excluded.body},
        where=schema.backlog.c.seen_at < statement.excluded.seen_at,
    )
    connection.execute(later, new)


def backlogs(connection: Connection, streams: Collection[str] | None = None) -> dict[str, Backlog]:
    """What hosts last saw to wait, by stream; None: for all."""

    def waits(row: Row) -> tuple[str, Backlog]:
        return row["stream"], value_of(Backlog, row)

    query = sa.select(schema.backlog)
    return dict(
        fetch(connection, waits, query if streams is None else query.where(schema.backlog.c.stream.in_(streams)))
    )


def backlogs_seen_at(connection: Connection) -> dict[str, datetime]:
    """When hosts last looked at what waits, by stream."""
    seen = connection.execute(sa.select(schema.backlog.c.stream, schema.backlog.c.seen_at))
    return {name: seen_at for name, seen_at in seen}  # noqa: C416 - mypy knows no pairs in rows


# other applications ---------------------------------------------------------------------------------------------------


def take_events(connection: Connection, roots: Sequence[str]) -> None:
    """Takes the oldest events of the inbox; `roots` of the lake, below which tables have names. One that the database
    refuses is left out, and keeps none of the others waiting."""
    inbox = schema.attached_event

    def event_of(row: Row) -> AttachedEvent:
        if not 0 <= row["at"] < LAST_S:
            raise ValueError(f"no time: {row['at']}")
        return AttachedEvent(row["app_id"], datetime.fromtimestamp(row["at"], UTC), row["body"])

    oldest = sa.select(inbox.c.id).order_by(inbox.c.id).limit(MOST_EVENTS)
    taken = sa.delete(inbox).where(inbox.c.id.in_(oldest)).returning(*inbox.c)
    in_order = sorted(connection.execute(taken).mappings(), key=lambda row: row["id"])
    events = readable(event_of, "attached_event", in_order)
    attached, unreadable = _taken(connection, _known(connection, roots), events)
    for event in events[-1:]:
        _forget(connection, attached, before=event.at - FORGOTTEN_AFTER)
    if unreadable:
        _log.warning("%d events of attached applications cannot be read", unreadable)


def _taken(connection: Connection, known: Attached, events: Sequence[AttachedEvent]) -> tuple[Attached, int]:
    """What is known after them, and how many could not be read. Where the database refuses one, each half is taken by
    itself, down to that one."""
    attached = Attached(known.roots, {**known.apps}, {**known.declarations}, {**known.observed}, known.hosted)
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

    return {app.host.host_id: app for app in fetch(connection, app_of, schema.attached_app)}


def _known(connection: Connection, roots: Sequence[str]) -> Attached:
    every = {stream.name: stream for stream in fetch(connection, StreamDeclaration, schema.declaration)}
    declared = {name: stream for name, stream in every.items() if stream.is_attached}
    seen = fetch(connection, Observed, sa.select(schema.observed).where(schema.observed.c.name.in_(declared)))
    observations = {observation.name: observation for observation in seen}
    return Attached(roots, apps(connection), declared, observations, every.keys() - declared.keys())


def _keep(connection: Connection, attached: Attached, now: datetime) -> None:
    for app in (attached.apps[app_id] for app_id in sorted(attached.reported)):
        row = {column.name: getattr(app.host, column.name) for column in schema.attached_app.c if column.name != "name"}
        upsert(connection, schema.attached_app, {**row, "name": app.name})
    for name in sorted(attached.changed & attached.declarations.keys()):
        upsert(connection, schema.declaration, declaration_row(attached.declarations[name], now))
        upsert(connection, schema.observed, observed_row(attached.observed[name]))
    if attached.progress:
        batches.add(connection, attached.progress)
    for name, at in attached.signs.items():
        batches.touch(connection, name, at=at)


def _forget(connection: Connection, streams: Attached, *, before: datetime) -> None:
    """Applications that fell silent, and their streams: a query without a name is a new stream at each start."""
    connection.execute(sa.delete(schema.attached_app).where(schema.attached_app.c.beat_at < before))
    alive = sa.select(schema.attached_app.c.host_id)
    attached = schema.observed.c.name.in_(streams.declarations)
    gone = attached, schema.observed.c.observed_at < before, schema.observed.c.host_id.not_in(alive)
    names = sa.delete(schema.observed).where(*gone).returning(schema.observed.c.name)
    for name in connection.execute(names).scalars().all():
        connection.execute(sa.delete(schema.declaration).where(schema.declaration.c.name == name))
