"""A database's log of 100,000 changes over 5,000 keys as Debezium writes it, shuffled, doubled and replayed: the tables
are the database's last state and its whole history.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import SparkSession

from pipelines.declare.cdc import debezium
from pipelines.sinks.history import history
from pipelines.sinks.upsert import upsert
from pipelines.specs.sinks import Sink
from tests.spark import by_key

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

CHANGES, KEYS, BATCHES, DOUBLED = 100_000, 5_000, 5, 5_000
ROW = "id BIGINT, status STRING, cents BIGINT"
BY_KEY: dict[str, Any] = {"keys": ["id"], "sequence": "position", "deleted": "op = 'd'"}
UPSERT = upsert(**BY_KEY, except_columns=["op", "changed_at"])
HISTORY = history(**BY_KEY, except_columns=["op", "changed_at", "position"])
Flavour = Literal["postgresql", "mongodb"]
Values = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the ledger: `values` are the row's after it, or those that a deletion took."""

    number: int
    key: int
    op: str
    values: Values

    def position(self, flavour: Flavour) -> str:
        return f"{self.lsn:020}" if flavour == "postgresql" else f"{self.moment_ms:020}:{self.number % 3:010}"

    def text(self, flavour: Flavour) -> str:
        """The envelope: a row for PostgreSQL, a document as text for MongoDB."""
        row = {"id": self.key, "status": self.values[0], "cents": self.values[1]}
        image = row if flavour == "postgresql" else json.dumps(row)
        source = {"lsn": self.lsn} if flavour == "postgresql" else {"ts_ms": self.moment_ms, "ord": self.number % 3}
        images = {"before": image, "after": None} if self.op == "d" else {"before": None, "after": image}
        return json.dumps({"op": self.op, "source": source, "ts_ms": self.moment_ms, **images})

    @property
    def lsn(self) -> int:
        return 900 + 97 * self.number

    @property
    def moment_ms(self) -> int:
        return 1_700_000_000_000 + self.number // 3  # three changes in one millisecond


def database(dice: random.Random) -> Iterator[Change]:
    """What a database does: rows are there at a snapshot or made, changed, deleted, and made again."""
    there: dict[int, Values] = {}
    for number in range(CHANGES):
        key = dice.randrange(KEYS)
        values = dice.choice(("placed", "paid", "sent")), dice.randrange(10_000)
        made = "r" if number < KEYS // 5 else "c"
        changed = "d" if dice.random() < 0.1 else "u"
        op = changed if key in there else made
        yield Change(number, key, op, there.pop(key) if op == "d" else values)
        if op != "d":
            there[key] = values


def states(changes: list[Change], flavour: Flavour) -> Iterator[tuple[Any, ...]]:
    """Every state that a key had: its values, from which position until which."""
    begun: dict[int, Change] = {}
    for change in changes:
        if before := begun.pop(change.key, None):
            yield before.key, *before.values, before.position(flavour), change.position(flavour)
        if change.op != "d":
            begun[change.key] = change
    for last in begun.values():
        yield last.key, *last.values, last.position(flavour), None


@pytest.mark.parametrize("flavour", ["postgresql", "mongodb"])
def test_tables_are_the_last_state_and_the_whole_history(spark: SparkSession, tmp_path: Path, flavour: Flavour) -> None:
    dice = random.Random(20261124)
    changes = list(database(dice))
    sent = [*changes, *dice.sample(changes, DOUBLED)]
    dice.shuffle(sent)
    batches = [sent[place::BATCHES] for place in range(BATCHES)]
    files = []
    for number, batch in enumerate([*batches, batches[1]]):  # one arrives once more, whole
        files.append(tmp_path / f"{number}.jsonl")
        files[-1].write_text("".join(f"{change.text(flavour)}\n" for change in batch))

    found = [written(spark, tmp_path, sink, files, flavour) for sink in (UPSERT, HISTORY)]

    expected = sorted(states(changes, flavour), key=str)
    assert len(expected) > CHANGES * 0.8 and any(change.op == "d" for change in changes)
    assert sorted(found[1], key=str) == expected
    assert sorted(found[0]) == sorted(state[:3] for state in expected if state[4] is None)


def written(
    spark: SparkSession, folder: Path, sink: Sink, files: list[Path], flavour: Flavour
) -> list[tuple[Any, ...]]:
    """The rows of the sink's table once it took these files, a batch each."""
    batches = [debezium(spark.read.text(str(file)), ROW, flavour=flavour) for file in files]
    columns = ["id", "status", "cents", *(["valid_from", "valid_to"] if sink is HISTORY else [])]
    return [
        tuple(row)
        for row in by_key.written(sink, folder / sink.kind, batches[0].limit(0), *batches).select(columns).collect()
    ]
