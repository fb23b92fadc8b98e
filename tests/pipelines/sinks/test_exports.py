"""A table's changes in Kafka and PostgreSQL: whatever is replayed, there is what was done, once."""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from confluent_kafka import Message
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipelines import expect, kafka_topic, postgres_table, table
from pipelines.jvm.failures import DeliveryError
from pipelines.specs.ends import Sink
from tests.worlds.processes import wait_until
from tests.worlds.programs import needs_postgres
from tests.worlds.spark import declared
from tests.worlds.spark.exports import Orders, Row, headers, kept
from tests.worlds.spark.lakes import DemoLake
from tests.worlds.store.postgres import OwnPostgres, empty_postgres_url, own_postgres
from tests.worlds.streams.kafka_broker import KafkaBroker

pytestmark = pytest.mark.spark

NAME = "out_orders"


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> Orders:
    return Orders(spark, tmp_path / "lake" / "silver" / "orders")


def lake_of(home: Path, uri: str, sink: Sink, **about: Any) -> DemoLake:
    conf = {"spark.sql.shuffle.partitions": "3"}
    return declared.lake_of(home, table(uri).changes(), name=NAME, sink=sink, spark_conf=conf, **about)


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
    sink = kafka_topic(kafka_broker.servers, topic, key="id", headers={"state": "status"})
    lake = lake_of(tmp_path, orders.uri, sink)
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
    lake = lake_of(tmp_path, orders.uri, kafka_topic(kafka_broker.servers, topic, key="id", headers=fault))
    assert "the power went" in lake.failure_of(NAME).message
    wait_until(lambda: bool(kafka_broker.read(topic)), "a part of the batch was sent")
    sent = len(kafka_broker.read(topic))
    assert sent < 3_000
    lake_of(tmp_path, orders.uri, kafka_topic(kafka_broker.servers, topic, key="id")).process(NAME)
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
    lake = lake_of(tmp_path, orders.uri, sink, expectations=rules)
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
    quarantined = lake.rows(f"out/{NAME}_quarantine")
    assert {row.id for row in quarantined} == {key for key, row in orders.rows.items() if row[1] is None} != set()


@pytest.mark.ci
def test_a_row_without_a_key_ends_the_stream(orders: Orders, kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka_broker.create("export_null")
    lake = lake_of(tmp_path, orders.uri, kafka_topic(kafka_broker.servers, topic, key="nullif(id, id)"))
    orders.merge()
    hint = "a row's key is null; drop or quarantine such rows by an expectation"
    assert hint in lake.failure_of(NAME).message
    assert kafka_broker.read(topic) == []


def test_a_topic_that_is_not_there_is_told_before_the_first_row(
    orders: Orders, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    lake = lake_of(tmp_path, orders.uri, kafka_topic(kafka_broker.servers, "export_missing", key="id"))
    with pytest.raises(DeliveryError, match="has no topic export_missing"):
        lake.runtime.start(NAME)


MADE = "CREATE TABLE orders (id bigint PRIMARY KEY, status text, amount numeric(12, 2))"


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    with own_postgres() as server:
        yield server


@pytest.fixture
def url(server: OwnPostgres) -> Iterator[str]:
    with empty_postgres_url(server.url) as empty:
        yield empty.replace("+psycopg", "")


def in_database(home: Path, uri: str, url: str) -> DemoLake:
    return lake_of(home, uri, postgres_table(url, "orders", keys=["id"]))


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        found = connection.execute(statement)
        return found.fetchall() if found.description else []


def there(url: str) -> dict[int, tuple[Any, ...]]:
    return {row[0]: row for row in execute(url, "SELECT id, status, amount FROM orders")}


def in_delta(uri: str) -> list[dict[str, Any]]:
    return pa.table(DeltaTable(uri).scan().read_all()).to_pylist()


@needs_postgres
def test_the_database_equals_the_table_whatever_is_replayed(orders: Orders, url: str, tmp_path: Path) -> None:
    execute(url, MADE)
    lake = in_database(tmp_path, orders.uri, url)
    orders.merge()
    lake.process(NAME)
    assert there(url) == orders.rows != {}

    orders.merge()
    orders.move()
    orders.delete(next(iter(orders.rows)))
    lake.process(NAME)
    assert there(url) == orders.rows

    execute(url, "UPDATE orders SET status = 'by hand'")
    batch = lake.forget_last_batch(NAME)
    lake.process(NAME)
    assert {row[1] for row in there(url).values()} == {"by hand"}, "a batch that is there is passed over"
    assert execute(url, "SELECT stream, batch_id FROM weir_batches") == [(NAME, batch)]

    execute(url, f"UPDATE weir_batches SET batch_id = {batch - 1}")  # as if its transaction had been rolled back
    lake.forget_last_batch(NAME)
    lake.process(NAME)
    assert there(url) == orders.rows, "every key was changed in it"


ALL_TYPES = """
    SELECT 1 AS id, true AS yes, 1Y AS tiny, 2S AS small, 3 AS whole, 4L AS large, float('1.1') AS single,
      double('0.1') AS double, CAST('12345678901234567.125' AS DECIMAL(20, 3)) AS exact, DATE'1969-12-31' AS day,
      TIMESTAMP'1883-11-18 12:03:57.000001' AS moment, TIMESTAMP_NTZ'2026-03-29 02:30:00.5' AS clock,
      X'00FF5C' AS bytes,
      'a\\t"\\n\\\\N ü日' AS text, named_struct('a', 1, 'b', CAST(NULL AS STRING)) AS nested, array('x', NULL) AS listed
    UNION ALL SELECT 2, {nulls}
    UNION ALL SELECT 3, false, -128Y, -2S, -3, -9223372036854775808L, float('Infinity'), double('NaN'), -0.001,
      DATE'9999-12-31', TIMESTAMP'2261-12-31 23:59:59.999999', TIMESTAMP_NTZ'1900-01-01 00:00:00', X'', '',
      named_struct('a', 2, 'b', '"'), array()
"""
COLUMNS = (
    "id int PRIMARY KEY, yes boolean, tiny smallint, small smallint, whole bigint, large bigint, single real,"
    " double double precision, exact numeric(20, 3), day date, moment timestamptz, clock timestamp, bytes bytea,"
    " text text, nested jsonb, listed json"
)


@needs_postgres
@pytest.mark.ci
def test_every_type_comes_through_unchanged(spark: SparkSession, url: str, tmp_path: Path) -> None:
    source = str(tmp_path / "lake" / "all")
    execute(url, f"CREATE TABLE orders ({COLUMNS})")
    rows = spark.sql(ALL_TYPES.format(nulls=", ".join(["NULL"] * 15)))
    rows.write.format("delta").option("delta.enableChangeDataFeed", "true").save(source)
    in_database(tmp_path, source, url).process(NAME)
    names = [f"{name}::double precision" if name == "single" else name for name in rows.columns]
    found = execute(url, f"SELECT {', '.join(names)} FROM orders ORDER BY id")
    expected = sorted(in_delta(source), key=lambda row: row["id"])
    assert [as_said(row) for row in found] == [as_said(row.values()) for row in expected]


def as_said(row: Iterable[Any]) -> list[str]:
    """NaN equals itself, and an instant is the same in every time zone."""
    return [repr(each.astimezone(UTC) if getattr(each, "tzinfo", None) else each) for each in row]


def refusal(lake: DemoLake) -> str:
    with pytest.raises(DeliveryError) as refused:
        lake.runtime.start(NAME)
    return refused.value.message


def failure_of(lake: DemoLake) -> str:
    failure = lake.failure_of(NAME)
    assert failure.error_class == "DeliveryError"
    return failure.message


@needs_postgres
@pytest.mark.ci
def test_what_does_not_fit_is_told_before_the_first_row(orders: Orders, url: str, tmp_path: Path) -> None:
    orders.merge()
    lake = in_database(tmp_path, orders.uri, url)
    message = refusal(lake)
    assert "there is no PostgreSQL table public.orders at 127.0.0.1:" in message
    make = "CREATE TABLE public.orders (id bigint, status text, amount numeric(10,2), PRIMARY KEY (id))"
    assert make.replace("bigint", "int8") in message
    made = "made timestamptz NOT NULL DEFAULT now()"
    execute(url, f"CREATE TABLE orders (id int, amount numeric(10, 1), note text NOT NULL, {made})")
    message = refusal(lake)
    differences = "~ id: integer → int8", "+ status text", "~ amount: numeric(10,1) → numeric(10,2)"
    assert all(difference in message for difference in (*differences, "- note: it needs a value"))
    assert "made" not in message
    execute(url, "DROP TABLE orders")
    execute(url, MADE.replace(" PRIMARY KEY", ""))
    execute(url, "CREATE UNIQUE INDEX half ON orders (id) WHERE status IS NULL")
    assert "has no unique index of id alone (ALTER TABLE public.orders ADD PRIMARY KEY (id))" in refusal(lake)
    execute(url, "CREATE UNIQUE INDEX whole ON orders (id) INCLUDE (status)")
    lake.process(NAME)
    assert there(url) == orders.rows


@needs_postgres
@pytest.mark.ci
def test_what_postgresql_refuses_is_told_with_the_next_step(
    spark: SparkSession, orders: Orders, url: str, tmp_path: Path
) -> None:
    orders.merge()
    execute(url, f"{MADE[:-1]}, CHECK (amount < 0))")
    lake = in_database(tmp_path, orders.uri, url)
    message = failure_of(lake)
    assert "violates check constraint" in message
    assert "(drop or quarantine such rows by an expectation, or change the table's constraint)" in message
    assert there(url) == {} and execute(url, "SELECT * FROM weir_batches") == [], "all of the batch, or nothing"
    execute(url, "ALTER TABLE orders DROP CONSTRAINT orders_amount_check")
    spark.sql(f"INSERT INTO delta.`{orders.uri}` VALUES (77, 'a', 1), (77, 'b', 1)")
    assert "(two rows of the table have the same key: name keys that are unique there)" in failure_of(lake)


@needs_postgres
@pytest.mark.ci
def test_a_server_that_is_away_and_a_login_that_fails(orders: Orders, url: str, tmp_path: Path) -> None:
    orders.merge()
    message = refusal(in_database(tmp_path, orders.uri, "postgresql://weir@127.0.0.1:1/shop"))
    assert "PostgreSQL table public.orders at 127.0.0.1:1/shop: " in message
    assert "look whether the server runs" in message
    assert "and at user and password" in refusal(in_database(tmp_path, orders.uri, url.replace("weir@", "nobody@")))
