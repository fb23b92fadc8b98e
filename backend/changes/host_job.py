"""A difference that a stream host finds with Spark: the question as a job, its result table as an answer.

Rule: the log part is prepared here as for every other method; only rows are counted elsewhere. What Spark cannot honour
is refused before a job is asked for. Question and summary are plain values that both processes read alike: the same
question about the same tables is the same text, so its hash names the job that answers it.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from backend.access import Actor
from backend.caches import Lru
from backend.cells import row_cells
from backend.changes.answer import Answered, answer_of, commits_by_feed, explained_rows, outline
from backend.changes.changed_rows import APART, ORDER, RowBucket, bucket_sizes, count_apart, count_net
from backend.changes.commits import Gross, net_without_key
from backend.changes.compare import SIGN, Pairing
from backend.changes.model import (
    CommonChange,
    DiffMethod,
    Explanation,
    KeySource,
    NetCounts,
    Partial,
    Question,
    RowChange,
    RowChanges,
    RowKind,
    VersionDiff,
)
from backend.changes.prepare import DiffLake, PreparedDiff, prepare
from backend.errors import (
    DiffError,
    JobError,
    LakehouseError,
)
from backend.jobs.model import Job, JobKind, JobRequest, JobState
from backend.jobs.results import ResultLake, read_result, results_lake
from backend.lake.model import TableRef
from backend.settings import Settings
from backend.sql.session import CancelToken, Connection, ended_words
from backend.sql.values import same

COMPUTED = "computed"  # so begins the reason that says who did it
UNEXPLAINED = "what the changed rows have in common is not looked for: the stream host keeps only some of them"
_COLUMNS = ("what", "number", "n", "detail", "before", "after")
_NOT_ON_HOST = (DiffMethod.LOG_ONLY, DiffMethod.SAME_VERSION)
FORMAT = 5  # grows when a former host or page would misread the document
SUMMARY, COMMON = "summary", "common"  # besides these, `what` is a bucket of rows: insert, update, delete …
MOST_CACHED = 32
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class SoFar:
    """How much of a comparison the counts speak of: rows of both states."""

    rows_read: int
    rows_total: int


@dataclass(frozen=True, slots=True)
class DiffSummary:
    """The counts of a comparison. `columns` names c0, c1 … of its rows; `failed` are better methods that were
    tried; `gross` is (commit version, change type, rows) where the method tells it."""

    method: DiffMethod
    columns: tuple[str, ...]
    key: tuple[str, ...]
    buckets: Mapping[str, RowBucket]
    changed_cells: Mapping[str, int]
    failed: Mapping[DiffMethod, str] = field(default_factory=dict)
    gross: tuple[tuple[int, str, int], ...] | None = None
    by: str = ""  # who computed it
    so_far: SoFar | None = None  # None: all was compared


def to_json(value: Question | DiffSummary) -> str:
    """The document of a job or of its result. Where a table's root lies is each process's own affair."""
    body = asdict(value)
    for table in ("ref", "against"):
        if body.get(table):
            body[table] = {"uri": body[table]["uri"], "name": body[table]["name"]}
    return orjson.dumps({"format": FORMAT, **body}, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode()


def question_of(text: str, root_of: Callable[[str], str]) -> Question:
    """`root_of` gives the root above an address; raises `DiffError` for a document of another Weir,
    `PathRefusedError` for a table outside every root."""
    body = _body(text)
    tables = {
        name: TableRef(body[name]["uri"], body[name]["name"], root_of(body[name]["uri"])) if body[name] else None
        for name in ("ref", "against")
    }
    lists = {
        name: None if body[name] is None else tuple(body[name])
        for name in ("key", "remembered_key", "columns", "table_ids")
    }
    method = DiffMethod(body["method"]) if body["method"] else None
    return Question(**{**body, **tables, **lists, "method": method})


def summary_of(text: str) -> DiffSummary:
    """Raises `DiffError` for a document of another Weir."""
    body = _body(text)
    lists = {name: tuple(body[name]) for name in ("columns", "key")}
    buckets = {name: RowBucket(**sizes) for name, sizes in body["buckets"].items()}
    failed = {DiffMethod(name): reason for name, reason in body["failed"].items()}
    gross = None if body["gross"] is None else tuple((v, t, n) for v, t, n in body["gross"])
    so_far = SoFar(**body["so_far"]) if body["so_far"] else None
    whole = {"method": DiffMethod(body["method"]), "failed": failed, "gross": gross, "so_far": so_far}
    return DiffSummary(**{**body, **lists, **whole, "buckets": buckets})


def _body(text: str) -> dict[str, Any]:
    body = orjson.loads(text)
    if body.pop("format", None) != FORMAT:
        raise DiffError("this comparison was asked for or made by another version of Weir", hint="compare again")
    return dict(body)


# the question ---------------------------------------------------------------------------------------------------------


def host_methods(prepared: PreparedDiff) -> tuple[DiffMethod, ...]:
    """The methods that a host can compare by, best first; raises `DiffError` where there is none."""
    plan = prepared.plan
    methods = tuple(method for method in plan.methods if method not in _NOT_ON_HOST)
    if not methods:
        raise DiffError(
            f"nothing to compare on the stream host: {'; '.join(plan.reasons(plan.method))}", hint=plan.hint
        )
    return methods


def job_request(prepared: PreparedDiff, *, actor: Actor, reason: str, time_limit_s: float) -> JobRequest:
    """The job that would answer; raises `DiffError` for what a host cannot do."""
    host_methods(prepared)
    question = prepared.question
    text = to_json(_as_job(prepared))
    said = reason.strip() or f"compare v{question.from_version} with v{question.to_version}"
    fingerprint = hashlib.sha256(text.encode()).hexdigest()
    return JobRequest(JobKind.DIFF, question.ref.name, fingerprint, text, actor, said, time_limit_s)


def prepare_job(lake: DiffLake, job: Job, root_of: Callable[[str], str]) -> PreparedDiff:
    """What the host that took the job compares. Every path that the log names is looked at here, before Spark follows
    it: raises `PathRefusedError` for one outside the roots, `DiffError` where another table lies there by now."""
    question = question_of(job.request, root_of)
    prepared = prepare(lake, question)
    if (ids := _table_ids(prepared)) != question.table_ids:
        raise DiffError(
            f"the table was replaced by another one meanwhile: its id is {' and '.join(dict.fromkeys(ids))}, "
            f"not {' and '.join(dict.fromkeys(question.table_ids))}",
            hint="compare again",
        )
    host_methods(prepared)
    return prepared


def _as_job(prepared: PreparedDiff) -> Question:
    """The question with whatever makes no other answer left out, so that all who ask it name one job."""
    question, key = prepared.question, prepared.plan.key
    return replace(
        question,
        key=key.columns if key and key.source is KeySource.GIVEN else None,
        remembered_key=key.columns if key and key.source is KeySource.REMEMBERED else None,
        columns=prepared.columns,
        max_bytes=None,
        on_host=True,
        table_ids=_table_ids(prepared),
    )


def _table_ids(prepared: PreparedDiff) -> tuple[str, ...]:
    return prepared.input.first.metadata.id, prepared.input.second.metadata.id


# the answer -----------------------------------------------------------------------------------------------------------


def read_answer(lake: ResultLake, settings: Settings, prepared: PreparedDiff, job: Job) -> VersionDiff:
    """The difference that a job found, whole or, where it was ended, what it had found by then; raises `JobError` where
    it found none, `JobResultMissingError`."""
    rows = read_result(lake, settings, job, _COLUMNS, again="compare again")
    summary = summary_of(_detail(rows))
    gross = None if summary.gross is None else Gross.of_rows(summary.gross)
    changes = _changes(prepared, summary, gross, rows, _partial(job, summary))
    answered = Answered(summary.method, changes, gross=gross, failed=summary.failed)
    answered = replace(answered, notes=(f"{COMPUTED} {summary.by}",))
    if gross is None and not changes.partial:
        answered = replace(answered, commits=commits_by_feed(prepared, CancelToken()))
    if not changes.partial and changes.truncated:
        answered = replace(answered, notes=(*answered.notes, UNEXPLAINED))
    elif not changes.partial:
        answered = replace(answered, explanation=_explanation(prepared, summary, rows))
    return answer_of(prepared, answered)


def _explanation(prepared: PreparedDiff, summary: DiffSummary, rows: pa.Table) -> Explanation:
    """What stands out among the rows of a result that has all of them."""
    changed = rows.filter(pc.is_in(rows["what"], value_set=pa.array(ORDER)))

    def signed(_: Connection) -> pa.RecordBatchReader:
        sides = (_side(changed, "before", -1), _side(changed, "after", 1))
        return pa.concat_tables(sides).to_reader()

    try:
        return explained_rows(prepared, signed, Pairing(summary.columns, summary.key))
    except LakehouseError:  # the answer stands without it
        return Explanation()


def _side(changed: pa.Table, side: str, sign: int) -> pa.Table:
    """The rows before or after, c0, c1 … and their sign."""
    there = changed.filter(pc.is_valid(changed[side]))
    cells = pa.Table.from_struct_array(there[side])
    return cells.append_column(SIGN.name, pc.multiply(there["n"], pa.scalar(sign, pa.int64())))


def _partial(job: Job, summary: DiffSummary) -> Partial | None:
    if (so_far := summary.so_far) is None:
        return None
    ended = ended_words(is_cancelled=job.state is JobState.CANCELLED, time_limit_s=job.time_limit_s)
    return Partial(ended, so_far.rows_read, so_far.rows_total)


def _detail(rows: pa.Table) -> str:
    found = [d for w, d in zip(rows["what"].to_pylist(), rows["detail"].to_pylist(), strict=True) if w == SUMMARY]
    if not found:
        raise JobError("the result of the job holds no summary", hint="compare again")
    return str(found[0])


def _changes(
    prepared: PreparedDiff, summary: DiffSummary, gross: Gross | None, rows: pa.Table, partial: Partial | None
) -> RowChanges:
    found = [row for row in row_cells(rows) if row["what"] != SUMMARY]
    order = {bucket: number for number, bucket in enumerate(ORDER)}
    changed = sorted((row for row in found if row["what"] in order), key=lambda r: (order[r["what"]], r["number"]))
    common = sorted((row for row in found if row["what"] == COMMON), key=lambda row: row["number"])
    return RowChanges(
        _net(prepared, summary, gross),
        _schema(summary, rows.schema),
        count_apart(summary.buckets),
        tuple(_change(summary, row, prepared.question.tolerance) for row in changed),
        sum(bucket_sizes(summary.buckets).values()) > len(changed),
        {name: summary.changed_cells[name] for name in summary.columns if name in summary.changed_cells},
        tuple(_common(summary, row) for row in common),
        partial,
    )


def _net(prepared: PreparedDiff, summary: DiffSummary, gross: Gross | None) -> NetCounts:
    has_key = bool(summary.key)
    net = count_net(summary.buckets, has_key=has_key, is_filtered=prepared.question.where is not None)
    return net if gross is None or has_key else net_without_key(net, gross)


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
    number = int(row["detail"])
    before, after = (row[side][f"c{number}"] for side in ("before", "after"))
    return CommonChange(summary.columns[number], before, after, row["n"])


def _cells(summary: DiffSummary, cells: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if cells is None else {name: cells[f"c{i}"] for i, name in enumerate(summary.columns)}


def _schema(summary: DiffSummary, rows: pa.Schema) -> pa.Schema:
    kinds = {field.name: field.type for field in rows.field("after").type}
    return pa.schema([(name, kinds[f"c{i}"]) for i, name in enumerate(summary.columns)])


class DiffJobs:
    """Questions that stream hosts answer, for every viewer of a process. Whether a job is there, runs or ended is asked
    of the control store each time; only what never changes is cached. Thread-safe."""

    def __init__(self, settings: Settings, lake: DiffLake) -> None:
        self._settings, self._lake = settings, lake
        self._results = results_lake(settings)
        self._prepared: Lru[Question, PreparedDiff] = Lru(MOST_CACHED)
        self._answers: Lru[tuple[Question, str], VersionDiff] = Lru(MOST_CACHED)

    def request(self, question: Question, *, actor: Actor, reason: str = "") -> JobRequest:
        """The job that would answer; raises as `job_request` does."""
        prepared, limit_s = self._prepare(question), self._settings.jobs.time_limit_s
        return job_request(prepared, actor=actor, reason=reason, time_limit_s=limit_s)

    def without_rows(self, question: Question) -> VersionDiff | None:
        """The answer where there are no rows to compare; else None."""
        prepared = self._prepare(question)
        return outline(prepared) if prepared.plan.method in _NOT_ON_HOST else None

    def answer(self, question: Question, job: Job) -> VersionDiff:
        """What a finished job found; raises `JobError` when its result is gone."""
        return self._answers.get_or_make(
            (question, job.job_id), lambda: read_answer(self._results, self._settings, self._prepare(question), job)
        )

    def _prepare(self, question: Question) -> PreparedDiff:
        return self._prepared.get_or_make(question, lambda: prepare(self._lake, question))
