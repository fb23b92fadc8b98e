"""A project with every declaration: it is checked, runs once from end to end, and each table holds what was sent."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from backend.settings import load_settings
from pipelines.declare.check import columns_problems, find_problems
from pipelines.declare.registry import declarations
from pipelines.spark.analysis import Analysis
from pipelines.specs.registry import Registry
from tests.worlds.spark import every_declaration
from tests.worlds.spark.declared import registry_of
from tests.worlds.spark.lakes import DemoLake, open_lake
from tests.worlds.store.postgres import own_postgres, server_programs
from tests.worlds.streams.kafka_broker import KafkaBroker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not server_programs().exists(), reason="needs PostgreSQL's programs"),
]
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
EVENTS = [  # id, user, type, amount, minutes after noon
    ("a", 1, "sale", 10.0, 0),
    ("a", 1, "sale", 10.0, 0),  # sent twice
    ("b", 2, "sale", 30.0, 59),
    ("c", None, "visit", 1.0, 61),
    ("d", 1, None, 5.0, 62),
    ("e", 1, "sale", -3.0, 63),
]


def order(op: str, number: int, lsn: int, city: str, *skus: str) -> bytes:
    image = {"order_id": number, "user_id": 7, "address": {"city": city, "zip": "1"}}
    image["lines"] = [{"sku": sku, "price": 1.5} for sku in skus]
    images = {"before": image} if op == "d" else {"after": image}
    return json.dumps({"op": op, **images, "source": {"lsn": lsn}, "ts_ms": 1_700_000_000_000}).encode()


def customer(op: str, number: int, pos: int, name: str) -> bytes:
    source = {"file": "binlog.000001", "pos": pos, "row": 0}
    image = {"after": {"id": number, "name": name}}
    return json.dumps({"op": op, **image, "source": source, "ts_ms": 1_700_000_000_000}).encode()


ORDERS = (
    order("r", 1, 10, "Bonn", "x", "y"),
    order("c", 2, 11, "Kiel", "z"),
    order("u", 1, 12, "Köln", "x"),
    order("d", 2, 13, "Kiel"),
)


@pytest.fixture
def project(
    spark: SparkSession, tmp_path: Path, kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Registry]:
    """Its registry, with all that it reads sent and landed."""
    for topic in ("shop_events", "shop_orders", "shop_customers", "shop_orders_out"):
        kafka_broker.create(topic, partitions=1)
    for event in EVENTS:
        fields = dict(zip(("event_id", "user_id", "event_type", "amount"), event, strict=False))
        fields["at"] = (NOON + timedelta(minutes=event[4])).isoformat()
        kafka_broker.produce("shop_events", [(None, json.dumps(fields).encode())])
    kafka_broker.produce("shop_events", [(None, b"no JSON")])
    kafka_broker.produce("shop_orders", [(None, value) for value in ORDERS])
    kafka_broker.produce("shop_customers", [(None, customer("c", 7, 4, "Ann")), (None, customer("u", 7, 9, "Anna"))])
    landing = tmp_path / "landing"
    landing.mkdir()
    (landing / "users.json").write_text('{"user_id": 1, "name": "Ann", "age": 7}\n{"user_id": "x", "name": "Bob"}\n')
    monkeypatch.setenv("SHOP_SERVERS", kafka_broker.servers)
    monkeypatch.setenv("SHOP_LANDING", str(landing))
    monkeypatch.setenv("SHOP_PASSWORD", "sesam-of-the-shop")
    with own_postgres() as server:
        with psycopg.connect(server.url.replace("+psycopg", "")) as connection:
            connection.execute("CREATE TABLE countries AS SELECT 1::bigint AS user_id, 'DE' AS country")
        monkeypatch.setenv("SHOP_JDBC", f"jdbc:postgresql://127.0.0.1:{server.port}/postgres?sslmode=disable")
        made = [registry_of(each) for each in every_declaration.pipelines(load_settings(home=tmp_path))]
        yield Registry(
            (stream for each in made for stream in each.streams),
            (view for each in made for view in each.views),
            (problem for each in made for problem in each.problems),
            (expected for each in made for expected in each.expected),
        )


def test_it_is_checked_and_runs_once_from_end_to_end(
    spark: SparkSession, tmp_path: Path, project: Registry, kafka_broker: KafkaBroker
) -> None:
    settings = load_settings(home=tmp_path)
    assert find_problems(project) == ()
    analysis = Analysis(project, spark, settings).run()
    assert [*analysis.problems, *columns_problems(project, analysis.schemas, settings)] == []
    assert len(declarations(project, settings)) == len(project.names()) == len(analysis.streams)

    ends = [replace(stream, trigger_interval_s=None) for stream in analysis.streams if stream.name != "bronze_pulse"]
    lake = open_lake(settings, *ends, views=project.views)
    lake.process(*(stream.name for stream in ends))
    _events_are_right(lake)
    _changes_are_right(lake, kafka_broker)
    assert pairs(lake, "gold/gold_orders", "name", "count") == [("Anna", 1)]


def pairs(lake: DemoLake, table: str, *names: str) -> list[tuple[object, ...]]:
    return sorted((tuple(row[name] for name in names) for row in lake.rows(table)), key=str)


def _events_are_right(lake: DemoLake) -> None:
    assert sorted(row["offset"] for row in lake.rows("bronze/bronze_events")) == [0, 1, 2, 3, 4, 5]
    assert pairs(lake, "bronze/bronze_events_dead_letters", "offset", "reason") == [(6, "not JSON")]
    assert pairs(lake, "silver/silver_events", "event_id") == [("a",), ("b",), ("c",)]
    assert pairs(lake, "silver/silver_events_quarantine", "event_id", "broken_expectations") == [("e", ["priced"])]
    hours = [
        (row["hour"].hour, row["event_type"], row["events"], row["mean_amount"])
        for row in lake.rows("gold/gold_hourly")
    ]
    assert sorted(hours) == [(12, "sale", 2, 20.0), (13, "visit", 1, 1.0)]
    assert pairs(lake, "gold/gold_types", "event_type", "events") == [("sale", 2), ("visit", 1)]
    observed = [
        each["observedMetrics"].get("arrived") for each in lake.heard.progress if each["name"] == "bronze_events"
    ]
    assert {"rows": 6, "unpriced": 0} in observed
    rescued = [(row["name"], json.loads(row["_rescued_data"])) for row in lake.rows("bronze/bronze_users")]
    assert ("Ann", {"age": "7"}) in rescued and len(rescued) == 2
    assert pairs(lake, "silver/silver_users", "name", "country") == [("Ann", "DE"), ("Bob", None)]
    assert lake.rows("bronze/bronze_ticks")


def _changes_are_right(lake: DemoLake, broker: KafkaBroker) -> None:
    assert [row["value"].encode() for row in lake.rows("bronze/bronze_orders")] == list(ORDERS)
    assert pairs(lake, "silver/silver_orders", "order_id", "address_city") == [(1, "Köln")]
    states = pairs(lake, "silver/silver_order_states", "order_id", "address_city", "is_current")
    assert states == [(1, "Bonn", False), (1, "Köln", True), (2, "Kiel", False)]
    assert pairs(lake, "silver/silver_lines", "order_id", "position_in_parent", "sku") == [
        (1, 0, "x"),
        (1, 0, "x"),
        (1, 1, "y"),
        (2, 0, "z"),
    ]
    assert pairs(lake, "silver/silver_customers", "id", "name") == [(7, "Anna")]
    assert pairs(lake, "silver/silver_audit", "order_id", "_change_type") == [(1, "insert")], (
        "one batch: the net change"
    )
    assert pairs(lake, "silver/silver_named", "order_id", "name") == [(1, "Anna")]
    session, audit = lake.runtime.session, lake.settings.home / "audit"
    assert [row["order_id"] for row in session.read.format("delta").load(str(audit / "changes")).collect()] == [1]
    counts = session.read.format("delta").load(str(audit / "counts")).collect()
    assert [(row["_change_type"], row["count"]) for row in counts] == [("insert", 1)]
    assert [json.loads(record.value())["address_city"] for record in broker.read("shop_orders_out")] == ["Köln"]
