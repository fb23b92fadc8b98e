"""Two versions of a table (or two tables) and what the log alone tells of their difference.

Rule: no row is read here; the plan says how rows will be compared, and why not better.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from backend.changes.commits import CountingLake
from backend.changes.condition import check_row_condition
from backend.changes.export import ChangedBatches
from backend.changes.key import KeyFound, choose_key
from backend.changes.model import ApartCounts, CommitChanges, DiffMethod, FilesDiff, Limits, NetCounts, VersionDiff
from backend.changes.plan import DiffFacts, DiffPlan, DiffRequest, FeedSupport, FilesFacts, plan_diff
from backend.changes.read_local import why_not_by_duckdb
from backend.changes.read_stream import DiffInput, two_tables, two_versions, why_no_changes, why_no_row_ids
from backend.errors import DiffColumnError, LakehouseError
from backend.lake.files.clustering import declared_clustering
from backend.lake.files.file_difference import FileDifference
from backend.lake.model import CommitReader, FileReader, Snapshot, TableRef
from backend.lake.rows.local_files import LocalFiles
from backend.lake.table.metadata_diff import diff_properties, diff_schemas
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

    def local_files(self, snapshot: Snapshot, files: pa.Table) -> LocalFiles | None: ...

    def require_files(self, snapshot: Snapshot, files: pa.Table) -> None: ...


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """How to compare: `key` and `columns` as given (None: found, all), `remembered` the key that was given last, at
    most `row_limit` rows in the answer, the one `method` wanted (None: the best), at most `max_bytes` of data files
    read unless a method is named, floats within `tolerance` equal, `against` another table whose version is
    `to_version`, only rows that satisfy the SQL `where` before or after. `on_host`: Spark on the stream host compares,
    by whatever method, and any amount of data. `take` gets every changed row, beside those in the answer, and gets them
    anew where a better method turns out not to be whole; not on the host. `limits` are of memory, not of the answer."""

    key: tuple[str, ...] | None = None
    remembered: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    row_limit: int = 1_000
    method: DiffMethod | None = None
    max_bytes: int | None = None
    tolerance: float = 0.0
    against: TableRef | None = None
    where: str | None = None
    on_host: bool = False
    take: Callable[[ChangedBatches], None] | None = field(default=None, compare=False)
    limits: Limits = field(default=Limits(), compare=False)


@dataclass(frozen=True, slots=True)
class PreparedDiff:
    """Everything that the log tells, and how rows would be compared. `outline` is the answer without rows."""

    lake: DiffLake
    options: DiffOptions
    plan: DiffPlan
    input: DiffInput
    columns: tuple[str, ...]
    outline: VersionDiff


def prepare(
    lake: DiffLake, ref: TableRef, from_version: int, to_version: int, options: DiffOptions = DiffOptions()
) -> PreparedDiff:
    """What the log tells of the difference; no row is read. Raises as `diff` does."""
    if not options.on_host:
        open_ahead()
    first, second = lake.snapshot(ref, from_version), lake.snapshot(options.against or ref, to_version)
    given = _input(lake, first, second)
    request = DiffRequest(from_version, to_version, options.method, options.max_bytes, options.on_host)
    plan = plan_diff(request, _facts(lake, given, options))
    names = _compared(options.columns, given, plan)
    if options.where is not None:
        check_row_condition(options.where, names)
    return PreparedDiff(lake, options, plan, given, names, _outline(lake, given, plan, names))


def _input(lake: DiffLake, first: Snapshot, second: Snapshot) -> DiffInput:
    if first.ref != second.ref:
        return two_tables(first, second)
    return two_versions(first, second, lake.file_difference(first.ref, first.version, second.version))


def _facts(lake: DiffLake, given: DiffInput, options: DiffOptions) -> DiffFacts:
    ids = (given.first.metadata.id, given.second.metadata.id)
    newer, low, high = given.newer, given.low, given.high
    if given.is_one_table and low == high:
        return DiffFacts(*ids, None, choose_key(options.key, newer.metadata, ()))
    key = _key(lake, newer, options)
    if key.key is None and not given.is_one_table:
        key = _key(lake, given.first, options)
    feed = lake.cdf_support(newer.ref, low, high) if given.is_one_table else None
    return DiffFacts(*ids, feed, key, _files_facts(lake, given), given.is_one_table, why_no_changes(given))


def _key(lake: DiffLake, snapshot: Snapshot, options: DiffOptions) -> KeyFound:
    history = lake.history(snapshot.ref, limit=_KEY_HISTORY, ending_version=snapshot.version)
    return choose_key(options.key, snapshot.metadata, history, options.remembered)


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
    wanted = {name.lower() for name in (*columns, *(plan.key.columns if plan.key else ()))}
    if missing := sorted(wanted - {name.lower() for name in given.columns}):
        hint = f"columns: {', '.join(given.columns[:50])}"
        raise DiffColumnError(f"no column {', '.join(missing)} to compare", hint=hint)
    return tuple(name for name in given.columns if name.lower() in wanted)


def _outline(lake: DiffLake, given: DiffInput, plan: DiffPlan, names: tuple[str, ...]) -> VersionDiff:
    first, second = given.first, given.second
    is_same = plan.method is DiffMethod.SAME_VERSION
    found = VersionDiff(
        ref=first.ref,
        from_version=first.version,
        to_version=second.version,
        method=plan.method,
        reasons=plan.reasons(plan.method),
        exact=is_same,
        key=plan.key,
        net=NetCounts(0, 0, 0) if is_same else NetCounts(None, None, None),
        apart=ApartCounts(),
        commits=(),
        rows=(),
        truncated=False,
        changed_cells={},
        arrow_schema=pa.schema([(name, pa.null()) for name in names]),
        schema=diff_schemas(first.metadata, second.metadata) if given.is_reverse else given.schema,
        properties=diff_properties(
            (first.metadata, first.protocol),
            (second.metadata, second.protocol),
            clustered=(declared_clustering(first), declared_clustering(second)),
        ),
        files=_files(given),
        num_rows=given.row_counts() if is_same else (None, None),
        first_covered_version=plan.first_covered_version,
        hint=plan.hint,
        rewritten=given.apart.rewritten,
        against=None if given.is_one_table else second.ref,
    )
    if not given.is_one_table or given.low == given.high:
        return found
    commits = lake.history(first.ref, starting_version=given.low + 1, ending_version=given.high)
    return replace(found, commits=tuple(CommitChanges.reported(commit) for commit in commits))


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
