"""A difference that a stream host finds with Spark: the question as a job, its result table as an answer.

Rule: the log part is prepared here as for every other method; only rows are counted elsewhere. What Spark cannot honour
is refused before a job is asked for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from backend.diff.answer import with_answer, with_commits
from backend.diff.compare import NetAnswer
from backend.diff.feed import Gross
from backend.diff.job_work import COMMON, SUMMARY, DiffSummary, DiffWork, StateWanted, summary_of, to_json
from backend.diff.model import (
    WHOLE_ROWS,
    ApartCounts,
    CommonChange,
    DiffMethod,
    KeySource,
    NetCounts,
    Partial,
    RowChange,
    RowKind,
    VersionDiff,
    ended_words,
)
from backend.diff.prepare import PreparedDiff
from backend.diff.rows import APART, ORDER
from backend.diff.values import same
from backend.duckdb_session import CancelToken
from backend.errors import DiffError, JobError, JobResultMissingError, ObjectMissingError, TableError
from backend.jobs.model import Job, JobKind, JobRequest, JobState
from backend.lake.lake import Lake
from backend.lake.model import Snapshot, TableRef
from backend.lake.storage.paths import normal_uri
from backend.settings import Settings

COMPUTED = "computed"  # so begins the reason that says who did it
_COLUMNS = ("what", "place", "n", "detail", "before", "after")
_NOT_ON_HOST = (DiffMethod.LOG_ONLY, DiffMethod.SAME_VERSION)


class ResultLake(Protocol):
    """The part of `backend.lake.lake.Lake` that reads results."""

    def snapshot(self, ref: TableRef, version: int | None = None) -> Snapshot: ...

    def scan(self, snapshot: Snapshot, columns: list[str]) -> pa.RecordBatchReader: ...


def results_lake(settings: Settings) -> Lake:
    """A lake of the folder that hosts write results to, and of nothing else."""
    lake = settings.lake.model_copy(update={"roots": [settings.results_uri]})
    return Lake(settings.model_copy(update={"lake": lake}))


def diff_work(prepared: PreparedDiff) -> DiffWork:
    """What the host would be told; raises `DiffError` for what it cannot do."""
    options, plan, sides = prepared.options, prepared.plan, prepared.sides
    methods = tuple(method for method in plan.methods if method not in _NOT_ON_HOST)
    if not methods:
        raise DiffError(
            f"nothing to compare on the stream host: {'; '.join(plan.reasons(plan.method))}", hint=plan.hint
        )
    return DiffWork(
        _state(sides.first),
        _state(sides.second),
        prepared.columns,
        plan.key.columns if plan.key else (),
        plan.key is not None and plan.key.source is KeySource.GIVEN,
        methods,
        options.method is not None,
        sides.as_of is None,
        options.row_limit,
        options.tolerance,
        sides.size_bytes,
        (sides.first.num_rows, sides.second.num_rows),
        options.where,
    )


def job_request(prepared: PreparedDiff, *, actor: str, reason: str, time_limit_s: float) -> JobRequest:
    """The job that would answer; raises as `diff_work` does."""
    work = diff_work(prepared)
    first, second = work.first, work.second
    subject = prepared.sides.first.ref.name
    said = reason.strip() or f"compare v{first.version} with v{second.version}"
    return JobRequest(JobKind.DIFF, subject, work.fingerprint, to_json(work), actor, said, time_limit_s)


def read_answer(lake: ResultLake, settings: Settings, prepared: PreparedDiff, job: Job) -> VersionDiff:
    """The difference that a job found, whole or, where it was ended, what it had found by then; raises `JobError` where
    it found none, `JobResultMissingError`."""
    if job.result_uri is None:
        raise JobError(f"job {job.job_id} has no result: it is {job.state}", hint=job.hint)
    root = normal_uri(settings.results_uri)
    ref = TableRef(normal_uri(job.result_uri), job.job_id, root)
    try:
        rows = lake.scan(lake.snapshot(ref), list(_COLUMNS)).read_all()
    except (TableError, ObjectMissingError) as exc:
        raise JobResultMissingError(
            f"the result of job {job.job_id} cannot be read: {exc.message}", hint="compare again"
        ) from exc
    summary = summary_of(_detail(rows))
    gross = None if summary.gross is None else Gross.of_rows(summary.gross)
    answer = replace(_answer(prepared, summary, rows), partial=_partial(job, summary))
    found = with_answer(prepared, summary.method, answer, gross=gross, failed=summary.failed)
    if gross is None and found.partial is None:
        found = with_commits(prepared, found, CancelToken())
    return replace(found, reasons=(*found.reasons, f"{COMPUTED} {summary.by}"))


def _partial(job: Job, summary: DiffSummary) -> Partial | None:
    if (so_far := summary.so_far) is None:
        return None
    ended = ended_words(is_cancelled=job.state is JobState.CANCELLED, time_limit_s=job.time_limit_s)
    told = Partial(ended, so_far.rows_read, so_far.rows_total, so_far.differing)
    return told if summary.key else replace(told, unit=WHOLE_ROWS)


def _state(snapshot: Snapshot) -> StateWanted:
    return StateWanted(snapshot.ref.uri, snapshot.version, snapshot.metadata.id)


def _detail(rows: pa.Table) -> str:
    found = [d for w, d in zip(rows["what"].to_pylist(), rows["detail"].to_pylist(), strict=True) if w == SUMMARY]
    if not found:
        raise JobError("the result of the job holds no summary", hint="compare again")
    return str(found[0])


def _answer(prepared: PreparedDiff, summary: DiffSummary, rows: pa.Table) -> NetAnswer:
    found = [row for row in rows.to_pylist() if row["what"] != SUMMARY]
    order = {bucket: place for place, bucket in enumerate(ORDER)}
    changed = sorted((row for row in found if row["what"] in order), key=lambda r: (order[r["what"]], r["place"]))
    common = sorted((row for row in found if row["what"] == COMMON), key=lambda row: row["place"])
    return NetAnswer(
        NetCounts(*summary.net),
        ApartCounts(*summary.apart),
        tuple(_change(summary, row, prepared.options.tolerance) for row in changed),
        summary.truncated,
        {name: summary.changed_cells[name] for name in summary.columns if name in summary.changed_cells},
        tuple(_common(summary, row) for row in common),
        _schema(summary, rows.schema),
    )


def _change(summary: DiffSummary, row: Mapping[str, Any], tolerance: float) -> RowChange:
    before, after = (_cells(summary, row[side]) for side in ("before", "after"))
    cells = after if after is not None else before or {}
    changed = tuple(_differing(before, after, tolerance)) if before is not None and after is not None else ()
    kind = RowKind.UPDATE if row["what"] == "update" else RowKind.INSERT if before is None else RowKind.DELETE
    key = {name: cells[name] for name in summary.key} if summary.key else None
    return RowChange(kind, key, before, after, changed, APART.get(row["what"]), row["n"])


def _differing(before: Mapping[str, Any], after: Mapping[str, Any], tolerance: float) -> Iterator[str]:
    return (name for name in after if not same(before[name], after[name], tolerance))


def _common(summary: DiffSummary, row: Mapping[str, Any]) -> CommonChange:
    place, name = int(row["detail"]), summary.columns[int(row["detail"])]
    return CommonChange(name, row["before"][f"c{place}"], row["after"][f"c{place}"], row["n"])


def _cells(summary: DiffSummary, cells: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if cells is None else {name: cells[f"c{i}"] for i, name in enumerate(summary.columns)}


def _schema(summary: DiffSummary, rows: pa.Schema) -> pa.Schema:
    kinds = {field.name: field.type for field in rows.field("after").type}
    return pa.schema([(name, kinds[f"c{i}"]) for i, name in enumerate(summary.columns)])
