"""What each commit between two versions did to rows (gross), by the change feed or as its writer reports it; the whole
feed summed up; and its rows as they are.

Rule: a row's inserts and postimages count +1, its deletes and preimages −1; `compare` does the rest. A count that
neither the feed nor the writer gives is None; which of the two it is, is said. Of rows as they are the first ones come
by version, and no more is read than those need, as far as writers counted their changes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from backend.changes.changed_rows import Pairing
from backend.changes.compare import SIGN, Take, net_changes
from backend.changes.explain import Findings
from backend.changes.model import CommitChanges, Limits, NetCounts, Premises, Question, RowChanges
from backend.changes.read import DiffInput
from backend.errors import DiffError, LakehouseError
from backend.lake.history.change_feed import Arrival
from backend.lake.lake import Lake
from backend.lake.model import Commit, TableRef
from backend.sql.session import CancelToken

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
FEED_COLUMNS = (COMMIT_VERSION, COMMIT_TIMESTAMP, CHANGE_TYPE)
_PLUS, _MINUS = ("insert", "update_postimage"), ("delete", "update_preimage")
FeedCounts: TypeAlias = Counter[tuple[int, str]]  # rows of a feed by (commit version, change type)


def feed_counts(rows: Iterable[tuple[int, str, int]]) -> FeedCounts:
    """Of (commit version, change type, rows)."""
    return Counter({(version, kind): count for version, kind, count in rows})


def gross_changes(commits: Iterable[Commit], gross: FeedCounts) -> tuple[CommitChanges, ...]:
    """In the order given, as the feed counts them; as reported where it leaves rows of a commit out."""

    def counted(commit: Commit) -> CommitChanges:
        inserted, updated, deleted = (gross[commit.version, kind] for kind in ("insert", "update_postimage", "delete"))
        return CommitChanges(commit, inserted, updated, deleted)

    return tuple(CommitChanges.reported(each) if why_incomplete([each], gross) else counted(each) for each in commits)


def counted_by_feed(
    lake: Lake, ref: TableRef, commits: Iterable[Commit], token: CancelToken
) -> tuple[CommitChanges, ...]:
    """By the change feed's counts where a commit has them, though the feed's rows may be beyond reach; else as
    reported."""
    changes: list[CommitChanges] = []
    for commit in commits:
        token.check()
        try:
            counts = lake.change_counts(ref, commit.version)
        except LakehouseError:
            changes.append(CommitChanges.reported(commit))
        else:
            changes += gross_changes([commit], feed_counts((commit.version, kind, n) for kind, n in counts.items()))
    return tuple(changes)


def why_incomplete(commits: Iterable[Commit], gross: FeedCounts) -> str | None:
    """What shows that a change feed leaves rows out; None when nothing does. The UPDATE of deltalake (1.6.6, tried)
    does not record a row whose new values another row had before."""
    for version in sorted(commit.version for commit in commits):
        before, after = (gross[version, kind] for kind in ("update_preimage", "update_postimage"))
        if before != after:
            where = f"the feed of v{version} is not complete"
            return f"{where}: rows before updates {before:,}, after them {after:,}"
    return None


def why_not_whole(commits: Iterable[CommitChanges], gross: FeedCounts, given: DiffInput) -> str | None:
    """What shows that a change feed leaves rows out, or how it disagrees with the row counts of the two versions, where
    those are known."""
    if why := why_incomplete((each.commit for each in commits), gross):
        return why
    (before, after), sign = given.row_counts(), -1 if given.is_reverse else 1
    more = sum((1 if kind in _PLUS else -1) * rows for (_, kind), rows in gross.items())
    if before is None or after is None or after - before == sign * more:
        return None
    return "the change feed does not add up to the row counts of the two versions"


# the feed's rows ------------------------------------------------------------------------------------------------------


def sum_up(
    feed: pa.RecordBatchReader | pa.Table,
    key: tuple[str, ...],
    question: Question,
    token: CancelToken,
    *,
    is_reverse: bool = False,
    take: Take | None = None,
    limits: Limits = Limits(),
    premises: Premises = Premises(),
) -> tuple[RowChanges, Findings, FeedCounts]:
    """What the feed comes to, read once; `key` names columns of it. `is_reverse`: what undoing it all would change.

    Raises `DiffError` and what reading raises.
    """
    reader = feed.to_reader() if isinstance(feed, pa.Table) else feed
    columns = tuple(n for n in reader.schema.names if n not in (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP))
    gross: FeedCounts = Counter()
    sign = -1 if is_reverse else 1
    signed, pairing = (lambda _: _signed(reader, columns, gross, sign)), Pairing(columns, key)
    changes, findings = net_changes(signed, pairing, question, token, take=take, limits=limits, premises=premises)
    if not key:
        changes = replace(changes, net=net_without_key(changes.net, gross))
    return changes, findings, gross


def _signed(reader: pa.RecordBatchReader, columns: Sequence[str], gross: FeedCounts, plus: int) -> pa.RecordBatchReader:
    fields = [pa.field(f"c{i}", reader.schema.field(name).type) for i, name in enumerate(columns)]
    schema = pa.schema([*fields, SIGN])

    def signed() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            types = batch.column(CHANGE_TYPE).cast(pa.string())
            kinds = pa.table({"v": batch.column(COMMIT_VERSION).cast(pa.int64()), "t": types})
            for row in kinds.group_by(["v", "t"]).aggregate([([], "count_all")]).to_pylist():
                if row["t"] not in (*_PLUS, *_MINUS):
                    raise DiffError(f"the change feed of v{row['v']} holds an unknown change type: {row['t']!r}")
                gross[row["v"], row["t"]] += row["count_all"]
            came = pc.is_in(types, value_set=pa.array(_PLUS))
            sign = pc.if_else(came, pa.scalar(plus, pa.int8()), pa.scalar(-plus, pa.int8()))
            yield pa.record_batch([*(batch.column(name) for name in columns), sign], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, signed())


def net_without_key(net: NetCounts, gross: FeedCounts) -> NetCounts:
    """Rows have no name, but a feed without updates tells that none is among the inserted and deleted ones; one with
    half an update leaves that open."""
    if any(gross[version, "update_preimage"] != gross[version, "update_postimage"] for version, _ in tuple(gross)):
        return replace(net, updated=None)
    return net if any(kind == "update_postimage" for _, kind in gross) else replace(net, updated=0)


# its rows as they are -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FeedRows:
    """`rows` by version, `FEED_COLUMNS` first; `truncated`: there are more."""

    rows: pa.Table
    truncated: bool


def feed_rows(lake: Lake, ref: TableRef, versions: tuple[int, int], *, limit: int) -> FeedRows:
    """At most `limit` rows of the commits after the first version, up to the second.

    Raises `DiffError` where the feed does not cover them, and what `Lake.changes` raises.
    """
    first, last = versions
    support = lake.cdf_support(ref, first, last)
    if not support.covered:
        raise DiffError(support.reason, hint=support.hint)
    parts: list[pa.Table] = []
    for low, high in _steps(lake.arrivals(ref, first + 1, last, feed=True), first, last, limit):
        feed = lake.changes(ref, low, high)
        parts.append(pa.Table.from_batches(_until(feed, limit), feed.schema).sort_by(COMMIT_VERSION))
        if sum(part.num_rows for part in parts) > limit:
            break
    rows = pa.concat_tables(parts, promote_options="permissive")
    rows = rows.select([*FEED_COLUMNS, *(name for name in rows.column_names if name not in FEED_COLUMNS)])
    return FeedRows(rows.slice(0, limit), truncated=rows.num_rows > limit)


def _steps(arrivals: Iterable[Arrival], first: int, last: int, limit: int) -> Iterator[tuple[int, int]]:
    """Ranges of commits that together hold at most `limit` rows; a commit of more, or of nobody knows how many, is read
    alone, since reading it can end early."""
    start, rows = first, 0
    for arrival in arrivals:
        if arrival.rows is not None and rows + arrival.rows <= limit:
            rows += arrival.rows
            continue
        if start < arrival.version - 1:
            yield start, arrival.version - 1
        yield arrival.version - 1, arrival.version
        start, rows = arrival.version, 0
    if start < last:
        yield start, last


def _until(feed: pa.RecordBatchReader, limit: int) -> Iterator[pa.RecordBatch]:
    """Batches until there are more rows than that."""
    num_rows = 0
    for batch in feed:
        yield batch
        num_rows += batch.num_rows
        if num_rows > limit:
            return
