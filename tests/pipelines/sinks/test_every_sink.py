"""The sample project and every other kind of sink on one topic, while host, broker and database are killed.

Each table ends with what was sent, once; so do topic and database.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

from backend.stream_model.stream import StreamState
from tests.worlds.processes import kill_hard, let_pass
from tests.worlds.programs import needs_postgres
from tests.worlds.spark.exports import kept
from tests.worlds.spark.host_process import FAST, World
from tests.worlds.store.postgres import OwnPostgres, own_postgres
from tests.worlds.streams.kafka_broker import KafkaBroker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.ci,
    pytest.mark.timeout(3_600),
    needs_postgres,
]
SAMPLE = Path(__file__).parents[2] / "sample"
STREAMS = (
    "bronze_clicks",
    "silver_clicks",
    "gold_pages",
    "silver_all",
    "silver_history",
    "gold_totals",
    "gold_latest",
    "own_clicks",
    "topic_clicks",
    "database_clicks",
)
MODULE = """
import os
from pathlib import Path
from clicks_gold import clicks
from pyspark.sql import functions as F
from pipelines import *

bronze, silver = table("bronze_clicks"), table("silver_clicks")
states = history(keys=["click_id"], sequence="version")
topic = kafka_topic(os.environ["CLICKS_SERVERS"], "clicks_out", key="click_id")
database = postgres_table(os.environ["DATABASE"], "clicks", keys=["click_id"])
often = "1 second"
slow = into("silver_slow", append(), where="ms > 500")


@clicks.streaming_table("silver_all", source=bronze, sink=append(), also=[slow], trigger=often)
def silver_all(rows):
    return rows.select("click_id", "page", "ms", "version")


@clicks.streaming_table("silver_history", source=bronze, sink=states, trigger=often)
def silver_history(rows):
    return rows.select("click_id", "page", "ms", "version")


def by_page(rows):
    return rows.groupBy("page").agg(F.count("*").alias("clicks"), F.sum("ms").alias("ms"))


clicks.streaming_table("gold_totals", source=bronze, sink=complete(), trigger=often)(by_page)
clicks.streaming_table("gold_latest", source=bronze, sink=update(keys=["page"]), trigger=often)(by_page)


def save(rows, batch_id, session):
    for name in ("first", "second"):
        rows.select("version").write.format("delta").mode("append").save(os.environ["WEIR_HOME"] + "/lake/own/" + name)


@clicks.streaming_table("own_clicks", source=bronze, sink=foreach_batch(save), trigger=often)
def own_clicks(rows):
    return rows


@clicks.streaming_table("topic_clicks", source=silver.changes(), sink=topic, trigger=often)
def topic_clicks(changes):
    return changes


@clicks.streaming_table("database_clicks", source=silver.changes(), sink=database, trigger=often)
def database_clicks(changes):
    return changes
"""
CREATE = "CREATE TABLE clicks (click_id text PRIMARY KEY, user_id text, page text, ms bigint, version bigint)"
Click = tuple[str | None, int, int]  # page, ms, version


@dataclass
class Ledger:
    """Every record that the broker acknowledged: partition and offset to what was sent."""

    sent: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def clicks(self) -> list[dict[str, Any]]:
        """In the order of their versions."""
        parsed = (json.loads(value) for value in self.sent.values() if value.startswith(b"{"))
        return sorted(parsed, key=lambda click: int(click["version"]))

    def newest(self) -> dict[str, Click]:
        """The newest version of each click that took no negative time."""
        return {
            click["click_id"]: (click["page"], click["ms"], click["version"])
            for click in self.clicks()
            if click["ms"] >= 0
        }

    def history(self) -> Counter[tuple[str, int | None, int | None]]:
        versions: dict[str, list[int]] = {}
        for click in self.clicks():
            versions.setdefault(click["click_id"], []).append(click["version"])
        return Counter(
            (name, at, end) for name, of in versions.items() for at, end in pairwise([*of, None]) if at is not None
        )

    def by_page(self) -> dict[str | None, tuple[int, int]]:
        pages: dict[str | None, list[int]] = {}
        for click in self.clicks():
            pages.setdefault(click["page"], []).append(click["ms"])
        return {page: (len(of), sum(of)) for page, of in pages.items()}

    def means(self) -> dict[str | None, tuple[int, float]]:
        """Of the newest clicks, by page."""
        pages: dict[str | None, list[int]] = {}
        for page, ms, _ in self.newest().values():
            pages.setdefault(page, []).append(ms)
        return {page: (len(of), sum(of) / len(of)) for page, of in pages.items()}


@dataclass
class Shop:
    """The sinks, read without Spark; broker and database can be killed."""

    world: World
    broker: KafkaBroker
    database: OwnPostgres
    ledger: Ledger = field(default_factory=Ledger)

    def send(self, dice: random.Random, count: int) -> None:
        first, values = len(self.ledger.sent), list[bytes]()
        for version in range(first, first + count):
            click = {"click_id": f"c{dice.randrange(60)}", "page": dice.choice(("home", "cart", None))}
            click |= {"user_id": f"u{version % 5}", "ms": dice.randrange(-20, 1_000), "version": version}
            values.append(b"not a click" if dice.random() < 0.05 else json.dumps(click).encode())
        dice.shuffle(values)
        for message in self.broker.produce("clicks", ((None, value) for value in values)):
            self.ledger.sent[message.partition(), message.offset()] = message.value()

    def rows(self, table: str) -> list[dict[str, Any]]:
        there = (self.world.home / "lake" / table / "_delta_log").exists()
        return self.world.rows(table).to_pylist() if there else []

    def versions(self, table: str) -> Counter[int]:
        return Counter(row["version"] for row in self.rows(table))

    def pages(self, table: str, column: str = "ms") -> dict[str | None, tuple[int, float]]:
        return {row["page"]: (row["clicks"], row[column]) for row in self.rows(table)}

    def in_topic(self) -> dict[str, Click]:
        """What a consumer holds that keeps each key's highest position."""
        values = [json.loads(of[-1].value()) for of in kept(self.broker.read("clicks_out")).values()]
        return {value["click_id"]: (value.get("page"), value["ms"], value["version"]) for value in values}

    def in_database(self) -> dict[str, Click]:
        with psycopg.connect(self.database.url.replace("+psycopg", "")) as connection:
            rows = connection.execute("SELECT click_id, page, ms, version FROM clicks").fetchall()
        return {name: (page, ms, version) for name, page, ms, version in rows}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    (tmp_path / "module").mkdir()
    (tmp_path / "module" / "every_sink.py").write_text(MODULE)
    (tmp_path / "broker").mkdir()
    with closing(KafkaBroker(tmp_path / "broker")) as broker, own_postgres() as database:
        broker.start()
        for topic in ("clicks", "clicks_out"):
            broker.create(topic)
        url = database.url.replace("+psycopg", "")
        with psycopg.connect(url) as connection:
            connection.execute(CREATE)
        env = {
            **FAST,
            "WEIR_HOST__MAX_RESTARTS": "500",
            "WEIR_HOST__BACKOFF_MAX_S": "2",
            "WEIR_HOST__PIPELINES": '["every_sink"]',
            "PYTHONPATH": f"{SAMPLE}:{tmp_path / 'module'}",
            "CLICKS_SERVERS": broker.servers,
            "DATABASE": url,
        }
        with closing(World(tmp_path / "home", env, STREAMS)) as world:
            yield Shop(world, broker, database)


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.soak)])
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
    newest, clicks = ledger.newest(), ledger.clicks()
    everything, dead = Counter(click["version"] for click in clicks), len(ledger.sent) - len(clicks)
    until(lambda: shop.pages("gold/gold_pages", "mean_ms") == ledger.means(), "materialized view")
    until(lambda: shop.pages("gold/gold_totals") == ledger.by_page(), "complete")
    until(lambda: shop.pages("gold/gold_latest") == ledger.by_page(), "update")
    until(lambda: len(shop.rows("silver/silver_history")) >= len(clicks), "history")
    until(lambda: shop.versions("silver/silver_all") >= everything, "append")
    until(lambda: shop.versions("own/second") >= everything, "a function of the user's own")
    until(lambda: len(shop.rows("bronze/bronze_clicks_dead_letters")) >= dead, "dead letters")
    until(lambda: shop.in_topic() == newest, "topic")
    until(lambda: shop.in_database() == newest, "database")
    assert sum(fired.values()) == kills and len(fired) == 3

    bronze, letters = shop.rows("bronze/bronze_clicks"), shop.rows("bronze/bronze_clicks_dead_letters")
    places = Counter((row["partition"], row["offset"]) for row in bronze + letters)
    assert places == Counter(ledger.sent.keys()), "each record, once"
    assert {bytes(row["value"]) for row in letters} == {b"not a click"}
    silver = shop.rows("silver/silver_clicks")
    assert {row["click_id"]: (row["page"], row["ms"], row["version"]) for row in silver} == newest
    assert len(silver) == len(newest)
    assert shop.versions("silver/silver_clicks_quarantine") == Counter(c["version"] for c in clicks if c["ms"] < 0)
    assert shop.versions("silver/silver_all") == shop.versions("own/first") == shop.versions("own/second") == everything
    assert shop.versions("silver/silver_slow") == Counter(click["version"] for click in clicks if click["ms"] > 500)
    spans = shop.rows("silver/silver_history")
    assert Counter((row["click_id"], row["valid_from"], row["valid_to"]) for row in spans) == ledger.history()
    assert all(row["is_current"] == (row["valid_to"] is None) for row in spans)
