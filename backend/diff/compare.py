"""What is different in the end (net), out of rows that came (+1) and rows that went (−1).

Rule: net is arithmetic, not replay. What does not cancel is exactly the difference of the two states as multisets,
whatever the order of rows; a key then tells updates from deletes and inserts. Rows of the table are columns c0, c1 …
inside: a table's own names cannot clash.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from backend.diff.all_rows import changed_batches
from backend.diff.condition import find_matching
from backend.diff.export import ChangedBatches
from backend.diff.join import Compared, Part, Settled, SignedRows, join_sides, joined_rows
from backend.diff.keyed import buckets_of, classify, pair, set_apart, summed_source, without_null_keys
from backend.diff.maps import with_sorted_maps
from backend.diff.model import WHOLE_ROWS, ApartCounts, CommonChange, NetCounts, Partial, RowChange
from backend.diff.rows import MANY_COLUMNS, Bucket, fetch_rows
from backend.diff.sieve import suspect_parts, suspects
from backend.duckdb_session import CancelToken, ended_within, session

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SIGN = pa.field("sign", pa.int8())
MANY_ROWS = 1_000_000  # from here on two passes: first which rows can differ at all, then only those
MANY_VALUES = 16_000_000  # up to here both sides are joined at once
_MANY_NET_VALUES = 32_000_000  # the same of rows in a table, which each part reads whole

Reading = Callable[[], pa.RecordBatchReader]  # c0, c1 … and SIGN, from the start each time it is called


@dataclass(frozen=True, slots=True)
class NetQuery:
    """`key` names columns, () for none; two floats within `tolerance` are the same (with a key only); `where` is SQL
    over one row: only changes are kept whose row satisfies it before or after. `take` gets every changed row."""

    key: tuple[str, ...] = ()
    row_limit: int = 10_000
    tolerance: float = 0.0
    where: str | None = None
    take: Callable[[ChangedBatches], None] | None = None

    @property
    def wants_all(self) -> bool:
        """Whether every row that differs at all is wanted."""
        return not self.tolerance and self.where is None


@dataclass(frozen=True, slots=True)
class NetAnswer:
    """`net` counts whole rows; `rows` are at most the asked number of them. `partial` where it was ended before it had
    compared all."""

    net: NetCounts
    apart: ApartCounts
    rows: tuple[RowChange, ...]
    truncated: bool
    changed_cells: Mapping[str, int]
    common: tuple[CommonChange, ...]
    arrow_schema: pa.Schema
    partial: Partial | None = field(default=None, kw_only=True)

    @classmethod
    def nothing(cls, net: NetCounts) -> "NetAnswer":
        """The answer where no row was read."""
        return cls(net, ApartCounts(), (), False, {}, (), pa.schema([]))


def column_name(place: int) -> str:
    return f"c{place}"


def net_changes(
    read: Reading,
    columns: Sequence[str],
    query: NetQuery,
    token: CancelToken,
    *,
    can_read_twice: bool = False,
    local: "Callable[[DuckDBPyConnection], SignedRows | None] | None" = None,
) -> NetAnswer:
    """Reads the rows once; many of them twice, where that is possible, which bounds memory by what differs. `local`
    gives the same rows where DuckDB can read their files itself. What was compared part by part when the token ended it
    is a partial answer, unless all rows are to be taken.

    Raises `DiffError`, `Stopped`, and what reading the rows raises.
    """
    with session(token) as connection:
        if len(columns) > MANY_COLUMNS:
            connection.execute("SET threads = 1")  # a batch of each thread is tens of megabytes
        rows = _Rows(connection, token, token.rows_total, read, local(connection) if local is not None else None)
        found = _joined(rows, columns, query) or _summed_up(rows, columns, query, can_read_twice=can_read_twice)
        source, buckets = found.source, found.buckets
        with token.sheltered():  # all is compared: an end that comes now would lose it
            page = fetch_rows(source, buckets=buckets, limit=query.row_limit)
        if query.take is not None:
            token.check()  # a file holds all rows
            query.take(changed_batches(source, page.arrow_schema, buckets, token))
    return NetAnswer(
        count_net(buckets, has_key=bool(query.key), is_filtered=query.where is not None),
        count_apart(buckets),
        page.rows,
        page.truncated,
        page.changed_cells,
        page.common,
        page.arrow_schema,
        partial=found.partial,
    )


@dataclass(slots=True)
class _Rows:
    """The rows to sum up, `total` of them, None where that is not known."""

    connection: "DuckDBPyConnection"
    token: CancelToken
    total: int | None
    read: Reading
    signed: SignedRows | None  # None: `read` gives them

    @property
    def are_many(self) -> bool:
        """Unknown: files that DuckDB reads are read twice with little loss, and may be many."""
        return self.signed is not None if self.total is None else self.total > MANY_ROWS

    def begin(self, *, times: int) -> None:
        """From here on all rows are read so many times."""
        self.token.rows_read, self.token.rows_total = 0, None if self.total is None else self.total * times

    @contextmanager
    def feed(self) -> Iterator[None]:
        """View `feed`, for a statement to read it once."""
        if self.signed is None:
            rows = self.token.counted(self.read())
            self.connection.register("given", rows)
            values = [f"{with_sorted_maps(f.type, f.name) or f.name} AS {f.name}" for f in rows.schema]
            self.connection.execute(f"CREATE OR REPLACE TEMP VIEW feed AS SELECT {', '.join(values)} FROM given")
            yield
            self.connection.unregister("given")
            return
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW feed AS {self.signed.query}")
        with self.token.reading(self.total):
            yield


def _places(columns: Sequence[str], query: NetQuery) -> tuple[int, ...]:
    return tuple(columns.index(name) for name in query.key)


def _joined(rows: _Rows, columns: Sequence[str], query: NetQuery) -> Compared | None:
    """The fast way, where it can be gone: files that DuckDB reads, and a key."""
    if rows.signed is None or len(columns) > MANY_COLUMNS or not query.key:
        return None
    rows.token.check()
    key, width = _places(columns, query), len(columns)
    parts, settled = _parts(rows, rows.signed, width, key)
    if not query.wants_all and settled is not None:
        settled = replace(settled, differing=None)
    return _side_by_side(rows, columns, query, parts, settled)


def _side_by_side(
    rows: _Rows, columns: Sequence[str], query: NetQuery, parts: Sequence[Part], settled: Settled | None
) -> Compared | None:
    """What differs, by a join; None where the key names next to nothing."""
    key, connection = _places(columns, query), rows.connection
    joined = join_sides(connection, parts, columns, key, rows.token, settled)
    if joined is None:
        return None
    left_out = joined.partial
    if left_out is not None and joined.has_apart:
        left_out = replace(left_out, null_keys=without_null_keys(connection, key))
    apart = set_apart(connection, columns, key) if joined.has_apart else None
    found = joined_rows(connection, columns, key, apart, tolerance=query.tolerance, where=query.where)
    return replace(found, partial=left_out)


def _parts(rows: _Rows, signed: SignedRows, width: int, key: Sequence[int]) -> tuple[Sequence[Part], Settled | None]:
    """The rows to join, as many at once as memory holds, and what is known before where they were read to part them."""
    token, most_rows = rows.token, max(1, MANY_VALUES // width)
    if rows.total is not None and rows.total <= most_rows:
        return [Part(signed.query, rows.total)], None
    if (parts := signed.parts(key, most_rows)) is not None:
        rows.total = token.rows_total = sum(part.num_rows for part in parts)
        return parts, None
    rows.begin(times=1)
    parts, settled = suspect_parts(rows.connection, rows.feed, width, key, most_rows)
    rows.total = token.rows_read = settled.num_rows
    token.rows_total = 2 * settled.num_rows - settled.same_rows
    return parts, settled


def _summed_up(rows: _Rows, columns: Sequence[str], query: NetQuery, *, can_read_twice: bool) -> Compared:
    """The way that is always possible: whole rows summed up, then named by the key, or joined by it."""
    connection = rows.connection
    is_sieved = rows.are_many and (rows.signed is not None or can_read_twice)
    rows.begin(times=1 + is_sieved)
    left_out = None
    if is_sieved:
        left_out = _cancel_suspects(rows, len(columns), query)
    else:
        _cancel(rows, len(columns))
    if query.where is not None:
        _keep_where(connection, columns, query)
    num_rows = rows.token.rows_read // (1 + is_sieved)
    if query.key and left_out is None and (found := _joined_net(rows, columns, query, num_rows)) is not None:
        return found
    source = summed_source(connection, columns, _places(columns, query), query.tolerance)
    classify(source)
    buckets = buckets_of(connection)
    if "update" in buckets:
        pair(source)
        buckets = buckets_of(connection) if query.tolerance else buckets
    return Compared(source, buckets, left_out)


def _joined_net(rows: _Rows, columns: Sequence[str], query: NetQuery, num_rows: int) -> Compared | None:
    """The rows of `net`, of so many that were read, side by side."""
    width = len(columns)
    if width > MANY_COLUMNS:
        return None
    parts = _net_parts(rows.connection, width, _places(columns, query))
    total = sum(part.num_rows for part in parts)
    rows.token.rows_total = rows.token.rows_read + total
    settled = Settled(max(0, num_rows - total), num_rows, total if query.wants_all else None, WHOLE_ROWS)
    return _side_by_side(rows, columns, replace(query, where=None), parts, settled)  # it was asked of `net`


def _net_parts(connection: "DuckDBPyConnection", width: int, key: Sequence[int]) -> list[Part]:
    ((total,),) = connection.execute("SELECT count(*) FROM net").fetchall()
    count = max(1, math.ceil(total * width / _MANY_NET_VALUES))
    names, keys = (", ".join(column_name(i) for i in some) for some in (range(width), key))
    place = f"hash({keys}) % {count}"
    told = connection.execute(f"SELECT {place}, count(*), max(abs(n)) > 1 FROM net GROUP BY 1 ORDER BY 1").fetchall()
    return [
        Part(f"SELECT {names}, n AS sign FROM net WHERE {place} = {number}", num_rows, has_copies=has_copies)
        for number, num_rows, has_copies in told or [(0, 0, False)]
    ]


def _cancel(rows: _Rows, width: int, into: str = "CREATE TEMP TABLE net AS", suspect: str = "true") -> None:
    """Table `net`: every distinct row whose signs do not add up to 0, with their sum `n`."""
    names = ", ".join(column_name(i) for i in range(width))
    with rows.feed():
        rows.connection.execute(
            f"{into} SELECT {names}, CAST(sum(sign) AS BIGINT) AS n FROM feed WHERE {suspect} "
            f"GROUP BY {names} HAVING sum(sign) <> 0"
        )


def _cancel_suspects(rows: _Rows, width: int, query: NetQuery) -> Partial | None:
    """The same of many rows, in two passes: first which can differ at all, then only those. What the first one tells
    where the token ended the second; not where only some of what differs is wanted."""
    names = ", ".join(column_name(i) for i in range(width))

    @contextmanager
    def feed() -> Iterator[None]:
        with rows.feed():
            rows.connection.execute(
                f"CREATE TEMP TABLE net AS SELECT {names}, CAST(0 AS BIGINT) AS n FROM feed LIMIT 0"
            )
            yield

    suspect, settled = suspects(rows.connection, feed, width)
    second_pass = partial(_cancel, rows, width, "INSERT INTO net", suspect)
    if settled.differing is None or not query.wants_all:
        second_pass()
        return None
    if not ended_within(rows.token, second_pass):
        return None
    return Partial(rows.token.ended(), settled.same_rows, settled.num_rows, settled.differing, WHOLE_ROWS)


def _keep_where(connection: "DuckDBPyConnection", columns: Sequence[str], query: NetQuery) -> None:
    """Only rows that satisfy the condition stay, with a key those of their keys too: an update is kept whole."""
    find_matching(connection, query.where or "", columns, "net", "rowid")
    mine = "rowid IN (SELECT place FROM matched)"
    if query.key:
        same = " AND ".join(
            f"m.c{columns.index(name)} IS NOT DISTINCT FROM net.c{columns.index(name)}" for name in query.key
        )
        mine = f"EXISTS (SELECT 1 FROM (SELECT * FROM net WHERE {mine}) m WHERE {same})"
    connection.execute(f"CREATE TEMP TABLE kept AS SELECT * FROM net WHERE {mine}")
    connection.execute("DROP TABLE net")
    connection.execute("ALTER TABLE kept RENAME TO net")


def count_net(buckets: Mapping[str, Bucket], *, has_key: bool, is_filtered: bool = False) -> NetCounts:
    """Without a key, whether an update happened is not known: None. `is_filtered`: its other half may be left out."""
    added = sum(bucket.added for bucket in buckets.values())
    removed = sum(bucket.removed for bucket in buckets.values())
    if has_key:
        updated = buckets["update"].keys if "update" in buckets else 0
        return NetCounts(added - updated, updated, removed - updated)
    may_update = (added or removed) if is_filtered else (added and removed)
    return NetCounts(added, None if may_update else 0, removed)


def count_apart(buckets: Mapping[str, Bucket]) -> ApartCounts:
    none = Bucket(0, 0, 0, 0)
    twice, null = buckets.get("duplicate", none), buckets.get("null", none)
    return ApartCounts(twice.keys, twice.added, twice.removed, null.added, null.removed)
