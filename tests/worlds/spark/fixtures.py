"""One JVM and one Kafka broker for all Spark tests of this process; every test has a lake and topics of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from backend.settings import load_settings
from pipelines.spark.session import open_session
from tests.worlds.spark.delta_tables import FEWER_TASKS
from tests.worlds.streams.kafka_broker import KafkaBroker


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that every `Runtime` of this process shares; do not close a runtime in tests, cut its queries."""
    home: Path = tmp_path_factory.mktemp("jvm")
    session = open_session(load_settings(home=home, spark={"conf": FEWER_TASKS}))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A test may kill it, and must start it again."""
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    try:
        yield broker.start()
    finally:
        broker.close()
