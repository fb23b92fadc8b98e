"""The graph as layout and as what stands on it, from statuses and batches alone; latency as figures and as a chart."""

import json
from dataclasses import replace
from datetime import timedelta

from app.pipeline import view
from app.pipeline.view import build_latency_figure
from app.ui.states import row_expectations
from app.ui.view.figures import FigureLook
from backend.stream_model.backlog import Backlog, SourceBacklog
from backend.stream_model.progress import expectation_totals
from backend.stream_model.stream import ExpectationCount, Progress, StreamInput, StreamState
from backend.streams.graph import build_graph
from backend.streams.latency import LayerLatency
from backend.streams.verdict import StreamStatus, Verdict
from tests.backend.streams.test_stream_graph import BRONZE, GOLD, NOW, OUTSIDE, SILVER, batch, status

ODD = '<img src=x onerror="alert(1)">\\N"]; x -> y & co'


def checked(**failed: int | None) -> Progress:
    """A batch that counted 10 passed rows and so many failed ones for each expectation."""
    counts = tuple(ExpectationCount(name, 10, number) for name, number in failed.items())
    return replace(batch(10, ago_s=10), expectations=counts)


def described(*statuses: StreamStatus, **recent: list[Progress]):
    graph = build_graph(statuses, recent, now=NOW)
    return graph, view.boxes(graph, statuses, recent)


def marks(*statuses: StreamStatus, **recent: list[Progress]):
    return view.build_marks(*described(*statuses, **recent), mode="light")


def test_what_feeds_a_node_stands_before_it() -> None:
    _, shown = described(GOLD, SILVER, BRONZE)
    names = [box.node.name for box in shown]
    assert names.index("files in /data/orders") < names.index("bronze_orders") < names.index("silver_orders")
    assert names.index("silver_orders") < min(names.index("gold_orders"), names.index("silver_orders_quarantine"))


def test_states_and_rates_change_what_stands_there_and_never_the_layout() -> None:
    before = described(BRONZE, SILVER, GOLD)
    failed = replace(SILVER, state=StreamState.FAILED, verdict=Verdict.FAILED)
    after = described(BRONZE, failed, GOLD, bronze_orders=[batch(5_000, ago_s=10)])
    assert view.build_layout(*before) == view.build_layout(*after)
    was, now = (view.build_marks(*each, mode="light") for each in (before, after))
    changed = {key for key in was["nodes"] if was["nodes"][key] != now["nodes"][key]}
    assert [now["nodes"][key]["lines"][2]["text"] for key in changed] == ["✕ Failed"]
    assert {edge["text"] for edge in was["edges"].values()} == {"0 rows/min", "–"}
    assert {edge["text"] for edge in now["edges"].values()} == {"1,000 rows/min", "0 rows/min", "–"}


def test_no_name_of_a_user_reaches_graphviz() -> None:
    odd = status("silver_a", reads=(f"s3://lake/{ODD}",), layer=ODD, inputs=(StreamInput("kafka", ODD),))
    graph, shown = described(odd)
    layout = view.build_layout(graph, shown)
    said = [layout["subgraphs"][0]["graphAttributes"]["label"]]
    said += [line for node in layout["nodes"] for line in node["attributes"]["label"].split("\\l")]
    assert all(set(text) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ") for text in said)
    assert not any(sign in json.dumps(layout["nodes"]) for sign in "<>&;")
    names = {node["lines"][0]["text"] for node in marks(odd)["nodes"].values()}
    assert view.short_name(ODD) in names and ODD.endswith(view.short_name(ODD)[1:])


def test_a_node_says_how_a_stream_is_and_how_far_behind() -> None:
    waits = SourceBacklog("orders", "kafka", rows=9, oldest_unread_at=NOW - timedelta(minutes=12))
    behind = replace(BRONZE, verdict=Verdict.CATCHING_UP, backlog=Backlog((waits,), NOW))
    late = replace(BRONZE, verdict=Verdict.STALLED, because="bronze_orders is 38 min behind")
    starved = replace(BRONZE, starved_by="bronze_events")
    running, *others = (
        next(node for node in marks(stream)["nodes"].values() if node["page"])
        for stream in (BRONZE, behind, late, starved)
    )
    assert running["lines"][2]["text"] == "▶ Running"
    shown = ["» Catching up · 12 min behind", "▲ Stalled", "◌ Starved"]
    assert [node["lines"][2]["text"] for node in others] == shown
    assert others[1]["title"].endswith("bronze_orders is 38 min behind")
    assert running["colour"] not in {node["colour"] for node in others[1:]}
    caught_up = replace(BRONZE, backlog=Backlog((replace(waits, rows=0, oldest_unread_at=None),), NOW))
    assert described(caught_up)[1] == described(BRONZE)[1]
    old = replace(batch(10, ago_s=10), progressed_at=NOW - timedelta(hours=1))
    assert {edge["text"] for edge in marks(BRONZE, bronze_orders=[old])["edges"].values()} == {"0 rows/min"}


def test_row_expectations_are_counted_over_batches() -> None:
    def told(*batches: Progress) -> tuple[str, bool]:
        return row_expectations(expectation_totals(batches, declared), declared)

    declared = ("priced", "known")
    assert row_expectations(expectation_totals([checked(once=1)]), ()) == ("", False), "no longer declared"
    assert told() == ("2 not counted", False)
    assert told(checked(priced=0, known=None)) == ("2 not counted", False)
    assert told(checked(priced=0, known=0)) == ("2 OK", False)
    assert told(checked(priced=3, known=0), checked(priced=0, known=0)) == ("1 of 2 broken", True)
    assert told(checked(priced=3, known=None)) == ("1 of 2 broken", True)


def test_a_target_outside_stands_behind_its_stream_and_leads_nowhere() -> None:
    graph, shown = described(BRONZE, OUTSIDE)
    assert view.sentence(graph, shown) == "2 streams, 2 running. 1 source, 1 target outside."
    topic = next(box for box in shown if box.node.name == "orders_out at broker:9092")
    assert (topic.node.kind, topic.page) == ("kafka", None)
    edges = view.build_layout(graph, shown)["edges"]
    assert all("label" in edge["attributes"] for edge in edges), "it stands to the right, not below"


# Latency ----------------------------------------------------------------


def layer(name: str, *seconds: float | None, slowest: str | None = None, unknown: tuple[str, ...] = ()) -> LayerLatency:
    """`seconds`: its latency at each of the last minutes."""
    past = tuple((NOW - timedelta(minutes=len(seconds) - 1 - place), each) for place, each in enumerate(seconds))
    last = seconds[-1] if seconds else None
    until = None if last is None else NOW - timedelta(seconds=last)
    return LayerLatency(name, slowest, until, unknown, past, NOW)


def test_the_chart_begins_with_what_is_known_and_breaks_where_it_is_not() -> None:
    figure = build_latency_figure(
        [layer("bronze", None, None, 5.0, 6.0), layer("silver", None, 9.0, None, 12.0)], FigureLook()
    )
    assert figure is not None
    bronze, silver = figure["data"]
    assert (bronze["y"], silver["y"]) == ([None, 5.0, 6.0], [9.0, None, 12.0])
    assert len(bronze["x"]) == 3 and not silver["connectgaps"]
    assert figure["layout"]["title"]["text"] == "From landing to each layer"
    hours = build_latency_figure([layer("odd", 7_200.0)], FigureLook())
    assert hours is not None and hours["data"][0]["y"] == [120.0]
    assert hours["layout"]["yaxis"]["title"]["text"] == "minutes behind"
    assert build_latency_figure([layer("bronze", None)], FigureLook()) is None
