"""Incidents: what went wrong with which tables, by findings; one row each.

Rule: what is noticed, done and said of one is no part of it: the notices and the audit trail have it. What a person
does here is in the audit trail in the same transaction, as are the pins of the versions that it is about.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

import sqlalchemy as sa

from backend.access import Access, Actor, permission
from backend.errors import IncidentNotFoundError, StreamRefusedError
from backend.lake.model import TableRef
from backend.search.notice import Key, Notice
from backend.store import audit, leases
from backend.store.annotations import add_pin, note_notices, pins_of
from backend.store.engine import Database
from backend.store.schema import fetch, incident, json_of

IncidentAct = Literal["open incident", "add to incident", "note on incident", "close incident"]


@dataclass(frozen=True, slots=True)
class IncidentTable:
    """A table at its last good version, None where there is none, and at the first bad one, committed `since`."""

    uri: str
    name: str
    good: int | None
    bad: int
    since: datetime


@dataclass(frozen=True, slots=True)
class Incident:
    """`title`: the cause; `opened_by` whom and why; `findings`: keys of its notices; `acted_at`: when a person last did
    or said something. It is seen once somebody said more than why it was opened."""

    id: int
    title: str
    opened_by: str
    reason: str
    opened_at: datetime
    acted_at: datetime
    state: Literal["open", "seen", "over"] = "open"
    tables: tuple[IncidentTable, ...] = ()
    findings: tuple[Key, ...] = ()

    def is_about(self, uri: str, version: int) -> bool:
        return self.state != "over" and any((table.uri, table.bad) == (uri, version) for table in self.tables)


@dataclass(frozen=True, slots=True)
class Incidents:
    """The incidents of a store, by their numbers."""

    _database: Database

    def act(
        self, act: IncidentAct, text: str, *, number: int = 0, title: str = "", table: IncidentTable | None = None,
        notices: Sequence[Notice] = (), pins: bool = True, actor: Actor, now: datetime,
    ) -> Incident:  # fmt: skip
        """What a person does to the incident `number`, or to a new one, and says of it. `notices`: the findings on a
        `table` that it gets, which no host may know; `pins`: whether its versions are pinned. Raises
        `StreamRefusedError`, also where it is over or another one is about this commit; `IncidentNotFoundError`."""
        with self._database.writing() as connection:
            leases.lock(connection, "incidents")
            every = fetch(connection, Incident, incident)
            if table and (other := next((each for each in every if each.is_about(table.uri, table.bad)), None)):
                raise StreamRefusedError(f"v{table.bad} of {table.name} is in incident {other.id}", hint=other.title)
            if act == "open incident":
                row = connection.execute(sa.insert(incident).values(body={}).returning(incident.c.id))
                before = Incident(row.scalar_one(), title.strip(), actor.name, text.strip(), now, now)
            elif (before := _numbered(every, number)).state == "over":
                raise StreamRefusedError(f"incident {number} is over", hint="open another one")
            note_notices(connection, notices, now=now)
            made = replace(
                before,
                acted_at=now,
                state="open" if act == "open incident" else "over" if act == "close incident" else "seen",
                tables=(*before.tables, *([table] if table else [])),
                findings=tuple(dict.fromkeys((*before.findings, *(notice.key for notice in notices)))),
            )
            connection.execute(sa.update(incident).where(incident.c.id == made.id).values(body=json_of(made)))
            names = [each.name for each in made.tables[::-1]]  # what is about several needs a role for each
            refused = (name for name in names if not permission(actor, act, name).allowed)
            access = Access(actor, next(refused, names[0]), act, text)
            audit.admit(connection, access, now=now, outcome=f"incident {made.id}: {made.title}")
            if table and pins:
                ref, why = TableRef(table.uri, table.name, ""), f"incident {made.id}: {text}"
                for version in (table.good, table.bad):
                    if version is not None and version not in pins_of(connection, ref):
                        add_pin(connection, ref, version, actor=actor, reason=why, now=now)
            return made

    def all(self) -> list[Incident]:
        """Those that are not over first, each part with the newest first."""
        with self._database.reading() as connection:
            every = fetch(connection, Incident, incident)
        return sorted(every, key=lambda each: (each.state == "over", -each.id))

    def get(self, number: int) -> Incident:
        """Raises `IncidentNotFoundError`."""
        return _numbered(self.all(), number)


def _numbered(every: Sequence[Incident], number: int) -> Incident:
    if found := next((each for each in every if each.id == number), None):
        return found
    raise IncidentNotFoundError(f"no incident {number}", hint="`weir incident` lists those there are")
