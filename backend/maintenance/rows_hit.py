"""Which rows a repair would change: counted, and a few of them shown as they are and as they would be.

Rule: reads the files that the condition cannot rule out, for so long as a filter may take; what was not counted is
unknown.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import QueryError
from backend.format import cut, value_text
from backend.lake.lake import Lake
from backend.lake.model import FILE_COLUMNS, Snapshot
from backend.lake.rows.rows import candidates
from backend.lake.table.metadata_diff import column_names
from backend.lake.table.schema import fields
from backend.maintenance.model import Repair
from backend.settings import Settings
from backend.sql.expression import check_value
from backend.sql.filters import computed, fields_of, parse_filter

_SHOWN = 3
_FILE = "_weir_file"


@dataclass(frozen=True, slots=True)
class RowsHit:
    """`rows` and the `files` that hold them; None where counting took too long, then `unknown` says so."""

    rows: int | None
    files: int | None
    samples: tuple[str, ...] = ()
    unknown: str = ""


def count_hit(lake: Lake, snapshot: Snapshot, asked: Repair, settings: Settings) -> RowsHit:
    """Raises `QueryError` for SQL that may not run there, a `TableError` where a file cannot be read."""
    names = column_names(snapshot.metadata)
    where = parse_filter(asked.where, fields(snapshot.metadata))
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


def _samples(rows: pa.Table, asked: Repair) -> list[str]:
    """ "id 7, amount -5.0: amount becomes 5.0"."""
    after = {column: _after(rows, column, text) for column, text in asked.values.items()}
    lines = []
    for number, row in enumerate(rows.to_pylist()):
        was = ", ".join(f"{name} {cut(value_text(value), 30)}" for name, value in list(row.items())[:5])
        becomes = "; ".join(f"{name} becomes {cut(value_text(values[number]), 30)}" for name, values in after.items())
        lines.append(f"such as {was}" + (f": {becomes}" if becomes else ""))
    return lines


def _after(rows: pa.Table, column: str, text: str) -> Mapping[int, object]:
    value = check_value(text, rows.column_names)
    needed = rows.select(fields_of(value, column)).combine_chunks()
    (values,) = computed(value, column, [needed.to_struct_array().combine_chunks()])
    return dict(enumerate(values.to_pylist()))
