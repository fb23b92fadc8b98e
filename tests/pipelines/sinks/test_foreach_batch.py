"""A sink of the user's own: what it writes through its session is there once, however often its batch runs."""

from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines import append, expect, foreach_batch, into, table, upsert
from pipelines.declare.registry import declaration
from pipelines.specs.sinks import Sink
from tests.worlds.lake import builders
from tests.worlds.spark.declared import lake_of

pytestmark = pytest.mark.spark


def test_a_replayed_batch_changes_nothing_in_any_table_that_it_wrote(spark: SparkSession, tmp_path: Path) -> None:
    theirs, calls = tmp_path / "theirs/orders", list[int]()
    copied, counted = str(tmp_path / "copied"), str(tmp_path / "counted")
    builders.write(theirs, {"id": [1, 2], "amount": [5, 7]})
    builders.write(tmp_path / "counted", {"kind": ["all"], "sum": [0]})

    def save(rows: DataFrame, batch_id: int, session: SparkSession) -> None:
        calls.append(batch_id)
        rows.write.format("delta").mode("append").save(copied)
        total = rows.agg(F.lit("all").alias("kind"), F.sum("amount").alias("sum"))
        into = DeltaTable.forPath(session, counted).alias("t").merge(total.alias("s"), "t.kind = s.kind")
        into.whenMatchedUpdate(set={"sum": "t.sum + s.sum"}).execute()

    lake = lake_of(tmp_path, table(str(theirs)), sink=foreach_batch(save), name="silver_orders")
    lake.process("silver_orders")
    builders.write(theirs, {"id": [3], "amount": [9]})
    lake.process("silver_orders")
    last = lake.forget_last_batch("silver_orders")
    lake.process("silver_orders")
    assert calls[-2:] == [last, last], "the batch ran twice"
    assert sorted(row["id"] for row in spark.read.format("delta").load(copied).collect()) == [1, 2, 3]
    assert [row["sum"] for row in spark.read.format("delta").load(counted).collect()] == [21]
    assert not (tmp_path / "lake/silver/silver_orders").exists(), "it has no table of its own"

    registry = lake.runtime._registry
    declared = declaration(registry, registry.get("silver_orders"), lake.settings)
    assert declared.writes_to == f"function {__name__}.{save.__qualname__}"
    assert (declared.sink, declared.sink_uri, declared.tables) == ("foreach_batch", "", ())


def test_a_function_that_fails_fails_its_stream_by_its_own_error(spark: SparkSession, tmp_path: Path) -> None:
    theirs = builders.write(tmp_path / "theirs/orders", {"id": [1]})

    def save(rows: DataFrame, batch_id: int, session: SparkSession) -> None:
        raise LookupError(f"no place for batch {batch_id}")

    lake = lake_of(tmp_path, table(str(theirs)), sink=foreach_batch(save), name="silver_orders")
    lake.runtime.start("silver_orders")
    assert lake.ended("silver_orders").failure == ("LookupError", "no place for batch 0")


@pytest.mark.ci
@pytest.mark.parametrize(
    "sink",
    [append(), upsert(keys=["id"], sequence="id"), foreach_batch(lambda rows, batch_id, session: rows.count())],
    ids=lambda sink: sink.kind,
)
def test_what_a_function_observes_is_told_once_a_batch(spark: SparkSession, tmp_path: Path, sink: Sink) -> None:
    """Also where rows are quarantined, which looks at them several times."""
    theirs = builders.write(tmp_path / "theirs/orders", {"id": [1, 2, 3], "amount": [5, None, 7]})

    def counted(rows: DataFrame) -> DataFrame:
        empty = F.count_if(F.col("amount").isNull()).alias("without_amount")
        return rows.observe("quality", F.count("*").alias("rows"), empty, F.max("amount").alias("most"))

    rules = [expect("first", "id < 3", on_violation="quarantine")]
    also = [into("silver_copy", append())] if sink.kind == "append" else []
    options = {"sink": sink, "name": "silver_orders", "expectations": rules, "also": also}
    lake = lake_of(tmp_path, table(str(theirs)), counted, **options)
    lake.process("silver_orders")
    observed = [each["observedMetrics"] for each in lake.heard.progress if each["numInputRows"]]
    assert [metrics["quality"] for metrics in observed] == [{"rows": 3, "without_amount": 1, "most": 7}]
    assert [metrics["expectations"] for metrics in observed] == [{"first_passed": 2, "first_failed": 1}]
