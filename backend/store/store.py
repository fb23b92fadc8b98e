"""The control store: what people want of streams and what hosts observed, shared by UI, CLI and hosts.

Rule: an act is in the audit trail in the same transaction that makes it visible. An observation counts only under the
current lease token.
"""

import difflib
import threading
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Self

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.access import Access, Actor
from backend.errors import StoreError, StreamNotFoundError, StreamRefusedError
from backend.expectations.model import Finding, Judgement, State, TableExpectation
from backend.jobs.model import JobKind
from backend.private_files import private_folder
from backend.settings import Settings
from backend.store import addresses, audit, batches, inbox, leases, rows, schema
from backend.store.annotations import Noticed, Pins, SavedQueries, Told
from backend.store.engine import Database, insert, upsert
from backend.store.jobs import Jobs, unfinished_act
from backend.store.leases import moment, stream_resource
from backend.store.migrate import migrate
from backend.store.notices import Notices, NoticeTopic
from backend.stream_model.backlog import Backlog
from backend.stream_model.overrides import changes, check_overrides, compare
from backend.stream_model.rollup import Rollup
from backend.stream_model.stream import (
    Action,
    AttachedApp,
    AuditEntry,
    Desired,
    DesiredState,
    HostHeartbeat,
    Lease,
    Observed,
    Progress,
    Run,
    StreamDeclaration,
    StreamState,
    TopicEnds,
)

CHUNK = 2_000  # rows of one transaction: others wait for it
NO_OVERRIDES: Mapping[str, Mapping[str, str]] = MappingProxyType({})
_NOTICED = timedelta(seconds=2)  # clocks differ by less where the question merely took its time


class ControlStore:
    """Thread-safe. Every method raises `StoreError` when the database does not answer."""

    def __init__(self, url: str) -> None:
        self._database = Database(url)
        migrate(self._database)
        self.notices = Notices(self._database)
        self.jobs = Jobs(self._database, self.notices)
        self.pins = Pins(self._database)
        self.saved = SavedQueries(self._database)
        self.noticed = Noticed(self._database)
        self.told = Told(self._database)
        self._host_streams = leases.Names(100)

    @classmethod
    def open(cls, settings: Settings) -> Self:
        """Opens the store of the settings; creates its folder and brings its schema up to date."""
        if not settings.store.url.get_secret_value() and (folder := settings.home / "store").is_dir():
            private_folder(folder)
        return cls(settings.store_url)

    @property
    def shown_url(self) -> str:
        """The URL without its password, for people."""
        return self._database.shown_url

    def unreadable(self) -> tuple[str, ...]:
        """The rows that this process passed over, by table and key: nobody can read them."""
        return tuple(rows.UNREADABLE)

    def close(self) -> None:
        rows.UNREADABLE.clear()
        self.notices.close()
        self._database.dispose()

    def now(self) -> datetime:
        """The store's own clock."""
        with self._database.reading() as connection:
            return connection.execute(sa.select(moment(connection))).scalar_one()

    # desired ---------------------------------------------------------------------------------------------------

    def request(self, name: str, action: Action, *, reason: str, actor: Actor, now: datetime) -> Desired:
        """Writes who wants what and why, then the desired state.

        Every request grows the generation, which also clears a FAILED or BACKOFF state; only starting what is wanted
        and flows already keeps it, because a new generation of a running stream means a restart.
        """
        return self.request_all((name,), action, reason=reason, actor=actor, now=now)[0]

    def request_all(
        self,
        names: Sequence[str],
        action: Action,
        *,
        reason: str,
        actor: Actor,
        now: datetime,
        overrides: Mapping[str, Mapping[str, str]] = NO_OVERRIDES,
    ) -> list[Desired]:
        """The same of several streams, in this order: all of them, or none where one is refused.

        `overrides`: by stream, the settings to run with from now on in place of declared ones. Those of other streams
        stay as they are. Raises `OverrideError`.
        """
        with self._database.writing() as connection:
            before = {name: _desired(connection, name) for name in sorted(names)}  # one order of locks for everyone
            self.notices.tell(connection, NoticeTopic.DESIRED)
            return [
                _request(
                    connection,
                    before[name],
                    Access(actor, name, action, reason),
                    now=now,
                    overrides=overrides.get(name),
                )
                for name in names
            ]

    def ensure_desired(self, name: str, state: DesiredState, *, now: datetime) -> None:
        """Registers a stream's default; what a person asked for stays."""
        self.ensure_all_desired([name], state, now=now)

    def ensure_all_desired(self, names: Collection[str], state: DesiredState, *, now: datetime) -> None:
        """The same of many."""
        first = [rows.row_of(Desired(name, state, 1, "declared", "host", now)) for name in sorted(names)]
        if first:
            with self._database.writing() as connection:
                connection.execute(insert(connection, schema.desired).on_conflict_do_nothing(), first)

    def desired_sign(self) -> object:
        """Another one once something else is wanted of a stream."""
        with self._database.reading() as connection:
            counted = sa.select(sa.func.count(), sa.func.sum(schema.desired.c.generation))
            return tuple(connection.execute(counted).one())

    def desired(self) -> dict[str, Desired]:
        with self._database.reading() as connection:
            every = connection.execute(sa.select(schema.desired).order_by(schema.desired.c.name)).mappings()
            return {desired.name: desired for desired in rows.readable(rows.desired_of, "desired", every)}

    # declared and observed -------------------------------------------------------------------------------------

    def declare(self, declarations: Sequence[StreamDeclaration], *, now: datetime) -> None:
        """Keeps what a host can run. Raises `StreamRefusedError` where it would lie elsewhere than what is kept."""
        with self._database.writing() as connection:
            before = addresses.refuse_others(connection, declarations)
            for item in (item for item in declarations if before.get(item.name) != item):
                row = {"name": item.name, "body": rows.json_of(item), "declared_at": now}
                upsert(connection, schema.declaration, row)

    def declarations(self) -> dict[str, StreamDeclaration]:
        with self._database.reading() as connection:
            every = connection.execute(sa.select(schema.declaration).order_by(schema.declaration.c.name)).mappings()
            return {stream.name: stream for stream in rows.readable(rows.declaration_of, "declaration", every)}

    def observe(self, observed: Observed, *, token: int) -> None:
        """Writes what the owning host saw; `StreamRefusedError` when the lease has gone to another host."""
        with self._database.writing() as connection:
            if not leases.is_current(connection, stream_resource(observed.name), token):
                raise StreamRefusedError(
                    f"{observed.name}: the lease of {observed.host_id} is no longer current",
                    hint="another host runs the stream now",
                )
            upsert(connection, schema.observed, rows.observed_row(observed))
            self.notices.tell(connection, NoticeTopic.STREAMS)

    def observed(self) -> dict[str, Observed]:
        with self._database.reading() as connection:
            every = connection.execute(sa.select(schema.observed).order_by(schema.observed.c.name)).mappings()
            return {seen.name: seen for seen in rows.readable(partial(rows.value_of, Observed), "observed", every)}

    # progress --------------------------------------------------------------------------------------------------

    def add_progress(self, items: Sequence[Progress]) -> None:
        """Adds micro-batches; one that is there already is kept once."""
        if items:
            with self._database.writing() as connection:
                batches.add(connection, items)
                self.notices.tell(connection, NoticeTopic.STREAMS)

    def touch(self, name: str, *, at: datetime) -> None:
        """Notes that Spark reported on the stream (a batch or "idle") at `at`: `Observed.last_trigger_at`."""
        with self._database.writing() as connection:
            batches.touch(connection, name, at)

    def progress(
        self, stream: str, *, since: datetime = schema.EPOCH, until: datetime = schema.LATEST, limit: int = 500,
        raw: bool = True, every: int = 1,
    ) -> list[Progress]:  # fmt: skip
        """The newest `limit` micro-batches of a time, oldest first; `raw`: with the JSON that Spark reported; `every`:
        only those whose id is a multiple of it."""
        with self._database.reading() as connection:
            return batches.of_stream(connection, stream, since=since, until=until, limit=limit, raw=raw, every=every)

    def newest_batches(self) -> dict[str, int]:
        """What names the newest micro-batch of each declared stream: another one once a batch came."""
        with self._database.reading() as connection:
            return batches.newest_ids(connection)

    def recent(
        self, streams: Collection[str] | None = None, *, limit: int, raw: bool = False
    ) -> dict[str, list[Progress]]:
        """The newest `limit` micro-batches of these declared streams, None for all, oldest first. Durations by phase,
        expectations and Spark's JSON are the newest one's alone; with `raw` each has them."""
        with self._database.reading() as connection:
            return batches.recent(connection, streams, limit=limit, raw=raw)

    def input_rows(self, streams: Collection[str], *, since: datetime) -> dict[str, list[int]]:
        """How many rows each micro-batch of these streams since then read, oldest first."""
        with self._database.reading() as connection:
            return batches.input_rows(connection, streams, since=since)

    def batch(self, stream: str, batch_id: int) -> Progress | None:
        """The newest event of one batch; None where it is not kept."""
        with self._database.reading() as connection:
            return batches.of_batch(connection, stream, batch_id)

    def runs(self, stream: str, *, limit: int = 100) -> list[Run]:
        """The newest `limit` runs, newest first, each with its true first and last batch, gone or not."""
        with self._database.reading() as connection:
            return batches.runs(connection, stream, limit=limit)

    def not_rolled_up(self, *, most: int = CHUNK) -> dict[int, Progress]:
        """Batches that the figures per minute and per hour do not hold yet, by id."""
        with self._database.reading() as connection:
            return batches.waiting(connection, most=most)

    def roll_up(self, ids: Collection[int], lags: batches.Lags = batches.NO_LAGS) -> int:
        """Adds these batches to the figures, but for those that are in them; how many. `lags`: what waited after them,
        by stream and by when they ended."""
        with self._database.writing() as connection:
            return batches.roll_up(connection, ids=ids, lags=lags)

    def rollups(self, stream: str, *, grain_s: int, since: datetime, until: datetime = schema.LATEST) -> list[Rollup]:
        """Those of a stream that begin in a time: one or more for each `grain_s` with a batch."""
        with self._database.reading() as connection:
            return batches.rollups_of(connection, stream, grain_s=grain_s, since=since, until=until)

    def prune_progress(self, *, before: datetime, keep: int) -> int:
        """Deletes batches that are added up and are from before, or more than the newest `keep`; how many."""
        deleted = 0
        while True:  # in pieces, so that nobody waits for long
            with self._database.writing() as connection:
                piece = batches.prune(connection, before=before, keep=keep, most=CHUNK)
            deleted += piece
            if piece < CHUNK:
                return deleted

    def prune_rollups(self, *, grain_s: int, before: datetime) -> int:
        with self._database.writing() as connection:
            return batches.prune_rollups(connection, grain_s=grain_s, before=before)

    # topics ----------------------------------------------------------------------------------------------------

    def note_ends(self, ends: TopicEnds) -> None:
        """Keeps what a broker last answered of one source."""
        with self._database.writing() as connection:
            upsert(connection, schema.topic_ends, rows.topic_ends_row(ends))

    def topic_ends(self) -> dict[str, list[TopicEnds]]:
        """What brokers last answered, by stream."""
        with self._database.reading() as connection:
            ends_rows = connection.execute(sa.select(schema.topic_ends)).mappings()
            every = rows.readable(rows.topic_ends_of, "topic_ends", ends_rows)
        by_stream: dict[str, list[TopicEnds]] = {}
        for ends in every:
            by_stream.setdefault(ends.stream, []).append(ends)
        return by_stream

    # backlogs --------------------------------------------------------------------------------------------------

    def note_backlogs(self, backlogs: Mapping[str, Backlog]) -> None:
        """Keeps what waits for each of these streams, unless a later look is kept."""
        if not backlogs:
            return
        new = [rows.backlog_row(stream, backlogs[stream]) for stream in sorted(backlogs)]  # one order of locks
        with self._database.writing() as connection:
            statement = insert(connection, schema.backlog)
            changed = {"seen_at": statement.excluded.seen_at, "body": statement.excluded.body}
            is_later = schema.backlog.c.seen_at < statement.excluded.seen_at
            connection.execute(
                statement.on_conflict_do_update(index_elements=["stream"], set_=changed, where=is_later), new
            )

    def backlogs(self, streams: Collection[str] | None = None) -> dict[str, Backlog]:
        """What hosts last saw to wait, by stream; None: for all."""
        query = sa.select(schema.backlog)
        if streams is not None:
            query = query.where(schema.backlog.c.stream.in_(streams))
        with self._database.reading() as connection:
            return dict(rows.readable(rows.backlog_of, "backlog", connection.execute(query).mappings()))

    def backlogs_seen_at(self) -> dict[str, datetime]:
        """When hosts last looked at what waits, by stream."""
        with self._database.reading() as connection:
            seen = connection.execute(sa.select(schema.backlog.c.stream, schema.backlog.c.seen_at))
            return {name: seen_at for name, seen_at in seen}  # noqa: C416 - mypy knows no pairs in rows

    # expectations on tables ------------------------------------------------------------------------------------

    def expect(self, pipelines: Sequence[str], declared: Sequence[Judgement]) -> None:
        """Keeps what these pipelines expect: adds what nobody judged yet, and forgets what they expect no more."""
        table = schema.table_expectation
        wanted = {(judgement.expectation.uri, judgement.expectation.name) for judgement in declared}
        with self._database.writing() as connection:
            there = connection.execute(sa.select(table.c.uri, table.c.name).where(table.c.pipeline.in_(pipelines)))
            for uri, name in {(row.uri, row.name) for row in there} - wanted:
                connection.execute(sa.delete(table).where(table.c.uri == uri, table.c.name == name))
            for judgement in declared:
                row = rows.judgement_row(judgement)
                connection.execute(insert(connection, table).values(**row).on_conflict_do_nothing())

    def expect_by_hand(self, expected: TableExpectation, *, actor: Actor, reason: str, now: datetime) -> None:
        """Keeps what a person expects of a table, whatever pipelines do; raises `StreamRefusedError`."""
        expected = replace(expected, by=actor.name, why=reason.strip())
        early = Finding(State.UNKNOWN, "no host has judged it yet", is_early=True)
        with self._database.writing() as connection:
            audit.admit(connection, Access(actor, expected.table, "expect", reason), now=now, outcome=expected.name)
            row = rows.judgement_row(Judgement(expected, early, "", now))
            connection.execute(insert(connection, schema.table_expectation).values(**row).on_conflict_do_nothing())

    def expect_no_more(self, expected: TableExpectation, *, actor: Actor, reason: str, now: datetime) -> None:
        """Forgets what a person expects; raises `StreamRefusedError`, also where nobody does."""
        table, name = schema.table_expectation, expected.name
        with self._database.writing() as connection:
            access = Access(actor, expected.table, "expect no more", reason)
            audit.admit(connection, access, now=now, outcome=name)
            by_hand = table.c.uri == expected.uri, table.c.name == name, table.c.pipeline == ""
            if not connection.execute(sa.delete(table).where(*by_hand)).rowcount:
                raise StreamRefusedError(f"nobody expects {name} by hand", hint="`weir expectations` lists what is")

    def note_judgement(self, judgement: Judgement) -> None:
        """Keeps the last judgement of one expectation; of a person's, unless they expect it no more."""
        table, row = schema.table_expectation, rows.judgement_row(judgement)
        with self._database.writing() as connection:
            if judgement.expectation.by:
                same = table.c.uri == row["uri"], table.c.name == row["name"]
                connection.execute(sa.update(table).where(*same).values(row))
            else:
                upsert(connection, table, row)

    def judgements(self) -> list[Judgement]:
        """The last judgement of every expectation on a table."""
        table = schema.table_expectation
        with self._database.reading() as connection:
            every = connection.execute(sa.select(table).order_by(table.c.uri, table.c.name)).mappings()
            return rows.readable(partial(rows.value_of, Judgement), "table_expectation", every)

    def prune_judgements(self, *, before: datetime) -> int:
        """Forgets what pipelines expect and no host has judged since."""
        table = schema.table_expectation
        old = table.c.judged_at < before, table.c.pipeline != ""
        with self._database.writing() as connection:
            return int(connection.execute(sa.delete(table).where(*old)).rowcount)

    # other applications ----------------------------------------------------------------------------------------

    def take_in(self, roots: Sequence[str]) -> None:
        """Takes what other Spark applications left in the inbox; `roots` of the lake, below which tables have names."""
        with self._database.reading() as connection:
            if inbox.is_empty(connection):
                return
        with self._database.writing() as connection:
            inbox.take(connection, roots)

    def apps(self) -> dict[str, AttachedApp]:
        """The Spark applications that report their queries, by id."""
        with self._database.reading() as connection:
            return inbox.apps(connection)

    # hosts, leases, audit --------------------------------------------------------------------------------------

    def beat(self, heartbeat: HostHeartbeat) -> None:
        with self._database.writing() as connection:
            if leases.beat(connection, heartbeat):
                self.notices.tell(connection, NoticeTopic.HOSTS)

    def hosts(self, *, now: datetime | None = None) -> list[HostHeartbeat]:
        """Newest heartbeat first; hosts that ended stay until `prune_hosts`. Timestamps come from the store's clock, or
        are moved to the clock that `now` was read from."""
        ahead = now - self.now() if now else timedelta()
        if abs(ahead) < _NOTICED:
            ahead = timedelta()
        with self._database.reading() as connection:
            every = leases.hosts(connection, self._host_streams)
        newest = sorted(every, key=lambda host: host.beat_at, reverse=True)
        return [replace(host, started_at=host.started_at + ahead, beat_at=host.beat_at + ahead) for host in newest]

    def live_hosts(self, *, within_s: float) -> list[HostHeartbeat]:
        """Those whose heartbeat is no older than that, by id."""
        with self._database.reading() as connection:
            return leases.hosts(connection, self._host_streams, schema.host.c.beat_at > moment(connection, -within_s))

    def prune_hosts(self, *, before: datetime) -> int:
        with self._database.writing() as connection:
            return int(connection.execute(sa.delete(schema.host).where(schema.host.c.beat_at < before)).rowcount)

    def acquire(self, resource: str, owner: str, *, ttl_s: float) -> Lease | None:
        """The lease with a new token, or None while another owner holds it."""
        return self.acquire_all([resource], owner, ttl_s=ttl_s).get(resource)

    def acquire_all(self, resources: Collection[str], owner: str, *, ttl_s: float) -> dict[str, Lease]:
        """The same of many at once: the leases that were free, by resource."""
        with self._database.writing() as connection:
            if acquired := leases.acquire_all(connection, resources, owner, ttl_s=ttl_s):
                self.notices.tell(connection, NoticeTopic.LEASES)
            return acquired

    def renew_all(self, held: Collection[Lease], *, ttl_s: float) -> dict[str, Lease]:
        """These leases of one owner with a later end, by resource, but for those that have a new owner."""
        with self._database.writing() as connection:
            return leases.renew_all(connection, held, ttl_s=ttl_s)

    def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
        """The lease with a later end, or None when it has a new owner."""
        return self.renew_all([lease], ttl_s=ttl_s).get(lease.resource)

    def release(self, lease: Lease) -> None:
        with self._database.writing() as connection:
            leases.release(connection, lease)
            self.notices.tell(connection, NoticeTopic.LEASES)

    @contextmanager
    def alone(self, section: str, *, ttl_s: float = 15.0) -> Iterator[None]:
        """Nobody else is in this section meanwhile, in whatever process; one that died or froze in it keeps the others
        out for `ttl_s` at most. Raises `StoreError`."""
        owner, over, pause_s = uuid.uuid4().hex, threading.Event(), 0.02
        while (lease := self.acquire(f"section/{section}", owner, ttl_s=ttl_s)) is None:
            over.wait(pause_s)
            pause_s = min(2 * pause_s, 0.5)

        def renew() -> None:
            while not over.wait(ttl_s / 3):
                with suppress(StoreError):
                    self.renew(lease, ttl_s=ttl_s)

        thread = threading.Thread(target=renew, name=f"section-{section}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            with suppress(StoreError):  # it ends by itself
                self.release(lease)

    def lease_sign(self) -> object:
        """Another one once a lease has another owner, or none any more."""
        with self._database.reading() as connection:
            return leases.sign(connection)

    def leases(self) -> dict[str, Lease]:
        """By resource, those that have not expired."""
        with self._database.reading() as connection:
            return leases.held(connection)

    def note(self, entry: AuditEntry) -> None:
        """Into the audit trail: what was done and changed nothing, such as a query."""
        with self._database.writing() as connection:
            audit.note(connection, entry)

    def audit_entries(
        self, *, limit: int = 100, subject: str | None = None, with_queries: bool = True
    ) -> list[AuditEntry]:
        """Newest first. `with_queries`: also what was read by SQL, which is no act."""
        with self._database.reading() as connection:
            return audit.entries(connection, limit=limit, subject=subject, with_queries=with_queries)


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


def _request(
    connection: Connection,
    before: Desired | None,
    access: Access,
    *,
    now: datetime,
    overrides: Mapping[str, str] | None,
) -> Desired:
    name, action = access.resource, access.operation
    overridden = before.overrides if before else {}
    if before is None:
        _check_declared(connection, name, action)
    if action in ("start", "restart") and (act := unfinished_act(connection, name)):
        raise StreamRefusedError(f"{action} {name}: {_BUSY[act.kind]}", hint="`weir jobs` says how far that is")
    if overrides is not None:
        declared = _declared(connection, name)
        check_overrides(declared, overrides)
        access = replace(access, parameters=changes(compare(declared, overridden, overrides)))
        overridden = overrides
    asked = Desired(name, _STATE_OF[action], 0, access.reason.strip(), access.actor.name, now, overridden)
    after = _wanted(connection, before, asked, action)
    outcome = f"{before.state if before else 'new'} → {after.state}, generation {after.generation}"
    audit.admit(connection, access, now=now, outcome=outcome)
    upsert(connection, schema.desired, rows.row_of(after))
    return after


def _wanted(connection: Connection, before: Desired | None, asked: Desired, action: str) -> Desired:
    generation = before.generation if before else 0
    is_same = before is not None and (before.state, before.overrides) == (asked.state, asked.overrides)
    if action == "start" and before and is_same and _flows(connection, before):
        return replace(asked, generation=generation)
    return replace(asked, generation=generation + 1)


def _declared(connection: Connection, name: str) -> StreamDeclaration:
    query = sa.select(schema.declaration).where(schema.declaration.c.name == name)
    row = connection.execute(query).mappings().first()
    if row is None:
        raise _unknown(connection, name)
    return rows.declaration_of(row)


def _flows(connection: Connection, wanted: Desired) -> bool:
    seen = (
        connection.execute(sa.select(schema.observed).where(schema.observed.c.name == wanted.name)).mappings().first()
    )
    return seen is not None and StreamState(seen["state"]).flows and seen["generation"] == wanted.generation


def _desired(connection: Connection, name: str) -> Desired | None:
    query = sa.select(schema.desired).where(schema.desired.c.name == name).with_for_update()
    row = connection.execute(query).mappings().first()
    return rows.desired_of(row) if row else None


def _check_declared(connection: Connection, name: str, action: str) -> None:
    """Raises where nobody may ask anything of it."""
    declared = _declared(connection, name)
    if declared.is_attached:
        raise StreamRefusedError(
            f"{action} {name}: another Spark application runs it", hint=f"{action} it in {declared.pipeline}"
        )


def _unknown(connection: Connection, name: str) -> StreamNotFoundError:
    names = list(connection.execute(sa.select(schema.declaration.c.name)).scalars())
    near = difflib.get_close_matches(name, names, n=3) or sorted(names)[:5]
    hint = f"known: {', '.join(near)}" if near else "no host has declared a stream yet: start one with `weir host`"
    return StreamNotFoundError(f"no stream is called {name!r}", hint=hint)
