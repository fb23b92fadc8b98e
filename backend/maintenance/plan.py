"""What an act on a table would do, whether it may be done, and what helps where it may not. Of a repair: which rows it
would change, replace or delete, counted and a few of them shown.

Rule: it reads and never writes. An act is refused where it would lose what somebody needs. Rows are counted in the
files that the condition cannot rule out, for as long as a filter may take; what was not counted is unknown. Rows that
come from a former version or another table come as they are: where columns differ, nothing is guessed. What one commit
did to rows is told by their contents in the files that it replaced; how often a row is there counts.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import JobError, QueryError
from backend.format import bytes_text, count_text, cut, duration_text, things, value_text
from backend.jobs.model import Job, JobKind, JobState
from backend.lake.lake import Lake
from backend.lake.model import FILE_COLUMNS, Snapshot, TableRef
from backend.lake.retention.answers import Reach, judge_version
from backend.lake.retention.runs import judge
from backend.lake.rows.rows import candidates
from backend.lake.table.properties import is_on
from backend.lake.table.schema import column_kinds, column_names, columns
from backend.maintenance.alter import checked_alter, plan_alter
from backend.maintenance.clone_and_drop import plan_drop, preview_clone, preview_dropped
from backend.maintenance.files import preview_optimize, preview_vacuum
from backend.maintenance.model import (
    RESTORE_BACK,
    ActPreview,
    ActResult,
    Alter,
    Arguments,
    Clone,
    Drop,
    Lift,
    Optimize,
    Purge,
    Repair,
    Restore,
    Rewind,
    RowsHit,
    TableAct,
    Undrop,
    Vacuum,
)
from backend.maintenance.places import commit_risk, why_out_of_reach, why_read_only
from backend.maintenance.readers import Users, load_users
from backend.maintenance.restore import preview_restore, preview_rewind
from backend.settings import Settings
from backend.sql.expression import check_value
from backend.sql.filters import computed, fields_of, parse_filter
from backend.sql.session import Computation
from backend.sql.values import quoted_name
from backend.store.store import ControlStore
from backend.work import Stopped

_UNCOUNTED = "how many rows they are takes too long to count here; the host counts them before it changes any"
_JOBS_READ, _ACTS_MEASURED = 100, 3
_SHOWN = 3  # of the rows that a repair hits
_FILE = "_weir_file"
_SIDE, _BEFORE, _AFTER, _NOW = "_weir_side", "_weir_before", "_weir_after", "_weir_now"
# How often each row was there before and after a commit, of the files that it replaced, and is now; what of it goes.
_OF_COMMIT = f"""
WITH counted AS MATERIALIZED (
  SELECT {{columns}}, count(*) FILTER ({_SIDE} = 0) AS {_BEFORE}, count(*) FILTER ({_SIDE} = 1) AS {_AFTER},
    count(*) FILTER ({_SIDE} = 2) AS {_NOW} FROM rows GROUP BY {{columns}}),
told AS MATERIALIZED (
  SELECT *, {_AFTER} > {_BEFORE} AND {_NOW} > 0 AS is_hit, greatest(0, {_AFTER} - {_BEFORE}) AS written,
    greatest(0, least({_BEFORE} - {_AFTER}, {_BEFORE} - {_NOW})) AS back FROM counted)
SELECT struct_pack(
  hit := sum({_NOW}) FILTER (is_hit), stays := sum({_NOW} - least({_NOW}, written)) FILTER (is_hit),
  back := sum(back), gone := sum(greatest(0, written - {_NOW})),
  samples := (SELECT list(r) FROM (
    SELECT struct_pack({{packed}}) AS r FROM told WHERE is_hit OR back > 0 ORDER BY is_hit DESC LIMIT {_SHOWN})))
FROM told"""


def load_preview(
    settings: Settings, lake: Lake, store: ControlStore | None, name: str, arguments: Arguments, *, now: datetime
) -> ActPreview:
    """The preview of an act on a table, named or by its URI, with everyone who uses it. Raises as `preview` does,
    `TableNotFoundError` and `StoreError`."""
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


# repair ------------------------------------------------------------------------------------------------------------


def preview_repair(
    lake: Lake, snapshot: Snapshot, asked: Repair, users: Users, settings: Settings, now: datetime
) -> ActPreview:
    """What the rows become is shown of the first few. Raises as `count_hit`, and where there is no such table or
    version to take rows from."""
    if asked.of_commit is not None:
        return _preview_of_commit(lake, snapshot, asked, users, settings, now)
    hit = count_hit(lake, snapshot, asked, settings)
    coming: RowsHit | None = None
    becomes = f"get another {' and '.join(asked.values)}" if asked.values else "are deleted"
    notes = [hit.unknown or f"files that hold them, and are rewritten or marked: {hit.files:,}", *hit.samples]
    effect, no_source, way_on = f"rows that {becomes}: {hit.rows_text}", "", ""
    if asked.takes_rows:
        asked, source, no_source, way_on = _source(lake, snapshot, asked, now)
        coming = RowsHit(None, None) if no_source else count_hit(lake, source, Repair(asked.where), settings)
        name = f"v{source.version}" if asked.from_table is None else f"{source.ref.name} v{source.version}"
        effect = f"rows that go: {hit.rows_text}; rows of {name} that come: {coming.rows_text}"
        notes += [coming.unknown, *(f"of those that come, {sample}" for sample in coming.samples)]
    if not no_source and hit.rows == 0 and (coming is None or coming.rows == 0):
        no_source, way_on = "no row satisfies the condition", "look at the condition again"
    figures = {"rows": hit.rows, "files": hit.files, "rows_in": coming.rows if coming else None}
    return _repair_planned(snapshot, asked, users, effect, figures, notes, (no_source, way_on))


def _repair_planned(
    snapshot: Snapshot, asked: Repair, users: Users, effect: str, figures: Mapping[str, int | None],
    notes: Iterable[str], why_not: tuple[str, str],
) -> ActPreview:  # fmt: skip
    """`why_not`: nothing can be repaired, and what helps."""
    refused, way_out, lifts = users.why_written(stops_writers=asked.stops_writers)
    if why_not[0]:
        refused, way_out, lifts = *why_not, ()
    elif is_on(snapshot.metadata.configuration, key := "delta.appendOnly"):
        refused, way_out = f"the table is append-only ({key})", "take the property away first"
        lifts = (Lift("alter", (snapshot.ref.name, "--unset", key)),)
    return ActPreview(
        TableAct(snapshot.ref.uri, snapshot.ref.name, snapshot.version, asked),
        effect,
        {**figures, "rows_before": snapshot.num_rows},
        tuple(filter(None, (*notes, users.pause_note(stops_writers=asked.stops_writers)))),
        tuple(
            f"{reader.stream} reads the table: "
            + ("it gets the changes" if reader.reads_feed else "it stops at this commit, unless it skips such commits")
            for reader in users.readers
        ),
        way_back=RESTORE_BACK.format(snapshot.version),
        refused=refused,
        way_out=way_out,
        lifts=lifts,
        typed=True,
    )  # fmt: skip


def _preview_of_commit(
    lake: Lake, snapshot: Snapshot, asked: Repair, users: Users, settings: Settings, now: datetime
) -> ActPreview:
    """How many rows of the commit are still there as it wrote them, and how many that satisfy the condition are not its
    own and stay."""
    version = asked.of_commit or 0
    if asked.takes_rows or version < 1:
        raise QueryError(f"what v{version} did cannot be repaired so", hint="name a later commit, and no other source")
    all_hit = count_hit(lake, snapshot, asked, settings)
    _, before, why, way_out = _source(lake, snapshot, Repair(from_version=version - 1), now)
    told: Mapping[str, Any] | None = None
    if not why and any("map<" in kind for kind in column_kinds(snapshot.metadata).values()):
        why, way_out = "rows with a map cannot be told apart", "name the rows by a condition alone"
    elif not why:
        with suppress(Stopped, QueryError):  # too long, or more contents than memory holds
            told = _rows_of_commit(lake, snapshot, asked, (before, lake.snapshot(snapshot.ref, version)), settings)
    if told is None:
        effect = f"rows that v{version} wrote are repaired: an unknown number"
        notes = [all_hit.unknown or _UNCOUNTED]
        return _repair_planned(snapshot, asked, users, effect, {"rows": None}, notes, (why, way_out))
    hit, stays, back, gone = (int(told[name] or 0) for name in ("hit", "stays", "back", "gone"))
    samples = _samples(told["samples"], asked)
    figures = {"rows": hit} | ({} if asked.values else {"rows_in": stays + back})
    if asked.values:
        effect = f"rows of v{version} that get another {' and '.join(asked.values)}: {hit:,}"
    else:
        effect = f"rows that v{version} wrote and that go: {hit - stays:,}; that it took away and that come: {back:,}"
    notes = []
    if all_hit.rows is not None:
        others = all_hit.rows - (hit if asked.values else hit - stays)
        rows = f"{all_hit.rows_text} rows{' that satisfy the condition' if asked.where.strip() else ''}"
        notes.append(f"innocent and left as they are, since v{version} did not write them so: {others:,} of {rows}")
    commits = lake.history(snapshot.ref, starting_version=version, ending_version=version)
    if (
        asked.where.strip()
        and not asked.values
        and hit - stays != back
        and any(c.metrics.rows_updated for c in commits)
    ):
        notes.append(
            f"not as many come as go: v{version} updated rows, which may satisfy this before it or after it alone"
        )
    if gone:
        notes.append(f"{things(gone, 'row')} of v{version} were changed or deleted since, and stay so")
    nothing = ("", "") if hit + back else (f"nothing that v{version} did to these rows is left", "look at them again")
    return _repair_planned(snapshot, asked, users, effect, figures, [*notes, *samples], nothing)


def _rows_of_commit(
    lake: Lake, snapshot: Snapshot, asked: Repair, ends: tuple[Snapshot, Snapshot], settings: Settings
) -> Mapping[str, Any]:
    """What `_OF_COMMIT` tells; raises `Stopped` where reading takes too long."""
    ends_at, names = time.monotonic() + settings.lake.filter_time_limit_s, column_names(snapshot.metadata)
    where = parse_filter(asked.where, columns(snapshot.metadata))
    difference = lake.file_difference(snapshot.ref, ends[0].version, ends[1].version)
    latest = None if where is None else snapshot.rows_at(candidates(snapshot, where), FILE_COLUMNS)
    sides = ((ends[0], difference.only_first), (ends[1], difference.only_second), (snapshot, latest))
    readers = [lake.read_files(side, files, columns=names, where=where, as_of=snapshot) for side, files in sides]
    schema = readers[0].schema

    def batches() -> Iterator[pa.RecordBatch]:
        for number, reader in enumerate(readers):
            for batch in reader:
                if time.monotonic() > ends_at:
                    raise Stopped
                columns_of = [*batch.cast(schema).columns, pa.array([number] * len(batch), pa.int8())]
                yield pa.RecordBatch.from_arrays(columns_of, schema=with_side)

    with_side = schema.append(pa.field(_SIDE, pa.int8()))
    quoted = [quoted_name(name) for name in names]
    packed = ", ".join(f"{name} := {name}" for name in quoted)
    sql = _OF_COMMIT.format(columns=", ".join(quoted), packed=packed)
    told: Mapping[str, Any] = Computation().run(sql, pa.RecordBatchReader.from_batches(with_side, batches()))
    return {**told, "samples": pa.Table.from_pylist(told["samples"] or [], schema=schema)}


def _source(lake: Lake, snapshot: Snapshot, asked: Repair, now: datetime) -> tuple[Repair, Snapshot, str, str]:
    """The repair with the table and version that it takes rows from by now, that version, and why its rows cannot be
    taken, with what helps."""
    if asked.values:
        raise QueryError("rows that come from elsewhere come as they are", hint="leave out --set, or --from-…")
    ref = lake.find(asked.from_table) if asked.from_table else snapshot.ref
    version = lake.latest_version(ref) if asked.from_version is None else asked.from_version
    is_own = ref.uri == snapshot.ref.uri
    asked = replace(asked, from_version=version, from_table=None if is_own else ref.uri)
    then, name = lake.snapshot(ref, version), f"v{version}" if is_own else f"{ref.name} v{version}"
    if is_own and version == snapshot.version:
        return asked, then, f"{name} is the latest version", "choose an earlier one"
    here, there = column_kinds(snapshot.metadata), column_kinds(then.metadata)
    if odd := [column for column in {**here, **there} if here.get(column) != there.get(column)]:
        others = "; ".join(f"{c} {there.get(c, 'missing')}, here {here.get(c, 'missing')}" for c in odd)
        way_out = "set new values instead, or change the columns first"
        return asked, then, f"the columns of {name} are others: {others}", way_out
    travel = judge_version(judge(lake.retention_facts(ref), now), version).time_travel
    if travel.verdict is Reach.NO:
        return asked, then, travel.reasons[0], "choose a later version"
    return asked, then, "", ""


def count_hit(lake: Lake, snapshot: Snapshot, asked: Repair, settings: Settings) -> RowsHit:
    """Raises `QueryError` for SQL that may not run there, a `TableError` where a file cannot be read."""
    names = column_names(snapshot.metadata)
    where = parse_filter(asked.where, columns(snapshot.metadata))
    if where is None and asked.of_commit is None:
        raise QueryError("a repair needs a condition", hint="such as amount < 0")
    for column, text in asked.values.items():
        if column not in names:
            raise QueryError(f"there is no column {column!r} to set", hint=f"the columns are {', '.join(names)}")
        check_value(text, names)
    if where is None:
        return RowsHit(snapshot.num_rows, snapshot.num_files)
    ends_at = time.monotonic() + settings.lake.filter_time_limit_s
    rows, files, first = 0, set[int](), list[pa.RecordBatch]()
    asked_of = snapshot.rows_at(candidates(snapshot, where), FILE_COLUMNS)
    for batch in lake.read_files(snapshot, asked_of, columns=[*names, _FILE], where=where, numbered=_FILE):
        if sum(map(len, first)) < _SHOWN and len(batch):
            first.append(batch.slice(0, _SHOWN))
        rows += len(batch)
        files |= set(pc.unique(batch[_FILE]).to_pylist())
        if time.monotonic() > ends_at:
            return RowsHit(None, None, unknown=_UNCOUNTED)
    shown = pa.Table.from_batches(first).slice(0, _SHOWN).drop_columns([_FILE]) if first else None
    return RowsHit(rows, len(files), () if shown is None else tuple(_samples(shown, asked)))


def violations(lake: Lake, snapshot: Snapshot, asked: Alter, settings: Settings) -> dict[str, RowsHit]:
    """The rows that are there and violate a new constraint, by its name; as for Delta, unknown is a violation."""
    return {
        name: count_hit(lake, snapshot, Repair(f"NOT coalesce((\n{text}\n), false)"), settings)
        for name, text in asked.add_constraints.items()
    }


def _samples(rows: pa.Table, asked: Repair) -> list[str]:
    """ "id 7, amount -5.0: amount becomes 5.0"."""
    after, lines = dict[str, list[object]](), list[str]()
    for column, text in asked.values.items():
        value = check_value(text, rows.column_names)
        needed = rows.select(fields_of(value, column)).combine_chunks()
        (values,) = computed(value, column, [needed.to_struct_array().combine_chunks()])
        after[column] = values.to_pylist()
    for number, row in enumerate(rows.to_pylist()):
        was = ", ".join(f"{name} {cut(value_text(value), 30)}" for name, value in list(row.items())[:5])
        becomes = "; ".join(f"{name} becomes {cut(value_text(values[number]), 30)}" for name, values in after.items())
        lines.append(f"such as {was}" + (f": {becomes}" if becomes else ""))
    return lines
