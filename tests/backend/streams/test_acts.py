"""Which streams a rule chooses, in which order, and whom it leaves out."""

from dataclasses import replace

import pytest

from backend.errors import StreamNotFoundError
from backend.stream_model.stream import ATTACHED, Action, Desired, DesiredState, StreamState
from backend.streams.acts import Selection, plan_acts
from backend.streams.verdict import StreamStatus
from tests.backend.streams.test_stream_graph import NOW, status


def wanted(found: StreamStatus, state: DesiredState) -> StreamStatus:
    return replace(found, desired=Desired(found.declaration.name, state, 1, "why", "ann", NOW))


BRONZE = wanted(status("bronze_orders", reads=("raw/landed",), tags={"team": "orders"}), DesiredState.RUNNING)
SILVER = wanted(status("silver_orders", reads=("bronze/bronze_orders",), tags={"team": "orders"}), DesiredState.RUNNING)
GOLD = wanted(status("gold_orders", reads=("silver/silver_orders",), state=StreamState.STOPPED), DesiredState.STOPPED)
APART = wanted(status("bronze_clicks"), DesiredState.RUNNING)
THEIRS = status("etl_orders", reads=("silver/silver_orders",), kind=ATTACHED, pipeline="nightly")
EVERY = (THEIRS, GOLD, SILVER, BRONZE, APART)


@pytest.mark.parametrize(
    ("action", "selection", "asked", "left_out"),
    [
        ("stop", Selection(name="gold_orders"), ["gold_orders"], []),  # who is named is asked in any case
        ("stop", Selection(below="bronze_orders"), ["bronze_orders", "silver_orders"], ["etl_orders", "gold_orders"]),
        ("restart", Selection(below="silver_orders"), ["silver_orders"], ["etl_orders", "gold_orders"]),
        ("start", Selection(below="silver_orders"), ["silver_orders", "gold_orders"], ["etl_orders"]),
        ("stop", Selection(upstream_of="gold_orders"), ["bronze_orders", "silver_orders"], []),
        ("stop", Selection(downstream_of="landed"), ["bronze_orders", "silver_orders"], ["etl_orders", "gold_orders"]),
        ("stop", Selection(layer="bronze"), ["bronze_clicks", "bronze_orders"], []),
        ("stop", Selection(tag=("team", "orders")), ["bronze_orders", "silver_orders"], []),
        (
            "stop",
            Selection(everything=True),
            ["bronze_clicks", "bronze_orders", "silver_orders"],
            ["etl_orders", "gold_orders"],
        ),
        (
            "start",
            Selection(everything=True),
            ["gold_orders"],
            ["bronze_clicks", "bronze_orders", "etl_orders", "silver_orders"],
        ),
    ],
)
def test_who_is_asked(action: Action, selection: Selection, asked: list[str], left_out: list[str]) -> None:
    found = plan_acts(action, selection, EVERY, now=NOW)
    names = [each.declaration.name for each in found.asked]
    assert sorted(names) == sorted(asked)
    order = [name for name in ("bronze_orders", "silver_orders", "gold_orders") if name in names]
    assert [name for name in names if name in order] == order, "sources first"
    assert sorted(each.name for each in found.left_out) == left_out
    assert all(each.why for each in found.left_out)


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        (Selection(name="nope"), "streams: bronze_clicks"),
        (Selection(layer="platinum"), "layers: bronze, etl, gold, silver"),
        (Selection(tag=("team", "x")), "tags: team=orders"),
        (Selection(downstream_of="gold_orders"), "graph"),
    ],
)
def test_where_nothing_is_chosen_the_hint_names_what_there_is(selection: Selection, words: str) -> None:
    with pytest.raises(StreamNotFoundError) as refused:
        plan_acts("stop", selection, EVERY, now=NOW)
    assert words in refused.value.hint
