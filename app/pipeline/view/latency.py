"""How long data takes from where it lands to each layer: key figures and a chart.

Rule: pure. What is not known is "–", and its help names the stream and what is missing.
"""

from collections.abc import Sequence

from app.ui.view.figures import HOVER_MOMENT, FigureJson, FigureLook, base_figure, moment_json
from app.ui.view.theme import LAYER_TEXT, categories
from app.ui.view.words import KeyFigure, figure_safe, markdown_safe
from backend.format import UNKNOWN, cut, duration_text, zone_of
from backend.streams.latency import LayerLatency

LONG_S = 600  # from here on minutes are easier to read
DASHES = ("solid", "dash", "dot")  # so that layers differ without colour too
MEANING = "Age of the oldest data that has landed and is not in every {layer} table yet; 0 s: all that landed is there"


def build_figures(layers: Sequence[LayerLatency]) -> list[KeyFigure]:
    """One a layer, in the order of the graph."""
    return [
        KeyFigure(f"Landing to {markdown_safe(layer.layer)}", _age(layer), _help(layer), note=_note(layer))
        for layer in layers
    ]


def _age(latency: LayerLatency) -> str:
    return UNKNOWN if latency.seconds is None else duration_text(latency.seconds)


def _note(latency: LayerLatency) -> str:
    return f"slowest: {markdown_safe(cut(latency.slowest, 24))}" if latency.slowest and latency.seconds else ""


def _help(latency: LayerLatency) -> str:
    if latency.unknown:
        return f"Not known: nobody can tell how far {_named(latency.unknown)} and what feeds it have read"
    return MEANING.format(layer=markdown_safe(latency.layer))


def _named(streams: Sequence[str]) -> str:
    more = f" and {len(streams) - 1} more" if len(streams) > 1 else ""
    return f"{markdown_safe(streams[0])}{more}"


def build_latency_figure(layers: Sequence[LayerLatency], look: FigureLook) -> FigureJson | None:
    """How old the oldest data is that a layer still lacks, over time, a line a layer; None where nothing is known."""
    drawn = [layer for layer in layers if any(seconds is not None for _, seconds in layer.past)]
    if not drawn:
        return None
    longest = max(seconds for each in drawn for _, seconds in each.past if seconds is not None)
    unit, unit_s = ("minutes", 60) if longest >= LONG_S else ("seconds", 1)
    figure = base_figure("From landing to each layer", f"{unit} behind", look)
    first = min(_first_known(each) for each in drawn)
    for place, each in enumerate(drawn):
        colour = LAYER_TEXT[look.mode].get(each.layer) or categories(look.mode)[place % len(DASHES)]
        when = f"%{{x|{HOVER_MOMENT}}} {each.now.astimezone(zone_of(look.zone)).tzname()}"
        figure["data"].append(
            {
                "type": "scatter",
                "x": [moment_json(moment, look.zone) for moment, _ in each.past[first:]],
                "y": [None if seconds is None else round(seconds / unit_s, 2) for _, seconds in each.past[first:]],
                "name": figure_safe(each.layer),
                "mode": "lines",
                "line": {"color": colour, "width": 2, "dash": DASHES[place % len(DASHES)]},
                "connectgaps": False,
                "hovertemplate": f"{when}<br>%{{fullData.name}}: %{{y:,.4~g}} {unit}<extra></extra>",
            }
        )
    figure["layout"]["showlegend"] = len(drawn) > 1
    return figure


def _first_known(latency: LayerLatency) -> int:
    return next(place for place, (_, seconds) in enumerate(latency.past) if seconds is not None)
