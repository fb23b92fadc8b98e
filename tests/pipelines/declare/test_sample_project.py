"""The sample project of `tests/sample`, Kafka → bronze → upsert → gold: a real broker, a real host, settings alone.

Host and broker are killed at random moments; the tables must equal the ledger of what was sent, each record once.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from backend.stream_model.stream import StreamState
from tests.worlds.processes import kill_hard, let_pass
from tests.worlds.spark.host_process import FAST, World
from tests.worlds.streams.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.ci, pytest.mark.timeout(3_000)]

SAMPLE = Path(__file__).parents[2] / "sample"
STREAMS = ("bronze_clicks", "silver_clicks", "gold_pages")
PAGES = ("home", "cart", None)


@dataclass
class Ledger:
    """Every record that the broker acknowledged: partition and offset to what was sent."""

    sent: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def parsed(self) -> list[dict[str, Any]]:
        return [json.loads(value) for value in self.sent.values() if value.startswith(b"{")]

    def silver(self) -> dict[str, tuple[Any, ...]]:
        """The newest version of each click that took no negative time."""
        newest: dict[str, dict[str, Any]] = {}
        for click in self.parsed():
            known = newest.get(click["click_id"])
            if click["ms"] >= 0 and (known is None or click["version"] > known["version"]):
                newest[click["click_id"]] = click
        return {name: (click["page"], click["ms"], click["version"]) for name, click in newest.items()}

    def gold(self) -> dict[Any, tuple[int, float]]:
        pages = {page for page, _, _ in self.silver().values()}
        taken = {page: [ms for at, ms, _ in self.silver().values() if at == page] for page in pages}
        return {page: (len(all_ms), sum(all_ms) / len(all_ms)) for page, all_ms in taken.items()}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with closing(KafkaBroker(tmp_path_factory.mktemp("clicks_broker"))) as broker:
        yield broker.start()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, broker: KafkaBroker) -> Iterator[World]:
    broker.create("clicks", partitions=2)
    env = {
        **FAST,
        "WEIR_HOST__MAX_RESTARTS": "50",
        "PYTHONPATH": str(SAMPLE),
        "WEIR_HOST__PIPELINES": '["clicks_gold"]',
        "CLICKS_SERVERS": broker.servers,
    }
    with closing(World(tmp_path_factory.mktemp("clicks"), env, STREAMS)) as opened:
        yield opened


def send(broker: KafkaBroker, ledger: Ledger, dice: random.Random, count: int) -> None:
    values = []
    for number in range(count):
        click = {
            "click_id": f"c{dice.randrange(count)}",
            "user_id": f"u{number % 5}",
            "page": dice.choice(PAGES),
            "ms": dice.randrange(-20, 1_000),
            "version": len(ledger.sent) + number,
        }
        values.append(b"not a click" if dice.random() < 0.05 else json.dumps(click).encode())
    dice.shuffle(values)
    for message in broker.produce("clicks", ((None, value) for value in values)):
        ledger.sent[message.partition(), message.offset()] = message.value()


def rows(world: World, table: str) -> list[dict[str, Any]]:
    there = (world.home / "lake" / table / "_delta_log").exists()
    return world.rows(table).to_pylist() if there else []


def gold(world: World) -> dict[Any, tuple[int, float]]:
    return {row["page"]: (row["clicks"], row["mean_ms"]) for row in rows(world, "gold/gold_pages")}


def positions(found: list[dict[str, Any]]) -> Counter[tuple[int, int]]:
    return Counter((row["partition"], row["offset"]) for row in found)


@pytest.mark.parametrize("kills", [2, pytest.param(30, marks=pytest.mark.soak)])
def test_the_tables_equal_what_was_sent_whatever_was_killed(world: World, broker: KafkaBroker, kills: int) -> None:
    dice, ledger, fired = random.Random(kills), Ledger(), Counter[str]()
    for message in broker.read("clicks"):  # what an earlier case sent
        ledger.sent[message.partition(), message.offset()] = message.value()
    host = world.host()
    world.until_state(StreamState.RUNNING)
    for kill in range(kills):
        send(broker, ledger, dice, 200)
        let_pass(dice, 0, 4)
        if kill % 2:
            broker.kill()
            let_pass(dice, 0, 2)
            broker.start()
            fired["broker"] += 1
        else:
            kill_hard(host)
            host = world.host()
            fired["host"] += 1
    send(broker, ledger, dice, 200)

    dead = len(ledger.sent) - len(ledger.parsed())
    world.until(lambda: gold(world) == ledger.gold(), "gold has all")
    world.until(lambda: len(rows(world, "bronze/bronze_clicks_dead_letters")) >= dead, "all dead letters")
    assert sum(fired.values()) == kills
    bronze, letters = rows(world, "bronze/bronze_clicks"), rows(world, "bronze/bronze_clicks_dead_letters")
    assert positions(bronze) + positions(letters) == Counter(ledger.sent.keys())
    assert {bytes(row["value"]) for row in letters} == {b"not a click"}
    silver = rows(world, "silver/silver_clicks")
    assert {row["click_id"]: (row["page"], row["ms"], row["version"]) for row in silver} == ledger.silver()
    assert len(silver) == len(ledger.silver())
    quarantine = rows(world, "silver/silver_clicks_quarantine")
    assert Counter(row["version"] for row in quarantine) == Counter(
        click["version"] for click in ledger.parsed() if click["ms"] < 0
    )
