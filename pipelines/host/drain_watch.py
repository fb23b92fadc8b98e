"""How far the streams have read that are to stop once they have read what was there (`weir drain`).

Rule: a thread of its own, so that a slow lake or store holds up no stream; what nobody knows is never "read".
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from backend.lake.lake import Lake
from backend.settings import Settings
from backend.store.store import ControlStore
from backend.stream_model.stream import Desired, DesiredState, Observed, StreamDeclaration, TopicEnds
from backend.streams.backlog import BacklogReader
from pipelines.host.fleet import utc_now
from pipelines.host.ownership import wanted_of
from pipelines.host.rounds import Rounds

EVERY_S = 1.0


class DrainWatch:
    """`idle_at`: when a stream's newest trigger began that had nothing to read, as Spark reports it."""

    def __init__(
        self,
        settings: Settings,
        lake: Lake,
        store: ControlStore,
        idle_at: Callable[[str], datetime | None],
        clock: Callable[[], datetime],
    ) -> None:
        self._store, self._idle_at, self._clock = store, idle_at, clock
        self._desired = wanted_of(store, ttl_s=settings.host.lease_ttl_s)
        self._backlogs = BacklogReader(settings, lake, keep_s=0)
        self._marks: dict[tuple[str, str, datetime], TopicEnds] = {}
        self._read: dict[str, datetime | None] = {}
        self.rounds = Rounds("drain-watch", self.look, every_s=EVERY_S, failed="drain_not_judged")

    def read_until(self, name: str) -> datetime | None:
        """What the stream's sources took in before this moment has been read; None where nobody knows."""
        return self._read.get(name)

    def look(self) -> None:
        """One round over the streams that drain; raises `StoreError`."""
        wanted = {name: desired for name, desired in self._desired().items() if desired.drains}
        self._marks = {key: ends for key, ends in self._marks.items() if key[0] in wanted}
        if not wanted:
            return
        declared, topics = self._store.declarations(), self._store.topic_ends()
        read = {
            name: self._until(wanted[name], declared[name], topics.get(name, ()))
            for name in wanted.keys() & declared.keys()
        }
        self._read = _through(read, wanted, declared, self._store.observed())

    def _until(self, wanted: Desired, declared: StreamDeclaration, reported: Sequence[TopicEnds]) -> datetime | None:
        waits = self._backlogs.read(declared, (), self._marked(wanted, reported), now=self._clock())
        if waits.read_until is None and waits.is_caught_up is None:
            return self._idle(wanted.name)
        return waits.read_until  # also where Spark is idle: it leaves records to wait (`minOffsetsPerTrigger`)

    def _idle(self, name: str) -> datetime | None:
        """By the store's clock, as requests are; Spark reports it by this machine's."""
        at = self._idle_at(name)
        return at and at + (self._clock() - utc_now())

    def _marked(self, wanted: Desired, reported: Sequence[TopicEnds]) -> list[TopicEnds]:
        """The ends that the broker first reported after the request: a topic that goes on growing has newer ones.
        Before that, what it reported last."""
        keys = {(wanted.name, ends.source, wanted.requested_at): ends for ends in reported}
        for key, ends in keys.items():
            if ends.at > wanted.requested_at and not ends.problem:
                self._marks.setdefault(key, ends)
        return [self._marks.get(key, ends) for key, ends in keys.items()]


def _through(
    read: Mapping[str, datetime | None],
    wanted: Mapping[str, Desired],
    declared: Mapping[str, StreamDeclaration],
    observed: Mapping[str, Observed],
) -> dict[str, datetime | None]:
    """The same, but nothing of a stream that is to stop after those that feed it, until it has read what came before
    the last of them had stopped."""
    through = {name: declared[name] for name in read if wanted[name].state is DesiredState.DRAINED_THROUGH}
    rested_at: dict[str, datetime | None] = {}
    for name in through:
        seen = observed.get(name)
        is_at_rest = seen is not None and seen.state.has_ended and seen.generation == wanted[name].generation
        rested_at[name] = seen.observed_at if seen is not None and is_at_rest else None
    until = dict(read)
    for name, stream in through.items():
        ends = [rested_at[other.name] for other in through.values() if other.name != name and _feeds(other, stream)]
        at, last = read[name], max((end for end in ends if end is not None), default=None)
        if None in ends or (at is not None and last is not None and at <= last):
            until[name] = None
    return until


def _feeds(writer: StreamDeclaration, reader: StreamDeclaration) -> bool:
    written = {*writer.side_tables, *(output.table for output in writer.outputs)}
    return not written.isdisjoint(reader.source_tables)
