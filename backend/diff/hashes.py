"""Hashes of rows by DuckDB, which are different for different rows but by chance.

Rule: DuckDB's own hash is not that for every type: NULL, [] and [NULL] share one, [0] and [0, 0], a decimal of more
than 18 digits and the negative of the next one. Values of such types are hashed by their sort key, which tells apart
what DuckDB's order does. The hash of 0 is 0, so every hash has salt.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_TOLD_APART = re.compile(
    r"BOOLEAN|U?(TINY|SMALL|BIG)INT|U?INTEGER|FLOAT|DOUBLE|VARCHAR|BLOB|DATE|TIMESTAMP.*|DECIMAL\((\d|1[0-8]),\d+\)"
)


def row_hash(connection: "DuckDBPyConnection", rows: str, columns: Sequence[str]) -> str:
    """The hash (UBIGINT) of these columns of a row, as SQL; `rows` is a table or a view that has them."""
    kinds = connection.execute(f"DESCRIBE SELECT {', '.join(columns)} FROM {rows}").fetchall()
    values = [
        name if _TOLD_APART.fullmatch(kind) else f"create_sort_key({name}, 'ASC NULLS LAST')"
        for name, kind, *_ in kinds
    ]
    return f"hash({', '.join(values)}, 'weir')"
