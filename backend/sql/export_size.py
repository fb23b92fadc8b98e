"""How large a file of all rows will be, from a sample of them: said before anybody waits for it.

Rule: a number of rows that the log counts is exact. Else it is estimated from sampled files that were read whole, or
unknown.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backend.lake.model import FILE_COLUMNS, Snapshot
from backend.lake.rows.filters import Node
from backend.lake.rows.rows import candidates
from backend.lake.storage.paths import is_remote
from backend.sql.export import FORMATS, encoded

SAMPLE_ROWS, SAMPLE_FILES, SAMPLE_S = 20_000, 8, 1.0


class RowReader(Protocol):
    """The part of `backend.lake.lake.Lake` that samples rows."""

    def read_files(
        self, snapshot: Snapshot, files: pa.Table, *, columns: Sequence[str] | None = None, where: Node | None = None
    ) -> pa.RecordBatchReader: ...


@dataclass(frozen=True, slots=True)
class SizeEstimate:
    """`rows`: None where it is unknown. `sizes_bytes`: by format, None where a size is. `sampled_files` is None where
    the sample are the rows that a page shows."""

    rows: int | None
    is_counted: bool
    sizes_bytes: Mapping[str, int | None]
    sampled_rows: int
    sampled_files: int | None


@dataclass(frozen=True, slots=True)
class _Sample:
    """`whole_rows` of files that were read to their end, which are `whole_bytes` large."""

    rows: pa.Table
    files: int
    whole_rows: int
    whole_bytes: int


def estimated(
    lake: RowReader, snapshot: Snapshot, columns: Sequence[str], where: Node | None, *, seen: pa.Table
) -> SizeEstimate:
    """Reads some rows (at most `SAMPLE_S` or so); on an object store `seen` is the sample, which a page has read."""
    counted = snapshot.num_rows if where is None else None
    if is_remote(snapshot.ref.uri):
        return SizeEstimate(counted, counted is not None, _sizes(seen, counted), seen.num_rows, None)
    numbers = candidates(snapshot, where)
    files = snapshot.rows_at(numbers, FILE_COLUMNS)
    sample = _sample(lake, snapshot, files, columns, where)
    rows = counted
    if rows is None and not len(numbers):
        rows = 0
    elif rows is None and sample.whole_bytes:
        rows = round(sample.whole_rows * (pc.sum(files["size_bytes"]).as_py() / sample.whole_bytes))
    is_counted = counted is not None or (sample.files == len(numbers) and sample.whole_rows == sample.rows.num_rows)
    return SizeEstimate(rows, is_counted, _sizes(sample.rows, rows), sample.rows.num_rows, sample.files)


def _sample(
    lake: RowReader, snapshot: Snapshot, files: pa.Table, columns: Sequence[str], where: Node | None
) -> _Sample:
    """Rows of files that are evenly spread."""
    until = time.monotonic() + SAMPLE_S
    chosen = sorted({round(n) for n in np.linspace(0, max(0, len(files) - 1), min(SAMPLE_FILES, len(files)))})
    batches: list[pa.RecordBatch] = []
    found = opened = whole_rows = whole_bytes = 0
    schema = lake.read_files(snapshot, files.slice(0, 0), columns=columns).schema
    for number in chosen:
        of_file, is_whole = 0, True
        for batch in lake.read_files(snapshot, files.slice(number, 1), columns=columns, where=where):
            batches.append(batch)
            of_file += batch.num_rows
            if found + of_file >= SAMPLE_ROWS or time.monotonic() > until:
                is_whole = False
                break
        found, opened = found + of_file, opened + 1
        if is_whole:
            whole_rows, whole_bytes = whole_rows + of_file, whole_bytes + files["size_bytes"][number].as_py()
        if not is_whole or time.monotonic() > until:
            break
    return _Sample(pa.Table.from_batches(batches, schema), opened, whole_rows, whole_bytes)


def _sizes(sample: pa.Table, rows: int | None) -> dict[str, int | None]:
    if rows is None or (rows and not sample.num_rows):
        return dict.fromkeys(FORMATS)
    part = sample.slice(0, SAMPLE_ROWS)
    found: dict[str, int | None] = {}
    for name, form in FORMATS.items():
        size = sum(len(piece) for _, piece in encoded(part.to_reader(), form))
        found[name] = round(size * rows / part.num_rows) if part.num_rows else size
    return found
