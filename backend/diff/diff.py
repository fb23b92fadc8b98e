"""What changed between two versions of a table (or two tables): the one door for the Changes page and `weir diff`.

Rule: facts are gathered from the log alone, `plan_diff` decides, then one method computes; when it turns out that it
cannot (a file is gone, a reader refuses), the next one does and the reason stays. Metadata, files and commits are told
whatever the method.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from backend.diff.commits import commit_changes, counted_by_feed, why_incomplete
from backend.diff.engine import Watch
from backend.diff.feed import FeedAnswer, Gross, sum_up
from backend.diff.feed_summary import CountingLake
from backend.diff.files import diff_files
from backend.diff.key import KeyFound, choose_key
from backend.diff.limits import limits
from backend.diff.model import ApartCounts, DiffMethod, NetCounts, VersionDiff
from backend.diff.net import SIGN, NetAnswer, NetQuery, check_row_condition, column_name, net_changes
from backend.diff.plain import plain_columns, signed_files
from backend.diff.plan import (
    BY_FILES,
    METHOD_NAMES,
    DiffFacts,
    DiffPlan,
    DiffRequest,
    FeedSupport,
    FilesFacts,
    plan_diff,
)
from backend.diff.row_ids import BY_ROW_ID, ROW_ID, named_by, row_id_key, why_no_changes, why_no_row_ids
from backend.diff.states import FileReader, Sides, signed_rows, two_tables, two_versions
from backend.diff.tracked import signed_tracked, why_not_here
from backend.errors import DiffError, LakehouseError, QueryError, TableError
from backend.lake.changes import FEED
from backend.lake.clustering import declared_clustering
from backend.lake.file_difference import FilesApart
from backend.lake.metadata_diff import diff_properties, diff_schemas
from backend.lake.model import CommitReader, Places, Snapshot, TableRef
from backend.lake.tracked import TrackedFiles

_DISAGREE = (
    "the log's row counts do not agree with the rows read: some file's statistics are wrong, so how many rows stayed "
    "the same is not known"
)
_KEY_HISTORY = 200  # commits looked through for MERGE predicates


class DiffLake(CommitReader, FileReader, CountingLake, Protocol):
    """The part of `backend.lake.lake.Lake` that a diff needs."""

    def snapshot(self, ref: TableRef, version: int | None = None) -> Snapshot: ...

    def cdf_support(self, ref: TableRef, from_version: int, to_version: int) -> FeedSupport: ...

    def changes(
        self, ref: TableRef, from_version: int, to_version: int, *, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader | pa.Table: ...

    def files_apart(self, ref: TableRef, first: int, second: int) -> FilesApart: ...

    def tracked_files(self, snapshot: Snapshot, indices: Sequence[int] | Places) -> TrackedFiles: ...

    def plain_files(self, snapshot: Snapshot, indices: Sequence[int] | Places) -> list[str] | None: ...

    def require_files(self, snapshot: Snapshot, indices: Sequence[int] | Places) -> None: ...


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """How to compare: `key` and `columns` as given (None: found, all), `remembered` the key that was given last, at
    most `row_limit` rows in the answer, the one `method` wanted (None: the best), at most `max_bytes` of data files
    read unless a method is named, floats within `tolerance` equal, `against` another table whose version is
    `to_version`, only rows that satisfy the SQL `where` before or after. `on_host`: Spark on the stream host compares,
    by whatever method, and any amount of data."""

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


@dataclass(frozen=True, slots=True)
class PreparedDiff:
    """Everything that the log tells, and how rows would be compared. `outline` is the answer without rows."""

    lake: DiffLake
    options: DiffOptions
    plan: DiffPlan
    sides: Sides
    columns: tuple[str, ...]
    outline: VersionDiff


def diff(
    lake: DiffLake,
    ref: TableRef,
    from_version: int,
    to_version: int,
    options: DiffOptions = DiffOptions(),
    watch: Watch | None = None,
) -> VersionDiff:
    """The difference of two versions; from may be the newer one (what would going back change).

    Where rows cannot be compared the method is LOG_ONLY with its reasons. Raises `VersionNotFoundError` for a version
    that is not there, `DiffError` for a key, a column or a method that is not, `DiffStopped`.
    """
    return compare_rows(prepare(lake, ref, from_version, to_version, options), watch or Watch())


def prepare(
    lake: DiffLake, ref: TableRef, from_version: int, to_version: int, options: DiffOptions = DiffOptions()
) -> PreparedDiff:
    """What the log tells of the difference; no row is read. Raises as `diff` does."""
    first, second = lake.snapshot(ref, from_version), lake.snapshot(options.against or ref, to_version)
    sides = _sides(lake, first, second)
    request = DiffRequest(from_version, to_version, options.method, options.max_bytes, options.on_host)
    plan = plan_diff(request, _facts(lake, sides, options))
    names = _compared(options.columns, sides, plan)
    if options.where is not None:
        check_row_condition(options.where, names)
    return PreparedDiff(lake, options, plan, sides, names, _outline(lake, sides, plan, names))


def compare_rows(prepared: PreparedDiff, watch: Watch) -> VersionDiff:
    """The whole answer: by the plan's method, or by the first below it that can; see `diff` for what it raises."""
    failed: dict[DiffMethod, str] = {}
    hint = ""
    for method in prepared.plan.methods:
        try:
            found = _answered(prepared, method, watch, failed)
        except QueryError:  # the condition is wrong, whatever the method
            raise
        except TableError as exc:
            if prepared.options.method is not None:
                raise
            failed[method], hint = exc.message, exc.hint
        else:
            return found if found.is_available else replace(found, hint=found.hint or hint)
    return _answered(prepared, DiffMethod.LOG_ONLY, watch, failed)


def _sides(lake: DiffLake, first: Snapshot, second: Snapshot) -> Sides:
    if first.ref != second.ref:
        return two_tables(first, second)
    return two_versions(first, second, lake.files_apart(first.ref, first.version, second.version))


def _facts(lake: DiffLake, sides: Sides, options: DiffOptions) -> DiffFacts:
    ids = (sides.first.metadata.id, sides.second.metadata.id)
    newer, low, high = sides.newer, sides.low, sides.high
    if sides.is_one_table and low == high:
        return DiffFacts(*ids, None, choose_key(options.key, newer.metadata, ()))
    key = _key(lake, newer, options)
    if key.key is None and not sides.is_one_table:
        key = _key(lake, sides.first, options)
    feed = lake.cdf_support(newer.ref, low, high) if sides.is_one_table else None
    return DiffFacts(*ids, feed, key, _files_facts(lake, sides), sides.is_one_table, why_no_changes(sides))


def _key(lake: DiffLake, snapshot: Snapshot, options: DiffOptions) -> KeyFound:
    history = lake.history(snapshot.ref, limit=_KEY_HISTORY, ending_version=snapshot.version)
    return choose_key(options.key, snapshot.metadata, history, options.remembered)


def _files_facts(lake: DiffLake, sides: Sides) -> FilesFacts:
    count = sum(len(places) for _, places in sides.parts())
    problem = None
    try:
        for snapshot, places in sides.parts():
            lake.require_files(snapshot, places)
    except LakehouseError as exc:
        problem = exc.message
    no_ids = why_no_row_ids(sides)
    return FilesFacts(count, sides.size_bytes, sides.num_rows, problem, no_ids, None if no_ids else why_not_here(sides))


def _compared(columns: Sequence[str] | None, sides: Sides, plan: DiffPlan) -> tuple[str, ...]:
    """The columns to compare, in the table's order: those asked for and the key, or all that can be."""
    if not columns:
        return sides.columns
    wanted = {name.lower() for name in (*columns, *(plan.key.columns if plan.key else ()))}
    if missing := sorted(wanted - {name.lower() for name in sides.columns}):
        raise DiffError(f"no column {', '.join(missing)} to compare", hint=f"columns: {', '.join(sides.columns[:50])}")
    return tuple(name for name in sides.columns if name.lower() in wanted)


def _outline(lake: DiffLake, sides: Sides, plan: DiffPlan, names: tuple[str, ...]) -> VersionDiff:
    first, second = sides.first, sides.second
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
        schema=diff_schemas(first.metadata, second.metadata) if sides.is_reverse else sides.schema,
        properties=diff_properties(
            (first.metadata, first.protocol),
            (second.metadata, second.protocol),
            clustered=(declared_clustering(first), declared_clustering(second)),
        ),
        files=diff_files(sides),
        num_rows=(first.num_rows, second.num_rows),
        first_covered_version=plan.first_covered_version,
        hint=plan.hint,
        rewritten=sides.apart.rewritten,
        against=None if sides.is_one_table else second.ref,
    )
    if not sides.is_one_table or sides.low == sides.high:
        return found
    commits = lake.history(first.ref, starting_version=sides.low + 1, ending_version=sides.high)
    return replace(found, commits=commit_changes(commits, None))


def _answered(
    prepared: PreparedDiff, method: DiffMethod, watch: Watch, failed: Mapping[DiffMethod, str]
) -> VersionDiff:
    found = _without_rows(prepared, method, failed)
    if method in (DiffMethod.SAME_VERSION, DiffMethod.LOG_ONLY):
        return found
    options = prepared.options
    query = NetQuery(found.key.columns if found.key else (), options.row_limit, options.tolerance, options.where)
    if method is DiffMethod.ROW_ID:
        answer = _by_row_ids(prepared, replace(query, key=(ROW_ID,)), watch)
        return with_commits(prepared, with_answer(prepared, method, answer, failed=failed), watch)
    if method is DiffMethod.CHANGE_FEED:
        feed = _by_feed(prepared, query, watch)
        _require_complete(prepared, feed.gross)
        return with_answer(prepared, method, feed, gross=feed.gross, failed=failed)
    if method not in BY_FILES:
        raise DiffError(f"{METHOD_NAMES[method]} is not computed here", hint="compare on the stream host")
    answer = _by_files(prepared, query, watch)
    return with_commits(prepared, with_answer(prepared, method, answer, failed=failed), watch)


def with_answer(
    prepared: PreparedDiff,
    method: DiffMethod,
    answer: NetAnswer,
    *,
    gross: Gross | None = None,
    failed: Mapping[DiffMethod, str] | None = None,
) -> VersionDiff:
    """The whole difference, once a method found its rows (paired by row ids: with `ROW_ID` as last column and key).
    `gross` is what each commit did, where the method tells it; `failed` are the better methods that were tried, and
    why they could not."""
    if method in BY_ROW_ID:
        answer = named_by(prepared.plan.key, answer)
    found = _with_rows(prepared, _without_rows(prepared, method, failed or {}), answer)
    return found if gross is None else _with_gross(found, gross)


def _without_rows(prepared: PreparedDiff, method: DiffMethod, failed: Mapping[DiffMethod, str]) -> VersionDiff:
    key = None if method in (DiffMethod.MULTISET, DiffMethod.LOG_ONLY, DiffMethod.SAME_VERSION) else prepared.plan.key
    if method in BY_ROW_ID and key is None:
        key = row_id_key()
    return replace(prepared.outline, method=method, key=key, reasons=prepared.plan.reasons(method, failed))


def with_commits(prepared: PreparedDiff, found: VersionDiff, watch: Watch) -> VersionDiff:
    """The same with what each commit did, as the change feed counts it where there is one."""
    newer = prepared.sides.newer
    if not found.commits or newer.metadata.configuration.get(FEED, "").lower() != "true":
        return found
    commits = [each.commit for each in found.commits]
    return replace(found, commits=counted_by_feed(prepared.lake, newer.ref, commits, watch))


def _by_files(prepared: PreparedDiff, query: NetQuery, watch: Watch) -> NetAnswer:
    """By the rows of the files apart: read by DuckDB where they are plain, else, or when it refuses, by deltalake."""
    lake, sides, columns = prepared.lake, prepared.sides, prepared.columns
    watch.rows_total = sides.num_rows
    first, second = (lake.plain_files(snapshot, places) for snapshot, places in sides.parts())
    types = plain_columns(sides, columns)

    def reading() -> pa.RecordBatchReader:
        return signed_rows(lake, sides, columns)

    if first is not None and second is not None and types is not None:
        paths, kinds = (first, second), types
        try:
            return net_changes(
                reading, columns, query, watch, can_read_twice=True, plain=lambda c: signed_files(c, paths, kinds)
            )
        except DiffError:
            watch.check()
    return net_changes(reading, columns, query, watch, can_read_twice=True)


def _by_row_ids(prepared: PreparedDiff, query: NetQuery, watch: Watch) -> NetAnswer:
    lake, sides, columns = prepared.lake, prepared.sides, prepared.columns
    watch.rows_total = sides.num_rows
    first, second = (lake.tracked_files(snapshot, places) for snapshot, places in sides.parts())

    def nothing() -> pa.RecordBatchReader:
        fields = [pa.field(column_name(i), pa.int64()) for i in range(len(columns) + 1)]
        return pa.schema([*fields, SIGN]).empty_table().to_reader()

    plain = lambda connection: signed_tracked(connection, (first, second), sides, columns)  # noqa: E731
    return net_changes(nothing, (*columns, ROW_ID), query, watch, plain=plain)


def _filtered(prepared: PreparedDiff) -> tuple[str, ...]:
    where = prepared.options.where
    return (f"only rows that satisfy {where} before or after are counted; commits count all",) if where else ()


def _by_feed(prepared: PreparedDiff, query: NetQuery, watch: Watch) -> FeedAnswer:
    sides = prepared.sides
    feed = prepared.lake.changes(sides.first.ref, sides.low, sides.high, columns=prepared.columns)
    return sum_up(feed, query, watch, is_reverse=sides.is_reverse)


def _require_complete(prepared: PreparedDiff, gross: Gross) -> None:
    """Raises `TableError` for a feed that leaves rows out, where another method can tell them."""
    others = [method for method in prepared.plan.methods if method in BY_FILES]
    why = why_incomplete((each.commit for each in prepared.outline.commits), gross)
    if why is not None and others:
        raise TableError(why, hint=f"compare by {METHOD_NAMES[others[0]]}")


def _with_gross(found: VersionDiff, gross: Gross) -> VersionDiff:
    commits = [each.commit for each in found.commits]
    whole = replace(found, commits=commit_changes(commits, gross))
    why = why_incomplete(commits, gross)
    return whole if why is None else replace(whole, exact=False, reasons=(*whole.reasons, why))


def _with_rows(prepared: PreparedDiff, found: VersionDiff, answer: NetAnswer) -> VersionDiff:
    whole = _counted(prepared, found, answer)
    return whole if whole.rows_agree else replace(whole, reasons=(*whole.reasons, _DISAGREE))


def _counted(prepared: PreparedDiff, found: VersionDiff, answer: NetAnswer) -> VersionDiff:
    return replace(
        found,
        net=answer.net,
        apart=answer.apart,
        rows=answer.rows,
        truncated=answer.truncated,
        changed_cells=answer.changed_cells,
        common=answer.common,
        arrow_schema=answer.arrow_schema,
        exact=answer.net.updated is not None and not answer.apart.rows and not prepared.sides.unfit,
        reasons=(*found.reasons, *limits(prepared.sides, prepared.columns, found, answer), *_filtered(prepared)),
        num_rows=(None, None) if prepared.options.where else found.num_rows,
    )
