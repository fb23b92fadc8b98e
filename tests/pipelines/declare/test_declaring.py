"""Declaring streams: what people get to know, and what is refused, all of it at once. No JVM."""

import textwrap
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from backend.errors import SettingsError, StreamNotFoundError
from backend.redaction import without_secrets
from backend.settings import load_settings
from backend.stream_model.stream import Output, StreamState
from backend.streams.graph import Lineage, build_graph, lineage
from backend.streams.reset import ResetLevel, preview
from backend.streams.verdict import StreamStatus, Verdict
from pipelines import (
    Pipeline,
    append,
    complete,
    expect,
    foreach_batch,
    fresh,
    into,
    kafka_topic,
    rate,
    references,
    rows_per_day,
    table,
    unique,
    upsert,
)
from pipelines.declare.check import PipelineError, find_problems, refuse_problems
from pipelines.declare.pipeline import MOST_CODE, declaration, declarations, load_registry, trigger_s
from pipelines.jvm.failures import SpecError
from pipelines.spark.tables import in_order
from pipelines.specs.tables import Evolution
from tests.worlds.spark import declared
from tests.worlds.spark.declared import problems_of, registry_of, same


@pytest.fixture
def words() -> Pipeline:
    """A pipeline with one stream that works."""
    pipeline = Pipeline("words")
    pipeline.streaming_table("bronze_lines", source=rate())(same)
    return pipeline


def test_the_demo_declares_six_streams_that_say_what_they_read_and_write(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path)
    registry = load_registry(settings)
    said = declaration(registry, registry.get("silver_orders"), settings)
    assert len(registry.names()) == 6
    assert find_problems(registry) == ()
    assert said.source_tables == ("bronze/bronze_orders",)
    assert (said.sink_table, said.layer, said.pipeline) == ("silver/silver_orders", "silver", "orders")
    assert said.side_tables == ("silver/silver_orders_tombstones",)
    assert said.sink_uri == str(tmp_path / "lake/silver/silver_orders")
    assert said.checkpoint_location == str(tmp_path / "checkpoints/silver_orders")
    assert said.trigger_interval_ms == 20_000
    assert said.expectations == ("envelope_complete",)
    assert [(each.kind, each.name, each.uri) for each in said.inputs] == [
        ("change feed", "bronze/bronze_orders", str(tmp_path / "lake/bronze/bronze_orders"))
    ]
    landed = declaration(registry, registry.get("bronze_orders"), settings)
    assert [(each.kind, each.name, each.uri) for each in landed.inputs] == [
        ("files", "files in landing/orders", str(tmp_path / "landing/orders"))
    ]


def test_the_text_of_its_function_is_published_without_secrets_and_not_at_any_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "\n".join(f"    x{number} = {number}" for number in range(1_000))
    text = (
        '@shop.streaming_table("bronze_a", source=rate())\n'
        'def bronze_a(rows):\n    password = "Tr0ub4dor"\n    return rows.limit(3)\n\n\n'
        f'@shop.streaming_table("bronze_b", source=rate())\ndef bronze_b(rows):\n{rows}\n    return rows\n'
    )
    module = 'from pipelines import Pipeline, rate\n\nshop = Pipeline("shop")\n\n\n'
    (tmp_path / "shop_of_a_test.py").write_text(module + text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("WEIR_HOST__PIPELINES", '["shop_of_a_test"]')
    settings = load_settings(home=tmp_path)
    short, long = declarations(load_registry(settings), settings)
    assert short.code == text.partition("\n\n\n")[0].replace("Tr0ub4dor", "***")
    assert long.code.startswith('@shop.streaming_table("bronze_b"') and len(long.code) == MOST_CODE
    unwritten = Pipeline("unwritten")
    exec("def bronze_c(rows): return rows", made := {})
    unwritten.streaming_table("bronze_c", source=rate())(made["bronze_c"])
    (nowhere,) = declarations(registry_of(unwritten), settings)
    assert nowhere.code == ""


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
    place = without_secrets(f"{declared.__file__}:{same.__code__.co_firstlineno}: ")  # a path may hold what others hide
    assert [line for line in lines if not line.startswith(place)] == []
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


def test_a_table_that_may_not_be_reset_says_so_by_its_property(words: Pipeline, tmp_path: Path) -> None:
    locked = {"pipelines.reset.allowed": "false"}
    words.streaming_table("bronze_a", source=rate(), table_properties=locked)(same)
    words.streaming_table("bronze_b", source=rate(), also=[into("c", append(), table_properties=locked)])(same)
    settings = load_settings(home=tmp_path)
    allowed = {each.name: each.reset_allowed for each in declarations(registry_of(words), settings)}
    assert allowed == {"bronze_lines": True, "bronze_a": False, "bronze_b": False}


HOSTILE = (
    "x'; DROP TABLE y; --",
    "../../etc/x",
    "a\nb: 1",
    "a\x1b[2J",
    "a" * 64,
    "",
    "a.b",
    "`a`",
    "ü",
    "Words",
    "a-b",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_name_that_is_sql_a_path_or_lines_is_refused(words: Pipeline, text: str) -> None:
    words.streaming_table(text, source=rate(), layer="bronze")(same)
    words.temporary_view(f"v{text}" if text else text, source=rate())(same)
    words.streaming_table(
        "ok", source=rate(), expectations=[expect(text, "true")], also=[into(text, append(), layer="x")]
    )(same)
    said = problems_of(words)
    assert f"{text!r}: is no name" in said
    assert any(line.startswith("ok: names of expectations must differ") for line in said)
    assert any("is no name of a table" in line for line in said)
    assert all(line.isprintable() for line in said)


@pytest.mark.parametrize(
    "layer", ["../../etc", "a/../../b", "/etc", "a//b", ".", "a/", "%2e%2e", "C:x", "..\\x", "a\nb", "a" * 10_000, "\0"]
)
def test_a_layer_is_a_folder_below_the_tables(words: Pipeline, layer: str) -> None:
    words.streaming_table("quiet", source=rate(), layer="sales/Größe 1")(same)
    words.streaming_table("loud", source=rate(), layer=layer)(same)
    said = problems_of(words)
    assert said and all(line.startswith("loud: its layer ") and line.isprintable() for line in said)
    assert max(map(len, said)) < 300


@pytest.mark.parametrize("text", ["a\nb", "\x1b[2J", "\u202ea", "a" * 10_000])
def test_what_pages_and_logs_repeat_is_one_line(text: str) -> None:
    declared_by = Pipeline(text)
    declared_by.streaming_table("a", source=rate(), tags={text: "x", "owner": text}, location=f"/lake/{text}")(same)
    said = problems_of(declared_by)
    for what in ("a: its pipeline ", "a: its tag ", "a: its tag 'owner' ", "a: the location of 'a' "):
        assert any(line.startswith(what) for line in said)
    assert all(line.isprintable() and len(line) < 300 for line in said)


def test_expectations_on_tables_name_declared_ones_or_any_by_uri(words: Pipeline, tmp_path: Path) -> None:
    words.expect_table("bronze_lines", fresh("15 minutes"), unique("value", "timestamp"))
    words.expect_table("s3a://others/customers/", references("line", "bronze_lines.value"), rows_per_day())
    assert problems_of(words) == []
    lines = str(tmp_path / "lake/bronze/bronze_lines")
    found = registry_of(words).table_expectations(load_settings(home=tmp_path))
    assert [(each.uri, each.table, each.name, each.pipeline) for each in found] == [
        (lines, "bronze_lines", "fresh", "words"),
        (lines, "bronze_lines", "unique(value, timestamp)", "words"),
        ("s3://others/customers", "s3a://others/customers/", "references(line, bronze_lines.value)", "words"),
        ("s3://others/customers", "s3a://others/customers/", "rows_per_day", "words"),
    ]
    assert (found[0].within_s, found[2].other_uri) == (900, lines)


def test_expectations_on_tables_that_cannot_be_judged_are_told_with_their_line(words: Pipeline) -> None:
    words.expect_table("bronze_lnes", fresh("15 minuts"))
    words.expect_table("bronze_lines", unique(), references("a", "b"), references("a", "gold.b"))
    words.expect_table("/lake/others")
    words.materialized_view("gold_lines")(lambda bronze_lines: bronze_lines)
    words.expect_table("gold_lines", rows_per_day())
    words.expect_table("bronze_lines", fresh("1 day"), fresh("2 days"))
    found = find_problems(registry_of(words))
    lines = Path(__file__).read_text().splitlines()
    assert all(lines[each.declared_at.line - 1].startswith("    words.expect_table") for each in found)
    first = found[-1].declared_at
    assert [str(each).removeprefix(f"{each.declared_at}: ") for each in found] == [
        "bronze_lnes: bronze_lnes is not a declared table (did you mean bronze_lines?)",
        'bronze_lnes: fresh(\'15 minuts\') is not understood (write "15 minutes", "2 hours" or "1 day")',
        "bronze_lines: gold is not a declared table (name a table that a stream writes, or one by its URI)",
        'bronze_lines: unique() names no column (write unique("order_id"), with every column of the key)',
        "bronze_lines: references to 'b', which is no table and column "
        '(write references("customer_id", "silver_customers.id"))',
        '/lake/others: it has no expectation (name a rule, such as fresh("15 minutes"))',
        "gold_lines: rows_per_day: it is written anew each time, so no rows are new "
        "(expect it of a table that it reads)",
        f"bronze_lines: fresh is expected twice, first at {first}",
    ]


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
    assert registry_of(words).tables_read(words.streams[1]) == ("silver_words",)


def test_a_table_outside_is_read_by_its_uri_and_by_no_bare_name(words: Pipeline) -> None:
    words.streaming_table("silver_a", source=table("s3://lake/orders"))(same)
    assert problems_of(words) == []
    words.streaming_table("silver_b", source=table("orders"))(same)
    assert problems_of(words) == ["silver_b: reads orders, which is not declared"]


def test_an_unknown_name_is_answered_with_the_nearest(words: Pipeline) -> None:
    with pytest.raises(StreamNotFoundError) as missing:
        registry_of(words).get("bronze_lnies")
    assert missing.value.hint == "did you mean bronze_lines?"


@pytest.mark.parametrize(
    ("trigger", "seconds"),
    [("10 seconds", 10), ("1 second", 1), ("500 milliseconds", 0.5), ("2 MINUTES", 120), ("available now", None)],
)
def test_triggers_in_words(trigger: str, seconds: float | None) -> None:
    assert trigger_s(trigger) == seconds


@pytest.mark.parametrize("trigger", ["", "soon", "0 seconds", "-1 second", "10", "continuous", "continuous 1 second"])
def test_triggers_that_are_refused(trigger: str) -> None:
    with pytest.raises(SpecError):
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


def test_an_upsert_that_deletes_writes_tombstones_beside_its_table(words: Pipeline, tmp_path: Path) -> None:
    place = "s3://lake/crm/customers"
    words.streaming_table("silver_a", source=rate(), sink=upsert(keys=["id"], sequence="at"))(same)
    sink = upsert(keys=["id"], sequence="at", deleted="gone")
    words.streaming_table("silver_b", source=rate(), sink=sink, location=f"{place}/")(same)
    written = [[table.name for table in stream.writes] for stream in words.streams]
    assert written == [["bronze_lines"], ["silver_a"], ["silver_b", "silver_b_tombstones"]]
    uris = [table.uri(load_settings(home=tmp_path)).rstrip("/") for table in words.streams[-1].writes]
    assert uris == [place, f"{place}_tombstones"]
    assert find_problems(registry_of(words)) == ()


@pytest.mark.parametrize(
    ("module", "complaint"),
    [
        ("no_such_pipelines", "cannot be imported"),
        ("no_such_folder.pipelines", "cannot be imported: No module named 'no_such_folder'"),
        (".pipelines", "cannot be imported: it is no whole name"),
        ("", "cannot be imported"),
        ("json", "declares no streams"),
    ],
)
def test_a_module_without_streams_is_refused(tmp_path: Path, module: str, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        load_registry(load_settings(home=tmp_path, host={"pipelines": [module]}))


def test_what_a_module_lacks_itself_is_told_as_its_own_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lacking.py").write_text("import lacking_parts.of_it\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="lacking_parts"):
        load_registry(load_settings(home=tmp_path, host={"pipelines": ["lacking"]}))


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


@pytest.mark.parametrize(("pace", "intervals_s"), [(1, {10, 20, 40}), (2.5, {4, 8, 16})])
def test_the_demo_breathes_at_its_pace(tmp_path: Path, pace: float, intervals_s: set[float]) -> None:
    registry = load_registry(load_settings(home=tmp_path, demo={"pace": pace}))
    streams = registry.streams
    assert {each.table for each in registry.expected} == {"silver_events", "silver_orders"}
    assert {stream.trigger_interval_s for stream in streams} == intervals_s


def test_a_quarantine_grows_as_its_table_may(words: Pipeline) -> None:
    rules = [expect("there", "true", on_violation="quarantine")]
    words.streaming_table("gold_words", source=rate(), expectations=rules, evolution="add columns")(same)
    stream = words.streams[-1]
    assert stream.quarantine is not None
    assert stream.quarantine.evolution is stream.table.evolution is Evolution.ADD


def test_several_destinations_are_in_the_declaration_the_graph_and_the_preview_of_a_reset(
    words: Pipeline, tmp_path: Path
) -> None:
    newest = into("gold_words", upsert(keys=["word"], sequence="at", deleted="gone"), where="length(word) > 1")
    words.streaming_table("silver_words", source=table("bronze_lines"), also=[newest])(same)
    words.streaming_table("gold_report", source=table("gold_words"))(same)
    registry, settings = registry_of(words), load_settings(home=tmp_path)
    assert find_problems(registry) == ()
    assert [stream.name for stream in in_order(registry)] == ["bronze_lines", "silver_words", "gold_report"]
    declared = declarations(registry, settings)
    shown = declaration(registry, registry.get("silver_words"), settings)
    assert shown.side_tables == ("gold/gold_words", "gold/gold_words_tombstones")
    own = Output("silver/silver_words", str(tmp_path / "lake/silver/silver_words"), "append")
    assert shown.outputs == (own, Output("gold/gold_words", str(tmp_path / "lake/gold/gold_words"), "upsert"))
    statuses = [StreamStatus(each, None, None, StreamState.STOPPED, (), Verdict.STOPPED, "") for each in declared]
    graph = build_graph(statuses, {}, now=datetime.now(UTC))
    assert lineage(graph, ["gold/gold_words"]) == Lineage(("silver_words",), ("gold_report",))
    assert next(node.layer for node in graph.nodes if node.name == "gold_words") == "gold"
    found = preview(statuses[1], ResetLevel.REPROCESS, declared, again=None, set_aside=())
    assert [risk for risk in found.risks if "twice" in risk] == [
        "silver/silver_words keeps its rows: each row that is read again is there twice"
    ]
    (downstream,) = found.downstream
    assert downstream.startswith("gold_report fails at the commit"), "that table takes rows by key"


def test_destinations_that_cannot_work_together_are_refused(words: Pipeline) -> None:
    topic = kafka_topic("broker:9092", "words", key="word")
    also = [
        into("silver_words", append()),
        into("bronze_lines", append()),
        into("Gold", complete()),
        into("gold_words", topic),  # type: ignore[arg-type]
        into("gold_own", foreach_batch(lambda rows, batch_id, session: None)),  # type: ignore[arg-type]
        into("gold_more", append(), colour="red"),
        into("gold_here", append(), location="/lake/one"),
        into("gold_there", append(), location="/lake/one"),
    ]
    words.streaming_table("silver_words", source=rate(), also=also)(same)
    said = "\n".join(problems_of(words))
    for part in (
        "silver_words: complete cannot be one of several destinations",
        "silver_words: kafka cannot be one of several destinations",
        "silver_words: foreach_batch cannot be one of several destinations",
        "silver_words: writes silver_words twice in a batch",
        "writes bronze_lines, as",
        "'Gold' is no name of a table",
        "unexpected keyword argument 'colour'",
        "silver_words: writes /lake/one twice in a batch",
    ):
        assert part in said
