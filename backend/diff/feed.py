"""A change feed summed up: what each commit did (gross), what is different in the end (net).

Rule: a row's inserts and postimages count +1, its deletes and preimages −1; `net` does the rest.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from backend.diff.compare import SIGN, NetAnswer, NetQuery, column_name, net_changes
from backend.diff.model import NetCounts
from backend.duckdb_session import CancelToken
from backend.errors import DiffError

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
_PLUS, _MINUS = ("insert", "update_postimage"), ("delete", "update_preimage")


@dataclass(slots=True)
class Gross:
    """Rows of the feed per (commit version, change type), counted while they stream past."""

    counts: dict[tuple[int, str], int] = field(default_factory=dict)

    @classmethod
    def of_rows(cls, rows: Iterable[tuple[int, str, int]]) -> "Gross":
        """Of (commit version, change type, rows)."""
        return cls({(version, kind): count for version, kind, count in rows})

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

    def rows_more(self, *, is_reverse: bool) -> int:
        """By how many rows the second state has more than the first, if the feed is whole."""
        signs = {**dict.fromkeys(_PLUS, 1), **dict.fromkeys(_MINUS, -1)}
        more = sum(signs.get(kind, 0) * rows for (_, kind), rows in self.counts.items())
        return -more if is_reverse else more

    def unpaired(self) -> tuple[int, ...]:
        """Commits whose preimages and postimages differ in number: their updates cannot be told."""
        versions = sorted({version for version, _ in self.counts})
        return tuple(v for v in versions if self.of(v, "update_preimage") != self.of(v, "update_postimage"))


@dataclass(frozen=True, slots=True)
class FeedAnswer(NetAnswer):
    """The sums of one feed."""

    gross: Gross


def sum_up(
    feed: pa.RecordBatchReader | pa.Table,
    query: NetQuery,
    token: CancelToken | None = None,
    *,
    is_reverse: bool = False,
) -> FeedAnswer:
    """Reads the feed once; `query.key` names columns of the feed. `is_reverse`: what undoing it all would change.

    Raises `DiffError` and what reading raises.
    """
    reader = feed.to_reader() if isinstance(feed, pa.Table) else feed
    columns = tuple(n for n in reader.schema.names if n not in (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP))
    gross = Gross()
    found = net_changes(
        lambda: _signed(reader, columns, gross, -1 if is_reverse else 1), columns, query, token or CancelToken()
    )
    values = {name: getattr(found, name) for name in NetAnswer.__dataclass_fields__}
    if not query.key:
        values["net"] = net_without_key(found.net, gross, is_reverse=is_reverse, is_filtered=query.where is not None)
    return FeedAnswer(**values, gross=gross)


def _signed(reader: pa.RecordBatchReader, columns: Sequence[str], gross: Gross, plus: int) -> pa.RecordBatchReader:
    fields = [pa.field(column_name(i), reader.schema.field(name).type) for i, name in enumerate(columns)]
    schema = pa.schema([*fields, SIGN])

    def signed() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            types = batch.column(CHANGE_TYPE).cast(pa.string())
            gross.add(batch.column(COMMIT_VERSION), types)
            came = pc.is_in(types, value_set=pa.array(_PLUS))
            sign = pc.if_else(came, pa.scalar(plus, pa.int8()), pa.scalar(-plus, pa.int8()))
            yield pa.record_batch([*(batch.column(name) for name in columns), sign], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, signed())


def net_without_key(net: NetCounts, gross: Gross, *, is_reverse: bool, is_filtered: bool = False) -> NetCounts:
    """Rows have no name, but a range without inserts cannot have inserted any: that often settles the counts.

    Otherwise, and where half of an update may be filtered out, `updated` is None, and each updated row is one of the
    deleted and one of the inserted.
    """
    added, removed = net.inserted or 0, net.deleted or 0
    came, went = ("delete", "insert") if is_reverse else ("insert", "delete")
    if gross.unpaired():
        return NetCounts(added, None, removed)
    if gross.total("update_postimage") == 0:
        return NetCounts(added, 0, removed)
    if is_filtered:
        return net
    if gross.total(came) == 0:
        return NetCounts(0, added, removed - added)
    if gross.total(went) == 0:
        return NetCounts(added - removed, removed, 0)
    return NetCounts(added, None, removed)
