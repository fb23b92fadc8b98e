"""What feeds what: rows per minute, which stream starves which, and whom a rule of a request chooses."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from backend.errors import StreamNotFoundError
from backend.stream_model.stream import (
    ATTACHED,
    Action,
    Desired,
    DesiredState,
    Observed,
    Progress,
    StreamDeclaration,
    StreamFailure,
    StreamInput,
    StreamState,
)
from backend.streams.acts import Selection, plan_acts
from backend.streams.graph import WINDOW, build_graph, with_causes
from backend.streams.verdict import StreamStatus, Verdict

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
HOUR_AGO = NOW - timedelta(hours=1)


def status(
    name: str, *, reads: tuple[str, ...] = (), state: StreamState = StreamState.RUNNING, **said: object
) -> StreamStatus:
    layer = name.split("_")[0]
    declared = StreamDeclaration(name, "", "", f"/l/{layer}/{name}", f"{layer}/{name}", reads, layer, 5_000, "/c")
    observed = Observed(name, state, "host", 1, NOW, started_at=HOUR_AGO)
    return StreamStatus(replace(declared, **said), None, observed, state, (), Verdict.OK, "")  # type: ignore[arg-type]


def batch(rows: int, *, ago_s: float, sources: dict[str, int] | None = None) -> Progress:
    said = [{"description": name, "numInputRows": count} for name, count in (sources or {}).items()]
    raw = json.dumps({"sources": said})
    at = NOW - timedelta(seconds=ago_s)
    return Progress("s", "q", "r", 1, at, rows, None, None, 10, raw_json=raw)


BRONZE = status("bronze_orders", inputs=(StreamInput("files", "files in /data/orders"),))
SILVER = status("silver_orders", reads=("bronze/bronze_orders",), side_tables=("silver/silver_orders_quarantine",))
OUTSIDE = status(
    "kafka_orders", reads=("bronze/bronze_orders",), sink_table="", sink="kafka", outside="orders_out at broker:9092"
)
GOLD = status("gold_orders", reads=("silver/silver_orders",), kind="materialized view")


def edges(*statuses: StreamStatus, **recent: list[Progress]) -> dict[tuple[str, str], float | None]:
    found = build_graph(statuses, recent, now=NOW)
    return {(edge.source, edge.target): edge.rows_per_min for edge in found.edges}


def test_a_medallion_is_one_chain_from_its_files_to_gold() -> None:
    found = build_graph((BRONZE, SILVER, GOLD), {}, now=NOW)
    assert [(node.name, node.kind, node.layer, node.state) for node in found.nodes] == [
        ("files in /data/orders", "files", None, None),
        ("bronze_orders", "streaming table", "bronze", StreamState.RUNNING),
        ("silver_orders", "streaming table", "silver", StreamState.RUNNING),
        ("gold_orders", "materialized view", "gold", StreamState.RUNNING),
        ("silver_orders_quarantine", "table", "silver", None),
    ]
    assert found.downstream("bronze_orders") == ("silver_orders", "silver_orders_quarantine", "gold_orders")
    assert found.upstream("gold_orders") == ("silver_orders", "bronze_orders", "files in /data/orders")


def test_rows_per_minute_are_those_of_the_last_five_or_since_it_began() -> None:
    batches = [batch(1_000, ago_s=WINDOW.total_seconds() + 1), batch(30, ago_s=200), batch(20, ago_s=10)]
    assert edges(BRONZE, bronze_orders=batches) == {("files in /data/orders", "bronze_orders"): 10.0}
    assert BRONZE.observed
    young = replace(BRONZE, observed=replace(BRONZE.observed, started_at=NOW - timedelta(minutes=1)))
    assert edges(young, bronze_orders=[batch(50, ago_s=10)]) == {("files in /data/orders", "bronze_orders"): 50.0}


def test_a_stopped_stream_reads_nothing_and_of_an_unwatched_one_or_a_view_no_rows_are_known() -> None:
    stopped = replace(BRONZE, state=StreamState.STOPPED)
    assert set(edges(stopped, bronze_orders=[batch(50, ago_s=10)]).values()) == {0.0}
    assert set(edges(replace(BRONZE, state=StreamState.UNKNOWN)).values()) == {None}
    assert edges(GOLD, gold_orders=[batch(1, ago_s=10)]) == {("silver_orders", "gold_orders"): None}


def test_each_of_several_sources_has_its_own_rows() -> None:
    both = status("silver_paid", reads=("bronze/bronze_orders", "bronze/bronze_payments"))
    rows = {"DeltaSource[file:/l/bronze/bronze_orders]": 100, "DeltaSource[file:/l/bronze/bronze_payments]": 25}
    found = edges(both, silver_paid=[batch(125, ago_s=10, sources=rows)])
    assert found == {("bronze_orders", "silver_paid"): 20.0, ("bronze_payments", "silver_paid"): 5.0}
    assert set(edges(both, silver_paid=[batch(125, ago_s=10)]).values()) == {None}  # Spark did not say which


def test_a_stream_that_writes_a_topic_has_no_table_and_its_readers_follow() -> None:
    reader = status("bronze_copies", inputs=(StreamInput("kafka", "orders_out at broker:9092"),))
    found = build_graph((BRONZE, OUTSIDE, reader), {}, now=NOW)
    nodes = {node.name: (node.kind, node.table) for node in found.nodes}
    assert nodes["kafka_orders"] == ("stream", None)
    assert nodes["orders_out at broker:9092"] == ("kafka", None)
    assert len(nodes) == len(found.nodes), "written and read, it is one node"
    assert "bronze_copies" in found.downstream("bronze_orders")
    assert OUTSIDE.declaration.writes_to == "Kafka topic orders_out at broker:9092"


def starving(name: str, *above: str, verdict: Verdict = Verdict.IDLE, **more: object) -> StreamStatus:
    """A stream that reads the tables of these, and has had nothing to read."""
    quiet = status(name, reads=tuple(f"{one}/{one}" for one in above), **more)  # type: ignore[arg-type]
    return replace(quiet, verdict=verdict, because=f"{name} has had nothing new to read for 2 min")


def stopped(name: str) -> StreamStatus:
    desired = Desired(name, DesiredState.STOPPED, 2, "upgrade", "root", NOW - timedelta(minutes=2))
    return replace(starving(name, state=StreamState.STOPPED, verdict=Verdict.STOPPED), desired=desired)


def failing(name: str) -> StreamStatus:
    failure = StreamFailure("SparkException", "division by zero", 7, NOW - timedelta(minutes=3))
    observed = Observed(name, StreamState.BACKOFF, "h", 1, NOW, failures=(failure,))
    return replace(starving(name, state=StreamState.BACKOFF, verdict=Verdict.FAILED), observed=observed)


def causes(*streams: StreamStatus) -> dict[str, tuple[str | None, str]]:
    return {each.declaration.name: (each.starved_by, each.because) for each in with_causes(streams, now=NOW)}


def test_an_idle_stream_below_one_that_stopped_or_failed_is_starved() -> None:
    found = causes(stopped("bronze"), starving("silver", "bronze"), starving("gold", "silver"))
    assert found["silver"] == ("bronze", "silver is starved: bronze was stopped by root 2 min ago")
    assert found["gold"] == ("bronze", "gold is starved: bronze was stopped by root 2 min ago")
    assert found["bronze"][0] is None
    found = causes(failing("bronze"), starving("silver", "bronze"))
    assert found["silver"][1] == "silver is starved: bronze failed 3 min ago: SparkException"


def test_a_starved_stream_has_no_rate_of_the_past() -> None:
    idle = starving("silver", "bronze")
    assert idle.observed
    last = replace(idle, observed=replace(idle.observed, run_id="r"), recent=[batch(344, ago_s=5)])
    assert last.input_rows_per_s
    assert [each.input_rows_per_s for each in with_causes([stopped("bronze"), last], now=NOW)] == [None, 0.0]


def test_a_stream_that_still_reads_is_not_starved_nor_is_what_it_feeds() -> None:
    busy, idle = starving("silver", "bronze", verdict=Verdict.OK), starving("silver", "bronze")
    assert causes(starving("bronze"), idle)["silver"] == (None, idle.because), "bronze runs"
    found = causes(stopped("bronze"), busy, starving("gold", "silver"))
    assert (found["silver"][0], found["gold"][0]) == (None, None)


def test_one_writer_of_two_is_enough_to_name_and_a_circle_ends() -> None:
    assert causes(starving("a"), stopped("b"), starving("c", "a", "b", "elsewhere"))["c"][0] == "b"
    assert causes(starving("a", "b"), starving("b", "a"))["a"][0] is None


def wanted(found: StreamStatus, state: DesiredState) -> StreamStatus:
    return replace(found, desired=Desired(found.declaration.name, state, 1, "why", "ann", NOW))


WANTED_BRONZE = wanted(status("bronze_orders", reads=("raw/landed",), tags={"team": "orders"}), DesiredState.RUNNING)
WANTED_SILVER = wanted(
    status("silver_orders", reads=("bronze/bronze_orders",), tags={"team": "orders"}), DesiredState.RUNNING
)
STOPPED_GOLD = wanted(
    status("gold_orders", reads=("silver/silver_orders",), state=StreamState.STOPPED), DesiredState.STOPPED
)
APART = wanted(status("bronze_clicks"), DesiredState.RUNNING)
THEIRS = status("etl_orders", reads=("silver/silver_orders",), kind=ATTACHED, pipeline="nightly")
EVERY = (THEIRS, STOPPED_GOLD, WANTED_SILVER, WANTED_BRONZE, APART)


@pytest.mark.parametrize(
    ("action", "selection", "asked", "left_out"),
    [
        ("stop", Selection(names=("gold_orders",)), "gold_orders", ""),  # who is named is asked in any case
        (
            "stop",
            Selection(names=("bronze_orders",), with_downstream=True),
            "bronze_orders silver_orders",
            "etl_orders gold_orders",
        ),
        (
            "restart",
            Selection(names=("silver_orders",), with_downstream=True),
            "silver_orders",
            "etl_orders gold_orders",
        ),
        ("start", Selection(names=("silver_orders",), with_downstream=True), "gold_orders silver_orders", "etl_orders"),
        ("stop", Selection(upstream_of="gold_orders"), "bronze_orders silver_orders", ""),
        ("stop", Selection(downstream_of="landed"), "bronze_orders silver_orders", "etl_orders gold_orders"),
        ("stop", Selection(layer="bronze"), "bronze_clicks bronze_orders", ""),
        ("stop", Selection(tag=("team", "orders")), "bronze_orders silver_orders", ""),
        ("stop", Selection(everything=True), "bronze_clicks bronze_orders silver_orders", "etl_orders gold_orders"),
        ("start", Selection(everything=True), "gold_orders", "bronze_clicks bronze_orders etl_orders silver_orders"),
    ],
)
def test_who_is_asked(action: Action, selection: Selection, asked: str, left_out: str) -> None:
    plan = plan_acts(action, selection, EVERY, now=NOW)
    names = [each.declaration.name for each in plan.asked]
    assert sorted(names) == asked.split()
    sources_first = [name for name in ("bronze_orders", "silver_orders", "gold_orders") if name in names]
    assert [name for name in names if name in sources_first] == sources_first
    assert sorted(each.name for each in plan.left_out) == left_out.split()
    assert all(each.why for each in plan.left_out)


def test_where_nothing_is_chosen_the_hint_names_what_there_is() -> None:
    for selection, words in (
        (Selection(names=("nope",)), "streams: bronze_clicks"),
        (Selection(layer="platinum"), "layers: bronze, etl, gold, silver"),
        (Selection(tag=("team", "x")), "tags: team=orders"),
        (Selection(downstream_of="gold_orders"), "graph"),
    ):
        with pytest.raises(StreamNotFoundError) as refused:
            plan_acts("stop", selection, EVERY, now=NOW)
        assert words in refused.value.hint
