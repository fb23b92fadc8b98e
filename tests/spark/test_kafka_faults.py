"""Kafka with faults: the broker killed, the queries cut, a batch replayed; then tables equal what was produced."""

import random
import threading
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Message
from pyspark.sql import SparkSession

from pipelines import kafka
from tests.kafka_broker import KafkaBroker
from tests.processes import let_pass, wait_until
from tests.spark.declared import lake_of
from tests.spark.lakes import PATIENCE_S, DemoLake

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]
BOTH = ("bronze_orders", "bronze_orders_dead_letters")


class Shop(threading.Thread):
    """Produces orders until stopped, every seventh of them broken. `ledger`: what was acknowledged."""

    def __init__(self, broker: KafkaBroker, topic: str) -> None:
        super().__init__(daemon=True)
        self._broker, self._topic, self._over = broker, topic, threading.Event()
        self.ledger: list[Message] = []

    def run(self) -> None:
        number = 0
        while not self._over.wait(0.2):
            values = [b"cut {%d" % n if n % 7 == 0 else b'{"id": %d}' % n for n in range(number, number + 10)]
            self.ledger += self._broker.produce(self._topic, [(b"%d" % number, value) for value in values])
            number += 10

    def close(self) -> None:
        self._over.set()
        self.join(180)
        assert not self.is_alive(), "not all was acknowledged"


@pytest.mark.parametrize("rounds", [2, pytest.param(12, marks=pytest.mark.soak)])
def test_each_record_is_there_once_whatever_was_killed(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path, rounds: int
) -> None:
    topic, moments = kafka_broker.create(f"faults{rounds}", partitions=3), random.Random(rounds)
    lake = _lake(tmp_path, kafka_broker, topic, trigger="100 milliseconds", limit=10)
    shop = Shop(kafka_broker, topic)
    shop.start()
    try:
        _keep_running(lake)
        for _ in range(rounds):
            let_pass(moments, 0, 1)
            before = len(shop.ledger)
            kafka_broker.kill()
            let_pass(moments, 0, 1)
            kafka_broker.start()
            wait_until(lambda before=before: len(shop.ledger) > before, "the shop goes on", limit_s=120)
            _cut_within_a_batch(lake, moments.choice(BOTH), moments)
            _keep_running(lake)
        shop.close()
    finally:
        for name in BOTH:
            lake.runtime.cut(name)
    at_the_end = _lake(tmp_path, kafka_broker, topic, trigger="available now", limit=10_000)
    at_the_end.process(*BOTH)
    check(at_the_end, kafka_broker.read(topic), shop.ledger)
    kafka_broker.produce(topic, [(None, b'{"id": -1}'), (None, b"cut")])
    at_the_end.process(*BOTH)
    for name in BOTH:  # the host died after the commit and before the checkpoint knew
        at_the_end.forget_last_batch(name)
    at_the_end.process(*BOTH)
    check(at_the_end, kafka_broker.read(topic))


def check(lake: DemoLake, topic: list[Message], ledger: list[Message] | None = None) -> None:
    """Tables against an independent reader of the topic, and that against what was acknowledged."""
    there = {(each.partition(), each.offset()): each.value() for each in topic}
    if ledger is not None:
        assert Counter(there.values()) == Counter(each.value() for each in ledger), "the broker kept all, once"
    rows, letters = (lake.rows(f"bronze/{name}") for name in BOTH)
    found = Counter((row.partition, row.offset) for row in rows + letters)
    assert max(found.values()) == 1, "a record is there twice"
    assert found.keys() == there.keys(), "a record is missing, or made up"
    assert {(row.partition, row.offset): b'{"id": %d}' % row.id for row in rows} == {
        place: value for place, value in there.items() if value.startswith(b'{"')
    }
    assert all(bytes(row.value) == there[row.partition, row.offset] for row in letters)
    assert rows, "an empty table proves nothing"
    assert letters, "nor do no dead letters"


def _lake(home: Path, broker: KafkaBroker, topic: str, *, trigger: str, limit: int) -> DemoLake:
    source = kafka(broker.servers, topic, format="json", schema="id BIGINT", maxOffsetsPerTrigger=limit)
    return lake_of(home, source, trigger=trigger)


def _keep_running(lake: DemoLake) -> None:
    """As the host does: start what is not running, until each stream has done a batch more."""
    before = {name: _batches(lake, name)[1] for name in BOTH}

    def moved() -> bool:
        for name in BOTH:
            if not lake.runtime.poll(name).active:
                lake.runtime.start(name)
        return all(_batches(lake, name)[1] > before[name] for name in BOTH)

    wait_until(moved, "both streams move", limit_s=PATIENCE_S, pause_s=0.1)


def _cut_within_a_batch(lake: DemoLake, name: str, moments: random.Random) -> None:
    """Cut at random moments until a batch was left half done."""
    for _ in range(20):
        if not lake.runtime.poll(name).active:  # it gave up while the broker was away
            lake.runtime.start(name)
        wait_until(lambda: len(set(_batches(lake, name))) > 1, "a batch runs", limit_s=PATIENCE_S, pause_s=0.005)
        let_pass(moments, 0, 0.3)
        lake.runtime.cut(name)
        assert not lake.runtime.poll(name).active
        planned, done = _batches(lake, name)
        if planned > done:
            return
    raise AssertionError("no cut came within a batch")


def _batches(lake: DemoLake, name: str) -> tuple[int, int]:
    """The last batch that was planned, and the last that is done."""
    checkpoint = lake.settings.home / "checkpoints" / name
    kinds = ([int(path.name) for path in (checkpoint / kind).glob("[0-9]*")] for kind in ("offsets", "commits"))
    planned, done = (max(numbers, default=-1) for numbers in kinds)
    return planned, done
