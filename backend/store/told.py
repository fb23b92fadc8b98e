"""What the webhook was told of what needs attention, and why it could be told nothing.

Rule: one row; whoever holds the lease on telling writes it.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

import sqlalchemy as sa

from backend.store.engine import Database, insert
from backend.store.schema import told as told_table

FAILS_FOR = timedelta(minutes=30)  # after the last failure: a host tries again sooner, or tells nothing any more
Item = tuple[str, str, str, str]  # severity, cause, subject, and since when where a subject may have several
_WEBHOOK = "webhook"


class Told:
    """Thread-safe. Every method raises `StoreError` when the database does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

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
            row = insert(connection, told_table).values({"receiver": _WEBHOOK, "items": [], **values})
            connection.execute(row.on_conflict_do_update(index_elements=["receiver"], set_=values))
