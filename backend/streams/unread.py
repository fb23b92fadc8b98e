"""What each kind of source holds that a stream has not read: one function a kind, from a position to `SourceBacklog`.

A stream may run or be stopped: its position is its checkpoint's. Of a table the log says the rest; of a folder the
names in it and the source's own log (FileStreamSourceLog, CompactibleFileStreamLog: `v1`, then one JSON object a line;
`.compact` holds all before it); of topics what a host last asked the broker, so that a count is as old as that answer.

Rule: no data file is opened. A table under another id is not counted, nor a folder that cannot be listed as Spark does.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from glob import escape, glob, iglob
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import CheckpointError, LakehouseError, StorageError
from backend.format import span_text
from backend.lake.history.change_feed import Arrival, rest_of_snapshot
from backend.lake.lake import Lake
from backend.lake.model import Snapshot, TableRef
from backend.lake.retention.runs import DEFAULTS, DELETED_FILES, LOG_RETENTION
from backend.lake.storage.folder import Entry, Folder, is_remote, is_within, normal_uri
from backend.lake.storage.storage import declared_folder
from backend.lake.table.properties import parse_interval
from backend.settings import Settings
from backend.stream_model.backlog import DataLoss, SourceBacklog, known_sum
from backend.stream_model.stream import InputKind, StreamInput, TopicEnds
from backend.streams.checkpoint import DeltaPosition, FilesPosition, KafkaPosition, read_positions

MOST_VERSIONS = 10_000  # commits read for one look; they are kept for the next
CLEANUP = "delta.enableExpiredLogCleanup"
_STARTS = ("startingVersion", "startingTimestamp")
UNREAD = 2**62  # stands for the log entry of a file that no entry names
MOST_FILES = 100_000
_PATTERN = frozenset("*?[]{}")
_HIDDEN = (".", "_")
STALE_S = 60.0  # hosts ask every few seconds
Offsets = Mapping[str, Mapping[int, int]]


def table_backlog(lake: Lake, source: StreamInput, position: DeltaPosition | None) -> SourceBacklog:
    """Of a table or its change feed; raises `LakehouseError` where the table cannot be read."""
    ref = lake.find(source.uri)
    present = lake.snapshot(ref)
    blank = SourceBacklog(source.name, source.kind)
    begins_at = source.options.get("startingVersion", "")
    if position is None and begins_at.isdigit():
        position = DeltaPosition(present.metadata.id, int(begins_at), -1, is_initial=False)
    if position is None and set(_STARTS) & source.options.keys():  # a time, or "latest"
        return replace(blank, unknown="the stream has not begun, and its options say where it will")
    if position is None:
        files = present.columns(["size_bytes", "num_records", "deleted_rows"])
        backlog = _with_files(replace(blank, versions=0, files=0, size_bytes=0, rows=0), files, at=present.committed_at)
        return replace(backlog, versions=1, detail=f"not begun: all of v{present.version}", is_first_read=True)
    if position.table_id != present.metadata.id:
        return replace(blank, unknown="the table was made anew since: its id is another one")
    first = position.version + position.is_initial
    if present.version - first >= MOST_VERSIONS:
        versions = present.version - first + 1
        return replace(blank, versions=versions, unknown=f"more than {MOST_VERSIONS:,} versions are unread")
    arrivals = lake.arrivals(ref, first, present.version, feed=source.kind == InputKind.CHANGE_FEED)
    first_there = arrivals[0].version if arrivals else present.version + 1
    lost = max(0, min(first_there, present.version + 1) - first)
    left = without_read(lake, ref, source, position, arrivals)
    backlog = _counted(blank, present, [arrival for arrival in left if not is_skipped(arrival, source)])
    detail = f"{lost:,} unread versions are no longer in the log" if lost else ""
    backlog = replace(backlog, versions=len(left) + lost, lost=lost, detail=detail)
    return _with_snapshot(lake, backlog, ref, position) if position.is_initial else backlog


def without_read(
    lake: Lake, ref: TableRef, source: StreamInput, position: DeltaPosition, arrivals: list[Arrival]
) -> list[Arrival]:
    """Commits from a position on, the first one only as far as it is not read."""
    if not arrivals or arrivals[0].version != position.version or not position.files_read:
        return arrivals
    feed = source.kind == InputKind.CHANGE_FEED
    rest = lake.rest_of_commit(ref, position.version, position.files_read, feed=feed)
    return [rest, *arrivals[1:]] if rest.files else arrivals[1:]


def view_backlog(lake: Lake, source: StreamInput, version: int | None) -> SourceBacklog:
    """Of a table that a view is computed from: versions alone, since a refresh reads all of its rows."""
    ref = lake.find(source.uri)
    latest = lake.latest_version(ref)
    unread = latest - (-1 if version is None else version)
    backlog = SourceBacklog(source.name, source.kind, versions=max(0, unread))
    if unread <= 0:
        return replace(backlog, files=0, size_bytes=0, rows=0)
    why = "a refresh computes the view from all rows"
    if unread > MOST_VERSIONS or version is None:
        return replace(backlog, unknown=why)
    arrivals = lake.arrivals(ref, version + 1, latest, feed=False)
    return replace(backlog, oldest_unread_at=arrivals[0].committed_at if arrivals else None, unknown=why)


def _with_snapshot(lake: Lake, backlog: SourceBacklog, ref: TableRef, position: DeltaPosition) -> SourceBacklog:
    """With what is left of the snapshot that a stream reads first, ordered as Delta's source does."""
    if position.by_event_time:
        why = f"the snapshot of v{position.version} is read in order of event time"
        return replace(backlog, files=None, size_bytes=None, rows=None, unknown=why)
    try:
        snapshot = lake.snapshot(ref, position.version)
    except LakehouseError as exc:
        return replace(backlog, files=None, size_bytes=None, rows=None, unknown=exc.message)
    files = snapshot.columns(["path", "size_bytes", "num_records", "deleted_rows", "modified_at"])
    left = rest_of_snapshot(files, position.files_read)
    done = f"the first read of v{position.version}: {position.files_read:,} of {files.num_rows:,} files done"
    detail = "; ".join(filter(None, [backlog.detail, done]))
    return replace(_with_files(backlog, left, at=snapshot.committed_at), detail=detail, is_first_read=left.num_rows > 0)


def _with_files(backlog: SourceBacklog, files: pa.Table, *, at: datetime | None) -> SourceBacklog:
    rows = pc.subtract(files["num_records"], files["deleted_rows"])
    return replace(
        backlog,
        versions=known_sum([backlog.versions, 1 if files.num_rows else 0]),
        files=known_sum([backlog.files, files.num_rows]),
        size_bytes=known_sum([backlog.size_bytes, int(pc.sum(files["size_bytes"]).as_py() or 0)]),
        rows=known_sum([backlog.rows, None if rows.null_count else int(pc.sum(rows).as_py() or 0)]),
        oldest_unread_at=at if files.num_rows else backlog.oldest_unread_at,
    )


def _counted(blank: SourceBacklog, present: Snapshot, arrivals: Sequence[Arrival]) -> SourceBacklog:
    holding = [arrival for arrival in arrivals if arrival.files]
    unknown = "" if all(each.rows is not None for each in holding) else "some files do not say how many rows they hold"
    return replace(
        blank,
        files=sum(each.files for each in holding),
        size_bytes=known_sum([0, *(each.size_bytes for each in holding)]),
        rows=known_sum([0, *(each.rows for each in holding)]),
        oldest_unread_at=min((each.committed_at for each in holding if each.committed_at), default=None),
        data_loss=_data_loss(present, arrivals),
        unknown=unknown,
    )


def is_skipped(arrival: Arrival, source: StreamInput) -> bool:
    """Whether the stream passes over a commit that takes rows away."""
    says = source.options.get("skipChangeCommits", "").lower()
    return says == "true" and arrival.removes_rows and source.kind == InputKind.TABLE


def _data_loss(present: Snapshot, arrivals: Sequence[Arrival]) -> DataLoss | None:
    """The log's cleaning takes the oldest unread commit; VACUUM takes files that later commits removed."""
    losses = []
    oldest = next((each for each in arrivals if each.files and each.committed_at), None)
    if oldest and oldest.committed_at and _property(present, CLEANUP, "true") != "false":
        what = f"the log entry of v{oldest.version}"
        losses.append(DataLoss(oldest.committed_at + _retention(present, LOG_RETENTION), what, LOG_RETENTION))
    waiting: dict[str, int] = {}
    for arrival in arrivals:
        gone = [path for path in arrival.removed if path in waiting]
        if gone and arrival.committed_at:
            what = (
                f"files of v{min(waiting[path] for path in gone)} that v{arrival.version} replaced, at the next VACUUM"
            )
            losses.append(DataLoss(arrival.committed_at + _retention(present, DELETED_FILES), what, DELETED_FILES))
            break
        waiting |= dict.fromkeys(arrival.paths, arrival.version)
    return min(losses, key=lambda loss: loss.at, default=None)


def _retention(present: Snapshot, name: str) -> timedelta:
    retention = parse_interval(_property(present, name, DEFAULTS[name])) or parse_interval(DEFAULTS[name])
    assert retention is not None
    return retention


def _property(present: Snapshot, name: str, default: str) -> str:
    return present.metadata.configuration.get(name, default).lower()


# folders of files ----------------------------------------------------------------------------------------------------


def read_files(settings: Settings, source: StreamInput, *, checkpoint: Folder, place: int | None) -> list[Arrival]:
    """The files that are there, each with the entry of the source's log that names it as its version.

    `place`: the source's number in the checkpoint, None for a first start. Raises `LakehouseError` where they cannot be
    listed as Spark does.
    """
    if not source.uri:
        raise StorageError("its folder is not known")
    if has_pattern(source.uri) or "pathGlobFilter" in source.options:
        raise StorageError("its files are chosen by a pattern")
    if "maxFileAge" in source.options:
        raise StorageError("its reader passes over old files")
    folder = declared_folder(settings, source.uri)
    named = {} if place is None else _named(checkpoint, place)
    there = list(_files(folder, reads_all=source.options.get("recursiveFileLookup") == "true"))
    if len(there) > MOST_FILES:
        raise StorageError(f"the folder holds more than {MOST_FILES:,} files")
    return [Arrival(named.get(path, UNREAD), each.modified_at, 1, each.size_bytes, None) for path, each in there]


def files_backlog(source: StreamInput, position: FilesPosition | None, files: list[Arrival]) -> SourceBacklog:
    """Those that no finished batch read."""
    left = [file for file in files if position is None or file.version > position.log_offset]
    return SourceBacklog(
        source.name,
        source.kind,
        files=len(left),
        size_bytes=known_sum([0, *(file.size_bytes for file in left)]),
        rows=None if left else 0,
        oldest_unread_at=min((file.committed_at for file in left if file.committed_at), default=None),
        unknown="how many rows a file holds is known once it is read" if left else "",
    )


def files_of_batch(checkpoint: Folder, batch_id: int) -> list[str]:
    """The files that a planned batch reads, of every folder among its sources; raises `LakehouseError`."""
    before = read_positions(checkpoint, batch_id - 1 if batch_id > 0 else None)
    paths: list[str] = []
    for place, position in read_positions(checkpoint, batch_id).items():
        if isinstance(position, FilesPosition):
            last = before.get(place)
            read = last.log_offset if isinstance(last, FilesPosition) else -1
            named = _named(checkpoint, place, after=read)
            paths += [path for path, batch in named.items() if read < batch <= position.log_offset]
    return paths


def named_elsewhere(sources: Sequence[StreamInput], checkpoint: Folder, batch_id: int) -> str:
    """One of the files that the sources' own logs named last, which lies in none of their folders; "" without such.
    Raises `LakehouseError`."""
    places = [place for place, at in read_positions(checkpoint, batch_id).items() if isinstance(at, FilesPosition)]
    for folder in (f"sources/{place}" for place in places):
        names = [entry.name for entry in checkpoint.list_after(folder, "", digits_only=True)]
        newest = sorted(names, key=lambda name: int(name.removesuffix(".compact")))[-1:]
        for path, _ in (entry for name in newest for entry in _entries(checkpoint, f"{folder}/{name}")):
            if not any(has_pattern(each.uri) or is_within(path, normal_uri(each.uri)) for each in sources):
                return path
    return ""


def has_pattern(uri: str) -> bool:
    """Whether an address stands for several folders: not where one is there whose name has such signs itself. An empty
    one says nothing, unless no other folder is meant."""
    if is_remote(uri) or not _PATTERN & set(uri):
        return bool(_PATTERN & set(uri))
    others = glob(uri)  # noqa: PTH207 (any part may be a pattern)
    return not (Path(uri).is_dir() and (not others or any(iglob(f"{escape(uri)}/*"))))  # noqa: PTH207


def _files(folder: Folder, *, reads_all: bool) -> Iterator[tuple[str, Entry]]:
    """Path and entry of each file that Spark would take, in sub-folders those of partitions unless it `reads_all`; one
    more than `MOST_FILES` at most."""
    asked, num_files = [""], 0
    while asked:
        below = asked.pop()
        entries = [each for each in folder.list(below) if not each.name.startswith(_HIDDEN)]
        paths = [f"{below}/{entry.name}".lstrip("/") for entry in entries]
        folders = (path for path, each in zip(paths, entries, strict=True) if each.is_folder)
        asked += [path for path in folders if reads_all or "=" in path.rpartition("/")[2]]
        files = {path: each for path, each in zip(paths, entries, strict=True) if not each.is_folder}
        unsized = [path for path, each in files.items() if each.size_bytes is None]  # a disk lists names alone
        sized = zip(unsized, folder.stat_many(unsized), strict=True)
        files |= {path: each for path, each in sized if each}
        for path, file in files.items():
            num_files += 1
            yield f"{folder.uri.rstrip('/')}/{path}", file
            if num_files > MOST_FILES:
                return


def _named(checkpoint: Folder, place: int, *, after: int = -1) -> dict[str, int]:
    """The paths that the source's own log names, with the entry that does. Those of entries up to `after` may be
    missing: what holds all before it is then left unread where it can be."""
    folder = f"sources/{place}"
    names = [entry.name for entry in checkpoint.list_after(folder, "", digits_only=True)]
    single = {int(name) for name in names if name.isdigit()}
    newer = range(after + 1, max((int(name.removesuffix(".compact")) for name in names), default=-1) + 1)
    if after >= 0 and single.issuperset(newer):
        return {path: each for number in newer for path, each in _entries(checkpoint, f"{folder}/{number}")}
    compacts = [int(name.removesuffix(".compact")) for name in names if name.endswith(".compact")]
    compact = max(compacts, default=-1)
    wanted = [f"{folder}/{compact}.compact"] if compacts else []
    wanted += [f"{folder}/{name}" for name in names if name.isdigit() and int(name) > compact]
    return {path: each for name in wanted for path, each in _entries(checkpoint, name)}


def _entries(checkpoint: Folder, name: str) -> Iterator[tuple[str, int]]:
    for number, line in enumerate(checkpoint.read(name).decode(errors="replace").splitlines()):
        if number == 0 or not line.strip():
            continue
        try:
            entry = json.loads(line)
            path = normal_uri(entry["path"])
            yield unquote(path) if is_remote(entry["path"]) else path, int(entry["batchId"])  # Spark writes %20
        except (ValueError, KeyError, TypeError) as exc:
            raise CheckpointError(f"line {number + 1} of {name} cannot be read", file=name) from exc


# topics --------------------------------------------------------------------------------------------------------------


def unread_records(read: Offsets, ends: Offsets) -> int:
    """Records of all partitions after those that were read; a partition that was never read counts from its start."""
    return sum(max(0, end - _at(read, place, 0)) for place, end in places(ends))


def kafka_backlog(
    source: StreamInput, position: KafkaPosition | None, reported: TopicEnds | None, *, now: datetime
) -> SourceBacklog:
    """Of all partitions; unknown where no host has asked, the broker did not answer, or the topic is another one."""
    if reported is None:
        return SourceBacklog(source.name, source.kind, unknown="no host has asked the broker yet")
    blank = SourceBacklog(source.name, source.kind, asked_at=reported.at)
    if reported.problem:
        return replace(blank, unknown=f"the broker did not answer: {reported.problem}")
    read = position.offsets if position else reported.starts
    for (topic, partition), end in places(reported.ends):
        # What the stream has read since the host asked may well lie beyond the end of then.
        stood = _at(reported.read, (topic, partition), 0)
        if end < stood <= _at(read, (topic, partition), 0):
            why = f"the offset of {topic}-{partition} lies beyond its end: the topic was made anew"
            return replace(blank, unknown=why)
    begun = {
        t: {p: max(first, _at(read, (t, p), first)) for p, first in of.items()} for t, of in reported.firsts.items()
    }
    lost = sum(max(0, first - _at(read, place, first)) for place, first in places(reported.firsts)) if position else 0
    rows = unread_records(begun, reported.ends)
    backlog = replace(blank, rows=rows, lost=lost, oldest_unread_at=_oldest(reported, begun) if rows else None)
    old_s = (now - reported.at).total_seconds()
    return replace(
        backlog,
        data_loss=_data_loss_of_topics(reported, backlog) if rows else None,
        detail=f"{lost:,} records were deleted before they were read" if lost else "",
        unknown=f"a host last asked the broker {span_text(old_s)} ago" if old_s > STALE_S else "",
    )


def places(offsets: Offsets) -> Iterator[tuple[tuple[str, int], int]]:
    """Topic and partition of each, and its offset."""
    return (((topic, partition), offset) for topic, of in offsets.items() for partition, offset in of.items())


def _at(offsets: Offsets, place: tuple[str, int], default: int) -> int:
    topic, partition = place
    return offsets.get(topic, {}).get(partition, default)


def _oldest(reported: TopicEnds, begun: Offsets) -> datetime | None:
    """The time of the oldest unread record; None where a partition was read on since the host looked."""
    times = []
    for place, end in places(reported.ends):
        at = _at(begun, place, 0)
        if at < end:
            looked, time = reported.unread.get(place[0], {}).get(place[1], (-1, None))
            if looked != at or time is None:
                return None
            times.append(time)
    return min(times, default=None)


def _data_loss_of_topics(reported: TopicEnds, backlog: SourceBacklog) -> DataLoss | None:
    """The topic with the shortest retention decides: which one holds the oldest record is not told."""
    if backlog.oldest_unread_at is None:
        return None
    retentions = [(ms, topic) for topic, ms in reported.retention_ms.items() if ms is not None and ms >= 0]
    if not retentions:
        return None
    ms, topic = min(retentions)
    return DataLoss(backlog.oldest_unread_at + timedelta(milliseconds=ms), f"records of {topic}", "retention.ms")
