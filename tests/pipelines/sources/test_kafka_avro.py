"""Avro in topics: each record a row or a dead letter, once. Apache's own Avro encodes, a real registry has schemas."""

import io
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import avro.io
import avro.schema
import pytest
from pyspark.sql import SparkSession

from pipelines import kafka
from tests.worlds.spark.declared import lake_of
from tests.worlds.spark.lakes import DemoLake
from tests.worlds.streams.kafka_broker import KafkaBroker
from tests.worlds.streams.schema_registry import SchemaRegistry

pytestmark = pytest.mark.spark
COLUMNS = (
    "id BIGINT, name STRING, amount DECIMAL(9,2), share DOUBLE, at TIMESTAMP, day DATE, raw BINARY, tags ARRAY<STRING>,"
    " counts MAP<STRING, BIGINT>, place STRUCT<city: STRING, zip: INT>, kind STRING"
)
PLACE = {
    "type": "record",
    "name": "Place",
    "fields": [{"name": "city", "type": "string"}, {"name": "zip", "type": "int"}],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "share", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "raw", "type": "bytes"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "place", "type": ["null", PLACE]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "PAID"]}},
    ],
}
SMALL = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
WIDER = {**SMALL, "fields": [*SMALL["fields"], {"name": "name", "type": ["null", "string"], "default": None}]}  # type: ignore[misc]


def encoded(schema: dict[str, Any], record: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    avro.io.DatumWriter(avro.schema.parse(json.dumps(schema))).write(record, avro.io.BinaryEncoder(stream))
    return stream.getvalue()


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def order(number: int, **other: Any) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"order «{number}»",
        "amount": Decimal(number) + Decimal("0.25"),
        "share": number / 3,
        "at": datetime(2026, 3, 1, 12, 30, 15, 123_456 + number, tzinfo=UTC),
        "day": date(2026, 3, number),
        "raw": bytes([0, 255, number]),
        "tags": [f"t{number}", "\u2028"],
        "counts": {"a": number, "b": -(2**62)},
        "place": {"city": "Kyōto", "zip": number},
        "kind": "PAID",
        **other,
    }


def letters(lake: DemoLake) -> dict[int, str]:
    """Why, by offset; each with its bytes."""
    return {row["offset"]: row["reason"] for row in lake.rows("bronze/bronze_orders_dead_letters")}


def test_records_of_a_schema_file_are_rows_or_dead_letters(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka_broker.create("avro_file", partitions=1)
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER))
    sound = [order(1), order(2, name=None, place=None, share=float("nan")), order(3, share=float("-inf"), tags=[])]
    whole = encoded(ORDER, sound[0])
    broken = [whole[:-7], whole + b"more", b"", b"\xff" * 9]
    sent = kafka_broker.produce(topic, [(b"k", encoded(ORDER, each)) for each in sound])
    sent += kafka_broker.produce(topic, [(b"k", None), *((b"k", each) for each in broken)])

    lake = lake_of(tmp_path, kafka(kafka_broker.servers, topic, format="avro", schema=COLUMNS, avro_schema=str(file)))
    lake.process("bronze_orders")

    rows = {row["offset"]: row.asDict(recursive=True) for row in lake.rows("bronze/bronze_orders")}
    assert sorted(rows) == [0, 1, 2, 3]
    for number, wanted in enumerate(sound):
        found = {name: rows[number][name] for name in wanted}
        found["at"] = found["at"].astimezone(UTC)
        assert repr(found.pop("share")) == repr(wanted["share"])  # NaN is not itself
        assert {**found, "raw": bytes(found["raw"])} == {name: each for name, each in wanted.items() if name != "share"}
    assert {rows[3][name] for name in sound[0]} == {None}, "a record without a value"
    why = letters(lake)
    assert {each.offset() for each in sent} == rows.keys() | why.keys() and not rows.keys() & why.keys()
    assert why[5] == "not Avro of its schema: 4 bytes follow the record"
    assert all(said.startswith("not Avro of its schema") for said in why.values()), why
    kept = {row["offset"]: bytes(row["value"]) for row in lake.rows("bronze/bronze_orders_dead_letters")}
    assert kept == {4 + number: each for number, each in enumerate(broken)}


class LateRegistry(BaseHTTPRequestHandler):
    """Knows a schema from the second time on that it is asked for it, as one behind a replica does."""

    asked = 0

    def do_GET(self) -> None:
        LateRegistry.asked += 1
        known = LateRegistry.asked > 1
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"schema": json.dumps(SMALL)} if known else {"error_code": 40403}).encode())


@pytest.mark.soak
def test_a_record_whose_schema_is_known_a_moment_later_is_in_one_of_the_tables(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka_broker.create("avro_late", partitions=1)
    kafka_broker.produce(topic, [(b"k", framed(77, encoded(SMALL, {"id": 1})))])
    with HTTPServer(("127.0.0.1", 0), LateRegistry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        source = kafka(kafka_broker.servers, topic, format="avro", schema="id BIGINT", registry=url)
        lake = lake_of(tmp_path, source)
        lake.process("bronze_orders")
        server.shutdown()
    assert LateRegistry.asked == 1, "it was decoded once"
    assert lake.rows("bronze/bronze_orders") == []
    assert letters(lake) == {0: "the registry knows no Avro schema 77"}


@pytest.fixture(scope="module")
def registry(request: pytest.FixtureRequest) -> Iterator[SchemaRegistry]:
    with closing(SchemaRegistry(request.config.cache.mkdir("apicurio"))) as opened:
        yield opened.start()


@pytest.mark.soak
def test_schemas_of_a_registry_change_while_records_come_and_no_record_is_lost(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path, registry: SchemaRegistry
) -> None:
    topic = kafka_broker.create("avro_registry", partitions=1)
    small = registry.register("orders-value", json.dumps(SMALL))
    wider = registry.register("orders-value", json.dumps(WIDER))
    first = [
        framed(small, encoded(SMALL, {"id": 1})),
        framed(wider, encoded(WIDER, {"id": 2, "name": "two"})),
        framed(9_999, encoded(SMALL, {"id": 3})),
        b"\x05" + framed(small, encoded(SMALL, {"id": 4}))[1:],
        b"{}",
        framed(small, b""),
    ]
    kafka_broker.produce(topic, [(b"k", each) for each in first])
    source = kafka(kafka_broker.servers, topic, format="avro", schema="id BIGINT, name STRING", registry=registry.url)
    lake = lake_of(tmp_path, source)
    lake.process("bronze_orders")
    assert {(row["id"], row["name"]) for row in lake.rows("bronze/bronze_orders")} == {(1, None), (2, "two")}
    assert letters(lake) == {
        2: "the registry knows no Avro schema 9999",
        3: "not Avro behind a schema's id: it begins with the byte 0x05, not with 0x00",
        4: "not Avro behind a schema's id: it begins with the byte 0x7b, not with 0x00",
        5: letters(lake)[5],
    }
    assert letters(lake)[5].startswith("not Avro of its schema: ")

    newest = {**SMALL, "fields": [*SMALL["fields"], {"name": "extra", "type": "string"}]}  # type: ignore[misc]
    number = registry.register("others-value", json.dumps(newest))
    kafka_broker.produce(topic, [(b"k", framed(number, encoded(newest, {"id": 7, "extra": "x"})))])
    registry.kill()
    failure = lake.failure_of("bronze_orders")
    assert failure.error_class == "RegistryError"
    assert f"the schema registry at {registry.url} did not answer: " in failure.message
    assert failure.message.endswith("(the batch runs again by itself: see that the registry is up, and its login)")

    registry.start()
    again = [registry.register("orders-value", json.dumps(each)) for each in (SMALL, WIDER)]
    assert [*again, registry.register("others-value", json.dumps(newest))] == [small, wider, number]
    lake.process("bronze_orders")
    assert sorted(row["id"] for row in lake.rows("bronze/bronze_orders")) == [1, 2, 7]
    assert letters(lake).keys() == {2, 3, 4, 5}
