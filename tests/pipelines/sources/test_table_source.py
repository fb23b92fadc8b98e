"""Tables and other formats as sources: joined with each other, read whole or in part, and batches of a least size."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backend.lake.lake import Lake
from backend.streams.backlog.reader import BacklogReader
from pipelines import kafka, spark_source, table
from pipelines.declare.registry import declaration
from tests.worlds.lake import builders
from tests.worlds.processes import wait_until
from tests.worlds.spark.declared import lake_of
from tests.worlds.streams.kafka_broker import KafkaBroker

pytestmark = pytest.mark.spark

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def paid(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """Orders with the payment that came within an hour, or without one once none can come any more."""
    condition = "order_id = paid_id AND paid_at BETWEEN ordered_at AND ordered_at + INTERVAL 1 HOUR"
    late = orders.withWatermark("ordered_at", "10 minutes")
    return late.join(payments.withWatermark("paid_at", "10 minutes"), F.expr(condition), "leftOuter")


def test_two_streams_are_joined_and_what_finds_none_is_told_once_its_time_is_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    orders, payments = tmp_path / "theirs/orders", tmp_path / "theirs/payments"
    builders.write(orders, {"order_id": ["a", "b", "c"], "ordered_at": [at(0), at(1), at(2)]})
    builders.write(payments, {"paid_id": ["a", "c"], "paid_at": [at(5), at(200)]})
    lake = lake_of(tmp_path, [table(str(orders)), table(str(payments))], paid, name="silver_paid")
    lake.process("silver_paid")
    pairs = [(row["order_id"], row["paid_id"]) for row in lake.rows("silver/silver_paid")]
    assert pairs == [("a", "a")], "b and c may still be paid: the watermark is that of the slower stream"

    builders.write(orders, {"order_id": ["d"], "ordered_at": [at(300)]})
    builders.write(payments, {"paid_id": ["b", "d"], "paid_at": [at(30), at(310)]})
    lake.process("silver_paid")
    pairs = sorted((row["order_id"], row["paid_id"] or "–") for row in lake.rows("silver/silver_paid"))
    assert pairs == [("a", "a"), ("b", "b"), ("c", "–"), ("d", "d")]


@pytest.mark.ci
def test_a_static_table_is_read_as_it_is_at_each_batch(spark: SparkSession, tmp_path: Path) -> None:
    clicks, users = tmp_path / "theirs/clicks", tmp_path / "theirs/users"
    builders.write(users, {"user": [1, 2], "name": ["Ann", "Bob"]})
    builders.write(clicks, {"user": [1, 2, 3]})

    def named(clicks: DataFrame, users: DataFrame) -> DataFrame:
        return clicks.join(users, "user", "left")

    lake = lake_of(tmp_path, [table(str(clicks)), table(str(users)).static()], named, name="silver_clicks")
    lake.process("silver_clicks")
    builders.write(users, {"user": [1, 3], "name": ["Anna", "Cem"]}, mode="overwrite")
    builders.write(clicks, {"user": [1, 2, 3]})
    assert sum(lake.process("silver_clicks")) == 3, "rows of a static table are not counted as read"
    rows = sorted((row["user"], row["name"] or "–") for row in lake.rows("silver/silver_clicks"))
    assert rows == [(1, "Ann"), (1, "Anna"), (2, "Bob"), (2, "–"), (3, "Cem"), (3, "–")]


@pytest.mark.ci
def test_partitions_are_left_out_of_a_source_and_declared_for_a_table(spark: SparkSession, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs/events"
    rows = {"id": [1, 2, 3], "country": ["de", "fr", "de"], "day": ["1", "1", "2"]}
    builders.write(theirs, rows, partition_by=["country"])
    source = table(str(theirs), excludeRegex="country=fr")
    lake = lake_of(tmp_path, source, name="bronze_events", partition_cols=["country", "day"])
    lake.process("bronze_events")
    written = DeltaTable(lake.uri("bronze/bronze_events"))
    assert written.metadata().partition_columns == ["country", "day"]
    assert {(part["country"], part["day"]) for part in written.partitions()} == {("de", "1"), ("de", "2")}
    assert sorted(row["id"] for row in lake.rows("bronze/bronze_events")) == [1, 3]


@pytest.mark.ci
def test_a_batch_waits_for_as_many_records_as_are_asked_for(
    spark: SparkSession, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    """The first batch waits for none: no record has come before."""
    topic = kafka_broker.create("least", partitions=1)
    kafka_broker.produce(topic, [(None, b"0")])
    source = kafka(kafka_broker.servers, topic, format="text", minOffsetsPerTrigger=10, maxTriggerDelay="10h")
    lake = lake_of(tmp_path, source, name="bronze_numbers", trigger="100 milliseconds")
    lake.runtime.start("bronze_numbers")

    def read() -> list[int]:
        return [each["numInputRows"] for each in lake.heard.progress if each["numInputRows"]]

    try:
        wait_until(lambda: read() == [1], "the first batch")
        for number in range(1, 11):
            kafka_broker.produce(topic, [(None, str(number).encode())])
        wait_until(lambda: sum(read()) == 11, "the second batch")
    finally:
        lake.runtime.cut("bronze_numbers")
    assert read() == [1, 10]


def test_a_format_without_a_source_of_its_own_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    theirs = str(tmp_path / "theirs")
    spark.range(5).write.orc(theirs)
    source = spark_source("orc", {"path": theirs, "maxFilesPerTrigger": 1}, schema="id BIGINT", name="the old archive")
    lake = lake_of(tmp_path, source)
    lake.process("bronze_orders")
    spark.range(5, 7).write.mode("append").orc(theirs)
    lake.process("bronze_orders")
    assert sorted(row["id"] for row in lake.rows("bronze/bronze_orders")) == list(range(7))

    registry = lake.runtime._registry
    declared = declaration(registry, registry.get("bronze_orders"), lake.settings)
    assert [(each.kind, each.name) for each in declared.inputs] == [("other", "the old archive")]
    backlog = BacklogReader(lake.settings, Lake(lake.settings)).read(declared, [], now=datetime.now(UTC))
    assert backlog.rows is None and "cannot be counted from here" in backlog.unknown


@pytest.mark.ci
def test_a_source_says_its_columns_itself(spark: SparkSession, tmp_path: Path) -> None:
    source = spark_source("rate-micro-batch", {"rowsPerBatch": 3, "startTimestamp": 1_000})
    lake = lake_of(tmp_path, source)
    lake.process("bronze_orders")
    values = [row["value"] for row in lake.rows("bronze/bronze_orders")]
    assert values and sorted(values) == list(range(len(values)))
