"""A table with a change feed that is changed step by step; what it holds, and what became of each key, is known here.

Rule: what a test expects is counted in plain Python, beside the statements that Spark carries out.
"""

import random
from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

from confluent_kafka import Message
from pyspark.sql import SparkSession

Row = tuple[int, str | None, Decimal]
COLUMNS = "id BIGINT, status STRING, amount DECIMAL(10, 2)"
KEYS = 12


class Orders:
    """`rows`: what the table holds, by key. `changes`: what each key was after each version, None where it was gone."""

    def __init__(self, spark: SparkSession, uri: Path, *, seed: int = 1) -> None:
        self.uri, self.rows, self._spark, self._dice = str(uri), dict[int, Row](), spark, random.Random(seed)
        self.changes: dict[int, list[Row | None]] = {}
        properties = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        spark.sql(f"CREATE TABLE delta.`{uri}` ({COLUMNS}) USING delta {properties}")

    def merge(self) -> None:
        """One version: keys made, changed and deleted."""
        keys = self._dice.sample(range(KEYS), 8)
        given = {key: self._row(key) if self._dice.random() < 0.7 else None for key in keys}
        said = [(key, *(row[1:] if row else (None, None)), row is None) for key, row in given.items()]
        self._spark.createDataFrame(said, f"{COLUMNS}, gone BOOLEAN").createOrReplaceTempView("given")
        self._spark.sql(
            f"MERGE INTO delta.`{self.uri}` AS t USING given AS s ON t.id = s.id"
            " WHEN MATCHED AND s.gone THEN DELETE"
            " WHEN MATCHED THEN UPDATE SET status = s.status, amount = s.amount"
            " WHEN NOT MATCHED AND NOT s.gone THEN INSERT (id, status, amount) VALUES (s.id, s.status, s.amount)"
        )
        for key, row in given.items():
            self._became(key, row)

    def move(self) -> None:
        """An update of keys: each row takes the place of the next one."""
        self._spark.sql(f"UPDATE delta.`{self.uri}` SET id = id + 1")
        before = dict(self.rows)
        for key in {*before, *(key + 1 for key in before)}:
            row = before.get(key - 1)
            self._became(key, (key, *row[1:]) if row else None)

    def delete(self, key: int) -> None:
        self._spark.sql(f"DELETE FROM delta.`{self.uri}` WHERE id = {key}")
        self._became(key, None)

    def begin(self) -> None:
        """A first start reads the present rows, not how they came to be."""
        self.changes = {key: [row] for key, row in self.rows.items()}

    def _row(self, key: int) -> Row:
        status = self._dice.choice(["new", "paid", None, 'a "b"\t\\N\n, ü'])
        return key, status, Decimal(self._dice.randrange(10_000)) / 100

    def _became(self, key: int, row: Row | None) -> None:
        was_there = self.rows.pop(key, None) is not None
        if row is not None:
            self.rows[key] = row
        if row is not None or was_there:
            self.changes.setdefault(key, []).append(row)


def headers(record: Message) -> dict[str, str]:
    return {name: value.decode() for name, value in record.headers() or [] if value is not None}


def kept(records: Iterable[Message]) -> dict[bytes, list[Message]]:
    """What a consumer keeps that drops what is not beyond the highest position of its key."""
    found: dict[bytes, list[Message]] = defaultdict(list)
    for record in records:
        before = found[record.key()]
        if not before or headers(record)["weir.position"] > headers(before[-1])["weir.position"]:
            before.append(record)
    return found
