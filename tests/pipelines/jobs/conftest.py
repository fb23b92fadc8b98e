"""A table of its own for each test of an act."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.worlds.spark.act_host import ActTable


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> ActTable:
    return ActTable(spark, tmp_path)
