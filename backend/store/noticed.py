"""What commits did that none before them did, as hosts noticed it, and who has seen it.

Rule: what a person says of a notice is in the audit trail in the same transaction. A host that notices the same again
changes nothing but whether it is mended.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

import sqlalchemy as sa

from backend.access import Access, Actor
from backend.errors import StreamRefusedError
from backend.search.notice import Key, Notice
from backend.store import audit, rows
from backend.store.engine import Database, insert
from backend.store.schema import notice as notice_table

_MOST = 1_000
_OPEN = notice_table.c.mended_at.is_(None), notice_table.c.seen_by == ""


class Noticed:
    """Thread-safe. Every method raises `StoreError` when the database does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep(self, notices: Sequence[Notice], *, now: datetime) -> None:
        if not notices:
            return
        with self._database.writing() as connection:
            for each in notices:
                made = insert(connection, notice_table).values(**rows.row_of(each), noticed_at=now)
                mended = {"mended_at": made.excluded.mended_at}
                connection.execute(made.on_conflict_do_update(index_elements=notice_table.primary_key, set_=mended))

    def seen(
        self, uri: str, version: int, *, actor: Actor, reason: str, now: datetime, told: Sequence[Notice] = ()
    ) -> list[Notice]:
        """What is open of a version needs nobody any more; raises `StreamRefusedError` where nothing is. `told`: what
        the page told of it, which no host may know."""
        with self._database.writing() as connection:
            for each in told:
                made = insert(connection, notice_table).values(**rows.row_of(each), noticed_at=now)
                connection.execute(made.on_conflict_do_nothing())
            where = notice_table.c.uri == uri, notice_table.c.version == version, *_OPEN
            found = connection.execute(sa.select(notice_table).where(*where)).mappings()
            open_ones = rows.readable(partial(rows.value_of, Notice), "notice", found)
            if not open_ones:
                raise StreamRefusedError(f"nothing is open of v{version}", hint="`weir notices` lists what is")
            audit.admit(connection, Access(actor, open_ones[0].table, "seen", reason), now=now, outcome=f"v{version}")
            said = {"seen_by": actor.name, "seen_reason": reason.strip()}
            connection.execute(sa.update(notice_table).where(*where).values(**said))
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
            found = connection.execute(query.limit(_MOST)).mappings()
            return rows.readable(partial(rows.value_of, Notice), "notice", found)

    def prune(self, *, before: datetime) -> int:
        """Forgets what was noticed before then."""
        with self._database.writing() as connection:
            return int(connection.execute(sa.delete(notice_table).where(notice_table.c.noticed_at < before)).rowcount)
