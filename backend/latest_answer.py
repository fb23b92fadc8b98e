"""The newest answer to a question that may take long.

Rule: whoever asks waits `patience_s` at most, and then gets the answer before.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class LatestAnswer(Generic[Answer]):
    """Thread-safe. Asks in a thread of its own, one question at a time."""

    def __init__(self, ask: Callable[[], Answer], *, patience_s: float) -> None:
        self._ask, self._patience_s = ask, patience_s
        self._thread = ThreadPoolExecutor(1, "kept")
        self._lock = Lock()
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
