"""Projects of users, checked and run: a module that settings name, and a database's changes from topics to gold."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backend.settings import load_settings
from backend.stream_model.stream import StreamState
from pipelines import (
    Pipeline,
    children,
    debezium,
    flatten,
    fresh,
    history,
    into,
    kafka,
    kafka_topic,
    references,
    table,
    unique,
    upsert,
)
from pipelines.declare.check import columns_problems, find_problems
from pipelines.declare.pipeline import declarations
from pipelines.spark.tables import Analysis
from tests.worlds.lake import builders
from tests.worlds.processes import wait_until
from tests.worlds.spark.declared import DOCS, registry_of, same
from tests.worlds.spark.host_process import FAST, World
from tests.worlds.spark.lakes import open_lake
from tests.worlds.streams.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.ci, pytest.mark.timeout(900)]

STREAMS = ("bronze_orders", "silver_orders", "gold_orders")


def shop_of_the_docs(folder: Path) -> str:
    """The module that docs/pipelines.md prints first, reading this folder."""
    text = DOCS.read_text().split("```python\n", 1)[1].split("```", 1)[0]
    assert "/data/orders" in text
    return text.replace("/data/orders", str(folder))


def change(order_id: str, op: str, amount: float | None, lsn: int) -> str:
    return json.dumps({"order_id": order_id, "op": op, "amount": amount, "lsn": lsn})


def land(world: World, name: str, *lines: str) -> None:
    half = world.home / "landing" / f".{name}"
    half.write_text("".join(f"{line}\n" for line in lines))
    half.rename(half.with_name(name))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home = tmp_path_factory.mktemp("shop")
    (home / "landing").mkdir()
    (home / "modules").mkdir()
    theirs = builders.write(home / "lake" / "crm" / "customers", {"id": [1, 2, 2]})
    expected = (
        "from pipelines import fresh, unique\n"
        'shop.expect_table("silver_orders", unique("order_id"), fresh("1 hour"))\n'
        f'shop.expect_table("{theirs}", unique("id"))\n'
    )
    (home / "modules/shop.py").write_text(shop_of_the_docs(home / "landing") + expected)
    # A view's first look at its inputs starts a Python worker, which Spark gives up after 10 s.
    env = {
        **FAST,
        "WEIR_HOST__MAX_RESTARTS": "20",
        "WEIR_HOST__FRESHNESS_INTERVAL_S": "1",
        "WEIR_HOST__EXPECTATIONS_INTERVAL_S": "1",
        "PYTHONPATH": str(home / "modules"),
        "WEIR_HOST__PIPELINES": '["shop"]',
    }
    with closing(World(home, env, STREAMS)) as opened:
        yield opened


def weir(world: World, *arguments: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, **world.env, "WEIR_HOME": str(world.home)}
    command = [sys.executable, "-m", "app.cli", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)


def rows(world: World, table: str) -> list[dict[str, Any]]:
    return world.rows(table).to_pylist() if (world.home / "lake" / table / "_delta_log").exists() else []


def commits(world: World, table: str) -> int:
    return len(list((world.home / "lake" / table / "_delta_log").glob("*.json")))


def test_the_check_names_file_and_line_of_all_that_is_wrong(world: World) -> None:
    text = (world.home / "modules/shop.py").read_text()
    wrong = text.replace('trigger="5 seconds"', 'trigger="soon"').replace('table("bronze_orders")', 'table("bronze")')
    (world.home / "modules/wrong.py").write_text(wrong)
    answer = weir(world, "pipelines", "check", "wrong", "--json")
    problems, lines = json.loads(answer.stdout)["problems"], wrong.splitlines()
    assert answer.returncode == 2
    assert [problem["name"] for problem in problems] == ["bronze_orders", "silver_orders", "silver_orders"]
    for problem in problems:
        assert problem["file"].endswith("wrong.py")
        assert lines[problem["line"] - 1].startswith("@shop.streaming_table")
    assert weir(world, "pipelines", "check", "no_such_module").returncode == 2


@pytest.mark.soak
def test_it_runs_by_settings_alone_and_is_asked_by_the_command_line(world: World) -> None:
    sound = weir(world, "pipelines", "check", "--json")
    assert (sound.returncode, json.loads(sound.stdout)) == (0, {"ok": True, "problems": []})
    land(world, "1.json", change("a", "c", 5, 1), change("b", "c", 7, 2), change("c", "c", -1, 3))
    world.host()
    world.until_state(StreamState.RUNNING)
    wait_until(lambda: rows(world, "gold/gold_orders") == [{"sum(amount)": 12.0, "count(1)": 2}], "gold")
    assert [(row["order_id"], row["amount"]) for row in rows(world, "silver/silver_orders_quarantine")] == [("c", -1.0)]
    assert {row["file_name"] for row in rows(world, "bronze/bronze_orders")} == {"1.json"}

    before = commits(world, "gold/gold_orders")
    land(world, "2.json", change("a", "u", 6, 4), change("b", "d", None, 5), change("a", "c", 1, 0))
    wait_until(lambda: rows(world, "gold/gold_orders") == [{"sum(amount)": 6.0, "count(1)": 1}], "gold")
    moved = commits(world, "silver/silver_orders")
    assert commits(world, "gold/gold_orders") - before <= moved, "computed when silver has moved on, and not before"
    the_graph_says_what_feeds_what(world)
    the_host_judges_tables_that_it_writes_and_those_of_others(world)


def the_graph_says_what_feeds_what(world: World) -> None:
    graph = json.loads(weir(world, "pipelines", "graph", "--json").stdout)
    nodes = {node["name"]: (node["kind"], node["layer"], node["state"]) for node in graph["nodes"]}
    landing = f"files in {world.home / 'landing'}"
    assert nodes == {
        landing: ("files", None, None),
        "bronze_orders": ("streaming table", "bronze", "RUNNING"),
        "silver_orders": ("streaming table", "silver", "RUNNING"),
        "gold_orders": ("materialized view", "gold", "RUNNING"),
        "silver_orders_tombstones": ("table", "silver", None),
        "silver_orders_quarantine": ("table", "silver", None),
    }
    rates = {(edge["source"], edge["target"]): edge["rows_per_min"] for edge in graph["edges"]}
    silver = {
        ("silver_orders", name) for name in ("gold_orders", "silver_orders_tombstones", "silver_orders_quarantine")
    }
    assert rates.keys() == {(landing, "bronze_orders"), ("bronze_orders", "silver_orders")} | silver
    assert rates[(landing, "bronze_orders")] > 0


def the_host_judges_tables_that_it_writes_and_those_of_others(world: World) -> None:
    def verdicts() -> dict[tuple[str, str], tuple[str, int | None]]:
        answer = json.loads(weir(world, "expectations", "--json").stdout)
        assert not any(row["is_stale"] for row in answer)
        return {(row["table"], row["expectation"]): (row["state"], row["broken_keys"]) for row in answer}

    expected = {
        ("silver/silver_orders", "unique(order_id)"): ("met", 0),
        ("silver/silver_orders", "fresh"): ("met", None),
        ("crm/customers", "unique(id)"): ("broken", 1),
    }
    wait_until(lambda: verdicts() == expected, lambda: str(verdicts()))
    broken = weir(world, "expectations", "crm/customers")
    assert broken.returncode == 1 and "1 key is repeated, in 2 rows: 2" in broken.stdout


NOW = "available now"
FEED = {"delta.enableChangeDataFeed": "true"}
ORDER = (
    "order_id BIGINT, user_id BIGINT, address STRUCT<city: STRING, zip: STRING>, "
    "lines ARRAY<STRUCT<sku: STRING, price: DOUBLE>>"
)


def project(servers: str) -> Pipeline:
    shop = Pipeline("changes")
    for name in ("orders", "customers"):
        source = kafka(servers, f"shop_{name}", format="text", starting="earliest")
        shop.streaming_table(f"bronze_{name}", source=source, trigger=NOW, table_properties=FEED)(same)

    @shop.temporary_view("orders", source=table("bronze_orders").changes())
    def orders(records: DataFrame) -> DataFrame:
        return debezium(records, ORDER)

    newest = {"sequence": "position", "deleted": "op = 'd'", "except_columns": ["op", "changed_at"]}

    @shop.streaming_table(
        "silver_orders",
        source=table("orders"),
        sink=upsert(keys=["order_id"], **newest),  # type: ignore[arg-type]
        also=[into("silver_order_states", history(keys=["order_id"], **newest))],  # type: ignore[arg-type]
        trigger=NOW,
        table_properties=FEED,
    )
    def silver_orders(changes: DataFrame) -> DataFrame:
        return flatten(changes.drop("lines"))

    @shop.streaming_table("silver_lines", source=table("orders"), trigger=NOW)
    def silver_lines(changes: DataFrame) -> DataFrame:
        return children(changes.where("op <> 'd'"), "lines", keys=["order_id", "position"])

    @shop.streaming_table(
        "silver_customers",
        source=table("bronze_customers").changes(),
        sink=upsert(keys=["id"], **newest),  # type: ignore[arg-type]
        trigger=NOW,
    )
    def silver_customers(records: DataFrame) -> DataFrame:
        return debezium(records, "id BIGINT, name STRING", flavour="mysql")

    @shop.materialized_view("gold_orders")
    def gold_orders(silver_orders: DataFrame, silver_customers: DataFrame) -> DataFrame:
        return silver_orders.join(silver_customers, F.expr("user_id = id")).groupBy("name").count()

    outside = kafka_topic(servers, "shop_orders_out", key="order_id")
    from_the_beginning = table("silver_orders").changes(startingVersion=0)

    @shop.streaming_table("kafka_orders", source=from_the_beginning, sink=outside, trigger=NOW)
    def kafka_orders(changes: DataFrame) -> DataFrame:
        return changes.drop("position")

    shop.expect_table("silver_orders", fresh("1 day"), unique("order_id"), references("user_id", "silver_customers.id"))
    return shop


def order(op: str, number: int, lsn: int, city: str, *skus: str) -> bytes:
    image = {"order_id": number, "user_id": 7, "address": {"city": city, "zip": "1"}}
    image["lines"] = [{"sku": sku, "price": 1.5} for sku in skus]
    images = {"before": image} if op == "d" else {"after": image}
    return json.dumps({"op": op, **images, "source": {"lsn": lsn}, "ts_ms": 1_700_000_000_000}).encode()


def customer(op: str, pos: int, name: str) -> bytes:
    source = {"file": "binlog.000001", "pos": pos, "row": 0}
    return json.dumps({"op": op, "after": {"id": 7, "name": name}, "source": source, "ts_ms": 1}).encode()


ORDERS = (
    order("r", 1, 10, "Bonn", "x", "y"),
    order("c", 2, 11, "Kiel", "z"),
    order("u", 1, 12, "Köln", "x"),
    order("d", 2, 13, "Kiel"),
)


@pytest.mark.soak
def test_it_is_checked_and_runs_once_from_end_to_end(
    spark: SparkSession, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    settings = load_settings(home=tmp_path)
    for topic in ("shop_orders", "shop_customers", "shop_orders_out"):
        kafka_broker.create(topic, partitions=1)
    kafka_broker.produce("shop_orders", [(None, value) for value in ORDERS])
    kafka_broker.produce("shop_customers", [(None, customer("c", 4, "Ann")), (None, customer("u", 9, "Anna"))])
    declared = registry_of(project(kafka_broker.servers))
    assert find_problems(declared) == ()
    analysis = Analysis(declared, spark, settings).run()
    assert [*analysis.problems, *columns_problems(declared, analysis.schemas, settings)] == []
    assert len(declarations(declared, settings)) == len(declared.names()) == len(analysis.streams)

    streams = [replace(stream, trigger_interval_s=None) for stream in analysis.streams]
    lake = open_lake(settings, *streams, views=declared.views)
    lake.process(*(stream.name for stream in streams))

    def pairs(name: str, *columns: str) -> list[tuple[object, ...]]:
        return sorted((tuple(row[column] for column in columns) for row in lake.rows(name)), key=str)

    assert [row["value"].encode() for row in lake.rows("bronze/bronze_orders")] == list(ORDERS)
    assert pairs("silver/silver_orders", "order_id", "address_city") == [(1, "Köln")]
    states = pairs("silver/silver_order_states", "order_id", "address_city", "is_current")
    assert states == [(1, "Bonn", False), (1, "Köln", True), (2, "Kiel", False)]
    lines = pairs("silver/silver_lines", "order_id", "position_in_parent", "sku")
    assert lines == [(1, 0, "x"), (1, 0, "x"), (1, 1, "y"), (2, 0, "z")]
    assert pairs("silver/silver_customers", "id", "name") == [(7, "Anna")]
    assert pairs("gold/gold_orders", "name", "count") == [("Anna", 1)]
    sent = kafka_broker.read("shop_orders_out")
    assert [json.loads(record.value())["address_city"] for record in sent] == ["Köln"]
