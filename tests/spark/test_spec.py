"""Declaring streams: what is refused, and what people get to know. No JVM."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from backend.errors import SettingsError, StreamNotFoundError
from backend.settings import load_settings
from pipelines.expectations import Expectation, OnViolation
from pipelines.sinks import AppendSink, QuarantineSink
from pipelines.sources import DeltaSource, TextFileSource
from pipelines.spec import Registry, SpecError, StreamSpec, load_registry
from pipelines.tables import Column, TableSpec

LINES = TableSpec("lines", "bronze", "Lines", (Column("value", "STRING"),))
WORDS = TableSpec("words", "silver", "Words", (Column("value", "STRING"),))
BAD_WORDS = TableSpec("bad_words", "silver", "Words set apart", (Column("value", "STRING"),))


def same(df: DataFrame) -> DataFrame:
    return df


def spec(name: str = "words", **changes: object) -> StreamSpec:
    made = StreamSpec(name, "Words of lines", DeltaSource(LINES), same, AppendSink(WORDS))
    return replace(made, **changes)  # type: ignore[arg-type]


def test_the_demo_declares_six_streams_that_say_what_they_read_and_write(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path)
    registry = load_registry(settings)
    said = registry.get("silver_orders").declaration(settings)
    assert len(registry.names()) == 6
    assert said.source_tables == ("bronze/bronze_orders",)
    assert (said.sink_table, said.layer) == ("silver/silver_orders", "silver")
    assert said.sink_uri == str(tmp_path / "lake/silver/silver_orders")
    assert said.checkpoint_location == str(tmp_path / "checkpoints/silver_orders")
    assert said.trigger_interval_ms == 15_000
    assert said.expectations == ("envelope_complete",)


def test_a_name_twice_is_refused() -> None:
    registry = Registry()
    registry.add(spec())
    with pytest.raises(SpecError, match="words is declared twice"):
        registry.add(spec(sink=AppendSink(BAD_WORDS)))


def test_two_streams_on_one_table_are_refused() -> None:
    registry = Registry()
    registry.add(spec())
    with pytest.raises(SpecError, match="words and more_words both write words"):
        registry.add(spec("more_words", source=TextFileSource("/landing"), sink=QuarantineSink(WORDS, BAD_WORDS)))


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    registry = Registry()
    registry.add(spec("silver_words"))
    with pytest.raises(StreamNotFoundError) as missing:
        registry.get("silver_wrods")
    assert missing.value.hint == "did you mean silver_words?"


@pytest.mark.parametrize("name", ["", "Words", "silver-words", "../words", "w" * 64])
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(SpecError, match="is not allowed"):
        Registry().add(spec(name))


def test_a_quarantine_needs_a_table() -> None:
    kept_apart = (Expectation("short", "length(value) < 9", OnViolation.QUARANTINE),)
    with pytest.raises(SpecError, match="short wants a quarantine"):
        Registry().add(spec(expectations=kept_apart))
    Registry().add(spec(expectations=kept_apart, sink=QuarantineSink(WORDS, BAD_WORDS)))


def test_expectations_of_one_name_are_refused() -> None:
    with pytest.raises(SpecError, match="must differ"):
        Registry().add(spec(expectations=(Expectation("short", "true"), Expectation("short", "false"))))


@pytest.mark.parametrize("interval_s", [0.0, -1.0])
def test_a_trigger_interval_must_be_positive(interval_s: float) -> None:
    with pytest.raises(SpecError, match="above 0 s"):
        Registry().add(spec(trigger_interval_s=interval_s))


@pytest.mark.parametrize(
    ("module", "complaint"), [("no_such_pipelines", "cannot be imported"), ("json", "declares no streams")]
)
def test_a_module_without_streams_is_refused(tmp_path: Path, module: str, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        load_registry(load_settings(home=tmp_path, host={"pipelines": [module]}))


@pytest.mark.parametrize(("pace", "intervals_s"), [(1, {10, 15, 30}), (2.5, {4, 6, 12})])
def test_the_demo_breathes_at_its_pace(tmp_path: Path, pace: float, intervals_s: set[float]) -> None:
    specs = load_registry(load_settings(home=tmp_path, demo={"pace": pace})).specs()

    assert {spec.trigger_interval_s for spec in specs} == intervals_s
