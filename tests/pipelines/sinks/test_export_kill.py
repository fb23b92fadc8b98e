"""kill -9 of a host in the middle of a batch: topic and database then hold what the lake's table holds, each once."""

import json
import os
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.worlds.processes import kill_hard
from tests.worlds.spark.exports import headers, kept
from tests.worlds.spark.host_process import FAST, World
from tests.worlds.store.postgres import POSTGRES, empty_postgres_url
from tests.worlds.streams.kafka_broker import KafkaBroker

pytestmark = [
    pytest.mark.ci,
    pytest.mark.spark,
    pytest.mark.postgres,
    pytest.mark.skipif(not os.environ.get(POSTGRES), reason=f"needs {POSTGRES}"),
]
STREAMS = ("kafka_orders", "postgres_orders")
MODULE = """
import os
from pipelines import Pipeline, kafka_topic, postgres_table, table

shop = Pipeline("shop")
orders = table(os.environ["ORDERS"]).changes()
topic = kafka_topic(os.environ["SERVERS"], "export_killed", key="id")
database = postgres_table(os.environ["DATABASE"], "orders", keys=["id"])

@shop.streaming_table("kafka_orders", source=orders, sink=topic, trigger="200 milliseconds")
def kafka_orders(changes):
    return changes

@shop.streaming_table("postgres_orders", source=orders, sink=database, trigger="200 milliseconds")
def postgres_orders(changes):
    return changes
"""
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'weir' AND wait_event_type = 'Lock'"


def add(uri: str, first: int, last: int) -> None:
    rows = pa.table({"id": list(range(first, last)), "amount": [float(each) for each in range(first, last)]})
    write_deltalake(uri, rows, mode="append", configuration={"delta.enableChangeDataFeed": "true"})


def in_lake(uri: str) -> dict[int, float]:
    rows = pa.table(DeltaTable(uri).scan().read_all()).to_pylist()
    return {row["id"]: row["amount"] for row in rows}


def in_database(url: str) -> dict[int, float]:
    with psycopg.connect(url) as connection:
        return dict(connection.execute("SELECT id, amount FROM orders").fetchall())


def in_topic(broker: KafkaBroker) -> tuple[dict[int, float], int]:
    """What a consumer holds that keeps each key's highest position; how many records were repeats."""
    records = broker.read("export_killed")
    newest = {int(key): of[-1].value() for key, of in kept(records).items()}
    held = {key: json.loads(value)["amount"] for key, value in newest.items() if value is not None}
    return held, len(records) - len({(each.key(), headers(each)["weir.position"]) for each in records})


def batches(home: Path, stream: str, kind: str) -> set[int]:
    return {int(each.name) for each in (home / "checkpoints" / stream / kind).glob("[0-9]*")}


def test_a_batch_that_was_killed_is_whole_and_once(tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    uri, module = str(tmp_path / "orders"), tmp_path / "module"
    module.mkdir()
    (module / "export_shop.py").write_text(MODULE)
    kafka_broker.create("export_killed")
    add(uri, 0, 300)
    with empty_postgres_url() as found:
        url = found.replace("+psycopg", "")
        env = {"ORDERS": uri, "SERVERS": kafka_broker.servers, "DATABASE": url, "PYTHONPATH": str(module)}
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, amount double precision)")
        world = World(tmp_path / "home", {**FAST, **env, "WEIR_HOST__PIPELINES": '["export_shop"]'}, STREAMS)
        try:
            host = world.host()
            world.until(lambda: in_database(url) == in_lake(uri), "the database has all")
            world.until_batch(0)
            kill_within_a_batch(world, host, url, uri, kafka_broker)
            forget_last_batch(world.home / "checkpoints" / "kafka_orders")
            world.host()
            add(uri, 500, 510)
            world.until(lambda: in_database(url) == in_lake(uri), "the database has all")
            world.until(lambda: in_topic(kafka_broker)[0] == in_lake(uri), "the topic has all")
            assert in_topic(kafka_broker)[1] > 0, "records were sent again"
        finally:
            world.close()


def forget_last_batch(checkpoint: Path) -> None:
    """As if the host had died after it was sent and before that was noted."""
    last = max(int(each.name) for each in (checkpoint / "commits").glob("[0-9]*"))
    assert not (checkpoint / "offsets" / str(last + 1)).exists()
    (checkpoint / "commits" / str(last)).unlink()


def kill_within_a_batch(world: World, host: Any, url: str, uri: str, broker: KafkaBroker) -> None:
    """While PostgreSQL holds up the batch's transaction, after its rows were sent and before they are applied."""
    with psycopg.connect(url) as connection, psycopg.connect(url, autocommit=True) as watching:
        connection.execute("LOCK TABLE orders IN SHARE ROW EXCLUSIVE MODE")
        add(uri, 300, 400)
        DeltaTable(uri).delete("id < 50")
        world.until(lambda: watching.execute(BLOCKED).fetchone() == (1,), "the batch waits for the lock")
        world.until(lambda: in_topic(broker)[0] == in_lake(uri), "the topic has all")
        at_rest = ("kafka_orders", "offsets"), ("kafka_orders", "commits")
        world.until(lambda: len({max(batches(world.home, *each)) for each in at_rest}) == 1, "no batch for the topic")
        kill_hard(host)
        planned, done = (batches(world.home, "postgres_orders", kind) for kind in ("offsets", "commits"))
        assert max(planned) > max(done), "the kill came within a batch"
        assert len(in_database(url)) == 300, "nothing of it was applied"
