"""What is remembered, and how: in memory within a bound, as the newest answer to a slow question, in files.

Rule: thread-safe, and knows nothing of what is kept. A version of a table never changes, so what is read of one is kept
until its place is needed; what people or hosts change is read again. Pages have a table of their own in `app/cache.py`.

| what is cached | by | how long, how much | in |
|---|---|---|---|
| logs and timelines of tables | table | 256 | `lake.lake` |
| retention's facts; arrivals of a feed | table and listing; version | 32; 400,000 files | `lake.lake` |
| commits and their times; their file actions | version | 20,000; 400,000 files a table | `lake.log.commit_info` |
| states, checksums; columns of checkpoints | version; checkpoint | 24, 24; 2 a table | `lake.log.log` |
| whether readers mistake files of an object store | version | 256 | `lake.rows.rows` |
| differences, and what the log tells of them | question, what is hidden | 64; without rows 30 s | `changes.cache` |
| questions to hosts, with the differences that they found | question | 32 | `changes.host_job` |
| counts of a condition | file | 1,000,000 | `search.condition` |
| results of searches | question, versions, what is hidden | 256 | `search.search` |
| what writers of a table always did | table | 256 | `search.notices` |
| numbers; profiles | version, question, what is hidden | 20,000; 1,000 | `sql.numbers` |
| columns that suggestions are made of | version | 1,000 | `search.suggest` |
| rows of tiles | statement, for who may see the same | 100, until a table that they read moves | `query.tiles` |
| what was read of the store | its reader | until somebody writes, or a few seconds | `store.notices` |
| streams that hosts can run | their names' digest | 100 | `store.leases` |
| newest batches, what waits; batches of the graph's window | stream | until others come; 5 min | `streams.status` |
| what waits for streams of which no host tells | stream | 5 s | `streams.backlog` |
| lakes as people see them; what is hidden of a table | tables with grants; address | 64; 256, 2 s | `lake.lake` |
| cards, on disk | roots and settings | 8 files, each of all tables | `lake.cards` |
| timelines; keys that were given, on disk | table | 2,000; 1,000 files | `lake.history.timeline`, `changes.key` |

Beside these, `lru_cache` keeps what texts are parsed to (schemas, addresses, expressions), 64 to 4,096 of a kind.
"""

import hashlib
import logging
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from backend.private_files import write_private

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Answer = TypeVar("Answer")

_log = logging.getLogger(__name__)  # structlog would cost each command 0.2 s


class Lru(Generic[Key, Value]):
    """Values that weigh at most `most` together; by default each weighs 1.

    What was put last stays even where it weighs more: its caller is about to use it.
    """

    def __init__(self, most: int, weigh: Callable[[Value], int] = lambda _: 1) -> None:
        self._most, self._weigh = most, weigh
        self._lock = threading.Lock()
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()  # with their weights then: a value may grow
        self._weight = 0
        self._making: dict[Key, threading.Event] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        return self.find([key]).get(key)

    def find(self, keys: Iterable[Key]) -> dict[Key, Value]:
        """The values of those keys that have one."""
        with self._lock:
            values = {key: self._values[key][0] for key in keys if key in self._values}
            for key in values:
                self._values.move_to_end(key)
            return values

    def put(self, key: Key, value: Value) -> None:
        self.put_all({key: value})

    def put_all(self, values: Mapping[Key, Value]) -> None:
        """Keep values that belong together: none of them makes room for another."""
        with self._lock:
            for key, value in values.items():
                self._drop(key)
                self._values[key] = value, (weight := self._weigh(value))
                self._weight += weight
            while self._weight > self._most and len(self._values) > len(values):
                self._drop(next(iter(self._values)))

    def get_or_make(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of a key, made where there is none. Raises what `make` raises; whoever waited then tries itself."""
        while True:
            with self._lock:
                if key in self._values:
                    self._values.move_to_end(key)
                    return self._values[key][0]
                other = self._making.get(key)
                if other is None:
                    self._making[key] = threading.Event()
                    break
            other.wait()
        try:
            value = make()
            self.put(key, value)
            return value
        finally:
            with self._lock:
                self._making.pop(key).set()

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self._weight = 0

    def _drop(self, key: Key) -> None:
        if key in self._values:
            self._weight -= self._values.pop(key)[1]


class LatestAnswer(Generic[Answer]):
    """Thread-safe. Asks in a thread of its own, one question at a time."""

    def __init__(self, ask: Callable[[], Answer], *, patience_s: float) -> None:
        self._ask, self._patience_s = ask, patience_s
        self._thread = ThreadPoolExecutor(1, "kept")
        self._lock = threading.Lock()
        self._asked: Future[Answer] | None = None
        self._last: Answer | None = None

    def latest(self) -> Answer | None:
        """None until there was an answer; raises what asking raised."""
        with self._lock:
            if self._asked is None or self._asked.done():
                self._asked = self._thread.submit(self._ask)
            asked = self._asked
        with suppress(TimeoutError):
            self._last = asked.result(self._patience_s)
        return self._last


class DiskCache:
    """At most `most` files of one kind, each named by what its content depends on. `folder` None keeps nothing.

    A file is lost without harm: one that is torn, damaged or cannot be written costs time alone. Safe beside other
    processes.
    """

    def __init__(self, folder: Path | None, most: int) -> None:
        self.folder, self._most = folder, most

    def load(self, *depends_on: object) -> bytes | None:
        """What was kept, whole; else None."""
        if self.folder is None:
            return None
        try:
            checksum, _, content = self._path(self.folder, depends_on).read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        except OSError as exc:
            _log.warning("what is kept in %s cannot be read: %.200s", self.folder, exc)
            return None
        return content if checksum == _checksum(content) else None

    def save(self, content: bytes, *depends_on: object) -> None:
        """Keep content in place of what was kept by the same; the oldest files go."""
        if self.folder is None:
            return
        try:
            write_private(self._path(self.folder, depends_on), _checksum(content) + b"\n" + content)
            for file in sorted(self.folder.iterdir(), key=lambda file: file.stat().st_mtime)[: -self._most]:
                file.unlink(missing_ok=True)
        except OSError as exc:
            _log.warning("nothing is kept in %s: %.200s", self.folder, exc)

    @staticmethod
    def _path(folder: Path, depends_on: tuple[object, ...]) -> Path:
        return folder / f"{hashlib.sha256(repr(depends_on).encode()).hexdigest()[:32]}.cache"


def _checksum(content: bytes) -> bytes:
    return b"%08x" % zlib.crc32(content)
