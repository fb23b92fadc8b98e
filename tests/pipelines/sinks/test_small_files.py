"""What a table's properties do against small files: file counts with and without, of the same rows."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from backend.settings import load_settings
from pipelines import Pipeline, table
from tests.worlds.spark.lakes import open_lake

pytestmark = [pytest.mark.spark, pytest.mark.ci, pytest.mark.timeout(600)]

BATCHES, TASKS = 4, 5


def in_many_tasks(rows: DataFrame) -> DataFrame:
    return rows.repartition(TASKS)


def test_properties_of_a_table_lead_to_fewer_files(spark: SparkSession, tmp_path: Path) -> None:
    source = str(tmp_path / "lake" / "bronze" / "numbers")
    for batch in range(BATCHES):
        rows = spark.range(batch * 100, batch * 100 + 100).coalesce(1)
        rows.write.format("delta").mode("append").save(source)
    compacted = {"spark.databricks.delta.autoCompact.minNumFiles": "2"}
    numbers = Pipeline("numbers")
    for name, properties, conf in (
        ("silver_plain", {}, {}),
        ("silver_optimized", {"delta.autoOptimize.optimizeWrite": "true"}, {}),
        ("silver_compacted", {"delta.autoOptimize.autoCompact": "true"}, compacted),
    ):
        about = {"trigger": "available now", "table_properties": properties, "spark_conf": conf}
        numbers.streaming_table(name, source=table(source, maxFilesPerTrigger=1), **about)(in_many_tasks)
    lake = open_lake(load_settings(home=tmp_path), *numbers.streams)
    lake.process("silver_plain", "silver_optimized", "silver_compacted")

    files = {}
    for name in ("plain", "optimized", "compacted"):
        rows = spark.read.format("delta").load(lake.uri(f"silver/silver_{name}"))
        assert sorted(row.id for row in rows.collect()) == list(range(100 * BATCHES)), "the same rows"
        files[name] = len(rows.inputFiles())
    assert files == {"plain": BATCHES * TASKS, "optimized": BATCHES, "compacted": 1}
