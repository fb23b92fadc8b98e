"""A database's table beside a stream: as it is at each batch, or kept for a while; a password is shown nowhere."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

from backend.settings import load_settings
from pipelines import jdbc, rate, secret, table
from pipelines.sources.jdbc import JdbcSource
from pipelines.spark.analysis import Analysis
from tests.worlds.lake import builders
from tests.worlds.processes import PATIENCE_S, free_port, wait_until
from tests.worlds.spark.declared import lake_of, pipeline_of, problems_of, registry_of
from tests.worlds.spark.lakes import DemoLake, open_lake
from tests.worlds.store.postgres import OwnPostgres, own_postgres, server_programs

PASSWORD = "sesam-of-the-shop"
needs_postgres = pytest.mark.skipif(not server_programs().exists(), reason="needs PostgreSQL's programs")


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


@pytest.mark.spark
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
    said = repr(lake.runtime._registry.get("bronze_orders").sources)
    assert PASSWORD not in said
    logs = "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*.log"))
    assert PASSWORD not in logs


def names(lake: DemoLake) -> set[str]:
    """Of the rows of the newest batch that was written."""
    rows = lake.rows("bronze/bronze_orders")
    newest = max((row["value"] for row in rows), default=None)
    return {row["name"] for row in rows if row["value"] == newest}


@pytest.mark.spark
@needs_postgres
@pytest.mark.parametrize(("refresh", "is_kept"), [("1 day", True), ("100 milliseconds", False)])
def test_rows_are_kept_for_as_long_as_is_said(
    spark: SparkSession, tmp_path: Path, server: OwnPostgres, refresh: str, is_kept: bool
) -> None:
    def all_named(numbers: DataFrame, users: DataFrame) -> DataFrame:
        return numbers.crossJoin(users).select("value", "name")

    sources = [rate(20), users(server, refresh=refresh)]
    pipeline = pipeline_of(sources, all_named, trigger="100 milliseconds")
    lake = open_lake(load_settings(home=tmp_path), *pipeline.streams)
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


@pytest.mark.spark
def test_a_database_that_is_away_is_a_problem_of_its_stream_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    port = free_port()
    away = jdbc(f"jdbc:postgresql://127.0.0.1:{port}/shop", "users", password=secret("env:SHOP_PASSWORD"))
    pipeline = pipeline_of([rate(), away], named)
    pipeline.streaming_table("bronze_other", source=rate())(lambda rows: rows)
    analysis = Analysis(registry_of(pipeline), spark, load_settings(home=tmp_path)).run()
    assert [problem.name for problem in analysis.problems] == ["bronze_orders"]
    (problem,) = analysis.problems
    assert problem.message.startswith(f"jdbc: users at postgresql://127.0.0.1:{port}/shop cannot be read: ")
    assert "connect" in problem.message and PASSWORD not in str(problem) and "its driver" in problem.hint
    assert set(analysis.schemas) == {"bronze_other"}


@pytest.mark.spark
def test_a_driver_that_is_not_there_is_named(spark: SparkSession, tmp_path: Path) -> None:
    for source in (jdbc("jdbc:oracle:thin:@db:1521/shop", "users"), jdbc("jdbc:x:y", "users", driver="no.such.Driver")):
        analysis = Analysis(registry_of(pipeline_of([rate(), source], named)), spark, load_settings(home=tmp_path))
        (problem,) = analysis.run().problems
        assert "driver" in problem.message.lower() and "its driver" in problem.hint


def test_what_is_no_database_and_passwords_in_plain_text_are_refused() -> None:
    right = "jdbc:postgresql://db:5432/shop"
    for source, message in (
        (jdbc("postgresql://db/shop", "users"), "names no database"),
        (jdbc("jdbc:postgresql://ann:geheim1@db/shop", "users"), "a password stands in plain text"),
        (jdbc(f"{right}?user=ann&password=geheim1", "users"), "a password stands in plain text"),
        (jdbc("jdbc:sqlserver://db;user=ann;password=geheim1", "users"), "a password stands in plain text"),
        (jdbc(right, "users", **{"password": "geheim1"}), "password holds a secret in plain text"),
        (jdbc(right, "users", refresh="soon"), "refresh='soon' is not understood"),
        (jdbc(right, " "), "names no table"),
    ):
        assert [problem for problem in problems_of(pipeline_of([rate(), source])) if message in problem], message
        assert "geheim1" not in f"{source!r} {source.describe()}"
    shown = jdbc(f"{right}?user=ann", "public.users", user=secret("env:SHOP_USER"), refresh="10 minutes")
    assert problems_of(pipeline_of([rate(), shown])) == []
    assert shown.describe() == "public.users at postgresql://db:5432/shop"
