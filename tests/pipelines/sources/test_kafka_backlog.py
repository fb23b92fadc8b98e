"""What waits in topics, as a host hears it from a real broker, beside what an independent client sent."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Message
from pyspark.sql import SparkSession

from backend.lake.lake import Lake
from backend.store.store import ControlStore
from backend.stream_model.backlog import Backlog
from backend.stream_model.events import parse_progress
from backend.stream_model.stream import TopicEnds
from backend.streams.backlog.lags import batch_end, lags
from backend.streams.backlog.reader import BacklogReader
from pipelines import kafka
from pipelines.declare.registry import declaration
from pipelines.host.fleet import utc_now
from pipelines.host.topic_watch import TopicWatch
from pipelines.sources.kafka import KafkaSource
from tests.worlds.processes import wait_until
from tests.worlds.spark.declared import lake_of
from tests.worlds.streams.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.ci]

NAME = "bronze_orders"


class Shop:
    """One stream of a topic, its host's watch and a reader of its backlog."""

    def __init__(self, home: Path, source: KafkaSource) -> None:
        self.lake, self.source = lake_of(home, source), source
        self.settings, self.registry = self.lake.settings, self.lake.runtime._registry
        (home / "store").mkdir(exist_ok=True)
        self.store = ControlStore.open(self.settings)
        self.watch = TopicWatch(self.settings, self.store, self.registry, lambda: self.lake.runtime.session, utc_now)

    def heard(self) -> TopicEnds:
        self.store.note_ends(self.watch.ask(NAME, self.source))
        (found,) = self.store.topic_ends()[NAME]
        return found

    def backlog(self, *heard: TopicEnds) -> Backlog:
        declared = declaration(self.registry, self.registry.get(NAME), self.settings)
        reader = BacklogReader(self.settings, Lake(self.settings))
        return reader.read(declared, [], heard or [self.heard()], now=datetime.now(UTC))


def sent_at(records: list[Message]) -> datetime:
    """When the first of them was sent."""
    return min(datetime.fromtimestamp(record.timestamp()[1] / 1_000, UTC) for record in records)


def test_records_after_the_offsets_wait_whether_the_stream_ran_or_not(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka_broker.create("backlog_waiting", partitions=3, **{"retention.ms": "3600000"})
    first = kafka_broker.produce(topic, [(str(n).encode(), b"one") for n in range(40)])
    shop = Shop(tmp_path, kafka(kafka_broker.servers, topic, maxOffsetsPerTrigger=10))
    before = shop.backlog()
    assert (before.rows, before.size_bytes, before.is_caught_up) == (40, None, False)
    assert before.oldest_unread_at == sent_at(first)
    shop.lake.process(NAME)
    assert (shop.backlog().rows, shop.backlog().is_caught_up) == (0, True)
    batches = [parse_progress(json.dumps(each)) for each in shop.lake.heard.progress if each["numInputRows"]]
    left = [sum(later.num_input_rows for later in batches[place + 1 :]) for place in range(len(batches))]
    assert len(batches) > 2 and [lag.rows for lag in lags(map(batch_end, batches), {})] == left

    later = kafka_broker.produce(topic, [(str(n).encode(), b"two") for n in range(7)])
    found = shop.backlog()
    assert found.rows == 7
    assert found.oldest_unread_at == sent_at(later)
    assert found.data_loss is not None
    assert (found.data_loss.at, found.data_loss.setting) == (sent_at(later) + timedelta(hours=1), "retention.ms")

    heard = shop.heard()
    shop.lake.process(NAME)
    assert shop.backlog(heard).rows == 0, "the stream read on since the host asked"
    old = replace(heard, at=datetime.now(UTC) - timedelta(minutes=5))
    assert "a host last asked the broker 5 min ago" in shop.backlog(old).unknown

    silent = shop.watch.ask(NAME, kafka("127.0.0.1:9", topic))
    assert silent.problem and not silent.ends
    kafka_broker.delete(topic)
    wait_until(lambda: bool(shop.heard().problem), "the broker forgot the topic")
    assert "there is no topic" in shop.heard().problem
    assert "there is no topic" in shop.backlog().unknown
