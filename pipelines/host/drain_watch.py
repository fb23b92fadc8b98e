"""How far the streams have read that are to stop once they have read what was there (`weir drain`).

Rule: a thread of its own, so that a slow lake or store holds up no stream; what nobody knows is never "read".
"""

from collections.abc import Callable, Sequence
from datetime import datetime

from backend.lake.lake import Lake
from backend.settings import Settings
from backend.store.store import ControlStore
from backend.streams.backlog.reader import BacklogReader
from backend.streams.model import Desired, DesiredState, TopicEnds
from pipelines.host.rounds import Rounds

EVERY_S = 1.0


class DrainWatch:
    """`idle_at`: when a stream's newest trigger began that had nothing to read, as Spark told."""

    def __init__(
        self,
        settings: Settings,
        lake: Lake,
        store: ControlStore,
        idle_at: Callable[[str], datetime | None],
        clock: Callable[[], datetime],
    ) -> None:
        self._store, self._idle_at, self._clock = store, idle_at, clock
        self._backlogs = BacklogReader(settings, lake, keep_s=0)
        self._marks: dict[tuple[str, str, datetime], TopicEnds] = {}
        self._read: dict[str, datetime] = {}
        self._rounds = Rounds("drain-watch", self.look, every_s=EVERY_S, failed="drain_not_judged")

    def start(self) -> None:
        self._rounds.start()

    def stop(self, limit_s: float) -> None:
        self._rounds.stop(limit_s)

    def read_until(self, name: str) -> datetime | None:
        """What the stream's sources took in before this moment has been read; None where nobody knows."""
        found = [each for each in (self._idle_at(name), self._read.get(name)) if each is not None]
        return max(found, default=None)

    def look(self) -> None:
        """One round over the streams that drain; raises `StoreError`."""
        wanted = {name: each for name, each in self._store.desired().items() if each.state is DesiredState.DRAINED}
        self._marks = {key: ends for key, ends in self._marks.items() if key[0] in wanted}
        if not wanted:
            return
        declared, topics = self._store.declarations(), self._store.topic_ends()
        for name in wanted.keys() & declared.keys():
            ends = self._marked(wanted[name], topics.get(name, ()))
            until = self._backlogs.read(declared[name], (), ends, now=self._clock()).read_until
            if until is not None:
                self._read[name] = until

    def _marked(self, wanted: Desired, heard: Sequence[TopicEnds]) -> list[TopicEnds]:
        """The ends that the broker first told after the request: a topic that goes on growing has newer ones."""
        for each in heard:
            if each.at > wanted.requested_at and not each.problem:
                self._marks.setdefault((wanted.name, each.source, wanted.requested_at), each)
        return [ends for key, ends in self._marks.items() if (key[0], key[2]) == (wanted.name, wanted.requested_at)]
