"""The demo's transforms: pure functions from DataFrame to DataFrame.

Rule: the rows of silver and gold follow from the landed files alone, not from how batches cut them. A watermark moves
only between batches, so what it drops depends on the cut. The expectation `on_time` draws the same line for every row.
Files are read oldest first, so `on_time` would also drop whatever the watermark drops.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.expectations import Expectation, OnViolation

LATENESS = "30 minutes"
_EVENT = "event_id STRING, user_id STRING, event_type STRING, amount DECIMAL(12,2), timestamp TIMESTAMP, corrupt STRING"
_EVENT_FIELDS = ("event_id", "user_id", "event_type", "amount", "timestamp")
_JSON_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "corrupt"}
_ON_TIME = f"event_time > file_modified_at - INTERVAL {LATENESS}"
_ROW = "STRUCT<order_id: STRING, customer_id: STRING, country: STRING, status: STRING, amount: DECIMAL(12,2)>"
_ENVELOPE = f"op STRING, before {_ROW}, after {_ROW}, ts_ms BIGINT, source STRUCT<lsn: BIGINT>"

EVENT_EXPECTATIONS = (
    Expectation("well_formed", "event_id IS NOT NULL", OnViolation.QUARANTINE),
    # A row that is no event breaks `well_formed` alone: its other fields mean nothing.
    Expectation("event_type_not_null", "event_id IS NULL OR event_type IS NOT NULL", OnViolation.QUARANTINE),
    Expectation("amount_positive", "event_id IS NULL OR amount > 0", OnViolation.QUARANTINE),
    Expectation("on_time", _ON_TIME, OnViolation.DROP),
)
ORDER_EXPECTATIONS = (
    Expectation(
        "envelope_complete",
        "order_id IS NOT NULL AND lsn IS NOT NULL AND op IN ('c', 'r', 'u', 'd') AND (op = 'd' OR status IS NOT NULL)",
        OnViolation.DROP,
    ),
)


def keep_raw(lines: DataFrame) -> DataFrame:
    """Landed lines as bronze keeps them."""
    return lines.select(
        F.col("value").alias("raw"), "file_name", "file_modified_at", F.current_timestamp().alias("ingested_at")
    )


def clean_events(bronze: DataFrame) -> DataFrame:
    """Events parsed, in time, each `event_id` once. A row that is no event passes with null fields."""
    parsed = bronze.withColumn("event", F.from_json("raw", _EVENT, _JSON_OPTIONS))
    is_event = F.coalesce(
        F.col("event.corrupt").isNull() & F.col("event.event_id").isNotNull() & F.col("event.timestamp").isNotNull(),
        F.lit(False),
    )
    fields = {name: F.when(is_event, F.col(f"event.{name}")) for name in _EVENT_FIELDS}
    timed = parsed.withColumns({**fields, "event_time": _event_time(is_event), "processed_at": F.current_timestamp()})
    keyed = timed.withColumn("identity", _identity()).drop("event")
    return keyed.withWatermark("event_time", LATENESS).dropDuplicatesWithinWatermark(["identity"])


def _event_time(is_event: Column) -> Column:
    """When the event happened. A row that is no event gets its landing time, so it is never too late.

    So does an event from the future: it would push the watermark past all other events.
    """
    happened_at = F.least(F.col("event.timestamp"), F.col("file_modified_at"))
    return F.when(is_event, happened_at).otherwise(F.col("file_modified_at"))


def _identity() -> Column:
    """What makes two rows duplicates. Rows that are no events, and late copies, are nobody's duplicate.

    A late copy could otherwise replace the one that was on time, and then be dropped itself.
    """
    comparable = F.col("event_id").isNotNull() & F.expr(_ON_TIME)
    return F.when(comparable, F.col("event_id")).otherwise(F.concat(F.lit("incomparable:"), F.uuid()))


def count_hourly(events: DataFrame) -> DataFrame:
    """Count, sum and average of amounts by hour and type."""
    hours = events.withWatermark("timestamp", "1 hour").groupBy(F.window("timestamp", "1 hour"), "event_type")
    totals = hours.agg(
        F.count("*").alias("event_count"), F.sum("amount").alias("amount_sum"), F.avg("amount").alias("amount_avg")
    )
    window = (F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end"))
    return totals.select(*window, "event_type", "event_count", "amount_sum", "amount_avg")


def unwrap_orders(changes: DataFrame) -> DataFrame:
    """Debezium envelopes of bronze, flattened to `op` and the order's columns (those before, when deleted)."""
    arrived = changes.where("_change_type = 'insert'").withColumn("envelope", F.from_json("raw", _ENVELOPE))
    row = F.coalesce("envelope.after", "envelope.before")
    return arrived.select(
        F.col("envelope.op").alias("op"),
        *(row.getField(name).alias(name) for name in ("order_id", "customer_id", "country", "status", "amount")),
        F.col("envelope.source.lsn").alias("lsn"),
        F.timestamp_millis("envelope.ts_ms").alias("changed_at"),
    )


def count_by_status(changes: DataFrame) -> DataFrame:
    """Orders by present status, from silver's change feed: rows that a change adds less rows that it takes."""
    brings = F.col("_change_type").isin("insert", "update_postimage")
    counted = changes.groupBy("status").agg(
        F.sum(F.when(brings, 1).otherwise(-1)).alias("orders"),
        F.sum(F.when(brings, F.col("amount")).otherwise(-F.col("amount"))).alias("total_amount"),
    )
    return counted.where("orders > 0")
