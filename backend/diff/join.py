"""The fast way to the difference of two sides by key: they are joined once, and only rows that differ are kept.

Rule: exact, or not at all. Where a key may be null or stand in several rows, nothing is said, and whole rows are summed
up instead (`backend.diff.net`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backend.diff.rows import Bucket, Source

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SIDES = {"insert": ("a", 1), "delete": ("b", -1)}
_BUCKETS = {0: "update", 1: "insert", -1: "delete"}  # by `n`, the sum of both sides' signs
_MANY_ROWS_A_KEY = 2.5  # of both sides, on average: such a key names nothing, and a join multiplies its rows


def join_sides(
    connection: "DuckDBPyConnection", feed: str, columns: Sequence[str], key: Sequence[int]
) -> tuple[Source, dict[str, Bucket]] | None:
    """The rows of the query `feed` (c0, c1 … and `sign`) that differ, as table `both_sides` and view `pairs`; None
    where their keys do not name them."""
    rows, names, balance = _sum_up(connection, feed, key)
    if names * _MANY_ROWS_A_KEY < rows:
        return None
    _join(connection, feed, len(columns), key, at_most=rows + 1)
    found = _rows_by_bucket(connection, key, balance)
    if found is None or sum(found.values()) > rows:
        connection.execute("DROP TABLE both_sides")
        return None
    pairs = ", ".join(f"{side}_c{i}" for side in "ba" for i in range(len(columns)))
    connection.execute(f"CREATE TEMP VIEW pairs AS SELECT {pairs} FROM both_sides WHERE n = 0")
    return Source(connection, columns, key, lambda bucket: _one_sided(len(columns), bucket)), _buckets(found)


def _sum_up(connection: "DuckDBPyConnection", feed: str, key: Sequence[int]) -> tuple[int, int, int]:
    """Rows, about how many keys, and the balance: the sum of the keys' hashes that came less that of those that
    went."""
    hashed = _hashed(key)
    ((rows, names, came, went),) = connection.execute(
        f"SELECT count(*), approx_count_distinct({hashed}), sum({hashed}) FILTER (sign > 0), "
        f"sum({hashed}) FILTER (sign < 0) FROM ({feed})"
    ).fetchall()
    return rows, names, (came or 0) - (went or 0)


def _hashed(key: Sequence[int]) -> str:
    return f"hash({', '.join(f'c{i}' for i in key)})"


def _join(connection: "DuckDBPyConnection", feed: str, width: int, key: Sequence[int], *, at_most: int) -> None:
    names = ", ".join(f"{side}.c{i} AS {side}_c{i}" for side in "ba" for i in range(width))
    on = " AND ".join(f"b.c{i} = a.c{i}" for i in key)
    differs = "".join(f" OR b.c{i} IS DISTINCT FROM a.c{i}" for i in range(width) if i not in key)
    no_before, no_after = (f"{side}.c{key[0]} IS NULL" for side in "ba")  # a null key matches nothing, and is found
    connection.execute(
        f"CREATE TEMP TABLE both_sides AS SELECT {names}, "
        f"CAST(CASE WHEN {no_before} THEN 1 WHEN {no_after} THEN -1 ELSE 0 END AS TINYINT) AS n "
        f"FROM (SELECT * FROM ({feed}) WHERE sign < 0) b FULL JOIN (SELECT * FROM ({feed}) WHERE sign > 0) a "
        f"ON {on} WHERE {no_before} OR {no_after}{differs} LIMIT {at_most}"
    )


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
