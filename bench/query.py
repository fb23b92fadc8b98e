"""`make bench SUITE=query`: what a whole `weir query` costs beside plain DuckDB over the same Parquet files.

Rule: the peer's clock starts after its imports, Weir's with its process. A comparison counts only where both give the
same rows.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import orjson

from bench.harness import Bench, Line, Suite, Watch, duration, require_equal, times, within
from bench.lake_tasks import their_distribution
from tests.worlds.lake import builders
from tests.worlds.lake.large_logs import made, make_tables

FORMAT = "1"  # part of the cache's name: a change of what is written makes new tables
ROWS, FILES, CUSTOMERS, PRODUCTS = 10_000_000, 20, 200_000, 1_000
START_S, RATIO = 0.4, 1.3
OURS = "`weir query`, its start included"
JOIN = """
SELECT c.country, p.category, count(*) AS orders, sum(o.quantity * p.cents)::BIGINT AS cents, max(o.day) AS newest
FROM {orders} o JOIN {customers} c ON o.customer = c.customer JOIN {products} p ON o.product = p.product
WHERE o.quantity > 1 GROUP BY c.country, p.category ORDER BY c.country, p.category
"""
BY_PARTITION = """
SELECT partition.day AS day, count(*) AS files, sum(file_size_in_bytes)::BIGINT AS bytes
FROM "{name}$files" GROUP BY 1 ORDER BY 1
"""


def join(bench: Bench) -> Iterator[Line]:
    """Three tables joined and grouped, the largest of 10,000,000 rows"""
    shop = str(bench.tables)
    ours, theirs = bench.alike("the join", our_join, their_join, shop=shop)
    target = f"≤ {RATIO}× plus {START_S:g} s"
    ratio = times((ours.seconds - START_S) / theirs.seconds)
    is_met = ours.seconds <= RATIO * theirs.seconds + START_S
    yield Line(OURS, target, duration(ours.seconds), duration(theirs.seconds), ratio, is_met)
    (spark,) = bench.runs(bench.go(spark_join, shop=shop))
    require_equal(ours.answer, spark.answer, "the join by Spark")
    yield ours.faster(f"{OURS}, against a warm session of Spark", spark, 3)


def files(bench: Bench) -> Iterator[Line]:
    """`"t$files"` of 1,000,000 files grouped by partition"""
    uri = str(make_tables(bench.folder, bench.scale, ("T3",)) / "T3")
    (ours,) = bench.runs(bench.go(our_files, uri=uri))
    require_equal(ours.answer, bench.go(their_distribution, uri=uri)().answer["days"], "files by partition")
    yield within(OURS, ours.seconds, 1.5)


def our_join(watch: Watch, *, shop: str) -> list[Any]:
    names = {name: name for name in ("orders", "customers", "products")}
    return _asked(watch, shop, JOIN.format(**names))


def their_join(watch: Watch, *, shop: str) -> list[Any]:
    names = {name: f"read_parquet('{shop}/{name}/*.parquet')" for name in ("orders", "customers", "products")}
    connection = duckdb.connect(config={"threads": os.cpu_count() or 1})
    with watch:
        rows = connection.execute(JOIN.format(**names)).fetchall()
    return [[*row[:-1], row[-1].isoformat()] for row in rows]


def spark_join(watch: Watch, *, shop: str) -> list[Any]:
    """The second run of the statement: the first warms the JVM and the caches of files."""
    from bench.streams import spark_settings
    from pipelines.spark.session import open_session

    spark = open_session(spark_settings())
    names = {name: f"delta.`{shop}/{name}`" for name in ("orders", "customers", "products")}
    statement = JOIN.replace("::BIGINT", "").format(**names)
    spark.sql(statement).collect()
    with watch:
        rows = spark.sql(statement).collect()
    spark.stop()
    return [[*row[:-1], row[-1].isoformat()] for row in rows]


def our_files(watch: Watch, *, uri: str) -> list[Any]:
    root, _, name = uri.rpartition("/")
    return _asked(watch, root, BY_PARTITION.format(name=name))


def _asked(watch: Watch, root: str, text: str) -> list[Any]:
    argv = [str(Path(sys.executable).with_name("weir")), "query", text, "--json"]
    environment = os.environ | {"WEIR_LAKE__ROOTS": orjson.dumps([root]).decode()}
    with watch:
        ended = subprocess.run(argv, capture_output=True, env=environment, check=True)
    return [list(row.values()) for row in orjson.loads(ended.stdout)["rows"]]


def make_shop(folder: Path, scale: float) -> Path:
    """The folder of the three tables; made where missing."""

    def make(shop: Path) -> None:
        ids = np.arange(CUSTOMERS)
        builders.write(shop / "customers", {"customer": ids, "country": np.char.mod("land %d", ids % 40)})
        ids = np.arange(PRODUCTS)
        products = {"product": ids, "category": np.char.mod("kind %d", ids % 12), "cents": 99 + ids * 7}
        builders.write(shop / "products", products)
        rows = max(1, round(ROWS * scale / FILES))
        for number in range(FILES):
            ids = np.arange(number * rows, (number + 1) * rows)
            days = np.datetime64("2026-01-01") + (ids // max(1, rows // 9)).astype("timedelta64[D]")
            bought = {"customer": ids * 7919 % CUSTOMERS, "product": ids * 104_729 % PRODUCTS}
            orders = {"id": ids, **bought, "quantity": (ids % 5 + 1).astype(np.int32), "day": days}
            builders.write(shop / "orders", orders)

    return made(folder / f"weir-bench-query-{FORMAT}-{scale:g}", make)


SUITE = Suite((join, files), packages=("duckdb", "deltalake", "pyspark"), repeats=3, make=make_shop)
