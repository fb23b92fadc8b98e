"""The demo through topics: what the generator landed is in the topics once, and in bronze as it would be from files."""

import threading
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from backend.settings import load_settings
from pipelines.declare.registry import load_registry
from pipelines.demo.topics import TOPICS, forward
from tests.worlds.spark.lakes import demo_lake
from tests.worlds.streams.kafka_broker import KafkaBroker

pytestmark = pytest.mark.spark


@pytest.mark.ci
def test_the_demo_goes_through_topics_once(spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    lake = demo_lake(tmp_path, kafka=kafka_broker.servers)
    lake.land(1)
    forward(tmp_path, kafka_broker.servers, stop=threading.Event(), once=True)
    lake.land(1)
    for _ in range(2):  # the second time it finds the end of the topics, and has nothing to send
        forward(tmp_path, kafka_broker.servers, stop=threading.Event(), once=True)
    landed = {topic: [record.line for file in lake.ledger.files(topic) for record in file.records] for topic in TOPICS}
    for topic in TOPICS:
        assert [message.value().decode() for message in kafka_broker.read(topic)] == landed[topic]  # type: ignore[union-attr]

    lake.process("bronze_events", "silver_events")
    assert Counter(row.raw for row in lake.rows("bronze/bronze_events")) == Counter(landed["events"])
    ids = [row.event_id for row in lake.rows("silver/silver_events")]
    assert len(ids) == len(set(ids))
    assert set(ids) == lake.ledger.expected_silver_event_ids()


def test_only_what_read_files_reads_topics(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path, demo={"kafka": "127.0.0.1:9092"})
    files, topics = load_registry(load_settings(home=tmp_path)), load_registry(settings)
    assert topics.names() == files.names()
    assert {name: topics.get(name).sources[0].kind for name in ("bronze_events", "bronze_orders")} == {
        "bronze_events": "kafka",
        "bronze_orders": "kafka",
    }
    assert [topics.get(name) for name in files.names() if not name.startswith("bronze")] == [
        files.get(name) for name in files.names() if not name.startswith("bronze")
    ]
