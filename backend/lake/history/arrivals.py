"""What each commit of a table brings to a stream that reads it: files, bytes and rows, no data file opened.

Rule: files are counted in the order in which Delta's streaming source numbers them, so that an offset inside a commit
says which are left. What a commit does not say is unknown, never 0.
Source: `dataChange` and change files in Delta's PROTOCOL.md; DeltaSourceOffset in the Spark connector.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from backend.lake.history.change_feed import feed_files, in_whole_files
from backend.lake.log.actions import FileAction
from backend.lake.log.commits import CommitSlice
from backend.lake.log.log import TableLog
from backend.lake.model import Commit


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
    return [_arrival(log, commit, feed=feed) for commit in log.commits(there)]


def rest_of(log: TableLog, version: int, read: int, *, feed: bool) -> Arrival:
    """What is left of a commit when the first `read` of its files were read."""
    return _arrival(log, log.commits([version])[0], feed=feed, read=read)


def _arrival(log: TableLog, commit: CommitSlice, *, feed: bool, read: int = 0) -> Arrival:
    actions = commit.actions
    gone = actions.filter(pc.equal(actions["kind"], int(FileAction.REMOVE)))
    left = arriving(actions, feed=feed).slice(read)
    return Arrival(
        version=commit.record.version,
        committed_at=log.committed_at(commit.record.version),
        files=left.num_rows,
        size_bytes=_sum(left["size_bytes"]),
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


def _sum(sizes: pa.ChunkedArray) -> int | None:
    return None if sizes.null_count else int(pc.sum(sizes).as_py() or 0)
