"""What a commit did, in one vocabulary for every writer.

Rule: files and bytes that moved come from the commit's own actions, which are exact; rows, and what no action tells,
from the writer's metrics, which are free text: whatever is odd in them is unknown.
Names: Spark writes camelCase and text, delta-rs snake_case or camelCase and numbers, its OPTIMIZE objects as JSON text.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from backend.lake.log.commits import FileCounts
from backend.lake.model import OperationMetrics

# One of ours ← the names that writers use, first found wins.
_MERGE_INSERTED = ("numTargetRowsInserted", "num_target_rows_inserted")
_INSERTED = (*_MERGE_INSERTED, "numOutputRows", "num_added_rows", "num_output_rows")
_UPDATED = ("numTargetRowsUpdated", "num_target_rows_updated", "numUpdatedRows", "num_updated_rows")
_DELETED = ("numTargetRowsDeleted", "num_target_rows_deleted", "numDeletedRows", "num_deleted_rows")
_COPIED = ("numTargetRowsCopied", "num_target_rows_copied", "numCopiedRows", "num_copied_rows")
_SOURCE = ("numSourceRows", "num_source_rows")
_DURATION = ("executionTimeMs", "execution_time_ms")
_ADDED_FILES = (
    "numFiles", "numAddedFiles", "num_added_files", "numTargetFilesAdded", "num_target_files_added", "numFilesAdded",
    "numRestoredFiles", "num_restored_files", "numRestoredFile",
)  # fmt: skip
_REMOVED_FILES = (
    "numRemovedFiles", "num_removed_files", "numTargetFilesRemoved", "num_target_files_removed", "numFilesRemoved",
    "numRemovedFile",
)  # fmt: skip
_ADDED_BYTES = ("numOutputBytes", "numAddedBytes", "numTargetBytesAdded", "restoredFilesSize")
_REMOVED_BYTES = ("numRemovedBytes", "numTargetBytesRemoved", "removedFilesSize")
_VACUUMED_FILES = ("numDeletedFiles", "num_deleted_files", "numFilesToDelete", "num_files_to_delete")
_VACUUMED_BYTES = ("sizeOfDataToDelete", "size_of_data_to_delete")
_INSERTING = frozenset(
    {
        "WRITE",
        "STREAMING UPDATE",
        "CREATE TABLE AS SELECT",
        "REPLACE TABLE AS SELECT",
        "CREATE OR REPLACE TABLE AS SELECT",
        "COPY INTO",
        "INSERT",
        "UNKNOWN",
    }
)


def normalise_metrics(operation: str | None, raw: Mapping[str, Any], counts: FileCounts | None) -> OperationMetrics:
    """One vocabulary for every writer's metrics; `counts` are of the commit's files, None when it is unreadable."""
    is_vacuum = (operation or "").startswith("VACUUM")
    named_counts = _first_counts(raw, _INSERTING_RANKS if operation in _INSERTING else _RANKS)
    return OperationMetrics(
        rows_inserted=named_counts.get("rows_inserted"),
        rows_updated=named_counts.get("rows_updated"),
        rows_deleted=named_counts.get("rows_deleted"),
        rows_copied=named_counts.get("rows_copied"),
        rows_source=named_counts.get("rows_source"),
        duration_ms=named_counts.get("duration_ms"),
        files_vacuumed=first_count(raw, _VACUUMED_FILES) if is_vacuum else None,
        bytes_vacuumed=first_count(raw, _VACUUMED_BYTES) if is_vacuum else None,
        **(_said_files(raw) if counts is None else _moved_files(counts, raw)),
    )


def _ranked(**names: tuple[str, ...]) -> dict[str, tuple[str, int]]:
    """Per name of a writer's: which of ours it is, and its rank among the names of the same."""
    return {name: (ours, rank) for ours, all_names in names.items() for rank, name in enumerate(all_names)}


_ROWS = {"rows_updated": _UPDATED, "rows_deleted": _DELETED, "rows_copied": _COPIED, "rows_source": _SOURCE}
_RANKS = _ranked(rows_inserted=_MERGE_INSERTED, duration_ms=_DURATION, **_ROWS)
_INSERTING_RANKS = _ranked(rows_inserted=_INSERTED, duration_ms=_DURATION, **_ROWS)


def _first_counts(raw: Mapping[str, Any], ranks: Mapping[str, tuple[str, int]]) -> dict[str, int]:
    """`first_count` for all of ours in one look at what a writer left."""
    ranked: dict[str, int] = {}
    best: dict[str, int] = {}
    for name, value in raw.items():
        if name in ranks and (number := count(value)) is not None:
            ours, rank = ranks[name]
            if rank < best.get(ours, len(ranks)):
                ranked[ours], best[ours] = number, rank
    return ranked


def first_count(raw: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """The first of these names that holds a whole number ≥ 0."""
    return next((number for name in names if (number := count(raw.get(name))) is not None), None)


def count(value: Any) -> int | None:
    """A whole number ≥ 0 that a writer left as a number or as text."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if value >= 0 else None
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return None


def _moved_files(counts: FileCounts, raw: Mapping[str, Any]) -> dict[str, int | None]:
    """From the actions; removes that name no size leave the writer's own figure."""
    removed = counts.bytes_removed
    return {
        "files_added": counts.files_added,
        "files_removed": counts.files_removed,
        "bytes_added": counts.bytes_added,
        "bytes_removed": _said_files(raw)["bytes_removed"] if removed is None else removed,
    }


def _said_files(raw: Mapping[str, Any]) -> dict[str, int | None]:
    """What the writer says it moved."""
    added, removed = _size_text(raw.get("filesAdded")), _size_text(raw.get("filesRemoved"))
    return {
        "files_added": first_count(raw, _ADDED_FILES),
        "files_removed": first_count(raw, _REMOVED_FILES),
        "bytes_added": _or(first_count(raw, _ADDED_BYTES), added),
        "bytes_removed": _or(first_count(raw, _REMOVED_BYTES), removed),
    }


def _size_text(value: Any) -> int | None:
    """`totalSize` in delta-rs's `{"avg":…,"totalSize":…}`, an object or its JSON text."""
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            return None
    return count(value.get("totalSize")) if isinstance(value, Mapping) else None


def _or(first: int | None, second: int | None) -> int | None:
    return second if first is None else first
