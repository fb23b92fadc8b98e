"""What feeds what: nodes, edges and rows per minute from declarations and batches alone."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from backend.stream_model.stream import Observed, Progress, StreamDeclaration, StreamInput, StreamState
from backend.streams.graph import WINDOW, Edge, build_graph, streams_below
from backend.streams.verdict import StreamStatus, Verdict

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
HOUR_AGO = NOW - timedelta(hours=1)


def status(
    name: str, *, reads: tuple[str, ...] = (), state: StreamState = StreamState.RUNNING, **said: object
) -> StreamStatus:
    layer = name.split("_")[0]
    declared = StreamDeclaration(name, "", "", f"/l/{layer}/{name}", f"{layer}/{name}", reads, layer, 5_000, "/c")
    observed = Observed(name, state, "host", 1, NOW, started_at=HOUR_AGO)
    return StreamStatus(replace(declared, **said), None, observed, state, None, Verdict.OK, "")  # type: ignore[arg-type]


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


def test_rows_per_minute_are_those_of_the_last_five() -> None:
    batches = [batch(1_000, ago_s=WINDOW.total_seconds() + 1), batch(30, ago_s=200), batch(20, ago_s=10)]
    assert edges(BRONZE, bronze_orders=batches) == {("files in /data/orders", "bronze_orders"): 10.0}


def test_a_stream_that_began_a_minute_ago_is_judged_by_that_minute() -> None:
    assert BRONZE.observed
    young = replace(BRONZE, observed=replace(BRONZE.observed, started_at=NOW - timedelta(minutes=1)))
    assert edges(young, bronze_orders=[batch(50, ago_s=10)]) == {("files in /data/orders", "bronze_orders"): 50.0}


def test_a_stopped_stream_reads_nothing_and_an_unwatched_one_is_unknown() -> None:
    stopped = replace(BRONZE, state=StreamState.STOPPED)
    assert set(edges(stopped, bronze_orders=[batch(50, ago_s=10)]).values()) == {0.0}
    assert set(edges(replace(BRONZE, state=StreamState.UNKNOWN)).values()) == {None}


def test_a_view_counts_versions_and_says_no_rows() -> None:
    assert edges(GOLD, gold_orders=[batch(1, ago_s=10)]) == {("silver_orders", "gold_orders"): None}


def test_each_of_several_sources_has_its_own_rows() -> None:
    both = status("silver_paid", reads=("bronze/bronze_orders", "bronze/bronze_payments"))
    rows = {"DeltaSource[file:/l/bronze/bronze_orders]": 100, "DeltaSource[file:/l/bronze/bronze_payments]": 25}
    found = edges(both, silver_paid=[batch(125, ago_s=10, sources=rows)])
    assert found == {("bronze_orders", "silver_paid"): 20.0, ("bronze_payments", "silver_paid"): 5.0}
    assert set(edges(both, silver_paid=[batch(125, ago_s=10)]).values()) == {None}  # Spark did not say which


def test_a_table_that_no_stream_writes_is_a_table() -> None:
    found = build_graph((status("silver_a", reads=("s3://lake/orders",)),), {}, now=NOW)
    assert [(node.name, node.kind) for node in found.nodes] == [
        ("silver_a", "streaming table"),
        ("s3://lake/orders", "table"),
    ]
    assert found.edges == (Edge("s3://lake/orders", "silver_a", 0.0),)


def test_a_stream_that_writes_a_topic_has_no_table_and_its_readers_follow() -> None:
    reader = status("bronze_copies", inputs=(StreamInput("kafka", "orders_out at broker:9092"),))
    found = build_graph((BRONZE, OUTSIDE, reader), {}, now=NOW)
    nodes = {node.name: (node.kind, node.table) for node in found.nodes}
    assert nodes["kafka_orders"] == ("stream", None)
    assert nodes["orders_out at broker:9092"] == ("kafka", None)
    assert len(nodes) == len(found.nodes), "written and read, it is one node"
    assert "bronze_copies" in found.downstream("bronze_orders")
    assert OUTSIDE.declaration.writes_to == "Kafka topic orders_out at broker:9092"


def test_streams_below_come_nearest_to_the_sources_first() -> None:
    other = status("gold_other", reads=("elsewhere",))
    found = streams_below(["bronze_orders"], (GOLD, SILVER, other, BRONZE), now=NOW)
    assert [each.declaration.name for each in found] == ["silver_orders", "gold_orders"]
    assert streams_below(["gold_orders"], (GOLD, SILVER, BRONZE), now=NOW) == []
