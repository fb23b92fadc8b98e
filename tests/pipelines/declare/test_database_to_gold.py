"""A database's changes as a user declares them, from topics to gold and out again: checked, then run once from end to
end, and each table holds what was sent.

On the way they are flattened and exploded, merged by key, kept as history, joined and handed on.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backend.settings import load_settings
from pipelines import (
    Pipeline,
    children,
    debezium,
    flatten,
    fresh,
    history,
    into,
    kafka,
    kafka_topic,
    references,
    table,
    unique,
    upsert,
)
from pipelines.declare.check import columns_problems, find_problems
from pipelines.declare.registry import declarations
from pipelines.spark.analysis import Analysis
from tests.worlds.spark.declared import registry_of, same
from tests.worlds.spark.lakes import open_lake
from tests.worlds.streams.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.ci, pytest.mark.timeout(900)]

NOW = "available now"
FEED = {"delta.enableChangeDataFeed": "true"}
ORDER = (
    "order_id BIGINT, user_id BIGINT, address STRUCT<city: STRING, zip: STRING>, "
    "lines ARRAY<STRUCT<sku: STRING, price: DOUBLE>>"
)


def project(servers: str) -> Pipeline:
    shop = Pipeline("changes")
    for name in ("orders", "customers"):
        source = kafka(servers, f"shop_{name}", format="text", starting="earliest")
        shop.streaming_table(f"bronze_{name}", source=source, trigger=NOW, table_properties=FEED)(same)

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

    outside = kafka_topic(servers, "shop_orders_out", key="order_id")
    from_the_beginning = table("silver_orders").changes(startingVersion=0)

    @shop.streaming_table("kafka_orders", source=from_the_beginning, sink=outside, trigger=NOW)
    def kafka_orders(changes: DataFrame) -> DataFrame:
        return changes.drop("position")

    shop.expect_table("silver_orders", fresh("1 day"), unique("order_id"), references("user_id", "silver_customers.id"))
    return shop


def order(op: str, number: int, lsn: int, city: str, *skus: str) -> bytes:
    image = {"order_id": number, "user_id": 7, "address": {"city": city, "zip": "1"}}
    image["lines"] = [{"sku": sku, "price": 1.5} for sku in skus]
    images = {"before": image} if op == "d" else {"after": image}
    return json.dumps({"op": op, **images, "source": {"lsn": lsn}, "ts_ms": 1_700_000_000_000}).encode()


def customer(op: str, pos: int, name: str) -> bytes:
    source = {"file": "binlog.000001", "pos": pos, "row": 0}
    return json.dumps({"op": op, "after": {"id": 7, "name": name}, "source": source, "ts_ms": 1}).encode()


ORDERS = (
    order("r", 1, 10, "Bonn", "x", "y"),
    order("c", 2, 11, "Kiel", "z"),
    order("u", 1, 12, "Köln", "x"),
    order("d", 2, 13, "Kiel"),
)


def test_it_is_checked_and_runs_once_from_end_to_end(
    spark: SparkSession, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    settings = load_settings(home=tmp_path)
    for topic in ("shop_orders", "shop_customers", "shop_orders_out"):
        kafka_broker.create(topic, partitions=1)
    kafka_broker.produce("shop_orders", [(None, value) for value in ORDERS])
    kafka_broker.produce("shop_customers", [(None, customer("c", 4, "Ann")), (None, customer("u", 9, "Anna"))])
    declared = registry_of(project(kafka_broker.servers))
    assert find_problems(declared) == ()
    analysis = Analysis(declared, spark, settings).run()
    assert [*analysis.problems, *columns_problems(declared, analysis.schemas, settings)] == []
    assert len(declarations(declared, settings)) == len(declared.names()) == len(analysis.streams)

    streams = [replace(stream, trigger_interval_s=None) for stream in analysis.streams]
    lake = open_lake(settings, *streams, views=declared.views)
    lake.process(*(stream.name for stream in streams))

    def pairs(name: str, *columns: str) -> list[tuple[object, ...]]:
        return sorted((tuple(row[column] for column in columns) for row in lake.rows(name)), key=str)

    assert [row["value"].encode() for row in lake.rows("bronze/bronze_orders")] == list(ORDERS)
    assert pairs("silver/silver_orders", "order_id", "address_city") == [(1, "Köln")]
    states = pairs("silver/silver_order_states", "order_id", "address_city", "is_current")
    assert states == [(1, "Bonn", False), (1, "Köln", True), (2, "Kiel", False)]
    lines = pairs("silver/silver_lines", "order_id", "position_in_parent", "sku")
    assert lines == [(1, 0, "x"), (1, 0, "x"), (1, 1, "y"), (2, 0, "z")]
    assert pairs("silver/silver_customers", "id", "name") == [(7, "Anna")]
    assert pairs("gold/gold_orders", "name", "count") == [("Anna", 1)]
    sent = kafka_broker.read("shop_orders_out")
    assert [json.loads(record.value())["address_city"] for record in sent] == ["Köln"]
