"""Who uses a table: streams that write it, those that read it with what they have not read yet, pinned versions,
and comparisons and queries under way.

Rule: a stream that is stopped counts like one that runs, and one of another application as one of ours. How far it has
read is looked at now, whatever a host saw a moment ago. What cannot be told of one is said, never taken for nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from backend.errors import LakehouseError
from backend.jobs.documents import HostQuery, of_document, question_of
from backend.jobs.model import Job, JobKind
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.lake.retention.runs import DELETED_FILES, LOG_RETENTION, retention_of
from backend.lake.storage.folder import normal_uri
from backend.lake.table.properties import is_on
from backend.maintenance.model import Arguments, Drop, Lift, Vacuum
from backend.settings import Settings
from backend.store.store import ControlStore
from backend.stream_model.backlog import SourceBacklog
from backend.stream_model.stream import InputKind, StreamDeclaration, StreamInput
from backend.streams.backlog import BacklogReader
from backend.streams.status import RECENT, statuses
from backend.streams.verdict import is_stopped

_DOES = {JobKind.DIFF: "compares", JobKind.QUERY: "reads"}

_FEED = "delta.enableChangeDataFeed"
_LOSSES = {
    DELETED_FILES: "versions replaced longer ago can be neither read nor restored, and a VACUUM deletes their files",
    LOG_RETENTION: "older commits leave the log at the next checkpoint",
    "delta.setTransactionRetentionDuration": "a stream that pauses longer may write a batch twice",
}


@dataclass(frozen=True, slots=True)
class TableWriter:
    """A stream that writes the table. `merges`: it also changes or replaces rows that are there. `application`: the
    other Spark application that runs it."""

    stream: str
    sink: str
    stopped: bool
    application: str = ""

    @property
    def merges(self) -> bool:
        return self.sink != "append"


@dataclass(frozen=True, slots=True)
class TableReader:
    """A stream that reads the table. `unread`: files that it has yet to read, as paths below the table; `unknown`: why
    nobody can tell. `application`: the other Spark application that runs it."""

    stream: str
    stopped: bool
    reads_feed: bool = False
    unread: frozenset[str] = frozenset()
    unknown: str = ""
    application: str = ""


@dataclass(frozen=True, slots=True)
class KeptVersions:
    """A version that somebody needs whole, or two of them with the changes between. `reason`: who, and why; `way_out`
    and `lift`: what lets them go."""

    first: int
    last: int
    reason: str
    way_out: str
    lift: Lift


@dataclass(frozen=True, slots=True)
class Users:
    """Everyone who uses one table. `properties`: what streams declare for it, which their next start puts back.
    `unreported_readers`: streams of other applications that may read it: they have not told yet what they read."""

    writers: tuple[TableWriter, ...] = ()
    readers: tuple[TableReader, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    kept: tuple[KeptVersions, ...] = ()
    unreported_readers: tuple[str, ...] = ()

    @property
    def running_writers(self) -> tuple[str, ...]:
        return tuple(writer.stream for writer in self.writers if not writer.stopped)

    @property
    def stoppable_writers(self) -> tuple[str, ...]:
        """Running writers that a host runs: an act may stop and start them."""
        return tuple(writer.stream for writer in self.writers if not writer.stopped and not writer.application)

    def why_written(self, *, stops_writers: bool) -> tuple[str, str, tuple[Lift, ...]]:
        """Why rows may not be changed while streams write them, what helps, and by which acts. `stops_writers`: the
        act stops its own."""
        ours = self.stoppable_writers
        others = [name for name in self.running_writers if name not in ours]
        if others:
            return f"{', '.join(others)} of another application may write it meanwhile", "stop it there first", ()
        if ours and not stops_writers:
            lifts = (Lift("stop", ours),)
            return f"{', '.join(ours)} may write it meanwhile", "let the act stop it meanwhile, or stop it first", lifts
        return "", "", ()

    def pause_note(self, *, stops_writers: bool) -> str:
        """ "silver_orders is stopped first, and started again after"; empty where none has to be."""
        ours = self.stoppable_writers if stops_writers else ()
        verb = "is" if len(ours) == 1 else "are"
        return f"{', '.join(ours)} {verb} stopped first, and started again after" if ours else ""

    def property_losses(self, now: Mapping[str, str], then: Mapping[str, str]) -> Iterator[str]:
        """What is kept no longer, or for a shorter time, under other properties."""
        for key, loss in _LOSSES.items():
            before, after = (retention_of(properties, key) for properties in (now, then))
            if after.duration is not None and (before.duration is None or after.duration < before.duration):
                yield f"{key} of {after.words}: {loss}"
        if is_on(now, _FEED) and not is_on(then, _FEED):
            readers = ", ".join(reader.stream for reader in self.readers if reader.reads_feed)
            yield f"{_FEED} off: changes from here on are in no feed" + (f", and {readers} stops" if readers else "")


def load_users(
    settings: Settings, lake: Lake, store: ControlStore | None, ref: TableRef, arguments: Arguments, *, now: datetime
) -> Users:
    """Users as the act must know them. Which files they need, a VACUUM alone asks: that reads the log and checkpoints.

    `store`: None where none was made yet. Raises `StoreError`.
    """
    if store is None:
        return Users()
    store.take_in(settings.roots)
    streams = [
        (status.declaration, is_stopped(status.desired, status.observed))
        for status in statuses(store, now=now, heartbeat_stale_s=settings.host.heartbeat_stale_s)
    ]
    writers = tuple(
        TableWriter(declared.name, output.sink, stopped, declared.pipeline if declared.is_attached else "")
        for declared, stopped in streams
        for output in declared.outputs
        if normal_uri(output.uri) == ref.uri
    )
    reading = list(_reading(streams, ref))
    properties = {
        key: value
        for declared, _ in streams
        for table in declared.tables
        if normal_uri(table.uri) == ref.uri
        for key, value in table.properties.items()
    }
    users = Users(writers, tuple(reader for *_, reader in reading), properties)
    if isinstance(arguments, Vacuum | Drop):
        users = replace(users, kept=(*_pinned(store, ref, now), *_read_by_jobs(store, ref)))
    if not isinstance(arguments, Vacuum):
        return users
    readers = tuple(_with_files(settings, lake, store, reading, ref, now))
    unreported = (d.name for d, stopped in streams if d.is_attached and not d.inputs and not stopped)
    return replace(users, readers=readers, unreported_readers=tuple(unreported))


def _pinned(store: ControlStore, ref: TableRef, now: datetime) -> Iterator[KeptVersions]:
    for pin in store.pins.of_table(ref):
        if not pin.holds(now):
            continue
        reason = f"v{pin.version} is pinned by {pin.actor}: {pin.reason}"
        yield KeptVersions(pin.version, pin.version, reason, "unpin it", Lift("unpin", (ref.name, str(pin.version))))


def _read_by_jobs(store: ControlStore, ref: TableRef) -> Iterator[KeptVersions]:
    """Comparisons and queries by hosts. A comparison of two tables needs one version of each."""
    for job in store.jobs.unfinished():
        if not job.kind.keeps_rows:
            continue
        try:
            ranges = list(_read_by(job, ref))
        except (LakehouseError, ValueError, KeyError, TypeError):
            continue  # of another Weir, or a stranger: no host here answers it
        for first, last in ranges:
            names = " and ".join(f"v{version}" for version in dict.fromkeys((first, last)))
            reason = f"job {job.job_id} of {job.actor} {_DOES[job.kind]} {names}"
            yield KeptVersions(first, last, reason, "let it end, or cancel it", Lift("cancel", (job.job_id,)))


def _read_by(job: Job, ref: TableRef) -> Iterator[tuple[int, int]]:
    """The versions of the table that it reads, with what lies between."""
    if job.kind is JobKind.QUERY:
        reads = of_document(HostQuery, job.request).reads
        yield from dict.fromkeys((r.version, r.version) for r in reads if normal_uri(r.uri) == ref.uri)
        return
    question = question_of(job.request, lambda uri: uri)
    ends = [(question.ref, question.from_version), (question.against or question.ref, question.to_version)]
    versions = sorted(version for table, version in ends if normal_uri(table.uri) == ref.uri)
    if versions:
        yield versions[0], versions[-1]


def _reading(
    streams: Iterable[tuple[StreamDeclaration, bool]], ref: TableRef
) -> Iterator[tuple[StreamDeclaration, StreamInput, TableReader]]:
    """One for each time that a stream reads the table."""
    for declared, stopped in streams:
        application = declared.pipeline if declared.is_attached else ""
        for source in declared.inputs:
            if source.is_table and normal_uri(source.uri) == ref.uri:
                feed = source.kind == InputKind.CHANGE_FEED
                yield declared, source, TableReader(declared.name, stopped, feed, application=application)


def _with_files(
    settings: Settings, lake: Lake, store: ControlStore,
    reading: Sequence[tuple[StreamDeclaration, StreamInput, TableReader]], ref: TableRef, now: datetime,
) -> Iterator[TableReader]:  # fmt: skip
    """Readers with what each has yet to read."""
    latest = lake.latest_version(ref)  # before it is asked how many versions are unread
    looks, topics = BacklogReader(settings, lake), store.topic_ends()
    recent = store.recent([declared.name for declared, *_ in reading], limit=RECENT, raw=True)
    for declared, source, reader in reading:
        if source.is_static:  # such a one reads the latest version alone
            yield reader
            continue
        name = declared.name
        backlog = looks.read(declared, recent.get(name, ()), topics.get(name, ()), now=now)
        counted = {of_source.name: of_source for of_source in backlog.sources}.get(source.name)
        unread, unknown = _unread(lake, ref, latest, counted, feed=reader.reads_feed)
        if reader.application and not unknown:  # it does not tell whether it reads the table or its feed
            unread |= _unread(lake, ref, latest, counted, feed=True)[0]
        yield replace(reader, unread=unread, unknown=unknown)


def _unread(
    lake: Lake, ref: TableRef, latest: int, backlog: SourceBacklog | None, *, feed: bool
) -> tuple[frozenset[str], str]:
    """The files that it has yet to read, or why that is not known."""
    if backlog is None or backlog.versions is None or backlog.files is None:
        return frozenset(), (backlog and backlog.unknown) or "how far it has read is not known"
    since = max(0, latest - backlog.versions + 1)
    try:
        files = lake.folder_files(ref)
        return files.to_read(since=since, is_first_read=backlog.is_first_read, feed=feed), ""
    except LakehouseError as exc:
        return frozenset(), exc.message
