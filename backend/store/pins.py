"""Pinned versions of tables: a person keeps one readable, and says why.

Rule: a pin is in the audit trail in the same transaction that makes it visible. While it is there, Weir deletes no file
of its version.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import partial

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.access import Access, Actor
from backend.errors import StreamRefusedError
from backend.format import utc_text
from backend.jobs.model import JobKind
from backend.lake.history.versions import check_name
from backend.lake.model import Pin, TableRef
from backend.store import audit, leases, rows
from backend.store.engine import Database
from backend.store.jobs import ASKING, unfinished_act
from backend.store.schema import pin as pin_table


class Pins:
    """Thread-safe. Every method raises `StoreError` when the database does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self,
        ref: TableRef,
        version: int,
        *,
        actor: Actor,
        reason: str,
        now: datetime,
        name: str = "",
        until: datetime | None = None,
    ) -> Pin:
        """`until`: when it ends by itself. Raises `StreamRefusedError` for a version that is pinned already, for a name
        that another one has, and while a VACUUM of the table is under way; `VersionFormatError` for what is no name."""
        called = check_name(name) if name.strip() else None
        if until is not None and until <= now:
            raise StreamRefusedError(f"the pin would end at {utc_text(until)}, which has passed")
        with self._database.writing() as connection:
            leases.lock(connection, ASKING)
            pins = _pins(connection, ref)
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
                    f"pin {ref.name}: a vacuum of it is under way", hint="`weir jobs` says how far that is"
                )
            made = Pin(ref.uri, version, actor.name, reason.strip(), now, called, until)
            outcome = f"v{version}{f' as {called}' if called else ''}{f', until {utc_text(until)}' if until else ''}"
            audit.admit(connection, Access(actor, ref.name, "pin", reason), now=now, outcome=outcome)
            connection.execute(sa.insert(pin_table).values(rows.row_of(made)))
            return made

    def remove(self, ref: TableRef, version: int, *, actor: Actor, reason: str, now: datetime) -> Pin:
        """The pin as it was; raises `StreamRefusedError` where there is none."""
        with self._database.writing() as connection:
            pins = _pins(connection, ref)
            if version not in pins:
                known = ", ".join(f"v{pinned}" for pinned in pins)
                raise StreamRefusedError(
                    f"v{version} of {ref.name} is not pinned", hint=f"pinned: {known or 'no version'}"
                )
            before = pins[version]
            called = f" as {before.name}" if before.name else ""
            outcome = f"v{version}, pinned{called} by {before.actor}: {before.reason}"
            audit.admit(connection, Access(actor, ref.name, "unpin", reason), now=now, outcome=outcome)
            connection.execute(sa.delete(pin_table).where(_of(ref), pin_table.c.version == version))
            return before

    def of_table(self, ref: TableRef) -> list[Pin]:
        """By version."""
        with self._database.reading() as connection:
            return list(_pins(connection, ref).values())


def _of(ref: TableRef) -> sa.ColumnElement[bool]:
    return pin_table.c.uri == ref.uri


def _pins(connection: Connection, ref: TableRef) -> Mapping[int, Pin]:
    query = sa.select(pin_table).where(_of(ref)).order_by(pin_table.c.version)
    pins = rows.readable(partial(rows.value_of, Pin), "pin", connection.execute(query).mappings())
    return {pin.version: pin for pin in pins}
