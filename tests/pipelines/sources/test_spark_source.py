"""Any format that Spark streams from: its rows once, and a backlog of which it is said that nobody can count it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from backend.lake.lake import Lake
from backend.streams.backlog.reader import BacklogReader
from pipelines import secret, spark_source
from pipelines.declare.registry import declaration
from tests.worlds.spark.declared import lake_of, pipeline_of, problems_of, registry_of


@pytest.mark.spark
def test_a_format_without_a_source_of_its_own_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    theirs = str(tmp_path / "theirs")
    spark.range(5).write.orc(theirs)
    source = spark_source("orc", {"path": theirs, "maxFilesPerTrigger": 1}, schema="id BIGINT", name="the old archive")
    lake = lake_of(tmp_path, source)
    lake.process("bronze_orders")
    spark.range(5, 7).write.mode("append").orc(theirs)
    lake.process("bronze_orders")
    assert sorted(row["id"] for row in lake.rows("bronze/bronze_orders")) == list(range(7))

    registry = lake.runtime._registry
    declared = declaration(registry, registry.get("bronze_orders"), lake.settings)
    assert [(each.kind, each.name) for each in declared.inputs] == [("other", "the old archive")]
    backlog = BacklogReader(lake.settings, Lake(lake.settings)).read(declared, [], now=datetime.now(UTC))
    assert backlog.rows is None and "cannot be counted from here" in backlog.unknown


@pytest.mark.spark
def test_a_source_says_its_columns_itself(spark: SparkSession, tmp_path: Path) -> None:
    source = spark_source("rate-micro-batch", {"rowsPerBatch": 3, "startTimestamp": 1_000})
    lake = lake_of(tmp_path, source)
    lake.process("bronze_orders")
    values = [row["value"] for row in lake.rows("bronze/bronze_orders")]
    assert values and sorted(values) == list(range(len(values)))


def test_what_has_a_source_of_its_own_and_plain_secrets_are_refused() -> None:
    for source, message in (
        (spark_source(" "), "names no format"),
        (spark_source("Kafka"), "Kafka has a source of its own"),
        (spark_source("delta", {"path": "/lake/t"}), "delta has a source of its own"),
        (spark_source("pulsar", {"auth.token": "eyJhbGciOi"}), "auth.token holds a secret in plain text"),
        (spark_source("pulsar", {"auth.token": secret("vault")}), "the secret of auth.token has no place"),
    ):
        (problem,) = problems_of(pipeline_of(source))
        assert problem == f"bronze_orders: spark_source: {message}" or message in problem
    hidden = spark_source("pulsar", {"service.url": "pulsar://p:6650", "auth.token": secret("env:PULSAR")})
    assert problems_of(pipeline_of(hidden)) == []
    assert "PULSAR" not in repr(hidden) and registry_of(pipeline_of(hidden)).names() == ("bronze_orders",)
