"""A sink of the user's own: what it writes through its session is there once, however often its batch runs."""

import os
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from deltalake import DeltaTable as DeltaFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines import Pipeline, append, expect, foreach_batch, into, table, upsert
from pipelines.declare.registry import declaration
from pipelines.specs.sinks import Sink
from tests.worlds.lake import builders
from tests.worlds.processes import kill_hard, wait_until
from tests.worlds.spark.declared import lake_of, pipeline_of, problems_of
from tests.worlds.spark.host_process import FAST, World

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


def test_it_takes_no_part_among_several_destinations_and_no_table() -> None:
    save = foreach_batch(lambda rows, batch_id, session: None)
    pipeline = pipeline_of(table("/lake/orders"), name="silver_orders", also=[into("silver_more", save)])
    assert [problem for problem in problems_of(pipeline) if "cannot be one of several destinations" in problem]
    problems = problems_of(pipeline_of(table("/lake/orders"), sink=save, partition_cols=["day"]))
    assert problems == ["bronze_orders: partition_cols: it has no table of its own"]
    wrong = foreach_batch(lambda rows, batch_id, session: None, output_mode="all")  # type: ignore[arg-type]
    (problem,) = problems_of(pipeline_of(table("/lake/orders"), sink=wrong))
    assert "output_mode='all' is not known" in problem
    assert Pipeline("shop").problems == []


MODULE = """
import os, time
from pathlib import Path
from pipelines import Pipeline, foreach_batch, table

shop = Pipeline("shop")
home = Path(os.environ["WEIR_HOME"])

def save(rows, batch_id, session):
    with (home / "calls").open("a") as calls:
        calls.write(f"{batch_id}\\n")
    rows.write.format("delta").mode("append").save(str(home / "first"))
    while (home / "hold").exists():
        time.sleep(0.05)
    rows.write.format("delta").mode("append").save(str(home / "second"))

orders = table(os.environ["ORDERS"])

@shop.streaming_table("silver_orders", source=orders, sink=foreach_batch(save), trigger="200 milliseconds")
def silver_orders(rows):
    return rows
"""


@pytest.mark.ci
@pytest.mark.timeout(600)
def test_a_host_that_is_killed_between_two_tables_leaves_each_with_every_row_once(tmp_path: Path) -> None:
    (tmp_path / "module").mkdir()
    (tmp_path / "module/batch_shop.py").write_text(MODULE)
    orders = builders.write(tmp_path / "theirs/orders", {"id": [1, 2, 3]})
    env = {**FAST, "PYTHONPATH": str(tmp_path / "module"), "WEIR_HOST__PIPELINES": '["batch_shop"]'}
    env["ORDERS"] = str(orders)
    hold, home = tmp_path / "home/hold", tmp_path / "home"

    def ids(name: str) -> list[int]:
        there = any((home / name / "_delta_log").glob("*.json"))
        return (
            sorted(pair["id"] for pair in pa.table(DeltaFiles(str(home / name)).scan().read_all()).to_pylist())
            if there
            else []
        )

    with closing(World(home, env, ("silver_orders",))) as world:
        hold.touch()
        host = world.host()
        wait_until(lambda: ids("first") == [1, 2, 3], world.describe)
        assert ids("second") == [], "it was not between the two"
        kill_hard(host)
        hold.unlink()
        world.host()
        wait_until(lambda: ids("second") == [1, 2, 3], world.describe)
        builders.write(orders, {"id": [4]})
        wait_until(lambda: ids("second") == [1, 2, 3, 4], world.describe)
        assert ids("first") == [1, 2, 3, 4]
        assert (home / "calls").read_text().split()[:2] == ["0", "0"], "the batch was not replayed"
        assert os.environ.get("ORDERS") is None
