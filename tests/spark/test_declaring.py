"""Declaring streams: what people get to know, and what is refused, all of it at once. No JVM."""

import textwrap
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from backend.errors import SettingsError, StreamNotFoundError
from backend.settings import load_settings
from pipelines import Pipeline, expect, rate, table, upsert
from pipelines.declare.check import PipelineError, find_problems, in_order, refuse_problems
from pipelines.declare.pipeline import TriggerError, trigger_s
from pipelines.declare.registry import Registry, load_registry


def same(rows: DataFrame) -> DataFrame:
    return rows


def registry_of(pipeline: Pipeline) -> Registry:
    return Registry(pipeline.streams, pipeline.views, pipeline.problems)


def problems_of(pipeline: Pipeline) -> list[str]:
    return [f"{problem.name}: {problem.message}" for problem in find_problems(registry_of(pipeline))]


@pytest.fixture
def words() -> Pipeline:
    """A pipeline with one stream that works."""
    pipeline = Pipeline("words")
    pipeline.streaming_table("bronze_lines", source=rate())(same)
    return pipeline


def test_the_demo_declares_six_streams_that_say_what_they_read_and_write(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path)
    registry = load_registry(settings)
    said = registry.declaration(registry.get("silver_orders"), settings)
    assert len(registry.names()) == 6
    assert find_problems(registry) == ()
    assert said.source_tables == ("bronze/bronze_orders",)
    assert (said.sink_table, said.layer, said.pipeline) == ("silver/silver_orders", "silver", "orders")
    assert said.side_tables == ("silver/silver_orders_tombstones",)
    assert said.sink_uri == str(tmp_path / "lake/silver/silver_orders")
    assert said.checkpoint_location == str(tmp_path / "checkpoints/silver_orders")
    assert said.trigger_interval_ms == 30_000
    assert said.expectations == ("envelope_complete",)
    assert [(each.kind, each.name, each.uri) for each in said.inputs] == [
        ("change feed", "bronze/bronze_orders", str(tmp_path / "lake/bronze/bronze_orders"))
    ]
    landed = registry.declaration(registry.get("bronze_orders"), settings)
    assert [(each.kind, each.name, each.uri) for each in landed.inputs] == [
        ("files", "files in landing/orders", str(tmp_path / "landing/orders"))
    ]


def test_every_problem_is_told_at_once_with_its_place(words: Pipeline) -> None:
    words.streaming_table("bronze_lines", source=rate(), trigger="continuous")(same)
    words.streaming_table("silver_words", source=table("bronze_lnes"), layr="silver")(same)
    words.streaming_table("Gold", source=table("bronze_lines"), evolution="grow")(same)
    words.streaming_table(
        "silver_long",
        source=table("bronze_lines"),
        expectations=[expect("a b", "true"), expect("ok", "true", on_violation="ignore")],
    )(same)
    with pytest.raises(PipelineError) as refused:
        refuse_problems(registry_of(words))
    lines = refused.value.message.splitlines()[1:]
    place = f"{__file__}:{same.__code__.co_firstlineno}: "
    assert all(line.startswith(place) for line in lines)
    said = "\n".join(line.removeprefix(place) for line in lines)
    for each in (
        "bronze_lines: is declared twice, first at",
        "bronze_lines: continuous processing writes no Delta table and is not exactly once",
        "silver_words: got an unexpected keyword argument 'layr'",
        "silver_words: reads bronze_lnes, which is not declared (did you mean bronze_lines?)",
        "'Gold': is no name",
        "Gold: 'grow' is not a valid Evolution",
        "silver_long: names of expectations must differ and use a-z, 0-9 and _",
        "silver_long: expectation ok: on_violation='ignore' is not known (use warn, drop, quarantine, fail)",
    ):
        assert each in said


def test_two_streams_on_one_table_are_refused(words: Pipeline) -> None:
    rules = [expect("short", "length(value) < 9", on_violation="quarantine")]
    words.streaming_table("silver_words", source=table("bronze_lines"), expectations=rules)(same)
    words.streaming_table("silver_words_quarantine", source=rate())(same)
    words.streaming_table("silver_more", source=rate(), location="/lake/words")(same)
    words.streaming_table("silver_most", source=rate(), location="/lake/words")(same)
    found = problems_of(words)
    assert any("silver_words_quarantine: writes silver_words_quarantine, as silver_words at" in each for each in found)
    assert any("silver_most: writes silver_most, as silver_more at" in each for each in found)
    assert len(found) == 2


def test_a_cycle_is_shown_whole_also_through_a_view() -> None:
    round_ = Pipeline("round")
    round_.streaming_table("silver_a", source=table("silver_b"))(same)
    round_.temporary_view("silver_b", source=table("silver_c"))(same)
    round_.streaming_table("silver_c", source=table("silver_a"))(same)
    (found,) = problems_of(round_)
    around = found.split(": ")[-1].split(" → ")
    assert around[0] == around[-1]
    assert set(around) == {"silver_a", "silver_b", "silver_c"}


def test_streams_come_after_what_they_read(words: Pipeline) -> None:
    words.materialized_view("gold_count")(lambda silver_clean: silver_clean)
    words.temporary_view("silver_clean", source=table("silver_words"))(same)
    words.streaming_table("silver_words", source=table("bronze_lines").changes())(same)
    assert problems_of(words) == []
    assert [each.name for each in in_order(registry_of(words))] == ["bronze_lines", "silver_words", "gold_count"]
    assert registry_of(words).through_views(("silver_clean",)) == ("silver_words",)


def test_a_table_outside_is_read_by_its_uri_and_by_no_bare_name(words: Pipeline) -> None:
    words.streaming_table("silver_a", source=table("s3://lake/orders"))(same)
    assert problems_of(words) == []
    words.streaming_table("silver_b", source=table("orders"))(same)
    assert problems_of(words) == ["silver_b: reads orders, which is not declared"]


def test_an_unknown_name_is_answered_with_the_nearest(words: Pipeline) -> None:
    with pytest.raises(StreamNotFoundError) as missing:
        registry_of(words).get("bronze_lnies")
    assert missing.value.hint == "did you mean bronze_lines?"


@pytest.mark.parametrize("name", ["", "Words", "silver-words", "../words", "w" * 64])
def test_names_that_are_refused(name: str) -> None:
    pipeline = Pipeline("words")
    pipeline.streaming_table(name, source=rate())(same)
    assert any("is no name" in each for each in problems_of(pipeline))


@pytest.mark.parametrize(
    ("trigger", "seconds"),
    [("10 seconds", 10), ("1 second", 1), ("500 milliseconds", 0.5), ("2 MINUTES", 120), ("available now", None)],
)
def test_triggers_in_words(trigger: str, seconds: float | None) -> None:
    assert trigger_s(trigger) == seconds


@pytest.mark.parametrize("trigger", ["", "soon", "0 seconds", "-1 second", "10", "continuous", "continuous 1 second"])
def test_triggers_that_are_refused(trigger: str) -> None:
    with pytest.raises(TriggerError):
        trigger_s(trigger)


def test_a_table_says_layer_comment_and_owner(words: Pipeline) -> None:
    @words.streaming_table("orders", source=rate(), layer="gold", owner="sales", table_properties={"delta.x": "1"})
    def orders(rows: DataFrame) -> DataFrame:
        """Orders of today.

        More on them."""
        return rows

    made = words.streams[-1].table
    assert (made.layer, made.comment) == ("gold", "Orders of today.")
    assert made.properties == {"catalog.team_name": "sales", "delta.x": "1"}
    assert words.streams[0].table.layer == "bronze"


def test_an_upsert_that_deletes_writes_tombstones_beside(words: Pipeline) -> None:
    words.streaming_table("silver_a", source=rate(), sink=upsert(keys=["id"], sequence="at"))(same)
    words.streaming_table("silver_b", source=rate(), sink=upsert(keys=["id"], sequence="at", deleted="gone"))(same)
    written = [[table.name for table in stream.writes] for stream in words.streams]
    assert written == [["bronze_lines"], ["silver_a"], ["silver_b", "silver_b_tombstones"]]


@pytest.mark.parametrize(
    ("module", "complaint"), [("no_such_pipelines", "cannot be imported"), ("json", "declares no streams")]
)
def test_a_module_without_streams_is_refused(tmp_path: Path, module: str, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        load_registry(load_settings(home=tmp_path, host={"pipelines": [module]}))


def test_a_pipeline_in_two_modules_is_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_words.py").write_text(
        textwrap.dedent("""
            from pipelines import Pipeline, rate
            words = Pipeline("words")
            words.streaming_table("bronze_words", source=rate())(lambda rows: rows)
        """)
    )
    (tmp_path / "other_words.py").write_text("from own_words import words\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry = load_registry(load_settings(home=tmp_path, host={"pipelines": ["own_words", "other_words"]}))
    assert registry.names() == ("bronze_words",)


@pytest.mark.parametrize(("pace", "intervals_s"), [(1, {15, 30, 60}), (2.5, {6, 12, 24})])
def test_the_demo_breathes_at_its_pace(tmp_path: Path, pace: float, intervals_s: set[float]) -> None:
    streams = load_registry(load_settings(home=tmp_path, demo={"pace": pace})).streams

    assert {stream.trigger_interval_s for stream in streams} == intervals_s
