"""Saved queries: what people keep by a name for everybody.

Rule: who saves or removes one is in the audit trail in the same transaction. Nobody replaces another's by accident: it
is removed first, by whoever may act.
"""

from datetime import datetime
from functools import partial

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.access import Access, Actor
from backend.errors import SavedQueryNotFoundError, StreamRefusedError
from backend.format import cut
from backend.sql.saved import Chart, SavedQuery, audit_text, require_name
from backend.store import audit, leases, rows
from backend.store.engine import Database, upsert
from backend.store.schema import saved_query as saved_table

_SAVING = "saved queries"


class SavedQueries:
    """Thread-safe. Every method raises `StoreError` when the database does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(
        self, name: str, text: str, chart: Chart | None = None, *, actor: Actor, reason: str, now: datetime
    ) -> SavedQuery:
        """One's own of this name is replaced. Raises `QueryError` for a name that is none, `StreamRefusedError` where
        it is somebody else's."""
        made = SavedQuery(require_name(name), actor.name, text, chart, now)
        with self._database.writing() as connection:
            leases.lock(connection, _SAVING)
            _admit(connection, Access(actor, made.name, "save query", reason), made, now)
            before = _saved(connection).get(made.name)
            if before is not None and before.owner != actor.name:
                raise StreamRefusedError(
                    f"{made.name} is a saved query of {before.owner}", hint="choose another name, or remove that first"
                )
            upsert(connection, saved_table, rows.row_of(made))
        return made

    def remove(self, name: str, *, actor: Actor, reason: str, now: datetime) -> SavedQuery:
        """The query as it was; raises `SavedQueryNotFoundError`."""
        with self._database.writing() as connection:
            before = _named(_saved(connection), name)
            _admit(connection, Access(actor, name, "remove query", reason), before, now)
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
    found = connection.execute(sa.select(saved_table).order_by(saved_table.c.name)).mappings()
    return {each.name: each for each in rows.readable(partial(rows.value_of, SavedQuery), "saved_query", found)}


def _named(saved: dict[str, SavedQuery], name: str) -> SavedQuery:
    if name not in saved:
        names = ", ".join(saved) or "none"
        raise SavedQueryNotFoundError(f"no saved query {name!r}", hint=f"saved: {cut(names, 400)}")
    return saved[name]
