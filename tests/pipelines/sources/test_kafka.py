"""Kafka as a source, against a real broker: every record is a row or a dead letter, each once; and what still waits.

Rule: what a test expects is what the broker acknowledged to an independent client.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from backend.errors import LakehouseError
from backend.lake.lake import Lake
from backend.settings import load_settings
from backend.store.store import ControlStore
from backend.stream_model.backlog import Backlog
from backend.stream_model.progress import parse_progress
from backend.stream_model.stream import TopicEnds
from backend.streams.backlog import BacklogReader, batch_end, lags
from backend.streams.faults import MISFIT, recognise
from pipelines import Pipeline, append, complete, expect, kafka, secret, update
from pipelines.declare.pipeline import declaration, declarations
from pipelines.host.backlogs import TopicWatch
from pipelines.host.stream_host import utc_now
from pipelines.jvm.failures import StreamStartError
from pipelines.sources.kafka import KafkaSource
from pipelines.spark.tables import Analysis
from pipelines.specs.ends import Sink, Target
from tests.worlds.cases import few, soak
from tests.worlds.processes import wait_until
from tests.worlds.spark.declared import Dying, lake_of, pipeline_of, registry_of, same
from tests.worlds.spark.lakes import DemoLake, open_lake
from tests.worlds.streams.kafka_broker import PASSWORD, USER, KafkaBroker

pytestmark = pytest.mark.spark

ORDER = (
    "id BIGINT, name STRING, amount DECIMAL(7,2), at TIMESTAMP, place STRUCT<city: STRING, zip: INT>, tags ARRAY<INT>"
)
StreamsOf = Callable[..., DemoLake]


@pytest.fixture
def streams_of(spark: SparkSession, tmp_path: Path) -> StreamsOf:
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
def test_bytes_and_text_with_where_each_record_lay(kafka_broker: KafkaBroker, streams_of: StreamsOf) -> None:
    topic = kafka_broker.create("plain")
    sent = kafka_broker.produce(
        topic, [(b"a", b"one"), (None, b""), (b"b", None), (b"\xff", "grün".encode()), (None, b"\xff\xfe")]
    )
    lake = streams_of(
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
BAD = {  # tests of JSON text have more of each kind
    b"": "not JSON",
    b"hello": "not JSON",
    b'{"id": 1, "na': "not JSON",
    b"{'id': 1}": "not JSON",
    b'{"id": 1},': "more follows the JSON object",
    b'{"id": 1}{"id": 2}': "more follows the JSON object",
    b'{"id": 2}], "more": [{"id": 3}': "more follows the JSON object",
    b'[{"id": 1}]': "not a JSON object",
    b"12": "not a JSON object",
    b'{"id": "one"}': "does not fit the schema: id",
    b'{"id": 1.5, "at": "tomorrow"}': "does not fit the schema: id, at",
    b'{"id": 1, "place": {"zip": "x"}}': "does not fit the schema",
    b'{"id": 1, "name": "\xff"}': "not UTF-8",
    b"\x00\x00\x00\x00\x01\x02": "not JSON",
    b'{"x":' * 2_000 + b"1" + b"}" * 2_000: "not JSON",
}


def test_a_json_record_is_a_row_or_a_dead_letter_each_once(kafka_broker: KafkaBroker, streams_of: StreamsOf) -> None:
    topic = kafka_broker.create("json_orders", max_message_bytes="10000000")
    values = [None, *GOOD, *BAD]
    first = kafka_broker.produce(topic, [(b"k", value) for value in values])
    lake = streams_of(bronze_orders=kafka(kafka_broker.servers, topic, format="json", schema=ORDER))
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


@pytest.mark.ci
def test_the_records_own_columns_move_aside_for_those_of_the_schema(
    kafka_broker: KafkaBroker, streams_of: StreamsOf, tmp_path: Path
) -> None:
    topic = kafka_broker.create("moved_aside", partitions=1)
    event = b'{"event_id": "e1", "timestamp": "2026-01-01T00:00:00Z"}'
    (good, bad) = kafka_broker.produce(topic, [(b"k", event), (None, b"cut {")])
    named = {"format": "json", "schema": "event_id STRING, timestamp TIMESTAMP"}
    lake = streams_of(bronze_events=kafka(kafka_broker.servers, topic, prefix="kafka_", **named))
    lake.process("bronze_events")
    (row,) = lake.rows("bronze/bronze_events")
    assert (row.event_id, row.timestamp, row.kafka_topic) == ("e1", datetime(2026, 1, 1), topic)
    assert (row.kafka_partition, row.kafka_offset) == place(good)[1:]
    assert row.kafka_timestamp.replace(tzinfo=UTC).timestamp() == good.timestamp()[1] / 1_000
    (letter,) = lake.rows("bronze/bronze_events_dead_letters")
    assert (place(letter), bytes(letter.value), letter.reason) == (place(bad), b"cut {", "not JSON")

    plain = pipeline_of(kafka(kafka_broker.servers, topic, **named), name="bronze_plain")
    problems = Analysis(registry_of(plain), lake.runtime.session, load_settings(home=tmp_path)).run().problems
    message = "kafka: schema has timestamp, which is the record's own"
    hint = 'write prefix="kafka_" to call the record\'s own kafka_…'
    assert {(problem.message, problem.hint) for problem in problems} == {(message, hint)}


@pytest.mark.soak
def test_a_misfit_is_null_or_ends_the_stream(kafka_broker: KafkaBroker, streams_of: StreamsOf) -> None:
    topic = kafka_broker.create("misfits", partitions=1)
    kafka_broker.produce(topic, [(None, b'{"id": 1, "n": "x"}'), (None, b'{"id": 2, "n": 300}'), (None, b"cut {")])
    named = {"format": "json", "schema": "id BIGINT, n TINYINT"}
    lake = streams_of(
        bronze_null=kafka(kafka_broker.servers, topic, misfit="null", **named),
        bronze_fail=kafka(kafka_broker.servers, topic, misfit="fail", **named),
    )
    lake.process("bronze_null")
    assert sorted((row.id, row.n) for row in lake.rows("bronze/bronze_null")) == [(1, None), (2, None)]
    assert [row.reason for row in lake.rows("bronze/bronze_null_dead_letters")] == ["not JSON"]
    failure = lake.failure_of("bronze_fail")
    assert f"record 0 of partition 0 of topic {topic} cannot be parsed: does not fit the schema: n" in failure.message
    assert lake.rows("bronze/bronze_fail") == []
    assert recognise(failure)[0] is MISFIT


@pytest.mark.soak
def test_records_of_an_aborted_transaction_are_no_rows(kafka_broker: KafkaBroker, streams_of: StreamsOf) -> None:
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
    lake = streams_of(
        bronze_settled=kafka(kafka_broker.servers, topic, **named),
        bronze_all=kafka(kafka_broker.servers, topic, options=loose, **named),
    )
    lake.process("bronze_settled", "bronze_all")
    assert sorted(row.id for row in lake.rows("bronze/bronze_settled")) == [1, 3]
    assert sorted(row.id for row in lake.rows("bronze/bronze_all")) == [1, 2, 3]


@pytest.mark.soak
def test_a_list_and_a_pattern_in_small_batches(kafka_broker: KafkaBroker, streams_of: StreamsOf) -> None:
    for name in ("many_a", "many_b", "manyfold"):
        kafka_broker.produce(kafka_broker.create(name), [(None, name.encode())] * 10)
    lake = streams_of(
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
def test_where_a_stream_begins_and_ends(kafka_broker: KafkaBroker, streams_of: StreamsOf) -> None:
    topic, noon = kafka_broker.create("timed", partitions=1), datetime(2026, 1, 1, 12, tzinfo=UTC)
    for minutes in range(10):
        kafka_broker.produce(topic, [(None, b"%d" % minutes)], timestamp=noon + timedelta(minutes=minutes))
    at = {"servers": kafka_broker.servers, "topics": topic, "format": "text"}
    lake = streams_of(
        bronze_offset=kafka(**at, starting={topic: {0: 4}}, ending={topic: {0: 7}}),
        bronze_time=kafka(**at, starting=noon + timedelta(minutes=7), ending=noon + timedelta(minutes=9)),
        bronze_future=kafka(**at, starting=datetime(2100, 1, 1, tzinfo=UTC), ending={"other": {0: 0}, topic: {1: 0}}),
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


def test_a_secret_opens_the_broker_and_is_shown_nowhere(
    kafka_broker: KafkaBroker, streams_of: StreamsOf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    topic = kafka_broker.create("guarded")
    kafka_broker.produce(topic, [(None, b"x")])
    (tmp_path / "wrong").write_text("no such password\n")
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{USER}" password="{{}}";'
    client = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}

    def source(place: str, **about: Any) -> KafkaSource:
        guarded = {**client, "kafka.sasl.jaas.config": secret(place, within=jaas)}
        return kafka(kafka_broker.sasl_servers, topic, options=guarded, **about)

    wrong_login = source(f"file:{tmp_path / 'wrong'}", starting="latest")  # which the start asks for
    lake = streams_of(bronze_guarded=source("env:TEST_KAFKA_PASSWORD"), bronze_wrong=wrong_login)
    with pytest.raises(LakehouseError, match="there is no secret at env:TEST_KAFKA_PASSWORD") as refused:
        lake.runtime.start("bronze_guarded")
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", PASSWORD)
    lake.process("bronze_guarded")
    assert [bytes(row.value) for row in lake.rows("bronze/bronze_guarded")] == [b"x"]
    with pytest.raises(StreamStartError) as wrong:
        lake.runtime.start("bronze_wrong")
    registry = lake.runtime._registry
    shown = f"{refused.value} {wrong.value} {registry.streams} {declarations(registry, lake.settings)}"
    logs = "".join(path.read_text(errors="replace") for path in spark_logs(lake.runtime.session))
    checkpoints = (path for path in (tmp_path / "checkpoints").rglob("*") if path.is_file())
    checkpoint = "".join(path.read_text(errors="replace") for path in checkpoints)
    for hidden in (PASSWORD, PASSWORD.replace('"', '\\"'), "no such password"):
        assert hidden not in shown + logs + checkpoint
    assert "env:TEST_KAFKA_PASSWORD" in shown


def spark_logs(session: SparkSession) -> list[Path]:
    options = session.conf.get("spark.driver.extraJavaOptions") or ""
    folder = Path(options.split("log4j2.configurationFile=file:")[1].split("/log4j2.properties")[0])
    return [path for path in folder.glob("*.log") if path.is_file()]


@pytest.mark.soak
def test_a_topic_made_anew_is_told_not_skipped(kafka_broker: KafkaBroker, streams_of: StreamsOf) -> None:
    topic = kafka_broker.create("anew", partitions=1)
    kafka_broker.produce(topic, [(None, b"%d" % number) for number in range(5)])
    strict = kafka(kafka_broker.servers, topic, format="text")
    loose = kafka(kafka_broker.servers, topic, format="text", failOnDataLoss=False)
    lake = streams_of(bronze_strict=strict, bronze_loose=loose)
    lake.process("bronze_strict", "bronze_loose")
    kafka_broker.delete(topic)
    kafka_broker.produce(kafka_broker.create(topic, partitions=1), [(None, b"anew")])
    failure = lake.failure_of("bronze_strict")
    assert failure.error_class == "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED"
    assert "data may have been lost" in failure.message
    assert len(lake.rows("bronze/bronze_strict")) == 5
    lake.process("bronze_loose")
    assert len(lake.rows("bronze/bronze_loose")) >= 5


def test_a_topic_that_is_not_there_is_named(kafka_broker: KafkaBroker, streams_of: StreamsOf) -> None:
    lake = streams_of(bronze_nothing=kafka(kafka_broker.servers, "no_such_topic", starting="latest"))
    with pytest.raises(LakehouseError, match="there is no topic no_such_topic"):
        lake.runtime.start("bronze_nothing")


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
        pytest.param(same, append(), QUARANTINE, {(1, "a")}, marks=pytest.mark.ci),
        *soak(
            (counted, complete(), {}, {("a", 2, 3)}),
            (counted, update(keys=["name"]), {}, {("a", 2, 3)}),
            (same, append(), {}, {(1, "a"), (2, "a")}),
        ),
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
    assert "died between two writes" in lake.failure_of(NAME).message
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


@pytest.mark.soak
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


@pytest.mark.soak
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


@pytest.mark.soak
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


@pytest.mark.soak
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


@pytest.mark.soak
@pytest.mark.parametrize("ahead", [BOTH[1], NAME])
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


@pytest.mark.soak
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


def run_as_before(lake: DemoLake, broker: KafkaBroker, topic: str, letters: str = "") -> None:
    """A query of a former version, over all that the topic holds by now: the stream's own, or the one that wrote its
    dead letters into this table."""
    options = {"kafka.bootstrap.servers": broker.servers, "subscribe": topic, "startingOffsets": "earliest"}
    records = lake.runtime.session.readStream.format("kafka").options(**options).load()
    cut = records.where(F.col("value").cast("string") == "cut").withColumn("reason", F.lit("not JSON"))
    cut = cut.select("topic", "partition", "offset", "timestamp", "key", "value", "reason")
    writer = cut.writeStream.format("delta").option("path", letters) if letters else records.writeStream.format("noop")
    checkpoint = lake.settings.home / "checkpoints" / BOTH[bool(letters)]
    writer.trigger(availableNow=True).option("checkpointLocation", str(checkpoint)).start().awaitTermination()


@pytest.mark.soak
@pytest.mark.parametrize("is_ahead", few(1, [True, False]))
def test_dead_letters_that_a_former_version_read_by_a_query_of_their_own_are_there_once(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path, is_ahead: bool
) -> None:
    """`is_ahead`: that query had read more than the stream itself, or less."""
    topic = kafka_broker.create(f"former_letters_{is_ahead}", partitions=1)
    lake = lake_of(tmp_path, orders_in(kafka_broker, topic))
    letters = lake.uri(f"bronze/{BOTH[1]}")
    for written_by in ("", letters) if is_ahead else (letters, ""):
        kafka_broker.produce(topic, [(None, b"cut"), (None, b'{"id": 1, "name": "a"}')])
        run_as_before(lake, kafka_broker, topic, written_by)
    kafka_broker.produce(topic, [(None, b"cut"), (None, b'{"id": 1, "name": "a"}')])
    lake.process(NAME)
    assert letters_of(lake) == [(topic, 0, offset, b"cut") for offset in (0, 2, 4)]
    assert sorted(row.offset for row in lake.rows(f"bronze/{NAME}")) == ([3, 5] if is_ahead else [5])

    note = tmp_path / "checkpoints" / NAME / "dead_letters_read.json"
    assert json.loads(note.read_text()) == {topic: {"0": 4 if is_ahead else 2}}
    if not is_ahead:
        note.unlink()  # as if the host had died once the letters were written, and before they were noted
    kafka_broker.produce(topic, [(None, b"cut")])
    lake.process(NAME)
    assert letters_of(lake) == [(topic, 0, offset, b"cut") for offset in (0, 2, 4, 6)]
