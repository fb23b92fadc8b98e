"""The peer of a diff as its users write it: two whole Arrow tables by `deltalake`, compared in DuckDB; of a change feed
`load_cdf`, grouped.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from backend.changes.changed_rows import share_out
from bench.diff_ours import Answer, counts
from bench.diff_table import SCHEMA
from bench.harness import Watch

OTHERS = [name for name in SCHEMA if name != "id"]
_SAME = " AND ".join(f"a.{name} IS NOT DISTINCT FROM b.{name}" for name in OTHERS)
_KINDS = {
    "update": "a_id IS NOT NULL AND b_id IS NOT NULL",
    "delete": "b_id IS NULL",
    "insert": "a_id IS NULL",
}
_COMMON = 3


@contextmanager
def _both_states(uri: str, first: int, second: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """The whole states as `a` and `b`."""
    a, b = (DeltaTable(uri, version=version).to_pyarrow_table() for version in (first, second))
    with duckdb.connect() as connection:
        connection.register("a", a)
        connection.register("b", b)
        yield connection


def their_counts(watch: Watch, *, uri: str, first: int, second: int) -> Answer:
    """Two whole states joined by key and counted: no more than how many rows differ."""
    with watch, _both_states(uri, first, second) as connection:
        found = connection.execute(
            "SELECT count(*) FILTER (a.id IS NULL), count(*) FILTER (a.id IS NOT NULL AND b.id IS NOT NULL AND "
            f"NOT ({_SAME})), count(*) FILTER (b.id IS NULL), count(*) FILTER ({_SAME} AND a.id IS NOT NULL "
            "AND b.id IS NOT NULL) FROM a FULL JOIN b ON a.id = b.id"
        ).fetchone()
    assert found is not None
    return counts(*found)


def their_diff(watch: Watch, *, uri: str, first: int, second: int, page: int) -> dict[str, Any]:
    """Two whole states joined by key once, and of the rows that differ what Weir tells of them."""
    names = ", ".join(f"{side}.{name} AS {side}_{name}" for side in "ab" for name in SCHEMA)
    with watch, _both_states(uri, first, second) as connection:
        connection.execute(
            f"CREATE TEMP TABLE apart AS SELECT {names} FROM a FULL JOIN b ON a.id = b.id "
            f"WHERE a.id IS NULL OR b.id IS NULL OR NOT ({_SAME})"
        )
        kinds = ", ".join(f"count_if({condition})" for condition in _KINDS.values())
        ((updated, deleted, inserted),) = connection.execute(f"SELECT {kinds} FROM apart").fetchall()
        ((after,),) = connection.execute("SELECT count(*) FROM b").fetchall()
        shares = share_out(page, {"update": updated, "delete": deleted, "insert": inserted})
        return {
            "rows": counts(inserted, updated, deleted, after - inserted - updated),
            "changed_cells": _changed_cells(connection),
            "common": [each for name in OTHERS for each in _common(connection, name)],
            "page": [row for kind, share in shares.items() for row in _page(connection, kind, share)],
        }


def _changed_cells(connection: duckdb.DuckDBPyConnection) -> Answer:
    differ = ", ".join(f"count_if(a_{name} IS DISTINCT FROM b_{name})" for name in OTHERS)
    (found,) = connection.execute(f"SELECT {differ} FROM apart WHERE {_KINDS['update']}").fetchall()
    return {name: cells for name, cells in zip(OTHERS, found, strict=True) if cells}


def _common(connection: duckdb.DuckDBPyConnection, name: str) -> list[list[Any]]:
    differs = f"{_KINDS['update']} AND a_{name} IS DISTINCT FROM b_{name}"
    found = connection.execute(
        f"SELECT a_{name}, b_{name}, count(*) FROM apart WHERE {differs} "
        f"GROUP BY 1, 2 HAVING count(*) > 1 ORDER BY 3 DESC, 1, 2 LIMIT {_COMMON}"
    )
    return [[name, *each] for each in found.fetchall()]


def _page(connection: duckdb.DuckDBPyConnection, kind: str, rows: int) -> list[list[Any]]:
    """The first rows by key, before and after."""
    width = len(SCHEMA)
    order = f"FROM apart WHERE {_KINDS[kind]} ORDER BY coalesce(b_id, a_id) LIMIT {rows}"
    found = [(list(row[:width]), list(row[width:])) for row in connection.execute(f"SELECT * {order}").fetchall()]
    return [[None if kind == "insert" else a, None if kind == "delete" else b] for a, b in found]


def their_feed(watch: Watch, *, uri: str, first: int, second: int, columns: list[str] | None = None) -> Answer:
    """`load_cdf`, grouped by type while it streams."""
    with watch:
        feed = DeltaTable(uri).load_cdf(starting_version=first + 1, ending_version=second, columns=columns)
        with duckdb.connect() as connection:
            connection.register("feed", pa.RecordBatchReader.from_stream(feed))
            found = connection.execute("SELECT _change_type, count(*) FROM feed GROUP BY 1 ORDER BY 1").fetchall()
    return dict(found)
