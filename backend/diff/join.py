"""The fast way to the difference of two sides by key: they are joined once, and only rows that differ are kept.

Rule: exact, or not at all. Keys are independent of each other: where one is null or stands in several rows, its rows
are set apart (`backend.diff.keyed`), and the others are right.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from backend.diff.condition import find_matching
from backend.diff.hashes import row_hash
from backend.diff.keyed import buckets_of, is_null, is_unnamed, keep_apart, unnamed_keys
from backend.diff.model import KEYS, Partial
from backend.diff.rows import APART, Bucket, Source
from backend.duckdb_session import CancelToken, ended_within

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SIDES = {"insert": ("a", 1), "delete": ("b", -1)}
_BUCKETS = {0: "update", 1: "insert", -1: "delete"}  # by `n`, the sum of both sides' signs
_MANY_ROWS_A_KEY = 2.5  # of both sides, on average: such a key names nothing, and a join multiplies its rows
_MANY_PAIRS_A_ROW = 50  # a join that makes more is not begun before the keys of several rows are set apart
_SKETCHES = range(40, 44)  # bits of a hash; by lower ones rows may have been put into parts


@dataclass(frozen=True, slots=True)
class Part:
    """A query for rows of both sides (c0, c1 … and `sign`), and how many their files hold. `bounds` are a column of the
    key and between which values it lies: no other part has such values. None: these are all rows. `has_copies`: some
    signs are those of several equal rows."""

    query: str
    num_rows: int
    bounds: tuple[int, Any, Any] | None = None
    has_copies: bool = False


@dataclass(frozen=True, slots=True)
class SignedRows:
    """Rows of both sides that DuckDB reads itself: a query for all of them, and for a key (places of its columns) the
    same in parts of at most so many rows, None where they cannot be told apart."""

    query: str
    parts: Callable[[Sequence[int], int], list[Part] | None] = lambda *_: None


@dataclass(frozen=True, slots=True)
class Compared:
    """Where the rows that differ are, and how many there are of each sort. `partial` where the token ended it."""

    source: Source
    buckets: dict[str, Bucket]
    partial: Partial | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """Rows that differ are in table `both_sides`; `has_apart`: those of keys that name none are in table `apart`.
    `partial` where the token ended it."""

    has_apart: bool
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
    token: CancelToken,
    settled: Settled | None = None,
) -> Joined | None:
    """The rows that differ, of as many parts as there was time for: b_c0 … before and a_c0 … after, `n` −1 and 1 where
    there is no after and no before, and the number of their `part`. None where the key names next to nothing. Raises
    what ends the token before anything can be told."""
    join = _Join(connection, len(columns), key, token)
    try:
        left_out = join.all(parts, settled)
    except _NotByKey:
        connection.execute("DROP TABLE IF EXISTS both_sides; DROP TABLE IF EXISTS apart")
        return None
    return Joined(join.has_apart, left_out)


def joined_rows(
    connection: "DuckDBPyConnection",
    columns: Sequence[str],
    key: Sequence[int],
    apart: Source | None = None,
    *,
    tolerance: float = 0.0,
    where: str | None = None,
) -> Compared:
    """What `both_sides` holds (updates as view `pairs`) and, of the rows of `net` that are set `apart`, those that no
    join can pair. Left out are updates of nothing but floats that stay within the tolerance, and keys of which no row
    satisfies the condition before or after. Raises `QueryError`."""
    pairs = ", ".join(f"{side}_c{i}" for side in "ba" for i in range(len(columns)))
    connection.execute(f"CREATE TEMP VIEW pairs AS SELECT {pairs} FROM both_sides WHERE n = 0")

    def rows_of(bucket: str) -> str:
        return apart.rows_of(bucket) if apart and bucket in APART else _one_sided(len(columns), bucket)

    source = Source(connection, columns, key, rows_of, tolerance)
    if tolerance:
        connection.execute(f"DELETE FROM both_sides WHERE n = 0 AND NOT ({' OR '.join(source.differs().values())})")
    if where is not None:
        _keep_where(source, where, has_apart=apart is not None)
    buckets = _counted(connection)
    if apart is not None:
        buckets |= {name: bucket for name, bucket in buckets_of(connection).items() if name in APART}
    return Compared(source, buckets)


def _keep_where(source: Source, where: str, *, has_apart: bool) -> None:
    names = [f"c{i}" for i in range(len(source.columns))]
    states = []
    for side, mine in (("b", "n <= 0"), ("a", "n >= 0")):
        values = ", ".join(f"{side}_{name} AS {name}" for name in names)
        states.append(f"SELECT {values}, rowid AS place FROM both_sides WHERE {mine}")
    if has_apart:
        states.append(f"SELECT {', '.join(names)}, -1 - rowid AS place FROM net")
    find_matching(source.connection, where, source.columns, f"({' UNION ALL '.join(states)})", "place")
    source.connection.execute("DELETE FROM both_sides WHERE rowid NOT IN (SELECT place FROM matched)")
    if has_apart:
        same = " AND ".join(f"net.c{i} IS NOT DISTINCT FROM keyed.c{i}" for i in source.key)
        mine = f"SELECT 1 FROM net JOIN matched ON -1 - net.rowid = place WHERE {same}"
        source.connection.execute(f"DELETE FROM keyed WHERE NOT EXISTS ({mine})")


class _NotByKey(Exception):
    """The key does not name the rows, or a part holds other rows than its bounds say."""


@dataclass(frozen=True, slots=True)
class _Sums:
    """Of the rows of a part: how many there are, the sum of the hashes of the keys that came less that of those that
    went, and whether a join would make many pairs of each row."""

    rows: int
    balance: int
    is_multiplied: bool


@dataclass(slots=True)
class _Join:
    """Joins part after part."""

    connection: "DuckDBPyConnection"
    width: int
    key: Sequence[int]
    token: CancelToken
    has_apart: bool = False
    _key_hash: str = ""

    def all(self, parts: Sequence[Part], settled: Settled | None) -> Partial | None:
        """What is left out where the token ended it."""
        known = settled or Settled(0, 0, None)
        self._key_hash = row_hash(self.connection, f"({parts[0].query})", [f"c{i}" for i in self.key])
        begun = int(known.differing is None)  # until then nothing can be told
        if begun:
            self._one(parts[0], 0, "CREATE TEMP TABLE both_sides AS")
        else:
            self.connection.execute(f"CREATE TEMP TABLE both_sides AS {self._differing(parts[0].query, 0, at_most=0)}")
        for number, part in enumerate(parts[begun:], begun):
            if ended_within(self.token, partial(self._one, part, number, "INSERT INTO both_sides")):
                self.connection.execute(f"DELETE FROM both_sides WHERE part = {number}")
                read, total = (known.same_rows + sum(p.num_rows for p in some) for some in (parts[:number], parts))
                return Partial(self.token.ended(), read, total, known.differing, known.unit)
        return None

    def _one(self, part: Part, number: int, into: str) -> None:
        sums, query = self._sum_up(part), part.query
        if is_apart := part.has_copies or sums.is_multiplied:
            self._find_unnamed(part)
            query = f"SELECT * FROM ({query}) WHERE NOT ({self._unnamed()})"
        with self.token.reading(part.num_rows):
            query = self._differing(query, number, at_most=sums.rows + 1)
            ((kept,),) = self.connection.execute(f"{into} {query}").fetchall()
        if kept > sums.rows:
            raise _NotByKey
        if not is_apart and not self._are_named(number, sums.balance):
            self._find_unnamed(part)
            mine = is_unnamed([f"coalesce(a_c{i}, b_c{i})" for i in self.key])
            self.connection.execute(f"DELETE FROM both_sides WHERE part = {number} AND ({mine})")
            is_apart = True
        if is_apart:
            with self.token.reading(part.num_rows):
                keep_apart(self.connection, part.query, self.width, self._unnamed())
            self.has_apart = True

    def _find_unnamed(self, part: Part) -> None:
        """Table `unnamed`, of a part's rows; they are read once more for it, and later those that are set apart."""
        if self.token.rows_total is not None:
            self.token.rows_total += 2 * part.num_rows
        with self.token.reading(part.num_rows):
            keys = unnamed_keys(self.key, f"({part.query})", "sign")
            self.connection.execute(f"CREATE OR REPLACE TEMP TABLE unnamed AS {keys}")

    def _unnamed(self) -> str:
        return is_unnamed([f"c{i}" for i in self.key])

    def _sum_up(self, part: Part) -> _Sums:
        hashed = self._key_hash
        sketches = "".join(f", count_if({hashed} & {1 << bit} = 0)" for bit in _SKETCHES)
        place, low, high = part.bounds or (None, None, None)
        ends = "" if place is None else f", min(c{place}), max(c{place})"
        ((rows, names, came, went, *found),) = self.connection.execute(
            f"SELECT count(*), approx_count_distinct({hashed}), sum({hashed}) FILTER (sign > 0), "
            f"sum({hashed}) FILTER (sign < 0){sketches}{ends} FROM ({part.query})"
        ).fetchall()
        zeros, bounds = found[: len(_SKETCHES)], found[len(_SKETCHES) :]
        is_within = not bounds or not rows or (None not in bounds and low <= bounds[0] and bounds[1] <= high)
        if names * _MANY_ROWS_A_KEY < rows or not is_within:
            raise _NotByKey
        # A hash's bit is a sign for each key: the square of the sum of all signs is expected to be the sum of the
        # squares of the rows of each key (Alon, Matias, Szegedy), four times the pairs that a join would make.
        squares = sum((2 * (zero or 0) - rows) ** 2 for zero in zeros) / len(_SKETCHES)
        return _Sums(rows, (came or 0) - (went or 0), squares > 4 * _MANY_PAIRS_A_ROW * rows)

    def _differing(self, rows: str, number: int, *, at_most: int) -> str:
        names = ", ".join(f"{side}.c{i} AS {side}_c{i}" for side in "ba" for i in range(self.width))
        on = " AND ".join(f"b.c{i} = a.c{i}" for i in self.key)
        differs = "".join(f" OR b.c{i} IS DISTINCT FROM a.c{i}" for i in range(self.width) if i not in self.key)
        no_before, no_after = (f"{side}.c{self.key[0]} IS NULL" for side in "ba")  # a null key matches none: is found
        return (
            f"SELECT {names}, CAST(CASE WHEN {no_before} THEN 1 WHEN {no_after} THEN -1 ELSE 0 END AS TINYINT) AS n, "
            f"CAST({number} AS USMALLINT) AS part "
            f"FROM (SELECT * FROM ({rows}) WHERE sign < 0) b FULL JOIN (SELECT * FROM ({rows}) WHERE sign > 0) a "
            f"ON {on} WHERE {no_before} OR {no_after}{differs} LIMIT {at_most}"
        )

    def _are_named(self, number: int, balance: int) -> bool:
        """Whether each key that a part left in `both_sides` names one row, and what the join dropped cancels: the
        balance is then that of all rows."""
        names = ", ".join(f"coalesce(a_c{i}, b_c{i}) AS c{i}" for i in self.key)
        kept, null = f"(SELECT {names}, n FROM both_sides WHERE part = {number})", is_null([f"c{i}" for i in self.key])
        found = self.connection.execute(
            f"SELECT n, count(*), sum({self._key_hash}), count_if({null}) FROM {kept} GROUP BY n"
        ).fetchall()
        if any(nulls for *_, nulls in found) or balance != sum(n * hashes for n, _, hashes, _ in found):
            return False
        distinct = f"SELECT DISTINCT {', '.join(f'c{i}' for i in self.key)} FROM {kept}"
        ((keys,),) = self.connection.execute(f"SELECT count(*) FROM ({distinct})").fetchall()
        return bool(keys == sum(rows for _, rows, *_ in found))


def _counted(connection: "DuckDBPyConnection") -> dict[str, Bucket]:
    """The rows of `both_sides` by bucket."""
    made = {}
    for n, count in connection.execute("SELECT n, count(*) FROM both_sides GROUP BY n").fetchall():
        added, removed = (0 if n < 0 else count), (0 if n > 0 else count)
        made[_BUCKETS[n]] = Bucket(count, added + removed, added, removed)
    return made


def _one_sided(width: int, bucket: str) -> str:
    side, sign = _SIDES[bucket]
    names = ", ".join(f"{side}_c{i} AS c{i}" for i in range(width))
    return f"SELECT {names}, CAST({sign} AS BIGINT) AS n FROM both_sides WHERE n = {sign}"
