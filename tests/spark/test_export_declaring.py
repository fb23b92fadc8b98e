"""Declaring sinks outside the lake: what is refused before anything starts, and what is shown of them. No broker."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from backend.settings import load_settings
from pipelines import Pipeline, kafka_topic, postgres_table, secret, table
from pipelines.declare.check import find_problems
from pipelines.declare.registry import declaration
from pipelines.spark.analysis import Analysis
from pipelines.specs.registry import Registry
from pipelines.specs.sinks import ExportSink

DB = "postgresql://weir@db:5432/shop"
FEED = "id BIGINT, name STRING, _change_type STRING, _commit_version BIGINT"


def same(rows: DataFrame) -> DataFrame:
    return rows


def registry_of(sink: ExportSink, **about: object) -> Registry:
    pipeline = Pipeline("shop")
    pipeline.streaming_table("export_orders", source=table("/lake/orders").changes(), sink=sink, **about)(same)  # type: ignore[arg-type]
    return Registry(pipeline.streams, pipeline.views, pipeline.problems)


@pytest.mark.parametrize(
    ("sink", "complaint"),
    [
        (kafka_topic("", "a", key="id"), 'kafka_topic: names no server (write kafka_topic("broker:9092", …))'),
        (kafka_topic("broker:9092", "a b", key="id"), "kafka_topic: 'a b' is no topic"),
        (kafka_topic("broker:9092", "a", key=[]), "kafka_topic: names no key"),
        (kafka_topic("b:1", "a", key="id", headers={"weir.x": "id"}), "kafka_topic: weir.x is the sink's own header"),
        (kafka_topic("b:1", "a", key="id", options={"acks": "1"}), "kafka_topic: option acks is not known"),
        (
            kafka_topic("b:1", "a", key="id", options={"kafka.ssl.key.password": "hunter2"}),
            "kafka_topic: kafka.ssl.key.password holds a secret in plain text",
        ),
        (postgres_table("mysql://db/shop", "a", keys=["id"]), "postgres_table: names no server and database"),
        (postgres_table("postgresql://db", "a", keys=["id"]), "postgres_table: names no server and database"),
        (postgres_table(DB, "a.b.c", keys=["id"]), "postgres_table: 'a.b.c' is no table"),
        (postgres_table(DB, "a", keys=[]), 'postgres_table: names no key (write keys=["order_id"]'),
        (postgres_table("postgresql://me:hunter2@db/shop", "a", keys=["id"]), "a password stands in plain text"),
        (postgres_table("postgresql://db/shop?password=hunter2", "a", keys=["id"]), "a password stands in plain text"),
        (postgres_table(DB, "a", keys=["id"], password="hunter2"), "a password stands in plain text"),  # type: ignore[arg-type]
        (postgres_table(DB, "a", keys=["id"], password=secret("hunter2")), "the secret has no place"),
    ],
)
def test_what_cannot_work_is_told_before_anything_starts(sink: ExportSink, complaint: str, tmp_path: Path) -> None:
    registry = registry_of(sink)
    (found,) = find_problems(registry)
    assert complaint in str(found)
    assert str(found).startswith(f"{__file__}:{same.__code__.co_firstlineno}: export_orders: ")
    said = declaration(registry, registry.get("export_orders"), load_settings(home=tmp_path))
    assert "hunter2" not in str(found) + repr(registry.streams) + repr(said)


def test_it_has_no_table_and_says_where_it_writes(tmp_path: Path) -> None:
    sinks = kafka_topic("broker:9092", "orders_out", key="id"), postgres_table(DB, "orders", keys=["id"])
    shown = []
    for sink in sinks:
        registry = registry_of(sink, owner="web")
        assert find_problems(registry) == ()
        assert registry.tables() == {}
        said = declaration(registry, registry.get("export_orders"), load_settings(home=tmp_path))
        assert (said.sink_table, said.sink_uri, said.side_tables) == ("", "", ())
        shown.append(said.writes_to)
    assert shown == ["Kafka topic orders_out at broker:9092", "PostgreSQL table public.orders at db:5432/shop"]
    (found,) = find_problems(registry_of(sinks[0], cluster_by=["id"]))
    assert "cluster_by: it has no table of its own" in str(found)


def test_two_streams_on_one_table_of_a_database_are_refused() -> None:
    pipeline = Pipeline("shop")
    for name in ("export_a", "export_b"):
        sink = postgres_table(DB, "orders", keys=["id"])
        pipeline.streaming_table(name, source=table("/lake/orders").changes(), sink=sink)(same)
    (found,) = find_problems(Registry(pipeline.streams))
    assert "export_b: writes public.orders at db:5432/shop, as export_a at" in str(found)


def test_the_example_of_the_docs_can_work() -> None:
    text = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text(encoding="utf-8")
    example = text.partition("### Export from the lake")[2].split("```")[1].removeprefix("python")
    shop = Pipeline("shop")
    shop.streaming_table("silver_orders", source=table("/lake/orders"))(same)
    exec(compile(example, "docs/pipelines.md", "exec"), {"shop": shop})
    assert find_problems(Registry(shop.streams, shop.views, shop.problems)) == ()
    assert [stream.outside for stream in shop.streams[1:]] == [
        "orders_out at broker:9092",
        "public.orders at db:5432/shop",
    ]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("sink", "columns", "complaint"),
    [
        (postgres_table(DB, "a", keys=["id"]), "id BIGINT", "postgres_table: the function returns no _change_type"),
        (postgres_table(DB, "a", keys=["ID_"]), FEED, "postgres_table: the function returns no ID_"),
        (kafka_topic("b:1", "a", key="id"), "id BIGINT, _change_type STRING", "returns no _commit_version"),
        (kafka_topic("b:1", "a", key=["id", "no"]), FEED, "kafka_topic: the function returns no no"),
        (kafka_topic("b:1", "a", key="idd"), FEED, "UNRESOLVED_COLUMN"),
        (kafka_topic("b:1", "a", key="id", headers={"x": "nam"}), FEED, "UNRESOLVED_COLUMN"),
    ],
)
def test_what_the_rows_lack_is_told_without_asking_anybody(
    spark: SparkSession, tmp_path: Path, sink: ExportSink, columns: str, complaint: str
) -> None:
    pipeline = Pipeline("shop")
    source = str(tmp_path / "lake" / "orders")
    spark.createDataFrame([], columns).write.format("delta").save(source)
    pipeline.streaming_table("export_orders", source=table(source), sink=sink)(same)
    analysis = Analysis(Registry(pipeline.streams), spark, load_settings(home=tmp_path)).run()
    (found,) = analysis.problems
    assert complaint in str(found)
    assert str(found).startswith(f"{__file__}:{same.__code__.co_firstlineno}: export_orders: ")
