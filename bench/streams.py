"""`make bench SUITE=streams`: what Weir's streams cost beside the same work in PySpark alone, and fifty on one host.

Rule: both run in a process of their own, with the same Spark settings, source options, trigger and table, in an empty
folder each turn. The clock runs from the query's start until it has read all there is. A comparison counts only where
both tables hold the same rows.
"""

import sqlite3
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import QueryProgressEvent
from pyspark.sql.streaming.readwriter import DataStreamWriter

from backend.format import things
from backend.settings import Settings, load_settings
from backend.store.store import ControlStore
from backend.stream_model.stream import StreamState
from bench.harness import Bench, BenchError, Line, Suite, Watch, at_most, counted, duration, require_equal
from pipelines import Pipeline, kafka, rate, table, upsert
from pipelines.host.progress import ProgressListener, ProgressWriter
from pipelines.spark.runtime import Runtime
from pipelines.spark.session import open_session
from pipelines.specs.streams import Registry
from tests.worlds.streams.kafka_broker import KafkaBroker

RECORDS, PARTITIONS, PER_BATCH = 10_000_000, 4, 1_000_000
CHANGES, BATCHES = 2_000_000, 10
STREAMS, SECONDS = 50, 120.0
COMMITS, FILES_A_COMMIT, DAYS, TASKS = 20, 4, 4, 4  # of the small batches
OPTIMIZE_WRITE, AUTO_COMPACT = "delta.autoOptimize.optimizeWrite", "delta.autoOptimize.autoCompact"
TOPIC, BROKEN, BROKEN_EVERY = "orders", "broken_orders", 1_000
ORDER = "order_id BIGINT, customer_id STRING, amount_cents BIGINT, status STRING, ordered_at TIMESTAMP"
# Compiled plans and the JVM's second compiler: what docs/streams.md says of large batches on a local host.
LARGE_BATCHES = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4",
}
LIMIT_S, LOOK_S = 900.0, 0.05
Answer = dict[str, Any]


def spark_settings(conf: Mapping[str, str] = LARGE_BATCHES, **more: Any) -> Settings:
    return load_settings(spark={"conf": dict(conf), "driver_memory": "4g"}, **more)


def ingest(bench: Bench) -> Iterator[Line]:
    """Records of a topic into bronze, a million a batch"""
    records = round(RECORDS * bench.scale)
    folder = TemporaryDirectory(prefix="weir-bench-kafka-", dir=bench.folder)
    with folder as data, closing(KafkaBroker(Path(data))) as broker:
        broker.start()
        for topic, broken_every in ((TOPIC, 0), (BROKEN, BROKEN_EVERY)):
            broker.create(topic, partitions=PARTITIONS)
            read = {"servers": broker.servers, "topic": topic}
            bench.go(fill_topic, **read, records=records, broken_every=broken_every)()
        for what, topic, format, at_least in (
            (f"{records:,} records as bytes", TOPIC, "bytes", 0.95),
            (f"{records:,} records as JSON", TOPIC, "json", 0.95),
            (f"the same, one in {BROKEN_EVERY:,} a dead letter", BROKEN, "json", 0.9),
        ):
            read = {"servers": broker.servers, "topic": topic, "format": format}
            yield bench.paced(what, records, our_ingest, bare_ingest, at_least, **read)


def fill_topic(watch: Watch, *, servers: str, topic: str, records: int, broken_every: int) -> None:
    """JSON orders of about 130 bytes; one in `broken_every` is none."""
    orders = (
        open_session(spark_settings())
        .range(records)
        .selectExpr(
            "id AS order_id",
            "concat('customer-', id % 50000) AS customer_id",
            "(id * 7919) % 100000 AS amount_cents",
            "element_at(array('new', 'paid', 'sent'), CAST(id % 3 AS INT) + 1) AS status",
            "timestamp_micros(1767225600000000 + id * 1000) AS ordered_at",
        )
    )
    value = F.to_json(F.struct(*orders.columns))
    if broken_every:
        value = F.when(F.col("order_id") % broken_every == 0, F.concat(F.lit("x"), value)).otherwise(value)
    sent = orders.select(F.col("order_id").cast("string").alias("key"), value.alias("value"))
    with watch:
        sent.write.format("kafka").options(**{"kafka.bootstrap.servers": servers, "topic": topic}).save()


def our_ingest(watch: Watch, *, servers: str, topic: str, format: str) -> Answer:
    schema = ORDER if format == "json" else None
    source = kafka(servers, topic, format=format, schema=schema, maxOffsetsPerTrigger=PER_BATCH)
    return _records(_streamed(watch, "bronze_orders", source=source))


def bare_ingest(watch: Watch, *, servers: str, topic: str, format: str) -> Answer:
    settings = spark_settings()
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    stream = open_session(settings).readStream.format("kafka")
    records = stream.options(**options, maxOffsetsPerTrigger=PER_BATCH).load()
    beside = ("key", "topic", "partition", "offset", "timestamp")
    if format == "json":
        parsed = F.from_json(F.col("value").cast("string"), ORDER).alias("order")
        rows = records.select(parsed, *beside).select("order.*", *beside)
    else:
        rows = records.select("value", *beside)
    uri = f"{settings.home}/lake/bronze/bronze_orders"
    _run_bare(watch, settings, rows.writeStream.format("delta").option("path", uri))
    return _records(rows.sparkSession.read.format("delta").load(uri))


def _records(rows: DataFrame) -> Answer:
    """Counts of rows and of distinct places in the topic, and a sum that depends on every byte of the rows.

    Where a record cannot be parsed, the peer has a row of nulls.
    """
    if "order_id" in rows.columns:
        rows = rows.where("order_id IS NOT NULL")
    texts = [F.col(name).cast("string") for name in sorted(rows.columns)]
    sums = {
        "rows": F.count("*"),
        "places": F.count_distinct("partition", "offset"),
        "sum": F.sum(F.crc32(F.concat_ws("|", *texts))),
    }
    return _sums(rows, **sums)


def changes(bench: Bench) -> Iterator[Line]:
    """Changes by key, four inserts to one update, beside a MERGE that is neither ordered nor safe to replay"""
    count = round(CHANGES * bench.scale)
    with TemporaryDirectory(prefix="weir-bench-", dir=bench.folder) as folder:
        uri = f"{folder}/changes"
        bench.go(fill_changes, uri=uri, changes=count, batches=BATCHES)()
        what = f"{count:,} changes in {BATCHES} batches"
        yield bench.paced(what, count, our_upsert, bare_upsert, 0.8, uri=uri)


def fill_changes(watch: Watch, *, uri: str, changes: int, batches: int) -> None:
    """A table of one file a commit: four inserts to each update of a row of an earlier commit; a key once a commit."""
    spark = open_session(spark_settings())
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


def our_upsert(watch: Watch, *, uri: str) -> Answer:
    sink = upsert(keys=["order_id"], sequence="lsn")
    return _orders(_streamed(watch, "silver_orders", source=table(uri, maxFilesPerTrigger=1), sink=sink))


def bare_upsert(watch: Watch, *, uri: str) -> Answer:
    """A MERGE as tutorials show it: a batch that is replayed or late overwrites what is newer."""
    settings = spark_settings()
    spark, target = open_session(settings), f"{settings.home}/lake/silver/silver_orders"
    schema = spark.read.format("delta").load(uri).schema
    DeltaTable.createIfNotExists(spark).location(target).addColumns(schema).execute()

    def merge(batch: DataFrame, _batch_id: int) -> None:
        into = DeltaTable.forPath(batch.sparkSession, target).alias("t")
        merging = into.merge(batch.alias("s"), "t.order_id = s.order_id")
        merging.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    changes = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(uri)
    _run_bare(watch, settings, changes.writeStream.foreachBatch(merge))
    return _orders(spark.read.format("delta").load(target))


def _orders(rows: DataFrame) -> Answer:
    sums = {name: F.sum(name) for name in ("lsn", "amount_cents")}
    return _sums(rows, keys=F.count_distinct("order_id"), rows=F.count("*"), **sums)


def throttle(bench: Bench) -> Iterator[Line]:
    """Files of a table by day, after small batches of four tasks, each with rows of four days"""
    commits = max(10, round(COMMITS * min(1, bench.scale)))
    levers: dict[str, tuple[int, tuple[str, ...]]] = {
        f"{commits} batches, nothing set": (1, ()),
        f"a trigger ten times as long: {commits // 10} batches": (10, ()),
        "optimizeWrite": (1, (OPTIMIZE_WRITE,)),
        "autoCompact": (1, (AUTO_COMPACT,)),
        "optimizeWrite and autoCompact": (1, (OPTIMIZE_WRITE, AUTO_COMPACT)),
    }
    with TemporaryDirectory(prefix="weir-bench-", dir=bench.folder) as folder:
        uri = f"{folder}/small"
        bench.go(fill_small, uri=uri, batches=commits)()
        goes = [
            bench.go(our_batches, uri=uri, commits=each, properties=dict.fromkeys(names, "true"))
            for each, names in levers.values()
        ]
        runs = bench.runs(*goes)
    for what, run in zip(levers, runs, strict=True):
        require_equal(run.answer["holds"], runs[0].answer["holds"], what)
        yield Line(what, ours=f"{things(run.answer['files'], 'file')} in {duration(run.seconds)}")


def fill_small(watch: Watch, *, uri: str, batches: int) -> None:
    """A table of four small files a commit, with rows of every day in each."""
    spark = open_session(spark_settings())
    with watch:
        for batch in range(batches):
            ids = spark.range(batch * 2_000, (batch + 1) * 2_000, numPartitions=FILES_A_COMMIT)
            rows = ids.selectExpr("id", f"concat('day-', id % {DAYS}) AS day", "repeat('x', 100) AS text")
            rows.write.format("delta").mode("append").save(uri)


def our_batches(watch: Watch, *, uri: str, commits: int, properties: Mapping[str, str]) -> Answer:
    """So many commits of small files a batch, into a table by day, by as many tasks as a larger host has."""
    source = table(uri, maxFilesPerTrigger=FILES_A_COMMIT * commits)
    about: dict[str, Any] = {"partition_cols": ["day"], "table_properties": properties}
    rows = _streamed(watch, "bronze_days", tasks=TASKS, source=source, **about)
    return {"holds": _sums(rows, rows=F.count("*"), ids=F.sum("id")), "files": len(rows.inputFiles())}


def _streamed(watch: Watch, name: str, *, tasks: int = 0, **declared: Any) -> DataFrame:
    """The rows that a stream of Weir leaves once it has read all there is."""
    bench = Pipeline("bench")
    declare = bench.streaming_table(name, trigger="available now", **declared)
    declare(lambda rows: rows.repartition(tasks) if tasks else rows)
    settings = spark_settings()
    runtime = Runtime(settings, Registry(bench.streams))
    if problems := runtime.open():
        raise BenchError(str(problems[0]))
    with watch:
        runtime.start(name)
        deadline = time.monotonic() + LIMIT_S
        while (query := runtime.poll(name)).state is StreamState.RUNNING and time.monotonic() < deadline:
            time.sleep(LOOK_S)
    if query.state is not StreamState.COMPLETED:
        raise BenchError(f"{name}: {query.failure or 'did not end'}")
    return runtime.session.read.format("delta").load(f"{settings.home}/lake/{name.partition('_')[0]}/{name}")


def _run_bare(watch: Watch, settings: Settings, writer: DataStreamWriter) -> None:
    kept = writer.option("checkpointLocation", f"{settings.home}/checkpoint").trigger(availableNow=True)
    with watch:
        query = kept.start()
        if not query.awaitTermination(round(LIMIT_S)):
            raise BenchError(f"{query.name} did not end")


def _sums(rows: DataFrame, /, **columns: Any) -> Answer:
    return dict(rows.agg(*(column.alias(name) for name, column in columns.items())).collect()[0].asDict())


def many(bench: Bench) -> Iterator[Line]:
    """Fifty streams that ask for a batch each second, on one host"""
    share = min(1, bench.scale)
    streams, seconds = max(3, round(STREAMS * share)), max(20.0, SECONDS * share)
    heard, alone = (
        bench.go(many_rates, streams=streams, seconds=seconds, listening=listening)().answer
        for listening in (True, False)
    )
    if not heard["told"] or not alone["batches"]:
        raise BenchError(f"no batch of {streams} streams ended in {seconds:.0f} s")
    yield Line(
        f"batches of {streams} streams that ended in {seconds:.0f} s, with the listener and without",
        ours=f"{heard['batches']:,}",
        theirs=f"{alone['batches']:,}",
        ratio=f"{heard['batches'] / alone['batches']:.2f}×",
    )
    took = heard["callbacks_ms"]
    worst = took[round(0.99 * (len(took) - 1))]
    shown = f"median {duration(statistics.median(took) / 1_000)}, 99 % under {duration(worst / 1_000)}"
    yield Line("what an event of a batch holds up Spark's own thread of events", ours=shown)
    yield counted("events dropped", heard["dropped"], 0)
    yield Line("events waiting for the store, at most", ours=str(heard["most_waiting"]))
    bytes_each = heard["bytes"] / heard["told"]
    yield at_most("growth of the store for each batch", bytes_each, 1_000, (f"{bytes_each:,.0f} bytes", "1 kB"))


def many_rates(watch: Watch, *, streams: int, seconds: float, listening: bool) -> Answer:
    """Streams of a few rows a second, each triggered every second: batches that ended, and what the store took.

    Without `listening` there is no listener at all: how many batches end is then what Spark and Delta can do here.
    """
    bench = Pipeline("bench")
    for number in range(streams):
        bench.streaming_table(f"bronze_rate_{number}", source=rate(5), trigger="1 second")(lambda rows: rows)
    settings = spark_settings(conf={})
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
            time.sleep(LOOK_S)
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


SPARK = ("pyspark", "delta-spark")
SUITE = Suite((ingest, changes, throttle, many), packages=SPARK, repeats=3, limit_s=2 * LIMIT_S)
