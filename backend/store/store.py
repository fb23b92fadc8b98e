"""The control store: what people want of streams and what hosts observed, shared by UI, CLI and hosts.

Rule: a method is a transaction around one statement of its subject's module, in which the statement and what it means
are described; nothing is decided here. Thread-safe. Every method raises `StoreError` when the database does not answer.
"""

import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Self

import sqlalchemy as sa

from backend.access import Actor
from backend.errors import StoreError
from backend.private_files import private_folder
from backend.settings import Settings
from backend.store import annotations, audit, batches, leases, schema, streams
from backend.store.annotations import Noticed, Pins, SavedQueries, WebhookDeliveries
from backend.store.engine import Database, migrate, reading, writing
from backend.store.incidents import Incidents
from backend.store.jobs import Jobs
from backend.store.notices import Notices, NoticeTopic
from backend.stream_model.stream import Action, Desired, HostHeartbeat, Lease

_NOTICED = timedelta(seconds=2)  # clocks differ by less where the question merely took its time


class ControlStore:
    """One database and its subjects."""

    def __init__(self, url: str) -> None:
        self._database = Database(url, audit.append)
        migrate(self._database, schema.metadata)
        self.notices = Notices(self._database)
        self.jobs = Jobs(self._database, self.notices)
        self.pins = Pins(self._database)
        self.saved = SavedQueries(self._database)
        self.noticed = Noticed(self._database)
        self.incidents = Incidents(self._database)
        self.told = WebhookDeliveries(self._database)
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
        return tuple(schema.UNREADABLE)

    def close(self) -> None:
        schema.UNREADABLE.clear()
        self.notices.close()
        self._database.dispose()

    def now(self) -> datetime:
        """The store's own clock."""
        with self._database.reading() as connection:
            return connection.execute(sa.select(leases.moment(connection))).scalar_one()

    # streams ---------------------------------------------------------------------------------------------------

    request_all = writing(streams.request_all, tells=NoticeTopic.DESIRED)
    ensure_all_desired = writing(streams.ensure_all_desired)
    desired = reading(streams.desired)
    desired_sign = reading(streams.desired_sign)
    declare = writing(streams.declare)
    declarations = reading(streams.declarations)
    observe = writing(streams.observe, tells=NoticeTopic.STREAMS)
    observed = reading(streams.observed)
    note_ends = writing(streams.note_ends)
    topic_ends = reading(streams.topic_ends)
    note_backlogs = writing(streams.note_backlogs)
    backlogs = reading(streams.backlogs)
    backlogs_seen_at = reading(streams.backlogs_seen_at)

    def request(self, name: str, action: Action, *, reason: str, actor: Actor, now: datetime) -> Desired:
        """`request_all` of one stream, with the settings that it has."""
        return self.request_all((name,), action, reason=reason, actor=actor, now=now)[0]

    # batches ---------------------------------------------------------------------------------------------------

    add_progress = writing(batches.add, tells=NoticeTopic.STREAMS)
    touch = writing(batches.touch)
    progress = reading(batches.of_stream)
    newest_batches = reading(batches.newest_ids)
    recent = reading(batches.recent)
    input_rows = reading(batches.input_rows)
    batch = reading(batches.of_batch)
    runs = reading(batches.runs)
    not_rolled_up = reading(batches.not_rolled_up)
    roll_up = writing(batches.roll_up)
    rollups = reading(batches.rollups)
    prune_rollups = writing(batches.prune_rollups)

    def prune_progress(self, *, before: datetime, keep: int) -> int:
        """Deletes batches that are added up and are from before, or more than the newest `keep`; how many."""
        deleted = 0
        while True:  # in pieces, so that nobody waits for long
            with self._database.writing() as connection:
                piece = batches.prune(connection, before=before, keep=keep)
            deleted += piece
            if piece < batches.CHUNK:
                return deleted

    # expectations on tables, other applications, the audit trail -----------------------------------------------

    expect = writing(annotations.expect)
    expect_by_hand = writing(annotations.expect_by_hand)
    expect_no_more = writing(annotations.expect_no_more)
    note_judgement = writing(annotations.note_judgement)
    judgements = reading(annotations.judgements)
    prune_judgements = writing(annotations.prune_judgements)
    apps = reading(streams.apps)
    admit = writing(audit.admit)
    note = writing(audit.note)
    note_of_viewer = writing(audit.note_of_viewer)
    audit_entries = reading(audit.entries)
    audit_head = reading(audit.head)
    verify_audit = reading(audit.verify)
    cut_audit = writing(audit.cut)

    def take_in(self, roots: Sequence[str]) -> None:
        """Takes what other Spark applications left in the inbox; `roots` of the lake, below which tables have names."""
        with self._database.reading() as connection:  # most looks find nothing, and need no lock
            if connection.execute(sa.select(schema.attached_event.c.id).limit(1)).first() is None:
                return
        with self._database.writing() as connection:
            streams.take_events(connection, roots)

    # hosts and leases ------------------------------------------------------------------------------------------

    beat = writing(leases.beat, tells=NoticeTopic.HOSTS)
    prune_hosts = writing(leases.prune_hosts)
    acquire_all = writing(leases.acquire_all, tells=NoticeTopic.LEASES)
    renew_all = writing(leases.renew_all)
    release = writing(leases.release, tells=NoticeTopic.LEASES)
    lease_sign = reading(leases.sign)
    leases = reading(leases.held)

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
            is_live = schema.host.c.beat_at > leases.moment(connection, -within_s)
            return leases.hosts(connection, self._host_streams, is_live)

    def acquire(self, resource: str, owner: str, *, ttl_s: float) -> Lease | None:
        """The lease with a new token, or None while another owner holds it."""
        return self.acquire_all([resource], owner, ttl_s=ttl_s).get(resource)

    def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
        """The lease with a later end, or None when it has a new owner."""
        return self.renew_all([lease], ttl_s=ttl_s).get(lease.resource)

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
