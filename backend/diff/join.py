"""The fast way to the difference of two sides by key: they are joined once, and only rows that differ are kept.

Rule: exact, or not at all. Where a key may be null or stand in several rows, nothing is said, and whole rows are summed
up instead (`backend.diff.net`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from backend.diff.condition import check_row_condition, matching_places, row_errors
from backend.diff.engine import Watch, ended_within
from backend.diff.model import KEYS, Partial
from backend.diff.rows import Bucket, Source

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SIDES = {"insert": ("a", 1), "delete": ("b", -1)}
_BUCKETS = {0: "update", 1: "insert", -1: "delete"}  # by `n`, the sum of both sides' signs
_MANY_ROWS_A_KEY = 2.5  # of both sides, on average: such a key names nothing, and a join multiplies its rows


@dataclass(frozen=True, slots=True)
class Part:
    """A query for rows of both sides (c0, c1 … and `sign`), and how many their files hold. `bounds` are a column of the
    key and between which values it lies: no other part has such values. None: these are all rows."""

    query: str
    num_rows: int
    bounds: tuple[int, Any, Any] | None = None


@dataclass(frozen=True, slots=True)
class SignedRows:
    """Rows of both sides that DuckDB reads itself: a query for all of them, and for a key (places of its columns) the
    same in parts of at most so many rows, None where they cannot be told apart."""

    query: str
    parts: Callable[[Sequence[int], int], list[Part] | None] = lambda *_: None


@dataclass(frozen=True, slots=True)
class Compared:
    """Where the rows that differ are, and how many there are of each sort. `partial` where the watch ended it."""

    source: Source
    buckets: dict[str, Bucket]
    partial: Partial | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """What is known before rows are joined: of all rows so many are the same on both sides, and are not looked at
    again; about how many keys (or `WHOLE_ROWS`: `unit`) differ, None where that cannot be told."""

    same_rows: int
    num_rows: int
    differing: int | None
    unit: str = KEYS


def join_sides(
    connection: "DuckDBPyConnection",
    parts: Sequence[Part],
    columns: Sequence[str],
    key: Sequence[int],
    watch: Watch,
    settled: Settled | None = None,
) -> Compared | None:
    """The rows that differ, as table `both_sides` and view `pairs`, of as many parts as there was time for; None where
    their keys do not name them. Raises what ends the watch before anything can be told."""
    join = _Join(connection, len(columns), key, watch)
    try:
        left_out = join.all(parts, settled)
        changed = _rows_by_bucket(connection, key, join.balance)
    except _NotByKey:
        left_out = changed = None
    if changed is None or sum(changed.values()) > join.rows:
        connection.execute("DROP TABLE IF EXISTS both_sides")
        return None
    pairs = ", ".join(f"{side}_c{i}" for side in "ba" for i in range(len(columns)))
    connection.execute(f"CREATE TEMP VIEW pairs AS SELECT {pairs} FROM both_sides WHERE n = 0")
    source = Source(connection, columns, key, lambda bucket: _one_sided(len(columns), bucket))
    return Compared(source, _buckets(changed), left_out)


def only_wanted(found: Compared, tolerance: float, where: str | None) -> Compared:
    """The same without updates of nothing but floats that stay within the tolerance, and without keys of which no row
    satisfies the condition before or after. Raises `QueryError`."""
    source = replace(found.source, tolerance=tolerance)
    connection = source.connection
    if tolerance:
        connection.execute(f"DELETE FROM both_sides WHERE n = 0 AND NOT ({' OR '.join(source.differs().values())})")
    if where is not None:
        condition = check_row_condition(where, source.columns)
        named = {name: f"c{source.columns.index(name)}" for name in condition.columns}
        states = " UNION ALL ".join(
            f"SELECT {', '.join(f'{side}_{c} AS {c}' for c in named.values())}, rowid AS place FROM both_sides "
            f"WHERE n {mine} 0"
            for side, mine in (("b", "<="), ("a", ">="))
        )
        places = matching_places(connection, condition, named, f"({states})", "place")
        with row_errors():
            connection.execute(f"CREATE TEMP TABLE matched AS {places}")
        connection.execute("DELETE FROM both_sides WHERE rowid NOT IN (SELECT place FROM matched)")
    counted = connection.execute("SELECT n, count(*) FROM both_sides GROUP BY n").fetchall()
    return replace(found, source=source, buckets=_buckets({_BUCKETS[n]: rows for n, rows in counted}))


class _NotByKey(Exception):
    """The key does not name the rows, or a part holds other rows than its bounds say."""


@dataclass(slots=True)
class _Join:
    """Joins part after part. `rows` were joined; `balance` is the sum of the hashes of their keys that came less that
    of those that went."""

    connection: "DuckDBPyConnection"
    width: int
    key: Sequence[int]
    watch: Watch
    rows: int = 0
    balance: int = 0

    def all(self, parts: Sequence[Part], settled: Settled | None) -> Partial | None:
        """What is left out where the watch ended it."""
        known = settled or Settled(0, 0, None)
        begun = int(known.differing is None)  # until then nothing can be told
        if begun:
            self._one(parts[0], "CREATE TEMP TABLE both_sides AS")
        else:
            self.connection.execute(f"CREATE TEMP TABLE both_sides AS {self._differing(parts[0].query, at_most=0)}")
        for number, part in enumerate(parts[begun:], begun):
            if ended_within(self.watch, partial(self._one, part, "INSERT INTO both_sides")):
                read, total = (known.same_rows + sum(p.num_rows for p in some) for some in (parts[:number], parts))
                return Partial(self.watch.ended(), read, total, known.differing, known.unit)
        return None

    def _one(self, part: Part, into: str) -> None:
        rows, balance = self._sum_up(part)
        with self.watch.reading(part.num_rows):
            self.connection.execute(f"{into} {self._differing(part.query, at_most=rows + 1)}")
        self.rows, self.balance = self.rows + rows, self.balance + balance

    def _sum_up(self, part: Part) -> tuple[int, int]:
        """How many rows there are, and their balance."""
        hashed = _hashed(self.key)
        place, low, high = part.bounds or (None, None, None)
        ends = "" if place is None else f", min(c{place}), max(c{place})"
        ((rows, names, came, went, *found),) = self.connection.execute(
            f"SELECT count(*), approx_count_distinct({hashed}), sum({hashed}) FILTER (sign > 0), "
            f"sum({hashed}) FILTER (sign < 0){ends} FROM ({part.query})"
        ).fetchall()
        is_within = not found or not rows or (None not in found and low <= found[0] and found[1] <= high)
        if names * _MANY_ROWS_A_KEY < rows or not is_within:
            raise _NotByKey
        return rows, (came or 0) - (went or 0)

    def _differing(self, rows: str, *, at_most: int) -> str:
        names = ", ".join(f"{side}.c{i} AS {side}_c{i}" for side in "ba" for i in range(self.width))
        on = " AND ".join(f"b.c{i} = a.c{i}" for i in self.key)
        differs = "".join(f" OR b.c{i} IS DISTINCT FROM a.c{i}" for i in range(self.width) if i not in self.key)
        no_before, no_after = (f"{side}.c{self.key[0]} IS NULL" for side in "ba")  # a null key matches none: is found
        return (
            f"SELECT {names}, CAST(CASE WHEN {no_before} THEN 1 WHEN {no_after} THEN -1 ELSE 0 END AS TINYINT) AS n "
            f"FROM (SELECT * FROM ({rows}) WHERE sign < 0) b FULL JOIN (SELECT * FROM ({rows}) WHERE sign > 0) a "
            f"ON {on} WHERE {no_before} OR {no_after}{differs} LIMIT {at_most}"
        )


def _hashed(key: Sequence[int]) -> str:
    return f"hash({', '.join(f'c{i}' for i in key)})"


def _rows_by_bucket(connection: "DuckDBPyConnection", key: Sequence[int], balance: int) -> dict[str, int] | None:
    """How many rows of `both_sides` each bucket has, if each of its keys names one row and what the join dropped
    cancels: the keys' balance is then that of all rows."""
    kept = f"(SELECT {', '.join(f'coalesce(a_c{i}, b_c{i}) AS c{i}' for i in key)}, n FROM both_sides)"
    null = " OR ".join(f"c{i} IS NULL" for i in key)
    found = connection.execute(
        f"SELECT n, count(*), sum({_hashed(key)}), count_if({null}) FROM {kept} GROUP BY n"
    ).fetchall()
    if any(nulls for *_, nulls in found) or balance != sum(n * hashes for n, _, hashes, _ in found):
        return None
    distinct = f"SELECT DISTINCT {', '.join(f'c{i}' for i in key)} FROM {kept}"
    ((names,),) = connection.execute(f"SELECT count(*) FROM ({distinct})").fetchall()
    return {_BUCKETS[n]: rows for n, rows, *_ in found} if names == sum(each[1] for each in found) else None


def _buckets(rows: dict[str, int]) -> dict[str, Bucket]:
    made = {}
    for name, count in rows.items():
        added, removed = (0 if name == "delete" else count), (0 if name == "insert" else count)
        made[name] = Bucket(count, added + removed, added, removed)
    return made


def _one_sided(width: int, bucket: str) -> str:
    side, sign = _SIDES[bucket]
    names = ", ".join(f"{side}_c{i} AS c{i}" for i in range(width))
    return f"SELECT {names}, CAST({sign} AS BIGINT) AS n FROM both_sides WHERE n = {sign}"
