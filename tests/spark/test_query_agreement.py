"""SQL over tables that Spark wrote is answered as Spark SQL answers it on the same versions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from backend.access import Actor
from backend.query.answer import answered
from backend.query.plan import plan_query
from backend.query.worker import QueryLimits
from backend.settings import load_settings
from backend.times import Clock
from tests import questions
from tests.questions import open_world

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
LIMITS = QueryLimits(500_000_000, 100_000_000, 120.0)
MAPPED = {"delta.columnMapping.mode": "name", "delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}
OPTIONS = {"orders": {"delta.enableDeletionVectors": "true"}, "customers": MAPPED, "events": {}}


class Both:
    """One lake for Weir and for Spark."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.spark, self.lake = spark, home / "lake" / "silver"
        self.world = open_world(load_settings(home=home))

    def write(self, name: str, frame: pd.DataFrame, mode: str = "append", **options: str) -> None:
        rows = pa.Table.from_pandas(frame, preserve_index=False)
        writer = self.spark.createDataFrame(rows).write.format("delta").mode(mode).options(**options)
        (writer.partitionBy("day") if name == "orders" else writer).save(str(self.lake / name))

    def act(self, statement: str, name: str) -> None:
        self.spark.sql(statement.format(f"delta.`{self.lake / name}`"))

    def answers(self, text: str, versions: dict[str, tuple[str, int]]) -> tuple[list[tuple[str, ...]], pa.Table]:
        """Weir's, comparable, and Spark's."""
        ours = {name: f"silver.{table} VERSION AS OF {version}" for name, (table, version) in versions.items()}
        theirs = {n: f"delta.`{self.lake / table}` VERSION AS OF {v}" for n, (table, v) in versions.items()}
        with answered(self.world, plan_query(self.world, text.format(**ours), Clock()), LIMITS, Actor("x")) as rows:
            found = comparable(rows.read_all())
        return found, comparable(self.spark.sql(text.format(**theirs)).toArrow())


def comparable(table: pa.Table) -> list[tuple[str, ...]]:
    columns = [column.to_pylist() for column in table.columns]
    rows: list[tuple[Any, ...]] = list(zip(*columns, strict=True))
    return questions.comparable(rows)


@pytest.fixture(scope="module")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    made = Both(session, tmp_path_factory.mktemp("query"))
    for name, frame in (
        ("orders", questions.orders()), ("customers", questions.customers()), ("events", questions.events())
    ):  # fmt: skip
        made.write(name, frame, **OPTIONS[name])
    made.write("orders", questions.appended())
    made.act("UPDATE {} SET status = 'paid' WHERE customer_id = 3", "orders")
    made.act("DELETE FROM {} WHERE status = 'lost'", "orders")
    yield made


@pytest.mark.parametrize("question", questions.QUESTIONS, ids=lambda question: question.name)
def test_both_answer_alike(both: Both, question: questions.Question) -> None:
    versions = {name: ("orders", version) for name, version in questions.VERSIONS.items()}
    ours, theirs = both.answers(question.sql, versions | {"customers": ("customers", 0), "events": ("events", 0)})
    assert ours and ours == theirs
    assert ours == questions.comparable(question.by_pandas(questions.states()))


def test_deletion_vectors_were_there_to_be_read(both: Both) -> None:
    assert both.world.lake.snapshot(both.world.lake.find("silver/orders"), 3).deleted_rows > 0


def test_a_widened_and_a_renamed_column_between_two_versions(both: Both) -> None:
    columns = "id INT, amount DOUBLE, note STRING"
    properties = "'delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true'"
    both.act(f"CREATE TABLE {{}} ({columns}) USING delta TBLPROPERTIES ({properties})", "grown")
    both.act("INSERT INTO {} VALUES (1, 1.5, 'a'), (2, NULL, 'b'), (3, 3.5, NULL)", "grown")
    both.act("ALTER TABLE {} RENAME COLUMN amount TO price", "grown")
    both.act("ALTER TABLE {} ALTER COLUMN id TYPE BIGINT", "grown")
    both.act("INSERT INTO {} VALUES (3000000000, 9.5, 'c'), (2, 7.5, 'd')", "grown")
    text = "SELECT o.id, o.amount, n.price, n.note FROM {old} o FULL OUTER JOIN {new} n ON o.id = n.id"
    ours, theirs = both.answers(text, {"old": ("grown", 1), "new": ("grown", 4)})
    assert len(ours) == 5 and ours == theirs
