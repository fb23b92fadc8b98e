"""A repair: which rows it would change, replace or delete, counted and a few of them shown.

Rule: reads the files that the condition cannot rule out, for so long as a filter may take; what was not counted is
unknown. Rows that come from a former version or another table come as they are: where columns differ, nothing is
guessed.
"""

import time
from dataclasses import replace
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import QueryError
from backend.format import cut, value_text
from backend.lake.lake import Lake
from backend.lake.model import FILE_COLUMNS, Snapshot
from backend.lake.retention.answers import Reach, judge_version
from backend.lake.retention.runs import judge
from backend.lake.rows.rows import candidates
from backend.lake.table.properties import is_on
from backend.lake.table.schema import column_kinds, column_names, columns
from backend.maintenance.model import RESTORE_BACK, ActPreview, Alter, Repair, RowsHit, TableAct
from backend.maintenance.readers import Users
from backend.settings import Settings
from backend.sql.expression import check_value
from backend.sql.filters import computed, fields_of, parse_filter

_SHOWN = 3
_FILE = "_weir_file"


def preview_repair(
    lake: Lake, snapshot: Snapshot, asked: Repair, users: Users, settings: Settings, now: datetime
) -> ActPreview:
    """What the rows become is shown of the first few. Raises as `count_hit`, and where there is no such table or
    version to take rows from."""
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
    notes.append(users.pause_note(stops_writers=asked.stops_writers))
    refused, way_out = users.why_written(stops_writers=asked.stops_writers)
    if no_source:
        refused, way_out = no_source, way_on
    elif hit.rows == 0 and (coming is None or coming.rows == 0):
        refused, way_out = "no row satisfies the condition", "look at the condition again"
    elif is_on(snapshot.metadata.configuration, "delta.appendOnly"):
        refused, way_out = "the table is append-only (delta.appendOnly)", "take the property away first"
    return ActPreview(
        TableAct(snapshot.ref.uri, snapshot.ref.name, snapshot.version, asked),
        effect,
        {
            "rows": hit.rows, "files": hit.files, "rows_before": snapshot.num_rows,
            "rows_in": coming.rows if coming else None,
        },
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
    )  # fmt: skip


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
        way_out = "repair with --set, or change the columns first: weir alter"
        return asked, then, f"the columns of {name} are others: {others}", way_out
    travel = judge_version(judge(lake.retention_facts(ref), now), version).time_travel
    if travel.verdict is Reach.NO:
        return asked, then, travel.reasons[0], "choose a later version"
    return asked, then, "", ""


def count_hit(lake: Lake, snapshot: Snapshot, asked: Repair, settings: Settings) -> RowsHit:
    """Raises `QueryError` for SQL that may not run there, a `TableError` where a file cannot be read."""
    names = column_names(snapshot.metadata)
    where = parse_filter(asked.where, columns(snapshot.metadata))
    if where is None:
        raise QueryError("a repair needs a condition", hint="such as amount < 0")
    for column, text in asked.values.items():
        if column not in names:
            raise QueryError(f"there is no column {column!r} to set", hint=f"the columns are {', '.join(names)}")
        check_value(text, names)
    ends_at = time.monotonic() + settings.lake.filter_time_limit_s
    rows, files, first = 0, set[int](), list[pa.RecordBatch]()
    asked_of = snapshot.rows_at(candidates(snapshot, where), FILE_COLUMNS)
    for batch in lake.read_files(snapshot, asked_of, columns=[*names, _FILE], where=where, numbered=_FILE):
        if sum(map(len, first)) < _SHOWN and len(batch):
            first.append(batch.slice(0, _SHOWN))
        rows += len(batch)
        files |= set(pc.unique(batch[_FILE]).to_pylist())
        if time.monotonic() > ends_at:
            why = "how many rows they are takes too long to count here; the host counts them before it changes any"
            return RowsHit(None, None, unknown=why)
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
