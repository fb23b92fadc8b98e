"""The evidence of a preflight, without Spark: files of the checkpoint, logs of sources and sink, the store, the disk.

Rule: reads and never judges. What cannot be read stands in the evidence with its reason; only an unknown stream and a
silent store are raised.
"""

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote

from backend.errors import (
    CheckpointError,
    LakehouseError,
    ObjectMissingError,
    PathRefusedError,
    StorageError,
    StreamNotFoundError,
    StreamRefusedError,
    TableNotFoundError,
)
from backend.lake.history.arrivals import rest_of_snapshot
from backend.lake.lake import Lake
from backend.lake.model import Metadata, Snapshot, TableRef
from backend.lake.storage.folder import Folder
from backend.lake.storage.paths import is_remote, is_within, normal_uri
from backend.lake.storage.storage import declared_folder
from backend.lake.table.properties import keys_before
from backend.settings import Settings
from backend.store.leases import stream_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import (
    DeclaredTable,
    InputKind,
    StreamDeclaration,
    StreamFailure,
    StreamInput,
    TopicEnds,
)
from backend.streams import faults
from backend.streams.backlog import matched
from backend.streams.checkpoint import (
    DeltaPosition,
    KafkaPosition,
    Position,
    check_commit,
    query_id,
    read_checkpoint,
    read_offsets,
    read_positions,
)
from backend.streams.preflight.judges import judge
from backend.streams.preflight.model import (
    CheckpointSeen,
    FilesLookedFor,
    FolderSeen,
    Owners,
    Preflight,
    PreflightEvidence,
    RoomSeen,
    SinkSeen,
    TableSeen,
    TopicsSeen,
    Unread,
)
from backend.streams.table_changes import DeclaredChange, PresentTable, table_changes
from backend.streams.unread import has_pattern, named_elsewhere, without_read

_LOOKED_AT = ("kafka", "postgresql")
MOST_VERSIONS = 1_000  # unread commits looked at
MOST_PARTITIONS = 50  # of the state that are looked at
_NO_STORES = ("_metadata", "SSTs")  # folders of a partition that hold no versions
MOST_FILES = 200  # unread files looked for, those first that VACUUM may delete


@dataclass(frozen=True, slots=True)
class _Places:
    """Where each source stands by the checkpoint, by its number; `planned_again`: where the last planned batch began,
    which Spark plans once more also when it is finished. `unknown`: why nobody can tell."""

    positions: Mapping[int, Position] = field(default_factory=dict)
    planned_again: Mapping[int, Position] = field(default_factory=dict)
    unknown: str = ""


def preflight(settings: Settings, lake: Lake, store: ControlStore, name: str, *, now: datetime) -> Preflight:
    """Whether a stream can go on; raises `StreamNotFoundError` or `StoreError`."""
    return judge(load_evidence(settings, lake, store, name, now=now))


def load_evidence(
    settings: Settings, lake: Lake, store: ControlStore, name: str, *, now: datetime, until: int | None = None
) -> PreflightEvidence:
    """`until`: as if the checkpoint ended with this batch. Raises what `preflight` does, `StreamRefusedError` for one
    that another application runs."""
    declarations = store.declarations()
    if name not in declarations:
        names = ", ".join(declarations)
        raise StreamNotFoundError(f"no stream {name!r}", hint=f"streams: {names}" if names else "no host declared any")
    declared = declarations[name]
    if declared.is_attached:
        raise StreamRefusedError(f"{name}: another Spark application runs it", hint=f"look into {declared.pipeline}")
    progress = store.progress(name, limit=1, raw=False)
    keeps_state = bool(progress) and progress[-1].state_rows is not None
    checkpoint, places = _checkpoint(settings, declared.checkpoint_location, until, keeps_state=keeps_state)
    tables = [source for source in declared.inputs if source.is_table]
    files = [each for each in declared.inputs if each.kind == InputKind.FILES]
    topics = [each for each in declared.inputs if each.kind == InputKind.KAFKA]
    return PreflightEvidence(
        declaration=declared,
        checkpoint=checkpoint,
        tables=tuple(_tables(lake, declared, tables, places)),
        folders=tuple(_folders(settings, declared, files, _last_failure(store, name), checkpoint.planned)),
        topics=tuple(_topics(topics, places, store.topic_ends().get(name, ()))),
        sink=_sink(lake, declared, checkpoint.query_id),
        changes=tuple(change for table in declared.tables for change in _changes(lake, table)),
        owners=_owners(settings, store, declared, declarations),
        room=_room(declared.checkpoint_location, progress[-1].state_bytes if progress else None),
        seen_at=now,
    )


def _checkpoint(
    settings: Settings, location: str, until: int | None, *, keeps_state: bool
) -> tuple[CheckpointSeen, _Places]:
    try:
        folder = declared_folder(settings, location)
        checkpoint = read_checkpoint(folder)
        checkpoint = checkpoint if until is None else checkpoint.until(until)
        id_, damage = _damage(folder, checkpoint.planned, checkpoint.finished)
        lost = next(lost_state(folder, checkpoint.finished, keeps_state=keeps_state), "")
    except LakehouseError as exc:
        return CheckpointSeen(location, problem=exc.message), _Places(unknown=exc.message)
    seen = CheckpointSeen(
        location, checkpoint.has_metadata, checkpoint.planned, checkpoint.finished, damage, id_, state_lost=lost
    )
    again = (
        checkpoint.planned[-1] - 1 if checkpoint.planned and checkpoint.planned[-1] > 0 else checkpoint.processed_batch
    )
    try:
        if checkpoint.planned:
            seen = replace(seen, sources=len(read_offsets(folder, checkpoint.planned[-1]).sources))
        return seen, _Places(read_positions(folder, checkpoint.processed_batch), read_positions(folder, again))
    except LakehouseError as exc:
        return seen, _Places(unknown=f"where the stream stands is not known: {exc.message}")


def _damage(
    folder: Folder, planned: Sequence[int], finished: Sequence[int]
) -> tuple[str | None, tuple[tuple[str, str], ...]]:
    """The query's id, and what is wrong with each file that a start reads: Spark takes the last two offsets."""
    damaged: list[tuple[str, str]] = []
    id_ = None
    try:
        id_ = query_id(folder)
    except ObjectMissingError:
        pass  # its absence is seen by name
    except CheckpointError as exc:
        damaged.append((exc.file, exc.message))
    reads = [(read_offsets, batch) for batch in planned[-1:]]
    reads += [(read_offsets, batch - 1) for batch in planned[-1:] if batch > 0]
    for read, batch in (*reads, *((check_commit, batch) for batch in finished[-1:])):
        try:
            read(folder, batch)
        except CheckpointError as exc:
            damaged.append((exc.file, exc.message))
    return id_, tuple(damaged)


def lost_state(folder: Folder, finished: Sequence[int], *, keeps_state: bool) -> Iterator[str]:
    """What is missing of the state: a store goes on with the version that the last finished batch wrote.

    `keeps_state`: the stream's last batch told of state. Without the folder nothing else tells that it needs one.
    Source: HDFSBackedStateStoreProvider and RocksDBFileManager of Spark (`state/<operator>/<partition>[/<store>]`,
    then the version and an ending; batch 0 writes version 1).
    """
    operators = [entry.name for entry in folder.list("state") if entry.name.isdigit()]
    if finished and keeps_state and not operators:
        yield f"state is gone, though the stream kept rows there at batch {finished[-1]}"
    partitions = [
        f"state/{operator}/{entry.name}" for operator in operators for entry in folder.list(f"state/{operator}")
    ]
    for partition in [path for path in partitions if path.rpartition("/")[2].isdigit()][:MOST_PARTITIONS]:
        entries = folder.list(partition)
        stores = [f"{partition}/{entry.name}" for entry in entries if entry.is_folder and entry.name not in _NO_STORES]
        listed = {store: folder.list(store) for store in stores} or {partition: entries}
        for store, files in listed.items():
            versions = [int(match[0]) for file in files if (match := re.match(r"\d+", file.name))]
            if finished and finished[-1] + 1 not in versions:
                ends = f"ends with version {max(versions)}" if versions else "is empty"
                yield f"{store} {ends}; batch {finished[-1]} wrote version {finished[-1] + 1}"


# sources -------------------------------------------------------------------------------------------------------------


def _tables(
    lake: Lake, declared: StreamDeclaration, sources: Sequence[StreamInput], places: _Places
) -> Iterable[TableSeen]:
    present = [_present(lake, each) for each in sources]
    read = [] if declared.is_view else [n for n, each in enumerate(sources) if not each.is_static]
    ids = [snapshot.metadata.id if isinstance(snapshot := present[number], Snapshot) else None for number in read]
    placed = matched([sources[number] for number in read], list(places.positions.items()), ids)
    at = {read[number]: place for number, place in placed.items()}
    for number, (source, snapshot) in enumerate(zip(sources, present, strict=True)):
        if isinstance(snapshot, TableSeen):
            yield snapshot
            continue
        seen = TableSeen(source, present_id=snapshot.metadata.id, latest=snapshot.version, present=snapshot.metadata)
        place, position = at.get(number, (-1, None))
        if number in read and places.unknown:
            yield replace(seen, skipped=places.unknown)
        elif not isinstance(position, DeltaPosition):
            yield seen
        elif position.table_id != snapshot.metadata.id:
            yield replace(seen, table_id=position.table_id, first=position.version)
        else:
            again = places.planned_again.get(place)
            since = again if isinstance(again, DeltaPosition) and again.table_id == position.table_id else position
            yield _with_log(lake, _ahead(lake, seen, snapshot.ref, position), snapshot.ref, since)


def _present(lake: Lake, source: StreamInput) -> Snapshot | TableSeen:
    try:
        return lake.snapshot(lake.find(source.uri))
    except (PathRefusedError, StorageError) as exc:
        return TableSeen(source, skipped=exc.message)
    except LakehouseError as exc:
        return TableSeen(source, problem=exc.message)


def _with_log(lake: Lake, seen: TableSeen, ref: TableRef, since: DeltaPosition) -> TableSeen:
    """What of the log is left from where Spark needs it; an initial snapshot needs the state of its version."""
    try:
        spans, runs = lake.versions(ref), lake.retention_facts(ref).listed
    except LakehouseError as exc:
        return replace(seen, first=None, skipped=exc.message)
    if since.is_initial and any(low <= since.version <= high for low, high in spans):
        return replace(seen, needed=since.version, first_kept=since.version)
    first_kept = next((max(low, since.version) for low, high in runs if high >= since.version), None)
    if since.is_initial and first_kept == since.version:
        first_kept = None if first_kept == seen.latest else first_kept + 1
    return replace(seen, needed=since.version, first_kept=first_kept)


def _ahead(lake: Lake, seen: TableSeen, ref: TableRef, position: DeltaPosition) -> TableSeen:
    """What the stream would read next."""
    first, last = position.version, min(seen.latest, position.version + MOST_VERSIONS - 1)
    seen = replace(seen, table_id=position.table_id, first=first)
    if first > seen.latest:
        return replace(seen, files=FilesLookedFor(0, 0, 0))
    try:
        feed = seen.source.kind == InputKind.CHANGE_FEED
        arrivals = lake.arrivals(ref, first + position.is_initial, last, feed=feed)
        commits = {commit.version: commit for commit in lake.history(ref, starting_version=first, ending_version=last)}
        arrivals = without_read(lake, ref, seen.source, position, arrivals)
        unread = tuple(
            Unread(commits[commit.version], commit.files, len(commit.removed) if commit.removes_rows else 0)
            for commit in arrivals
            if commit.version in commits
        )
        seen = replace(seen, unread=unread, read_with=_columns_at(lake, ref, position))
        removed = {path for arrival in arrivals for path in arrival.removed}
        paths = [path for commit in arrivals for path in commit.paths]
        if position.is_initial:
            initial, replaced = _initial_files(lake, ref, position)
            paths, removed = [*initial, *paths], removed | replaced
        return replace(seen, files=_look(lake, ref, paths, removed))
    except LakehouseError as exc:
        return replace(seen, skipped=exc.message)


def _columns_at(lake: Lake, ref: TableRef, position: DeltaPosition) -> Metadata | None:
    try:
        return lake.snapshot(ref, max(0, position.version - (not position.is_initial))).metadata
    except LakehouseError:
        return None  # the judge says so


def _initial_files(lake: Lake, ref: TableRef, position: DeltaPosition) -> tuple[list[str], set[str]]:
    """Unread paths of the snapshot that is read first, in the order of Delta's source, and those of them that the
    latest version no longer has."""
    files = lake.snapshot(ref, position.version).columns(["path", "modified_at"])
    paths = rest_of_snapshot(files, 0 if position.by_event_time else position.files_read)["path"].to_pylist()
    return paths, set(paths) - set(lake.snapshot(ref).columns(["path"])["path"].to_pylist())


def _look(lake: Lake, ref: TableRef, paths: Sequence[str], removed: set[str]) -> FilesLookedFor:
    replaced = [path for path in paths if path in removed]
    chosen = [*replaced, *(path for path in paths if path not in removed)][:MOST_FILES]
    there = lake.has_files(ref, chosen)
    missing = tuple(path for path, is_there in zip(chosen, there, strict=True) if not is_there)
    return FilesLookedFor(len(paths), len(replaced), len(chosen), missing)


def _topics(sources: Sequence[StreamInput], places: _Places, topics: Sequence[TopicEnds]) -> Iterable[TopicsSeen]:
    by_name = {ends.source: ends for ends in topics}
    placed = matched(sources, list(places.positions.items()), [None] * len(sources))
    for number, source in enumerate(sources):
        _, position = placed.get(number, (-1, None))
        yield TopicsSeen(source, position if isinstance(position, KafkaPosition) else None, by_name.get(source.name))


def _last_failure(store: ControlStore, name: str) -> StreamFailure | None:
    """Why it does not run; None while it does."""
    observed = store.observed().get(name)
    return None if observed is None or observed.state.flows else observed.last_failure


def _folders(
    settings: Settings,
    declared: StreamDeclaration,
    sources: Sequence[StreamInput],
    failure: StreamFailure | None,
    planned: Sequence[int],
) -> Iterator[FolderSeen]:
    elsewhere = ""
    with suppress(LakehouseError):  # the checkpoint's own check tells
        if sources and planned:
            checkpoint = declared_folder(settings, declared.checkpoint_location)
            elsewhere = named_elsewhere(sources, checkpoint, planned[-1])
    for number, source in enumerate(sources):
        yield replace(_folder(settings, source, failure), elsewhere="" if number else elsewhere)


def _folder(settings: Settings, source: StreamInput, failure: StreamFailure | None) -> FolderSeen:
    if not source.uri or has_pattern(source.uri):
        return FolderSeen(source, None, "The declaration names no single folder")
    try:
        folder = declared_folder(settings, source.uri)
        if not folder.holds(""):
            return FolderSeen(source, is_there=False, problem=f"{source.uri} does not exist")
        folder.list_after("", "￿")  # whether it may be listed, without its names
    except PathRefusedError as exc:
        return FolderSeen(source, None, exc.message)
    except LakehouseError as exc:
        return FolderSeen(source, is_there=False, problem=exc.message)
    return FolderSeen(source, is_there=True, unreadable=unreadable(folder, failure))


def unreadable(folder: Folder, failure: StreamFailure | None) -> str:
    """The file of this folder that a stream could not read, where it is there as it was then."""
    named = re.search(r"while reading file (.+?)\.(?:\s|$)", failure.message if failure else "")
    if failure is None or named is None or not faults.FILE_UNREADABLE.explains(failure):
        return ""
    path = unquote(normal_uri(named[1]))
    if not is_within(path, folder.uri):
        return ""
    file = folder.stat(path.removeprefix(folder.uri).lstrip("/"))
    is_new = file is None or (file.modified_at is not None and file.modified_at > failure.failed_at)
    return "" if is_new else path


# sink, store, disk ---------------------------------------------------------------------------------------------------


def _sink(lake: Lake, declared: StreamDeclaration, query: str | None) -> SinkSeen:
    if declared.outside:
        looks = "the host looks at it when the stream starts" if declared.sink in _LOOKED_AT else "nobody here can look"
        return SinkSeen(None, problem=f"{declared.writes_to}: {looks}")
    seen = [_output(lake, output.uri, declared, query) for output in declared.outputs]
    if bad := next((each for each in seen if each.problem or each.keys_before or not each.exists), None):
        return bad
    batches = [each.last_batch for each in seen if each.last_batch is not None]
    return SinkSeen(True, sum(each.files or 0 for each in seen), max(batches, default=None))


def _changes(lake: Lake, table: DeclaredTable) -> Iterable[DeclaredChange]:
    """Of a table that can be read; of others the sink's check tells, and a start that finds none makes it."""
    try:
        return tuple(table_changes(table, PresentTable.of(lake.snapshot(lake.find(table.uri)))))
    except LakehouseError:
        return ()


def _output(lake: Lake, uri: str, declared: StreamDeclaration, query: str | None) -> SinkSeen:
    try:
        snapshot = lake.snapshot(lake.find(uri))
        wrote = [snapshot.transactions.get(key) for key in (query, f"{declared.name}:{query}") if query and key]
    except TableNotFoundError:
        return SinkSeen(exists=False)
    except (PathRefusedError, StorageError) as exc:
        return SinkSeen(None, problem=exc.message)
    except LakehouseError as exc:
        return SinkSeen(exists=True, problem=exc.message)
    keys = next((table.keys for table in declared.tables if table.uri == uri), ())
    before = keys_before(snapshot.metadata.configuration, keys) if snapshot.num_files else ""
    last_batch = max((batch for batch in wrote if batch is not None), default=None)
    return SinkSeen(True, snapshot.num_files, last_batch, keys_before=before)


def _owners(
    settings: Settings, store: ControlStore, declared: StreamDeclaration, declarations: Mapping[str, StreamDeclaration]
) -> Owners:
    leases = store.leases()
    return Owners(
        {name: leases[stream_resource(name)] for name in declarations if stream_resource(name) in leases},
        {host.host_id: host for host in store.hosts()},
        [declaration for declaration in declarations.values() if declaration.name != declared.name],
        store.desired(),
        settings.host.heartbeat_stale_s,
    )


def _room(location: str, state_bytes: int | None) -> RoomSeen:
    if is_remote(location):
        return RoomSeen(None)
    place = Path(normal_uri(location))
    try:
        usage = shutil.disk_usage(next(folder for folder in (place, *place.parents) if folder.exists()))
    except OSError:
        return RoomSeen(None)
    return RoomSeen(usage.free, state_bytes)
