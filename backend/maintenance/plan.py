"""What an act on a table would do, whether it may be done, and what helps where it may not.

Rule: it reads and never writes. An act is refused where it would lose what somebody needs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from backend.errors import JobError
from backend.format import bytes_text, count_text, duration_text
from backend.jobs.model import Job, JobKind, JobState
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.maintenance.alter import checked_alter, plan_alter
from backend.maintenance.clone_and_drop import plan_drop, preview_clone, preview_dropped
from backend.maintenance.files import preview_optimize, preview_vacuum
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
from backend.maintenance.repair import preview_repair, violations
from backend.maintenance.restore import preview_restore, preview_rewind
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
            planned = preview_optimize(lake, snapshot, arguments, users, settings)
        case Vacuum():
            planned = preview_vacuum(lake, snapshot, arguments, users, now)
        case Restore():
            planned = preview_restore(lake, snapshot, arguments, users, now, store)
        case Rewind():
            planned = preview_rewind(settings, lake, store, snapshot, arguments, users, now=now)
        case Repair():
            planned = preview_repair(lake, snapshot, arguments, users, settings, now)
        case Alter():
            asked = checked_alter(snapshot.metadata, arguments)
            planned = plan_alter(snapshot, asked, violations(lake, snapshot, asked, settings), users)
        case Clone():
            planned = preview_clone(settings, lake, snapshot, arguments, now)
        case Drop():
            planned = plan_drop(settings, snapshot, users)
    why = why_read_only(settings, snapshot.ref.uri)
    if why or "catalogManaged" in snapshot.protocol.features:
        why = why or "a catalog decides its commits: act through the catalog"
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
