"""The demo's orders: change envelopes as landed → the orders as the shop's database holds them → counts by status."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines import Pipeline, complete, expect, files, fresh, table, unique, upsert
from pipelines.demo import ANALYTICS, INGESTION, PLATFORM_CONFIDENTIAL

orders = Pipeline("orders")

_CHANGE_FEED = {"delta.enableChangeDataFeed": "true"}
_ROW = "STRUCT<order_id: STRING, customer_id: STRING, country: STRING, status: STRING, amount: DECIMAL(12,2)>"
_ENVELOPE = f"op STRING, before {_ROW}, after {_ROW}, ts_ms BIGINT, source STRUCT<lsn: BIGINT>"


@orders.streaming_table(
    "bronze_orders",
    source=files("landing/orders"),
    trigger="10 seconds",
    comment="Order changes as landed: whole Debezium envelopes as text",
    schema="""
        raw STRING COMMENT 'The line as it was landed',
        file_name STRING COMMENT 'File that held it',
        file_modified_at TIMESTAMP COMMENT 'When the file landed',
        ingested_at TIMESTAMP COMMENT 'When the stream read it'""",
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
