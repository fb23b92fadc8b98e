"""Declaring Kafka as a source: what is refused before anything starts, and what is shown of it. No JVM."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from backend.errors import SettingsError
from backend.settings import load_settings
from pipelines import Pipeline, kafka, secret
from pipelines.declare.check import find_problems
from pipelines.declare.registry import declaration
from pipelines.sources.kafka import KafkaSource
from pipelines.specs.registry import Registry

BROKER = "broker:9092"
ID = "id BIGINT"


def same(records: DataFrame) -> DataFrame:
    return records


def registry_of(source: KafkaSource, **about: object) -> Registry:
    pipeline = Pipeline("shop")
    pipeline.streaming_table("bronze_orders", source=source, **about)(same)  # type: ignore[arg-type]
    return Registry(pipeline.streams, pipeline.views, pipeline.problems)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
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
    ],
)
def test_what_cannot_work_is_told_before_anything_starts(source: KafkaSource, complaint: str) -> None:
    registry = registry_of(source)
    (found,) = find_problems(registry)
    assert complaint in str(found)
    assert str(found).startswith(f"{__file__}:{same.__code__.co_firstlineno}: bronze_orders: kafka: ")
    assert "hunter2" not in str(found) + repr(registry.streams)


@pytest.mark.parametrize(
    "source",
    [
        kafka(BROKER, "a", maxOffsetsPerTrigger=10, minPartitions=4, failOnDataLoss=False, starting="latest"),
        kafka(BROKER, ["a", "b"], format="text", starting={"a": {0: 1}}, ending={"a": {0: 5}}),
        kafka(BROKER, re.compile("a.*"), starting=datetime(2026, 1, 1, tzinfo=UTC)),
        kafka(BROKER, "a", options={"kafka.sasl.jaas.config": "Krb5LoginModule required useKeyTab=true;"}),
        kafka(BROKER, "a", options={"kafka.sasl.oauthbearer.token.endpoint.url": "https://id.example/token"}),
        kafka(BROKER, "a", options={"kafka.ssl.truststore.password": secret("file:/run/secrets/trust")}),
    ],
)
def test_what_can_work(source: KafkaSource) -> None:
    registry = registry_of(source)
    assert find_problems(registry) == ()
    assert registry.names() == ("bronze_orders",), "bytes and text are never dead letters"


def test_what_pages_call_it() -> None:
    said = [kafka(BROKER, topics).describe() for topics in ("a", ["a", "b"], re.compile("a.*"))]
    assert said == ["a at broker:9092", "a, b at broker:9092", "a.* at broker:9092"]


def test_dead_letters_lie_beside_what_they_belong_to(tmp_path: Path) -> None:
    password = {"kafka.ssl.truststore.password": secret("file:/run/secrets/trust")}
    source = kafka(BROKER, "orders", format="json", schema=ID, failOnDataLoss=False, options=password)
    registry = registry_of(source, layer="raw", owner="sales", reset_allowed=False, trigger="5 seconds")
    letters = registry.get("bronze_orders_dead_letters")
    said = declaration(registry, letters, load_settings(home=tmp_path))
    assert (said.sink_table, said.layer, said.pipeline) == ("raw/bronze_orders_dead_letters", "raw", "shop")
    assert (said.source, said.reset_allowed, said.trigger_interval_ms) == ("orders at broker:9092", False, 5_000)
    told = {"failOnDataLoss": "false"}
    assert [(each.kind, each.name, each.options) for each in said.inputs] == [("kafka", "orders at broker:9092", told)]
    assert letters.table.properties == {"catalog.team_name": "sales"}


def test_a_view_keeps_no_dead_letters() -> None:
    pipeline = Pipeline("shop")
    pipeline.temporary_view("plain", source=kafka(BROKER, "a", format="text"))(same)
    pipeline.temporary_view("parsed", source=kafka(BROKER, "a", format="json", schema=ID))(same)
    (found,) = find_problems(Registry(pipeline.streams, pipeline.views, pipeline.problems))
    assert "parsed: a view cannot keep records that cannot be parsed (read them by a streaming table)" in str(found)


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


def test_the_example_of_the_docs_is_declared_as_printed() -> None:
    text = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text(encoding="utf-8")
    example = text.partition("### Kafka")[2].partition("```python\n")[2].partition("```")[0]
    shop = Pipeline("shop")
    exec(compile(example, "docs/pipelines.md", "exec"), {"shop": shop})
    assert find_problems(Registry(shop.streams, shop.views, shop.problems)) == ()
    assert [stream.name for stream in shop.streams] == ["bronze_orders", "bronze_orders_dead_letters"]
