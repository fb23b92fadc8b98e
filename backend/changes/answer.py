"""What changed between two versions of a table (or two tables): the one door for the Changes page and `weir diff`.

Rule: the plan decides from the log alone (`prepare`), then one method computes; when it turns out that it cannot (a
file is gone, a reader refuses), the next one does and the reason stays. Whoever compared the rows, here or on the
stream host, the answer is made of them in one place (`answer_of`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from backend.changes.changed_rows import ChangedBatches, change_schema
from backend.changes.commits import Gross, counted_by_feed, gross_changes, sum_up, why_incomplete, why_not_whole
from backend.changes.compare import Compared, Pairing, Take, net_changes
from backend.changes.first_state import explained
from backend.changes.model import (
    BY_ROW_ID,
    ROW_ID,
    CommitChanges,
    DiffMethod,
    Explanation,
    KeyChoice,
    KeySource,
    Limits,
    NetCounts,
    Question,
    RowChange,
    RowChanges,
    VersionDiff,
)
from backend.changes.plan import BY_FILES, METHOD_NAMES, DiffLake, PreparedDiff, prepare
from backend.changes.read import DiffInput, local_rows, signed_rows, why_not_by_duckdb
from backend.errors import DiffError, QueryError, TableError, UnsupportedFeatureError
from backend.lake.history.change_feed import FEED
from backend.lake.rows.local_files import LocalFiles
from backend.lake.table.metadata_diff import column_names
from backend.sql.session import CancelToken

_SHOWN = 12  # columns named in a sentence
_NO_ROWS = (DiffMethod.SAME_VERSION, DiffMethod.LOG_ONLY)
_DISAGREE = (
    "the log's row counts do not agree with the rows read: some file's statistics are wrong, so how many rows stayed "
    "the same is not known"
)


def diff(
    lake: DiffLake,
    question: Question,
    token: CancelToken | None = None,
    *,
    take: Take | None = None,
    limits: Limits = Limits(),
) -> VersionDiff:
    """The answer of this process. `take` gets every changed row, beside those in the answer, and gets them anew where a
    better method turns out not to be whole.

    Where rows cannot be compared the method is LOG_ONLY with its reasons. Raises `VersionNotFoundError` for a version
    that is not there, `DiffError` for a key, a column or a method that is not, `Stopped`.
    """
    return compare_rows(prepare(lake, question, limits=limits), token or CancelToken(), take)


def compare_rows(prepared: PreparedDiff, token: CancelToken, take: Take | None = None) -> VersionDiff:
    """The whole answer: by the plan's method, or by the first below it that can; see `diff` for what it raises."""
    failed: dict[DiffMethod, str] = {}
    hint = ""
    for method in prepared.plan.methods:
        try:
            if method is DiffMethod.CHANGE_FEED:
                return _by_feed(prepared, token, take)
            if method not in _NO_ROWS:
                return _by_files(prepared, method, token, take, failed)
        except QueryError:  # the condition is wrong, whatever the method
            raise
        except TableError as exc:
            if prepared.question.method is not None:
                raise
            failed[method], hint = exc.message, exc.hint
        else:
            return answer_of(prepared, Answered(method, failed=failed, hint=hint))
    return answer_of(prepared, Answered(DiffMethod.LOG_ONLY, failed=failed))


def outline(prepared: PreparedDiff) -> VersionDiff:
    """The answer before rows are compared: what the log tells."""
    plan = prepared.plan
    return VersionDiff(
        prepared.question,
        plan.method,
        plan.key,
        plan.reasons(plan.method),
        exact=plan.method is DiffMethod.SAME_VERSION,
        changes=_no_changes(prepared, plan.method),
        commits=prepared.commits,
        log=prepared.log,
        num_rows=prepared.input.row_counts() if plan.method is DiffMethod.SAME_VERSION else (None, None),
        hint=plan.hint,
    )


def _no_changes(prepared: PreparedDiff, method: DiffMethod) -> RowChanges:
    net = NetCounts(0, 0, 0) if method is DiffMethod.SAME_VERSION else NetCounts(None, None, None)
    return RowChanges(net, pa.schema([(name, pa.null()) for name in prepared.columns]))


# the answer -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answered:
    """What a method found, here or on the stream host. `changes` is None where none compared rows; `gross` is what the
    method tells of each commit, else `commits` may have it from elsewhere. `failed` are the better methods that were
    tried, and why they could not; `notes` are further reasons."""

    method: DiffMethod
    changes: RowChanges | None = None
    explanation: Explanation = Explanation()
    gross: Gross | None = None
    commits: tuple[CommitChanges, ...] | None = None
    failed: Mapping[DiffMethod, str] | None = None
    hint: str = ""
    notes: tuple[str, ...] = ()


def answer_of(prepared: PreparedDiff, answered: Answered) -> VersionDiff:
    """The whole answer. Of rows paired by row ids `changes` has `ROW_ID` as its last column and as key."""
    method, plan, where = answered.method, prepared.plan, prepared.question.where
    key = _key_of(prepared, method)
    changes, num_rows = answered.changes or _no_changes(prepared, method), prepared.input.row_counts()
    reasons, gap = [*plan.reasons(method, answered.failed)], None
    if answered.changes is not None:
        changes = _named_by(plan.key, changes) if method in BY_ROW_ID else changes
        num_rows = (None, None) if where else num_rows
        reasons += _not_said(prepared, method, key, changes)
        reasons += [] if changes.agree_with(num_rows) else [_DISAGREE]
    commits = answered.commits or prepared.commits
    if answered.gross is not None:
        in_between = [each.commit for each in prepared.commits]
        commits, gap = gross_changes(in_between, answered.gross), why_incomplete(in_between, answered.gross)
        reasons += [] if gap is None else [gap]
    return VersionDiff(
        prepared.question,
        method,
        key,
        (*reasons, *answered.notes),
        exact=gap is None and _is_exact(prepared, method, answered.changes),
        changes=changes,
        commits=commits,
        log=prepared.log,
        num_rows=num_rows,
        hint=plan.hint or answered.hint,
        explanation=answered.explanation,
    )


def commits_by_feed(prepared: PreparedDiff, token: CancelToken) -> tuple[CommitChanges, ...]:
    """What each commit did, as the change feed counts it where there is one."""
    newer, commits = prepared.input.newer, prepared.commits
    if not commits or newer.metadata.configuration.get(FEED, "").lower() != "true":
        return commits
    return counted_by_feed(prepared.lake, newer.ref, [each.commit for each in commits], token)


def _key_of(prepared: PreparedDiff, method: DiffMethod) -> KeyChoice | None:
    if method in (DiffMethod.MULTISET, *_NO_ROWS):
        return None
    if prepared.plan.key is None and method in BY_ROW_ID:
        return KeyChoice((ROW_ID,), KeySource.ROW_TRACKING)
    return prepared.plan.key


def _is_exact(prepared: PreparedDiff, method: DiffMethod, changes: RowChanges | None) -> bool:
    if changes is None:
        return method is DiffMethod.SAME_VERSION
    return not prepared.input.unfit and changes.net.updated is not None and not changes.apart.rows


# the methods ----------------------------------------------------------------------------------------------------------


def _by_feed(prepared: PreparedDiff, token: CancelToken, take: Take | None) -> VersionDiff:
    given, method = prepared.input, DiffMethod.CHANGE_FEED
    feed = prepared.lake.changes(given.first.ref, given.low, given.high, columns=prepared.columns)
    key = prepared.plan.key.columns if prepared.plan.key else ()
    compared, gross = sum_up(
        feed, key, prepared.question, token, is_reverse=given.is_reverse, take=take, limits=prepared.limits
    )
    _require_complete(prepared, gross)
    explanation = explained(prepared, compared.findings, token)
    return answer_of(prepared, Answered(method, compared.changes, explanation, gross))


def _require_complete(prepared: PreparedDiff, gross: Gross) -> None:
    """Raises `TableError` for a feed that leaves rows out, where another method can tell them."""
    others = [method for method in prepared.plan.methods if method in BY_FILES]
    commits, num_rows = (each.commit for each in prepared.commits), prepared.input.row_counts()
    why = why_not_whole(commits, gross, num_rows, is_reverse=prepared.input.is_reverse)
    if why is not None and others:
        raise TableError(why, hint=f"compare by {METHOD_NAMES[others[0]]}")


def _by_files(
    prepared: PreparedDiff, method: DiffMethod, token: CancelToken, take: Take | None, failed: Mapping[DiffMethod, str]
) -> VersionDiff:
    """By the rows of the files that only one state has, paired by row ids, by a key or as whole rows."""
    if method not in BY_FILES:
        raise DiffError(f"{METHOD_NAMES[method]} is not computed here", hint="compare on the stream host")
    token.rows_total = prepared.input.num_rows
    if method is DiffMethod.ROW_ID:
        compared = _by_row_ids(prepared, token, take)
    else:
        key = prepared.plan.key.columns if prepared.plan.key and method is DiffMethod.KEY_JOIN else ()
        compared = _by_duckdb_or_deltalake(prepared, Pairing(prepared.columns, key), token, take)
    answered = Answered(method, compared.changes, failed=failed)
    if not token.ending():
        explanation = explained(prepared, compared.findings, token)
        answered = replace(answered, explanation=explanation, commits=commits_by_feed(prepared, token))
    return answer_of(prepared, answered)


def _by_duckdb_or_deltalake(
    prepared: PreparedDiff, pairing: Pairing, token: CancelToken, take: Take | None
) -> Compared:
    """Read by DuckDB where it can, else, or when it refuses, by deltalake."""
    lake, given, columns = prepared.lake, prepared.input, prepared.columns
    compare = partial(
        net_changes, pairing=pairing, question=prepared.question, token=token, take=take, limits=prepared.limits
    )
    if len(columns) <= prepared.limits.many_columns and why_not_by_duckdb(given, columns) is None:
        try:
            with _local_files(prepared) as files:
                if files is not None:
                    return compare(lambda connection: local_rows(connection, given, files, columns))
        except (DiffError, UnsupportedFeatureError):
            token.check()
            token.rows_read, token.rows_total = 0, given.num_rows
    return compare(lambda _: signed_rows(lake, given, columns))


def _by_row_ids(prepared: PreparedDiff, token: CancelToken, take: Take | None) -> Compared:
    def take_named(changed: ChangedBatches) -> None:
        if take is not None:
            take(_batches_named_by(prepared.plan.key, changed))

    pairing = Pairing((*prepared.columns, ROW_ID), (ROW_ID,))
    with _local_files(prepared) as files:
        return net_changes(
            lambda connection: local_rows(connection, prepared.input, files, prepared.columns, with_ids=True),
            pairing, prepared.question, token, take=take_named if take else None, limits=prepared.limits,
        )  # fmt: skip


@contextmanager
def _local_files(prepared: PreparedDiff) -> Iterator[tuple[LocalFiles, LocalFiles] | None]:
    """Both sides' files, open meanwhile."""
    (first, only_first), (second, only_second) = prepared.input.states()
    with (
        prepared.lake.local_files(first, only_first) as before,
        prepared.lake.local_files(second, only_second) as after,
    ):
        yield None if before is None or after is None else (before, after)


# rows paired by their ids --------------------------------------------------------------------------------------------


def _named_by(key: KeyChoice | None, changes: RowChanges) -> RowChanges:
    """Changes whose rows were paired by `ROW_ID`, their last column: rows go by the table's key where it has one, and
    then their ids are left out. Those without that column were paired by a key that was given, and stay."""
    if ROW_ID not in changes.columns:
        return changes
    if key is None:
        return replace(changes, rows=tuple(replace(row, key=None) for row in changes.rows))
    columns = [field for field in changes.arrow_schema if field.name != ROW_ID]
    return replace(changes, rows=tuple(_rows_by(key, changes)), arrow_schema=pa.schema(columns))


def _batches_named_by(key: KeyChoice | None, changed: ChangedBatches) -> ChangedBatches:
    """The same for all rows on their way out."""
    if key is None:
        return replace(changed, key=())
    rows = pa.schema([field for field in changed.rows if field.name != ROW_ID])
    names = change_schema(rows).names
    return ChangedBatches(rows, key.columns, (batch.select(names) for batch in changed.batches))


def _rows_by(key: KeyChoice, changes: RowChanges) -> Iterator[RowChange]:
    for row in changes.rows:
        before, after = _without_id(row.before), _without_id(row.after)
        values = after or before or {}
        yield replace(row, before=before, after=after, key={name: values[name] for name in key.columns})


def _without_id(values: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return None if values is None else {name: value for name, value in values.items() if name != ROW_ID}


# what the numbers cannot say ------------------------------------------------------------------------------------------


def _not_said(prepared: PreparedDiff, method: DiffMethod, key: KeyChoice | None, changes: RowChanges) -> list[str]:
    """What the numbers cannot say, in words: each way in which a count is less than exact has its sentence."""
    where = prepared.question.where
    filtered = [f"only rows that satisfy {where} before or after are counted; commits count all"] if where else []
    whole = "without a key whole rows are compared, and floats have to be equal: the tolerance needs a key"
    exact = [whole] if prepared.question.tolerance and key is None else []
    return [*_on_rows(method, key, changes), *exact, *_on_columns(prepared.input, prepared.columns), *filtered]


def _on_rows(method: DiffMethod, key: KeyChoice | None, changes: RowChanges) -> list[str]:
    said = []
    if key is None and changes.net.updated is None:
        said.append("without a key an updated row appears as a pair: its old values deleted, its new ones inserted")
    elif key is None and changes.net.updated:
        said.append("updates are counted from what the feed holds; without a key their rows appear as pairs")
    if changes.apart.rows:
        said.append(
            f"{changes.apart.rows:,} changed rows have a null key or share their key with another one: they are "
            "counted as inserted and deleted and shown apart"
        )
    if method is DiffMethod.KEY_JOIN:
        said.append("whether the key is unique was seen among the rows that changed, not among those that did not")
    return said


def _on_columns(given: DiffInput, columns: Sequence[str]) -> list[str]:
    said = []
    if dropped := given.schema.dropped:
        who = "the older version" if given.is_one_table else given.first.ref.name
        said.append(f"columns that only {who} has are not compared: {_list([f.path for f in dropped])}")
    if given.unfit:
        what = "another type or no value" if given.is_one_table else "no such column of the same type"
        said.append(f"columns that the other side has with {what} are not compared: {_list(given.unfit)}")
    left = [name for name in column_names(given.newer.metadata) if name not in columns and name not in given.unfit]
    if left:
        said.append(f"left out of the comparison: {_list(left)}")
    return said


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
