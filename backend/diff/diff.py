"""What changed between two versions of a table: the one door for the Changes page and `weir diff`.

Rule: facts are gathered, `plan_diff` decides, one method computes; metadata and files are told whatever the method.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from backend.diff.feed import FeedAnswer, sum_up
from backend.diff.files import diff_files
from backend.diff.key import choose_key
from backend.diff.model import (
    ApartCounts,
    CommitChanges,
    DiffMethod,
    KeyChoice,
    NetCounts,
    RowChange,
    RowKind,
    VersionDiff,
)
from backend.diff.plan import DiffFacts, DiffPlan, DiffRequest, FeedSupport, plan_diff
from backend.errors import DiffError
from backend.lake.metadata_diff import column_names, diff_properties, diff_schemas
from backend.lake.model import Commit, Snapshot, TableRef

_KEY_HISTORY = 200  # commits looked through for MERGE predicates
_SWAPPED = {RowKind.INSERT: RowKind.DELETE, RowKind.DELETE: RowKind.INSERT, RowKind.UPDATE: RowKind.UPDATE}


class DiffLake(Protocol):
    """The part of `backend.lake.lake.Lake` that a diff needs."""

    def snapshot(self, ref: TableRef, version: int | None = None) -> Snapshot: ...

    def history(
        self,
        ref: TableRef,
        *,
        limit: int | None = None,
        starting_version: int | None = None,
        ending_version: int | None = None,
    ) -> list[Commit]: ...

    def cdf_support(self, ref: TableRef, from_version: int, to_version: int) -> FeedSupport: ...

    def changes(
        self, ref: TableRef, from_version: int, to_version: int, *, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader | pa.Table: ...


@dataclass(frozen=True, slots=True)
class _Case:
    """One diff in the making: both snapshots as asked, the commits in between newest first."""

    lake: DiffLake
    ref: TableRef
    first: Snapshot
    second: Snapshot
    commits: tuple[Commit, ...]

    @property
    def low(self) -> int:
        return min(self.first.version, self.second.version)

    @property
    def high(self) -> int:
        return max(self.first.version, self.second.version)

    @property
    def newer(self) -> Snapshot:
        return self.first if self.first.version > self.second.version else self.second


def diff(
    lake: DiffLake,
    ref: TableRef,
    from_version: int,
    to_version: int,
    *,
    key: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    row_limit: int,
) -> VersionDiff:
    """The difference of two versions; from may be the newer one (what would going back change).

    Where rows cannot be compared the method is UNAVAILABLE with its reasons, and metadata, files and commits are
    still told. `columns` compares only those (and the key). Raises `VersionNotFoundError` for a version that is not
    there, `DiffError` for a key or column that is not, and what reading the feed raises.
    """
    case = _case(lake, ref, from_version, to_version)
    facts = _facts(case, key)
    plan = plan_diff(DiffRequest(from_version, to_version), facts)
    names = _compared(columns, case.newer, plan.key)
    if plan.method is not DiffMethod.CHANGE_FEED:
        return _without_rows(case, plan)
    answer = sum_up(_feed(case, names), key=plan.key.columns if plan.key else (), row_limit=row_limit)
    plan = replace(plan, reasons=(*plan.reasons, *_limits(answer, plan.key, case), *_left_out(case.newer, names)))
    return _with_rows(case, plan, answer)


def _case(lake: DiffLake, ref: TableRef, from_version: int, to_version: int) -> _Case:
    first = lake.snapshot(ref, from_version)
    second = lake.snapshot(ref, to_version)
    low, high = sorted((from_version, to_version))
    commits = lake.history(ref, starting_version=low + 1, ending_version=high) if low < high else []
    return _Case(lake, ref, first, second, tuple(commits))


def _facts(case: _Case, key: Sequence[str] | None) -> DiffFacts:
    ids = (case.first.metadata.id, case.second.metadata.id)
    if case.low == case.high:
        return DiffFacts(*ids, None, choose_key(key, case.newer.metadata, ()))
    history = case.lake.history(case.ref, limit=_KEY_HISTORY, ending_version=case.high)
    found = choose_key(key, case.newer.metadata, history)
    return DiffFacts(*ids, case.lake.cdf_support(case.ref, case.low, case.high), found)


def _feed(case: _Case, names: Sequence[str]) -> pa.RecordBatchReader | pa.Table:
    return case.lake.changes(case.ref, case.low, case.high, columns=names)


def _compared(columns: Sequence[str] | None, snapshot: Snapshot, key: KeyChoice | None) -> tuple[str, ...]:
    """The columns to compare, in the table's order: those asked for and the key, or all of the newer version."""
    known = column_names(snapshot.metadata)
    if not columns:
        return known
    wanted = {name.lower() for name in (*columns, *(key.columns if key else ()))}
    if missing := sorted(wanted - {name.lower() for name in known}):
        raise DiffError(f"no column {', '.join(missing)} to compare", hint=f"columns: {', '.join(known[:50])}")
    return tuple(name for name in known if name.lower() in wanted)


def _limits(answer: FeedAnswer, key: KeyChoice | None, case: _Case) -> list[str]:
    """What the numbers cannot say, in words."""
    said = []
    if key is None and answer.net.updated is None:
        said.append("without a key an updated row appears as a pair: its old values deleted, its new ones inserted")
    elif key is None and answer.net.updated:
        said.append("updates are counted from what the feed holds; without a key their rows appear as pairs")
    if answer.apart.rows:
        said.append(
            f"{answer.apart.rows:,} changed rows have a null key or share their key with another one: they are "
            "counted as inserted and deleted and shown apart"
        )
    if unpaired := answer.gross.unpaired():
        said.append(f"preimages and postimages differ in number at v{unpaired[0]}: its writer's feed is not complete")
    dropped = diff_schemas(case.first.metadata, case.second.metadata).dropped
    if dropped:
        said.append(f"columns that only the older version has are not compared: {', '.join(f.path for f in dropped)}")
    return said


def _left_out(snapshot: Snapshot, names: Sequence[str]) -> list[str]:
    left = [name for name in column_names(snapshot.metadata) if name not in names]
    return [f"left out of the comparison: {', '.join(left[:12])}{' …' if len(left) > 12 else ''}"] if left else []


def _without_rows(case: _Case, plan: DiffPlan) -> VersionDiff:
    same = plan.method is DiffMethod.SAME_VERSION
    net = NetCounts(0, 0, 0) if same else NetCounts(None, None, None)
    commits = tuple(CommitChanges(commit, None, None, None) for commit in case.commits)
    nothing = FeedAnswer.nothing(net)
    return replace(_with_rows(case, plan, nothing), commits=commits, exact=same)


def _with_rows(case: _Case, plan: DiffPlan, answer: FeedAnswer) -> VersionDiff:
    reverse = case.first.version > case.second.version
    metadata = ((case.first.metadata, case.first.protocol), (case.second.metadata, case.second.protocol))
    return VersionDiff(
        ref=case.ref,
        from_version=case.first.version,
        to_version=case.second.version,
        method=plan.method,
        reasons=plan.reasons,
        exact=answer.net.updated is not None and not answer.apart.rows and not answer.gross.unpaired(),
        key=plan.key,
        net=_back(answer.net) if reverse else answer.net,
        apart=_back_apart(answer.apart) if reverse else answer.apart,
        commits=tuple(_commit_changes(commit, answer) for commit in case.commits),
        rows=tuple(_back_row(row) for row in answer.rows) if reverse else answer.rows,
        truncated=answer.truncated,
        changed_cells=answer.changed_cells,
        arrow_schema=answer.arrow_schema,
        schema=diff_schemas(case.first.metadata, case.second.metadata),
        properties=diff_properties(*metadata),
        files=diff_files(case.first.files, case.second.files),
        first_covered_version=plan.first_covered_version,
        hint=plan.hint,
    )


def _commit_changes(commit: Commit, answer: FeedAnswer) -> CommitChanges:
    count = answer.gross.of
    return CommitChanges(
        commit,
        count(commit.version, "insert"),
        count(commit.version, "update_postimage"),
        count(commit.version, "delete"),
    )


def _back(net: NetCounts) -> NetCounts:
    return NetCounts(net.deleted, net.updated, net.inserted)


def _back_apart(apart: ApartCounts) -> ApartCounts:
    return ApartCounts(
        apart.duplicate_keys, apart.duplicate_deleted, apart.duplicate_inserted, apart.null_deleted, apart.null_inserted
    )


def _back_row(row: RowChange) -> RowChange:
    return replace(row, kind=_SWAPPED[row.kind], before=row.after, after=row.before)
