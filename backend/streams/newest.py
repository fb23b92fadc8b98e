"""The newest batches of every stream and what hosts saw to wait for it, kept between readings of the store.

Rule: one statement tells which of them have changed, and one reads those.
"""

from collections.abc import Callable, Collection, Mapping
from threading import Lock
from typing import Generic, TypeVar

from backend.store.store import ControlStore
from backend.stream_model.backlog import Backlog
from backend.stream_model.stream import Progress

RECENT = 10  # batches

Value = TypeVar("Value")


class ByStream(Generic[Value]):
    """A value of each stream. `marks`: what tells a stream's value from its next one. Several threads may read."""

    def __init__(
        self,
        marks: Callable[[ControlStore], Mapping[str, object]],
        read: Callable[[ControlStore, Collection[str]], Mapping[str, Value]],
    ) -> None:
        self._marks, self._read = marks, read
        self._lock = Lock()
        self._known: Mapping[str, object] = {}
        self._values: dict[str, Value] = {}

    def read(self, store: ControlStore) -> Mapping[str, Value]:
        with self._lock:
            marks = self._marks(store)
            changed = [name for name, mark in marks.items() if self._known.get(name) != mark]
            values = {**self._values, **(self._read(store, changed) if changed else {})}
            self._known, self._values = marks, {name: values[name] for name in marks if name in values}
            return self._values


class Newest:
    """For one process. `batches`: the newest `RECENT` of each stream, of which only the newest has what takes long to
    read (`ControlStore.recent`)."""

    def __init__(self) -> None:
        self.batches = ByStream[list[Progress]](
            ControlStore.newest_batches, lambda store, names: store.recent(names, limit=RECENT)
        )
        self.backlogs = ByStream[Backlog](ControlStore.backlogs_seen_at, ControlStore.backlogs)
