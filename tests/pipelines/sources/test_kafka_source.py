"""Kafka as a source, against a real broker: every record is a row or a dead letter, each once.

Rule: what a test expects is what the broker acknowledged to an independent client.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from backend.errors import LakehouseError
from backend.settings import load_settings
from backend.stream_model.stream import StreamFailure
from backend.streams.faults import MISFIT, recognise
from pipelines import Pipeline, append, complete, expect, kafka, secret, update
from pipelines.declare.registry import declarations
from pipelines.jvm.failures import StreamStartError
from pipelines.sources.kafka import KafkaSource
from pipelines.spark.analysis import Analysis
from pipelines.specs.sinks import Sink, Target
from tests.worlds.spark.declared import lake_of as tables_of
from tests.worlds.spark.declared import pipeline_of, registry_of
from tests.worlds.spark.lakes import DemoLake, open_lake
from tests.worlds.streams.kafka_broker import PASSWORD, USER, KafkaBroker

pytestmark = pytest.mark.spark
ORDER = (
    "id BIGINT, name STRING, amount DECIMAL(7,2), at TIMESTAMP, place STRUCT<city: STRING, zip: INT>, tags ARRAY<INT>"
)
LakeOf = Callable[..., DemoLake]


@pytest.fixture
def lake_of(spark: SparkSession, tmp_path: Path) -> LakeOf:
    """An open lake with a stream for each source, which reads what is there and ends; a JSON one with its letters."""

    def build(**sources: KafkaSource) -> DemoLake:
        pipeline = Pipeline("shop")
        for name, source in sources.items():
            pipeline.streaming_table(name, source=source, trigger="available now")(lambda records: records)
        assert not pipeline.problems
        return open_lake(load_settings(home=tmp_path), *pipeline.streams)

    return build


def place(record: Row | Message) -> tuple[str, int, int]:
    if isinstance(record, Row):
        return record["topic"], record["partition"], record["offset"]
    return record.topic(), record.partition(), record.offset()  # type: ignore[return-value]


def by_place(records: list[Row]) -> dict[tuple[str, int, int], Row]:
    """The rows; fails where one is there twice."""
    found = {place(row): row for row in records}
    assert len(found) == len(records)
    return found


@pytest.mark.ci
def test_bytes_and_text_with_where_each_record_lay(kafka_broker: KafkaBroker, lake_of: LakeOf) -> None:
    topic = kafka_broker.create("plain")
    sent = kafka_broker.produce(
        topic, [(b"a", b"one"), (None, b""), (b"b", None), (b"\xff", "grün".encode()), (None, b"\xff\xfe")]
    )
    lake = lake_of(
        bronze_bytes=kafka(kafka_broker.servers, topic), bronze_text=kafka(kafka_broker.servers, topic, format="text")
    )
    lake.process("bronze_bytes", "bronze_text")
    rows, texts = by_place(lake.rows("bronze/bronze_bytes")), by_place(lake.rows("bronze/bronze_text"))
    assert {place(each): (each.key(), each.value()) for each in sent} == {
        where: (row.key and bytes(row.key), None if row.value is None else bytes(row.value))
        for where, row in rows.items()
    }
    stamped = {place(each): datetime.fromtimestamp(each.timestamp()[1] / 1_000, UTC) for each in sent}
    assert {where: row.timestamp.replace(tzinfo=UTC) for where, row in rows.items()} == stamped
    assert {row.value for row in texts.values()} == {"one", "", None, "grün", "\ufffd\ufffd"}
    assert list(rows[place(sent[0])].asDict()) == ["value", "key", "topic", "partition", "offset", "timestamp"]


GOOD = {
    b'{"id": 1, "name": "a", "amount": 1.50, "at": "2026-01-01T00:00:00Z", "place": {"zip": 7}, "tags": [1]}': 1,
    b' {"id": 2}\n': 2,
    b'{"id": 3, "unknown": [[{}]], "name": {"text": 1}}': 3,
    b'{"id": 4, "amount": null}': 4,
    b'{"id": 5, "name": "}{ ]}"}': 5,
    b"{}": None,
    b"null": None,
    b'{"name": "' + b"x" * 5_000_000 + b'"}': None,
}
BAD = {
    b"": "not JSON",
    b"  ": "not JSON",
    b"hello": "not JSON",
    b'{"id": 1, "na': "not JSON",
    b"{'id': 1}": "not JSON",
    b'{"id": 1},': "more follows the JSON object",
    b'{"id": 1}{"id": 2}': "more follows the JSON object",
    b'{"id": 1}, {"id": 2}': "more follows the JSON object",
    b'{"id": 1} tail': "more follows the JSON object",
    b'{"id": 1}}': "more follows the JSON object",
    b'{"id": 2}], "more": [{"id": 3}': "more follows the JSON object",
    b'{"id": 4}],"end":1,"x":[': "more follows the JSON object",
    b'{"id": 1, "at": 1700000000000}': "does not fit the schema: at",
    b'[{"id": 1}]': "not a JSON object",
    b"[]": "not a JSON object",
    b"12": "not a JSON object",
    b'"id"': "not a JSON object",
    b'{"id": "one"}': "does not fit the schema: id",
    b'{"id": 1.5, "at": "tomorrow"}': "does not fit the schema: id, at",
    b'{"id": 99999999999999999999}': "does not fit the schema: id",
    b'{"id": 1, "amount": 123456789}': "does not fit the schema: amount",
    b'{"id": 1, "place": 7}': "does not fit the schema: place",
    b'{"id": 1, "place": {"zip": "x"}}': "does not fit the schema",
    b'{"id": 1, "tags": [1, "x"]}': "does not fit the schema: tags",
    b'{"id": 1, "name": "\xff"}': "not UTF-8",
    b"\x00\x00\x00\x00\x01\x02": "not JSON",
    b'{"x":' * 2_000 + b"1" + b"}" * 2_000: "not JSON",
}


def test_a_json_record_is_a_row_or_a_dead_letter_each_once(kafka_broker: KafkaBroker, lake_of: LakeOf) -> None:
    topic = kafka_broker.create("json_orders", max_message_bytes="10000000")
    values = [None, *GOOD, *BAD]
    first = kafka_broker.produce(topic, [(b"k", value) for value in values])
    lake = lake_of(bronze_orders=kafka(kafka_broker.servers, topic, format="json", schema=ORDER))
    both = ("bronze_orders", "bronze_orders_dead_letters")
    assert lake.process("bronze_orders") == [len(values)], "one query has read each record once"
    plan = lake.runtime._queries["bronze_orders"]._jsq.explainInternal(False)
    assert plan.count("from_json(StructField(all") == 1, "a record is parsed once, not for the filter again"
    second = kafka_broker.produce(topic, [(None, b'{"id": 6}'), (None, b"cut {")])
    lake.process("bronze_orders")

    rows, letters = (by_place(lake.rows(f"bronze/{name}")) for name in both)
    sent = {place(each): each for each in first + second}
    assert not set(rows) & set(letters)
    assert set(rows) | set(letters) == set(sent)
    wanted = {**BAD, b"cut {": "not JSON"}
    assert {bytes(letter.value): letter.reason for letter in letters.values()} == wanted
    assert len(letters) == len(wanted)
    assert all(bytes(letter.value) == sent[where].value() for where, letter in letters.items())
    assert all((letter.key and bytes(letter.key)) == sent[where].key() for where, letter in letters.items())
    ids = {None: None, **GOOD, b'{"id": 6}': 6}
    assert {where: row.id for where, row in rows.items()} == {where: ids[sent[where].value()] for where in rows}
    whole = next(row for row in rows.values() if row.id == 1)
    assert (str(whole.amount), whole.place.zip, whole.tags, whole.key) == ("1.50", 7, [1], bytearray(b"k"))
    assert next(row.name for row in rows.values() if row.id == 5) == "}{ ]}"
    versions = lake.versions("bronze/bronze_orders_dead_letters")
    kafka_broker.produce(topic, [(None, b'{"id": 7}')])
    lake.process("bronze_orders")
    assert lake.versions("bronze/bronze_orders_dead_letters") == versions, "no commit where there are none"


EVENT = "event_id STRING, user_id STRING, event_type STRING, amount DOUBLE, timestamp TIMESTAMP"


def test_the_records_own_columns_move_aside_for_those_of_the_schema(
    kafka_broker: KafkaBroker, lake_of: LakeOf, tmp_path: Path
) -> None:
    topic = kafka_broker.create("moved_aside", partitions=1)
    event = (
        b'{"event_id": "e1", "user_id": "u1", "event_type": "buy", "amount": 2.5, "timestamp": "2026-01-01T00:00:00Z"}'
    )
    (good, bad) = kafka_broker.produce(topic, [(b"k", event), (None, b"cut {")])
    named = {"format": "json", "schema": EVENT}
    lake = lake_of(bronze_events=kafka(kafka_broker.servers, topic, prefix="kafka_", **named))  # type: ignore[arg-type]
    lake.process("bronze_events")
    (row,) = lake.rows("bronze/bronze_events")
    assert (row.event_id, row.timestamp, row.kafka_topic) == ("e1", datetime(2026, 1, 1), topic)
    assert (row.kafka_partition, row.kafka_offset) == place(good)[1:]
    assert row.kafka_timestamp.replace(tzinfo=UTC).timestamp() == good.timestamp()[1] / 1_000
    (letter,) = lake.rows("bronze/bronze_events_dead_letters")
    assert (place(letter), bytes(letter.value), letter.reason) == (place(bad), b"cut {", "not JSON")

    plain = pipeline_of(kafka(kafka_broker.servers, topic, **named), name="bronze_plain")  # type: ignore[arg-type]
    problems = Analysis(registry_of(plain), lake.runtime.session, load_settings(home=tmp_path)).run().problems
    message = "kafka: schema has timestamp, which is the record's own"
    hint = 'write prefix="kafka_" to call the record\'s own kafka_…'
    assert {(problem.message, problem.hint) for problem in problems} == {(message, hint)}


def test_a_misfit_is_null_or_ends_the_stream_where_that_is_said(kafka_broker: KafkaBroker, lake_of: LakeOf) -> None:
    topic = kafka_broker.create("misfits", partitions=1)
    kafka_broker.produce(topic, [(None, b'{"id": 1, "n": "x"}'), (None, b'{"id": 2, "n": 300}'), (None, b"cut {")])
    named = {"format": "json", "schema": "id BIGINT, n TINYINT"}
    lake = lake_of(
        bronze_null=kafka(kafka_broker.servers, topic, misfit="null", **named),  # type: ignore[arg-type]
        bronze_fail=kafka(kafka_broker.servers, topic, misfit="fail", **named),  # type: ignore[arg-type]
    )
    lake.process("bronze_null")
    assert sorted((row.id, row.n) for row in lake.rows("bronze/bronze_null")) == [(1, None), (2, None)]
    assert [row.reason for row in lake.rows("bronze/bronze_null_dead_letters")] == ["not JSON"]
    lake.runtime.start("bronze_fail")
    failure = lake.ended("bronze_fail").failure
    assert failure
    assert f"record 0 of partition 0 of topic {topic} cannot be parsed: does not fit the schema: n" in failure.message
    assert lake.rows("bronze/bronze_fail") == []
    known = recognise(StreamFailure(*failure, 0, datetime(2026, 1, 1, tzinfo=UTC)))
    assert known[0] is MISFIT


def test_records_of_an_aborted_transaction_are_no_rows(kafka_broker: KafkaBroker, lake_of: LakeOf) -> None:
    topic = kafka_broker.create("transacted", partitions=1)
    writer = Producer({"bootstrap.servers": kafka_broker.servers, "transactional.id": topic})
    writer.init_transactions(60)
    for number, end in ((1, writer.commit_transaction), (2, writer.abort_transaction), (3, writer.commit_transaction)):
        writer.begin_transaction()
        writer.produce(topic, b'{"id": %d}' % number)
        writer.flush(60)
        end(60)
    named = {"format": "json", "schema": "id BIGINT"}
    loose = {"kafka.isolation.level": "read_uncommitted"}
    lake = lake_of(
        bronze_settled=kafka(kafka_broker.servers, topic, **named),  # type: ignore[arg-type]
        bronze_all=kafka(kafka_broker.servers, topic, options=loose, **named),  # type: ignore[arg-type]
    )
    lake.process("bronze_settled", "bronze_all")
    assert sorted(row.id for row in lake.rows("bronze/bronze_settled")) == [1, 3]
    assert sorted(row.id for row in lake.rows("bronze/bronze_all")) == [1, 2, 3]


@pytest.mark.ci
def test_a_list_and_a_pattern_in_small_batches(kafka_broker: KafkaBroker, lake_of: LakeOf) -> None:
    for name in ("many_a", "many_b", "manyfold"):
        kafka_broker.produce(kafka_broker.create(name), [(None, name.encode())] * 10)
    lake = lake_of(
        bronze_listed=kafka(kafka_broker.servers, ["many_a", "manyfold"], maxOffsetsPerTrigger=8, minPartitions=4),
        bronze_matched=kafka(kafka_broker.servers, re.compile("many_.*"), format="text", includeHeaders=True),
    )
    lake.process("bronze_listed", "bronze_matched")
    assert {row.topic for row in lake.rows("bronze/bronze_listed")} == {"many_a", "manyfold"}
    assert len(by_place(lake.rows("bronze/bronze_listed"))) == 20
    batches = [each["numInputRows"] for each in lake.heard.progress if each["name"] == "bronze_listed"]
    assert max(batches) <= 8
    assert {row.value for row in lake.rows("bronze/bronze_matched")} == {"many_a", "many_b"}
    assert lake.rows("bronze/bronze_matched")[0].headers is None
    kafka_broker.produce("many_b", [(None, b"later")] * 10)
    smaller = lake.process("bronze_matched", overrides={"maxOffsetsPerTrigger": "4"})
    assert sum(smaller) == 10 and max(smaller) <= 4, "as a person set it"


@pytest.mark.soak
def test_where_a_stream_begins_and_ends(kafka_broker: KafkaBroker, lake_of: LakeOf) -> None:
    topic, noon = kafka_broker.create("timed", partitions=1), datetime(2026, 1, 1, 12, tzinfo=UTC)
    for minutes in range(10):
        kafka_broker.produce(topic, [(None, b"%d" % minutes)], timestamp=noon + timedelta(minutes=minutes))
    at = {"servers": kafka_broker.servers, "topics": topic, "format": "text"}
    lake = lake_of(
        bronze_offset=kafka(**at, starting={topic: {0: 4}}, ending={topic: {0: 7}}),  # type: ignore[arg-type]
        bronze_time=kafka(**at, starting=noon + timedelta(minutes=7), ending=noon + timedelta(minutes=9)),  # type: ignore[arg-type]
        bronze_future=kafka(**at, starting=datetime(2100, 1, 1, tzinfo=UTC), ending={"other": {0: 0}, topic: {1: 0}}),  # type: ignore[arg-type]
    )
    lake.process("bronze_offset", "bronze_time", "bronze_future")
    kafka_broker.produce(topic, [(None, b"new")])
    lake.process("bronze_future")
    found = {name: [row.value for row in lake.rows(f"bronze/bronze_{name}")] for name in ("offset", "time", "future")}
    assert {name: sorted(values) for name, values in found.items()} == {
        "offset": ["4", "5", "6"],
        "time": ["7", "8"],
        "future": ["new"],
    }


@pytest.mark.ci
def test_rows_and_dead_letters_begin_where_the_first_start_was(kafka_broker: KafkaBroker, lake_of: LakeOf) -> None:
    topic = kafka_broker.create("late")
    kafka_broker.produce(topic, [(None, b'{"id": 1}'), (None, b"old")])
    lake = lake_of(bronze_late=kafka(kafka_broker.servers, topic, format="json", schema=ORDER, starting="latest"))
    lake.process("bronze_late")
    kafka_broker.produce(topic, [(None, b'{"id": 2}'), (None, b"between")])
    kafka_broker.widen(topic, 3)
    kafka_broker.produce(topic, [(None, b"in a new partition")], partition=2)
    lake.process("bronze_late")
    assert [row.id for row in lake.rows("bronze/bronze_late")] == [2]
    letters = {bytes(row.value) for row in lake.rows("bronze/bronze_late_dead_letters")}
    assert letters == {b"between", b"in a new partition"}


@dataclass
class Dying:
    """A sink at which the stream dies once, after the rows are written."""

    sink: Sink
    died: int = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.sink, name)

    def write(self, batch: DataFrame, target: Target) -> None:
        self.sink.write(batch, target)
        self.died += 1
        if self.died == 1:
            raise RuntimeError("died between two writes")


def counted(records: DataFrame) -> DataFrame:
    """A function with state, which no dead letter may reach."""
    return records.groupBy("name").agg(F.count("*").alias("orders"), F.sum("id").alias("ids"))


def both(records: DataFrame, others: DataFrame) -> DataFrame:
    return records.unionByName(others)


def quarantined(records: DataFrame) -> DataFrame:
    return records.where("id > 0")


PLACES = [(b"k", b'{"id": 1, "name": "a"}'), (b"k", b"cut {"), (b"k", b'{"id": 2, "name": "a"}'), (b"k", b"[]")]


@pytest.mark.parametrize(
    ("function", "sink", "about", "wanted"),
    [
        (quarantined, append(), {}, {(1, "a"), (2, "a")}),
        (quarantined, append(), {"expectations": [expect("small", "id < 2", "quarantine")]}, {(1, "a")}),
        pytest.param(counted, complete(), {}, {("a", 2, 3)}, marks=pytest.mark.ci),
        pytest.param(counted, update(keys=["name"]), {}, {("a", 2, 3)}, marks=pytest.mark.ci),
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
    source = kafka(kafka_broker.servers, topic, format="json", schema="id BIGINT, name STRING")
    lake = tables_of(tmp_path, source, function, sink=dying, **about)
    lake.runtime.start("bronze_orders")
    failure = lake.ended("bronze_orders").failure
    assert failure is not None and "died between two writes" in failure.message
    assert lake.rows("bronze/bronze_orders") and not lake.rows("bronze/bronze_orders_dead_letters")
    lake.process("bronze_orders")
    kafka_broker.produce(topic, [(b"k", b"12")])
    lake.process("bronze_orders")
    assert dying.died > 1, "the batch was replayed"
    assert {tuple(row)[: len(next(iter(wanted)))] for row in lake.rows("bronze/bronze_orders")} == wanted
    assert len(lake.rows("bronze/bronze_orders")) == len(wanted)
    letters = [(row.offset, bytes(row.value)) for row in lake.rows("bronze/bronze_orders_dead_letters")]
    assert sorted(letters) == [(1, b"cut {"), (3, b"[]"), (4, b"12")]


class Peeking(Dying):
    """A sink that reads one row of a batch."""

    def write(self, batch: DataFrame, target: Target) -> None:
        batch.limit(1).collect()


def test_all_dead_letters_of_a_batch_are_there_however_little_of_it_was_read(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka_broker.create("peeked", partitions=2)
    sent = kafka_broker.produce(
        topic, [(b"%d" % number, b'{"id": 1}' if number < 90 else b"cut") for number in range(99)]
    )
    source = kafka(kafka_broker.servers, topic, format="json", schema="id BIGINT, name STRING")
    lake = tables_of(tmp_path, source, sink=Peeking(append()))
    lake.process("bronze_orders")
    letters = [(row.partition, row.offset) for row in lake.rows("bronze/bronze_orders_dead_letters")]
    assert sorted(letters) == sorted((each.partition(), each.offset()) for each in sent if each.value() == b"cut")


def windowed(records: DataFrame) -> DataFrame:
    """Its last batch reads nothing: Spark runs it to let go of what the watermark has passed."""
    late = records.withWatermark("timestamp", "1 second")
    return late.groupBy(F.window("timestamp", "1 second"), "name").agg(F.sum("id").alias("ids")).drop("window")


def test_a_batch_without_records_has_no_dead_letters(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic, noon = kafka_broker.create("windowed", partitions=1), datetime(2026, 1, 1, 12, tzinfo=UTC)
    kafka_broker.produce(topic, PLACES, timestamp=noon)
    kafka_broker.produce(topic, [(b"k", b'{"id": 9}')], timestamp=noon + timedelta(minutes=1))
    source = kafka(kafka_broker.servers, topic, format="json", schema="id BIGINT, name STRING")
    lake = tables_of(tmp_path, source, windowed)
    lake.process("bronze_orders")
    batches = [progress["numInputRows"] for progress in lake.heard.progress]
    assert 0 in batches and sum(batches) == 5
    assert [(row.name, row.ids) for row in lake.rows("bronze/bronze_orders")] == [("a", 3)]
    assert sorted(row.offset for row in lake.rows("bronze/bronze_orders_dead_letters")) == [1, 3]


def test_two_topics_in_one_function_have_their_dead_letters_in_one_table(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topics = [kafka_broker.create(f"two_{number}", partitions=1) for number in range(3)]
    for topic in topics:
        kafka_broker.produce(topic, [*PLACES, (b"k", topic.encode())])
    sources = [
        kafka(kafka_broker.servers, topic, format="json", schema="id BIGINT, name STRING") for topic in topics[:2]
    ]
    lake = tables_of(tmp_path, sources, both)
    lake.process("bronze_orders")
    assert len(lake.rows("bronze/bronze_orders")) == 4
    letters = [(row.topic, row.offset) for row in lake.rows("bronze/bronze_orders_dead_letters")]
    assert sorted(letters) == [(topic, offset) for topic in topics[:2] for offset in (1, 3, 4)]


def test_a_secret_opens_the_broker_and_is_shown_nowhere(
    kafka_broker: KafkaBroker, lake_of: LakeOf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    topic = kafka_broker.create("guarded")
    kafka_broker.produce(topic, [(None, b"x")])
    (tmp_path / "wrong").write_text("no such password\n")
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{USER}" password="{{}}";'
    client = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}

    def source(place: str) -> KafkaSource:
        guarded = {**client, "kafka.sasl.jaas.config": secret(place, within=jaas)}
        return kafka(kafka_broker.sasl_servers, topic, starting="latest", options=guarded)

    lake = lake_of(bronze_guarded=source("env:TEST_KAFKA_PASSWORD"), bronze_wrong=source(f"file:{tmp_path / 'wrong'}"))
    with pytest.raises(LakehouseError, match="there is no secret at env:TEST_KAFKA_PASSWORD") as refused:
        lake.runtime.start("bronze_guarded")
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", PASSWORD)
    lake.process("bronze_guarded")
    kafka_broker.produce(topic, [(None, b"y")])
    lake.process("bronze_guarded")
    assert [bytes(row.value) for row in lake.rows("bronze/bronze_guarded")] == [b"y"]
    with pytest.raises(StreamStartError) as wrong:
        lake.runtime.start("bronze_wrong")
    registry = lake.runtime._registry
    shown = f"{refused.value} {wrong.value} {registry.streams} {declarations(registry, lake.settings)}"
    logs = "".join(path.read_text(errors="replace") for path in spark_logs(lake.runtime.session))
    checkpoint = "".join(
        path.read_text(errors="replace") for path in (tmp_path / "checkpoints").rglob("*") if path.is_file()
    )
    for hidden in (PASSWORD, PASSWORD.replace('"', '\\"'), "no such password"):
        assert hidden not in shown + logs + checkpoint
    assert "env:TEST_KAFKA_PASSWORD" in shown


def spark_logs(session: SparkSession) -> list[Path]:
    options = session.conf.get("spark.driver.extraJavaOptions") or ""
    folder = Path(options.split("log4j2.configurationFile=file:")[1].split("/log4j2.properties")[0])
    return [path for path in folder.glob("*.log") if path.is_file()]


@pytest.mark.ci
def test_a_topic_made_anew_is_told_not_skipped(kafka_broker: KafkaBroker, lake_of: LakeOf) -> None:
    topic = kafka_broker.create("anew", partitions=1)
    kafka_broker.produce(topic, [(None, b"%d" % number) for number in range(5)])
    strict = kafka(kafka_broker.servers, topic, format="text")
    loose = kafka(kafka_broker.servers, topic, format="text", failOnDataLoss=False)
    lake = lake_of(bronze_strict=strict, bronze_loose=loose)
    lake.process("bronze_strict", "bronze_loose")
    kafka_broker.delete(topic)
    kafka_broker.produce(kafka_broker.create(topic, partitions=1), [(None, b"anew")])
    lake.runtime.start("bronze_strict")
    ended = lake.ended("bronze_strict")
    assert ended.failure is not None
    assert ended.failure.error_class == "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED"
    assert "data may have been lost" in ended.failure.message
    assert len(lake.rows("bronze/bronze_strict")) == 5
    lake.process("bronze_loose")
    assert len(lake.rows("bronze/bronze_loose")) >= 5


def test_a_topic_that_is_not_there_is_named(kafka_broker: KafkaBroker, lake_of: LakeOf) -> None:
    lake = lake_of(bronze_nothing=kafka(kafka_broker.servers, "no_such_topic", starting="latest"))
    with pytest.raises(LakehouseError, match="there is no topic no_such_topic"):
        lake.runtime.start("bronze_nothing")
