"""A project that declares some of everything: events to gold, changes of a database, files, joins, exports.

Its broker, its database and its folders are named by the environment, as a user's would be.
"""

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backend.settings import Settings
from pipelines import (
    Pipeline,
    append,
    children,
    complete,
    debezium,
    expect,
    files,
    flatten,
    foreach_batch,
    fresh,
    history,
    into,
    jdbc,
    kafka,
    kafka_topic,
    rate,
    references,
    rows_per_day,
    secret,
    spark_source,
    table,
    unique,
    update,
    upsert,
)

NOW = "available now"
FEED = {"delta.enableChangeDataFeed": "true"}
EVENT = "event_id STRING, user_id BIGINT, event_type STRING, amount DOUBLE, at TIMESTAMP"
ORDER = (
    "order_id BIGINT, user_id BIGINT, address STRUCT<city: STRING, zip: STRING>, "
    "lines ARRAY<STRUCT<sku: STRING, price: DOUBLE>>"
)


def pipelines(settings: Settings) -> list[Pipeline]:
    return [_events(), _changes(str(settings.home / "audit"))]


def _events() -> Pipeline:
    """Topic → bronze → silver → gold, with a watermark and a window; files and a database's table beside them."""
    shop, servers = Pipeline("events"), os.environ["SHOP_SERVERS"]
    events = kafka(
        servers, "shop_events", format="json", schema=EVENT, maxOffsetsPerTrigger=10_000, failOnDataLoss=True
    )

    @shop.streaming_table("bronze_events", source=events, trigger=NOW, reset_allowed=False, owner="shop")
    def bronze_events(records: DataFrame) -> DataFrame:
        unpriced = F.count_if(F.col("amount").isNull()).alias("unpriced")
        return records.observe("arrived", F.count("*").alias("rows"), unpriced)

    @shop.streaming_table(
        "silver_events",
        source=table("bronze_events", maxFilesPerTrigger=1_000, maxBytesPerTrigger=10**9),
        trigger=NOW,
        expectations=[
            expect("typed", "event_type IS NOT NULL", on_violation="drop"),
            expect("priced", "amount > 0", on_violation="quarantine"),
            expect("known_user", "user_id IS NOT NULL"),
        ],
        partition_cols=["event_type"],
    )
    def silver_events(records: DataFrame) -> DataFrame:
        once = records.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["event_id"])
        return once.select("event_id", "user_id", "event_type", "amount", "at").withColumn(
            "processed_at", F.current_timestamp()
        )

    @shop.streaming_table("gold_hourly", source=table("silver_events"), sink=complete(), trigger=NOW)
    def gold_hourly(events: DataFrame) -> DataFrame:
        hours = events.withWatermark("at", "1 hour").groupBy(F.window("at", "1 hour"), "event_type")
        counts = hours.agg(F.count("*").alias("events"), F.avg("amount").alias("mean_amount"))
        return counts.select(F.col("window.start").alias("hour"), "event_type", "events", "mean_amount")

    @shop.streaming_table("gold_types", source=table("silver_events"), sink=update(keys=["event_type"]), trigger=NOW)
    def gold_types(events: DataFrame) -> DataFrame:
        return events.groupBy("event_type").agg(F.count("*").alias("events"))

    landing = files(os.environ["SHOP_LANDING"], format="json", schema="user_id BIGINT, name STRING")

    @shop.streaming_table("bronze_users", source=landing, trigger=NOW, evolution="add columns", tags={"team": "crm"})
    def bronze_users(records: DataFrame) -> DataFrame:
        return records

    people = jdbc(os.environ["SHOP_JDBC"], "public.countries", user="weir", password=secret("env:SHOP_PASSWORD"))

    @shop.streaming_table("silver_users", source=[table("bronze_users"), people], trigger=NOW)
    def silver_users(users: DataFrame, countries: DataFrame) -> DataFrame:
        return users.join(countries, "user_id", "left").select("user_id", "name", "country")

    @shop.streaming_table("bronze_ticks", source=spark_source("rate-micro-batch", {"rowsPerBatch": 2}), trigger=NOW)
    def bronze_ticks(ticks: DataFrame) -> DataFrame:
        return ticks

    @shop.streaming_table("bronze_pulse", source=rate(1))
    def bronze_pulse(ticks: DataFrame) -> DataFrame:
        return ticks

    shop.expect_table("bronze_users", rows_per_day())
    return shop


def _changes(audit: str) -> Pipeline:
    """A database's changes: as they came, flattened and exploded, merged by key, joined, audited and handed on."""
    shop, servers = Pipeline("changes"), os.environ["SHOP_SERVERS"]

    def raw(name: str, topic: str) -> None:
        source = kafka(servers, topic, format="text", starting="earliest")
        shop.streaming_table(name, source=source, trigger=NOW, table_properties=FEED)(lambda records: records)

    raw("bronze_orders", "shop_orders")
    raw("bronze_customers", "shop_customers")

    @shop.temporary_view("orders", source=table("bronze_orders").changes())
    def orders(records: DataFrame) -> DataFrame:
        return debezium(records, ORDER)

    newest = {"sequence": "position", "deleted": "op = 'd'", "except_columns": ["op", "changed_at"]}

    @shop.streaming_table(
        "silver_orders",
        source=table("orders"),
        sink=upsert(keys=["order_id"], **newest),  # type: ignore[arg-type]
        also=[into("silver_order_states", history(keys=["order_id"], **newest))],  # type: ignore[arg-type]
        trigger=NOW,
        table_properties=FEED,
    )
    def silver_orders(changes: DataFrame) -> DataFrame:
        return flatten(changes.drop("lines"))

    @shop.streaming_table("silver_lines", source=table("orders"), trigger=NOW)
    def silver_lines(changes: DataFrame) -> DataFrame:
        return children(changes.where("op <> 'd'"), "lines", keys=["order_id", "position"])

    @shop.streaming_table(
        "silver_customers",
        source=table("bronze_customers").changes(),
        sink=upsert(keys=["id"], **newest),  # type: ignore[arg-type]
        trigger=NOW,
    )
    def silver_customers(records: DataFrame) -> DataFrame:
        return debezium(records, "id BIGINT, name STRING", flavour="mysql")

    @shop.materialized_view("gold_orders")
    def gold_orders(silver_orders: DataFrame, silver_customers: DataFrame) -> DataFrame:
        return silver_orders.join(silver_customers, F.expr("user_id = id")).groupBy("name").count()

    from_the_beginning = table("silver_orders").changes(startingVersion=0)

    @shop.streaming_table("silver_audit", source=from_the_beginning, sink=append(), trigger=NOW)
    def silver_audit(changes: DataFrame) -> DataFrame:
        return changes.select("order_id", "address_city", "_change_type", "_commit_version", "_commit_timestamp")

    @shop.streaming_table("silver_named", source=[from_the_beginning, table("silver_customers").static()], trigger=NOW)
    def silver_named(changes: DataFrame, customers: DataFrame) -> DataFrame:
        alive = changes.where("_change_type IN ('insert', 'update_postimage')")
        return alive.join(customers.select("id", "name"), F.expr("user_id = id"), "left").select("order_id", "name")

    def save(rows: DataFrame, batch_id: int, session: SparkSession) -> None:
        """Two tables of somebody else's, each once."""
        rows.write.format("delta").mode("append").option("mergeSchema", "true").save(f"{audit}/changes")
        counts = rows.groupBy("_change_type").count().withColumn("batch", F.lit(batch_id))
        counts.write.format("delta").mode("append").save(f"{audit}/counts")

    @shop.streaming_table("audit_orders", source=from_the_beginning, sink=foreach_batch(save), trigger=NOW)
    def audit_orders(changes: DataFrame) -> DataFrame:
        return changes.select("order_id", "_change_type", "_commit_version")

    @shop.streaming_table(
        "kafka_orders",
        source=from_the_beginning,
        sink=kafka_topic(servers, "shop_orders_out", key="order_id"),
        trigger=NOW,
    )
    def kafka_orders(changes: DataFrame) -> DataFrame:
        return changes.drop("position")

    shop.expect_table("silver_orders", fresh("1 day"), unique("order_id"), references("user_id", "silver_customers.id"))
    return shop
