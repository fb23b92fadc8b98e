"""The rows of a table's change feed as they are: what happened to each, in which commit and when. Nothing is netted.

Rule: the first rows by version, and no more read than those need, as far as writers counted their changes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from backend.changes.commits import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from backend.errors import DiffError
from backend.lake.history.change_feed import Arrival
from backend.lake.lake import Lake
from backend.lake.model import TableRef

FEED_COLUMNS = (COMMIT_VERSION, COMMIT_TIMESTAMP, CHANGE_TYPE)


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
