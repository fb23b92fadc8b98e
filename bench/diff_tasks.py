"""What `bench.diff` times: Weir through the calls that its pages make, and the peer as its users write it.

Rule: a fresh `Lake` in an empty home is opened inside the clock. The peer compares two whole Arrow tables by
`deltalake` in DuckDB, which is loaded before the clock starts for both; a change feed is `load_cdf`, grouped.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from backend.changes.answer import compare_rows
from backend.changes.changed_rows import share_out
from backend.changes.commits import counted_by_feed
from backend.changes.model import DiffMethod, Question
from backend.changes.plan import prepare
from backend.lake.lake import Lake
from backend.sql.session import CancelToken
from bench.diff_table import SCHEMA
from bench.harness import Watch
from tests.worlds.lake.large_logs import opened

Answer = dict[str, int]
PAGE_ROWS, COMMON = 100, 3
OTHERS = [name for name in SCHEMA if name != "id"]
SAME = " AND ".join(f"a.{name} IS NOT DISTINCT FROM b.{name}" for name in OTHERS)
KINDS = {
    "update": "a_id IS NOT NULL AND b_id IS NOT NULL",
    "delete": "b_id IS NULL",
    "insert": "a_id IS NULL",
}


def our_diff(watch: Watch, *, uri: str, first: int, second: int) -> dict[str, Any]:
    """What the Changes page shows by key: rows, changed cells by column, the commonest changes, the first rows."""
    settings, ref = opened(uri)
    question = Question(ref, first, second, row_limit=PAGE_ROWS, method=DiffMethod.KEY_JOIN)
    with watch:
        diff = compare_rows(prepare(Lake(settings), question), CancelToken())
    assert diff.method is DiffMethod.KEY_JOIN and diff.exact and diff.unchanged is not None
    net = diff.changes.net
    return {
        "rows": counts(net.inserted or 0, net.updated or 0, net.deleted or 0, diff.unchanged),
        "changed_cells": dict(diff.changes.changed_cells),
        "common": [[each.column, each.before, each.after, each.updates] for each in diff.changes.common],
        "page": [[_values(row.before), _values(row.after)] for row in diff.changes.rows],
    }


def our_log_only(watch: Watch, *, uri: str, first: int, second: int) -> str:
    """What the log tells: the plan, metadata, commits and files."""
    settings, ref = opened(uri)
    with watch:
        prepared = prepare(Lake(settings), Question(ref, first, second))
    return prepared.plan.method.value


def our_log_again(watch: Watch, *, uri: str, first: int, second: int) -> str:
    """The same, of a `Lake` that was asked before."""
    settings, ref = opened(uri)
    lake, question = Lake(settings), Question(ref, first, second)
    prepare(lake, question)
    with watch:
        prepared = prepare(lake, question)
    return prepared.plan.method.value


def our_feed(watch: Watch, *, uri: str, first: int, second: int) -> Answer:
    """The change feed by type, as the page tells it of each commit."""
    settings, ref = opened(uri)
    with watch:
        lake = Lake(settings)
        commits = lake.history(ref, starting_version=first + 1, ending_version=second)
        counted = counted_by_feed(lake, ref, commits, CancelToken())
    assert not any(each.is_reported for each in counted)
    deleted, inserted, updated = (
        sum(getattr(each, name) or 0 for each in counted) for name in ("deleted", "inserted", "updated")
    )
    rows = {"delete": deleted, "insert": inserted, "update_postimage": updated, "update_preimage": updated}
    return {kind: count for kind, count in rows.items() if count}


def _values(row: Mapping[str, Any] | None) -> list[Any] | None:
    return None if row is None else list(row.values())


def counts(inserted: Any, updated: Any, deleted: Any, unchanged: Any) -> Answer:
    return {"inserted": inserted, "updated": updated, "deleted": deleted, "unchanged": unchanged}


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
    in_both = "a.id IS NOT NULL AND b.id IS NOT NULL"
    kinds = ("a.id IS NULL", f"{in_both} AND NOT ({SAME})", "b.id IS NULL", f"{SAME} AND {in_both}")
    counted = ", ".join(f"count(*) FILTER ({kind})" for kind in kinds)
    with watch, _both_states(uri, first, second) as connection:
        (row,) = connection.execute(f"SELECT {counted} FROM a FULL JOIN b ON a.id = b.id").fetchall()
    return counts(*row)


def their_diff(watch: Watch, *, uri: str, first: int, second: int) -> dict[str, Any]:
    """Two whole states joined by key once, and of the rows that differ what Weir tells of them."""
    names = ", ".join(f"{side}.{name} AS {side}_{name}" for side in "ab" for name in SCHEMA)
    with watch, _both_states(uri, first, second) as connection:
        connection.execute(
            f"CREATE TEMP TABLE apart AS SELECT {names} FROM a FULL JOIN b ON a.id = b.id "
            f"WHERE a.id IS NULL OR b.id IS NULL OR NOT ({SAME})"
        )
        kinds = ", ".join(f"count_if({condition})" for condition in KINDS.values())
        ((updated, deleted, inserted),) = connection.execute(f"SELECT {kinds} FROM apart").fetchall()
        ((after,),) = connection.execute("SELECT count(*) FROM b").fetchall()
        shares = share_out(PAGE_ROWS, {"update": updated, "delete": deleted, "insert": inserted})
        return {
            "rows": counts(inserted, updated, deleted, after - inserted - updated),
            "changed_cells": _changed_cells(connection),
            "common": [each for name in OTHERS for each in _common(connection, name)],
            "page": [row for kind, share in shares.items() for row in _page(connection, kind, share)],
        }


def _changed_cells(connection: duckdb.DuckDBPyConnection) -> Answer:
    differ = ", ".join(f"count_if(a_{name} IS DISTINCT FROM b_{name})" for name in OTHERS)
    (row,) = connection.execute(f"SELECT {differ} FROM apart WHERE {KINDS['update']}").fetchall()
    return {name: cells for name, cells in zip(OTHERS, row, strict=True) if cells}


def _common(connection: duckdb.DuckDBPyConnection, name: str) -> list[list[Any]]:
    differs = f"{KINDS['update']} AND a_{name} IS DISTINCT FROM b_{name}"
    rows = connection.execute(
        f"SELECT a_{name}, b_{name}, count(*) FROM apart WHERE {differs} "
        f"GROUP BY 1, 2 HAVING count(*) > 1 ORDER BY 3 DESC, 1, 2 LIMIT {COMMON}"
    )
    return [[name, *row] for row in rows.fetchall()]


def _page(connection: duckdb.DuckDBPyConnection, kind: str, rows: int) -> list[list[Any]]:
    """The first rows by key, before and after."""
    width = len(SCHEMA)
    order = f"FROM apart WHERE {KINDS[kind]} ORDER BY coalesce(b_id, a_id) LIMIT {rows}"
    pairs = [(list(row[:width]), list(row[width:])) for row in connection.execute(f"SELECT * {order}").fetchall()]
    return [[None if kind == "insert" else a, None if kind == "delete" else b] for a, b in pairs]


def their_feed(watch: Watch, *, uri: str, first: int, second: int, columns: list[str] | None = None) -> Answer:
    """`load_cdf`, grouped by type while it streams."""
    with watch:
        feed = DeltaTable(uri).load_cdf(starting_version=first + 1, ending_version=second, columns=columns)
        with duckdb.connect() as connection:
            connection.register("feed", pa.RecordBatchReader.from_stream(feed))
            rows = connection.execute("SELECT _change_type, count(*) FROM feed GROUP BY 1 ORDER BY 1").fetchall()
    return dict(rows)
