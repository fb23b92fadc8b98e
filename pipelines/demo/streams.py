"""The demo's six streams. Events: lines as landed → parsed, in time, each once → counts and sums by hour and type.
Orders: change envelopes as landed → the orders as the shop's database holds them → counts by status.

Rule: the rows of silver and gold follow from the landed files alone, not from how batches cut them. A watermark moves
only between batches, so what it drops depends on the cut. The expectation `on_time` draws the same line for every row.
Files are read oldest first, so `on_time` would also drop whatever the watermark drops.
"""

from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines import Pipeline, complete, expect, files, fresh, kafka, rows_per_day, table, unique, upsert
from pipelines.sources.files import FileSource
from pipelines.specs.streams import StreamSpec

events, orders = Pipeline("events"), Pipeline("orders")


def _owned(team: str, classification: str) -> dict[str, str]:
    """Whose a table is, as properties that pages show."""
    return {
        "catalog.team_name": team,
        "catalog.engineering.comms.slack": f"#{team}",
        "catalog.engineering.comms.email": f"{team}@example.com",
        "catalog.table.classification": classification,
    }


INGESTION = _owned("data-ingestion", "internal")
PLATFORM = _owned("data-platform", "internal")
PLATFORM_CONFIDENTIAL = _owned("data-platform", "confidential")
ANALYTICS = _owned("analytics", "internal")
_LANDED = """
    raw STRING COMMENT 'The line as it was landed',
    file_name STRING COMMENT 'File that held it',
    file_modified_at TIMESTAMP COMMENT 'When the file landed',
    ingested_at TIMESTAMP COMMENT 'When the stream read it'"""

LATENESS = "30 minutes"
_EVENT = "event_id STRING, user_id STRING, event_type STRING, amount DECIMAL(12,2), timestamp TIMESTAMP, corrupt STRING"
_EVENT_FIELDS = ("event_id", "user_id", "event_type", "amount", "timestamp")
_JSON_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "corrupt"}
_ON_TIME = f"event_time > file_modified_at - INTERVAL {LATENESS}"


@events.streaming_table(
    "bronze_events",
    source=files("landing/events"),
    trigger="10 seconds",
    comment="Events as landed: one row a line, nothing parsed, nothing dropped",
    schema=_LANDED,
    table_properties={"delta.appendOnly": "true", **INGESTION},
)
def bronze_events(lines: DataFrame) -> DataFrame:
    """Landed lines as they are."""
    return lines.withColumnRenamed("value", "raw").withColumn("ingested_at", F.current_timestamp())


@events.streaming_table(
    "silver_events",
    source=table("bronze_events"),
    trigger="20 seconds",
    expectations=[
        expect("well_formed", "event_id IS NOT NULL", on_violation="quarantine"),
        # A row that is no event breaks `well_formed` alone: its other fields mean nothing.
        expect("event_type_not_null", "event_id IS NULL OR event_type IS NOT NULL", on_violation="quarantine"),
        expect("amount_positive", "event_id IS NULL OR amount > 0", on_violation="quarantine"),
        expect("on_time", _ON_TIME, on_violation="drop"),
    ],
    comment="Events that are well formed, in time and valid; each event_id once",
    schema="""
        event_id STRING COMMENT 'The producer''s identity of the event',
        user_id STRING COMMENT 'Who did it',
        event_type STRING COMMENT 'view, cart, purchase or refund',
        amount DECIMAL(12,2) COMMENT 'In the shop''s currency, above 0',
        timestamp TIMESTAMP COMMENT 'When it happened',
        file_name STRING COMMENT 'Landed file that it came with',
        ingested_at TIMESTAMP COMMENT 'When bronze took it in',
        processed_at TIMESTAMP COMMENT 'When silver took it in'""",
    table_properties=PLATFORM,
)
def silver_events(bronze: DataFrame) -> DataFrame:
    """Events parsed, in time, each `event_id` once. A row that is no event passes with null fields."""
    parsed = bronze.withColumn("event", F.from_json("raw", _EVENT, _JSON_OPTIONS))
    is_event = F.coalesce(
        F.col("event.corrupt").isNull() & F.col("event.event_id").isNotNull() & F.col("event.timestamp").isNotNull(),
        F.lit(False),
    )
    fields = {name: F.when(is_event, F.col(f"event.{name}")) for name in _EVENT_FIELDS}
    # A row that is no event gets its landing time, so it is never too late. So does an event from the future: it would
    # push the watermark past all other events.
    landed_at = F.col("file_modified_at")
    event_time = F.when(is_event, F.least(F.col("event.timestamp"), landed_at)).otherwise(landed_at)
    timed = parsed.withColumns({**fields, "event_time": event_time, "processed_at": F.current_timestamp()})
    # Rows that are no events, and late copies, are nobody's duplicate: a late copy could otherwise replace the one that
    # was on time, and then be dropped itself.
    comparable = F.col("event_id").isNotNull() & F.expr(_ON_TIME)
    identity = F.when(comparable, F.col("event_id")).otherwise(F.concat(F.lit("incomparable:"), F.uuid()))
    keyed = timed.withColumn("identity", identity).drop("event")
    return keyed.withWatermark("event_time", LATENESS).dropDuplicatesWithinWatermark(["identity"])


events.expect_table("silver_events", fresh("1 hour"), rows_per_day(), unique("event_id"))


@events.streaming_table(
    "gold_events_hourly",
    source=table("silver_events"),
    trigger="40 seconds",
    sink=complete(),
    comment="Events by hour and type",
    schema="""
        window_start TIMESTAMP COMMENT 'Hour, first instant',
        window_end TIMESTAMP COMMENT 'Hour, first instant after it',
        event_type STRING COMMENT 'view, cart, purchase or refund',
        event_count BIGINT COMMENT 'Events',
        amount_sum DECIMAL(22,2) COMMENT 'Sum of amounts',
        amount_avg DECIMAL(16,6) COMMENT 'Average amount'""",
    table_properties=ANALYTICS,
)
def gold_events_hourly(silver: DataFrame) -> DataFrame:
    """Count, sum and average of amounts by hour and type."""
    hours = silver.withWatermark("timestamp", "1 hour").groupBy(F.window("timestamp", "1 hour"), "event_type")
    totals = hours.agg(
        F.count("*").alias("event_count"), F.sum("amount").alias("amount_sum"), F.avg("amount").alias("amount_avg")
    )
    window = (F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end"))
    return totals.select(*window, "event_type", "event_count", "amount_sum", "amount_avg")


_CHANGE_FEED = {"delta.enableChangeDataFeed": "true"}
_ROW = "STRUCT<order_id: STRING, customer_id: STRING, country: STRING, status: STRING, amount: DECIMAL(12,2)>"
_ENVELOPE = f"op STRING, before {_ROW}, after {_ROW}, ts_ms BIGINT, source STRUCT<lsn: BIGINT>"


@orders.streaming_table(
    "bronze_orders",
    source=files("landing/orders"),
    trigger="10 seconds",
    comment="Order changes as landed: whole Debezium envelopes as text",
    schema=_LANDED,
    table_properties={
        "delta.appendOnly": "true",
        **_CHANGE_FEED,
        **INGESTION,
        "catalog.table.classification": "confidential",
    },
)
def bronze_orders(lines: DataFrame) -> DataFrame:
    """Landed lines as they are."""
    return lines.withColumnRenamed("value", "raw").withColumn("ingested_at", F.current_timestamp())


@orders.streaming_table(
    "silver_orders",
    source=table("bronze_orders").changes(),
    trigger="20 seconds",
    sink=upsert(keys=["order_id"], sequence="lsn", deleted="op = 'd'", except_columns=["op"]),
    expectations=[
        expect(
            "envelope_complete",
            "order_id IS NOT NULL AND lsn IS NOT NULL"
            " AND op IN ('c', 'r', 'u', 'd') AND (op = 'd' OR status IS NOT NULL)",
            on_violation="drop",
        )
    ],
    comment="Orders as the shop's database holds them now; deleted ones are gone",
    schema="""
        order_id STRING COMMENT 'Key',
        customer_id STRING COMMENT 'Who ordered',
        country STRING COMMENT 'Shop that took the order',
        status STRING COMMENT 'placed, paid, shipped, delivered or cancelled',
        amount DECIMAL(12,2) COMMENT 'In the shop''s currency',
        lsn BIGINT COMMENT 'Position of the last change in the source''s log',
        changed_at TIMESTAMP COMMENT 'When the source committed that change'""",
    table_properties={**_CHANGE_FEED, **PLATFORM_CONFIDENTIAL},
)
def silver_orders(changes: DataFrame) -> DataFrame:
    """Envelopes flattened to `op` and the order's columns (those before, when deleted)."""
    arrived = changes.where("_change_type = 'insert'").withColumn("envelope", F.from_json("raw", _ENVELOPE))
    row = F.coalesce("envelope.after", "envelope.before")
    return arrived.select(
        F.col("envelope.op").alias("op"),
        *(row.getField(name).alias(name) for name in ("order_id", "customer_id", "country", "status", "amount")),
        F.col("envelope.source.lsn").alias("lsn"),
        F.timestamp_millis("envelope.ts_ms").alias("changed_at"),
    )


orders.expect_table("silver_orders", fresh("1 hour"), unique("order_id"))


@orders.streaming_table(
    "gold_orders_by_status",
    source=table("silver_orders").changes(),
    trigger="40 seconds",
    sink=complete(),
    comment="Orders by present status",
    schema="""
        status STRING COMMENT 'placed, paid, shipped, delivered or cancelled',
        orders BIGINT COMMENT 'Orders in this status now',
        total_amount DECIMAL(22,2) COMMENT 'Sum of their amounts'""",
    table_properties=ANALYTICS,
)
def gold_orders_by_status(changes: DataFrame) -> DataFrame:
    """Rows that a change adds less rows that it takes, by status."""
    brings = F.col("_change_type").isin("insert", "update_postimage")
    counted = changes.groupBy("status").agg(
        F.sum(F.when(brings, 1).otherwise(-1)).alias("orders"),
        F.sum(F.when(brings, F.col("amount")).otherwise(-F.col("amount"))).alias("total_amount"),
    )
    return counted.where("orders > 0")


def from_topic(stream: StreamSpec, servers: str) -> StreamSpec:
    """A stream that reads the files in `landing/X` reads the topic X, and nothing else changes: the place in the topic
    stands for the file's name, the producer's time for the time of landing."""
    (source,) = stream.sources
    if not isinstance(source, FileSource):
        return stream

    def as_landed(records: DataFrame) -> DataFrame:
        place = F.format_string("%s/%d/%d", "topic", "partition", "offset")
        landed = (place.alias("file_name"), F.col("timestamp").alias("file_modified_at"))
        return stream.function(records.select("value", *landed))

    topic = kafka(servers, Path(source.folder).name, format="text")
    return replace(stream, sources=(topic,), function=as_landed)
