"""A difference that a stream host finds with Spark: the question as a job, its result table as an answer.

Rule: the log part is prepared here as for every other method; only rows are joined and counted elsewhere, and those
that differ are explained here by the code that explains all others. What Spark cannot honour is refused before a job is
asked for.
"""

import hashlib
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from backend.access import Actor
from backend.caches import Lru
from backend.cells import row_cells
from backend.changes.answer import answer_of, commits_by_feed, outline
from backend.changes.changed_rows import (
    APART,
    ORDER,
    Pairing,
    RowBucket,
    bucket_sizes,
    count_apart,
    count_net,
    row_change,
    share_out,
)
from backend.changes.commits import FeedCounts, feed_counts, net_without_key
from backend.changes.compare import SIGN, net_changes
from backend.changes.first_state import explained
from backend.changes.model import (
    CommonChange,
    DiffMethod,
    Explanation,
    KeySource,
    Question,
    RowChanges,
    VersionDiff,
)
from backend.changes.plan import PreparedDiff, prepare
from backend.errors import DiffError, JobError, LakehouseError
from backend.jobs.documents import of_document, question_of, question_text
from backend.jobs.model import Job, JobKind, JobRequest
from backend.jobs.results import read_result, results_lake
from backend.lake.lake import Lake
from backend.settings import Settings
from backend.sql.session import CancelToken

COMPUTED = "computed"  # so begins the reason that says who did it
UNEXPLAINED = "what the changed rows have in common is not looked for: the stream host keeps only some of them"
MOST_VALUES = 16_000_000  # of the changed rows that a result holds: all of them, or as many as were asked for
_COLUMNS = ("what", "number", "n", "detail", "before", "after")
_NOT_ON_HOST = (DiffMethod.LOG_ONLY, DiffMethod.SAME_VERSION)
SUMMARY, COMMON = "summary", "common"  # besides these, `what` is a bucket of rows: insert, update, delete …
MOST_CACHED = 32


@dataclass(frozen=True, slots=True)
class DiffSummary:
    """The counts of a comparison, in its result a document. `pairing` names c0, c1 … of its rows; `failed` are better
    methods that were tried; `gross` is (commit version, change type, rows) where the method tells it."""

    method: DiffMethod
    pairing: Pairing
    buckets: Mapping[str, RowBucket]
    changed_cells: Mapping[str, int]
    failed: Mapping[DiffMethod, str] = field(default_factory=dict)
    gross: tuple[tuple[int, str, int], ...] | None = None
    by: str = ""  # who computed it


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
    """The job that would answer: the question with whatever makes no other answer left out, so that all who ask it name
    one job. Raises `DiffError` for what a host cannot do."""
    host_methods(prepared)
    question, key = prepared.question, prepared.plan.key
    alike = replace(
        question,
        key=key.columns if key and key.source is KeySource.GIVEN else None,
        remembered_key=key.columns if key and key.source is KeySource.REMEMBERED else None,
        columns=prepared.columns,
        max_bytes=None,
        on_host=True,
        look_in=None,
        table_ids=(prepared.input.first.metadata.id, prepared.input.second.metadata.id),
    )
    text = question_text(alike)
    said = reason.strip() or f"compare v{question.from_version} with v{question.to_version}"
    fingerprint = hashlib.sha256(text.encode()).hexdigest()
    return JobRequest(JobKind.DIFF, question.ref.name, fingerprint, text, actor, said, time_limit_s)


def prepare_job(lake: Lake, job: Job, root_of: Callable[[str], str]) -> PreparedDiff:
    """What the host that took the job compares. Every path that the log names is looked at here, before Spark follows
    it: raises `PathRefusedError` for one outside the roots, `DiffError` where another table lies there by now."""
    question = question_of(job.request, root_of)
    prepared = prepare(lake, question)
    ids = prepared.input.first.metadata.id, prepared.input.second.metadata.id
    if ids != question.table_ids:
        raise DiffError(
            f"the table was replaced by another one meanwhile: its id is {' and '.join(dict.fromkeys(ids))}, "
            f"not {' and '.join(dict.fromkeys(question.table_ids))}",
            hint="compare again",
        )
    host_methods(prepared)
    return prepared


# the answer -----------------------------------------------------------------------------------------------------------


def read_answer(lake: Lake, settings: Settings, prepared: PreparedDiff, job: Job) -> VersionDiff:
    """The difference that a job found; raises `JobError` where it found none, `JobResultMissingError`."""
    rows = read_result(lake, settings, job, _COLUMNS, again="compare again")
    details = rows.filter(pc.equal(rows["what"], SUMMARY))["detail"].to_pylist()
    if not details:
        raise JobError("the result of the job holds no summary", hint="compare again")
    summary = of_document(DiffSummary, str(details[0]))
    gross = None if summary.gross is None else feed_counts(summary.gross)
    changed = rows.filter(pc.is_in(rows["what"], value_set=pa.array(ORDER)))
    is_whole = changed.num_rows == sum(bucket_sizes(summary.buckets).values())
    explanation = Explanation()
    if is_whole:
        with suppress(LakehouseError):  # the answer stands without it
            explanation = _explanation(prepared, summary, changed)
    return answer_of(
        prepared,
        summary.method,
        _changes(prepared, summary, gross, rows),
        explanation=explanation,
        gross=gross,
        commits=commits_by_feed(prepared, CancelToken()) if gross is None else None,
        failed=summary.failed,
        notes=(f"{COMPUTED} {summary.by}", *((UNEXPLAINED,) * (not is_whole))),
    )


def _explanation(prepared: PreparedDiff, summary: DiffSummary, changed: pa.Table) -> Explanation:
    """What stands out among the rows of a result that has all of them."""
    sides = []  # c0, c1 … and their sign
    for side, sign in (("before", -1), ("after", 1)):
        there = changed.filter(pc.is_valid(changed[side]))
        signs = pc.multiply(there["n"], pa.scalar(sign, pa.int64()))
        sides.append(pa.Table.from_struct_array(there[side]).append_column(SIGN.name, signs))
    signed, token = pa.concat_tables(sides), CancelToken()
    all_rows = replace(prepared.question, row_limit=0, where=None)
    _, findings = net_changes(
        lambda _: signed.to_reader(), summary.pairing, all_rows, token, limits=prepared.limits,
        premises=prepared.premises(),
    )  # fmt: skip
    return explained(prepared, findings, token, reads_apart=False)


def _changes(prepared: PreparedDiff, summary: DiffSummary, gross: FeedCounts | None, rows: pa.Table) -> RowChanges:
    """What the job counted, and as many rows as were asked for of those that it kept."""
    sizes, question, pairing = bucket_sizes(summary.buckets), prepared.question, summary.pairing
    is_paired = bool(pairing.paired_by)
    shares = share_out(question.row_limit, sizes) | {COMMON: rows.num_rows}
    first = {
        what: row_cells(rows.filter(pc.equal(rows["what"], what)).sort_by("number").slice(0, share))
        for what, share in shares.items()
    }

    def sides(row: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
        before, after = (
            row[side] and {name: row[side][f"c{i}"] for i, name in enumerate(pairing.names)}
            for side in ("before", "after")
        )
        return before, after

    shown = [
        row_change(*sides(row), pairing.key, tolerance=question.tolerance, set_apart=APART.get(bucket), copies=row["n"])
        for bucket in sizes
        for row in first[bucket]
    ]
    common = []
    for row in first[COMMON]:
        number = int(row["detail"])
        before, after = (row[side][f"c{number}"] for side in ("before", "after"))
        common.append(CommonChange(pairing.columns[number], before, after, row["n"]))
    kinds = {field.name: field.type for field in rows.schema.field("after").type}
    net = count_net(summary.buckets, has_key=is_paired, is_filtered=question.where is not None)
    return RowChanges(
        net if gross is None or is_paired else net_without_key(net, gross),
        pa.schema([(name, kinds[f"c{i}"]) for i, name in enumerate(pairing.names)]),
        count_apart(summary.buckets),
        tuple(shown),
        sum(sizes.values()) > len(shown),
        {name: summary.changed_cells[name] for name in pairing.columns if name in summary.changed_cells},
        tuple(common),
    )


class DiffJobs:
    """Questions that stream hosts answer, for every viewer of a process. Whether a job is there, runs or ended is asked
    of the control store each time; only what never changes is cached. Thread-safe."""

    def __init__(self, settings: Settings, lake: Lake) -> None:
        self._settings, self._lake = settings, lake
        self._results = results_lake(settings)
        self._asked: Lru[Hashable, tuple[PreparedDiff, Lru[str, VersionDiff]]] = Lru(MOST_CACHED)  # answers by job

    def request(self, question: Question, *, actor: Actor, reason: str = "") -> JobRequest:
        """The job that would answer; raises as `job_request` does."""
        (prepared, _), limit_s = self._prepare(question), self._settings.jobs.time_limit_s
        return job_request(prepared, actor=actor, reason=reason, time_limit_s=limit_s)

    def without_rows(self, question: Question) -> VersionDiff | None:
        """The answer where there are no rows to compare; else None."""
        prepared, _ = self._prepare(question)
        return outline(prepared) if prepared.plan.method in _NOT_ON_HOST else None

    def answer(self, question: Question, job: Job) -> VersionDiff:
        """What a finished job found; raises `JobError` when its result is gone."""
        prepared, answers = self._prepare(question)
        return answers.get_or_make(job.job_id, lambda: read_answer(self._results, self._settings, prepared, job))

    def _prepare(self, question: Question) -> tuple[PreparedDiff, Lru[str, VersionDiff]]:
        asked = question, self._lake.hidden(question.ref), question.against and self._lake.hidden(question.against)
        return self._asked.get_or_make(asked, lambda: (prepare(self._lake, question), Lru(MOST_CACHED)))
