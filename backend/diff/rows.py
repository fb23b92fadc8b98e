"""Changed rows out of the summed-up feed, before and after side by side, never more than asked.

Rule: the limit is shared between the kinds, so that ten thousand inserts do not hide one update.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from backend.diff.model import CommonChange, RowChange, RowKind, SetApart
from backend.diff.values import same

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MANY_COLUMNS = 500  # beyond, what is done to whole rows costs memory for every column
_COMMON_COLUMNS, _COMMON_CHANGES = 12, 3
_FLOATS = ("FLOAT", "DOUBLE")
_ORDER_COLUMNS = 8  # enough to make the order of rows without a key stable
APART = {"duplicate": SetApart.DUPLICATE_KEY, "null": SetApart.NULL_KEY}
ORDER = ("update", "delete", "insert", "duplicate", "null")


@dataclass(frozen=True, slots=True)
class Bucket:
    """Net rows of one sort: keys (sorts of rows), distinct rows, rows on the after and on the before side."""

    keys: int
    entries: int
    added: int
    removed: int

    def __add__(self, other: "Bucket") -> "Bucket":
        """Of both, where they have no key in common."""
        return Bucket(
            self.keys + other.keys,
            self.entries + other.entries,
            self.added + other.added,
            self.removed + other.removed,
        )

    def changes(self, name: str) -> int:
        """How many `RowChange` the bucket makes."""
        return self.keys if name == "update" else self.entries


@dataclass(frozen=True, slots=True)
class ChangedRows:
    rows: tuple[RowChange, ...]
    truncated: bool
    changed_cells: Mapping[str, int]
    common: tuple[CommonChange, ...]
    arrow_schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows come from: the connection with a relation `pairs` of updated rows, before (b_c0 …) and after (a_c0 …)
    side by side; `rows_of` a bucket is a query for its rows, c0 … and `n`, how often each came (< 0: went). The table's
    column names, the positions of the key's; two floats within `tolerance` are the same."""

    connection: "DuckDBPyConnection"
    columns: Sequence[str]
    key: Sequence[int]
    rows_of: Callable[[str], str]
    tolerance: float = 0.0

    def key_of(self, values: Sequence[Any]) -> dict[str, Any] | None:
        return {self.columns[i]: values[i] for i in self.key} if self.key else None

    def differs(self) -> dict[str, str]:
        """Per column, a condition on a row of `pairs`."""
        if not self.tolerance:
            return {name: f"b_c{i} IS DISTINCT FROM a_c{i}" for i, name in enumerate(self.columns)}
        types = self.connection.execute("DESCRIBE pairs").fetchall()
        return {name: self._differs(i, str(types[i][1])) for i, name in enumerate(self.columns)}

    def _differs(self, place: int, kind: str) -> str:
        distinct = f"b_c{place} IS DISTINCT FROM a_c{place}"
        if kind not in _FLOATS:
            return distinct
        near = f"abs(CAST(b_c{place} AS DOUBLE) - CAST(a_c{place} AS DOUBLE)) <= {self.tolerance!r}"
        return f"({distinct} AND NOT coalesce({near}, false))"


def fetch_rows(source: Source, *, buckets: Mapping[str, Bucket], limit: int) -> ChangedRows:
    """At most `limit` changed rows: updates, deletes, inserts, then those set apart, each in the order of the key."""
    sizes = {name: buckets[name].changes(name) for name in ORDER if name in buckets}
    shares = share_out(limit, sizes)
    differs = source.differs() if "update" in buckets else {}
    any_differs = " OR ".join(differs.values()) if source.tolerance else ""
    rows = [
        row
        for name, share in shares.items()
        for row in (_updates(source, share, any_differs) if name == "update" else _one_sided(source, name, share))
    ]
    schema = _arrow(source.connection, f"SELECT * EXCLUDE n FROM ({source.rows_of('insert')}) LIMIT 0").schema
    cells = _changed_cells(source, differs)
    return ChangedRows(
        tuple(rows),
        sum(sizes.values()) > len(rows),
        cells,
        tuple(each for name in list(cells)[:_COMMON_COLUMNS] for each in _common(source, name, differs[name])),
        pa.schema([field.with_name(name) for field, name in zip(schema, source.columns, strict=True)]),
    )


def share_out(limit: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """Shares of `limit`: everybody the same, what one does not need goes to the others."""
    shares, left = dict.fromkeys(sizes, 0), limit
    hungry = [name for name in sizes if sizes[name] > 0]
    while left > 0 and hungry:
        portion = max(left // len(hungry), 1)
        for name in hungry:
            given = min(portion, sizes[name] - shares[name], left)
            shares[name] += given
            left -= given
        hungry = [name for name in hungry if shares[name] < sizes[name]]
    return shares


def _updates(source: Source, limit: int, differs: str) -> Iterator[RowChange]:
    if limit <= 0:
        return
    width = len(source.columns)
    rows = f"SELECT * FROM pairs WHERE {differs}" if differs else "SELECT * FROM pairs"
    for values in _tuples(_first(source, rows, [f"a_c{i}" for i in source.key], limit)):
        before, after = values[:width], values[width:]
        changed = tuple(
            n for n, x, y in zip(source.columns, before, after, strict=True) if not same(x, y, source.tolerance)
        )
        yield RowChange(
            RowKind.UPDATE,
            source.key_of(after),
            dict(zip(source.columns, before, strict=True)),
            dict(zip(source.columns, after, strict=True)),
            changed,
        )


def _first(source: Source, rows: str, keys: Sequence[str], limit: int) -> pa.Table:
    """The first rows by keys that no two of them share; of wide rows DuckDB cannot sort more than the keys."""
    order = ", ".join(keys)
    first = f"FROM ({rows}) r ORDER BY {order} LIMIT {limit}"
    if len(source.columns) <= MANY_COLUMNS:
        return _arrow(source.connection, f"SELECT * {first}")
    found = _arrow(
        source.connection, f"SELECT r.* FROM ({rows}) r SEMI JOIN (SELECT {order} {first}) k USING ({order})"
    )
    return found.sort_by([(name, "ascending") for name in keys])


def _one_sided(source: Source, bucket: str, limit: int) -> Iterator[RowChange]:
    """Inserted or deleted rows, and those that cannot be paired: a null or repeated key, or no key at all."""
    if limit <= 0:
        return
    rows = source.rows_of(bucket)
    if source.key and bucket not in APART:
        found = _first(source, rows, [f"c{i}" for i in source.key], limit)
    else:
        order = ", ".join(f"c{i}" for i in _order_of(source))
        found = _arrow(source.connection, f"SELECT * FROM ({rows}) ORDER BY {order}, n LIMIT {limit}")
    for *values, n in _tuples(found):
        cells = dict(zip(source.columns, values, strict=True))
        yield RowChange(
            RowKind.INSERT if n > 0 else RowKind.DELETE,
            source.key_of(values),
            cells if n < 0 else None,
            cells if n > 0 else None,
            set_apart=APART.get(bucket),
            copies=abs(n),
        )


def _changed_cells(source: Source, differs: Mapping[str, str]) -> dict[str, int]:
    """Updates per column that they touch, over all of them."""
    names = [name for place, name in enumerate(source.columns) if place not in source.key and name in differs]
    if not names:
        return {}
    sums = ", ".join(f"count_if({differs[name]})" for name in names)  # thousands of FILTERs take half a minute
    (counts,) = source.connection.execute(f"SELECT {sums} FROM pairs").fetchall()
    return {name: count for name, count in zip(names, counts, strict=True) if count}


def _common(source: Source, name: str, differs: str) -> list[CommonChange]:
    """The changes of one column that most updates share."""
    place = source.columns.index(name)
    found = _arrow(
        source.connection,
        f"SELECT b_c{place}, a_c{place}, count(*) FROM pairs WHERE {differs} GROUP BY 1, 2 HAVING count(*) > 1 "
        f"ORDER BY 3 DESC, 1, 2 LIMIT {_COMMON_CHANGES}",
    )
    return [CommonChange(name, *values) for values in _tuples(found)]


def _order_of(source: Source) -> list[int]:
    """Enough columns to make the order of rows that no key names a stable one."""
    rest = [i for i in range(len(source.columns)) if i not in source.key]
    return [*source.key, *rest][: len(source.key) + _ORDER_COLUMNS]


def _arrow(connection: "DuckDBPyConnection", query: str) -> pa.Table:
    return connection.sql(query).to_arrow_table()


def _tuples(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)
