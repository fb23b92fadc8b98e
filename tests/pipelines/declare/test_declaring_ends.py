"""Declaring where streams read and write: what is refused before anything starts, and what is shown. No broker."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from backend.errors import SettingsError
from backend.settings import load_settings
from pipelines import (
    Pipeline,
    files,
    foreach_batch,
    history,
    jdbc,
    kafka,
    kafka_topic,
    postgres_table,
    rate,
    secret,
    spark_source,
    table,
    upsert,
)
from pipelines.declare.check import find_problems
from pipelines.declare.pipeline import declaration
from pipelines.jvm.failures import SpecError
from pipelines.sources.kafka import KafkaSource
from pipelines.sources.spark import JdbcSource
from pipelines.spark.tables import Analysis
from pipelines.specs.ends import ExportSink, Sink
from tests.worlds.spark import declared
from tests.worlds.spark.declared import pipeline_of, problems_of, registry_of, same, without_rows

BROKER = "broker:9092"
JDBC = "jdbc:postgresql://db:5432/shop"
DB = "postgresql://weir@db:5432/shop"
FEED = "id BIGINT, name STRING, _change_type STRING, _commit_version BIGINT"
ID = "id BIGINT"
NAME = "bronze_orders"


def avro(**about: Any) -> KafkaSource:
    return kafka(BROKER, "a", **{"format": "avro", "schema": ID, **about})


def declared_with(end: Any, **about: Any) -> Pipeline:
    """A stream that reads or writes there."""
    if isinstance(end, ExportSink):
        return pipeline_of(table("/lake/orders").changes(), sink=end, **about)
    if isinstance(end, JdbcSource):
        return pipeline_of([rate(), end], **about)
    return pipeline_of(end, **about)


@pytest.mark.parametrize(
    ("end", "complaint"),
    [
        (files("in", format="jsonl"), "files: format 'jsonl' is not known"),
        (files("in", format="json", new_columns="drop"), "files: new_columns='drop' is not known"),
        (files("in", format="csv", new_columns="rescue"), "files: csv cannot rescue new columns"),
        (files("in", new_columns="evolve"), "files: text cannot evolve new columns"),
        (files("in", format="json", misfit="drop"), "files: misfit='drop' is not known"),
        (files("in", format="parquet", misfit="dead letter"), "files: parquet has no dead letters"),
        (files("in", format="json", mode="DROPMALFORMED"), "files of json: option mode is not known"),
        (kafka(BROKER, "a", misfit="drop"), "kafka: misfit='drop' is not known"),
        (files("in", schema=ID), "files: text has one column, value STRING"),
        (kafka(BROKER, "a", format="xml"), "format 'xml' is not known (use bytes, text, json, avro)"),
        (kafka(BROKER, "a", format="json"), 'json needs a schema (write schema="id BIGINT, name STRING")'),
        (kafka(BROKER, "a", starting="soon"), "starting='soon' is not known"),
        (kafka(BROKER, "a", starting=datetime(2026, 1, 1)), "2026-01-01 00:00:00 has no time zone"),
        (kafka(BROKER, "a", maxOfsetsPerTrigger=1), "maxOfsetsPerTrigger is not known (did you mean maxOffsets"),
        (kafka(BROKER, "a", startingOffsets="latest"), "option startingOffsets is not known"),
        (
            kafka(BROKER, "a", options={"kafka.ssl.key.password": "hunter2"}),
            "kafka.ssl.key.password holds a secret in plain",
        ),
        (
            kafka(BROKER, "a", options={"kafka.sasl.jaas.config": 'PlainLoginModule required password="hunter2";'}),
            'holds a secret in plain text (write secret("env:NAME") or secret("file:PATH"))',
        ),
        (
            kafka(BROKER, "a", options={"kafka.ssl.key.password": secret("hunter2")}),
            "of kafka.ssl.key.password has no place",
        ),
        (avro(), "kafka: avro needs either a registry or a schema file"),
        (avro(registry="http://r", avro_schema="/x"), "kafka: avro needs either a registry or a schema file"),
        (avro(registry="r:8081"), "kafka: registry 'r:8081' is no address"),
        (avro(registry="http://weir:pw@r"), "kafka: the address of the registry holds a login"),
        (
            avro(registry="http://r", registry_login=secret("weir:hunter2")),
            "kafka: the secret of the registry's password has no place",
        ),
        (avro(registry="http://r", schema=None), "kafka: avro needs a schema"),
        (avro(registry="http://r", format="json"), "kafka: a registry or an Avro schema goes with format='avro'"),
        (avro(avro_schema="/nowhere.avsc"), "kafka: /nowhere.avsc cannot be read: No such file or directory"),
        (kafka_topic("", "a", key="id"), 'kafka_topic: names no server (write kafka_topic("broker:9092", …))'),
        (kafka_topic("broker:9092", "a b", key="id"), "kafka_topic: 'a b' is no topic"),
        (kafka_topic("broker:9092", "a", key=[]), "kafka_topic: names no key"),
        (kafka_topic("b:1", "a", key="id", headers={"weir.x": "id"}), "kafka_topic: weir.x is the sink's own header"),
        (kafka_topic("b:1", "a", key="id", options={"acks": "1"}), "kafka_topic: option acks is not known"),
        (
            kafka_topic("b:1", "a", key="id", options={"kafka.ssl.key.password": "hunter2"}),
            "kafka_topic: kafka.ssl.key.password holds a secret in plain text",
        ),
        (jdbc("postgresql://db/shop", "users"), "jdbc: names no database"),
        (jdbc("jdbc:postgresql://ann:hunter2@db/shop", "users"), "a password stands in plain text"),
        (jdbc(f"{JDBC}?user=ann&password=hunter2", "users"), "a password stands in plain text"),
        (jdbc("jdbc:sqlserver://db;user=ann;password=hunter2", "users"), "a password stands in plain text"),
        (jdbc(JDBC, "users", **{"password": "hunter2"}), "password holds a secret in plain text"),
        (jdbc(JDBC, "users", refresh="soon"), "refresh='soon' is not understood"),
        (jdbc(JDBC, " "), "names no table"),
        (spark_source(" "), "spark_source: names no format"),
        (spark_source("socket", {"port": 9}), "spark_source: socket cannot be replayed"),
        (spark_source("Kafka"), "spark_source: Kafka has a source of its own"),
        (spark_source("delta", {"path": "/lake/t"}), "spark_source: delta has a source of its own"),
        (spark_source("pulsar", {"auth.token": "hunter2"}), "spark_source: auth.token holds a secret in plain text"),
        (spark_source("pulsar", {"auth.token": secret("hunter2")}), "the secret of auth.token has no place"),
        (table("/lake/a", ignoreDelete=True), "table: option ignoreDelete is not known (did you mean ignoreDeletes?)"),
        (
            table("/lake/a", startingVersion=1, startingTimestamp="2026-01-01"),
            "table: startingVersion and startingTimestamp exclude each other (leave one out)",
        ),
        (
            table("/lake/a").changes(maxFilePerTrigger=1),
            "table: option maxFilePerTrigger is not known (did you mean maxFilesPerTrigger?)",
        ),
        (
            [rate(), table("/lake/a", ignoreDeletes=True).static()],
            "table: option ignoreDeletes is not known (use versionAsOf, timestampAsOf)",
        ),
        (
            files("/in", format="csv", delimeter=";"),
            "files of csv: option delimeter is not known (did you mean delimiter?)",
        ),
        (files("/in", format="json", allowComments=True), "files of json: option allowComments is not known"),
        # Where Delta has it, rows of a first start come in the order of the watermark's column.
        (table("/lake/events", withEventTimeOrder=True), "option withEventTimeOrder is not known"),
        (postgres_table("mysql://db/shop", "a", keys=["id"]), "postgres_table: names no server and database"),
        (postgres_table("postgresql://db", "a", keys=["id"]), "postgres_table: names no server and database"),
        (postgres_table(DB, "a.b.c", keys=["id"]), "postgres_table: 'a.b.c' is no table"),
        (postgres_table(DB, "a", keys=[]), 'postgres_table: names no key (write keys=["order_id"]'),
        (postgres_table("postgresql://me:hunter2@db/shop", "a", keys=["id"]), "a password stands in plain text"),
        (postgres_table("postgresql://db/shop?password=hunter2", "a", keys=["id"]), "a password stands in plain text"),
        (postgres_table(DB, "a", keys=["id"], password="hunter2"), "a password stands in plain text"),
        (postgres_table(DB, "a", keys=["id"], password=secret("hunter2")), "the secret has no place"),
    ],
)
def test_what_cannot_work_is_reported_before_anything_starts(end: Any, complaint: str, tmp_path: Path) -> None:
    registry = registry_of(declared_with(end))
    problems = "\n".join(map(str, find_problems(registry)))
    place = f"{declared.__file__}:{same.__code__.co_firstlineno}: {NAME}: "
    assert complaint in problems and problems.startswith(place)
    assert len(set(problems.splitlines())) == len(problems.splitlines()), "each is told once"
    shown = declaration(registry, registry.get(NAME), load_settings(home=tmp_path))
    assert "hunter2" not in problems + repr(registry.streams) + repr(shown)


@pytest.mark.parametrize(
    "source",
    [
        kafka(BROKER, "a", maxOffsetsPerTrigger=10, minPartitions=4, failOnDataLoss=False, starting="latest"),
        kafka(BROKER, ["a", "b"], format="text", starting={"a": {0: 1}}, ending={"a": {0: 5}}),
        kafka(BROKER, re.compile("a.*"), starting=datetime(2026, 1, 1, tzinfo=UTC)),
        kafka(BROKER, "a", options={"kafka.sasl.jaas.config": "Krb5LoginModule required useKeyTab=true;"}),
        kafka(BROKER, "a", options={"kafka.sasl.oauthbearer.token.endpoint.url": "https://id.example/token"}),
        kafka(BROKER, "a", options={"kafka.ssl.truststore.password": secret("file:/run/secrets/trust")}),
        jdbc(f"{JDBC}?user=ann", "public.users", user=secret("env:SHOP_USER"), refresh="10 minutes"),
        spark_source("pulsar", {"service.url": "pulsar://p:6650", "auth.token": secret("env:PULSAR")}),
        table("/lake/a", skipChangeCommits=True, ignoreDeletes=True, **{"fs.s3a.endpoint": "http://s3"}),
        table("/lake/a").changes(startingVersion=1, maxBytesPerTrigger="1g"),
        files("/in", format="csv", sep=";", multiLine=True, done="/archive"),
        files("/in", format="json", encoding="UTF-16LE", latestFirst=True, done="delete"),
        files("/in", format="parquet", mergeSchema=True, pathGlobFilter="*.parquet"),
        files("/in", format="binary", maxFileAge="1d"),
    ],
)
def test_what_can_work(source: Any) -> None:
    pipeline = declared_with(source)
    assert problems_of(pipeline) == []
    assert registry_of(pipeline).names() == ("bronze_orders",), "bytes and text are never dead letters"


def test_what_pages_call_it() -> None:
    sources = [*(kafka(BROKER, topics) for topics in ("a", ["a", "b"], re.compile("a.*"))), jdbc(JDBC, "public.users")]
    assert [source.describe() for source in sources] == [
        "a at broker:9092",
        "a, b at broker:9092",
        "a.* at broker:9092",
        "public.users at postgresql://db:5432/shop",
    ]


def test_joins_are_declared_with_a_dataframe_for_each_source() -> None:
    pipeline = Pipeline("shop")
    sources = [table("bronze_orders"), table("bronze_customers").static()]
    pipeline.streaming_table("silver_orders", source=sources)(lambda orders, customers: orders)
    (stream,) = pipeline.streams
    assert stream.reads == ("bronze_orders", "bronze_customers")
    assert [source.describe() for source in stream.sources] == ["bronze_orders", "present rows of bronze_customers"]


def test_the_login_of_an_event_hub_holds_its_connection_string(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the Kafka endpoint, as docs/pipelines.md tells."""
    connection = 'Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=weir;SharedAccessKey=a"b='
    monkeypatch.setenv("EVENT_HUBS", connection)
    login = (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="$ConnectionString" password="{}";'
    )
    jaas = secret("env:EVENT_HUBS", within=login)
    hub = kafka("shop.servicebus.windows.net:9093", "clicks", options={"kafka.sasl.jaas.config": jaas})
    assert problems_of(pipeline_of(hub)) == []
    assert hub.client()["sasl.jaas.config"].endswith('password="' + connection.replace('"', '\\"') + '";')
    assert "SharedAccessKey" not in repr(hub)


def test_dead_letters_lie_beside_what_they_belong_to(tmp_path: Path) -> None:
    password = {"kafka.ssl.truststore.password": secret("file:/run/secrets/trust")}
    source = kafka(BROKER, "orders", format="json", schema=ID, failOnDataLoss=False, options=password)
    about: dict[str, Any] = {"layer": "raw", "owner": "sales", "reset_allowed": False, "trigger": "5 seconds"}
    registry = registry_of(pipeline_of(source, **about))
    stream = registry.get("bronze_orders")
    shown = declaration(registry, stream, load_settings(home=tmp_path))
    assert shown.side_tables == ("raw/bronze_orders_dead_letters",), "where pages, graph and commands name it"
    assert registry.names() == ("bronze_orders",), "one query writes both"
    assert stream.dead_letters is not None
    assert stream.dead_letters.properties == {"catalog.team_name": "sales"}


def test_a_view_keeps_no_dead_letters() -> None:
    pipeline = Pipeline("shop")
    pipeline.temporary_view("plain", source=kafka(BROKER, "a", format="text"))(same)
    pipeline.temporary_view("parsed", source=kafka(BROKER, "a", format="json", schema=ID))(same)
    (found,) = find_problems(registry_of(pipeline))
    hint = 'read them by a streaming table, or say misfit="fail"'
    assert f"parsed: a view cannot keep records that cannot be parsed ({hint})" in str(found)
    strict = Pipeline("shop")
    strict.temporary_view("parsed", source=kafka(BROKER, "a", format="json", schema=ID, misfit="fail"))(same)
    assert find_problems(registry_of(strict)) == ()


def test_a_secret_from_the_environment_or_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TEST_SECRET", 'a"b\\')
    (tmp_path / "secret").write_text("from a file\n")
    assert secret("env:TEST_SECRET").reveal() == 'a"b\\'
    assert secret("env:TEST_SECRET", within='password="{}";').reveal() == 'password="a\\"b\\\\";'
    assert secret(f"file:{tmp_path / 'secret'}").reveal() == "from a file"
    assert f"{secret('env:TEST_SECRET', within='x{}')!r}" == "secret('env:TEST_SECRET')"


@pytest.mark.parametrize(
    ("place", "hint"),
    [("env:NO_SUCH", "set NO_SUCH"), ("file:/no/such", "write it into /no/such"), ("hunter2", "env:NAME or file:PATH")],
)
def test_a_secret_that_is_not_there(place: str, hint: str) -> None:
    with pytest.raises(SettingsError, match="there is no secret at") as missing:
        secret(place).reveal()
    assert hint in missing.value.hint
    assert "hunter2" not in f"{missing.value} {secret(place)}", "a value in the wrong place is a secret all the same"


def test_it_has_no_table_and_says_where_it_writes(tmp_path: Path) -> None:
    sinks = kafka_topic("broker:9092", "orders_out", key="id"), postgres_table(DB, "orders", keys=["id"])
    shown = []
    for sink in sinks:
        registry = registry_of(declared_with(sink, owner="web"))
        assert find_problems(registry) == ()
        assert registry.tables() == {}
        said = declaration(registry, registry.get(NAME), load_settings(home=tmp_path))
        assert (said.sink_table, said.sink_uri, said.side_tables) == ("", "", ())
        shown.append(said.writes_to)
    assert shown == ["Kafka topic orders_out at broker:9092", "PostgreSQL table public.orders at db:5432/shop"]
    own = foreach_batch(lambda rows, batch_id, session: None)
    for problems in (
        problems_of(declared_with(sinks[0], cluster_by=["id"])),
        problems_of(pipeline_of(rate(), sink=own, cluster_by=["id"])),
    ):
        assert problems == [f"{NAME}: cluster_by: it has no table of its own"]
    odd = foreach_batch(lambda rows, batch_id, session: None, output_mode="all")  # type: ignore[arg-type]
    (problem,) = problems_of(pipeline_of(rate(), sink=odd))
    assert "output_mode='all' is not known" in problem


def test_two_streams_on_one_table_of_a_database_are_refused() -> None:
    pipeline = Pipeline("shop")
    for name in ("export_a", "export_b"):
        sink = postgres_table(DB, "orders", keys=["id"])
        pipeline.streaming_table(name, source=table("/lake/orders").changes(), sink=sink)(same)
    (found,) = find_problems(registry_of(pipeline))
    assert "export_b: writes public.orders at db:5432/shop, as export_a at" in str(found)


COLUMNS = StructType().add("id", "string").add("op", "string").add("lsn", "long")


@pytest.mark.parametrize(
    ("sink", "complaint"),
    [
        (upsert(keys=["nr"], sequence="lsn"), "returns no nr"),
        (upsert(keys=["id"], sequence="lsn", except_columns=["lsn"]), "lsn must be written"),
        (upsert(keys=["id"], sequence="id", deleted="op = 'd'"), "the sequence id is one of the keys"),
        (history(keys=["id"], sequence="at"), "returns no at"),
        (history(keys=["id"], sequence="lsn", except_columns=["id"]), "keys must be written"),
        (history(keys=["id"], sequence="id", deleted="op = 'd'"), "the sequence id is one of the keys"),
    ],
)
def test_columns_that_a_sink_needs_are_asked_for_before_the_first_batch(sink: Sink, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        sink.table_schema(COLUMNS)


LACKING = [
    (postgres_table(DB, "a", keys=["id"]), "id BIGINT", "postgres_table: the function returns no _change_type"),
    (postgres_table(DB, "a", keys=["ID_"]), FEED, "postgres_table: the function returns no ID_"),
    (kafka_topic("b:1", "a", key="id"), "id BIGINT, _change_type STRING", "returns no _commit_version"),
    (kafka_topic("b:1", "b", key=["id", "no"]), FEED, "kafka_topic: the function returns no no"),
    (kafka_topic("b:1", "c", key="idd"), FEED, "UNRESOLVED_COLUMN"),
    (kafka_topic("b:1", "d", key="id", headers={"x": "nam"}), FEED, "UNRESOLVED_COLUMN"),
]


@pytest.mark.spark
def test_what_the_rows_lack_is_told_without_asking_anybody(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = Pipeline("shop")
    for number, (sink, columns, _) in enumerate(LACKING):
        pipeline.streaming_table(f"export_{number}", source=rate(), sink=sink)(without_rows(columns))
    problems = Analysis(registry_of(pipeline), spark, load_settings(home=tmp_path)).run().problems
    assert [problem.name for problem in problems] == [f"export_{number}" for number in range(len(LACKING))]
    for problem, (_, _, complaint) in zip(problems, LACKING, strict=True):
        assert complaint in problem.message
