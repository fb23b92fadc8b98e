"""Two versions of a table (or two tables) and what the log alone tells of their difference.

Rule: no row is read here; the plan says how rows will be compared, and why not better.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from backend.changes.commits import CountingLake
from backend.changes.key import KeyFound, choose_key
from backend.changes.model import (
    CommitChanges,
    FilesDiff,
    Limits,
    LogChanges,
    Question,
)
from backend.changes.plan import DiffFacts, DiffPlan, FeedSupport, FilesFacts, plan_diff
from backend.changes.read import DiffInput, two_tables, two_versions, why_no_changes, why_no_row_ids, why_not_by_duckdb
from backend.errors import DiffColumnError, LakehouseError
from backend.lake.files.clustering import declared_clustering
from backend.lake.files.file_difference import FileDifference
from backend.lake.model import CommitReader, FileReader, Snapshot, TableRef
from backend.lake.rows.local_files import LocalFiles
from backend.lake.table.metadata_diff import diff_properties, diff_schemas
from backend.lake.table.schema import spelled
from backend.sql.condition import check_row_condition
from backend.sql.session import open_ahead

_KEY_HISTORY = 200  # commits looked through for MERGE predicates


class DiffLake(CommitReader, FileReader, CountingLake, Protocol):
    """The part of `backend.lake.lake.Lake` that a diff needs."""

    def snapshot(self, ref: TableRef, version: int | None = None) -> Snapshot: ...

    def cdf_support(self, ref: TableRef, from_version: int, to_version: int) -> FeedSupport: ...

    def changes(
        self, ref: TableRef, from_version: int, to_version: int, *, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader | pa.Table: ...

    def file_difference(self, ref: TableRef, first: int, second: int) -> FileDifference: ...

    def local_files(self, snapshot: Snapshot, files: pa.Table) -> AbstractContextManager[LocalFiles | None]: ...

    def require_files(self, snapshot: Snapshot, files: pa.Table) -> None: ...


@dataclass(frozen=True, slots=True)
class PreparedDiff:
    """Everything that the log tells, and how rows would be compared; `limits` are of memory, not of the answer."""

    lake: DiffLake
    question: Question
    plan: DiffPlan
    input: DiffInput
    columns: tuple[str, ...]
    log: LogChanges
    commits: tuple[CommitChanges, ...]
    limits: Limits = Limits()


def prepare(lake: DiffLake, question: Question, *, limits: Limits = Limits()) -> PreparedDiff:
    """What the log tells of the difference; no row is read. Raises as `diff` does."""
    if not question.on_host:
        open_ahead()
    first = lake.snapshot(question.ref, question.from_version)
    second = lake.snapshot(question.against or question.ref, question.to_version)
    given = _input(lake, first, second, across_replace=question.across_replace)
    plan = plan_diff(question, _facts(lake, given, question))
    names = _compared(question.columns, given, plan)
    if question.where is not None:
        check_row_condition(question.where, names)
    log, commits = _log_changes(given, plan), _commits(lake, given)
    return PreparedDiff(lake, question, plan, given, names, log, commits, limits)


def _input(lake: DiffLake, first: Snapshot, second: Snapshot, *, across_replace: bool) -> DiffInput:
    if first.ref != second.ref or (across_replace and first.metadata.id != second.metadata.id):
        return two_tables(first, second)
    return two_versions(first, second, lake.file_difference(first.ref, first.version, second.version))


def _facts(lake: DiffLake, given: DiffInput, question: Question) -> DiffFacts:
    ids = (given.first.metadata.id, given.second.metadata.id)
    newer, low, high = given.newer, given.low, given.high
    if given.is_one_table and low == high:
        return DiffFacts(*ids, None, choose_key(question.key, newer.metadata, ()))
    key = _key(lake, newer, question)
    if key.key is None and not given.is_one_table:
        key = _key(lake, given.first, question)
    feed = lake.cdf_support(newer.ref, low, high) if given.is_one_table else None
    return DiffFacts(*ids, feed, key, _files_facts(lake, given), given.is_one_table, why_no_changes(given))


def _key(lake: DiffLake, snapshot: Snapshot, question: Question) -> KeyFound:
    history = lake.history(snapshot.ref, limit=_KEY_HISTORY, ending_version=snapshot.version)
    return choose_key(question.key, snapshot.metadata, history, question.remembered_key)


def _files_facts(lake: DiffLake, given: DiffInput) -> FilesFacts:
    count = sum(files.num_rows for _, files in given.states())
    problem = None
    try:
        for snapshot, files in given.states():
            lake.require_files(snapshot, files)
    except LakehouseError as exc:
        problem = exc.message
    no_ids = why_no_row_ids(given)
    why = None if no_ids else why_not_by_duckdb(given, given.columns)
    here = f"{why}: only the stream host reads such rows with their ids" if why else None
    return FilesFacts(count, given.size_bytes, given.num_rows, problem, no_ids, here)


def _compared(columns: Sequence[str] | None, given: DiffInput, plan: DiffPlan) -> tuple[str, ...]:
    """The columns to compare, in the table's order: those asked for and the key, or all that can be."""
    if not columns:
        return given.columns
    wanted = {name: spelled(name, given.columns) for name in (*columns, *(plan.key.columns if plan.key else ()))}
    if missing := sorted(name for name, own in wanted.items() if own is None):
        hint = f"columns: {', '.join(given.columns[:50])}"
        raise DiffColumnError(f"no column {', '.join(missing)} to compare", hint=hint)
    return tuple(name for name in given.columns if name in wanted.values())


def _log_changes(given: DiffInput, plan: DiffPlan) -> LogChanges:
    first, second = given.first, given.second
    return LogChanges(
        diff_schemas(first.metadata, second.metadata) if given.is_reverse else given.schema,
        diff_properties(
            (first.metadata, first.protocol),
            (second.metadata, second.protocol),
            clustered=(declared_clustering(first), declared_clustering(second)),
        ),
        _files(given),
        given.apart.rewritten,
        plan.first_covered_version,
    )


def _commits(lake: DiffLake, given: DiffInput) -> tuple[CommitChanges, ...]:
    """Those in between, as their writers report them."""
    if given.first.ref != given.second.ref or given.low == given.high:
        return ()
    commits = lake.history(given.first.ref, starting_version=given.low + 1, ending_version=given.high)
    return tuple(CommitChanges.reported(commit) for commit in commits)


def _files(given: DiffInput) -> FilesDiff:
    """Data files of one state and not of the other: a new deletion vector makes another file of the same path."""
    removed, added = (files for _, files in given.states())
    remarked = pc.sum(pc.is_in(added["path"], value_set=removed["path"].unique())).as_py() or 0
    return FilesDiff(
        added.num_rows,
        removed.num_rows,
        _bytes(added),
        _bytes(removed),
        int(remarked) if given.is_one_table else 0,
        rows_added=_live_rows(added),
        rows_removed=_live_rows(removed),
        vectors_added=_vectors(added),
        vectors_removed=_vectors(removed),
    )


def _bytes(files: pa.Table) -> int:
    return int(pc.sum(files["size_bytes"]).as_py() or 0)


def _live_rows(files: pa.Table) -> int | None:
    live = pc.subtract(files["num_records"], files["deleted_rows"])
    return None if live.null_count else int(pc.sum(live).as_py() or 0)


def _vectors(files: pa.Table) -> int:
    return len(files) - int(files["dv_id"].null_count)
