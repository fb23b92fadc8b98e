"""What becomes of a batch: rules judge its rows, functions and several tables take them, deletes go on downstream."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backend.errors import StreamRefusedError
from backend.settings import load_settings
from backend.streams.reset import ResetLevel
from pipelines import Pipeline, append, complete, expect, foreach_batch, into, table, upsert
from pipelines.declare.pipeline import declaration
from pipelines.specs.ends import Sink
from pipelines.specs.expectations import BROKEN, Expectation, OnViolation, breaks_any, judged_rows
from tests.pipelines.jobs.test_requeue import (
    FIRST,
    HISTORY,
    LATER,
    NAME,
    UPSERT,
    Order,
    Shop,
    as_history,
    as_upserted,
    repaired,
)
from tests.pipelines.jobs.test_reset import world_of
from tests.worlds.cases import soak
from tests.worlds.lake import builders
from tests.worlds.spark.declared import DOCS, Dying, lake_of, problems_of
from tests.worlds.spark.lakes import DemoLake, open_lake

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def amounts(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, 5), (2, -5), (3, None)], "id INT, amount INT").coalesce(1)


def ids(df: DataFrame) -> list[int]:
    return sorted(row.id for row in df.collect())


def positive(policy: OnViolation) -> Expectation:
    return Expectation("positive", "amount > 0", policy)


def test_warn_keeps_all_rows_and_names_what_they_break(amounts: DataFrame) -> None:
    judged = judged_rows(amounts, (positive(OnViolation.WARN), Expectation("small", "id < 3")))
    broken = {row.id: row[BROKEN] for row in judged.collect()}
    assert broken == {1: [], 2: ["positive"], 3: ["positive", "small"]}  # a null amount is no positive one


@pytest.mark.parametrize(
    ("policy", "passed"),
    [(OnViolation.DROP, [1]), (OnViolation.QUARANTINE, [1, 2, 3])],  # the sink parts those
)
def test_rows_that_pass(amounts: DataFrame, policy: OnViolation, passed: list[int]) -> None:
    judged = judged_rows(amounts, (positive(policy), Expectation("small", "id < 2")))
    assert ids(judged) == passed
    assert ids(judged.where(breaks_any(("positive",)))) == passed[1:]


def test_fail_ends_the_query_even_when_nobody_reads_the_verdict(amounts: DataFrame) -> None:
    judged = judged_rows(amounts, (positive(OnViolation.FAIL),)).select("id")
    with pytest.raises(PySparkException, match="expectation broken: positive"):
        judged.collect()
    assert ids(judged_rows(amounts.where("amount > 0"), (positive(OnViolation.FAIL),))) == [1]
    assert judged_rows(amounts, ()).columns == ["id", "amount"], "nothing is added where nothing is expected"


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
    failure = lake.failure_of("silver_orders")
    assert (failure.error_class, failure.message) == ("LookupError", "no place for batch 0")


@pytest.mark.ci
@pytest.mark.parametrize(
    "sink",
    [
        append(),
        *soak((upsert(keys=["id"], sequence="id"),), (foreach_batch(lambda rows, batch_id, session: rows.count()),)),
    ],
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


def good(orders: list[Order]) -> list[Order]:
    return [order for order in orders if order[1] == "d" or (order[2] is not None and order[2] > 0)]


def small(orders: list[Order]) -> list[Order]:
    return [order for order in orders if order[2] is not None and order[2] < 100]


def held(shop: Shop) -> tuple[list[object], ...]:
    """What each of the three tables holds, in the order of the ledger."""
    return (
        sorted((row.id, row.op, row.amount, row.lsn) for row in shop.table()),
        sorted((row.id, row.amount, row.lsn) for row in shop.lake.rows("silver/silver_latest")),
        sorted(((r.id, r.amount, r.valid_from, r.valid_to) for r in shop.lake.rows("gold/orders_history")), key=str),
    )


def ledger(orders: list[Order]) -> tuple[list[object], ...]:
    return sorted(orders), as_upserted(small(orders)), as_history(orders)


@pytest.mark.soak
def test_a_batch_killed_between_its_tables_is_in_each_once(spark: SparkSession, tmp_path: Path) -> None:
    dying = Dying(UPSERT, after=False)
    also = [into("silver_latest", dying, where="amount < 100"), into("orders_history", HISTORY, layer="gold")]
    shop = Shop(spark, tmp_path, append(), also=also)
    assert "died between two writes" in shop.lake.failure_of(NAME).message
    assert dying.writes == 1
    rows, latest, states = held(shop)
    assert (len(rows), latest, states) == (2, [], []), "the first table has the batch, the others have not"

    shop.lake.process(NAME)  # the same batch again
    assert held(shop) == ledger(good(FIRST))
    assert len(shop.quarantined()) == 5
    shop.add(LATER)
    shop.lake.process(NAME)
    assert held(shop) == ledger(good([*FIRST, *LATER]))

    # rows that are requeued go to all of them as well; a job that dies for good between two is ended by the next
    request = shop.asked()
    dying.writes = 0
    with pytest.raises(RuntimeError, match="died between two writes"):
        shop.send(request)
    assert dying.writes == 1 and len(shop.table()) == 3 + 5, "the first table has them"
    with pytest.raises(StreamRefusedError, match="job-1 had broken off"):
        shop.send(request, "job-2")
    assert held(shop) == ledger(repaired([*FIRST, *LATER]))
    assert [row.id for row in shop.quarantined()] == ["c"]


@pytest.mark.soak
def test_a_full_refresh_empties_every_table(spark: SparkSession, tmp_path: Path) -> None:
    by_id = upsert(keys=["id"], sequence="id")
    also = [into("silver_even", append(), where="id % 2 = 0"), into("silver_by_id", by_id)]
    numbers = world_of(spark, tmp_path, range(10), also=also)
    numbers.lake.process("silver_numbers")
    tables = ("silver_numbers", "silver_even", "silver_by_id")
    assert [len(numbers.lake.rows(f"silver/{name}")) for name in tables] == [10, 5, 10]
    numbers.ask(ResetLevel.FULL, "job-1")
    assert [len(numbers.lake.rows(f"silver/{name}")) for name in tables] == [0, 0, 0]
    numbers.lake.process("silver_numbers")
    assert [len(numbers.lake.rows(f"silver/{name}")) for name in tables] == [10, 5, 10]
    numbers.ask(ResetLevel.REPROCESS, "job-2")
    numbers.lake.process("silver_numbers")
    assert [len(numbers.lake.rows(f"silver/{name}")) for name in tables] == [20, 10, 10], "as the preview says"


STREAMS = ("bronze_people", "silver_people", "gold_countries")
PEOPLE = [(1, "Ada", "uk"), (2, "Bo", "se"), (7, "Eve", "se")]


def land(home: Path, name: str, people: list[tuple[int, str, str]]) -> None:
    lines = (json.dumps(dict(zip(("person_id", "name", "country"), person, strict=True))) for person in people)
    (home / "landing/people" / name).write_text("\n".join(lines))


def silver(lake: DemoLake) -> list[tuple[int, str, str]]:
    return sorted((row.person_id, row.name, row.country) for row in lake.rows("silver/silver_people"))


def gold(lake: DemoLake) -> dict[str, int]:
    return {row.country: row["count"] for row in lake.rows("gold/gold_countries")}


@pytest.mark.soak
def test_a_delete_in_bronze_reaches_silver_and_gold(spark: SparkSession, tmp_path: Path) -> None:
    """By the example of docs/pipelines.md, as it is printed."""
    shop = Pipeline("shop")
    text = DOCS.read_text(encoding="utf-8").partition("### Deletes at the source")[2]
    exec(compile(text.partition("```python\n")[2].partition("```")[0], str(DOCS), "exec"), {"shop": shop})
    assert problems_of(shop) == []
    (tmp_path / "landing/people").mkdir(parents=True)
    land(tmp_path, "0.json", PEOPLE)
    streams = (replace(stream, trigger_interval_s=None) for stream in shop.streams)
    people = open_lake(load_settings(home=tmp_path), *streams)
    people.process(*STREAMS)
    assert silver(people) == PEOPLE
    assert gold(people) == {"uk": 1, "se": 2}

    bronze = DeltaTable.forPath(spark, people.uri("bronze/bronze_people"))
    bronze.delete("person_id = 7")
    bronze.update("person_id = 2", {"name": F.lit("Bob")})
    land(people.settings.home, "1.json", [(8, "Kim", "uk")])
    people.process(*STREAMS)
    assert silver(people) == [PEOPLE[0], (2, "Bob", "se"), (8, "Kim", "uk")]
    assert gold(people) == {"uk": 2, "se": 1}
    assert [row.asDict() for row in people.rows("silver/silver_people_tombstones")] == [
        {"person_id": 7, "bronze_version": 2}
    ], "the key alone is kept"
