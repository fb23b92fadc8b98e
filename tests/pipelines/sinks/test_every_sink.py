"""One topic into every kind of sink, while host, broker and database are killed: each ends with what was sent, once."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

from backend.stream_model.stream import StreamState
from tests.worlds.processes import kill_hard, let_pass
from tests.worlds.spark.exports import kept
from tests.worlds.spark.host_process import FAST, World
from tests.worlds.store.postgres import OwnPostgres, own_postgres, server_programs
from tests.worlds.streams.kafka_broker import KafkaBroker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.ci,
    pytest.mark.timeout(3_600),
    pytest.mark.skipif(not server_programs().exists(), reason="PostgreSQL's programs are not here"),
]
STREAMS = (
    "bronze_clicks",
    "silver_clicks",
    "silver_history",
    "gold_totals",
    "gold_latest",
    "gold_view",
    "topic_clicks",
    "database_clicks",
)
MODULE = """
import os
from pyspark.sql import functions as F
from pipelines import *

clicks = Pipeline("clicks")
CLICK = "click_id STRING, page STRING, ms BIGINT, version BIGINT"
source = kafka(os.environ["SERVERS"], "sinks_in", format="json", schema=CLICK)
bronze, silver = table("bronze_clicks"), table("silver_clicks")
newest = upsert(keys=["click_id"], sequence="version")
states = history(keys=["click_id"], sequence="version")
topic = kafka_topic(os.environ["SERVERS"], "sinks_out", key="click_id")
database = postgres_table(os.environ["DATABASE"], "clicks", keys=["click_id"])
often = "1 second"
feed = {"delta.enableChangeDataFeed": "true"}


@clicks.streaming_table("bronze_clicks", source=source, trigger=often)
def bronze_clicks(records):
    return records


@clicks.streaming_table("silver_clicks", source=bronze, sink=newest, trigger=often, table_properties=feed,
                        also=[into("silver_slow", append(), where="ms > 500")])
def silver_clicks(rows):
    return rows.select("click_id", "page", "ms", "version")


@clicks.streaming_table("silver_history", source=bronze, sink=states, trigger=often)
def silver_history(rows):
    return rows.select("click_id", "page", "ms", "version")


@clicks.streaming_table("gold_totals", source=bronze, sink=complete(), trigger=often)
def gold_totals(rows):
    return rows.groupBy("page").agg(F.count("*").alias("clicks"), F.sum("ms").alias("ms"))


@clicks.streaming_table("gold_latest", source=bronze, sink=update(keys=["page"]), trigger=often)
def gold_latest(rows):
    return rows.groupBy("page").agg(F.count("*").alias("clicks"), F.sum("ms").alias("ms"))


@clicks.materialized_view("gold_view", source=silver, refresh=often)
def gold_view(rows):
    return rows.groupBy("page").agg(F.count("*").alias("clicks"), F.sum("ms").alias("ms"))


@clicks.streaming_table("topic_clicks", source=silver.changes(), sink=topic, trigger=often)
def topic_clicks(changes):
    return changes


@clicks.streaming_table("database_clicks", source=silver.changes(), sink=database, trigger=often)
def database_clicks(changes):
    return changes
"""
CREATE = "CREATE TABLE clicks (click_id text PRIMARY KEY, page text, ms bigint, version bigint)"
Click = tuple[str, int, int]  # page, ms, version


@dataclass
class Ledger:
    """What the broker acknowledged, by partition and offset."""

    sent: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)

    def newest(self) -> dict[str, Click]:
        by_version = sorted(self.sent.values(), key=lambda click: int(click["version"]))
        return {click["click_id"]: (click["page"], click["ms"], click["version"]) for click in by_version}

    def history(self) -> Counter[tuple[str, int, int | None]]:
        versions: dict[str, list[int]] = {}
        for click in self.sent.values():
            versions.setdefault(click["click_id"], []).append(click["version"])
        spans = ((name, at, after) for name, v in versions.items() for at, after in pairwise([*sorted(v), None]))
        return Counter((name, at, after) for name, at, after in spans if at is not None)

    def everything(self) -> list[Click]:
        return [(click["page"], click["ms"], click["version"]) for click in self.sent.values()]


def by_page(clicks: list[Click]) -> dict[str, tuple[int, int]]:
    pages = {page for page, _, _ in clicks}
    taken = {page: [ms for at, ms, _ in clicks if at == page] for page in pages}
    return {page: (len(all_ms), sum(all_ms)) for page, all_ms in taken.items()}


@dataclass
class Shop:
    """The sinks, read without Spark; broker and database can be killed."""

    world: World
    broker: KafkaBroker
    database: OwnPostgres
    ledger: Ledger = field(default_factory=Ledger)

    def send(self, dice: random.Random, count: int) -> None:
        first = len(self.ledger.sent)
        clicks = [
            {
                "click_id": f"c{dice.randrange(60)}",
                "page": dice.choice("xyz"),
                "ms": dice.randrange(1_000),
                "version": v,
            }
            for v in range(first, first + count)
        ]
        dice.shuffle(clicks)
        records = ((None, json.dumps(click).encode()) for click in clicks)
        for message in self.broker.produce("sinks_in", records):
            self.ledger.sent[message.partition(), message.offset()] = json.loads(message.value())

    def rows(self, table: str) -> list[dict[str, Any]]:
        there = (self.world.home / "lake" / table / "_delta_log").exists()
        return self.world.rows(table).to_pylist() if there else []

    def clicks(self, table: str) -> dict[str, Click]:
        return {row["click_id"]: (row["page"], row["ms"], row["version"]) for row in self.rows(table)}

    def pages(self, table: str) -> dict[str, tuple[int, int]]:
        return {row["page"]: (row["clicks"], row["ms"]) for row in self.rows(table)}

    def in_topic(self) -> dict[str, Click]:
        """What a consumer holds that keeps each key's highest position."""
        values = [json.loads(of[-1].value()) for of in kept(self.broker.read("sinks_out")).values()]
        return {value["click_id"]: (value["page"], value["ms"], value["version"]) for value in values}

    def in_database(self) -> dict[str, Click]:
        with psycopg.connect(self.database.url.replace("+psycopg", "")) as connection:
            found = connection.execute("SELECT click_id, page, ms, version FROM clicks").fetchall()
        return {name: (page, ms, version) for name, page, ms, version in found}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    (tmp_path / "module").mkdir()
    (tmp_path / "module" / "every_sink.py").write_text(MODULE)
    (tmp_path / "broker").mkdir()
    broker = KafkaBroker(tmp_path / "broker")
    with own_postgres() as database:
        url = database.url.replace("+psycopg", "")
        try:
            broker.start()
            broker.create("sinks_in")
            broker.create("sinks_out")
            with psycopg.connect(url) as connection:
                connection.execute(CREATE)
            env = {
                **FAST,
                "WEIR_HOST__MAX_RESTARTS": "500",
                "WEIR_HOST__BACKOFF_MAX_S": "2",
                "WEIR_HOST__PIPELINES": '["every_sink"]',
                "PYTHONPATH": str(tmp_path / "module"),
                "SERVERS": broker.servers,
                "DATABASE": url,
            }
            world = World(tmp_path / "home", env, STREAMS)
            try:
                yield Shop(world, broker, database)
            finally:
                world.close()
        finally:
            broker.close()


@pytest.mark.parametrize("kills", [5, pytest.param(30, marks=pytest.mark.soak)])
def test_every_sink_holds_what_was_sent_once_whatever_was_killed(shop: Shop, kills: int) -> None:
    dice, fired = random.Random(kills), Counter[str]()
    host = shop.world.host()
    shop.world.until_state(StreamState.RUNNING)
    for kill in range(kills):
        shop.send(dice, 100)
        let_pass(dice, 0, 6)
        what = ("host", "database", "broker")[kill % 3]
        if what == "host":
            kill_hard(host)
            host = shop.world.host()
        elif what == "database":
            shop.database.stop("immediate")
            let_pass(dice, 0, 2)
            shop.database.start()
        else:
            shop.broker.kill()
            let_pass(dice, 0, 2)
            shop.broker.start()
        fired[what] += 1
    shop.send(dice, 100)

    ledger, until = shop.ledger, shop.world.until
    newest, everything = ledger.newest(), ledger.everything()
    until(lambda: shop.clicks("silver/silver_clicks") == newest, "upsert")
    until(lambda: shop.pages("gold/gold_view") == by_page(list(newest.values())), "materialized view")
    until(lambda: shop.pages("gold/gold_totals") == by_page(everything), "complete")
    until(lambda: shop.pages("gold/gold_latest") == by_page(everything), "update")
    until(lambda: len(shop.rows("silver/silver_history")) >= len(ledger.sent), "history")
    until(lambda: shop.in_topic() == newest, "topic")
    until(lambda: shop.in_database() == newest, "database")
    assert sum(fired.values()) == kills and len(fired) == 3
    bronze, slow = shop.rows("bronze/bronze_clicks"), shop.rows("silver/silver_slow")
    assert Counter((row["partition"], row["offset"]) for row in bronze) == Counter(ledger.sent.keys())
    assert Counter(row["version"] for row in slow) == Counter(version for _, ms, version in everything if ms > 500)
    spans = shop.rows("silver/silver_history")
    assert Counter((row["click_id"], row["valid_from"], row["valid_to"]) for row in spans) == ledger.history()
    assert {row["is_current"] is (row["valid_to"] is None) for row in spans} == {True}
    assert len(shop.rows("silver/silver_clicks")) == len(newest)
