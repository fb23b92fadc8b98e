"""What changed between two versions of a table (or two tables): the one door for the Changes page and `weir diff`.

Rule: the plan decides from the log alone (`prepare`), then one method computes; when it turns out that it cannot (a
file is gone, a reader refuses), the next one does and the reason stays. Whoever compared the rows, here or on the
stream host, the answer is made of them in one place (`answer_of`).
"""

from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa

from backend.changes.changed_rows import Pairing
from backend.changes.commits import FeedCounts, counted_by_feed, gross_changes, sum_up, why_incomplete, why_not_whole
from backend.changes.compare import Take, net_changes
from backend.changes.explain import Findings
from backend.changes.first_state import explained
from backend.changes.model import (
    ROW_ID,
    CommitChanges,
    DiffMethod,
    Explanation,
    KeyChoice,
    KeySource,
    Limits,
    NetCounts,
    Question,
    RowChanges,
    VersionDiff,
)
from backend.changes.plan import BY_FILES, METHOD_NAMES, PreparedDiff, prepare
from backend.changes.read import local_rows, signed_rows, why_not_by_duckdb
from backend.errors import DiffError, QueryError, TableError, UnsupportedFeatureError
from backend.lake.history.change_feed import FEED
from backend.lake.lake import Lake
from backend.lake.table.schema import column_names
from backend.sql.session import CancelToken

_SHOWN = 12  # columns named in a sentence
_NO_ROWS = (DiffMethod.SAME_VERSION, DiffMethod.LOG_ONLY)
_DISAGREE = (
    "the log's row counts do not agree with the rows read: some file's statistics are wrong, so how many rows stayed "
    "the same is not known"
)


def diff(
    lake: Lake,
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
            return answer_of(prepared, method, failed=failed, hint=hint)
    return answer_of(prepared, DiffMethod.LOG_ONLY, failed=failed)


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


def answer_of(
    prepared: PreparedDiff,
    method: DiffMethod,
    changes: RowChanges | None = None,
    *,
    explanation: Explanation = Explanation(),
    gross: FeedCounts | None = None,
    commits: tuple[CommitChanges, ...] | None = None,
    failed: Mapping[DiffMethod, str] | None = None,
    hint: str = "",
    notes: Sequence[str] = (),
) -> VersionDiff:
    """The whole answer, of what a method found here or on the stream host. `changes` is None where none compared rows;
    `gross` is what the method tells of each commit, else `commits` may have it from elsewhere. `failed` are the better
    methods that were tried, and why they could not; `notes` are further reasons."""
    plan, given, where = prepared.plan, prepared.input, prepared.question.where
    key, num_rows = plan.key, given.row_counts()
    if method in (DiffMethod.MULTISET, *_NO_ROWS):
        key = None
    elif key is None and method is DiffMethod.ROW_ID:
        key = KeyChoice((ROW_ID,), KeySource.ROW_TRACKING)
    reasons, is_exact = list(plan.reasons(method, failed)), method is DiffMethod.SAME_VERSION
    if changes is not None:
        num_rows = (None, None) if where else num_rows
        reasons += _not_said(prepared, method, key, changes)
        reasons += [] if changes.agree_with(num_rows) else [_DISAGREE]
        is_exact = not given.unfit and changes.net.updated is not None and not changes.apart.rows
    if gross is not None:
        in_between = [each.commit for each in prepared.commits]
        commits, gap = gross_changes(in_between, gross), why_incomplete(in_between, gross)
        reasons += [] if gap is None else [gap]
        is_exact = is_exact and gap is None
    return VersionDiff(
        prepared.question,
        method,
        key,
        (*reasons, *notes),
        exact=is_exact,
        changes=changes or _no_changes(prepared, method),
        commits=commits or prepared.commits,
        log=prepared.log,
        num_rows=num_rows,
        hint=plan.hint or hint,
        explanation=explanation,
    )


def commits_by_feed(prepared: PreparedDiff, token: CancelToken) -> tuple[CommitChanges, ...]:
    """What each commit did, as the change feed counts it where there is one."""
    newer, commits = prepared.input.newer, prepared.commits
    if not commits or newer.metadata.configuration.get(FEED, "").lower() != "true":
        return commits
    return counted_by_feed(prepared.lake, newer.ref, [each.commit for each in commits], token)


# the methods ----------------------------------------------------------------------------------------------------------


def _by_feed(prepared: PreparedDiff, token: CancelToken, take: Take | None) -> VersionDiff:
    """Raises `TableError` for a feed that leaves rows out, where another method can tell them."""
    given, key = prepared.input, prepared.plan.key.columns if prepared.plan.key else ()
    feed = prepared.lake.changes(given.first.ref, given.low, given.high, columns=prepared.columns)
    changes, findings, gross = sum_up(
        feed, key, prepared.question, token, is_reverse=given.is_reverse, take=take, limits=prepared.limits,
        premises=prepared.premises(),
    )  # fmt: skip
    others = [method for method in prepared.plan.methods if method in BY_FILES]
    if others and (why := why_not_whole(prepared.commits, gross, given)) is not None:
        raise TableError(why, hint=f"compare by {METHOD_NAMES[others[0]]}")
    explanation = explained(prepared, findings, token)
    return answer_of(prepared, DiffMethod.CHANGE_FEED, changes, explanation=explanation, gross=gross)


def _by_files(
    prepared: PreparedDiff, method: DiffMethod, token: CancelToken, take: Take | None, failed: Mapping[DiffMethod, str]
) -> VersionDiff:
    """By the rows of the files that only one state has, paired by row ids, by a key or as whole rows."""
    if method not in BY_FILES:
        raise DiffError(f"{METHOD_NAMES[method]} is not computed here", hint="compare on the stream host")
    token.rows_total = prepared.input.num_rows
    key = prepared.plan.key.columns if prepared.plan.key and method is not DiffMethod.MULTISET else ()
    pairing = Pairing(prepared.columns, key, by_ids=method is DiffMethod.ROW_ID)
    changes, findings = _by_duckdb_or_deltalake(prepared, pairing, token, take)
    if token.ending():  # all is compared, no more is read
        return answer_of(prepared, method, changes, failed=failed)
    explanation = explained(prepared, findings, token)
    commits = commits_by_feed(prepared, token)
    return answer_of(prepared, method, changes, explanation=explanation, commits=commits, failed=failed)


def _by_duckdb_or_deltalake(
    prepared: PreparedDiff, pairing: Pairing, token: CancelToken, take: Take | None
) -> tuple[RowChanges, Findings]:
    """Read by DuckDB where it can, else, or when it refuses, by deltalake; row ids by DuckDB alone."""
    given, columns, by_ids = prepared.input, prepared.columns, pairing.by_ids
    compare = partial(
        net_changes, pairing=pairing, question=prepared.question, token=token, take=take, limits=prepared.limits,
        premises=prepared.premises(),
    )  # fmt: skip
    if by_ids or (len(columns) <= prepared.limits.many_columns and why_not_by_duckdb(given, columns) is None):
        (first, only_first), (second, only_second) = given.states()
        local_files = prepared.lake.local_files
        try:
            with local_files(first, only_first) as before, local_files(second, only_second) as after:
                files = None if before is None or after is None else (before, after)
                if by_ids or files is not None:
                    return compare(lambda connection: local_rows(connection, given, files, columns, with_ids=by_ids))
        except (DiffError, UnsupportedFeatureError):
            if by_ids:
                raise
            token.check()
            token.rows_read, token.rows_total = 0, given.num_rows
    return compare(lambda _: signed_rows(prepared.lake, given, columns))


# what the numbers cannot say ------------------------------------------------------------------------------------------


def _not_said(prepared: PreparedDiff, method: DiffMethod, key: KeyChoice | None, changes: RowChanges) -> list[str]:
    """What the numbers cannot say, in words: each way in which a count is less than exact has its sentence."""
    reasons, where = [], prepared.question.where
    if key is None and changes.net.updated is None:
        reasons.append("without a key an updated row appears as a pair: its old values deleted, its new ones inserted")
    elif key is None and changes.net.updated:
        reasons.append("updates are counted from what the feed holds; without a key their rows appear as pairs")
    if changes.apart.rows:
        reasons.append(
            f"{changes.apart.rows:,} changed rows have a null key or share their key with another one: they are "
            "counted as inserted and deleted and shown apart"
        )
    if method is DiffMethod.KEY_JOIN:
        reasons.append("whether the key is unique was seen among the rows that changed, not among those that did not")
    if prepared.question.tolerance and key is None:
        reasons.append("without a key whole rows are compared, and floats have to be equal: the tolerance needs a key")
    given, columns = prepared.input, prepared.columns
    if dropped := given.schema.dropped:
        who = "the older version" if given.is_one_table else given.first.ref.name
        reasons.append(f"columns that only {who} has are not compared: {_list([f.path for f in dropped])}")
    if given.unfit:
        what = "another type or no value" if given.is_one_table else "no such column of the same type"
        reasons.append(f"columns that the other side has with {what} are not compared: {_list(given.unfit)}")
    left = [name for name in column_names(given.newer.metadata) if name not in columns and name not in given.unfit]
    if left:
        reasons.append(f"left out of the comparison: {_list(left)}")
    if where:
        reasons.append(f"only rows that satisfy {where} before or after are counted; commits count all")
    return reasons


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
