"""The broker that the Kafka tests trust: what was acknowledged is there after kill -9."""

import pytest

from tests.worlds.streams.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.ci]


def test_what_was_acknowledged_outlives_a_kill(kafka_broker: KafkaBroker) -> None:
    topic = kafka_broker.create("outlives", partitions=2)
    sent = kafka_broker.produce(topic, [(b"k", b"%d" % number) for number in range(10)])
    kafka_broker.kill()
    kafka_broker.start()
    sent += kafka_broker.produce(topic, [(None, None), (None, b"after")])
    places = sorted((message.partition(), message.offset(), message.value()) for message in sent)
    assert [(m.partition(), m.offset(), m.value()) for m in kafka_broker.read(topic)] == places
    assert len(places) == 12
