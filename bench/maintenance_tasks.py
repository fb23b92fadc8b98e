"""What `bench.maintenance` times: an act of Weir on a table, and the bare statement of Spark.

Rule: both run in a process of their own on a copy of the same table, with the same Spark settings; the clock leaves
out JVM, session and the copy. An answer is computed from the table that was left.
"""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backend.access import Actor
from backend.lake.lake import Lake
from backend.maintenance.model import Arguments, Optimize, Restore, Vacuum, act_job
from backend.maintenance.plan import preview
from backend.maintenance.readers import Users
from backend.settings import Settings, load_settings
from backend.store.store import ControlStore
from bench.harness import BenchError, Watch
from bench.stream_tasks import LARGE_BATCHES
from pipelines.jobs.runner import Acts, SparkJobs
from pipelines.spark.session import open_session
from pipelines.specs.registry import Registry

Answer = dict[str, Any]
SMALL_BYTES, TARGET_BYTES = 128 * 10**6, 1 << 30


def settings_at(home: str, *roots: str) -> Settings:
    return load_settings(
        home=Path(home), spark={"conf": LARGE_BATCHES, "driver_memory": "4g"}, lake={"roots": list(roots)}
    )


def fill(watch: Watch, *, home: str, uri: str, files: int, rows: int) -> Answer:
    """A table of so many files, of orders whose texts do not compress."""
    spark = open_session(settings_at(home, home))
    orders = spark.range(rows).select("id", F.sha2(F.col("id").cast("string"), 256).alias("text"), F.rand(7).alias("x"))
    with watch:
        orders.repartition(files).write.format("delta").save(uri)
    return {}


def ours(watch: Watch, *, home: str, uri: str) -> Answer:
    """OPTIMIZE as a job of a host: looked at again, done, proven, its result written."""
    table = _copied(uri, home)
    settings = settings_at(home, home)
    Path(home, "store").mkdir()
    spark, store = open_session(settings), ControlStore.open(settings)
    runner = SparkJobs(settings, lambda: spark, "bench", acts=Acts.of(settings, store, Registry([])))
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


def bare(watch: Watch, *, home: str, uri: str) -> Answer:
    table = _copied(uri, home)
    spark = open_session(settings_at(home, home))
    spark.conf.set("spark.databricks.delta.optimize.minFileSize", str(SMALL_BYTES))
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(TARGET_BYTES))
    with watch:
        spark.sql(f"OPTIMIZE delta.`{table}`")
    return _left(spark, table)


def previewed(watch: Watch, *, uri: str, act: str) -> Answer:
    """What the page and the terminal do before they ask: in a fresh process, with nothing read before."""
    settings = load_settings(home=Path(uri).parent / "home", lake={"roots": [uri]})
    lake, now = Lake(settings), datetime.now(UTC)
    ref = lake.find(uri)
    asked: dict[str, Arguments] = {
        "optimize": Optimize(), "vacuum": Vacuum(), "restore": Restore(lake.latest_version(ref) - 5),
    }  # fmt: skip
    with watch:
        planned = preview(settings, Lake(settings), ref, asked[act], Users(), now=now)
    return dict(planned.figures)


def _copied(uri: str, home: str) -> str:
    table = f"{home}/table"
    shutil.copytree(uri, table)
    return table


def _left(spark: SparkSession, table: str) -> Answer:
    rows = spark.read.format("delta").load(table)
    count, total = rows.agg(F.count("*"), F.sum("id")).collect()[0]
    return {"rows": count, "sum": total, "files": len(rows.inputFiles())}
