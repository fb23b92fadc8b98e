"""What a Delta table holds that a stream has not read: from the log alone, while the stream runs or is stopped.

Rule: the position is the checkpoint's, the rest the table's own log; a table under another id is not counted.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import LakehouseError
from backend.lake.history.change_feed import Arrival, rest_of_snapshot
from backend.lake.lake import Lake
from backend.lake.model import Snapshot, TableRef
from backend.lake.retention.runs import DEFAULTS, DELETED_FILES, LOG_RETENTION
from backend.lake.table.properties import parse_interval
from backend.stream_model.backlog import DataLoss, SourceBacklog, known_sum
from backend.stream_model.stream import InputKind, StreamInput
from backend.streams.backlog.positions import DeltaPosition

MOST_VERSIONS = 10_000  # commits read for one look; they are kept for the next
CLEANUP = "delta.enableExpiredLogCleanup"
_STARTS = ("startingVersion", "startingTimestamp")


def table_backlog(lake: Lake, source: StreamInput, position: DeltaPosition | None) -> SourceBacklog:
    """Of a table or its change feed; raises `LakehouseError` where the table cannot be read."""
    ref = lake.find(source.uri)
    present = lake.snapshot(ref)
    blank = SourceBacklog(source.name, source.kind)
    position = position or _begins_at(source, present)
    if position is None:
        return _not_begun(blank, source, present)
    if position.table_id != present.metadata.id:
        return replace(blank, unknown="the table was made anew since: its id is another one")
    first = position.version + position.is_initial
    if present.version - first >= MOST_VERSIONS:
        versions = present.version - first + 1
        return replace(blank, versions=versions, unknown=f"more than {MOST_VERSIONS:,} versions are unread")
    arrivals = lake.arrivals(ref, first, present.version, feed=source.kind == InputKind.CHANGE_FEED)
    lost = _lost(first, present.version, arrivals)
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


def _begins_at(source: StreamInput, present: Snapshot) -> DeltaPosition | None:
    """Where a first start begins by its options; None for the whole snapshot, for a time and for "latest"."""
    version = source.options.get("startingVersion", "")
    return DeltaPosition(present.metadata.id, int(version), -1, is_initial=False) if version.isdigit() else None


def _not_begun(blank: SourceBacklog, source: StreamInput, present: Snapshot) -> SourceBacklog:
    if set(_STARTS) & source.options.keys():
        return replace(blank, unknown="the stream has not begun, and its options say where it will")
    files = present.columns(["size_bytes", "num_records", "deleted_rows"])
    backlog = _with_files(replace(blank, versions=0, files=0, size_bytes=0, rows=0), files, at=present.committed_at)
    return replace(backlog, versions=1, detail=f"not begun: all of v{present.version}", is_first_read=True)


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


def _lost(first: int, latest: int, arrivals: Sequence[Arrival]) -> int:
    """Versions before the first that is still there."""
    there = arrivals[0].version if arrivals else latest + 1
    return max(0, min(there, latest + 1) - first)


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
