"""Each stream's batches of the graph's window, kept between readings.

Rule: a reading asks the store only for what is new; what has left the window is forgotten.
"""

from collections.abc import Iterable
from datetime import datetime
from threading import Lock

from backend.store.store import ControlStore
from backend.stream_model.stream import Progress, StreamDeclaration
from backend.streams.graph import WINDOW, reads_several

MOST_BATCHES = 5_000  # of one stream: one each 60 ms


class RecentBatches:
    """For one process; several threads may read."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[str, list[Progress]] = {}

    def read(
        self, store: ControlStore, declared: Iterable[StreamDeclaration], *, now: datetime
    ) -> dict[str, list[Progress]]:
        """By stream, oldest first; with Spark's JSON only where rows come from several sources."""
        with self._lock:
            self._known = {each.name: self._of(store, each, now) for each in declared}
            return self._known

    def _of(self, store: ControlStore, declared: StreamDeclaration, now: datetime) -> list[Progress]:
        known = [batch for batch in self._known.get(declared.name, ()) if batch.progressed_at > now - WINDOW]
        since = known[-1].progressed_at if known else now - WINDOW
        found = store.progress(declared.name, since=since, limit=MOST_BATCHES, raw=reads_several(declared))
        return known + [batch for batch in found if batch.progressed_at > since]
