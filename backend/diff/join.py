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
_MANY_ROWS_A_KEY = 2.5  # of both sides, on average: such a key names nothing, and a join multiplies its rows


def join_sides(
    connection: "DuckDBPyConnection", columns: Sequence[str], key: Sequence[int]
) -> tuple[Source, dict[str, Bucket]] | None:
    """The rows of `feed` (c0, c1 … and `sign`) that differ, as table `both_sides` and view `pairs`; None where their
    keys do not name them."""
    keys = ", ".join(f"c{i}" for i in key)
    ((rows, names, balance),) = connection.execute(
        f"SELECT count(*), approx_count_distinct(hash({keys})), {_signed_sum(keys)} FROM feed"
    ).fetchall()
    if names * _MANY_ROWS_A_KEY < rows:
        return None
    _join(connection, len(columns), key, at_most=rows + 1)
    found = _rows_by_bucket(connection, key, balance)
    if found is None or sum(found.values()) > rows:
        connection.execute("DROP TABLE both_sides")
        return None
    pairs = ", ".join(f"{side}_c{i}" for side in "ba" for i in range(len(columns)))
    connection.execute(f"CREATE TEMP VIEW pairs AS SELECT {pairs} FROM both_sides WHERE bucket = 'update'")
    return Source(connection, columns, key, lambda bucket: _one_sided(len(columns), bucket)), _buckets(found)


def _signed_sum(keys: str) -> str:
    """Of the keys' hashes: those that came less those that went."""
    return f"coalesce(sum(CAST(hash({keys}) AS HUGEINT) * sign), 0)"


def _join(connection: "DuckDBPyConnection", width: int, key: Sequence[int], *, at_most: int) -> None:
    names = ", ".join(f"{side}.c{i} AS {side}_c{i}" for side in "ba" for i in range(width))
    on = " AND ".join(f"b.c{i} = a.c{i}" for i in key)
    differs = "".join(f" OR b.c{i} IS DISTINCT FROM a.c{i}" for i in range(width) if i not in key)
    connection.execute(
        f"CREATE TEMP TABLE both_sides AS SELECT {names}, CASE WHEN b.sign IS NULL THEN 'insert' "
        "WHEN a.sign IS NULL THEN 'delete' ELSE 'update' END AS bucket "
        "FROM (SELECT * FROM feed WHERE sign < 0) b FULL JOIN (SELECT * FROM feed WHERE sign > 0) a "
        f"ON {on} WHERE b.sign IS NULL OR a.sign IS NULL{differs} LIMIT {at_most}"
    )


def _rows_by_bucket(connection: "DuckDBPyConnection", key: Sequence[int], balance: int) -> dict[str, int] | None:
    """How many rows of `both_sides` each bucket has, if each of its keys names one row and what the join dropped
    cancels: the signed sum of the keys' hashes is then that of all rows."""
    keys = ", ".join(f"c{i}" for i in key)
    kept = (
        f"(SELECT {', '.join(f'coalesce(a_c{i}, b_c{i}) AS c{i}' for i in key)}, bucket, "
        "CASE bucket WHEN 'insert' THEN 1 WHEN 'delete' THEN -1 ELSE 0 END AS sign FROM both_sides)"
    )
    null = " OR ".join(f"c{i} IS NULL" for i in key)
    found = connection.execute(
        f"SELECT bucket, count(*), {_signed_sum(keys)}, count_if({null}) FROM {kept} GROUP BY bucket"
    ).fetchall()
    if any(nulls for *_, nulls in found) or balance != sum(each[2] for each in found):
        return None
    ((names,),) = connection.execute(f"SELECT count(*) FROM (SELECT DISTINCT {keys} FROM {kept})").fetchall()
    return {bucket: rows for bucket, rows, *_ in found} if names == sum(each[1] for each in found) else None


def _buckets(rows: dict[str, int]) -> dict[str, Bucket]:
    made = {}
    for name, count in rows.items():
        added, removed = (0 if name == "delete" else count), (0 if name == "insert" else count)
        made[name] = Bucket(count, added + removed, added, removed)
    return made


def _one_sided(width: int, bucket: str) -> str:
    side, sign = _SIDES[bucket]
    names = ", ".join(f"{side}_c{i} AS c{i}" for i in range(width))
    return f"SELECT {names}, CAST({sign} AS BIGINT) AS n FROM both_sides WHERE bucket = '{bucket}'"
