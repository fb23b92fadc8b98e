"""Latency as key figures and as a chart."""

from datetime import UTC, datetime, timedelta

from app.pipeline.view.latency import build_figures, build_latency_figure
from app.ui.view.figure_json import FigureLook
from backend.streams.latency import LayerLatency

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def layer(name: str, *seconds: float | None, slowest: str | None = None, unknown: tuple[str, ...] = ()) -> LayerLatency:
    """`seconds`: its latency at each of the last minutes."""
    past = tuple((NOW - timedelta(minutes=len(seconds) - 1 - place), each) for place, each in enumerate(seconds))
    last = seconds[-1] if seconds else None
    until = None if last is None else NOW - timedelta(seconds=last)
    return LayerLatency(name, slowest, until, unknown, past, NOW)


def test_each_layer_has_a_figure() -> None:
    bronze, silver, gold = build_figures(
        [layer("bronze", 0.0, slowest="a"), layer("silver", 90.0, slowest="b"), layer("gold", None, unknown=("c", "d"))]
    )
    assert (bronze.value, bronze.note) == ("0 s", ""), "nothing is missing, so nobody is slow"
    assert (silver.label, silver.value, silver.note) == ("Landing to silver", "1 min 30 s", "slowest: b")
    assert gold.value == "–" and "c and 1 more" in gold.help


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
