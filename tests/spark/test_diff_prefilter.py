"""Different rows have different hashes in Spark, also where Spark's own, which leaves out nulls, are the same."""

from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.dataframe import DataFrame

from pipelines.jobs.prefilter import SparkLimits, prefilter, row_hash
from pipelines.jobs.states import SIGN

pytestmark = pytest.mark.spark

INTS = T.ArrayType(T.IntegerType())
PAIR = T.StructType([T.StructField("a b", T.IntegerType()), T.StructField("c.d", T.IntegerType())])
VALUES: dict[str, tuple[T.DataType, list[Any]]] = {
    "whole numbers": (T.LongType(), [None, 0, -1, 1]),
    "yes or no": (T.BooleanType(), [None, False, True]),
    "text": (T.StringType(), [None, "", "\0", "a", "a\0"]),
    "bytes": (T.BinaryType(), [None, b"", b"\0", b"\0\0"]),
    "floats": (T.DoubleType(), [None, 0.0, float("nan"), 1.0]),
    "short decimals": (T.DecimalType(18, 2), [None, *map(Decimal, ("0.00", "-0.01", "0.01"))]),
    "long decimals": (T.DecimalType(38, 2), [None, *map(Decimal, ("0.00", "-0.01", "0.01", "2e18"))]),
    "lists": (INTS, [None, [], [None], [None, None], [0], [0, 0], [0, None], [None, 0]]),
    "lists of lists": (T.ArrayType(INTS), [None, [], [None], [[]], [[], []], [[0]], [[0], []], [[1, 2]], [[1], [2]]]),
    "structs": (PAIR, [None, *product((None, 0, 1), repeat=2)]),
    "lists of structs": (T.ArrayType(PAIR), [None, [], [None], [(None, None)], [(0, None)], [(None, 0)], [(0, 0)] * 2]),
}


def rows_of(spark: SparkSession, kind: T.DataType, values: list[Any]) -> DataFrame:
    """Each value beside each other one, as c0 and c1."""
    schema = T.StructType([T.StructField("c0", kind), T.StructField("c1", kind)])
    return spark.createDataFrame(list(product(values, repeat=2)), schema)


@pytest.mark.parametrize("name", VALUES)
def test_different_rows_have_different_hashes(spark: SparkSession, name: str) -> None:
    kind, values = VALUES[name]
    rows = rows_of(spark, kind, values)
    distinct = rows.distinct().count()
    assert rows.select(row_hash(rows.schema.fields)).distinct().count() == distinct == len(values) ** 2


def test_equal_rows_have_equal_hashes(spark: SparkSession) -> None:
    rows = rows_of(spark, T.DoubleType(), [0.0, -0.0])
    assert rows.select(row_hash(rows.schema.fields)).distinct().count() == rows.distinct().count() == 1


def test_a_value_that_moves_to_another_column_is_a_change(spark: SparkSession) -> None:
    fields = [T.StructField(f"c{i}", T.LongType()) for i in range(3)]
    schema = T.StructType([*fields, T.StructField(SIGN, T.ByteType())])
    rows = spark.createDataFrame([(1, 5, None, -1), (1, None, 5, 1), (2, 6, None, -1), (2, 6, None, 1)], schema)
    found = prefilter(rows, [0], SparkLimits())
    try:
        assert sum(part.num_rows for part in found.parts) == 2
        assert sorted(row[0] for part in found.parts for row in part.rows.collect()) == [1, 1]
    finally:
        found.slots.unpersist()
