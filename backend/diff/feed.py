"""A change feed summed up in DuckDB: what each commit did (gross), what is different in the end (net).

Rule: net is arithmetic, not replay. A row's inserts and postimages count +1, its deletes and preimages −1, and what
does not cancel is exactly the difference of the two states as multisets, whatever the order of rows inside a commit.
The net-change rules follow: insert then delete is nothing, updates are first preimage and last postimage, and so on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from backend.diff.engine import engine
from backend.diff.model import ApartCounts, NetCounts, RowChange
from backend.diff.rows import Bucket, fetch_rows
from backend.errors import DiffError, LakehouseError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
_PLUS, _MINUS = ("insert", "update_postimage"), ("delete", "update_preimage")


@dataclass(slots=True)
class Gross:
    """Rows of the feed per (commit version, change type), counted while they stream past.

    `failure` keeps what broke the stream: DuckDB would pass on no more than its text.
    """

    counts: dict[tuple[int, str], int] = field(default_factory=dict)
    failure: LakehouseError | None = None

    def add(self, versions: pa.Array, types: pa.Array) -> None:
        table = pa.table({"v": versions.cast(pa.int64()), "t": types})
        for row in table.group_by(["v", "t"]).aggregate([([], "count_all")]).to_pylist():
            if row["t"] not in (*_PLUS, *_MINUS):
                raise DiffError(f"the change feed of v{row['v']} holds an unknown change type: {row['t']!r}")
            key = (row["v"], row["t"])
            self.counts[key] = self.counts.get(key, 0) + row["count_all"]

    def of(self, version: int, change_type: str) -> int:
        return self.counts.get((version, change_type), 0)

    def total(self, change_type: str) -> int:
        return sum(rows for (_, kind), rows in self.counts.items() if kind == change_type)

    def unpaired(self) -> tuple[int, ...]:
        """Commits whose preimages and postimages differ in number: their updates cannot be told."""
        versions = sorted({version for version, _ in self.counts})
        return tuple(v for v in versions if self.of(v, "update_preimage") != self.of(v, "update_postimage"))


@dataclass(frozen=True, slots=True)
class FeedAnswer:
    """The sums of one feed. `net` counts whole rows; `rows` are at most the asked number of them."""

    gross: Gross
    net: NetCounts
    apart: ApartCounts
    rows: tuple[RowChange, ...]
    truncated: bool
    changed_cells: Mapping[str, int]
    arrow_schema: pa.Schema

    @classmethod
    def nothing(cls, net: NetCounts) -> "FeedAnswer":
        """The answer where no feed was read."""
        return cls(Gross(), net, ApartCounts(), (), False, {}, pa.schema([]))


def sum_up(feed: pa.RecordBatchReader | pa.Table, *, key: Sequence[str], row_limit: int) -> FeedAnswer:
    """Reads the feed once. `key` are column names of the feed, none for no key. Raises `DiffError`."""
    reader = feed.to_reader() if isinstance(feed, pa.Table) else feed
    columns = tuple(n for n in reader.schema.names if n not in (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP))
    gross = Gross()
    with engine() as connection:
        try:
            _cancel(connection, _signed(reader, columns, gross), len(columns))
        finally:
            if gross.failure is not None:
                raise gross.failure
        _classify(connection, [columns.index(name) for name in key])
        buckets = _buckets(connection)
        page = fetch_rows(connection, columns, key, buckets=buckets, limit=row_limit)
    net = _net(buckets, gross, has_key=bool(key))
    return FeedAnswer(gross, net, _apart(buckets), page.rows, page.truncated, page.changed_cells, page.arrow_schema)


def _signed(reader: pa.RecordBatchReader, columns: Sequence[str], gross: Gross) -> pa.RecordBatchReader:
    """The feed with columns c0, c1 … (a table's own names cannot clash then) and a sign; `gross` counts what passes."""
    fields = [pa.field(f"c{i}", reader.schema.field(name).type) for i, name in enumerate(columns)]
    schema = pa.schema([*fields, pa.field("sign", pa.int8())])

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from signed()
        except LakehouseError as exc:
            gross.failure = exc
            raise

    def signed() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            types = batch.column(CHANGE_TYPE).cast(pa.string())
            gross.add(batch.column(COMMIT_VERSION), types)
            plus = pc.is_in(types, value_set=pa.array(_PLUS))
            sign = pc.if_else(plus, pa.scalar(1, pa.int8()), pa.scalar(-1, pa.int8()))
            yield pa.record_batch([*(batch.column(name) for name in columns), sign], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _cancel(connection: "DuckDBPyConnection", feed: pa.RecordBatchReader, width: int) -> None:
    """Table `net`: every distinct row whose signs do not add up to 0, with their sum `n`."""
    names = ", ".join(f"c{i}" for i in range(width))
    connection.register("feed", feed)
    connection.execute(
        f"CREATE TEMP TABLE net AS SELECT {names}, CAST(sum(sign) AS BIGINT) AS n "
        f"FROM feed GROUP BY {names} HAVING sum(sign) <> 0"
    )
    connection.unregister("feed")


def _classify(connection: "DuckDBPyConnection", key: Sequence[int]) -> None:
    """Table `keyed`: one row a key with its `bucket`; without a key, view `keyed` of the two signs."""
    if not key:
        connection.execute(
            "CREATE TEMP TABLE keyed AS SELECT CASE WHEN n > 0 THEN 'insert' ELSE 'delete' END AS bucket, "
            "count(*) AS entries, sum(greatest(n, 0)) AS added, sum(greatest(-n, 0)) AS removed FROM net GROUP BY 1"
        )
        return
    names = ", ".join(f"c{i}" for i in key)
    null = " OR ".join(f"c{i} IS NULL" for i in key)
    connection.execute(
        f"CREATE TEMP TABLE keyed AS SELECT *, CASE WHEN {null} THEN 'null' "
        "WHEN added = 1 AND removed = 1 THEN 'update' WHEN added = 1 AND removed = 0 THEN 'insert' "
        "WHEN added = 0 AND removed = 1 THEN 'delete' ELSE 'duplicate' END AS bucket FROM ("
        f"SELECT {names}, count(*) AS entries, sum(greatest(n, 0)) AS added, sum(greatest(-n, 0)) AS removed "
        f"FROM net GROUP BY {names})"
    )


def _buckets(connection: "DuckDBPyConnection") -> dict[str, Bucket]:
    found = connection.execute(
        "SELECT bucket, count(*), CAST(sum(entries) AS BIGINT), CAST(sum(added) AS BIGINT), "
        "CAST(sum(removed) AS BIGINT) FROM keyed GROUP BY bucket"
    ).fetchall()
    return {name: Bucket(keys, entries, added, removed) for name, keys, entries, added, removed in found}


def _net(buckets: Mapping[str, Bucket], gross: Gross, *, has_key: bool) -> NetCounts:
    added = sum(bucket.added for bucket in buckets.values())
    removed = sum(bucket.removed for bucket in buckets.values())
    if has_key:
        updated = buckets["update"].keys if "update" in buckets else 0
        return NetCounts(added - updated, updated, removed - updated)
    return _net_without_key(added, removed, gross)


def _net_without_key(added: int, removed: int, gross: Gross) -> NetCounts:
    """Rows have no name, but a range without inserts cannot have inserted any: that often settles the counts.

    Otherwise `updated` is None, and each updated row is one of the deleted and one of the inserted.
    """
    if gross.unpaired():
        return NetCounts(added, None, removed)
    if gross.total("update_postimage") == 0:
        return NetCounts(added, 0, removed)
    if gross.total("insert") == 0:
        return NetCounts(0, added, removed - added)
    if gross.total("delete") == 0:
        return NetCounts(added - removed, removed, 0)
    return NetCounts(added, None, removed)


def _apart(buckets: Mapping[str, Bucket]) -> ApartCounts:
    none = Bucket(0, 0, 0, 0)
    twice, null = buckets.get("duplicate", none), buckets.get("null", none)
    return ApartCounts(twice.keys, twice.added, twice.removed, null.added, null.removed)
