"""What people and hosts note of tables and queries: pinned versions, what commits did first and who has seen it, saved
queries, what is expected of a table, and what the webhook was told.

Rule: what a person does here is in the audit trail in the same transaction that makes it visible. Weir deletes no file
of a pinned version. Nobody replaces another's saved query by accident: it is removed first, by whoever may act.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.access import Access, Actor
from backend.errors import SavedQueryNotFoundError, StreamRefusedError
from backend.expectations.model import Finding, Judgement, State, TableExpectation
from backend.expectations.shown import HiddenAt, as_shown
from backend.format import cut, utc_text
from backend.jobs.model import JobKind
from backend.lake.history.history import check_name
from backend.lake.model import Pin, TableRef
from backend.search.notice import Key, Notice, notice_text
from backend.sql.saved import Chart, SavedQuery, audit_text, require_name
from backend.store import audit, leases
from backend.store.engine import Database, insert, upsert, writing
from backend.store.jobs import ASKING, unfinished_act
from backend.store.schema import fetch, row_of, table_expectation
from backend.store.schema import notice as notice_table
from backend.store.schema import pin as pin_table
from backend.store.schema import saved_query as saved_table
from backend.store.schema import told as told_table

FAILS_FOR = timedelta(minutes=30)  # after the last failure: a host tries again sooner, or tells nothing any more
Item = tuple[str, str, str, str]  # severity, cause, subject, and since when where a subject may have several
_MOST = 1_000
_OPEN = notice_table.c.mended_at.is_(None), notice_table.c.seen_by == ""


# pins ----------------------------------------------------------------------------------------------------------------


def add_pin(
    connection: Connection, ref: TableRef, version: int, *, actor: Actor, reason: str, now: datetime, name: str = "",
    until: datetime | None = None,
) -> Pin:  # fmt: skip
    """`until`: when it ends by itself. Raises `StreamRefusedError` for a version that is pinned already, for a name
    that another one has, and while a VACUUM of the table is under way; `VersionFormatError` for what is no name."""
    called = check_name(name) if name.strip() else None
    if until is not None and until <= now:
        raise StreamRefusedError(f"the pin would end at {utc_text(until)}, which has passed")
    leases.lock(connection, ASKING)
    pins = pins_of(connection, ref)
    if taken := next((pin for pin in pins.values() if called and pin.name == called), None):
        raise StreamRefusedError(
            f"{called!r} names v{taken.version} of {ref.name} already",
            hint=f"take another name, or unpin that one: weir unpin {ref.name} {taken.version}",
        )
    if before := pins.get(version):
        raise StreamRefusedError(
            f"v{version} of {ref.name} is pinned already, by {before.actor}: {before.reason}",
            hint=f"to give another reason, unpin it first: weir unpin {ref.name} {version}",
        )
    act = unfinished_act(connection, ref.name, of_table=True)
    if act is not None and act.kind is JobKind.VACUUM:
        raise StreamRefusedError(
            f"pin {ref.name}: a VACUUM of this table is running", hint="`weir jobs` says how far that is"
        )
    made = Pin(ref.uri, version, actor.name, reason.strip(), now, called, until)
    outcome = f"v{version}{f' as {called}' if called else ''}{f', until {utc_text(until)}' if until else ''}"
    audit.admit(connection, Access(actor, ref.name, "pin", reason), now=now, outcome=outcome)
    connection.execute(sa.insert(pin_table).values(row_of(made)))
    return made


def pins_of(connection: Connection, ref: TableRef) -> Mapping[int, Pin]:
    """By version."""
    query = sa.select(pin_table).where(pin_table.c.uri == ref.uri).order_by(pin_table.c.version)
    return {pin.version: pin for pin in fetch(connection, Pin, query)}


@dataclass(frozen=True, slots=True)
class Pins:
    """Versions of tables that a person keeps readable, and why."""

    _database: Database

    add = writing(add_pin)

    def remove(self, ref: TableRef, version: int, *, actor: Actor, reason: str, now: datetime) -> Pin:
        """The pin as it was; raises `StreamRefusedError` where there is none."""
        with self._database.writing() as connection:
            pins = pins_of(connection, ref)
            if version not in pins:
                known = ", ".join(f"v{pinned}" for pinned in pins)
                raise StreamRefusedError(
                    f"v{version} of {ref.name} is not pinned", hint=f"pinned: {known or 'no version'}"
                )
            before = pins[version]
            called = f" as {before.name}" if before.name else ""
            outcome = f"v{version}, pinned{called} by {before.actor}: {before.reason}"
            audit.admit(connection, Access(actor, ref.name, "unpin", reason), now=now, outcome=outcome)
            connection.execute(sa.delete(pin_table).where(pin_table.c.uri == ref.uri, pin_table.c.version == version))
            return before

    def of_table(self, ref: TableRef) -> list[Pin]:
        """By version."""
        with self._database.reading() as connection:
            return list(pins_of(connection, ref).values())


# notices -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Noticed:
    """What commits did that none before them did. A host that notices it again changes only whether it is mended."""

    _database: Database

    def keep(self, notices: Sequence[Notice], *, now: datetime) -> None:
        if not notices:
            return
        with self._database.writing() as connection:
            for notice in notices:
                made = insert(connection, notice_table).values(**row_of(notice), noticed_at=now)
                mended = {"mended_at": made.excluded.mended_at}
                connection.execute(made.on_conflict_do_update(index_elements=notice_table.primary_key, set_=mended))

    def seen(
        self, uri: str, version: int, is_meant: Callable[[Notice], bool] = lambda _: True, *, actor: Actor, reason: str,
        now: datetime, told: Sequence[Notice] = (), hidden_at: HiddenAt = lambda _: None,
    ) -> list[Notice]:  # fmt: skip
        """What is open of a version and meant needs nobody any more; raises `StreamRefusedError` where nothing is.
        `told`: what the page told of it, which no host may know; `hidden_at`: what the audit trail does not tell."""
        with self._database.writing() as connection:
            note_notices(connection, told, now=now)
            where = notice_table.c.uri == uri, notice_table.c.version == version, *_OPEN
            open_ones = [*filter(is_meant, fetch(connection, Notice, sa.select(notice_table).where(*where)))]
            if not open_ones:
                raise StreamRefusedError(f"nothing is open of v{version}", hint="`weir notices` lists what is")
            outcome = "; ".join(map(notice_text, as_shown(open_ones, hidden_at)))
            audit.admit(connection, Access(actor, open_ones[0].table, "seen", reason), now=now, outcome=outcome)
            seen = {"seen_by": actor.name, "seen_reason": reason.strip()}
            of_these = sa.tuple_(notice_table.c.kind, notice_table.c.subject).in_([each.key[2:] for each in open_ones])
            connection.execute(sa.update(notice_table).where(*where, of_these).values(**seen))
            return open_ones

    def open(self) -> list[Notice]:
        """What somebody has to look at, newest first."""
        return self._newest(*_OPEN)

    def seen_keys(self) -> frozenset[Key]:
        """Of what nobody has to look at any more, since somebody said so."""
        return frozenset(notice.key for notice in self._newest(notice_table.c.seen_by != ""))

    def of_table(self, uri: str, *, since: datetime, until: datetime) -> list[Notice]:
        """What commits of that time did, seen or mended or not, newest first."""
        return self._newest(notice_table.c.uri == uri, notice_table.c.committed_at.between(since, until))

    def _newest(self, *where: sa.ColumnElement[bool]) -> list[Notice]:
        query = sa.select(notice_table).where(*where).order_by(notice_table.c.committed_at.desc(), notice_table.c.uri)
        with self._database.reading() as connection:
            return fetch(connection, Notice, query.limit(_MOST))

    def prune(self, *, before: datetime) -> int:
        """Forgets what was noticed before then."""
        with self._database.writing() as connection:
            return int(connection.execute(sa.delete(notice_table).where(notice_table.c.noticed_at < before)).rowcount)


def note_notices(connection: Connection, notices: Iterable[Notice], *, now: datetime) -> None:
    """Keeps those that no host knows."""
    for notice in notices:
        made = insert(connection, notice_table).values(**row_of(notice), noticed_at=now)
        connection.execute(made.on_conflict_do_nothing())


# saved queries -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SavedQueries:
    """Statements that people keep by a name for everybody."""

    _database: Database

    def save(
        self, name: str, text: str, chart: Chart | None = None, *, actor: Actor, reason: str, now: datetime
    ) -> SavedQuery:
        """One's own of this name is replaced. Raises `QueryError` for a name that is none, `StreamRefusedError` where
        it is somebody else's."""
        made = SavedQuery(require_name(name), actor.name, text, chart, now)
        with self._database.writing() as connection:
            leases.lock(connection, "saved queries")
            _admit(connection, Access(actor, made.name, "save query", reason), made, now)
            before = _saved(connection).get(made.name)
            if before is not None and before.owner != actor.name:
                raise StreamRefusedError(
                    f"{made.name} is a saved query of {before.owner}", hint="choose another name, or remove that first"
                )
            upsert(connection, saved_table, row_of(made))
        return made

    def remove(self, name: str, *, actor: Actor, reason: str, now: datetime) -> SavedQuery:
        """The query as it was; raises `SavedQueryNotFoundError`."""
        with self._database.writing() as connection:
            before = _named(_saved(connection), name)
            _admit(connection, Access(actor, name, "remove query", reason, owner=before.owner), before, now)
            connection.execute(sa.delete(saved_table).where(saved_table.c.name == name))
            return before

    def all(self) -> list[SavedQuery]:
        """By name."""
        with self._database.reading() as connection:
            return list(_saved(connection).values())

    def get(self, name: str) -> SavedQuery:
        """Raises `SavedQueryNotFoundError` naming those that there are."""
        with self._database.reading() as connection:
            return _named(_saved(connection), name)


def _admit(connection: Connection, access: Access, query: SavedQuery, now: datetime) -> None:
    audit.admit(connection, access, now=now, outcome=f"of {query.owner}: {audit_text(query.text)}")


def _saved(connection: Connection) -> dict[str, SavedQuery]:
    saved = fetch(connection, SavedQuery, sa.select(saved_table).order_by(saved_table.c.name))
    return {query.name: query for query in saved}


def _named(saved: dict[str, SavedQuery], name: str) -> SavedQuery:
    if name not in saved:
        names = ", ".join(saved) or "none"
        raise SavedQueryNotFoundError(f"no saved query {name!r}", hint=f"saved: {cut(names, 400)}")
    return saved[name]


# the webhook ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WebhookDeliveries:
    """What the webhook was told of what needs attention: one row, of whoever holds the lease on telling."""

    _database: Database

    def items(self) -> frozenset[Item]:
        """What was told and is not over."""
        with self._database.reading() as connection:
            row = connection.execute(sa.select(told_table.c["items"])).scalar_one_or_none()
        return frozenset((severity, cause, subject, since) for severity, cause, subject, since in row or ())

    def keep(self, items: Iterable[Item]) -> None:
        """From now on these were told; the webhook answers."""
        self._write(items=sorted(items), error="", failed_at=None)

    def failed(self, error: str, *, now: datetime) -> None:
        self._write(error=error, failed_at=now)

    def error(self, *, now: datetime) -> str:
        """Why the webhook could not be told something lately; empty where it could, or nobody tries."""
        query = sa.select(told_table.c.error).where(told_table.c.failed_at > now - FAILS_FOR)
        with self._database.reading() as connection:
            return connection.execute(query).scalar_one_or_none() or ""

    def _write(self, **values: object) -> None:
        with self._database.writing() as connection:
            row = insert(connection, told_table).values({"receiver": "webhook", "items": [], **values})
            connection.execute(row.on_conflict_do_update(index_elements=["receiver"], set_=values))


# expectations on tables ----------------------------------------------------------------------------------------------


def expect(connection: Connection, pipelines: Sequence[str], declared: Sequence[Judgement]) -> None:
    """Keeps what these pipelines expect: adds what nobody judged yet, and forgets what they expect no more."""
    table = table_expectation
    wanted = {(judgement.expectation.uri, judgement.expectation.name) for judgement in declared}
    there = connection.execute(sa.select(table.c.uri, table.c.name).where(table.c.pipeline.in_(pipelines)))
    for uri, name in {(row.uri, row.name) for row in there} - wanted:
        connection.execute(sa.delete(table).where(table.c.uri == uri, table.c.name == name))
    for judgement in declared:
        connection.execute(insert(connection, table).values(_judgement_row(judgement)).on_conflict_do_nothing())


def expect_by_hand(
    connection: Connection, expected: TableExpectation, *, actor: Actor, reason: str, now: datetime
) -> None:
    """Keeps what a person expects of a table, whatever pipelines do; raises `StreamRefusedError`."""
    expected = replace(expected, by=actor.name, why=reason.strip())
    early = Finding(State.UNKNOWN, "no host has judged it yet", is_early=True)
    audit.admit(connection, Access(actor, expected.table, "expect", reason), now=now, outcome=expected.name)
    row = _judgement_row(Judgement(expected, early, "", now))
    connection.execute(insert(connection, table_expectation).values(row).on_conflict_do_nothing())


def expect_no_more(
    connection: Connection, expected: TableExpectation, *, actor: Actor, reason: str, now: datetime
) -> None:
    """Forgets what a person expects; raises `StreamRefusedError`, also where nobody does."""
    table, name = table_expectation, expected.name
    audit.admit(connection, Access(actor, expected.table, "expect no more", reason), now=now, outcome=name)
    by_hand = table.c.uri == expected.uri, table.c.name == name, table.c.pipeline == ""
    if not connection.execute(sa.delete(table).where(*by_hand)).rowcount:
        raise StreamRefusedError(f"nobody expects {name} by hand", hint="`weir expectations` lists what is")


def note_judgement(connection: Connection, judgement: Judgement) -> None:
    """Keeps the last judgement of one expectation; of a person's, unless they expect it no more."""
    table, row = table_expectation, _judgement_row(judgement)
    if judgement.expectation.by:
        same = table.c.uri == row["uri"], table.c.name == row["name"]
        connection.execute(sa.update(table).where(*same).values(row))
    else:
        upsert(connection, table, row)


def _judgement_row(judgement: Judgement) -> dict[str, Any]:
    expectation = judgement.expectation
    key = {"uri": expectation.uri, "name": expectation.name, "pipeline": expectation.pipeline}
    return row_of(judgement) | key


def judgements(connection: Connection) -> list[Judgement]:
    """The last judgement of every expectation on a table."""
    table = table_expectation
    return fetch(connection, Judgement, sa.select(table).order_by(table.c.uri, table.c.name))


def prune_judgements(connection: Connection, *, before: datetime) -> int:
    """Forgets what pipelines expect and no host has judged since."""
    old = table_expectation.c.judged_at < before, table_expectation.c.pipeline != ""
    return int(connection.execute(sa.delete(table_expectation).where(*old)).rowcount)
