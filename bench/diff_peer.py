"""The peer of a diff as its users write it: two whole Arrow tables by `deltalake`, compared in DuckDB; of a change feed
`load_cdf`, grouped.
"""

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from bench.diff_ours import Answer, counts
from bench.diff_table import SCHEMA
from bench.measure import Watch


def their_diff(watch: Watch, *, uri: str, first: int, second: int) -> Answer:
    """Two whole states joined by key."""
    others = [name for name in SCHEMA if name != "id"]
    same = " AND ".join(f"a.{name} IS NOT DISTINCT FROM b.{name}" for name in others)
    with watch:
        a, b = (DeltaTable(uri, version=version).to_pyarrow_table() for version in (first, second))
        with duckdb.connect() as connection:
            connection.register("a", a)
            connection.register("b", b)
            found = connection.execute(
                "SELECT count(*) FILTER (a.id IS NULL), count(*) FILTER (a.id IS NOT NULL AND b.id IS NOT NULL AND "
                f"NOT ({same})), count(*) FILTER (b.id IS NULL), count(*) FILTER ({same} AND a.id IS NOT NULL "
                "AND b.id IS NOT NULL) FROM a FULL JOIN b ON a.id = b.id"
            ).fetchone()
    assert found is not None
    return counts(*found)


def their_feed(watch: Watch, *, uri: str, first: int, second: int, columns: list[str] | None = None) -> Answer:
    """`load_cdf`, grouped by type while it streams."""
    with watch:
        feed = DeltaTable(uri).load_cdf(starting_version=first + 1, ending_version=second, columns=columns)
        with duckdb.connect() as connection:
            connection.register("feed", pa.RecordBatchReader.from_stream(feed))
            found = connection.execute("SELECT _change_type, count(*) FROM feed GROUP BY 1 ORDER BY 1").fetchall()
    return dict(found)
