"""What `bench.streams` times: streams of Weir, and the same work written with PySpark alone.

Rule: both run in a process of their own, with the same Spark settings, source options, trigger and table; the clock
runs from the query's start until it has read all there is. An answer is computed from the table that was written.
"""

import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import QueryProgressEvent
from pyspark.sql.streaming.query import StreamingQuery

from backend.settings import Settings, load_settings
from backend.store.store import ControlStore
from bench.harness import BenchError, Watch
from pipelines import Pipeline, kafka, rate, table, upsert
from pipelines.host.listener import ProgressListener, ProgressWriter
from pipelines.spark.runtime import Runtime
from pipelines.spark.session import open_session
from pipelines.specs.registry import Registry

ORDER = "order_id BIGINT, customer_id STRING, amount_cents BIGINT, status STRING, ordered_at TIMESTAMP"
PER_BATCH = 1_000_000
FILES_A_COMMIT, DAYS, TASKS = 4, 4, 4  # of the small batches
# Compiled plans and the JVM's second compiler: what docs/operations.md says of large batches on a local host.
LARGE_BATCHES = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4",
}
LIMIT_S, LOOK_S = 900.0, 0.05
Answer = dict[str, Any]


def settings_at(home: str, conf: Mapping[str, str] = LARGE_BATCHES) -> Settings:
    return load_settings(home=Path(home), spark={"conf": dict(conf), "driver_memory": "4g"})


def same(rows: DataFrame) -> DataFrame:
    return rows


def spread(rows: DataFrame) -> DataFrame:
    """As many tasks as a larger host has."""
    return rows.repartition(TASKS)


# what is read ----------------------------------------------------------------------------------------------------


def fill_topic(watch: Watch, *, home: str, servers: str, topic: str, records: int, broken_every: int) -> Answer:
    """JSON orders of about 130 bytes; one in `broken_every` is none."""
    spark = open_session(settings_at(home))
    orders = spark.range(records).selectExpr(
        "id AS order_id",
        "concat('customer-', id % 50000) AS customer_id",
        "(id * 7919) % 100000 AS amount_cents",
        "element_at(array('new', 'paid', 'sent'), CAST(id % 3 AS INT) + 1) AS status",
        "timestamp_micros(1767225600000000 + id * 1000) AS ordered_at",
    )
    value = F.to_json(F.struct(*orders.columns))
    if broken_every:
        value = F.when(F.col("order_id") % broken_every == 0, F.concat(F.lit("x"), value)).otherwise(value)
    sent = orders.select(F.col("order_id").cast("string").alias("key"), value.alias("value"))
    with watch:
        sent.write.format("kafka").options(**{"kafka.bootstrap.servers": servers, "topic": topic}).save()
    return {}


def fill_changes(watch: Watch, *, home: str, uri: str, changes: int, batches: int) -> Answer:
    """A table of one file a commit: four inserts to each update of a row of an earlier commit; a key once a commit."""
    spark = open_session(settings_at(home))
    each = changes // batches
    new = each * 4 // 5
    with watch:
        for batch in range(batches):
            ids = spark.range(each, numPartitions=1).selectExpr("id AS n")
            key = f"CASE WHEN n < {new} OR {batch} = 0 THEN {batch} * {each} + n ELSE (n - {new}) * {max(1, batch)} END"
            rows = ids.selectExpr(
                f"{key} AS order_id",
                "concat('customer-', n % 50000) AS customer_id",
                f"({batch} * 31 + n) % 100000 AS amount_cents",
                f"{batch * each} + n AS lsn",
            )
            rows.write.format("delta").mode("append").save(uri)
    return {"changes": spark.read.format("delta").load(uri).count()}


def fill_small(watch: Watch, *, home: str, uri: str, batches: int) -> Answer:
    """A table of four small files a commit, with rows of every day in each."""
    spark = open_session(settings_at(home))
    with watch:
        for batch in range(batches):
            ids = spark.range(batch * 2_000, (batch + 1) * 2_000, numPartitions=FILES_A_COMMIT)
            rows = ids.selectExpr("id", f"concat('day-', id % {DAYS}) AS day", "repeat('x', 100) AS text")
            rows.write.format("delta").mode("append").save(uri)
    return {}


# Weir ------------------------------------------------------------------------------------------------------------


def our_ingest(watch: Watch, *, home: str, servers: str, topic: str, format: str) -> Answer:
    bench = Pipeline("bench")
    schema = ORDER if format == "json" else None
    source = kafka(servers, topic, format=format, schema=schema, maxOffsetsPerTrigger=PER_BATCH)
    bench.streaming_table("bronze_orders", source=source, trigger="available now")(same)
    runtime = _opened(home, bench)
    with watch:
        _run(runtime, "bronze_orders")
    return _records(runtime.session, f"{home}/lake/bronze/bronze_orders")


def our_upsert(watch: Watch, *, home: str, uri: str) -> Answer:
    bench = Pipeline("bench")
    source = table(uri, maxFilesPerTrigger=1)
    sink = upsert(keys=["order_id"], sequence="lsn")
    bench.streaming_table("silver_orders", source=source, sink=sink, trigger="available now")(same)
    runtime = _opened(home, bench)
    with watch:
        _run(runtime, "silver_orders")
    return _orders(runtime.session, f"{home}/lake/silver/silver_orders")


def our_batches(watch: Watch, *, home: str, uri: str, commits: int, properties: Mapping[str, str]) -> Answer:
    """So many commits of small files a batch, into a table by day: what it holds, in how many files and batches."""
    bench = Pipeline("bench")
    source = table(uri, maxFilesPerTrigger=FILES_A_COMMIT * commits)
    about: dict[str, Any] = {"partition_cols": ["day"], "table_properties": properties}
    bench.streaming_table("bronze_days", source=source, trigger="available now", **about)(spread)
    runtime = _opened(home, bench)
    with watch:
        _run(runtime, "bronze_days")
    made = f"{home}/lake/bronze/bronze_days"
    (rows, ids) = runtime.session.read.format("delta").load(made).selectExpr("count(*)", "sum(id)").first() or (0, 0)
    files = DeltaTable.forPath(runtime.session, made).detail().collect()[0]["numFiles"]
    return {"holds": [rows, ids], "files": files}


def _opened(home: str, bench: Pipeline) -> Runtime:
    runtime = Runtime(settings_at(home), Registry(bench.streams))
    if problems := runtime.open():
        raise BenchError(str(problems[0]))
    return runtime


def _run(runtime: Runtime, *names: str) -> None:
    for name in names:
        runtime.start(name)
    for name in names:
        deadline = time.monotonic() + LIMIT_S
        while (query := runtime.poll(name)).active and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        if query.active or query.failure:
            raise BenchError(f"{name}: {query.failure or 'did not end'}")


# the peer --------------------------------------------------------------------------------------------------------


def bare_ingest(watch: Watch, *, home: str, servers: str, topic: str, format: str) -> Answer:
    spark = open_session(settings_at(home))
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    records = spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger=PER_BATCH).load()
    beside = ("key", "topic", "partition", "offset", "timestamp")
    if format == "json":
        parsed = F.from_json(F.col("value").cast("string"), ORDER).alias("order")
        rows = records.select(parsed, *beside).select("order.*", *beside)
    else:
        rows = records.select("value", *beside)
    uri = f"{home}/lake/bronze/bronze_orders"
    writer = rows.writeStream.format("delta").option("path", uri).option("checkpointLocation", f"{home}/checkpoint")
    with watch:
        _await(writer.trigger(availableNow=True).start())
    return _records(spark, uri)


def bare_upsert(watch: Watch, *, home: str, uri: str) -> Answer:
    """A MERGE as tutorials show it: a batch that is replayed or late overwrites what is newer."""
    spark = open_session(settings_at(home))
    target = f"{home}/lake/silver/silver_orders"
    schema = spark.read.format("delta").load(uri).schema
    DeltaTable.createIfNotExists(spark).location(target).addColumns(schema).execute()

    def merge(batch: DataFrame, _batch_id: int) -> None:
        into = DeltaTable.forPath(batch.sparkSession, target).alias("t")
        merging = into.merge(batch.alias("s"), "t.order_id = s.order_id")
        merging.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    changes = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(uri)
    writer = changes.writeStream.foreachBatch(merge).option("checkpointLocation", f"{home}/checkpoint")
    with watch:
        _await(writer.trigger(availableNow=True).start())
    return _orders(spark, target)


def _await(query: StreamingQuery) -> None:
    if not query.awaitTermination(round(LIMIT_S)):
        raise BenchError(f"{query.name} did not end")


def _records(spark: SparkSession, uri: str) -> Answer:
    """Counts of rows and of distinct places in the topic, and a sum that depends on every byte of the rows.

    Where a record cannot be parsed, the peer has a row of nulls.
    """
    rows = spark.read.format("delta").load(uri)
    if "order_id" in rows.columns:
        rows = rows.where("order_id IS NOT NULL")
    told = [F.col(name).cast("string") for name in sorted(rows.columns)]
    return dict(
        rows.agg(
            F.count("*").alias("rows"),
            F.count_distinct("partition", "offset").alias("places"),
            F.sum(F.crc32(F.concat_ws("|", *told))).alias("sum"),
        )
        .collect()[0]
        .asDict()
    )


def _orders(spark: SparkSession, uri: str) -> Answer:
    rows = spark.read.format("delta").load(uri)
    sums = [F.sum(name).alias(name) for name in ("lsn", "amount_cents")]
    return dict(
        rows.agg(F.count_distinct("order_id").alias("keys"), F.count("*").alias("rows"), *sums).collect()[0].asDict()
    )


# many small streams ----------------------------------------------------------------------------------------------


def many_rates(watch: Watch, *, home: str, streams: int, seconds: float, listening: bool) -> Answer:
    """Streams of a few rows a second, each triggered every second: batches that ended, and what the store took.

    Without `listening` there is no listener at all: how many batches end is then what Spark and Delta can do here.
    """
    bench = Pipeline("bench")
    for number in range(streams):
        bench.streaming_table(f"bronze_rate_{number}", source=rate(5), trigger="1 second")(same)
    settings = settings_at(home, conf={})
    runtime = Runtime(settings, Registry(bench.streams))
    runtime.open()
    store = ControlStore.open(settings)
    writer = ProgressWriter(store)
    listener = _Timed(writer)
    if listening:
        writer.start()
        runtime.add_listener(listener)
    size = _size(settings)
    for each in bench.streams:
        runtime.start(each.name)
    before, most_waiting = _batches(settings), 0
    with watch:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            most_waiting = max(most_waiting, writer.waiting())
            time.sleep(0.05)
    ended = _batches(settings) - before
    for each in bench.streams:
        runtime.cut(each.name)
    writer.close(timeout_s=10)
    told = sum(len(store.progress(each.name, limit=5_000, raw=False)) for each in bench.streams)
    store.close()
    return {
        "batches": ended,
        "told": told,
        "dropped": writer.dropped,
        "most_waiting": most_waiting,
        "bytes": _size(settings) - size,
        "callbacks_ms": sorted(listener.took_ms),
    }


def _batches(settings: Settings) -> int:
    """How many batches the checkpoints say are done."""
    folders = (settings.home / "checkpoints").glob("*/commits")
    return sum(max((int(path.name) for path in each.glob("[0-9]*")), default=-1) + 1 for each in folders)


def _size(settings: Settings) -> int:
    """Bytes of the store's file, with all that was written in it."""
    file = settings.home / "store" / "weir.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return file.stat().st_size


class _Timed(ProgressListener):
    """Weir's listener, with how long each event of a batch held up Spark's thread of events."""

    def __init__(self, writer: ProgressWriter) -> None:
        super().__init__(writer)
        self.took_ms: list[float] = []

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        started = time.perf_counter()
        super().onQueryProgress(event)
        self.took_ms.append((time.perf_counter() - started) * 1_000)
