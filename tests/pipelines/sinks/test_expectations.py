"""What each policy does with a row that breaks its constraint, and that nothing is silently let through."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from backend.settings import load_settings
from pipelines import Pipeline, complete, expect, table
from pipelines.specs.expectations import BROKEN, Expectation, OnViolation, breaks_any, judge
from tests.worlds.spark.lakes import open_lake

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def amounts(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, 5), (2, -5), (3, None)], "id INT, amount INT").coalesce(1)


def ids(df: DataFrame) -> list[int]:
    return sorted(row.id for row in df.collect())


def positive(policy: OnViolation) -> Expectation:
    return Expectation("positive", "amount > 0", policy)


def test_warn_keeps_all_rows_and_names_what_they_break(amounts: DataFrame) -> None:
    judged = judge(amounts, (positive(OnViolation.WARN), Expectation("small", "id < 3")))
    broken = {row.id: row[BROKEN] for row in judged.collect()}
    assert broken == {1: [], 2: ["positive"], 3: ["positive", "small"]}  # a null amount is no positive one


@pytest.mark.parametrize(
    ("policy", "passed"),
    [(OnViolation.DROP, [1]), (OnViolation.QUARANTINE, [1, 2, 3])],  # the sink parts those
)
def test_rows_that_pass(amounts: DataFrame, policy: OnViolation, passed: list[int]) -> None:
    judged = judge(amounts, (positive(policy), Expectation("small", "id < 2")))
    assert ids(judged) == passed
    assert ids(judged.where(breaks_any(("positive",)))) == passed[1:]


def test_fail_ends_the_query_even_when_nobody_reads_the_verdict(amounts: DataFrame) -> None:
    judged = judge(amounts, (positive(OnViolation.FAIL),)).select("id")
    with pytest.raises(PySparkException, match="expectation broken: positive"):
        judged.collect()
    assert ids(judge(amounts.where("amount > 0"), (positive(OnViolation.FAIL),))) == [1]
    assert judge(amounts, ()).columns == ["id", "amount"], "nothing is added where nothing is expected"


@pytest.mark.ci
def test_a_table_that_is_replaced_holds_no_older_result_when_every_row_is_quarantined(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = str(tmp_path / "lake" / "bronze" / "clicks")
    counts = Pipeline("counts")

    def counted(clicks: DataFrame) -> DataFrame:
        return clicks.groupBy("page").count()

    few = expect("few", "count < 3", on_violation="quarantine")
    declare = counts.streaming_table(
        "gold_counts", source=table(source), sink=complete(), expectations=[few], trigger="available now"
    )
    spark.createDataFrame([("a",)], "page STRING").write.format("delta").save(source)
    declare(counted)
    lake = open_lake(load_settings(home=tmp_path), *counts.streams)
    lake.process("gold_counts")
    assert [row.asDict() for row in lake.rows("gold/gold_counts")] == [{"page": "a", "count": 1}]
    spark.createDataFrame([("a",)] * 2, "page STRING").write.format("delta").mode("append").save(source)
    lake.process("gold_counts")
    assert lake.rows("gold/gold_counts") == []
    assert [row["count"] for row in lake.rows("gold/gold_counts_quarantine")] == [3]
