"""Rows that differ (table `net`: c0, c1 … and how often each came, `n`), named by their key.

Rule: a key that is null or in several rows of a side names none; its rows are set apart, nothing is dropped.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backend.diff.rows import Bucket, Source

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def unnamed_keys(key: Sequence[int], rows: str, sign: str) -> str:
    """A query for the keys that several rows of a side have."""
    columns = [f"c{i}" for i in key]
    names = ", ".join(columns)
    return (
        f"SELECT {names} FROM {rows} WHERE NOT ({is_null(columns)}) GROUP BY {names} "
        f"HAVING sum({sign}) FILTER ({sign} > 0) > 1 OR sum({sign}) FILTER ({sign} < 0) < -1"
    )


def is_unnamed(names: Sequence[str]) -> str:
    """Whether a key is null, or among those."""
    return f"{is_null(names)} OR ({', '.join(names)}) IN (SELECT * FROM unnamed)"


def is_null(names: Sequence[str]) -> str:
    """Whether any of these is."""
    return " OR ".join(f"{name} IS NULL" for name in names)


def keep_apart(connection: "DuckDBPyConnection", rows: str, width: int, condition: str) -> None:
    """Table `apart` gets the rows of a query (c0, c1 … and `sign`) that satisfy a condition and do not cancel."""
    names = ", ".join(f"c{i}" for i in range(width))
    connection.execute(
        f"CREATE TEMP TABLE IF NOT EXISTS apart AS SELECT {names}, CAST(0 AS BIGINT) AS n FROM ({rows}) LIMIT 0"
    )
    connection.execute(
        f"INSERT INTO apart SELECT {names}, CAST(sum(sign) AS BIGINT) FROM ({rows}) WHERE {condition} "
        f"GROUP BY {names} HAVING sum(sign) <> 0"
    )


def set_apart(connection: "DuckDBPyConnection", columns: Sequence[str], key: Sequence[int]) -> Source:
    """The rows of `apart`, now in `net`; those whose key turns out to be one row a side go to `both_sides`."""
    whole, none = ", ".join(f"c{i}" for i in range(len(columns))), ", ".join(["NULL"] * len(columns))
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE net AS SELECT {whole}, CAST(sum(n) AS BIGINT) AS n FROM apart "
        f"GROUP BY {whole} HAVING sum(n) <> 0"
    )
    source = summed_source(connection, columns, key)
    classify(source)
    connection.execute(f"INSERT INTO both_sides SELECT *, 0, 0 FROM ({_pairs(source)})")
    for bucket, values in (("insert", f"{none}, {whole}, 1, 0"), ("delete", f"{whole}, {none}, -1, 0")):
        connection.execute(f"INSERT INTO both_sides SELECT {values} FROM ({source.rows_of(bucket)})")
    return source


def without_null_keys(connection: "DuckDBPyConnection", key: Sequence[int]) -> int:
    """Takes the rows with a null key out of `apart`: while parts are still to come, so may be what cancels them. How
    many there were."""
    null = is_null([f"c{i}" for i in key])
    ((rows,),) = connection.execute(
        f"SELECT CAST(coalesce(sum(abs(n)), 0) AS BIGINT) FROM apart WHERE {null}"
    ).fetchall()
    connection.execute(f"DELETE FROM apart WHERE {null}")
    return int(rows)


def classify(source: Source) -> None:
    """Table `keyed`: one row a key with its `bucket`; without a key, of the two signs."""
    if not source.key:
        source.connection.execute(
            "CREATE TEMP TABLE keyed AS SELECT CASE WHEN n > 0 THEN 'insert' ELSE 'delete' END AS bucket, "
            "count(*) AS entries, sum(greatest(n, 0)) AS added, sum(greatest(-n, 0)) AS removed FROM net GROUP BY 1"
        )
        return
    columns = [f"c{i}" for i in source.key]
    names = ", ".join(columns)
    source.connection.execute(
        f"CREATE TEMP TABLE keyed AS SELECT *, CASE WHEN {is_null(columns)} THEN 'null' "
        "WHEN added = 1 AND removed = 1 THEN 'update' WHEN added = 1 AND removed = 0 THEN 'insert' "
        "WHEN added = 0 AND removed = 1 THEN 'delete' ELSE 'duplicate' END AS bucket FROM ("
        f"SELECT {names}, count(*) AS entries, sum(greatest(n, 0)) AS added, sum(greatest(-n, 0)) AS removed "
        f"FROM net GROUP BY {names})"
    )


def summed_source(
    connection: "DuckDBPyConnection", columns: Sequence[str], key: Sequence[int], tolerance: float = 0.0
) -> Source:
    """The rows of `net`, by the buckets of `keyed`."""
    on = " AND ".join(f"net.c{i} IS NOT DISTINCT FROM k.c{i}" for i in key)

    def rows_of(bucket: str) -> str:
        if not key:
            return f"SELECT * FROM net WHERE n {'>' if bucket == 'insert' else '<'} 0"
        return f"SELECT net.* FROM net SEMI JOIN (SELECT * FROM keyed WHERE bucket = '{bucket}') k ON {on}"

    return Source(connection, columns, key, rows_of, tolerance)


def pair(source: Source) -> None:
    """Table `pairs`, of tables `net` and `keyed`."""
    source.connection.execute(f"CREATE TEMP TABLE pairs AS {_pairs(source)}")
    if source.tolerance:
        _forgive(source)


def _pairs(source: Source) -> str:
    """Updated rows side by side: of keys that are in no more than one row a side, those that are in both."""
    names = ", ".join(f"{side}.c{i} AS {side}_c{i}" for side in "ba" for i in range(len(source.columns)))
    is_several, is_same = (
        " AND ".join(f"{one}.c{i} = {other}.c{i}" for i in source.key) for one, other in (("net", "k"), ("b", "a"))
    )
    several = f"(SELECT * FROM keyed WHERE bucket = 'duplicate') k ON {is_several}"
    return (
        f"SELECT {names} FROM (SELECT net.* FROM net ANTI JOIN {several} WHERE n < 0) b "
        f"JOIN (SELECT * FROM net WHERE n > 0) a ON {is_same}"
    )


def _forgive(source: Source) -> None:
    """Updates that change nothing but floats, and those within the tolerance, are none."""
    differs = " OR ".join(source.differs().values())
    names, keys = ", ".join(f"c{i}" for i in source.key), ", ".join(f"a_c{i}" for i in source.key)
    source.connection.execute(f"CREATE TEMP TABLE same AS SELECT {keys} FROM pairs WHERE NOT ({differs})")
    source.connection.execute(f"DELETE FROM keyed WHERE bucket = 'update' AND ({names}) IN (SELECT * FROM same)")


def buckets_of(connection: "DuckDBPyConnection") -> dict[str, Bucket]:
    found = connection.execute(
        "SELECT bucket, count(*), CAST(sum(entries) AS BIGINT), CAST(sum(added) AS BIGINT), "
        "CAST(sum(removed) AS BIGINT) FROM keyed GROUP BY bucket"
    ).fetchall()
    return {name: Bucket(keys, entries, added, removed) for name, keys, entries, added, removed in found}
