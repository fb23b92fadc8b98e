"""What an act on a table would do, whether it may be done, and what helps where it may not.

Rule: `preview` reads and never writes; `plan_*` are pure. An act is refused where it would lose what somebody needs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from backend.errors import JobError, QueryError
from backend.format import bytes_text, count_text, duration_text, things
from backend.jobs.model import Job, JobKind, JobState
from backend.lake.files.clustering import look_up
from backend.lake.files.file_sizes import small_limit
from backend.lake.lake import Lake
from backend.lake.model import Snapshot, TableRef
from backend.lake.table.metadata_diff import column_names
from backend.lake.table.properties import is_on
from backend.maintenance.alter import checked_alter, plan_alter, violations
from backend.maintenance.clone import preview_clone
from backend.maintenance.drop import plan_drop, preview_dropped
from backend.maintenance.merging import merge_of
from backend.maintenance.model import (
    ActPreview,
    ActResult,
    Alter,
    Arguments,
    Clone,
    Drop,
    Optimize,
    Purge,
    Repair,
    Restore,
    Rewind,
    TableAct,
    Undrop,
    Vacuum,
)
from backend.maintenance.places import commit_risk, why_out_of_reach, why_read_only
from backend.maintenance.readers import Users, load_users
from backend.maintenance.replacing import Incoming, load_incoming
from backend.maintenance.restore import RESTORE_BACK, load_restore, pause_note, plan_restore, why_written
from backend.maintenance.rewind import preview_rewind
from backend.maintenance.rows_hit import RowsHit, count_hit
from backend.maintenance.vacuum import load_vacuum, plan_vacuum
from backend.settings import Settings
from backend.store.store import ControlStore

_JOBS_READ, _ACTS_MEASURED = 100, 3


def load_preview(
    settings: Settings, lake: Lake, store: ControlStore | None, name: str, arguments: Arguments, *, now: datetime
) -> ActPreview:
    """Of a table by its name or URI, with everyone who uses it. Raises as `preview` does, `TableNotFoundError` and
    `StoreError`."""
    if isinstance(arguments, Undrop | Purge):
        return preview_dropped(settings, arguments)
    ref = lake.find(name)
    users = load_users(settings, lake, store, ref, arguments, now=now)
    return preview(settings, lake, ref, arguments, users, now=now, store=store)


def preview(
    settings: Settings, lake: Lake, ref: TableRef, arguments: Arguments, users: Users,
    *, now: datetime, store: ControlStore | None = None,
) -> ActPreview:  # fmt: skip
    """`ref`: of a dropped table the place where it was. Raises a `TableError` where the table cannot be read,
    `QueryError` for arguments that the table does not have."""
    if isinstance(arguments, Undrop | Purge):
        return preview_dropped(settings, arguments)
    snapshot = lake.snapshot(ref)
    match arguments:
        case Optimize():
            planned = plan_optimize(snapshot, _sized(settings, lake, snapshot, arguments), users)
        case Vacuum():
            planned = plan_vacuum(snapshot, arguments, load_vacuum(lake, snapshot, users, now), users)
        case Restore():
            planned = plan_restore(snapshot, arguments, load_restore(lake, snapshot, arguments, now, store), users)
        case Rewind():
            planned = preview_rewind(settings, lake, store, snapshot, arguments, users, now=now)
        case Repair():
            incoming = load_incoming(lake, snapshot, arguments, settings, now)
            hit = count_hit(lake, snapshot, arguments, settings)
            planned = plan_repair(snapshot, arguments, hit, users, incoming)
        case Alter():
            asked = checked_alter(snapshot.metadata, arguments)
            planned = plan_alter(snapshot, asked, violations(lake, snapshot, asked, settings), users)
        case Clone():
            planned = preview_clone(settings, lake, snapshot, arguments, now)
        case Drop():
            planned = plan_drop(settings, snapshot, users)
    if why := _why_never(settings, snapshot):
        return replace(planned, refused=why, way_out="act where the table may be changed")
    beside = planned.act.arguments
    other = beside.target if isinstance(beside, Clone) else beside.from_table if isinstance(beside, Repair) else ""
    for reason, way_out in (why_out_of_reach(settings, uri) for uri in (snapshot.ref.uri, other or "")):
        if reason:
            return replace(planned, refused=reason, way_out=way_out)
    if not isinstance(arguments, Clone | Drop) and (risk := commit_risk(settings, snapshot.ref.uri)):
        planned = replace(planned, risks=(*planned.risks, risk))
    if store is not None and not planned.refused and (size := _rewritten(arguments.kind, planned.figures)):
        note = _time_note(planned.act.arguments, size, store.jobs.newest(_JOBS_READ, of_tables=True))
        return replace(planned, notes=(*planned.notes, note))
    return planned


def _time_note(asked: Arguments, bytes_in: int, jobs: Iterable[Job]) -> str:
    """How long it takes, by the newest acts that rewrote files in the same way, a tenth to ten times as many bytes:
    what an act takes beside its bytes would mislead. `jobs`: newest first."""
    measured = list[tuple[int, float]]()
    for job in jobs:
        done = _bytes_of(job, asked)
        if bytes_in / 10 <= done <= bytes_in * 10 and job.started_at and job.ended_at:
            measured.append((done, (job.ended_at - job.started_at).total_seconds()))
        if len(measured) == _ACTS_MEASURED:
            break
    size_bytes, seconds = (sum(side) for side in zip(*measured, strict=True)) if measured else (0, 0.0)
    if not seconds:
        return "how long it takes is not known: nothing like it, of about this size, was done here yet"
    takes = duration_text(max(1, round(bytes_in * seconds / size_bytes)))
    acts = "one" if len(measured) == 1 else count_text(len(measured))
    return f"takes about {takes}, by the last {acts} like it here: {bytes_text(size_bytes / seconds)}/s"


def _bytes_of(job: Job, asked: Arguments) -> int:
    """What a job rewrote at its first attempt, 0 where it did not do the like."""
    if job.kind is not asked.kind or job.state is not JobState.DONE or job.attempts != 1:
        return 0
    try:
        alike = _way(TableAct.parse(job.request).arguments) == _way(asked)
        return _rewritten(job.kind, ActResult.of(job).figures) if alike else 0
    except JobError:
        return 0  # of another Weir


def _rewritten(kind: JobKind, figures: Mapping[str, int | None]) -> int:
    name = {JobKind.OPTIMIZE: "bytes_in", JobKind.CLONE: "bytes_written"}.get(kind, "")
    return figures.get(name) or 0


def _way(asked: Arguments) -> tuple[bool, ...]:
    """In which files are rewritten."""
    if isinstance(asked, Optimize):
        return bool(asked.zorder_by), asked.full, asked.purge, asked.prove_rows
    return ()


def _why_never(settings: Settings, snapshot: Snapshot) -> str:
    """Why nobody here may change this table."""
    if why := why_read_only(settings, snapshot.ref.uri):
        return why
    if "catalogManaged" in snapshot.protocol.features:
        return "a catalog decides its commits: act through the catalog"
    return ""


# OPTIMIZE --------------------------------------------------------------------------------------------------------


def plan_optimize(snapshot: Snapshot, asked: Optimize, users: Users) -> ActPreview:
    """`asked` with its sizes filled in."""
    _check_columns(snapshot, asked)
    merge = merge_of(snapshot, asked)
    out = "as many files as clustering needs" if merge.files_out is None else things(merge.files_out, "file")
    effect = (
        f"{things(merge.files_in, 'file')} ({bytes_text(merge.bytes_in)}) of {count_text(snapshot.num_files)} "
        f"become {out}"
    )
    if snapshot.metadata.partition_columns:
        effect += f", in {things(merge.partitions, 'partition')}"
    notes = [
        f"files under {bytes_text(asked.small_bytes)} are merged into files of up to {bytes_text(asked.target_bytes)}"
    ]
    if asked.zorder_by or asked.full or asked.purge or "delta.clustering" in snapshot.domains:
        notes = []
    cost = look_up(snapshot, asked.zorder_by)
    files_after = None if merge.files_out is None else snapshot.num_files - merge.files_in + merge.files_out
    if cost is not None:
        most = "" if files_after is None else f", at most {count_text(files_after)} after"
        notes.append(f"{cost.look_up_text} now{most}")
    if merge.deleted_rows:
        notes.append(f"{things(merge.deleted_rows, 'row')} that are marked as deleted are dropped from their files")
    if asked.prove_rows:
        notes.append("after it every row is read again, in the old files and in the new ones, and compared")
    notes += [f"{reader.stream} reads the table: no row reaches it again" for reader in users.readers]
    risks = [
        f"{writer.stream} changes rows here ({writer.sink}): where both touch a file at once, this act gives way and "
        "is tried again"
        for writer in users.writers
        if writer.merges and not writer.stopped
    ]
    way_out = "other sizes, partitions or columns may find something"
    if snapshot.metadata.partition_columns:
        way_out += "; a small file alone in its partition stays: coarser partitions would help"
    return ActPreview(
        TableAct(snapshot.ref.uri, snapshot.ref.name, snapshot.version, asked),
        effect,
        {
            "files_in": merge.files_in, "bytes_in": merge.bytes_in, "files_out": merge.files_out,
            "partitions": merge.partitions, "files_before": snapshot.num_files,
            "files_after": files_after,
        },
        tuple(notes),
        tuple(risks),
        way_back=RESTORE_BACK.format(snapshot.version),
        refused="" if merge.files_in else "nothing is to be merged",
        way_out="" if merge.files_in else way_out,
    )  # fmt: skip


def _sized(settings: Settings, lake: Lake, snapshot: Snapshot, asked: Optimize) -> Optimize:
    target = lake.target_bytes(snapshot)
    limit = small_limit(target, settings.health.small_file_ratio)
    return replace(asked, small_bytes=asked.small_bytes or limit, target_bytes=asked.target_bytes or target.bytes)


def _check_columns(snapshot: Snapshot, asked: Optimize) -> None:
    partitions, columns = snapshot.metadata.partition_columns, column_names(snapshot.metadata)
    if other := next((name for name in asked.partition if name not in partitions), None):
        known = f"it is partitioned by {', '.join(partitions)}" if partitions else "it has no partitions"
        raise QueryError(f"{snapshot.ref.name} has no partition column {other!r}", hint=known)
    free = ", ".join(name for name in columns if name not in partitions)
    for name in asked.zorder_by:
        if name in partitions:
            reason = f"rows cannot be laid out by {name!r}: the table is partitioned by it, so a file holds one value"
            raise QueryError(reason, hint=f"the other columns are {free}" if free else "leave it out")
        if name not in columns:
            raise QueryError(f"there is no column {name!r} to lay rows out by", hint=f"there are {free}")
    is_clustered = "delta.clustering" in snapshot.domains
    if asked.full and not is_clustered:
        raise QueryError(f"{snapshot.ref.name} is not clustered, so there is no FULL", hint="leave it out")
    if asked.zorder_by and (is_clustered or asked.purge):
        raise QueryError("ZORDER BY goes with neither clustering nor a purge", hint="leave it out")


# repair ----------------------------------------------------------------------------------------------------------


def plan_repair(
    snapshot: Snapshot, asked: Repair, hit: RowsHit, users: Users, incoming: Incoming | None = None
) -> ActPreview:
    """What the rows become is shown of the first few."""
    rows = "an unknown number" if hit.rows is None else f"{hit.rows:,}"
    becomes = f"get another {' and '.join(asked.values)}" if asked.values else "are deleted"
    notes = [hit.unknown or f"files that hold them, and are rewritten or marked: {hit.files:,}", *hit.samples]
    effect, is_empty, rows_in = f"rows that {becomes}: {rows}", hit.rows == 0, None
    if incoming is not None:
        rows_in = incoming.hit.rows
        coming = "an unknown number" if rows_in is None else f"{rows_in:,}"
        effect = f"rows that go: {rows}; rows of {incoming.source} that come: {coming}"
        is_empty = hit.rows == rows_in == 0
        notes += [incoming.hit.unknown, *(f"of those that come, {sample}" for sample in incoming.hit.samples)]
    notes.append(pause_note(users, stops_writers=asked.stops_writers))
    refused, way_out = why_written(users, stops_writers=asked.stops_writers)
    if incoming is not None and incoming.refused:
        refused, way_out = incoming.refused, incoming.way_out
    elif is_empty:
        refused, way_out = "no row satisfies the condition", "look at the condition again"
    elif is_on(snapshot.metadata.configuration, "delta.appendOnly"):
        refused, way_out = "the table is append-only (delta.appendOnly)", "take the property away first"
    return ActPreview(
        TableAct(snapshot.ref.uri, snapshot.ref.name, snapshot.version, incoming.asked if incoming else asked),
        effect,
        {"rows": hit.rows, "files": hit.files, "rows_before": snapshot.num_rows, "rows_in": rows_in},
        tuple(filter(None, notes)),
        tuple(
            f"{reader.stream} reads the table: "
            + ("it gets the changes" if reader.reads_feed else "it stops at this commit, unless it skips such commits")
            for reader in users.readers
        ),
        way_back=RESTORE_BACK.format(snapshot.version),
        refused=refused,
        way_out=way_out,
        typed=True,
    )
