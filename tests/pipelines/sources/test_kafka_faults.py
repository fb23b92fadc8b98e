"""Kafka with faults: the broker killed, the queries cut, a batch replayed; then tables equal what was produced."""

import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines import kafka
from tests.worlds.processes import kill_hard, let_pass, wait_until
from tests.worlds.spark.declared import lake_of
from tests.worlds.spark.host_process import FAST, World
from tests.worlds.spark.lakes import DemoLake
from tests.worlds.streams.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.ci, pytest.mark.timeout(900)]
NAME = "bronze_orders"
BOTH = (NAME, f"{NAME}_dead_letters")


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
            wait_until(lambda before=before: len(shop.ledger) > before, "the shop goes on")
            _cut_within_a_batch(lake, moments)
            _keep_running(lake)
        shop.close()
    finally:
        lake.runtime.cut(NAME)
    at_the_end = _lake(tmp_path, kafka_broker, topic, trigger="available now", limit=10_000)
    at_the_end.process(NAME)
    check(at_the_end, kafka_broker.read(topic), shop.ledger)
    kafka_broker.produce(topic, [(None, b'{"id": -1}'), (None, b"cut")])
    at_the_end.process(NAME)
    at_the_end.forget_last_batch(NAME)  # the host died after the commit and before the checkpoint knew
    at_the_end.process(NAME)
    check(at_the_end, kafka_broker.read(topic))


MODULE = """
import os, pathlib, time
from pipelines import Pipeline, append, kafka

shop = Pipeline("shop")
held, reached = pathlib.Path(os.environ["HELD"]), pathlib.Path(os.environ["REACHED"])


class Held:
    def __init__(self, sink):
        self.sink = sink

    def __getattr__(self, name):
        return getattr(self.sink, name)

    def write(self, batch, target):
        self.sink.write(batch, target)
        while held.exists():
            reached.touch()
            time.sleep(0.05)


orders = kafka(os.environ["SERVERS"], "held_orders", format="json", schema="id BIGINT")

@shop.streaming_table("bronze_orders", source=orders, sink=Held(append()), trigger="200 milliseconds")
def bronze_orders(records):
    return records
"""


def test_a_host_killed_between_rows_and_dead_letters_has_each_record_once(
    kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic, module = kafka_broker.create("held_orders"), tmp_path / "module"
    module.mkdir()
    (module / "held_shop.py").write_text(MODULE)
    held, reached = tmp_path / "held", tmp_path / "reached"
    env = {"HELD": str(held), "REACHED": str(reached), "SERVERS": kafka_broker.servers, "PYTHONPATH": str(module)}
    world = World(tmp_path / "home", {**FAST, **env, "WEIR_HOST__PIPELINES": '["held_shop"]'}, (NAME,))

    def there() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        rows, letters = (world.rows(f"bronze/{name}").to_pylist() for name in BOTH)
        return rows, letters

    try:
        host = world.host()
        kafka_broker.produce(topic, [(None, b'{"id": 1}'), (None, b"cut")])
        world.until_batch(0)
        held.touch()
        kafka_broker.produce(topic, [(None, b'{"id": %d}' % number) for number in range(2, 9)] + [(None, b"[]")] * 5)
        world.until(reached.exists, "rows are written, dead letters are not")
        kill_hard(host)
        rows, letters = there()
        assert len(rows) > 1 and len(letters) == 1, "the kill came between the two"
        held.unlink()
        world.host()
        kafka_broker.produce(topic, [(None, b'{"id": 9}'), (None, b"12")])
        sent = {(record.partition(), record.offset()): record.value() for record in kafka_broker.read(topic)}
        world.until(lambda: sum(map(len, there())) >= len(sent), "all records are there")
        rows, letters = there()
        assert Counter((row["partition"], row["offset"]) for row in rows + letters) == Counter(sent.keys())
        assert sorted(row["id"] for row in rows) == list(range(1, 10))
        assert {(row["partition"], row["offset"]): row["value"] for row in letters} == {
            place: value for place, value in sent.items() if not value.startswith(b"{")
        }
    finally:
        world.close()


@pytest.mark.parametrize("ahead", BOTH)
def test_checkpoints_of_two_queries_go_on_as_one(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path, ahead: str
) -> None:
    """As former versions left them: each at a place of its own, killed before its checkpoint knew of its last batch."""
    topic = kafka_broker.create(f"two_queries_{ahead}", partitions=2)
    lake = _lake(tmp_path, kafka_broker, topic, trigger="available now", limit=10_000)
    for number, names in enumerate([BOTH, BOTH, [ahead]]):
        values = [b'{"id": %d}' % number, b"cut %d" % number, b"[%d]" % number, b'{"id": %d}' % -number]
        kafka_broker.produce(topic, [(b"%d" % each, value) for each in range(3) for value in values])
        for name in names:
            _run_formerly(lake, kafka_broker, topic, name)
    for name in BOTH:
        commits = tmp_path / "checkpoints" / name / "commits"
        max(commits.glob("[0-9]*"), key=lambda path: int(path.name)).unlink()
    for _ in range(2):
        lake.process(NAME)
        check(lake, kafka_broker.read(topic))
        kafka_broker.produce(topic, [(None, b'{"id": 7}'), (None, b"cut again")])
    lake.process(NAME)
    check(lake, kafka_broker.read(topic))


def _run_formerly(lake: DemoLake, broker: KafkaBroker, topic: str, name: str) -> None:
    """One of the two queries, with Delta's own sink."""
    options = {"kafka.bootstrap.servers": broker.servers, "subscribe": topic, "startingOffsets": "earliest"}
    records = lake.runtime.session.readStream.format("kafka").options(**options).load()
    beside = ("topic", "partition", "offset", "timestamp", "key")
    is_row, parsed = F.expr("value LIKE '{%'"), F.from_json(F.col("value").cast("string"), "id BIGINT")
    if name == NAME:
        records = records.where(is_row).select(parsed["id"].alias("id"), *beside)
    else:
        records = records.where(~is_row).select(*beside, "value", F.lit("not JSON").alias("reason"))
    checkpoint = str(lake.settings.home / "checkpoints" / name)
    writer = records.writeStream.format("delta").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start(lake.uri(f"bronze/{name}")).awaitTermination()


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
    """As the host does: start it where it does not run, until it has done a batch more."""
    before = _batches(lake)[1]

    def moved() -> bool:
        if not lake.runtime.poll(NAME).active:
            lake.runtime.start(NAME)
        return _batches(lake)[1] > before

    wait_until(moved, "the stream moves", pause_s=0.1)


def _cut_within_a_batch(lake: DemoLake, moments: random.Random) -> None:
    """Cut at random moments until a batch was left half done."""
    for _ in range(20):
        if not lake.runtime.poll(NAME).active:  # it gave up while the broker was away
            lake.runtime.start(NAME)
        wait_until(lambda: len(set(_batches(lake))) > 1, "a batch runs", pause_s=0.005)
        let_pass(moments, 0, 0.3)
        lake.runtime.cut(NAME)
        assert not lake.runtime.poll(NAME).active
        planned, done = _batches(lake)
        if planned > done:
            return
    raise AssertionError("no cut came within a batch")


def _batches(lake: DemoLake) -> tuple[int, int]:
    """The last batch that was planned, and the last that is done."""
    checkpoint = lake.settings.home / "checkpoints" / NAME
    kinds = ([int(path.name) for path in (checkpoint / kind).glob("[0-9]*")] for kind in ("offsets", "commits"))
    planned, done = (max(numbers, default=-1) for numbers in kinds)
    return planned, done
