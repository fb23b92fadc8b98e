"""Changed rows on their way out: those that were fetched, or all of them as they stream past.

Rule: they travel as record batches of `change_schema`, and `backend.sql.export` makes the file. What was cut off is
said beside the data by the caller: `RowChanges.truncated`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from backend.changes.model import RowChange, RowKind, VersionDiff
from backend.sql.export import Format, encoded
from backend.sql.values import json_value

_LEADING = (
    pa.field("change", pa.string()),
    pa.field("changed_columns", pa.list_(pa.string())),
    pa.field("set_apart", pa.string()),
    pa.field("copies", pa.int64()),
)


@dataclass(frozen=True, slots=True)
class ChangedBatches:
    """`batches` of `change_schema(rows)`, paired by the columns `key` (() for none)."""

    rows: pa.Schema
    key: Sequence[str]
    batches: Iterable[pa.RecordBatch]


def change_schema(rows: pa.Schema) -> pa.Schema:
    """How changed rows of a table travel: what changed, then its columns before and after."""
    sides = (field.with_name(f"{side}.{field.name}") for side in ("before", "after") for field in rows)
    return pa.schema([*_LEADING, *(field.with_nullable(True) for field in sides)])


def fetched(diff: VersionDiff) -> ChangedBatches:
    """The rows that a difference holds."""
    lines = [(*_leading(row), *_cells(diff, row)) for row in diff.changes.rows]
    schema = change_schema(diff.changes.arrow_schema)
    columns = [pa.array([line[i] for line in lines], field.type) for i, field in enumerate(schema)]
    key = next((tuple(row.key) for row in diff.changes.rows if row.key), ())
    return ChangedBatches(diff.changes.arrow_schema, key, [pa.record_batch(columns, schema=schema)])


def file_of(changed: ChangedBatches, form: Format) -> Iterator[tuple[int, bytes]]:
    """The file in pieces, each with the rows that it adds. A column has two, one for each side; JSON is as
    `row_document`."""
    schema = change_schema(changed.rows)
    if form.suffix != "json":
        return encoded(pa.RecordBatchReader.from_batches(schema, changed.batches), form)
    no_row = pa.record_batch([pa.array([], kind) for kind in schema.types], schema)
    documents = (_documents(changed, batch) for batch in changed.batches)
    return encoded(pa.RecordBatchReader.from_batches(_documents(changed, no_row).schema, documents), form)


def exported(diff: VersionDiff, form: Format) -> bytes:
    """The rows that a difference holds, as a file of one format."""
    return b"".join(piece for _, piece in file_of(fetched(diff), form))


def row_document(row: RowChange) -> dict[str, Any]:
    """One changed row as JSON can hold it."""
    change, columns, set_apart, copies = _leading(row)
    return {
        "change": change,
        "key": json_value(row.key),
        "before": json_value(row.before),
        "after": json_value(row.after),
        "changed_columns": columns,
        "set_apart": set_apart,
        "copies": copies,
    }


def _documents(changed: ChangedBatches, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a batch with the fields of `row_document`: a row before and after as one value each."""
    names, leading = changed.rows.names, dict(zip(batch.schema.names, batch.columns, strict=True))
    is_new, is_gone = (pc.equal(batch["change"], kind.value) for kind in (RowKind.INSERT, RowKind.DELETE))
    before, after = batch.columns[len(_LEADING) : -len(names)], batch.columns[-len(names) :]
    if changed.key:
        places = [names.index(name) for name in changed.key]
        key = _row(changed.key, [pc.if_else(is_gone, before[place], after[place]) for place in places])
    else:
        key = pa.nulls(batch.num_rows)
    return pa.record_batch({
        "change": batch["change"],
        "key": key,
        "before": _row(names, before, mask=is_new),
        "after": _row(names, after, mask=is_gone),
        **{field.name: leading[field.name] for field in _LEADING[1:]},
    })  # fmt: skip


def _row(names: Sequence[str], columns: Sequence[pa.Array], mask: pa.Array | None = None) -> pa.StructArray:
    return pa.StructArray.from_arrays(columns, names=list(names), mask=mask)


def _leading(row: RowChange) -> tuple[str, list[str], str | None, int]:
    return row.kind.value, list(row.changed), row.set_apart.value if row.set_apart else None, row.copies


def _cells(diff: VersionDiff, row: RowChange) -> tuple[Any, ...]:
    sides = (row.before or {}, row.after or {})
    return tuple(side.get(name) for side in sides for name in diff.changes.columns)
