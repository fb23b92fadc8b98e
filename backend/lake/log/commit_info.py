"""Commits as people read them: who, when, what, with the metrics of every writer in one vocabulary; each read once.

Rule: `commitInfo` is free text by protocol; whatever is odd in it becomes None and hides nothing else. Counts of files
and bytes that moved come from the commit's own actions, which are exact; rows, and what no action tells, from the
writer's metrics. Spark writes those in camelCase as text, delta-rs in snake_case or camelCase as numbers, and those of
its OPTIMIZE as JSON text. A commit's time is its in-commit timestamp, else its file's, and at least a millisecond after
the commit before it: a clock that was late takes no version away. The writer's own `timestamp` is what it reported, no
more. A version never changes, so it is parsed once; one that could not be read is tried again: it may have been half
written.
Source of times: Delta's `DeltaHistoryManager` (`monotonizeCommitTimestamps`, `getActiveCommitAtTime`). It refuses a
time after the last commit, where Weir answers with the latest version; before the first one, both say that there is
none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import orjson

from backend.caches import Lru
from backend.errors import ObjectMissingError, StorageError, VersionNotFoundError
from backend.lake.log.actions import epoch_ms, in_millis, optional_text, utc_from_ms
from backend.lake.log.commits import CommitRecord, CommitSlice, parse_commits, parse_record
from backend.lake.log.listing import LOG, Step, commit_name, runs_of
from backend.lake.model import Commit, OperationMetrics, StreamOrigin
from backend.lake.storage.folder import Content, Folder, is_remote
from backend.lake.table.properties import is_on

LOOK_BACK = 100  # commits before the first of a run whose times are looked at, as Delta's streams do
IN_COMMIT_TIMES = "delta.enableInCommitTimestamps"
_ENABLED_AT = "delta.inCommitTimestampEnablementVersion"
_LEAST_GAP = timedelta(milliseconds=1)
_ODD_INFO = "its commitInfo is not an object, so who wrote it and why is unknown"


def monotonic(times: Iterable[tuple[int, datetime | None]]) -> dict[int, datetime | None]:
    """The time of each version, oldest first, from its own one; None while none is known."""
    grown: dict[int, datetime | None] = {}
    before: datetime | None = None
    for version, own in times:
        if before is not None and (own is None or own <= before):
            own = before + _LEAST_GAP
        grown[version] = before = own
    return grown


def read_commit(record: CommitRecord, committed_at: datetime | None) -> Commit:
    """A commit for people; `committed_at` as `monotonic` grows it."""
    info = record.commit_info if isinstance(record.commit_info, Mapping) else {}
    raw = info.get("operationMetrics")
    raw_metrics: Mapping[str, Any] = dict(raw) if isinstance(raw, Mapping) else {}
    operation = optional_text(info.get("operation"))
    parameters = info.get("operationParameters")
    return Commit(
        version=record.version,
        committed_at=committed_at,
        reported_at=time_in(info, "timestamp"),
        operation=operation,
        parameters=dict(parameters) if isinstance(parameters, Mapping) else {},
        metrics=normalise_metrics(operation, raw_metrics, record.counts),
        raw_metrics=raw_metrics,
        user=optional_text(info.get("userName")) or optional_text(info.get("userId")),
        engine=_engine(info),
        user_metadata=_user_metadata(info),
        job=_job(info),
        origin=stream_origin(info),
        isolation_level=optional_text(info.get("isolationLevel")),
        read_version=count(info.get("readVersion")),
        is_blind_append=info["isBlindAppend"] if isinstance(info.get("isBlindAppend"), bool) else None,
        problem=record.fault or (None if record.commit_info is None or info is record.commit_info else _ODD_INFO),
        metadata=record.metadata,
        protocol=record.protocol,
        partitions=record.partitions,
        user_id=optional_text(info.get("userId")),
        cluster_id=optional_text(info.get("clusterId")),
    )


def time_in(info: Any, key: str) -> datetime | None:
    """A time of `commitInfo`: "inCommitTimestamp" is the commit's where it has one, "timestamp" what the writer's clock
    said."""
    millis = epoch_ms(info.get(key)) if isinstance(info, Mapping) else None
    return None if millis is None else utc_from_ms(millis)


def stream_origin(info: Mapping[str, Any]) -> StreamOrigin | None:
    """Which stream wrote a commit: Weir's stamp in userMetadata, else the queryId of a micro-batch, which Spark and
    kafka-delta-ingest name with its epochId and outputMode; Trino's is that of one statement."""
    stamp = _object(info.get("userMetadata"))
    stamp = stamp if "stream" in stamp else {}
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
        batch_id=count(stamp.get("batch_id", stamp.get("batch")) if stamp else parameters.get("epochId")),
    )


def _engine(info: Mapping[str, Any]) -> str | None:
    """What wrote: Trino tells it in place of a cluster's id, an engine over delta-kernel may tell the kernel alone."""
    named = optional_text(info.get("engineInfo")) or optional_text(info.get("clientVersion"))
    cluster, kernel = optional_text(info.get("clusterId")), optional_text(info.get("kernelVersion"))
    if named is None and cluster is not None and cluster.startswith("trino-"):
        return cluster
    return named or (f"delta-kernel {kernel}" if kernel else None)


def _object(value: Any) -> Mapping[str, Any]:
    """A JSON object in a text; empty where it is none."""
    if not isinstance(value, str) or not value.startswith("{"):
        return {}
    try:
        document: Mapping[str, Any] = orjson.loads(value)
    except orjson.JSONDecodeError:
        return {}
    return document


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
    if info.keys() <= _OWN_KEYS and value is None:  # of most
        return None
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


# metrics ----------------------------------------------------------------------------------------------------------

# One of ours ← the names that writers use, first found wins.
_NAMES = {
    "rows_inserted": ("numTargetRowsInserted", "num_target_rows_inserted",
                      "numOutputRows", "num_added_rows", "num_output_rows"),
    "rows_updated": ("numTargetRowsUpdated", "num_target_rows_updated", "numUpdatedRows", "num_updated_rows"),
    "rows_deleted": ("numTargetRowsDeleted", "num_target_rows_deleted", "numDeletedRows", "num_deleted_rows"),
    "rows_copied": ("numTargetRowsCopied", "num_target_rows_copied", "numCopiedRows", "num_copied_rows"),
    "rows_source": ("numSourceRows", "num_source_rows"),
    "duration_ms": ("executionTimeMs", "execution_time_ms"),
    "files_added": ("numFiles", "numAddedFiles", "num_added_files", "numTargetFilesAdded", "num_target_files_added",
                    "numFilesAdded", "numRestoredFiles", "num_restored_files", "numRestoredFile"),
    "files_removed": ("numRemovedFiles", "num_removed_files", "numTargetFilesRemoved", "num_target_files_removed",
                      "numFilesRemoved", "numRemovedFile"),
    "bytes_added": ("numOutputBytes", "numAddedBytes", "numTargetBytesAdded", "restoredFilesSize"),
    "bytes_removed": ("numRemovedBytes", "numTargetBytesRemoved", "removedFilesSize"),
    "files_vacuumed": ("numDeletedFiles", "num_deleted_files"),
    "files_to_delete": ("numFilesToDelete", "num_files_to_delete"),
    "bytes_to_delete": ("sizeOfDataToDelete", "size_of_data_to_delete"),
}  # fmt: skip
_RANKS = {name: (ours, rank) for ours, names in _NAMES.items() for rank, name in enumerate(names)}
_COUNTED = ("files_added", "files_removed", "bytes_added", "bytes_removed", "change_files", "change_bytes")
_OF_VACUUM = ("files_vacuumed", "files_to_delete", "bytes_to_delete")
_ROWS_WRITTEN = frozenset({"numOutputRows", "num_added_rows", "num_output_rows"})  # by these operations all are new:
_INSERTING = frozenset((
    "WRITE", "STREAMING UPDATE", "CREATE TABLE AS SELECT", "REPLACE TABLE AS SELECT",
    "CREATE OR REPLACE TABLE AS SELECT", "COPY INTO", "INSERT", "UNKNOWN",
))  # fmt: skip
# Acts that remove files only for rows that they change: "0 rows" beside a removed file is false (delta-rs 1.5 says it).
_NO_ROWS = {"DELETE": "rows_deleted", "UPDATE": "rows_updated"}


def normalise_metrics(
    operation: str | None, raw: Mapping[str, Any], counts: OperationMetrics | None
) -> OperationMetrics:
    """One vocabulary for every writer's metrics; `counts` are of the commit's files, None when it is unreadable."""
    metrics: dict[str, int | None] = {}
    best: dict[str, int] = {}
    for name, value in raw.items():
        if name in _RANKS and (name not in _ROWS_WRITTEN or operation in _INSERTING):
            ours, rank = _RANKS[name]
            if rank < best.get(ours, len(_RANKS)) and (number := count(value)) is not None:
                metrics[ours], best[ours] = number, rank
    if not (operation or "").startswith("VACUUM"):
        for name in best.keys() & _OF_VACUUM:
            del metrics[name]
    for ours, name in (("bytes_added", "filesAdded"), ("bytes_removed", "filesRemoved")):
        if ours not in metrics and name in raw:  # delta-rs's `{"avg":…,"totalSize":…}`, an object or its JSON text
            sizes = raw[name] if isinstance(raw[name], Mapping) else _object(raw[name])
            metrics[ours] = count(sizes.get("totalSize"))
    if counts is None:
        return OperationMetrics(**metrics)
    denied = _NO_ROWS.get(operation or "")
    if denied and counts.files_removed and metrics.get(denied) == 0:
        del metrics[denied]
    exact = {name: getattr(counts, name) for name in _COUNTED}
    metrics |= {name: figure for name, figure in exact.items() if figure is not None}  # else the writer's own stays
    return OperationMetrics(**metrics)


def count(value: Any) -> int | None:
    """A whole number ≥ 0 that a writer left as a number or as text."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if value >= 0 else None
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return None


READ_AT_ONCE = 512  # the text of so many commits is in memory at a time
MOST_ACTIONS = 400_000  # commits differ a thousandfold in size, so files are counted instead
MOST_COMMITS = 20_000


class CommitCache:
    """Not thread-safe by itself: `TableLog` holds its lock around each call."""

    def __init__(self, folder: Folder, listed: Mapping[int, datetime]) -> None:
        self._folder = folder
        self._listed = listed  # when commit files were written, where a listing told it
        self._times: Lru[int, datetime | None] = Lru(MOST_COMMITS)
        self._slices: Lru[Step, CommitSlice] = Lru(MOST_ACTIONS, lambda commit: commit.length)
        self._history: Lru[int, Commit] = Lru(MOST_COMMITS)

    def read(self, steps: Iterable[Step]) -> list[CommitSlice]:
        """Commits and log compactions in the order asked for; raises `VersionNotFoundError` when one is gone."""
        wanted = list(steps)
        slices: dict[Step, CommitSlice] = {}
        for start in range(0, len(wanted), READ_AT_ONCE):
            batch = wanted[start : start + READ_AT_ONCE]
            slices |= self._slices.find(batch)
            missing = [step for step in batch if step not in slices or slices[step].record.fault]
            if missing:
                fresh = dict(zip(missing, parse_commits(self._contents(missing)), strict=True))
                # Together: whoever rebuilds a version asks for all of them again at once, for its files.
                self._slices.put_all(fresh)
                slices |= fresh
        return [slices[step] for step in wanted]

    def records(self, versions: Iterable[int]) -> list[CommitRecord]:
        """What commits say beside their files, in the order asked for; raises as `read` does."""
        wanted = list(versions)
        parsed = self._slices.find(Step(v, v) for v in wanted)
        cached = {step.last: commit.record for step, commit in parsed.items()}
        missing = [Step(v, v) for v in wanted if v not in cached or cached[v].fault]
        for version, _, content in self._contents(missing):
            cached[version] = parse_record(version, content)
        return [cached[v] for v in wanted]

    def commits(self, versions: Iterable[int]) -> list[Commit]:
        """Commits for people, in the order asked for; raises as `read` does."""
        wanted = list(versions)
        cached = self._history.find(wanted)
        missing = [v for v in wanted if v not in cached or cached[v].problem]
        records = self.records(missing)
        times = self._committed(records)
        fresh = {record.version: read_commit(record, times[record.version]) for record in records}
        self._history.put_all(fresh)
        cached |= fresh
        return [cached[v] for v in wanted]

    def committed_at(self, versions: Iterable[int]) -> dict[int, datetime | None]:
        """When versions were committed, as `monotonic` grows it; raises as `read` does."""
        wanted = list(versions)
        times = self._times.find(wanted)
        return times | self._committed(self.records(v for v in wanted if v not in times))

    def version_at(self, when: datetime, versions: Sequence[int], configuration: Mapping[str, str]) -> int | None:
        """The newest of these versions (ascending) that was committed at or before `when`; None when all are younger.

        `configuration` is the latest version's: with in-commit timestamps, which grow by themselves, a few commits are
        read; else all commit files are asked for their times.
        """

        def is_after(version: int, times: Mapping[int, datetime | None]) -> bool:
            moment = times[version]
            return moment is None or moment > when

        timed: Sequence[int] = ()  # those with a time of their own
        if is_on(configuration, IN_COMMIT_TIMES):
            enabled_at = configuration.get(_ENABLED_AT, "")
            first = int(enabled_at) if enabled_at.isascii() and enabled_at.isdigit() else 0
            timed = versions[bisect_left(versions, first) :]
        if at := bisect_right(timed, False, key=lambda version: is_after(version, self.committed_at([version]))):
            return timed[at - 1]
        rest = versions[: len(versions) - len(timed)]
        own = self.file_times(rest)
        times = monotonic((version, own.get(version)) for version in rest)
        return next((version for version in reversed(rest) if not is_after(version, times)), None)

    def file_times(self, versions: Sequence[int]) -> dict[int, datetime]:
        """When commit files were written; on an object store as far as a listing told it."""
        if is_remote(self._folder.uri):
            return {version: in_millis(self._listed[version]) for version in versions if version in self._listed}
        entries = self._folder.stat_many([f"{LOG}/{commit_name(version)}" for version in versions])
        stamped = ((version, entry and entry.modified_at) for version, entry in zip(versions, entries, strict=True))
        return {version: in_millis(modified_at) for version, modified_at in stamped if modified_at}

    def _committed(self, records: Sequence[CommitRecord]) -> dict[int, datetime | None]:
        times = {record.version: time_in(record.commit_info, "inCommitTimestamp") for record in records}
        untimed = [record for record in records if times[record.version] is None]
        listed = self._listed  # finer on some stores than what comes with an object
        by_file = {r.version: in_millis(listed[r.version]) if r.version in listed else r.modified_at for r in untimed}
        for first, last in runs_of(sorted(by_file)):
            before = self._times.find([first - 1]) or self.file_times(range(max(0, first - LOOK_BACK), first))
            run = {version: by_file[version] for version in range(first, last + 1)}
            grown = monotonic(sorted((before | run).items()))
            times |= {version: grown[version] for version in run}
        self._times.put_all(times)
        return times

    def _contents(self, steps: Sequence[Step]) -> list[tuple[int, str, Content]]:
        """Of each step's file: the version that it leads to, its name, what it holds."""
        contents = self._folder.read_many([f"{LOG}/{step.name}" for step in steps]) if steps else []
        pairs = []
        for step, content in zip(steps, contents, strict=True):
            if isinstance(content, ObjectMissingError):
                raise VersionNotFoundError(
                    f"commit {step.last} of {self._folder.uri} is gone", hint="it was cleaned while it was read"
                ) from content
            if isinstance(content, StorageError):
                raise content
            pairs.append((step.last, step.name, content))
        return pairs
