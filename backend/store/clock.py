"""The store's own clock, by which leases and signs of life are judged: machines' clocks differ.

Rule: a time that several machines must agree on is written and compared inside the database.
"""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.store.schema import UtcDateTime

_SQLITE = "%Y-%m-%d %H:%M:%f"  # milliseconds: padded below to the microseconds that the columns hold


def elapsed() -> float:
    """Seconds that no change of the machine's clock alters; on Linux those while it slept, too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


def moment(connection: Connection, after_s: float = 0.0) -> sa.ColumnElement[datetime]:
    """The database's time when it gets to this, so many seconds on. SQLite's is its machine's."""
    if connection.dialect.name == "sqlite":
        text = sa.func.strftime(_SQLITE, "now", f"{after_s:+.3f} seconds", type_=sa.Text)
        return sa.type_coerce(text + "000", UtcDateTime)
    now = sa.func.clock_timestamp(type_=sa.DateTime(timezone=True))
    return sa.type_coerce(now + timedelta(seconds=after_s), UtcDateTime)


class StoreClock:
    """The store's time as of the last `look`, and from there on by what has elapsed here."""

    def __init__(self, look: Callable[[], datetime], *, elapsed: Callable[[], float] = elapsed) -> None:
        self._look, self._elapsed = look, elapsed
        self._zero = datetime.now(UTC) - timedelta(seconds=elapsed())

    def __call__(self) -> datetime:
        return self._zero + timedelta(seconds=self._elapsed())

    def look(self) -> None:
        """Asks the store; raises `StoreError`."""
        asked = self._elapsed()
        store_time = self._look()
        self._zero = store_time - timedelta(seconds=(asked + self._elapsed()) / 2)
