"""What changed between two versions of a table (or two tables): the one door for the Changes page and `weir diff`.

Rule: the plan decides from the log alone (`prepare`), then one method computes; when it turns out that it cannot (a
file is gone, a reader refuses), the next one does and the reason stays. Metadata, files and commits are told whatever
the method.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from backend.changes.commits import (
    FeedAnswer,
    Gross,
    counted_by_feed,
    gross_changes,
    sum_up,
    why_incomplete,
    why_not_whole,
)
from backend.changes.compare import NetAnswer, NetQuery, Read, net_changes
from backend.changes.explain import Findings, explain, hold_against
from backend.changes.export import ChangedBatches, change_schema
from backend.changes.model import (
    BY_ROW_ID,
    ROW_ID,
    DiffMethod,
    Explanation,
    KeyChoice,
    KeySource,
    Limits,
    Population,
    Question,
    RowChange,
    VersionDiff,
)
from backend.changes.plan import BY_FILES, METHOD_NAMES
from backend.changes.prepare import DiffLake, PreparedDiff, prepare
from backend.changes.read_local import file_rows, why_not_by_duckdb, with_row_ids
from backend.changes.read_stream import DiffInput, signed_rows
from backend.errors import DiffError, LakehouseError, QueryError, TableError, UnsupportedFeatureError
from backend.lake.files.file_difference import DIFFERENCE_COLUMNS
from backend.lake.history.change_feed import FEED
from backend.lake.model import Snapshot
from backend.lake.rows.local_files import LocalFiles
from backend.lake.storage.paths import is_remote
from backend.lake.table.metadata_diff import column_names
from backend.sql.quoting import quoted_name
from backend.sql.session import CancelToken, Connection
from backend.work import Stopped

Take = Callable[[ChangedBatches], None]

_SHOWN = 12  # columns named in a sentence
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
            found = _answered(prepared, method, token, failed, take)
        except QueryError:  # the condition is wrong, whatever the method
            raise
        except TableError as exc:
            if prepared.question.method is not None:
                raise
            failed[method], hint = exc.message, exc.hint
        else:
            return found if found.is_available else replace(found, hint=found.hint or hint)
    return _answered(prepared, DiffMethod.LOG_ONLY, token, failed, take)


def _answered(
    prepared: PreparedDiff,
    method: DiffMethod,
    token: CancelToken,
    failed: Mapping[DiffMethod, str],
    take: Take | None,
) -> VersionDiff:
    found = _without_rows(prepared, method, failed)
    if method in (DiffMethod.SAME_VERSION, DiffMethod.LOG_ONLY):
        return found
    question = prepared.question
    key = found.key.columns if found.key else ()
    query = NetQuery(key, question.row_limit, question.tolerance, question.where, take, prepared.limits)
    if method is DiffMethod.CHANGE_FEED:
        feed = _by_feed(prepared, query, token)
        _require_complete(prepared, found, feed)
        whole = with_answer(prepared, method, feed, gross=feed.gross, failed=failed)
        return replace(whole, explanation=_explained(prepared, feed.findings, token))
    if method not in BY_FILES:
        raise DiffError(f"{METHOD_NAMES[method]} is not computed here", hint="compare on the stream host")
    read = _by_row_ids if method is DiffMethod.ROW_ID else _by_files
    answer = read(prepared, query, token)
    compared = with_answer(prepared, method, answer, failed=failed)
    if compared.partial or token.ending():
        return compared
    return with_commits(prepared, replace(compared, explanation=_explained(prepared, answer.findings, token)), token)


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
        answer = _named_by(prepared.plan.key, answer)
    found = _with_rows(prepared, _without_rows(prepared, method, failed or {}), answer)
    return found if gross is None else _with_gross(found, gross)


def _without_rows(prepared: PreparedDiff, method: DiffMethod, failed: Mapping[DiffMethod, str]) -> VersionDiff:
    key = None if method in (DiffMethod.MULTISET, DiffMethod.LOG_ONLY, DiffMethod.SAME_VERSION) else prepared.plan.key
    if method in BY_ROW_ID and key is None:
        key = _row_id_key()
    reasons, num_rows = prepared.plan.reasons(method, failed), prepared.input.row_counts()
    return replace(prepared.outline, method=method, key=key, reasons=reasons, num_rows=num_rows)


def with_commits(prepared: PreparedDiff, found: VersionDiff, token: CancelToken) -> VersionDiff:
    """The same with what each commit did, as the change feed counts it where there is one."""
    newer = prepared.input.newer
    if not found.commits or newer.metadata.configuration.get(FEED, "").lower() != "true":
        return found
    commits = [each.commit for each in found.commits]
    return replace(found, commits=counted_by_feed(prepared.lake, newer.ref, commits, token))


def _by_files(prepared: PreparedDiff, query: NetQuery, token: CancelToken) -> NetAnswer:
    """By the rows of the files apart: read by DuckDB where it can, else, or when it refuses, by deltalake."""
    lake, given, columns = prepared.lake, prepared.input, prepared.columns
    token.rows_total = given.num_rows
    if len(columns) <= query.limits.many_columns and why_not_by_duckdb(given, columns) is None:
        try:
            if (files := _local_files(prepared)) is not None:
                return net_changes(_reading(prepared, files), columns, query, token)
        except (DiffError, UnsupportedFeatureError):
            token.check()
            token.rows_read, token.rows_total = 0, given.num_rows
    return net_changes(lambda _: signed_rows(lake, given, columns), columns, query, token)


def _local_files(prepared: PreparedDiff) -> tuple[LocalFiles, LocalFiles] | None:
    first, second = (prepared.lake.local_files(snapshot, files) for snapshot, files in prepared.input.states())
    return None if first is None or second is None else (first, second)


def _reading(prepared: PreparedDiff, files: tuple[LocalFiles, LocalFiles], *, with_ids: bool = False) -> Read:
    given = prepared.input
    metadata, columns, num_rows = given.newer.metadata, prepared.columns, given.num_rows
    return partial(file_rows, files=files, metadata=metadata, columns=columns, num_rows=num_rows, with_ids=with_ids)


def _by_row_ids(prepared: PreparedDiff, query: NetQuery, token: CancelToken) -> NetAnswer:
    token.rows_total = prepared.input.num_rows
    files = with_row_ids(prepared.input, _local_files(prepared))

    def named(changed: ChangedBatches) -> None:
        if query.take is not None:
            query.take(_batches_named_by(prepared.plan.key, changed))

    by_id = replace(query, key=(ROW_ID,), take=query.take and named)
    return net_changes(_reading(prepared, files, with_ids=True), (*prepared.columns, ROW_ID), by_id, token)


def _by_feed(prepared: PreparedDiff, query: NetQuery, token: CancelToken) -> FeedAnswer:
    given = prepared.input
    feed = prepared.lake.changes(given.first.ref, given.low, given.high, columns=prepared.columns)
    return sum_up(feed, query, token, is_reverse=given.is_reverse)


def _require_complete(prepared: PreparedDiff, found: VersionDiff, feed: FeedAnswer) -> None:
    """Raises `TableError` for a feed that leaves rows out, where another method can tell them."""
    others = [method for method in prepared.plan.methods if method in BY_FILES]
    commits = (each.commit for each in prepared.outline.commits)
    why = why_not_whole(commits, feed.gross, found.num_rows, is_reverse=prepared.input.is_reverse)
    if why is not None and others:
        raise TableError(why, hint=f"compare by {METHOD_NAMES[others[0]]}")


def _with_gross(found: VersionDiff, gross: Gross) -> VersionDiff:
    commits = [each.commit for each in found.commits]
    whole = replace(found, commits=gross_changes(commits, gross))
    why = why_incomplete(commits, gross)
    return whole if why is None else replace(whole, exact=False, reasons=(*whole.reasons, why))


def _with_rows(prepared: PreparedDiff, found: VersionDiff, answer: NetAnswer) -> VersionDiff:
    whole = _counted(prepared, found, answer)
    return whole if whole.rows_agree else replace(whole, reasons=(*whole.reasons, _DISAGREE))


def _is_exact(prepared: PreparedDiff, answer: NetAnswer) -> bool:
    is_whole = answer.partial is None and not prepared.input.unfit
    return is_whole and answer.net.updated is not None and not answer.apart.rows


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
        exact=_is_exact(prepared, answer),
        partial=answer.partial,
        reasons=(*found.reasons, *_not_said(prepared, found, answer)),
        num_rows=(None, None) if prepared.question.where else found.num_rows,
    )


# what stands out ------------------------------------------------------------------------------------------------------


def explained_rows(prepared: PreparedDiff, rows: Read, columns: Sequence[str], key: tuple[str, ...]) -> Explanation:
    """What stands out among rows that were compared elsewhere, all of which `rows` gives as signed rows. Raises as
    `net_changes` does."""
    token = CancelToken()
    query = NetQuery(key, 0, prepared.question.tolerance, limits=prepared.limits)
    return _explained(prepared, net_changes(rows, columns, query, token).findings, token, reads_apart=False)


def _explained(
    prepared: PreparedDiff, findings: Findings, token: CancelToken, *, reads_apart: bool = True
) -> Explanation:
    """What stands out, held against the rows of the first state; where those cannot be read in time, what was done.
    With `reads_apart` a large state's files that the second has not stand for it."""
    alone = Explanation(findings.done)
    if not findings.groups:
        return alone
    first, files, is_whole = _others(prepared, len(findings.columns))
    if not files.num_rows or not (is_whole or reads_apart):
        return alone
    try:
        num_rows, masks = hold_against(findings, _reading_one_side(prepared, files, findings.columns), token)
    except (LakehouseError, Stopped):
        return alone
    return explain(findings, Population(first.version, num_rows, is_whole), masks)


def _others(prepared: PreparedDiff, columns: int) -> tuple[Snapshot, pa.Table, bool]:
    """The files of the first state where that is little to read, else those of them that the second has not."""
    first, apart = prepared.input.states()[0]
    most = prepared.limits.values_beside // (10 if is_remote(first.ref.uri) else 1)
    rows, is_small = first.num_rows, first.size_bytes <= most
    if is_small if rows is None else rows * columns <= most:
        return first, first.columns(DIFFERENCE_COLUMNS), True
    return first, apart, False


def _reading_one_side(prepared: PreparedDiff, files: pa.Table, columns: Sequence[str]) -> Callable[[Connection], str]:
    """The rows of files of the first state, by DuckDB where it can."""
    lake, given, first = prepared.lake, prepared.input, prepared.input.first

    def by_deltalake(connection: Connection) -> str:
        connection.register("beside", lake.read_files(first, files, columns=columns, as_of=given.as_of))
        return f"SELECT {', '.join(f'{quoted_name(name)} AS c{i}' for i, name in enumerate(columns))} FROM beside"

    def rows(connection: Connection) -> str:
        if why_not_by_duckdb(given, columns) is not None:
            return by_deltalake(connection)
        try:
            if (local := lake.local_files(first, files)) is None:
                return by_deltalake(connection)
            return file_rows(connection, (local, local.only([])), given.newer.metadata, columns).whole.before
        except UnsupportedFeatureError:
            return by_deltalake(connection)

    return rows


# rows paired by their ids --------------------------------------------------------------------------------------------


def _row_id_key() -> KeyChoice:
    return KeyChoice((ROW_ID,), KeySource.ROW_TRACKING)


def _named_by(key: KeyChoice | None, answer: NetAnswer) -> NetAnswer:
    """An answer whose rows were paired by `ROW_ID`, its last column: rows go by the table's key where it has one, and
    then their ids are left out. One without that column was paired by a key that was given, and stays."""
    if ROW_ID not in answer.arrow_schema.names:
        return answer
    if key is None:
        return replace(answer, rows=tuple(replace(row, key=None) for row in answer.rows))
    columns = [field for field in answer.arrow_schema if field.name != ROW_ID]
    return replace(answer, rows=tuple(_rows_by(key, answer)), arrow_schema=pa.schema(columns))


def _batches_named_by(key: KeyChoice | None, changed: ChangedBatches) -> ChangedBatches:
    """The same for all rows on their way out."""
    if key is None:
        return replace(changed, key=())
    rows = pa.schema([field for field in changed.rows if field.name != ROW_ID])
    names = change_schema(rows).names
    return ChangedBatches(rows, key.columns, (batch.select(names) for batch in changed.batches))


def _rows_by(key: KeyChoice, answer: NetAnswer) -> Iterator[RowChange]:
    for row in answer.rows:
        before, after = _without_id(row.before), _without_id(row.after)
        values = after or before or {}
        yield replace(row, before=before, after=after, key={name: values[name] for name in key.columns})


def _without_id(values: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return None if values is None else {name: value for name, value in values.items() if name != ROW_ID}


# what the numbers cannot say ------------------------------------------------------------------------------------------


def _not_said(prepared: PreparedDiff, found: VersionDiff, answer: NetAnswer) -> list[str]:
    """What the numbers cannot say, in words: each way in which a count is less than exact has its sentence."""
    where = prepared.question.where
    filtered = [f"only rows that satisfy {where} before or after are counted; commits count all"] if where else []
    return [*_on_rows(found, answer), *_on_columns(prepared.input, prepared.columns), *filtered]


def _on_rows(found: VersionDiff, answer: NetAnswer) -> list[str]:
    said = []
    if answer.partial is not None:
        said.append(f"the comparison was {answer.partial.text}: counts and rows are of these alone")
        if answer.partial.null_keys:
            said.append(f"{answer.partial.null_keys:,} rows with a null key are left out: others may cancel them")
    if found.key is None and answer.net.updated is None:
        said.append("without a key an updated row appears as a pair: its old values deleted, its new ones inserted")
    elif found.key is None and answer.net.updated:
        said.append("updates are counted from what the feed holds; without a key their rows appear as pairs")
    if answer.apart.rows:
        said.append(
            f"{answer.apart.rows:,} changed rows have a null key or share their key with another one: they are "
            "counted as inserted and deleted and shown apart"
        )
    if found.method is DiffMethod.KEY_JOIN:
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
