"""`make bench SUITE=maintenance`: what an act through Weir costs beside Spark's bare statement, and its preview.

Rule: both run in a process of their own on a copy of the same table, with the same Spark settings; the clock leaves
out JVM, session and the copy. A comparison counts only where both leave the same rows in as many files.
"""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backend.access import Actor
from backend.lake.lake import Lake
from backend.maintenance.model import Arguments, Optimize, Restore, act_job
from backend.maintenance.plan import preview
from backend.maintenance.readers import Users
from backend.settings import Settings, load_settings
from backend.store.store import ControlStore
from bench.harness import Bench, BenchError, Line, Suite, Watch, duration, within
from bench.streams import LIMIT_S, SPARK, spark_settings
from pipelines.jobs.runner import SparkJobs
from pipelines.spark.session import open_session
from pipelines.specs.streams import Registry
from tests.worlds.lake.large_logs import make_tables, opened

FILES, ROWS_A_FILE = 9_000, 100
LARGE_ROWS, LARGE_FILES = 24_000_000, 64  # about 2 GB
SMALL_BYTES, TARGET_BYTES = 128 * 10**6, 1 << 30
Answer = dict[str, Any]


def optimize(bench: Bench) -> Iterator[Line]:
    """OPTIMIZE: a job of a host, proven, beside the bare statement"""
    files, rows = round(FILES * bench.scale), round(LARGE_ROWS * bench.scale)
    shapes = {
        f"{files:,} small files": (files, files * ROWS_A_FILE),
        f"{rows:,} rows in {LARGE_FILES} files": (LARGE_FILES, rows),
    }
    for number, (what, (files, rows)) in enumerate(shapes.items()):
        uri = f"{bench.folder}/weir-bench-acts-{bench.scale:g}/optimize{number}"
        if not Path(uri).exists():
            bench.go(fill, uri=uri, files=files, rows=rows)()
        ours, bare = bench.alike(what, our_optimize, bare_optimize, uri=uri)
        ratio = ours.seconds / bare.seconds
        yield Line(what, "≤ 1.05×", duration(ours.seconds), duration(bare.seconds), f"{ratio:.2f}×", ratio <= 1.05)


def previews(bench: Bench) -> Iterator[Line]:
    """Previews on a table of 1,000,000 files, nothing read before"""
    uri = str(make_tables(bench.folder, bench.scale, ("T3",)) / "T3")
    for act in ("optimize", "restore"):
        (run,) = bench.runs(bench.go(previewed, uri=uri, act=act))
        yield within(f"preview of {act}", run.seconds, 2)


def fill(watch: Watch, *, uri: str, files: int, rows: int) -> None:
    """A table of so many files, of orders whose texts do not compress."""
    numbers = open_session(spark_settings()).range(rows)
    orders = numbers.select("id", F.sha2(F.col("id").cast("string"), 256).alias("text"), F.rand(7).alias("x"))
    with watch:
        orders.repartition(files).write.format("delta").save(uri)


def our_optimize(watch: Watch, *, uri: str) -> Answer:
    """OPTIMIZE as a job of a host: looked at again, done, proven, its result written."""
    settings, table = _on_a_copy(uri)
    (settings.home / "store").mkdir()
    spark, store = open_session(settings), ControlStore.open(settings)
    runner = SparkJobs(settings, lambda: spark, "bench", store, Registry())
    lake, now = Lake(settings), datetime.now(UTC)
    asked = Optimize(small_bytes=SMALL_BYTES, target_bytes=TARGET_BYTES)
    planned = preview(settings, lake, lake.find(table), asked, Users(), now=now)
    job = store.jobs.submit(act_job(planned.act, actor=Actor("bench"), reason="measured"), now=now)
    with watch:
        end = runner.run(job)
    store.close()
    if "holds" not in end.detail:
        raise BenchError(f"the act is not proven: {end.detail}")
    return _left(spark, table)


def bare_optimize(watch: Watch, *, uri: str) -> Answer:
    settings, table = _on_a_copy(uri)
    spark = open_session(settings)
    spark.conf.set("spark.databricks.delta.optimize.minFileSize", str(SMALL_BYTES))
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(TARGET_BYTES))
    with watch:
        spark.sql(f"OPTIMIZE delta.`{table}`")
    return _left(spark, table)


def _on_a_copy(uri: str) -> tuple[Settings, str]:
    """A lake with the table alone."""
    home = str(load_settings().home)
    return spark_settings(lake={"roots": [home]}), shutil.copytree(uri, f"{home}/table")


def _left(spark: SparkSession, table: str) -> Answer:
    rows = spark.read.format("delta").load(table)
    count, total = rows.agg(F.count("*"), F.sum("id")).collect()[0]
    return {"rows": count, "sum": total, "files": len(rows.inputFiles())}


def previewed(watch: Watch, *, uri: str, act: str) -> Answer:
    """What the page and the terminal do before they ask: in a fresh process, with nothing read before."""
    settings, ref = opened(uri)
    now, latest = datetime.now(UTC), Lake(settings).latest_version(ref)
    asked: Arguments = Optimize() if act == "optimize" else Restore(latest - 5)
    with watch:
        planned = preview(settings, Lake(settings), ref, asked, Users(), now=now)
    return dict(planned.figures)


SUITE = Suite((optimize, previews), packages=SPARK, repeats=3, limit_s=2 * LIMIT_S)
