"""Rows and dead letters of a topic are written by one query: each record is in one of the two tables, once.

Whatever the function does with its rows, wherever a batch breaks off, and however former versions left their places.
"""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines import append, complete, expect, kafka, update
from pipelines.sources.kafka import KafkaSource
from pipelines.specs.sinks import Sink, Target
from tests.worlds.cases import soak
from tests.worlds.spark.declared import Dying, lake_of, same
from tests.worlds.spark.lakes import DemoLake
from tests.worlds.streams.kafka_broker import KafkaBroker

pytestmark = pytest.mark.spark

NAME = "bronze_orders"
BOTH = (NAME, f"{NAME}_dead_letters")
PLACES = [(b"k", b'{"id": 1, "name": "a"}'), (b"k", b"cut {"), (b"k", b'{"id": 2, "name": "a"}'), (b"k", b"[]")]


def orders_in(broker: KafkaBroker, topic: str, **about: Any) -> KafkaSource:
    return kafka(broker.servers, topic, format="json", schema="id BIGINT, name STRING", **about)


def letters_of(lake: DemoLake) -> list[tuple[Any, ...]]:
    return sorted((row.topic, row.partition, row.offset, bytes(row.value)) for row in lake.rows(f"bronze/{BOTH[1]}"))


def counted(records: DataFrame) -> DataFrame:
    """A function with state, which no dead letter may reach."""
    return records.groupBy("name").agg(F.count("*").alias("orders"), F.sum("id").alias("ids"))


QUARANTINE = {"expectations": [expect("small", "id < 2", "quarantine")]}


@pytest.mark.parametrize(
    ("function", "sink", "about", "wanted"),
    [
        (same, append(), QUARANTINE, {(1, "a")}),
        pytest.param(counted, complete(), {}, {("a", 2, 3)}, marks=pytest.mark.ci),
        *soak((counted, update(keys=["name"]), {}, {("a", 2, 3)}), (same, append(), {}, {(1, "a"), (2, "a")})),
    ],
)
def test_a_batch_broken_off_between_rows_and_dead_letters_is_whole_and_once(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    tmp_path: Path,
    function: Callable[[DataFrame], DataFrame],
    sink: Sink,
    about: dict[str, Any],
    wanted: set[tuple[object, ...]],
) -> None:
    topic = kafka_broker.create(f"broken_off_{len(about)}_{sink.kind}", partitions=1)
    kafka_broker.produce(topic, PLACES)
    dying = Dying(sink)
    lake = lake_of(tmp_path, orders_in(kafka_broker, topic), function, sink=dying, **about)
    lake.runtime.start(NAME)
    failure = lake.ended(NAME).failure
    assert failure is not None and "died between two writes" in failure.message
    assert lake.rows(f"bronze/{NAME}") and not letters_of(lake)
    kafka_broker.produce(topic, [(b"k", b"12")])
    lake.process(NAME)
    assert dying.writes > 1, "the batch was replayed"
    rows = [tuple(row)[: len(next(iter(wanted)))] for row in lake.rows(f"bronze/{NAME}")]
    assert len(rows) == len(wanted) and set(rows) == wanted
    assert letters_of(lake) == [(topic, 0, 1, b"cut {"), (topic, 0, 3, b"[]"), (topic, 0, 4, b"12")]


class Peeking(Dying):
    """A sink that reads one row of a batch."""

    def write(self, batch: DataFrame, target: Target) -> None:
        batch.limit(1).collect()


@pytest.mark.ci
def test_all_dead_letters_of_a_batch_are_there_however_little_of_it_was_read(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka_broker.create("peeked", partitions=2)
    values = [b'{"id": 1}'] * 90 + [b"cut"] * 9
    sent = kafka_broker.produce(topic, [(b"%d" % number, value) for number, value in enumerate(values)])
    lake = lake_of(tmp_path, orders_in(kafka_broker, topic), sink=Peeking(append()))
    lake.process(NAME)
    cut = sorted((each.topic(), each.partition(), each.offset(), b"cut") for each in sent if each.value() == b"cut")
    assert letters_of(lake) == cut


def windowed(records: DataFrame) -> DataFrame:
    """Its last batch reads nothing: Spark runs it to let go of what the watermark has passed."""
    late = records.withWatermark("timestamp", "1 second")
    return late.groupBy(F.window("timestamp", "1 second"), "name").agg(F.sum("id").alias("ids")).drop("window")


@pytest.mark.ci
def test_a_batch_without_records_has_no_dead_letters(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic, noon = kafka_broker.create("windowed", partitions=1), datetime(2026, 1, 1, 12, tzinfo=UTC)
    kafka_broker.produce(topic, PLACES, timestamp=noon)
    kafka_broker.produce(topic, [(b"k", b'{"id": 9}')], timestamp=noon + timedelta(minutes=1))
    lake = lake_of(tmp_path, orders_in(kafka_broker, topic), windowed)
    lake.process(NAME)
    batches = [progress["numInputRows"] for progress in lake.heard.progress]
    assert 0 in batches and sum(batches) == 5
    assert [(row.name, row.ids) for row in lake.rows(f"bronze/{NAME}")] == [("a", 3)]
    assert letters_of(lake) == [(topic, 0, 1, b"cut {"), (topic, 0, 3, b"[]")]


def both(records: DataFrame, others: DataFrame) -> DataFrame:
    return records.unionByName(others)


@pytest.mark.ci
def test_two_topics_in_one_function_have_their_dead_letters_in_one_table(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topics = [kafka_broker.create(f"two_{number}", partitions=1) for number in range(2)]
    for topic in topics:
        kafka_broker.produce(topic, PLACES)
    lake = lake_of(tmp_path, [orders_in(kafka_broker, topic) for topic in topics], both)
    lake.process(NAME)
    assert len(lake.rows(f"bronze/{NAME}")) == 4
    assert letters_of(lake) == [(topic, 0, *cut) for topic in topics for cut in ((1, b"cut {"), (3, b"[]"))]


@pytest.mark.ci
def test_rows_and_dead_letters_begin_where_the_first_start_was(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka_broker.create("late")
    kafka_broker.produce(topic, [(None, b'{"id": 1}'), (None, b"old")])
    lake = lake_of(tmp_path, orders_in(kafka_broker, topic, starting="latest"))
    lake.process(NAME)
    versions = lake.versions(f"bronze/{BOTH[1]}")
    kafka_broker.produce(topic, [(None, b'{"id": 3}')])
    lake.process(NAME)
    assert lake.versions(f"bronze/{BOTH[1]}") == versions, "no commit where there are no dead letters"
    kafka_broker.produce(topic, [(None, b'{"id": 2}'), (None, b"between")])
    kafka_broker.widen(topic, 3)
    kafka_broker.produce(topic, [(None, b"in a new partition")], partition=2)
    lake.process(NAME)
    assert sorted(row.id for row in lake.rows(f"bronze/{NAME}")) == [2, 3]
    assert {value for *_, value in letters_of(lake)} == {b"between", b"in a new partition"}


@pytest.mark.parametrize("ahead", [pytest.param(BOTH[1], marks=pytest.mark.ci), *soak((NAME,))])
def test_checkpoints_of_two_queries_go_on_as_one(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path, ahead: str
) -> None:
    """As former versions left them: each at a place of its own, killed before its checkpoint knew of its last batch."""
    topic = kafka_broker.create(f"two_queries_{ahead}", partitions=2)
    lake = lake_of(tmp_path, orders_in(kafka_broker, topic))
    for number, names in enumerate([BOTH, BOTH, [ahead]]):
        values = [b'{"id": %d}' % number, b"cut %d" % number, b"[%d]" % number, b'{"id": %d}' % -number]
        kafka_broker.produce(topic, [(b"%d" % key, value) for key in range(3) for value in values])
        for name in names:
            run_formerly(lake, kafka_broker, topic, name)
    for name in BOTH:
        commits = tmp_path / "checkpoints" / name / "commits"
        max(commits.glob("[0-9]*"), key=lambda path: int(path.name)).unlink()
    lake.process(NAME)
    check(lake, kafka_broker.read(topic))
    kafka_broker.produce(topic, [(None, b'{"id": 7}'), (None, b"cut again")])
    lake.process(NAME)
    lake.forget_last_batch(NAME)
    lake.process(NAME)
    check(lake, kafka_broker.read(topic))


def run_formerly(lake: DemoLake, broker: KafkaBroker, topic: str, name: str) -> None:
    """One of the two queries, with Delta's own sink."""
    options = {"kafka.bootstrap.servers": broker.servers, "subscribe": topic, "startingOffsets": "earliest"}
    records = lake.runtime.session.readStream.format("kafka").options(**options).load()
    beside = ("topic", "partition", "offset", "timestamp", "key")
    is_row, schema = F.expr("value LIKE '{%'"), "id BIGINT, name STRING"
    if name == NAME:
        parsed = F.from_json(F.col("value").cast("string"), schema)
        records = records.where(is_row).select(parsed["id"].alias("id"), parsed["name"].alias("name"), *beside)
    else:
        records = records.where(~is_row).select(*beside, "value", F.lit("not JSON").alias("reason"))
    checkpoint = str(lake.settings.home / "checkpoints" / name)
    writer = records.writeStream.format("delta").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start(lake.uri(f"bronze/{name}")).awaitTermination()


def check(lake: DemoLake, topic: list[Message]) -> None:
    """Both tables against an independent reader of the topic."""
    there = {(record.partition(), record.offset()): record.value() for record in topic}
    rows, letters = (lake.rows(f"bronze/{name}") for name in BOTH)
    assert rows and letters
    assert Counter((row.partition, row.offset) for row in rows + letters) == Counter(there.keys()), "each record, once"
    assert {(row.partition, row.offset): b'{"id": %d}' % row.id for row in rows} == {
        place: value for place, value in there.items() if value.startswith(b'{"')
    }
    assert all(bytes(row.value) == there[row.partition, row.offset] for row in letters)
