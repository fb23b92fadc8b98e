"""When to look into the store again: PostgreSQL tells what others changed, SQLite is asked each time.

Rule: a notice says when to look and nothing else. One that never came delays a look by `every_s`, and no longer.
"""

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.errors import StoreError
from backend.store.engine import Database
from backend.work import elapsed

CHANNEL = "weir"
RETRY_S = 1.0
Value = TypeVar("Value")


class NoticeTopic(StrEnum):
    DESIRED = "desired"
    STREAMS = "streams"  # what was observed of them, and their batches
    LEASES = "leases"  # whose they are, not until when
    HOSTS = "hosts"  # which there are, and what they can run
    JOBS = "jobs"
    HELLO = "hello"  # a listener to itself: a pooler may pass nothing on


class Notices:
    """Thread-safe. Listens from the first question on."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._heard = Counter[str]()
        self._is_listening = False
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def tell(self, connection: Connection, topic: NoticeTopic) -> None:
        """Told to everybody once the transaction is committed, and here at once."""
        self._note(topic)
        if not self._database.is_sqlite:
            connection.execute(sa.select(sa.func.pg_notify(CHANNEL, topic.value)))

    def heard(self, *topics: NoticeTopic) -> int | None:
        """Grows with each notice of these topics. None: nobody tells, look for yourself."""
        with self._lock:
            if self._thread is None and not self._database.is_sqlite:
                self._thread = threading.Thread(target=self._run, name="store-notices", daemon=True)
                self._thread.start()
            return sum(self._heard[topic] for topic in topics) if self._is_listening else None

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join(2 * RETRY_S)

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                with suppress(StoreError):  # whoever reads logs it
                    for topic in self._database.listen(CHANNEL, hello=NoticeTopic.HELLO, look_s=RETRY_S):
                        if topic is not None:
                            self._note(topic, is_listening=True)
                        if self._closing.is_set():
                            return
            finally:
                with self._lock:
                    self._is_listening = False
            self._closing.wait(RETRY_S)

    def _note(self, topic: str, *, is_listening: bool = False) -> None:
        with self._lock:
            self._heard[topic] += 1
            if is_listening and not self._is_listening:
                self._heard.update(NoticeTopic)  # nobody knows what was told before
                self._is_listening = True


class KeptAnswer(Generic[Value]):
    """What `read` gave, until a notice of `topics` comes. After `every_s` it is read again as well, or first `sign`
    where that is much shorter and another one after each change. For one thread."""

    def __init__(
        self,
        notices: Notices,
        read: Callable[[], Value],
        *topics: NoticeTopic,
        every_s: float,
        sign: Callable[[], object] = object,
        elapsed: Callable[[], float] = elapsed,
    ) -> None:
        self._notices, self._read, self._topics = notices, read, topics
        self._every_s, self._sign, self._elapsed = every_s, sign, elapsed
        self._value: list[Value] = []
        self._seen: tuple[int | None, object] = None, None  # what was heard before it was read, and its sign
        self._looked_at = 0.0

    def __call__(self) -> Value:
        heard, now = self._notices.heard(*self._topics), self._elapsed()
        is_same = bool(self._value) and heard is not None and heard == self._seen[0]
        if is_same and now - self._looked_at < self._every_s:
            return self._value[0]
        sign = None if heard is None else self._sign()
        if not is_same or sign != self._seen[1]:
            self._value = [self._read()]
        self._seen, self._looked_at = (heard, sign), now
        return self._value[0]
