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


def join_sides(
    connection: "DuckDBPyConnection", columns: Sequence[str], key: Sequence[int]
) -> tuple[Source, dict[str, Bucket]] | None:
    """The rows of `feed` (c0, c1 … and `sign`) that differ, as table `both_sides` and view `pairs`; None where their
    keys do not name them."""
    _join(connection, len(columns), key)
    rows = _rows_by_bucket(connection, key)
    if rows is None:
        connection.execute("DROP TABLE both_sides")
        return None
    pairs = ", ".join(f"{side}_c{i}" for side in "ba" for i in range(len(columns)))
    connection.execute(f"CREATE TEMP VIEW pairs AS SELECT {pairs} FROM both_sides WHERE bucket = 'update'")
    return Source(connection, columns, key, lambda bucket: _one_sided(len(columns), bucket)), _buckets(rows)


def _join(connection: "DuckDBPyConnection", width: int, key: Sequence[int]) -> None:
    names = ", ".join(f"{side}.c{i} AS {side}_c{i}" for side in "ba" for i in range(width))
    on = " AND ".join(f"b.c{i} = a.c{i}" for i in key)
    differs = "".join(f" OR b.c{i} IS DISTINCT FROM a.c{i}" for i in range(width) if i not in key)
    connection.execute(
        f"CREATE TEMP TABLE both_sides AS SELECT {names}, CASE WHEN b.sign IS NULL THEN 'insert' "
        "WHEN a.sign IS NULL THEN 'delete' ELSE 'update' END AS bucket "
        "FROM (SELECT * FROM feed WHERE sign < 0) b FULL JOIN (SELECT * FROM feed WHERE sign > 0) a "
        f"ON {on} WHERE b.sign IS NULL OR a.sign IS NULL{differs}"
    )


def _rows_by_bucket(connection: "DuckDBPyConnection", key: Sequence[int]) -> dict[str, int] | None:
    """How many rows of `both_sides` each bucket has, if each of its keys names one row and what the join dropped
    cancels: the keys' hashes, those that came less those that went, then sum up to the same there and in `feed`."""
    names = ", ".join(f"c{i}" for i in key)
    named = ", ".join(f"coalesce(a_c{i}, b_c{i}) AS c{i}" for i in key)
    null = " OR ".join(f"c{i} IS NULL" for i in key)
    hashed = f"coalesce(sum(CAST(hash({names}) AS HUGEINT) * sign), 0)"
    kept = (
        f"(SELECT {named}, bucket, CASE bucket WHEN 'insert' THEN 1 WHEN 'delete' THEN -1 ELSE 0 END AS sign "
        "FROM both_sides)"
    )
    found = connection.execute(
        f"SELECT bucket, count(*), {hashed}, count(*) FILTER ({null}) FROM {kept} GROUP BY bucket"
    ).fetchall()
    if any(nulls for *_, nulls in found):
        return None
    ((balance,),) = connection.execute(f"SELECT {hashed} FROM feed").fetchall()
    if balance != sum(each[2] for each in found):
        return None
    ((keys,),) = connection.execute(f"SELECT count(*) FROM (SELECT DISTINCT {names} FROM {kept})").fetchall()
    return {bucket: rows for bucket, rows, *_ in found} if keys == sum(each[1] for each in found) else None


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
