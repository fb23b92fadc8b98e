"""Changed rows as CSV, JSON or Parquet.

Rule: a spreadsheet that opens the CSV runs nothing, and no format changes a value's digits. In CSV and JSON a row that
was cut off is said beside the data by the caller: `VersionDiff.truncated`.
"""

import csv
import io
from typing import Any

import orjson
import pyarrow as pa

from backend.diff.model import RowChange, VersionDiff
from backend.diff.values import json_value

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_LEADING = ("change", "changed_columns", "set_apart", "copies")


def to_csv(diff: VersionDiff) -> bytes:
    """One line a changed row with `before.*` and `after.*` columns; UTF-8 with a byte-order mark for spreadsheets.

    Text that a spreadsheet would take for a formula gets an apostrophe in front; null is an empty cell.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([_safe(name) for name in _header(diff)])
    for row in diff.rows:
        writer.writerow([_csv_cell(cell) for cell in (*_leading(row), *_cells(diff, row))])
    return b"\xef\xbb\xbf" + text.getvalue().encode("utf-8")


def to_json(diff: VersionDiff) -> bytes:
    """A list of changed rows, see `row_document`."""
    return orjson.dumps([row_document(row) for row in diff.rows], option=orjson.OPT_INDENT_2)


def row_document(row: RowChange) -> dict[str, Any]:
    """One changed row as JSON can hold it."""
    return {
        "change": row.kind.value,
        "key": json_value(row.key),
        "before": json_value(row.before),
        "after": json_value(row.after),
        "changed_columns": list(row.changed),
        "set_apart": row.set_apart.value if row.set_apart else None,
        "copies": row.copies,
    }


def to_parquet(diff: VersionDiff) -> bytes:
    """The same columns as the CSV, with the table's own types."""
    import pyarrow.parquet as pq  # late: every CLI command imports this module, few write Parquet

    types: list[pa.DataType] = [pa.string(), pa.list_(pa.string()), pa.string(), pa.int64()]
    types += [field.type for field in diff.arrow_schema] * 2
    schema = pa.schema(list(zip(_header(diff), types, strict=True)))
    lines = [(*_leading(row), *_cells(diff, row)) for row in diff.rows]
    columns = [pa.array([line[i] for line in lines], field.type) for i, field in enumerate(schema)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), sink)
    return bytes(sink.getvalue().to_pybytes())


def _header(diff: VersionDiff) -> tuple[str, ...]:
    before = tuple(f"before.{name}" for name in diff.columns)
    return (*_LEADING, *before, *(f"after.{name}" for name in diff.columns))


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
    return _safe(plain if isinstance(plain, str) else orjson.dumps(plain, option=orjson.OPT_NON_STR_KEYS).decode())


def _safe(text: str) -> str:
    """Text that no spreadsheet takes for a formula. A number kept as text (a decimal) stays one."""
    if not text.startswith(_FORMULA_STARTS):
        return text
    return text if _is_number(text) else f"'{text}"


def _is_number(text: str) -> bool:
    digits = text[1:] if text[:1] in "+-" else text
    return digits.isascii() and digits.replace(".", "", 1).isdigit()
