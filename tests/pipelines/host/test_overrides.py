"""A stream runs with the settings that a person gave it, and with the declared ones again."""

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from backend.errors import OverrideError
from backend.settings import load_settings
from backend.streams.checkpoint import pinned_by
from pipelines import Pipeline, files, table
from pipelines.declare.registry import declarations
from pipelines.specs.registry import Registry
from tests.worlds.processes import wait_until
from tests.worlds.spark.lakes import DemoLake, open_lake

pytestmark = pytest.mark.spark

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
        spark_conf={"spark.sql.shuffle.partitions": "3"},
    )
    def silver_orders(records: DataFrame) -> DataFrame:
        return records.select("id").distinct()

    opened = open_lake(load_settings(home=tmp_path), *shop.streams)
    land(opened, range(4))
    return opened


def land(lake: DemoLake, numbers: range) -> None:
    for number in numbers:
        (lake.settings.home / "landing" / f"{number}.json").write_text(json.dumps({"id": number}) + "\n")


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


def test_settings_of_spark_come_and_go_and_a_checkpoint_keeps_its_own(lake: DemoLake) -> None:
    lake.process("bronze_orders")
    conf = {"spark.sql.shuffle.partitions": "5", "spark.sql.files.maxRecordsPerFile": "1"}
    lake.process("silver_orders", overrides=conf)
    assert len(lake.runtime.session.read.format("delta").load(lake.uri("silver/silver_orders")).inputFiles()) == 4
    declared = declarations(Registry(lake.runtime._registry.streams), lake.settings)
    (silver,) = (each for each in declared if each.name == "silver_orders")
    assert silver.spark_conf == {"spark.sql.shuffle.partitions": "3"}
    assert pinned_by(lake.settings, silver)["spark.sql.shuffle.partitions"] == "5"
    land(lake, range(4, 8))
    lake.process("bronze_orders")
    lake.process("silver_orders")
    own = lake.runtime._sessions["silver_orders"].conf
    assert own.get("spark.sql.shuffle.partitions") == "3"
    assert own.get("spark.sql.files.maxRecordsPerFile") == "0", "as the host has it"
    assert pinned_by(lake.settings, silver)["spark.sql.shuffle.partitions"] == "5", "as the preview says"


def test_a_host_does_not_start_a_stream_with_what_the_store_should_not_hold(lake: DemoLake) -> None:
    elsewhere = lake.settings.home / "elsewhere"
    with pytest.raises(OverrideError, match=r"spark\.sql\.streaming\.checkpointLocation cannot be set"):
        lake.runtime.start("silver_orders", {"spark.sql.streaming.checkpointLocation": str(elsewhere)})
    assert not elsewhere.exists() and not lake.runtime.poll("silver_orders").active


def test_a_trigger_paces_the_batches(lake: DemoLake) -> None:
    lake.runtime.start("bronze_orders", {"trigger": "1 day"})
    done = lake.settings.home / "checkpoints/bronze_orders/commits/0"
    wait_until(done.exists, "the first batch")
    assert lake.runtime.poll("bronze_orders").active, "it was declared to end"
    lake.runtime.cut("bronze_orders")
