"""Whether row tracking can tell which rows of two versions are one and the same, and what the answer then looks like.

Rule: pure. A row's id is written beside it once it was moved (in a hidden column), and before that
follows from its file: the file's base row id and the row's number in it (PROTOCOL.md, "Row Tracking").
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from backend.diff.compare import NetAnswer
from backend.diff.export import ChangedBatches, change_schema
from backend.diff.model import DiffMethod, KeyChoice, KeySource, RowChange
from backend.diff.read_stream import DiffInput
from backend.errors import UnsupportedFeatureError
from backend.lake.model import Snapshot
from backend.lake.rows.local_files import LocalFiles
from backend.lake.table.properties import is_row_tracked

ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
ROW_ID = "_row_id"  # the ids as a column of the rows compared
BY_ROW_ID = (DiffMethod.ROW_ID, DiffMethod.SPARK_CHANGES)


def why_no_row_ids(given: DiffInput) -> str | None:
    """Why rows cannot be paired by their ids; None where they can."""
    if not given.is_one_table:
        return "two tables number their rows apart"
    off = [f"v{each.version}" for each in _by_age(given) if not is_row_tracked(each.metadata)]
    if off:
        return f"row tracking is off at {' and '.join(off)}"
    if len({each.metadata.configuration.get(ID_COLUMN) for each in (given.first, given.second)}) > 1:
        return "row tracking was set up anew in between: rows got other ids"
    if ROW_ID in given.columns:
        return f"the table has a column {ROW_ID} of its own"
    return None


def why_no_changes(given: DiffInput) -> str | None:
    """Why Spark's CHANGES clause cannot answer; None where it can."""
    if (reason := why_no_row_ids(given)) is not None:
        return reason
    return None if given.schema.is_empty else "the schema changed in between"


def with_row_ids(given: DiffInput, files: tuple[LocalFiles, LocalFiles] | None) -> tuple[LocalFiles, LocalFiles]:
    """The files of both sides, each of which has to tell its rows' ids; raises `UnsupportedFeatureError`."""
    if files is None:
        raise UnsupportedFeatureError(
            f"row ids of {given.first.ref.name} are not read from an object store", hint="compare on the stream host"
        )
    for (snapshot, _), side in zip(given.states(), files, strict=True):
        base = side.files["base_row_id"]
        if base.null_count:
            raise UnsupportedFeatureError(
                f"{base.null_count:,} of {len(base):,} files of v{snapshot.version} without a base row id: "
                "tracking began later",
                hint="compare by key",
            )
    return files


def named_by(key: KeyChoice | None, answer: NetAnswer) -> NetAnswer:
    """An answer whose rows were paired by `ROW_ID`, its last column: rows go by the table's key where it has one, and
    then their ids are left out. One without that column was paired by a key that was given, and stays."""
    if ROW_ID not in answer.arrow_schema.names:
        return answer
    if key is None:
        return replace(answer, rows=tuple(replace(row, key=None) for row in answer.rows))
    columns = [field for field in answer.arrow_schema if field.name != ROW_ID]
    return replace(answer, rows=tuple(_rows_by(key, answer)), arrow_schema=pa.schema(columns))


def batches_named_by(key: KeyChoice | None, changed: ChangedBatches) -> ChangedBatches:
    """The same for all rows on their way out."""
    if key is None:
        return replace(changed, key=())
    rows = pa.schema([field for field in changed.rows if field.name != ROW_ID])
    names = change_schema(rows).names
    return ChangedBatches(rows, key.columns, (batch.select(names) for batch in changed.batches))


def row_id_key() -> KeyChoice:
    return KeyChoice((ROW_ID,), KeySource.ROW_TRACKING)


def _rows_by(key: KeyChoice, answer: NetAnswer) -> Iterator[RowChange]:
    for row in answer.rows:
        before, after = _without_id(row.before), _without_id(row.after)
        values = after or before or {}
        yield replace(row, before=before, after=after, key={name: values[name] for name in key.columns})


def _without_id(values: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return None if values is None else {name: value for name, value in values.items() if name != ROW_ID}


def _by_age(given: DiffInput) -> list[Snapshot]:
    return sorted((given.first, given.second), key=lambda each: each.version)
