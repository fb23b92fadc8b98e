"""Keys of a version: those in several rows, and those that another table lacks; by DuckDB, which spills to disk.

Rule: exact. A key with a null names no row, as in SQL's UNIQUE and FOREIGN KEY: `expect` is there for nulls.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from backend.format import cut, value_text
from backend.sql.quoting import quoted_name
from backend.sql.session import CancelToken, Connection, session

EXAMPLES = 5
MEMORY_BYTES = 256_000_000  # beside the streams of the host; more goes to disk


@dataclass(frozen=True, slots=True)
class BrokenKeys:
    """How many keys break the rule, in how many rows, and a few of them as texts, those of most rows first."""

    keys: int
    rows: int
    examples: tuple[str, ...]


def repeated(rows: pa.RecordBatchReader, columns: Sequence[str], token: CancelToken) -> BrokenKeys:
    """Keys that are in several rows; raises `DiffError`, `Stopped`, and what reading the rows raises."""
    keys = [f"k{number}" for number in range(len(columns))]
    named = ", ".join(f"{quoted_name(column)} AS {key}" for column, key in zip(columns, keys, strict=True))
    known = " AND ".join(f"{key} IS NOT NULL" for key in keys)
    with session(token, memory_bytes=MEMORY_BYTES, what="the keys") as connection:
        connection.register("given", token.counted(rows))
        found = f"SELECT {', '.join(keys)}, count(*) AS n FROM (SELECT {named} FROM given) WHERE {known}"
        connection.execute(f"CREATE TEMP TABLE broken AS {found} GROUP BY {', '.join(keys)} HAVING count(*) > 1")
        return _broken(connection, keys)


def missing(
    rows: pa.RecordBatchReader, column: str, others: pa.RecordBatchReader, other_column: str, token: CancelToken
) -> BrokenKeys:
    """Keys that the other table does not hold; raises as `repeated` does."""
    key, other = quoted_name(column), quoted_name(other_column)
    with session(token, memory_bytes=MEMORY_BYTES, what="the keys") as connection:
        connection.register("given", token.counted(rows))
        connection.register("others", token.counted(others))
        connection.execute(f"CREATE TEMP TABLE present AS SELECT DISTINCT {other} AS k0 FROM others")
        connection.execute(
            f"CREATE TEMP TABLE broken AS SELECT k0, count(*) AS n FROM (SELECT {key} AS k0 FROM given) "
            "ANTI JOIN present USING (k0) WHERE k0 IS NOT NULL GROUP BY k0"
        )
        return _broken(connection, ["k0"])


def _broken(connection: Connection, keys: Sequence[str]) -> BrokenKeys:
    (totals,) = connection.execute("SELECT count(*), coalesce(sum(n), 0) FROM broken").fetchall()
    order = ", ".join(["n DESC", *keys])
    found = connection.execute(f"SELECT {', '.join(keys)} FROM broken ORDER BY {order} LIMIT {EXAMPLES}").fetchall()
    return BrokenKeys(int(totals[0]), int(totals[1]), tuple(cut(", ".join(map(value_text, row))) for row in found))
