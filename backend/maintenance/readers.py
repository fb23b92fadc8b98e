"""Who uses a table: streams that write it, and those that read it with what they have not read yet.

Rule: a stream that is stopped counts like one that runs. How far it has read is looked at now, whatever a host saw a
moment ago. What cannot be told of a stream is said, and never taken for nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from backend.errors import LakehouseError
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.lake.storage.paths import normal_uri
from backend.settings import Settings
from backend.store.store import ControlStore
from backend.stream_model.backlog import Backlog, SourceBacklog
from backend.stream_model.stream import InputKind, StreamInput
from backend.streams.backlog.reader import BacklogReader
from backend.streams.newest import RECENT
from backend.streams.reset.plan import is_stopped
from backend.streams.status import statuses
from backend.streams.verdict import StreamStatus


@dataclass(frozen=True, slots=True)
class TableWriter:
    """A stream that writes the table. `merges`: it also changes or replaces rows that are there."""

    stream: str
    sink: str
    stopped: bool

    @property
    def merges(self) -> bool:
        return self.sink != "append"


@dataclass(frozen=True, slots=True)
class TableReader:
    """A stream that reads the table. `unread`: files that it has yet to read, as paths below the table; `unknown`: why
    nobody can tell."""

    stream: str
    stopped: bool
    reads_feed: bool = False
    unread: frozenset[str] = frozenset()
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Users:
    """Everyone who uses one table. `properties`: what streams declare for it, which their next start puts back."""

    writers: tuple[TableWriter, ...] = ()
    readers: tuple[TableReader, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def running_writers(self) -> tuple[str, ...]:
        return tuple(writer.stream for writer in self.writers if not writer.stopped)


def load_users(settings: Settings, lake: Lake, store: ControlStore | None, ref: TableRef, *, now: datetime) -> Users:
    """`store`: None where none was made yet. Raises `StoreError`."""
    if store is None:
        return Users()
    streams = statuses(store, now=now, heartbeat_stale_s=settings.host.heartbeat_stale_s)
    reading = [status for status in streams if any(map(partial(_is_of, ref), status.declaration.inputs))]
    latest = lake.latest_version(ref)  # before it is asked how many versions are unread
    backlogs = _looked_at(settings, lake, store, reading, now)
    properties = {
        key: value
        for status in streams
        for table in status.declaration.tables
        if normal_uri(table.uri) == ref.uri
        for key, value in table.properties.items()
    }
    return Users(_writers(streams, ref), tuple(_readers(lake, reading, ref, latest, backlogs)), properties)


def _is_of(ref: TableRef, source: StreamInput) -> bool:
    return source.is_table and normal_uri(source.uri) == ref.uri


def _looked_at(
    settings: Settings, lake: Lake, store: ControlStore, streams: Sequence[StreamStatus], now: datetime
) -> dict[str, Backlog]:
    names, reader = [status.declaration.name for status in streams], BacklogReader(settings, lake)
    recent, topics = store.recent(names, limit=RECENT, raw=True), store.topic_ends()
    return {
        name: reader.read(status.declaration, recent.get(name, ()), topics.get(name, ()), now=now)
        for name, status in zip(names, streams, strict=True)
    }


def _writers(streams: Sequence[StreamStatus], ref: TableRef) -> tuple[TableWriter, ...]:
    return tuple(
        TableWriter(status.declaration.name, output.sink, is_stopped(status.desired, status.observed))
        for status in streams
        for output in status.declaration.outputs
        if normal_uri(output.uri) == ref.uri
    )


def _readers(
    lake: Lake, streams: Sequence[StreamStatus], ref: TableRef, latest: int, backlogs: Mapping[str, Backlog]
) -> list[TableReader]:
    readers = []
    for status in streams:
        counted = {source.name: source for source in backlogs[status.declaration.name].sources}
        for source in filter(partial(_is_of, ref), status.declaration.inputs):
            feed = source.kind == InputKind.CHANGE_FEED
            stopped = is_stopped(status.desired, status.observed)
            reader = TableReader(status.declaration.name, stopped, feed)
            if not source.is_static:  # such a one reads the latest version alone
                unread, unknown = _unread(lake, ref, latest, counted.get(source.name), feed=feed)
                reader = replace(reader, unread=unread, unknown=unknown)
            readers.append(reader)
    return readers


def _unread(
    lake: Lake, ref: TableRef, latest: int, backlog: SourceBacklog | None, *, feed: bool
) -> tuple[frozenset[str], str]:
    """The files that it has yet to read, or why that is not known."""
    if backlog is None or backlog.versions is None or backlog.files is None:
        return frozenset(), (backlog and backlog.unknown) or "how far it has read is not known"
    since = max(0, latest - backlog.versions + 1)
    try:
        return lake.files_to_read(ref, since=since, is_first_read=backlog.is_first_read, feed=feed), ""
    except LakehouseError as exc:
        return frozenset(), exc.message
