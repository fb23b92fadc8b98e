"""The change data feed: does it cover a range of versions, are its files there, how many rows did a commit change; and
what each commit brings to a stream that reads the table.

Rule: everything is checked before deltalake is asked, because its errors do not say which version or file. Rows are
counted without reading them: of a change file only `_change_type` is decoded, and where its statistics know one value
not even that. A commit without change files is counted from the files that it names, as the protocol says its feed is
to be read. For a stream, files are counted in the order in which Delta's source numbers them, so that an offset inside
a commit says which are left. What a commit does not say is unknown, never 0.
Source: `dataChange` and change files in Delta's PROTOCOL.md; DeltaSourceOffset in the Spark connector.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backend.errors import DiffError, LakehouseError, TableCorruptError, UnsupportedFeatureError
from backend.lake.files.footer import parquet_errors
from backend.lake.log.actions import FileAction
from backend.lake.log.commits import CommitSlice
from backend.lake.log.log import TableLog
from backend.lake.model import Commit, Snapshot
from backend.lake.storage.folder import is_remote
from backend.lake.storage.storage import Storage, TableFiles
from backend.lake.table.misreadings import MISSPELLED, misspelled, opened, why_misread
from backend.lake.table.properties import is_on

FEED = "delta.enableChangeDataFeed"
MAPPING = "delta.columnMapping.mode"
CHANGE_TYPE = "_change_type"
AT_ONCE = 2  # change files read side by side
_BATCH_ROWS = 1 << 20
_OTHER_WAY = "compare by key or whole rows"
_OFF, _TURN_ON = "the change feed was off at version {}", f"set {FEED}=true to record changes"


@dataclass(frozen=True, slots=True)
class ChangeFeedSupport:
    """`first_covered_version` is the oldest version of the range from which the feed answers up to its end."""

    covered: bool
    first_covered_version: int | None
    reason: str
    hint: str = ""


def change_feed_support(log: TableLog, from_version: int, to_version: int) -> ChangeFeedSupport:
    """Walk back from `to_version` as long as the feed was on and the commits are there."""
    latest = log.latest()
    if not 0 <= from_version < to_version <= latest:
        return ChangeFeedSupport(False, None, f"versions {from_version} to {to_version} are no range of 0 to {latest}")
    enabled = _enabled_from(log, from_version, to_version)
    if enabled is None:
        return ChangeFeedSupport(False, None, _OFF.format(to_version), _TURN_ON)
    if beyond := _beyond_reader(log, enabled, to_version):
        (first, reason), hint = beyond, "the engine that writes the table can read it"
    elif from_version >= (first := enabled - 1):
        return ChangeFeedSupport(True, first, "the change feed is on for each commit of the range")
    else:
        reason = f"the change feed does not cover version {first}: it was off, or its commit was cleaned away"
        hint = f"compare from version {first} on"
    return ChangeFeedSupport(False, first if first < to_version else None, reason, hint)


def feed_files(actions: pa.Table) -> pa.Table:
    """The files of one commit that its feed is read from, in their order: change files where it has any, else its
    data."""
    if not actions.num_rows:
        return actions
    feed = actions.filter(pc.equal(actions["kind"], int(FileAction.CDC)))
    return feed if feed.num_rows else actions.filter(actions["data_change"])


def in_whole_files(files: pa.Table) -> tuple[pa.Table, int]:
    """Files of a commit that come or go as a whole, and the rows that its others gained or lost.

    A file that the commit both removes and adds has only got another deletion vector.
    """
    by_path = files.group_by("path").aggregate(
        [("kind", "count_distinct"), ("deleted_rows", "max"), ("deleted_rows", "min")]
    )
    twice = by_path.filter(pc.greater(by_path["kind_count_distinct"], 1))
    marked = pc.sum(pc.subtract(twice["deleted_rows_max"], twice["deleted_rows_min"])).as_py()
    return files.filter(pc.invert(pc.is_in(files["path"], twice["path"].combine_chunks()))), int(marked or 0)


def _beyond_reader(log: TableLog, first: int, last: int) -> tuple[int, str] | None:
    """The newest commit whose feed deltalake cannot read, and why (found by trying, deltalake 1.6.6)."""
    if log.state(last).metadata.configuration.get(MAPPING, "none").lower() != "none":
        return last, "the change feed of a table with column mapping cannot be read yet"
    for version in range(last, first - 1, -1):
        files = feed_files(log.commits([version])[0].actions)
        if not files.num_rows:
            continue
        if pc.any(files["is_encoded"]).as_py():
            return version, f"commit {version} names files with percent-encoded paths, which the feed's reader misses"
        # Of a file that comes or goes as a whole deltalake gives the rows that its vector marks. Where one vector takes
        # another's place it reads well.
        if pc.any(pc.is_valid(in_whole_files(files)[0]["dv_id"])).as_py():
            what = "removes or adds whole files with deletion vectors, which the feed's reader misreads"
            return version, f"commit {version} {what}"
    return None


def require_files(storage: Storage, snapshot: Snapshot, paths: Iterable[str]) -> None:
    """Raise `PathRefusedError` for a local file whose symlink leads outside, `DataFileMissingError` for one gone."""
    files = TableFiles(storage, snapshot.ref.uri)
    for path in paths:
        file = files.locate(path)
        if not is_remote(file.uri) and file.folder.stat(file.path) is None:
            raise files.gone(path)


def require_plain_files(storage: Storage, snapshot: Snapshot, paths: Iterable[str]) -> None:
    """Raise `UnsupportedFeatureError` for a file whose times or names the feed's reader (deltalake 1.6.6, which lets no
    feed be read with INT96 as microseconds) would take for others."""
    has_times = '"date"' in snapshot.metadata.schema_json or '"timestamp"' in snapshot.metadata.schema_json
    files = TableFiles(storage, snapshot.ref.uri)
    for path in paths:
        with files.open(path) as source, parquet_errors(path, snapshot.ref.uri):
            why = why_misread(opened(source)) if has_times else None
            why = why or (MISSPELLED if misspelled(source, snapshot.metadata) else None)
        if why is not None:
            raise UnsupportedFeatureError(f"{path} holds {why}, which the feed's reader misreads", hint=_OTHER_WAY)


def _enabled_from(log: TableLog, from_version: int, to_version: int) -> int | None:
    """The oldest commit after `from_version` from which the feed was on without a break up to `to_version`."""
    enabled_from: int | None = None
    try:
        metadata = log.state(to_version).metadata
        for version in range(to_version, from_version, -1):
            if not is_on(metadata.configuration, FEED):
                break
            changed = log.commits([version])[0].record.metadata is not None
            enabled_from = version
            metadata = log.state(version - 1).metadata if changed else metadata
    except LakehouseError:  # a commit or a state before it cannot be had: not from there
        return enabled_from
    return enabled_from


# rows by change type ---------------------------------------------------------------------------------------------


def count_changes(storage: Storage, log: TableLog, version: int) -> Mapping[str, int]:
    """Rows per change type of one commit; raises `VersionNotFoundError`, `DataFileMissingError`, `TableCorruptError`,
    and `DiffError` where the feed was off, or rows would have to be looked at."""
    if not is_on(log.state(version).metadata.configuration, FEED):
        raise DiffError(_OFF.format(version), hint=_TURN_ON)
    (commit,) = log.commits([version])
    actions, uri, files = commit.actions, log.ref.uri, TableFiles(storage, log.ref.uri)
    change_files = actions.filter(pc.equal(actions["kind"], int(FileAction.CDC)))["path"].to_pylist()

    def counted(path: str) -> Counter[str]:
        with files.open(path) as file, parquet_errors(path, uri):
            return _types(pq.ParquetFile(file, read_dictionary=[CHANGE_TYPE], pre_buffer=False), path)

    if change_files:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return sum(pool.map(counted, change_files), Counter())
    return sum(_in_data_files(files, uri, commit), Counter())


def _in_data_files(files: TableFiles, uri: str, commit: CommitSlice) -> Iterator[Counter[str]]:
    """Added files are inserts, removed ones deletes; the same file twice has another deletion vector."""
    actions = commit.actions.filter(commit.actions["data_change"])
    actions = actions.select(["kind", "path", "num_records", "deleted_rows"])
    rows = actions.to_pylist()
    added = {row["path"]: row for row in rows if row["kind"] == FileAction.ADD}
    removed = {row["path"]: row for row in rows if row["kind"] == FileAction.REMOVE}
    info = commit.record.commit_info
    is_restore = isinstance(info, Mapping) and str(info.get("operation", "")).upper() == "RESTORE"
    for path in added.keys() & removed.keys():
        more = added[path]["deleted_rows"] - removed[path]["deleted_rows"]
        if more < 0 or is_restore:
            raise DiffError(f"commit {commit.record.version} brings back rows of {path}: which, only reading tells")
        yield Counter(delete=more)
    for kind, own, others in (("insert", added, removed), ("delete", removed, added)):
        for path in own.keys() - others.keys():
            num_rows = own[path]["num_records"]
            if num_rows is None:
                with files.open(path) as file, parquet_errors(path, uri):
                    num_rows = int(pq.ParquetFile(file).metadata.num_rows)
            yield Counter({kind: num_rows - own[path]["deleted_rows"]})


def _types(file: pq.ParquetFile, path: str) -> Counter[str]:
    if CHANGE_TYPE not in file.schema_arrow.names:
        raise TableCorruptError(f"{path} has no column {CHANGE_TYPE}", hint="it is no change file")
    column = next(i for i in range(file.metadata.num_columns) if file.schema.column(i).path == CHANGE_TYPE)
    counts: Counter[str] = Counter()
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        statistics = group.column(column).statistics
        if (
            statistics is not None
            and statistics.has_min_max
            and statistics.min == statistics.max
            and statistics.null_count == 0
        ):
            counts[statistics.min] += group.num_rows
            continue
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[number], columns=[CHANGE_TYPE], use_threads=False):
            counts += _counted(batch.column(0), path)
    return counts


def _counted(column: pa.DictionaryArray, path: str) -> Counter[str]:
    if column.null_count:
        raise TableCorruptError(f"{path} holds rows without a change type", hint="its writer's feed is not whole")
    counts = np.bincount(column.indices.to_numpy(), minlength=len(column.dictionary))
    rows_by_type: Counter[str] = Counter()
    for name, rows in zip(column.dictionary.to_pylist(), counts.tolist(), strict=True):
        rows_by_type[name] += rows
    return +rows_by_type


@dataclass(frozen=True, slots=True)
class Arrival:
    """One commit as a stream gets it, with the `paths` of its files and those that it `removed` from the table.

    `removes_rows`: it took rows away or rewrote them; a compaction does not.
    """

    version: int
    committed_at: datetime | None
    files: int
    size_bytes: int | None
    rows: int | None
    removes_rows: bool = False
    paths: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


def read_arrivals(log: TableLog, versions: Iterable[int], *, feed: bool) -> list[Arrival]:
    """One for each version that the log still holds, ascending; `feed`: as its change feed gives them.

    Raises `VersionNotFoundError` when one goes while it is read, `TableCorruptError` where one cannot be read.
    """
    listing = log.listing()
    there = [version for version in versions if version in listing.commits]
    commits, times = log.commits(there), log.committed_times(there)
    return [_arrival(log, commit, times[commit.record.version], feed=feed) for commit in commits]


def rest_of(log: TableLog, version: int, read: int, *, feed: bool) -> Arrival:
    """What is left of a commit when the first `read` of its files were read."""
    return _arrival(log, log.commits([version])[0], log.committed_at(version), feed=feed, read=read)


def _arrival(log: TableLog, commit: CommitSlice, at: datetime | None, *, feed: bool, read: int = 0) -> Arrival:
    actions = commit.actions
    gone = actions.filter(pc.equal(actions["kind"], int(FileAction.REMOVE)))
    left = arriving(actions, feed=feed).slice(read)
    return Arrival(
        version=commit.record.version,
        committed_at=at,
        files=left.num_rows,
        size_bytes=None if left["size_bytes"].null_count else int(pc.sum(left["size_bytes"]).as_py() or 0),
        rows=_rows(log, left, whole=read == 0, feed=feed),
        removes_rows=bool(pc.any(gone["data_change"]).as_py()),
        paths=tuple(left["path"].to_pylist()),
        removed=tuple(gone["path"].to_pylist()),
    )


def rest_of_snapshot(files: pa.Table, read: int) -> pa.Table:
    """What is left of a snapshot's files (with `modified_at` and `path`) when the first `read` of them were read."""
    return files.sort_by([("modified_at", "ascending"), ("path", "ascending")]).slice(read)


def arriving(actions: pa.Table, *, feed: bool) -> pa.Table:
    """The files of a commit that a stream reads."""
    if feed:
        return feed_files(actions)
    return actions.filter(pc.and_(pc.equal(actions["kind"], int(FileAction.ADD)), actions["data_change"]))


def _rows(log: TableLog, files: pa.Table, *, whole: bool, feed: bool) -> int | None:
    """Rows by the files' statistics; of change files, which have none, by what the writer counted."""
    if not files.num_rows:
        return 0
    if feed and not whole and files["dv_id"].null_count < files.num_rows:
        return None  # the other half of a file with another vector may be read already
    whole_files, marked = in_whole_files(files) if feed else (files, 0)
    rows = pc.subtract(whole_files["num_records"], whole_files["deleted_rows"])
    if not rows.null_count:
        return int(pc.sum(rows).as_py() or 0) + marked
    kinds = set(files["kind"].to_pylist())
    return changed_rows(log.commit(files["version"][0].as_py())) if whole and kinds == {int(FileAction.CDC)} else None


def changed_rows(commit: Commit) -> int | None:
    """Rows of the commit's change feed, where an update is two; None where its writer did not count."""
    metrics = commit.metrics
    counts = (metrics.rows_inserted, metrics.rows_updated, metrics.rows_deleted)
    if all(count is None for count in counts):
        return None
    inserted, updated, deleted = (count or 0 for count in counts)
    return inserted + 2 * updated + deleted
