"""Two versions of a table (or two tables): what the log alone tells of their difference, and which methods can compare
their rows, best first, and why the better ones cannot.

Rule: no row is read here. `plan_diff` is pure; a method that is not possible leaves its reason behind, and new methods
join `_LADDER` in order of merit.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from backend.changes.commits import CountingLake
from backend.changes.key import KeyFound, choose_key
from backend.changes.model import (
    CommitChanges,
    DiffMethod,
    FilesDiff,
    KeyChoice,
    KeySource,
    Limits,
    LogChanges,
    Question,
)
from backend.changes.read import (
    DiffInput,
    two_tables,
    two_versions,
    why_no_changes,
    why_no_row_ids,
    why_not_by_duckdb,
)
from backend.errors import DiffColumnError, DiffError, LakehouseError
from backend.format import bytes_text
from backend.lake.files.clustering import declared_clustering
from backend.lake.files.file_difference import FileDifference
from backend.lake.model import CommitReader, FileReader, Snapshot, TableRef
from backend.lake.rows.local_files import LocalFiles
from backend.lake.table.metadata_diff import diff_properties, diff_schemas
from backend.lake.table.schema import spelled
from backend.sql.condition import check_row_condition
from backend.sql.session import open_ahead

_KEY_HISTORY = 200  # commits looked through for MERGE predicates


class FeedSupport(Protocol):
    """What the lake knows of the change feed over a range; see `Lake.cdf_support`."""

    @property
    def covered(self) -> bool: ...
    @property
    def first_covered_version(self) -> int | None: ...
    @property
    def reason(self) -> str: ...


@dataclass(frozen=True, slots=True)
class FilesFacts:
    """The data files that only one of the two states has. `problem` says why they cannot be read, `no_row_ids` why
    their rows cannot be told by row tracking's ids, `no_row_ids_here` why only Spark can."""

    files: int
    size_bytes: int
    num_rows: int | None
    problem: str | None = None
    no_row_ids: str | None = "row tracking is off"
    no_row_ids_here: str | None = None


@dataclass(frozen=True, slots=True)
class DiffFacts:
    """What is known without reading rows. `feed` and `files` are None where they were not asked for; `no_changes` says
    why Spark's CHANGES clause cannot answer."""

    from_table_id: str
    to_table_id: str
    feed: FeedSupport | None
    key: KeyFound
    files: FilesFacts | None = None
    is_one_table: bool = True
    no_changes: str | None = "row tracking is off"


@dataclass(frozen=True, slots=True)
class DiffPlan:
    """The methods that can answer, best first, and per method what speaks for or against it.

    `bytes_to_read` and `rows_to_read` are of data files (a change feed's are not known before: None).
    """

    methods: tuple[DiffMethod, ...]
    key: KeyChoice | None = None
    why: Mapping[DiffMethod, tuple[str, ...]] = field(default_factory=dict)
    against: Mapping[DiffMethod, str] = field(default_factory=dict)
    key_reasons: tuple[str, ...] = ()
    first_covered_version: int | None = None
    hint: str = ""
    bytes_to_read: int | None = None
    rows_to_read: int | None = None

    @property
    def method(self) -> DiffMethod:
        return self.methods[0]

    def reasons(self, method: DiffMethod, failed: Mapping[DiffMethod, str] | None = None) -> tuple[str, ...]:
        """What speaks for a method of the plan, and against each better one (`failed`: found out by trying)."""
        known = {**self.against, **(failed or {})}
        names: dict[str, list[str]] = {}
        for each in itertools.takewhile(lambda each: each is not method, _LADDER):
            if each in known:
                names.setdefault(known[each], []).append(METHOD_NAMES[each])
        said = tuple(f"not by {' or '.join(each)}: {reason}" for reason, each in names.items())
        return (*self.why.get(method, ()), *said, *self.key_reasons)


def plan_diff(question: Question, facts: DiffFacts) -> DiffPlan:
    """The methods that the facts allow; raises `DiffError` when the one asked for is not among them."""
    if facts.is_one_table and facts.from_table_id != facts.to_table_id:
        hint = (
            "compare two versions on the same side of the replacement, or as two tables: --across-replace, on the page "
            "under How to compare"
        )
        return DiffPlan((DiffMethod.LOG_ONLY,), why={DiffMethod.LOG_ONLY: (_replaced(facts),)}, hint=hint)
    if facts.is_one_table and question.from_version == question.to_version:
        same = ("both sides are the same version: nothing can differ",)
        return DiffPlan((DiffMethod.SAME_VERSION,), why={DiffMethod.SAME_VERSION: same})
    found = {method: why_not(question, facts) for method, why_not in _LADDER.items()}
    against = {method: reason for method, reason in found.items() if reason is not None}
    if question.method is None:
        return _planned(question, facts, tuple(method for method in _LADDER if method not in against), against)
    if question.method in against:
        raise DiffError(f"{METHOD_NAMES[question.method]} is not possible: {against[question.method]}", hint=_OTHERS)
    return _planned(question, facts, (question.method,), {})


METHOD_NAMES = {
    DiffMethod.CHANGE_FEED: "the change feed",
    DiffMethod.SPARK_CHANGES: "Spark's CHANGES",
    DiffMethod.ROW_ID: "row ids",
    DiffMethod.KEY_JOIN: "a join by key",
    DiffMethod.MULTISET: "a comparison of whole rows",
    DiffMethod.LOG_ONLY: "the log alone",
}
BY_FILES = (DiffMethod.ROW_ID, DiffMethod.KEY_JOIN, DiffMethod.MULTISET)  # they read the files apart
_OTHERS = "leave the method out to get the best one that is possible"


def _planned(
    question: Question, facts: DiffFacts, methods: tuple[DiffMethod, ...], against: Mapping[DiffMethod, str]
) -> DiffPlan:
    reads = facts.files if methods[0] in BY_FILES else None
    return DiffPlan(
        methods,
        facts.key.key,
        {method: tuple(_why(question, facts, method)) for method in methods},
        against,
        facts.key.reasons,
        facts.feed.first_covered_version if facts.feed else None,
        _hint(question, facts) if methods[0] is DiffMethod.LOG_ONLY else "",
        reads.size_bytes if reads else None,
        reads.num_rows if reads else None,
    )


def _why(question: Question, facts: DiffFacts, method: DiffMethod) -> list[str]:
    low, high = sorted((question.from_version, question.to_version))
    said = []
    if method is DiffMethod.CHANGE_FEED:
        said.append(f"the change feed was recorded for every commit from v{low + 1} to v{high}")
    elif method is DiffMethod.SPARK_CHANGES:
        said.append(f"rows kept their ids over every commit from v{low + 1} to v{high}")
    elif method in BY_FILES and facts.files is not None:
        which = "that only one of the two states has" if facts.is_one_table else "of both tables"
        said.append(f"the rows of the {facts.files.files:,} data files {which} are compared; no other file is read")
    if question.across_replace and question.against is None and not facts.is_one_table:
        said.append(f"compared as two tables: {_replaced(facts)}")
    if question.from_version > question.to_version and facts.is_one_table:
        said.append(f"from is the newer version: this is what going back to v{question.to_version} would change")
    return said


def _hint(question: Question, facts: DiffFacts) -> str:
    first = facts.feed.first_covered_version if facts.feed else None
    low, high = sorted((question.from_version, question.to_version))
    if first is not None and first < high:
        return f"the change feed answers from v{first} on: compare v{first} or later, not v{low}"
    if facts.files is not None and _too_large(question, facts.files):
        return (
            "compare on the stream host (--on host), or name the method (key_join or multiset) to read them here all "
            "the same, or raise WEIR_LAKE__DIFF_MAX_BYTES"
        )
    return "set delta.enableChangeDataFeed = true on the table: changes from then on stay comparable row by row"


def _no_feed(_: Question, facts: DiffFacts) -> str | None:
    if not facts.is_one_table:
        return "two tables share no change feed"
    if facts.feed is None or not facts.feed.covered:
        return facts.feed.reason if facts.feed and facts.feed.reason else "it does not cover this range"
    return None


def _no_spark_changes(question: Question, facts: DiffFacts) -> str | None:
    return facts.no_changes or (None if question.on_host else "only the stream host has it: compare there to use it")


def _no_row_id(question: Question, facts: DiffFacts) -> str | None:
    if facts.key.key is not None and facts.key.key.source is KeySource.GIVEN and question.method is None:
        return "a key was given"
    if facts.files is None:
        return "the data files are not known"
    here = None if question.on_host else facts.files.no_row_ids_here
    return facts.files.no_row_ids or here or _no_files(question, facts)


def _no_key_join(question: Question, facts: DiffFacts) -> str | None:
    return "no key is known" if facts.key.key is None else _no_files(question, facts)


def _no_files(question: Question, facts: DiffFacts) -> str | None:
    """Why the files that only one state has cannot be compared row by row."""
    if facts.files is None:
        return "the data files are not known"
    if facts.files.problem is None and question.method is None and _too_large(question, facts.files):
        limit = bytes_text(question.max_bytes)
        return f"{bytes_text(facts.files.size_bytes)} of data files differ, more than {limit}"
    return facts.files.problem


def _too_large(question: Question, files: FilesFacts) -> bool:
    return not question.on_host and question.max_bytes is not None and files.size_bytes > question.max_bytes


def _never(_: Question, __: DiffFacts) -> str | None:
    return None


_LADDER: dict[DiffMethod, Callable[[Question, DiffFacts], str | None]] = {
    DiffMethod.CHANGE_FEED: _no_feed,
    DiffMethod.SPARK_CHANGES: _no_spark_changes,
    DiffMethod.ROW_ID: _no_row_id,
    DiffMethod.KEY_JOIN: _no_key_join,
    DiffMethod.MULTISET: _no_files,
    DiffMethod.LOG_ONLY: _never,
}


def _replaced(facts: DiffFacts) -> str:
    return (
        f"the table was replaced by another one in between: its id is {facts.from_table_id} at the first version "
        f"and {facts.to_table_id} at the second"
    )


# what the log tells --------------------------------------------------------------------------------------------------


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
