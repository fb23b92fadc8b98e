"""Commits as people read them: who, when, what, with the metrics of every writer in one vocabulary.

Rule: `commitInfo` is free text by protocol; whatever is odd in it becomes None and hides nothing else. Counts of files
and bytes that a writer left out are taken from the commit's own actions, which are exact.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from backend.lake.log.actions import epoch_ms, optional_text, utc_from_ms
from backend.lake.log.commit_metrics import count, first_count, normalise_metrics
from backend.lake.log.commits import CommitRecord
from backend.lake.model import Commit, StreamOrigin


def read_commit(record: CommitRecord, modified_at: datetime | None) -> Commit:
    """A commit for people. `modified_at` is the file's time, used when the commit names none."""
    info = record.commit_info if isinstance(record.commit_info, Mapping) else {}
    raw = info.get("operationMetrics")
    raw_metrics: Mapping[str, Any] = dict(raw) if isinstance(raw, Mapping) else {}
    operation = optional_text(info.get("operation"))
    parameters = info.get("operationParameters")
    return Commit(
        version=record.version,
        committed_at=committed_at(info) or modified_at,
        operation=operation,
        parameters=dict(parameters) if isinstance(parameters, Mapping) else {},
        metrics=normalise_metrics(operation, raw_metrics, None if record.problem else record.counts),
        raw_metrics=raw_metrics,
        user=optional_text(info.get("userName")) or optional_text(info.get("userId")),
        engine=optional_text(info.get("engineInfo")) or optional_text(info.get("clientVersion")),
        user_metadata=_user_metadata(info),
        job=_job(info),
        origin=stream_origin(info),
        isolation_level=optional_text(info.get("isolationLevel")),
        read_version=count(info.get("readVersion")),
        is_blind_append=info["isBlindAppend"] if isinstance(info.get("isBlindAppend"), bool) else None,
        problem=record.problem or _info_problem(record.commit_info),
        metadata=record.metadata,
        protocol=record.protocol,
    )


def committed_at(info: Any) -> datetime | None:
    """When a commit happened: its in-commit timestamp, else the writer's own `timestamp`."""
    if not isinstance(info, Mapping):
        return None
    for key in ("inCommitTimestamp", "timestamp"):
        millis = epoch_ms(info.get(key))
        if millis is not None:
            return utc_from_ms(millis)
    return None


def stream_origin(info: Mapping[str, Any]) -> StreamOrigin | None:
    """Which stream wrote a commit: Weir's stamp in userMetadata, else Spark's queryId and epochId."""
    stamp = _stamp(info.get("userMetadata"))
    parameters = info.get("operationParameters")
    parameters = parameters if isinstance(parameters, Mapping) else {}
    query_id = optional_text(parameters.get("queryId"))
    if not stamp and query_id is None:
        return None
    return StreamOrigin(
        stream=optional_text(stamp.get("stream")),
        query_id=query_id or optional_text(stamp.get("query_id") or stamp.get("query")),
        run_id=optional_text(stamp.get("run_id") or stamp.get("run")),
        batch_id=first_count(stamp, ("batch_id", "batch")) if stamp else count(parameters.get("epochId")),
    )


def _stamp(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, str) or not value.startswith("{"):
        return {}
    try:
        stamp = orjson.loads(value)
    except orjson.JSONDecodeError:
        return {}
    return stamp if isinstance(stamp, dict) and "stream" in stamp else {}


# What Spark and delta-rs write at the top of commitInfo themselves; any text beside it is delta-rs's custom metadata.
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
    """What a scheduler's platform (Databricks) says of the run: "job nightly load, run 77, notebook 12"."""
    job, notebook = (value if isinstance(value, Mapping) else {} for value in (info.get("job"), info.get("notebook")))
    parts = {
        "job": job.get("jobName") or job.get("jobId"),
        "run": job.get("runId") or job.get("jobRunId"),
        "notebook": notebook.get("notebookPath") or notebook.get("notebookId"),
    }
    parts_named = [f"{name} {value}" for name, value in parts.items() if isinstance(value, str | int) and str(value)]
    return ", ".join(parts_named) or None


def _info_problem(info: Any) -> str | None:
    if info is None or isinstance(info, Mapping):
        return None
    return "its commitInfo is not an object, so who wrote it and why is unknown"
