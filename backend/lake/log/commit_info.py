"""Commits as people read them: who, when, what, with the metrics of every writer in one vocabulary.

Rule: `commitInfo` is free text by protocol; whatever is odd in it becomes None and hides nothing else. Counts of files
and bytes that moved come from the commit's own actions, which are exact; rows, and what no action tells, from the
writer's metrics. Spark writes those in camelCase as text, delta-rs in snake_case or camelCase as numbers, and those of
its OPTIMIZE as JSON text.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from backend.lake.log.actions import epoch_ms, optional_text, utc_from_ms
from backend.lake.log.commits import CommitRecord, FileCounts
from backend.lake.model import Commit, OperationMetrics, StreamOrigin


def read_commit(record: CommitRecord, committed_at: datetime | None) -> Commit:
    """A commit for people; `committed_at` as `commit_times` tells it."""
    info = record.commit_info if isinstance(record.commit_info, Mapping) else {}
    raw = info.get("operationMetrics")
    raw_metrics: Mapping[str, Any] = dict(raw) if isinstance(raw, Mapping) else {}
    operation = optional_text(info.get("operation"))
    parameters = info.get("operationParameters")
    return Commit(
        version=record.version,
        committed_at=committed_at,
        reported_at=reported_at(info),
        operation=operation,
        parameters=dict(parameters) if isinstance(parameters, Mapping) else {},
        metrics=normalise_metrics(operation, raw_metrics, None if record.problem else record.counts),
        raw_metrics=raw_metrics,
        user=optional_text(info.get("userName")) or optional_text(info.get("userId")),
        engine=_engine(info),
        user_metadata=_user_metadata(info),
        job=_job(info),
        origin=stream_origin(info),
        isolation_level=optional_text(info.get("isolationLevel")),
        read_version=count(info.get("readVersion")),
        is_blind_append=info["isBlindAppend"] if isinstance(info.get("isBlindAppend"), bool) else None,
        problem=record.fault or _info_problem(record.commit_info),
        metadata=record.metadata,
        protocol=record.protocol,
        partitions=record.counts.partitions,
        user_id=optional_text(info.get("userId")),
        cluster_id=optional_text(info.get("clusterId")),
    )


def in_commit_time(info: Any) -> datetime | None:
    """The in-commit timestamp, which is the commit's time where it has one."""
    return _moment(info, "inCommitTimestamp")


def reported_at(info: Any) -> datetime | None:
    """When the writer's clock says that it wrote."""
    return _moment(info, "timestamp")


def _moment(info: Any, key: str) -> datetime | None:
    millis = epoch_ms(info.get(key)) if isinstance(info, Mapping) else None
    return None if millis is None else utc_from_ms(millis)


def stream_origin(info: Mapping[str, Any]) -> StreamOrigin | None:
    """Which stream wrote a commit: Weir's stamp in userMetadata, else the queryId of a micro-batch, which Spark and
    kafka-delta-ingest name with its epochId and outputMode; Trino's is that of one statement."""
    stamp = _stamp(info.get("userMetadata"))
    parameters = info.get("operationParameters")
    parameters = parameters if isinstance(parameters, Mapping) else {}
    is_batch = info.get("operation") == "STREAMING UPDATE" or not parameters.keys().isdisjoint(_BATCH_PARAMETERS)
    query_id = optional_text(parameters.get("queryId")) if is_batch else None
    if not stamp and query_id is None:
        return None
    return StreamOrigin(
        stream=optional_text(stamp.get("stream")),
        query_id=query_id or optional_text(stamp.get("query_id") or stamp.get("query")),
        run_id=optional_text(stamp.get("run_id") or stamp.get("run")),
        batch_id=first_count(stamp, ("batch_id", "batch")) if stamp else count(parameters.get("epochId")),
    )


def _engine(info: Mapping[str, Any]) -> str | None:
    """What wrote: Trino tells it in place of a cluster's id, an engine over delta-kernel may tell the kernel alone."""
    named = optional_text(info.get("engineInfo")) or optional_text(info.get("clientVersion"))
    cluster, kernel = optional_text(info.get("clusterId")), optional_text(info.get("kernelVersion"))
    if named is None and cluster is not None and cluster.startswith("trino-"):
        return cluster
    return named or (f"delta-kernel {kernel}" if kernel else None)


def _stamp(value: Any) -> Mapping[str, Any]:
    stamp = _object(value)
    return stamp if "stream" in stamp else {}


def _object(value: Any) -> Mapping[str, Any]:
    """A JSON object in a text; empty where it is none."""
    if not isinstance(value, str) or not value.startswith("{"):
        return {}
    try:
        found = orjson.loads(value)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


_BATCH_PARAMETERS = ("epochId", "outputMode")
# What engines write at the top of commitInfo themselves; any text beside it is delta-rs's custom metadata.
_OWN_KEYS = frozenset(
    (
        "timestamp",
        "inCommitTimestamp",
        "operation",
        "operationParameters",
        "operationMetrics",
        "userId",
        "userName",
        "userMetadata",
        "clusterId",
        "readVersion",
        "isolationLevel",
        "isBlindAppend",
        "engineInfo",
        "clientVersion",
        "txnId",
        "tags",
        "queryHistoryId",
        "version",
        "kernelVersion",
    )
)
_OWN_OBJECTS = frozenset(("job", "notebook"))


def _user_metadata(info: Mapping[str, Any]) -> str | None:
    value = info.get("userMetadata")
    if isinstance(value, str):
        return value or None
    custom = {
        str(key): text
        for key, text in info.items()
        if key not in _OWN_KEYS and text is not None and not (key in _OWN_OBJECTS and isinstance(text, Mapping))
    }
    if value is not None:
        custom["userMetadata"] = value
    return orjson.dumps(custom, default=str).decode() if custom else None


def _job(info: Mapping[str, Any]) -> str | None:
    """What a scheduler's platform (Databricks) says of the run: "job nightly load, run 77, notebook 12"; else the `job`
    that the writer noted."""
    job, notebook = (value if isinstance(value, Mapping) else {} for value in (info.get("job"), info.get("notebook")))
    noted = info.get("job") if isinstance(info.get("job"), str) else _object(info.get("userMetadata")).get("job")
    parts = {
        "job": job.get("jobName") or job.get("jobId") or noted,
        "run": job.get("runId") or job.get("jobRunId"),
        "notebook": notebook.get("notebookPath") or notebook.get("notebookId"),
    }
    parts_named = [f"{name} {value}" for name, value in parts.items() if isinstance(value, str | int) and str(value)]
    return ", ".join(parts_named) or None


def _info_problem(info: Any) -> str | None:
    if info is None or isinstance(info, Mapping):
        return None
    return "its commitInfo is not an object, so who wrote it and why is unknown"


# metrics ----------------------------------------------------------------------------------------------------------

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
_VACUUMED_FILES = ("numDeletedFiles", "num_deleted_files")
_FILES_TO_DELETE = ("numFilesToDelete", "num_files_to_delete")
_BYTES_TO_DELETE = ("sizeOfDataToDelete", "size_of_data_to_delete")
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
    denied = _NO_ROWS.get(operation or "") if counts is not None and counts.files_removed else None
    if denied and named_counts.get(denied) == 0:
        del named_counts[denied]
    return OperationMetrics(
        rows_inserted=named_counts.get("rows_inserted"),
        rows_updated=named_counts.get("rows_updated"),
        rows_deleted=named_counts.get("rows_deleted"),
        rows_copied=named_counts.get("rows_copied"),
        rows_source=named_counts.get("rows_source"),
        duration_ms=named_counts.get("duration_ms"),
        files_vacuumed=first_count(raw, _VACUUMED_FILES) if is_vacuum else None,
        files_to_delete=first_count(raw, _FILES_TO_DELETE) if is_vacuum else None,
        bytes_to_delete=first_count(raw, _BYTES_TO_DELETE) if is_vacuum else None,
        **(_said_files(raw) if counts is None else _moved_files(counts, raw)),
    )


def _ranked(**names: tuple[str, ...]) -> dict[str, tuple[str, int]]:
    """Per name of a writer's: which of ours it is, and its rank among the names of the same."""
    return {name: (ours, rank) for ours, all_names in names.items() for rank, name in enumerate(all_names)}


_ROWS = {"rows_updated": _UPDATED, "rows_deleted": _DELETED, "rows_copied": _COPIED, "rows_source": _SOURCE}
# Acts that remove files only for rows that they change: "0 rows" beside a removed file is false (delta-rs 1.5 says it).
_NO_ROWS = {"DELETE": "rows_deleted", "UPDATE": "rows_updated"}
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
        "change_files": counts.change_files or None,
        "change_bytes": counts.change_bytes or None,
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
