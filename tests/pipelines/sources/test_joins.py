"""Joins of streams and with tables that are read whole, and the options of sources that decide what a batch reads."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backend.settings import load_settings
from pipelines import Pipeline, append, files, kafka, secret, table
from tests.worlds.lake import builders
from tests.worlds.processes import wait_until
from tests.worlds.spark.declared import lake_of, pipeline_of, problems_of
from tests.worlds.spark.lakes import open_lake
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


def test_files_whose_path_matches_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs/events"
    builders.write(theirs, {"id": [1, 2, 3], "country": ["de", "fr", "de"]}, partition_by=["country"])
    lake = lake_of(tmp_path, table(str(theirs), excludeRegex="country=fr"), name="bronze_events")
    lake.process("bronze_events")
    assert sorted(row["id"] for row in lake.rows("bronze/bronze_events")) == [1, 3]


def test_csv_in_another_encoding_is_read_as_it_was_written(spark: SparkSession, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    (landing / "1.csv").write_bytes("city\nKöln\n".encode("iso-8859-1"))
    lake = lake_of(tmp_path, files(str(landing), format="csv", schema="city STRING", encoding="ISO-8859-1"))
    lake.process("bronze_orders")
    assert [row["city"] for row in lake.rows("bronze/bronze_orders")] == ["Köln"]


def test_a_table_lies_in_the_partitions_that_are_declared(spark: SparkSession, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs/events"
    builders.write(theirs, {"id": [1, 2, 3], "country": ["de", "fr", "de"], "day": ["1", "1", "2"]})
    lake = lake_of(tmp_path, table(str(theirs)), name="bronze_events", partition_cols=["country", "day"])
    lake.process("bronze_events")
    written = DeltaTable(lake.uri("bronze/bronze_events"))
    assert written.metadata().partition_columns == ["country", "day"]
    places = {(each["country"], each["day"]) for each in written.partitions()}
    assert places == {("de", "1"), ("fr", "1"), ("de", "2")}
    assert sorted(row["id"] for row in lake.rows("bronze/bronze_events")) == [1, 2, 3]


def test_a_batch_waits_for_as_many_records_as_are_asked_for(
    spark: SparkSession, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    """The first batch waits for none: no record has come before."""
    topic = kafka_broker.create("least", partitions=1)
    kafka_broker.produce(topic, [(None, b"0")])
    source = kafka(kafka_broker.servers, topic, format="text", minOffsetsPerTrigger=10, maxTriggerDelay="10h")
    pipeline = pipeline_of(source, name="bronze_numbers", sink=append(), trigger="100 milliseconds")
    lake = open_lake(load_settings(home=tmp_path), *pipeline.streams)
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


def test_an_option_that_this_delta_does_not_have_is_refused_rather_than_passed_over() -> None:
    """Where Delta has it, rows of a first start come in the order of the watermark's column."""
    (problem,) = problems_of(pipeline_of(table("/lake/events", withEventTimeOrder=True)))
    assert "option withEventTimeOrder is not known" in problem


def test_joins_are_declared_with_a_dataframe_for_each_source() -> None:
    pipeline = Pipeline("shop")
    sources = [table("bronze_orders"), table("bronze_customers").static()]
    pipeline.streaming_table("silver_orders", source=sources)(lambda orders, customers: orders)
    (stream,) = pipeline.streams
    assert stream.reads == ("bronze_orders", "bronze_customers")
    assert [source.describe() for source in stream.sources] == ["bronze_orders", "present rows of bronze_customers"]


def test_the_login_of_an_event_hub_holds_its_connection_string(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the Kafka endpoint, as docs/pipelines.md tells."""
    connection = 'Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=weir;SharedAccessKey=a"b='
    monkeypatch.setenv("EVENT_HUBS", connection)
    login = (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="$ConnectionString" password="{}";'
    )
    jaas = secret("env:EVENT_HUBS", within=login)
    hub = kafka("shop.servicebus.windows.net:9093", "clicks", options={"kafka.sasl.jaas.config": jaas})
    assert problems_of(pipeline_of(hub)) == []
    assert hub.client()["sasl.jaas.config"].endswith('password="' + connection.replace('"', '\\"') + '";')
    assert "SharedAccessKey" not in repr(hub)
