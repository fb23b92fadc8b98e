"""Changed rows as CSV, JSON or Parquet: those that were fetched, or all of them as they stream past.

Rule: a spreadsheet that opens the CSV runs nothing, and no format changes a value's digits. Rows travel as record
batches of `change_schema`; what was cut off is said beside the data by the caller: `VersionDiff.truncated`.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import orjson
import pyarrow as pa

from backend.changes.model import RowChange, RowKind, VersionDiff
from backend.sql.spreadsheet import safe_text
from backend.sql.values import json_value

_LEADING = (
    pa.field("change", pa.string()),
    pa.field("changed_columns", pa.list_(pa.string())),
    pa.field("set_apart", pa.string()),
    pa.field("copies", pa.int64()),
)


@dataclass(frozen=True, slots=True)
class ChangedBatches:
    """Changed rows on their way out: `batches` of `change_schema(rows)`, paired by the columns `key` (() for none)."""

    rows: pa.Schema
    key: Sequence[str]
    batches: Iterable[pa.RecordBatch]


Write = Callable[[BinaryIO, ChangedBatches], None]


def change_schema(rows: pa.Schema) -> pa.Schema:
    """How changed rows of a table travel: what changed, then its columns before and after."""
    sides = (field.with_name(f"{side}.{field.name}") for side in ("before", "after") for field in rows)
    return pa.schema([*_LEADING, *(field.with_nullable(True) for field in sides)])


def fetched(diff: VersionDiff) -> ChangedBatches:
    """The rows that a difference holds."""
    lines = [(*_leading(row), *_cells(diff, row)) for row in diff.rows]
    schema = change_schema(diff.arrow_schema)
    columns = [pa.array([line[i] for line in lines], field.type) for i, field in enumerate(schema)]
    key = next((tuple(row.key) for row in diff.rows if row.key), ())
    return ChangedBatches(diff.arrow_schema, key, [pa.record_batch(columns, schema=schema)])


def exported(diff: VersionDiff, write: Write) -> bytes:
    """The rows that a difference holds, as a file of one format."""
    sink = io.BytesIO()
    write(sink, fetched(diff))
    return sink.getvalue()


def write_csv(sink: BinaryIO, changed: ChangedBatches) -> None:
    """One line a changed row with `before.*` and `after.*` columns; UTF-8 with a byte-order mark for spreadsheets.

    Text that a spreadsheet would take for a formula gets an apostrophe in front; null is an empty cell.
    """
    text = io.TextIOWrapper(sink, "utf-8-sig", newline="", write_through=True)
    writer = csv.writer(text)
    writer.writerow([safe_text(name) for name in change_schema(changed.rows).names])
    for batch in changed.batches:
        writer.writerows([_csv_cell(cell) for cell in line] for line in _lines(batch))
    text.detach()


def write_json(sink: BinaryIO, changed: ChangedBatches) -> None:
    """A list of changed rows, each as `row_document` has it."""
    gap = b"[\n"
    for batch in changed.batches:
        for line in _lines(batch):
            sink.write(gap + orjson.dumps(_document(changed, line)))
            gap = b",\n"
    sink.write(b"\n]\n" if gap == b",\n" else b"[]\n")


def write_parquet(sink: BinaryIO, changed: ChangedBatches) -> None:
    """The same columns as the CSV, with the table's own types."""
    import pyarrow.parquet as pq  # late: every CLI command imports this module, few write Parquet

    with pq.ParquetWriter(sink, change_schema(changed.rows)) as writer:
        for batch in changed.batches:
            writer.write_batch(batch)


WRITERS: Mapping[str, Write] = {"csv": write_csv, "json": write_json, "parquet": write_parquet}


def row_document(row: RowChange) -> dict[str, Any]:
    """One changed row as JSON can hold it."""
    return _as_document(_leading(row), row.key, row.before, row.after)


def _document(changed: ChangedBatches, line: tuple[Any, ...]) -> dict[str, Any]:
    """As `row_document`, of a row of a batch."""
    leading, cells = line[: len(_LEADING)], line[len(_LEADING) :]
    names = changed.rows.names
    before = None if leading[0] == RowKind.INSERT else dict(zip(names, cells[: len(names)], strict=True))
    after = None if leading[0] == RowKind.DELETE else dict(zip(names, cells[len(names) :], strict=True))
    whole = after or before or {}
    key = {name: whole[name] for name in changed.key} if changed.key else None
    return _as_document(leading, key, before, after)


def _as_document(leading: tuple[Any, ...], key: Any, before: Any, after: Any) -> dict[str, Any]:
    change, columns, set_apart, copies = leading
    return {
        "change": change,
        "key": json_value(key),
        "before": json_value(before),
        "after": json_value(after),
        "changed_columns": columns,
        "set_apart": set_apart,
        "copies": copies,
    }


def _lines(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _leading(row: RowChange) -> tuple[str, list[str], str | None, int]:
    return row.kind.value, list(row.changed), row.set_apart.value if row.set_apart else None, row.copies


def _cells(diff: VersionDiff, row: RowChange) -> tuple[Any, ...]:
    sides = (row.before or {}, row.after or {})
    return tuple(side.get(name) for side in sides for name in diff.columns)


def _csv_cell(value: Any) -> Any:
    """Numbers as they are, text made safe, nested values as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, int | float):
        return value
    plain = json_value(value)
    return safe_text(plain if isinstance(plain, str) else orjson.dumps(plain, option=orjson.OPT_NON_STR_KEYS).decode())
