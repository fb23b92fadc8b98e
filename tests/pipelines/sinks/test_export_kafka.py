"""A table's changes in a Kafka topic: what a consumer keeps by key and position equals what was done, once each."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from pyspark.sql import SparkSession

from pipelines import expect, kafka_topic, table
from pipelines.jvm.failures import DeliveryError
from pipelines.sinks.kafka_topic import KafkaTopicSink
from tests.worlds.processes import wait_until
from tests.worlds.spark import declared
from tests.worlds.spark.exports import Orders, Row, headers, kept
from tests.worlds.spark.lakes import DemoLake
from tests.worlds.streams.kafka_broker import KafkaBroker

pytestmark = pytest.mark.spark
NAME = "kafka_orders"


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> Orders:
    return Orders(spark, tmp_path / "lake" / "silver" / "orders")


def lake_of(home: Path, orders: Orders, sink: KafkaTopicSink, **about: Any) -> DemoLake:
    conf = {"spark.sql.shuffle.partitions": "3"}
    return declared.lake_of(home, table(orders.uri).changes(), name=NAME, sink=sink, spark_conf=conf, **about)


def row_of(record: Message) -> Row | None:
    if record.value() is None:
        return None
    row = json.loads(record.value(), parse_float=Decimal)
    return row["id"], row["status"], row["amount"]


def check(records: list[Message], orders: Orders) -> None:
    by_key = {int(key): [row_of(each) for each in of] for key, of in kept(records).items()}
    assert by_key == orders.changes
    places = {(each.key(), headers(each)["weir.position"]) for each in records}
    assert len(places) == sum(map(len, orders.changes.values())), "each change has a place of its own, whatever is sent"


def test_each_change_is_there_once_by_key_and_position_whatever_is_replayed(
    orders: Orders, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka_broker.create("export_replayed", partitions=3)
    lake = lake_of(tmp_path, orders, kafka_topic(kafka_broker.servers, topic, key="id", headers={"state": "status"}))
    orders.merge()
    orders.begin()
    lake.process(NAME)
    check(kafka_broker.read(topic), orders)

    orders.merge()
    orders.move()
    orders.delete(next(iter(orders.rows)))
    lake.process(NAME)
    once = kafka_broker.read(topic)
    check(once, orders)
    batch = lake.forget_last_batch(NAME)
    lake.process(NAME)
    again = kafka_broker.read(topic)
    assert len(again) > len(once), "the batch was sent again"
    check(again, orders)

    last = headers(again[-1])
    assert last["weir.stream"] == NAME
    assert int(last["weir.position"].split("-")[1]) == batch
    assert {headers(each)["weir.change"] for each in again} == {"insert", "update_postimage", "delete"}
    assert all((headers(each)["weir.change"] == "delete") == (each.value() is None) for each in again)
    states = {(row_of(each) or (0, None, 0))[1]: headers(each).get("state") for each in again if each.value()}
    assert states["paid"] == "paid"


@pytest.mark.ci
def test_a_batch_that_broke_off_halfway_is_sent_again(
    orders: Orders, kafka_broker: KafkaBroker, tmp_path: Path, spark: SparkSession
) -> None:
    topic, last = kafka_broker.create("export_halfway", partitions=2), 999  # its key comes last as text
    spark.sql(f"INSERT INTO delta.`{orders.uri}` SELECT id, 'new', 1.25 FROM range(3000)")
    orders.changes = {key: [(key, "new", Decimal("1.25"))] for key in range(3000)}
    fault = {"fault": f"CASE WHEN id = {last} THEN raise_error('the power went') END"}
    lake = lake_of(tmp_path, orders, kafka_topic(kafka_broker.servers, topic, key="id", headers=fault))
    lake.runtime.start(NAME)
    failure = lake.ended(NAME).failure
    assert failure is not None
    assert "the power went" in failure.message
    wait_until(lambda: bool(kafka_broker.read(topic)), "a part of the batch was sent")
    sent = len(kafka_broker.read(topic))
    assert sent < 3_000
    lake_of(tmp_path, orders, kafka_topic(kafka_broker.servers, topic, key="id")).process(NAME)
    records = kafka_broker.read(topic)
    assert len(records) == 3_000 + sent
    check(records, orders)


@pytest.mark.ci
def test_keys_values_and_deletes_as_they_are_declared(
    orders: Orders, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka_broker.create("export_declared", partitions=1)
    sink = kafka_topic(
        kafka_broker.servers, topic, key=["id", "status"], value="unhex('FF00')", tombstones=False,
        options={"kafka.compression.type": "gzip"},
    )  # fmt: skip
    rules = [expect("known", "status IS NOT NULL", on_violation="quarantine")]
    lake = lake_of(tmp_path, orders, sink, expectations=rules)
    for _ in range(2):
        orders.merge()
    lake.process(NAME)
    orders.delete(next(key for key, row in orders.rows.items() if row[1] == "new"))
    lake.process(NAME)
    records = kafka_broker.read(topic)
    assert {each.value() for each in records} == {b"\xff\x00"}, "a deleted row is sent itself, bytes are bytes"
    keys = {tuple(json.loads(each.key()).items()) for each in records}
    assert {(("id", key), ("status", row[1])) for key, row in orders.rows.items() if row[1]} < keys
    assert [headers(each)["weir.change"] for each in records].count("delete") == 1
    quarantined = lake.rows(f"kafka/{NAME}_quarantine")
    assert {row.id for row in quarantined} == {key for key, row in orders.rows.items() if row[1] is None} != set()


@pytest.mark.ci
def test_a_row_without_a_key_ends_the_stream(orders: Orders, kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka_broker.create("export_null")
    lake = lake_of(tmp_path, orders, kafka_topic(kafka_broker.servers, topic, key="nullif(id, id)"))
    orders.merge()
    lake.runtime.start(NAME)
    failure = lake.ended(NAME).failure
    assert failure is not None
    assert "a row's key is null; drop or quarantine such rows by an expectation" in failure.message
    assert kafka_broker.read(topic) == []


def test_a_topic_that_is_not_there_is_told_before_the_first_row(
    orders: Orders, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    lake = lake_of(tmp_path, orders, kafka_topic(kafka_broker.servers, "export_missing", key="id"))
    with pytest.raises(DeliveryError, match="has no topic export_missing"):
        lake.runtime.start(NAME)
