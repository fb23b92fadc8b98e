"""The graph as layout, as what stands on it, and as a list: from statuses and batches alone."""

import json
from dataclasses import replace
from datetime import timedelta

from app.pipeline.view import graph as view
from app.ui.states import GLYPHS, VERDICT_GLYPHS, row_expectations
from backend.stream_model.backlog import Backlog, SourceBacklog
from backend.stream_model.batches import expectation_totals
from backend.stream_model.stream import ExpectationCount, Progress, StreamInput, StreamState
from backend.streams.graph import build_graph
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


def test_a_node_leads_to_its_stream_or_table_and_a_source_nowhere() -> None:
    leads = {
        node["lines"][0]["text"]: (node["page"], node["chosen"]) for node in marks(BRONZE, SILVER)["nodes"].values()
    }
    assert leads == {
        "files in /data/orders": (None, None),
        "bronze_orders": ("stream", "bronze_orders"),
        "silver_orders": ("stream", "silver_orders"),
        "silver_orders_quarantine": ("table", "silver/silver_orders_quarantine"),
    }


def test_a_stream_that_runs_but_does_not_keep_up_says_so() -> None:
    late = replace(BRONZE, verdict=Verdict.STALLED, because="bronze_orders is 38 min behind")
    node = next(node for node in marks(late)["nodes"].values() if node["page"])
    assert node["lines"][2]["text"] == "▲ Stalled"
    assert node["title"].endswith("bronze_orders is 38 min behind")
    ok = next(node for node in marks(BRONZE)["nodes"].values() if node["page"])
    assert ok["lines"][2]["text"] == "▶ Running" and ok["colour"] != node["colour"]


def test_a_starved_stream_does_not_look_as_if_it_ran_and_a_node_says_how_far_behind_it_is() -> None:
    waits = SourceBacklog("orders", "kafka", rows=9, oldest_unread_at=NOW - timedelta(minutes=12))
    behind = replace(BRONZE, verdict=Verdict.CATCHING_UP, backlog=Backlog((waits,), NOW))
    starved = replace(BRONZE, starved_by="bronze_events")
    shown = [next(node for node in marks(each)["nodes"].values() if node["page"]) for each in (BRONZE, behind, starved)]
    assert [node["lines"][2]["text"] for node in shown] == ["▶ Running", "» Catching up · 12 min behind", "◌ Starved"]
    assert shown[2]["colour"] not in (shown[0]["colour"], shown[1]["colour"])
    caught_up = replace(BRONZE, backlog=Backlog((replace(waits, rows=0, oldest_unread_at=None),), NOW))
    assert described(caught_up)[1] == described(BRONZE)[1]


def test_row_expectations_are_counted_over_batches() -> None:
    def told(*batches: Progress) -> tuple[str, bool]:
        return row_expectations(expectation_totals(batches, declared), declared)

    declared = ("priced", "known")
    assert row_expectations(expectation_totals([checked(once=1)]), ()) == ("", False), "no longer declared"
    assert told() == ("2 not counted", False)
    assert told(checked(priced=0, known=None)) == ("2 not counted", False)
    assert told(checked(priced=0, known=0)) == ("2 met", False)
    assert told(checked(priced=3, known=0), checked(priced=0, known=0)) == ("1 of 2 broken", True)
    assert told(checked(priced=3, known=None)) == ("1 of 2 broken", True)


def test_every_state_and_kind_has_its_mark() -> None:
    assert set(StreamState) == GLYPHS.keys() and set(Verdict) == VERDICT_GLYPHS.keys()
    graph, shown = described(BRONZE, SILVER, GOLD)
    shapes = {
        node["attributes"]["shape"] + node["attributes"].get("peripheries", "")
        for node in view.build_layout(graph, shown)["nodes"]
    }
    assert shapes == {"folder", "box", "box2", "cylinder"}


def test_the_list_says_the_same() -> None:
    graph, shown = described(BRONZE, SILVER, GOLD, bronze_orders=[batch(5_000, ago_s=10)])
    rows = view.build_frame(graph, shown).set_index("Name")
    assert rows.loc["bronze_orders", ["Kind", "Layer", "State", "Reads", "Rows/min"]].tolist() == [
        "streaming table", "bronze", "▶ Running", "files in /data/orders", 1_000.0,
    ]  # fmt: skip
    assert rows["Rows/min"].isna()["gold_orders"] and rows.loc["gold_orders", "Reads"] == "silver_orders"
    assert view.sentence(graph, shown) == "3 streams, 3 running. 1 source, 1 other table."


def test_a_target_outside_stands_behind_its_stream_and_leads_nowhere() -> None:
    graph, shown = described(BRONZE, OUTSIDE)
    assert view.sentence(graph, shown) == "2 streams, 2 running. 1 source, 1 target outside."
    topic = next(box for box in shown if box.node.name == "orders_out at broker:9092")
    assert (topic.node.kind, topic.page) == ("kafka", None)
    edges = view.build_layout(graph, shown)["edges"]
    assert all("label" in edge["attributes"] for edge in edges), "it stands to the right, not below"


def test_pipelines_are_named_once() -> None:
    both = [
        replace(each, declaration=replace(each.declaration, pipeline=name)) for each in (BRONZE, GOLD) for name in "ba"
    ]
    assert view.pipelines([*both, SILVER]) == ["a", "b"]


def test_a_window_without_batches_is_old_news() -> None:
    old = replace(batch(10, ago_s=10), progressed_at=NOW - timedelta(hours=1))
    assert {edge["text"] for edge in marks(BRONZE, bronze_orders=[old])["edges"].values()} == {"0 rows/min"}
