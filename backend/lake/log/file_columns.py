"""File actions as Arrow columns.

Rule: one block of columns for many commits, no object per file.
"""

from collections.abc import Sequence
from functools import cache
from threading import Lock
from typing import Any

import pyarrow as pa

# A file as the reader keeps it: model.files_schema with the partition encoded, and the key that identifies it.
FILE_FIELDS = (
    pa.field("key", pa.string(), nullable=False),
    pa.field("path", pa.string(), nullable=False),
    pa.field("size_bytes", pa.int64()),
    pa.field("num_records", pa.int64()),
    pa.field("deleted_rows", pa.int64(), nullable=False),
    pa.field("modified_at", pa.timestamp("ms", tz="UTC")),  # of a remove: when its file was removed
    pa.field("encoded_partition", pa.string(), nullable=False),
    pa.field("dv_id", pa.string()),
    pa.field("dv_path", pa.string()),
    pa.field("stats", pa.string()),  # the JSON text as the log holds it
    pa.field("base_row_id", pa.int64()),  # row tracking: the id of the file's first row
)
FILES = pa.schema(FILE_FIELDS)
ACTIONS = pa.schema(
    (
        pa.field("version", pa.int64()),
        pa.field("kind", pa.int8()),
        pa.field("data_change", pa.bool_()),
        pa.field("is_encoded", pa.bool_()),  # the log writes the path with percent signs
        *FILE_FIELDS,
    )
)


_first = Lock()


@cache
def _look_for_pandas() -> None:
    """Arrow does so at its first conversion, and two threads that do it at once fail: here one goes first."""
    with _first:
        pa.array([""])


def action_table(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Rows of `file_action` as a table of `ACTIONS`."""
    _look_for_pandas()
    if not rows:
        return ACTIONS.empty_table()
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, f.type) for column, f in zip(columns, ACTIONS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=ACTIONS)


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of `ACTIONS`, one behind the other."""
    _look_for_pandas()
    return pa.concat_tables(tables).combine_chunks() if tables else ACTIONS.empty_table()
