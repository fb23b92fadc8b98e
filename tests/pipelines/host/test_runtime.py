"""The only door to running queries: start, poll, stop, cut; what a failure is called, and what a person set."""

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from backend.errors import OverrideError
from backend.settings import load_settings
from backend.stream_model.stream import StreamFailure, StreamState
from backend.streams.checkpoint import pinned_by
from backend.streams.reconcile import Live
from backend.work import elapsed
from pipelines import Pipeline, append, files, rate, table
from pipelines.declare.pipeline import declarations
from pipelines.jvm.failures import StreamStartError
from pipelines.spark.runtime import NOT_RENEWED
from pipelines.specs.ends import Target
from pipelines.specs.streams import Registry, StreamSpec
from pipelines.specs.tables import TableSpec
from tests.worlds.processes import PATIENCE_S, wait_until
from tests.worlds.spark.lakes import DemoLake, open_lake

pytestmark = pytest.mark.spark

NUMBERS = TableSpec("numbers", "bronze", "Numbers", "value BIGINT")


def values(ticks: DataFrame) -> DataFrame:
    return ticks.select("value")


@pytest.fixture
def numbers(spark: SparkSession, tmp_path: Path) -> Callable[..., DemoLake]:
    """`numbers(function=…)`: an open lake with one stream of this name."""

    def build(**changes: object) -> DemoLake:
        spec = StreamSpec("numbers", NUMBERS, (rate(10),), values, append(), trigger_interval_s=0.2)
        return open_lake(load_settings(home=tmp_path), replace(spec, **changes))  # type: ignore[arg-type]

    return build


def until(met: Callable[[], bool]) -> None:
    wait_until(met, "the stream goes on", limit_s=PATIENCE_S)


class SlowSink:
    """Takes a second for each batch, and notes when it begins and ends one."""

    kind = output_mode = "append"
    is_native = False
    keys = ()

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []

    def beside(self, table: TableSpec) -> tuple[TableSpec, ...]:
        return ()

    def table_schema(self, rows: StructType) -> StructType:
        return rows

    beside_schema = table_schema

    def write(self, batch: DataFrame, target: Target) -> None:
        batch_id = int(batch.sparkSession.conf.get("spark.databricks.delta.write.txnVersion"))
        self.begun.append(batch_id)
        time.sleep(1)
        self.ended.append(batch_id)


@pytest.mark.soak
def test_tables_are_made_while_no_other_host_makes_them(numbers: Callable[..., DemoLake], tmp_path: Path) -> None:
    lake, seen = numbers(), []
    shutil.rmtree(tmp_path / "lake")

    @contextmanager
    def alone(section: str) -> Iterator[None]:
        seen.append((section, (tmp_path / "lake").exists()))
        yield
        seen.append((section, (tmp_path / "lake" / "bronze" / "numbers" / "_delta_log").exists()))

    assert lake.runtime.open(alone) == ()
    assert seen == [("tables of numbers", False), ("tables of numbers", True)], list(tmp_path.rglob("_delta_log"))


def test_a_stream_starts_stops_and_keeps_its_query_id(numbers: Callable[..., DemoLake]) -> None:
    lake = numbers()
    assert lake.runtime.poll("numbers") == Live(StreamState.STOPPED)
    first = lake.runtime.start("numbers")
    until(lambda: (lake.settings.home / "checkpoints/numbers/offsets/1").exists())
    assert lake.runtime.poll("numbers").state is StreamState.RUNNING
    lake.runtime.stop("numbers", timeout_s=PATIENCE_S)
    ended = lake.runtime.poll("numbers")
    assert (ended.state, ended.failure) == (StreamState.COMPLETED, None)
    lake.runtime.stop("numbers", timeout_s=0)  # twice does no harm
    again = lake.runtime.start("numbers")
    lake.runtime.cut("numbers")
    assert again.query_id == first.query_id
    assert again.run_id != first.run_id


def test_a_graceful_stop_of_a_stream_that_is_always_behind_waits_for_one_batch(
    numbers: Callable[..., DemoLake],
) -> None:
    sink = SlowSink()
    lake = numbers(sink=sink, trigger_interval_s=0.2)  # each batch takes longer: the next one begins at once
    lake.runtime.start("numbers")
    until(lambda: len(sink.begun) == 3)
    running = sink.begun[-1]
    lake.runtime.stop("numbers", timeout_s=PATIENCE_S)
    assert sink.begun[-1] <= running + 2, "the next one has begun at most, and the stop fell into it"
    assert (lake.settings.home / "checkpoints/numbers/commits" / str(running)).exists()


def why_ended(lake: DemoLake) -> tuple[str, str]:
    failure = lake.runtime.poll("numbers").failure
    assert failure is not None
    return failure.error_class, failure.message


def test_spark_stops_a_query_that_nobody_holds_any_longer(numbers: Callable[..., DemoLake]) -> None:
    """With nothing asked of this process meanwhile: it may be frozen."""
    lake = numbers()
    lake.runtime.hold("numbers", elapsed() + PATIENCE_S)
    run = lake.runtime.start("numbers")
    until(lambda: (lake.settings.home / "checkpoints/numbers/offsets/1").exists())
    lake.runtime.hold("numbers", elapsed() + 1)
    spark, log = lake.runtime.session, lake.settings.home / "checkpoints/numbers/commits"
    until(lambda: not [query for query in spark.streams.active if str(query.runId) == run.run_id])
    stood = len(list(log.iterdir()))
    assert why_ended(lake) == NOT_RENEWED
    with pytest.raises(StreamStartError, match="could not renew its lease"):
        lake.runtime.start("numbers")

    lake.runtime.hold("numbers", elapsed() + PATIENCE_S)
    assert why_ended(lake) == NOT_RENEWED, "a word that comes too late brings no query back"
    lake.runtime.start("numbers")
    until(lambda: len(list(log.iterdir())) > stood)
    assert lake.runtime.poll("numbers").state is StreamState.RUNNING
    lake.runtime.cut("numbers")
    assert lake.runtime.poll("numbers").failure is None, "a stop that was asked for is none of this"


def test_a_second_start_leaves_the_first_batch_that_is_being_planned(numbers: Callable[..., DemoLake]) -> None:
    """Spark writes a plan to a draft, and renames it: one that is taken from under it fails the query."""
    lake = numbers(sources=(files("none", format="json", schema="value BIGINT"),))  # nothing to plan yet
    run = lake.runtime.start("numbers")
    (query,) = (each for each in lake.runtime.session.streams.active if str(each.runId) == run.run_id)
    until(lambda: query.status["message"] == "Waiting for data to arrive")  # it has looked at its checkpoint
    try:
        draft = lake.settings.home / "checkpoints/numbers/offsets/.0.4b39.tmp"
        draft.write_text("v1")
        with pytest.raises(StreamStartError, match="runs already"):
            lake.runtime.start("numbers")
        assert draft.exists()
        state = lake.runtime.poll("numbers")
        assert (state.state, state.run_id) == (StreamState.RUNNING, run.run_id), "the first runs on"
    finally:
        lake.runtime.cut("numbers")


def poison(rows: DataFrame) -> DataFrame:
    raise ValueError("no such colour")


@pytest.mark.parametrize(
    ("function", "error_class", "message"),
    [
        (poison, "ValueError", "numbers did not start: no such colour"),
        pytest.param(
            lambda rows: rows.select("colour"), "UNRESOLVED_COLUMN.WITH_SUGGESTION", "colour", marks=pytest.mark.ci
        ),
    ],
    ids=["raises", "is refused by Spark"],
)
def test_a_function_that_fails_at_the_start_names_its_error(
    numbers: Callable[..., DemoLake], function: Any, error_class: str, message: str
) -> None:
    with pytest.raises(StreamStartError, match=message) as refused:
        numbers(function=function).runtime.start("numbers")
    assert refused.value.error_class == error_class


def root_of(value: Column) -> Column:
    return F.udf(math.sqrt, "double")(value - 1e9)


@pytest.mark.parametrize(
    ("poison", "error_class", "message"),
    [
        (lambda value: F.raise_error(F.lit("boom")).cast("bigint"), "USER_RAISED_EXCEPTION", "boom"),
        pytest.param(root_of, "ValueError", "math domain error", marks=pytest.mark.ci),
    ],
)
def test_a_batch_that_fails_names_the_innermost_error(
    numbers: Callable[..., DemoLake], poison: Callable[[Column], Column], error_class: str, message: str
) -> None:
    lake = numbers(function=lambda df: df.select(poison(F.col("value")).cast("bigint").alias("value")))
    lake.runtime.start("numbers")
    ended = lake.ended("numbers")
    assert isinstance(ended.failure, StreamFailure)
    assert ended.failure.error_class == error_class
    assert message in ended.failure.message
    checkpoint = lake.settings.home / "checkpoints/numbers"
    assert ended.failure.batch_id == max(int(path.name) for path in (checkpoint / "offsets").glob("[0-9]*"))
    shutil.rmtree(checkpoint)
    checkpoint.write_text("no folder")
    again = lake.runtime.poll("numbers").failure
    assert again and replace(again, failed_at=ended.failure.failed_at) == ended.failure, (
        "also when its checkpoint cannot be read any more"
    )


# overrides ------------------------------------------------------------------------------------------------------------

CONF = {"spark.sql.shuffle.partitions": "3", "spark.sql.variable.substitute": "true"}
ONE_FILE = {"trigger": "available now", "maxFilesPerTrigger": "1"}


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> DemoLake:
    """`bronze_orders` reads ten files at most a batch, `silver_orders` its table with a setting of its own."""
    shop = Pipeline("shop")

    @shop.streaming_table(
        "bronze_orders",
        source=files("landing", format="json", schema="id BIGINT", max_files_per_trigger=10),
        trigger="available now",
    )
    def bronze_orders(records: DataFrame) -> DataFrame:
        return records

    @shop.streaming_table(
        "silver_orders",
        source=table("bronze_orders"),
        trigger="available now",
        spark_conf=CONF,
    )
    def silver_orders(records: DataFrame) -> DataFrame:
        return records.select("id").distinct()

    opened = open_lake(load_settings(home=tmp_path), *shop.streams)
    land(opened, range(4))
    return opened


def land(lake: DemoLake, numbers: range) -> None:
    for number in numbers:
        (lake.settings.home / "landing" / f"{number}.json").write_text(json.dumps({"id": number}) + "\n")


@pytest.mark.soak
def test_limits_of_files_and_tables_hold_for_the_runs_that_are_given_them(lake: DemoLake) -> None:
    assert lake.process("bronze_orders", overrides=ONE_FILE) == [1, 1, 1, 1]
    land(lake, range(4, 8))
    assert lake.process("bronze_orders") == [4]
    assert lake.process("silver_orders", overrides=ONE_FILE)[:4] == [1, 1, 1, 1]
    land(lake, range(8, 10))
    size = (lake.settings.home / "landing/9.json").stat().st_size
    assert lake.process("bronze_orders", overrides={"maxBytesPerTrigger": str(size)}) == [1, 1], (
        "instead of the declared limit"
    )
    assert sorted(row["id"] for row in lake.rows("bronze/bronze_orders")) == list(range(10))


@pytest.mark.ci
def test_settings_of_spark_come_and_go_and_a_checkpoint_keeps_its_own(lake: DemoLake) -> None:
    lake.process("bronze_orders")
    conf = {"spark.sql.shuffle.partitions": "5", "spark.sql.files.maxRecordsPerFile": "1"}
    lake.process("silver_orders", overrides=conf)
    assert len(lake.runtime.session.read.format("delta").load(lake.uri("silver/silver_orders")).inputFiles()) == 4
    declared = declarations(Registry(lake.runtime._registry.streams), lake.settings)
    (silver,) = (each for each in declared if each.name == "silver_orders")
    assert silver.spark_conf == CONF
    own = lake.runtime._sessions["silver_orders"]
    assert own.sql("SELECT '${env:PATH}'").collect() == [("${env:PATH}",)], "nobody has the environment read"
    assert pinned_by(lake.settings, silver)["spark.sql.shuffle.partitions"] == "5"
    land(lake, range(4, 8))
    lake.process("bronze_orders")
    lake.process("silver_orders")
    own = lake.runtime._sessions["silver_orders"].conf
    assert own.get("spark.sql.shuffle.partitions") == "3"
    assert own.get("spark.sql.files.maxRecordsPerFile") == "0", "as the host has it"
    assert pinned_by(lake.settings, silver)["spark.sql.shuffle.partitions"] == "5", "as the preview says"


@pytest.mark.ci
def test_a_host_does_not_start_a_stream_with_what_the_store_should_not_hold(lake: DemoLake) -> None:
    elsewhere = lake.settings.home / "elsewhere"
    with pytest.raises(OverrideError, match=r"spark\.sql\.streaming\.checkpointLocation cannot be set"):
        lake.runtime.start("silver_orders", {"spark.sql.streaming.checkpointLocation": str(elsewhere)})
    assert not elsewhere.exists() and lake.runtime.poll("silver_orders").state is not StreamState.RUNNING


def test_a_trigger_paces_the_batches(lake: DemoLake) -> None:
    lake.runtime.start("bronze_orders", {"trigger": "1 day"})
    done = lake.settings.home / "checkpoints/bronze_orders/commits/0"
    wait_until(done.exists, "the first batch")
    assert lake.runtime.poll("bronze_orders").state is StreamState.RUNNING, "it was declared to end"
    lake.runtime.cut("bronze_orders")
