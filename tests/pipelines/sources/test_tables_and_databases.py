"""Tables, other formats and databases as sources: joined, read whole or in part, as they are at each batch."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from backend.lake.lake import Lake
from backend.settings import load_settings
from backend.streams.backlog import BacklogReader
from pipelines import jdbc, kafka, rate, secret, spark_source, table
from pipelines.declare.pipeline import declaration
from pipelines.sources.spark import JdbcSource
from pipelines.spark.tables import Analysis
from tests.worlds.cases import soak
from tests.worlds.lake import builders
from tests.worlds.processes import PATIENCE_S, free_port, wait_until
from tests.worlds.programs import needs_postgres
from tests.worlds.spark.declared import lake_of, pipeline_of, registry_of, same
from tests.worlds.spark.lakes import DemoLake
from tests.worlds.store.postgres import OwnPostgres, own_postgres
from tests.worlds.streams.kafka_broker import KafkaBroker

pytestmark = pytest.mark.spark


def test_a_static_table_is_read_as_it_is_at_each_batch(spark: SparkSession, tmp_path: Path) -> None:
    clicks, users = tmp_path / "theirs/clicks", tmp_path / "theirs/users"
    builders.write(users, {"user": [1, 2], "name": ["Ann", "Bob"]})
    builders.write(clicks, {"user": [1, 2, 3]})

    def named(clicks: DataFrame, users: DataFrame) -> DataFrame:
        return clicks.join(users, "user", "left")

    lake = lake_of(tmp_path, [table(str(clicks)), table(str(users)).static()], named, name="silver_clicks")
    lake.process("silver_clicks")
    builders.write(users, {"user": [1, 3], "name": ["Anna", "Cem"]}, mode="overwrite")
    builders.write(clicks, {"user": [1, 2, 3]})
    assert sum(lake.process("silver_clicks")) == 3, "rows of a static table are not counted as read"
    rows = sorted((row["user"], row["name"] or "–") for row in lake.rows("silver/silver_clicks"))
    assert rows == [(1, "Ann"), (1, "Anna"), (2, "Bob"), (2, "–"), (3, "Cem"), (3, "–")]


@pytest.mark.ci
def test_partitions_are_left_out_of_a_source_and_declared_for_a_table(spark: SparkSession, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs/events"
    rows = {"id": [1, 2, 3], "country": ["de", "fr", "de"], "day": ["1", "1", "2"]}
    builders.write(theirs, rows, partition_by=["country"])
    source = table(str(theirs), excludeRegex="country=fr")
    lake = lake_of(tmp_path, source, name="bronze_events", partition_cols=["country", "day"])
    lake.process("bronze_events")
    written = DeltaTable(lake.uri("bronze/bronze_events"))
    assert written.metadata().partition_columns == ["country", "day"]
    assert {(part["country"], part["day"]) for part in written.partitions()} == {("de", "1"), ("de", "2")}
    assert sorted(row["id"] for row in lake.rows("bronze/bronze_events")) == [1, 3]


@pytest.mark.soak
def test_a_batch_waits_for_as_many_records_as_are_asked_for(
    spark: SparkSession, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    """The first batch waits for none: no record has come before."""
    topic = kafka_broker.create("least", partitions=1)
    kafka_broker.produce(topic, [(None, b"0")])
    source = kafka(kafka_broker.servers, topic, format="text", minOffsetsPerTrigger=10, maxTriggerDelay="10h")
    lake = lake_of(tmp_path, source, name="bronze_numbers", trigger="100 milliseconds")
    lake.runtime.start("bronze_numbers")

    def read() -> list[int]:
        return [each["numInputRows"] for each in lake.heard.progress if each["numInputRows"]]

    try:
        wait_until(lambda: read() == [1], "the first batch")
        for number in range(1, 11):
            kafka_broker.produce(topic, [(None, str(number).encode())])
        wait_until(lambda: sum(read()) == 11, "the second batch")
    finally:
        lake.runtime.cut("bronze_numbers")
    assert read() == [1, 10]


@pytest.mark.soak
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


@pytest.mark.ci
def test_a_source_says_its_columns_itself(spark: SparkSession, tmp_path: Path) -> None:
    source = spark_source("rate-micro-batch", {"rowsPerBatch": 3, "startTimestamp": 1_000})
    lake = lake_of(tmp_path, source)
    lake.process("bronze_orders")
    values = [row["value"] for row in lake.rows("bronze/bronze_orders")]
    assert values and sorted(values) == list(range(len(values)))


PASSWORD = "sesam-of-the-shop"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnPostgres]:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    with own_postgres() as server:
        change(server, "CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT)")
        change(server, "INSERT INTO users VALUES (0, 'Ann')")
        yield server


def change(server: OwnPostgres, statement: str) -> None:
    with psycopg.connect(server.url.replace("+psycopg", "")) as connection:
        connection.execute(statement)


def users(server: OwnPostgres, **options: object) -> JdbcSource:
    url = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres?sslmode=disable"
    return jdbc(url, "public.users", user="weir", password=secret("env:SHOP_PASSWORD"), **options)


def named(numbers: DataFrame, users: DataFrame) -> DataFrame:
    return numbers.join(users.withColumnRenamed("id", "value"), "value", "left").select("value", "name")


@needs_postgres
def test_each_batch_is_joined_with_what_the_database_holds_then(
    spark: SparkSession, tmp_path: Path, server: OwnPostgres
) -> None:
    theirs = builders.write(tmp_path / "theirs/clicks", {"value": [0, 1]})
    lake = lake_of(tmp_path, [table(str(theirs)), users(server)], named)
    lake.process("bronze_orders")
    change(server, "UPDATE users SET name = 'Anna'; INSERT INTO users VALUES (1, 'Bob')")
    builders.write(theirs, {"value": [0, 1]})
    lake.process("bronze_orders")
    rows = [(row["value"], row["name"]) for row in lake.rows("bronze/bronze_orders")]
    assert sorted(rows, key=str) == [(0, "Ann"), (0, "Anna"), (1, "Bob"), (1, None)]
    assert PASSWORD not in repr(lake.runtime._registry.get("bronze_orders").sources)
    logs = "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*.log"))
    assert PASSWORD not in logs


def names(lake: DemoLake) -> set[str]:
    """Of the rows of the newest batch that was written."""
    rows = lake.rows("bronze/bronze_orders")
    newest = max((row["value"] for row in rows), default=None)
    return {row["name"] for row in rows if row["value"] == newest}


@pytest.mark.ci
@needs_postgres
@pytest.mark.parametrize(("refresh", "is_kept"), [("1 day", True), *soak(("100 milliseconds", False))])
def test_rows_are_kept_for_as_long_as_is_said(
    spark: SparkSession, tmp_path: Path, server: OwnPostgres, refresh: str, is_kept: bool
) -> None:
    def all_named(numbers: DataFrame, users: DataFrame) -> DataFrame:
        return numbers.crossJoin(users).select("value", "name")

    lake = lake_of(tmp_path, [rate(20), users(server, refresh=refresh)], all_named, trigger="100 milliseconds")
    lake.runtime.start("bronze_orders")
    try:
        wait_until(lambda: names(lake) == {"Ann"}, "the first rows")
        change(server, "UPDATE users SET name = 'Anna'")
        if is_kept:
            before = lake.versions("bronze/bronze_orders")
            wait_until(lambda: lake.versions("bronze/bronze_orders") > before + 2, "more batches")
            assert names(lake) == {"Ann"}
            lake.runtime.stop("bronze_orders", timeout_s=PATIENCE_S)
            lake.runtime.start("bronze_orders")
        wait_until(lambda: names(lake) == {"Anna"}, "rows of the database as it is now")
    finally:
        lake.runtime.cut("bronze_orders")


def test_a_database_that_is_away_or_has_no_driver_is_a_problem_of_its_stream_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    port = free_port()
    away = jdbc(f"jdbc:postgresql://127.0.0.1:{port}/shop", "users", password=secret("env:SHOP_PASSWORD"))
    pipeline = pipeline_of([rate(), away], named)
    oracle = jdbc("jdbc:oracle:thin:@db:1521/shop", "users")
    pipeline.streaming_table("bronze_oracle", source=[rate(), oracle])(named)
    pipeline.streaming_table("bronze_odd", source=[rate(), jdbc("jdbc:x:y", "users", driver="no.such.Driver")])(named)
    pipeline.streaming_table("bronze_other", source=rate())(same)
    analysis = Analysis(registry_of(pipeline), spark, load_settings(home=tmp_path)).run()
    assert set(analysis.schemas) == {"bronze_other"}
    problems = {problem.name: problem for problem in analysis.problems}
    assert problems.keys() == {"bronze_orders", "bronze_oracle", "bronze_odd"}
    assert all("its driver" in problem.hint for problem in problems.values())
    message = problems["bronze_orders"].message
    assert message.startswith(f"jdbc: users at postgresql://127.0.0.1:{port}/shop cannot be read: ")
    assert "connect" in message and PASSWORD not in str(problems)
    assert all("driver" in problems[name].message.lower() for name in ("bronze_oracle", "bronze_odd"))
