"""The graph of sources, streams and tables as Graphviz lays it out, as what stands on it, and as a list; and latency.

Rule: pure. The layout knows the structure alone, so it stays still while states and rates change. Names come from
users: Graphviz gets only their width, and the browser sets every word as text. What is not known is "–", and its help
names the stream and what is missing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.columns import Column
from app.ui.states import observed_of, own_words, row_expectations, verdict_of
from app.ui.view.figures import HOVER_MOMENT, FigureJson, FigureLook, base_figure, moment_json
from app.ui.view.theme import LAYER_TEXT, SURFACES, Mode, categories, state_style, state_text, state_word
from app.ui.view.words import KeyFigure, figure_safe, markdown_safe
from backend.format import UNKNOWN, count_text, cut, duration_text, things, zone_of
from backend.stream_model.backlog import behind_text
from backend.stream_model.progress import expectation_totals
from backend.stream_model.stream import Progress, StreamState
from backend.streams.graph import Edge, Graph, Node
from backend.streams.latency import LayerLatency
from backend.streams.verdict import StreamStatus, Verdict

MOST_LETTERS = 34
RULES = "Row expectations, 5 min"
# What runs but does not keep up is told by its verdict.
_TELLING = (Verdict.CATCHING_UP, Verdict.SLOW, Verdict.STALLED)
_SHAPES = {
    "streaming table": {"shape": "box", "style": "rounded"},
    "stream": {"shape": "box", "style": "rounded"},
    "materialized view": {"shape": "box", "peripheries": "2"},
    "table": {"shape": "cylinder", "margin": "0.14,0.11"},
    "files": {"shape": "folder"},
}
_OUTSIDE = {"shape": "cds", "margin": "0.18,0.13"}
# As wide as the widest words that may come to stand there.
_STATE_ROOM, _RATE_ROOM = "W Catching up W 99 h 59 min", "99,999 rows/min"
_RULES_ROOM = "W Row expectations, 5 min: 99 of 99 broken"
_FONT = {"fontname": "Arial", "fontsize": "12"}


@dataclass(frozen=True, slots=True)
class Box:
    """A node as it is shown. `state`: the word of its stream's state, "" without a stream; `state_text`: with its
    glyph, and how far behind it is. `page`: where it leads."""

    node: Node
    state: str = ""
    state_text: str = UNKNOWN
    because: str = ""
    rules: str = ""
    is_broken: bool = False

    @property
    def page(self) -> str | None:
        return "stream" if self.state else "table" if self.node.table else None

    @property
    def chosen(self) -> str | None:
        """The stream or table that its page opens."""
        return self.node.name if self.state else self.node.table


def boxes(graph: Graph, statuses: Sequence[StreamStatus], recent: Mapping[str, Sequence[Progress]]) -> list[Box]:
    """Every node with what is known of its stream. `recent`: the last batches of each stream."""
    by_name = {status.declaration.name: status for status in statuses}
    nodes = sorted(graph.nodes, key=lambda node: len(graph.upstream(node.name)))  # what feeds a node comes before it
    return [_box(node, by_name.get(node.name), recent.get(node.name, ())) for node in nodes]


def _box(node: Node, status: StreamStatus | None, batches: Sequence[Progress]) -> Box:
    if status is None or node.state is None:
        return Box(node)
    runs = status.state is StreamState.RUNNING
    is_late = runs and (status.starved_by or status.verdict in _TELLING)
    word = verdict_of(status) if is_late else observed_of(status)
    text = state_text(word)
    if status.backlog and status.backlog.is_caught_up is False and status.backlog.behind_s:
        text = f"{text} · {behind_text(status.backlog)} behind"
    declared = status.declaration.expectations
    rules, is_broken = row_expectations(expectation_totals(batches, declared), declared)
    return Box(node, word, text, status.because, f"▲ {rules}" if is_broken else rules, is_broken)


# the picture -------------------------------------------------------------------------------------------------------


def build_layout(graph: Graph, shown: Sequence[Box]) -> dict[str, Any]:
    """What Graphviz gets: shapes, and words of the width that will stand there. It holds no name of a user."""
    places = {box.node.name: f"n{number}" for number, box in enumerate(shown)}
    layers = list(dict.fromkeys(box.node.layer for box in shown if box.node.layer))
    beside = {box.node.name for box in shown if box.page == "table"}
    return {
        "directed": True,
        "graphAttributes": {
            "rankdir": "LR",
            "nodesep": "0.22",
            "ranksep": "0.45",
            "pad": "0.15",
            "bgcolor": "transparent",
            **_FONT,
        },
        "nodeAttributes": {"margin": "0.14,0.07", **_FONT},
        "edgeAttributes": {"arrowsize": "0.7", "fontname": "Arial", "fontsize": "10.5"},
        "nodes": [{"name": places[box.node.name], "attributes": _attributes(box, places)} for box in shown],
        "edges": [
            {
                "tail": places[edge.source],
                "head": places[edge.target],
                "attributes": {
                    "id": f"weir-e{number}",
                    **({"minlen": "0"} if edge.target in beside else {"label": _RATE_ROOM}),
                },
            }
            for number, edge in enumerate(graph.edges)
        ],
        "subgraphs": [
            {
                "name": f"cluster_{number}",
                "graphAttributes": {"id": f"weir-c{number}", "label": _room(layer), "labeljust": "l", "margin": "12"},
                "nodes": [{"name": places[box.node.name]} for box in shown if box.node.layer == layer],
            }
            for number, layer in enumerate(layers)
        ],
    }


def _attributes(box: Box, places: Mapping[str, str]) -> dict[str, str]:
    lines = [_room(short_name(box.node.name)), _room(box.node.kind)]
    lines += [_STATE_ROOM] * bool(box.state) + [_RULES_ROOM] * bool(box.rules)
    label = "".join(f"{line}\\l" for line in lines)
    return {"id": f"weir-{places[box.node.name]}", "label": label, **_SHAPES.get(box.node.kind, _OUTSIDE)}


def _room(text: str) -> str:
    """Letters as wide as a text, none of which Graphviz or a browser could take for markup."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "n" for letter in text) or "n"


def short_name(name: str) -> str:
    """A name that fits its node; of a long one, its end tells it from others."""
    return name if len(name) <= MOST_LETTERS else f"…{name[1 - MOST_LETTERS :]}"


def build_marks(graph: Graph, shown: Sequence[Box], *, mode: Mode) -> dict[str, Any]:
    """What stands on the laid out picture: words, colours and links, by the ids of `build_layout`."""
    surface = SURFACES[mode]
    layers = dict.fromkeys(box.node.layer for box in shown if box.node.layer)
    return {
        "surface": surface._asdict(),
        "nodes": {f"weir-n{number}": _node_mark(box, mode) for number, box in enumerate(shown)},
        "edges": {
            f"weir-e{number}": {
                "text": rate_per_min(edge.rows_per_min),
                "flow": "unknown" if edge.rows_per_min is None else "flowing" if edge.rows_per_min else "still",
                "title": f"{edge.source} → {edge.target}: {rate_per_min(edge.rows_per_min)}",
            }
            for number, edge in enumerate(graph.edges)
        },
        "layers": {
            f"weir-c{number}": {"text": cut(layer), "colour": LAYER_TEXT[mode].get(layer, surface.muted)}
            for number, layer in enumerate(layers)
        },
    }


def _node_mark(box: Box, mode: Mode) -> dict[str, Any]:
    surface = SURFACES[mode]
    colour = state_style(box.state, mode).colour if box.state else surface.muted
    warning = state_style("WARNING", mode).colour
    lines = [(short_name(box.node.name), surface.text), (box.node.kind, surface.muted)]
    lines += [(box.state_text, colour)] * bool(box.state)
    rules = f"{RULES}: {box.rules}" if box.rules else ""
    lines += [(rules, warning if box.is_broken else surface.muted)] * bool(rules)
    parts = [box.node.name, box.node.kind, box.state.lower(), rules, box.because]
    return {
        "lines": [{"text": text, "colour": tint} for text, tint in lines],
        "colour": colour,
        "title": ", ".join(word for word in parts if word),
        "page": box.page,
        "chosen": box.chosen,
    }


def rate_per_min(rows: float | None) -> str:
    """ "1,204 rows/min"; "–" where nobody counts."""
    return UNKNOWN if rows is None else f"{count_text(rows)} {'row' if rows == 1 else 'rows'}/min"


# in words ----------------------------------------------------------------------------------------------------------


def box_columns(graph: Graph) -> list[Column[Box]]:
    """Of a node what stands on the picture, and what it reads."""

    def edges(box: Box) -> list[Edge]:
        return [edge for edge in graph.edges if edge.target == box.node.name]

    def rate(box: Box) -> float | None:
        rates = [edge.rows_per_min for edge in edges(box) if edge.rows_per_min is not None]
        return sum(rates) if rates else None

    return [
        Column("Name", lambda box: box.node.name),
        Column("Kind", lambda box: box.node.kind),
        Column("Layer", lambda box: box.node.layer, "layer", width=68),
        Column("State", lambda box: box.state_text, width=112),
        Column("Why", lambda box: own_words(box.because, box.node.name) or None, width=242),
        Column("Reads", lambda box: ", ".join(edge.source for edge in edges(box)) or None, width=133),
        Column("Rows/min", rate, "count", "Rows read over the last 5 minutes; “–”: nobody counts them"),
        Column(RULES, lambda box: box.rules or None, width=170, help="Broken by a row of the last 5 minutes"),
    ]  # fmt: skip


def sentence(graph: Graph, shown: Sequence[Box]) -> str:
    """ "6 streams, 3 running, 1 failed. 2 sources, 1 other table, 1 target outside.": what the picture shows."""
    streams = [box for box in shown if box.state]
    tables = sum(box.page == "table" for box in shown)
    outside = {box.node.name for box in shown if box.page is None}
    read, written = ({getattr(edge, end) for edge in graph.edges} & outside for end in ("source", "target"))
    states = Counter(box.node.state for box in streams)
    words = [things(len(streams), "stream")]
    words += [f"{states[state]:,} {state_word(state).lower()}" for state in StreamState if states[state]]
    rest = [things(len(read), "source")] + [things(tables, "other table")] * bool(tables)
    rest += [things(len(written), "target outside", "targets outside")] * bool(written)
    return f"{', '.join(words)}. {', '.join(rest)}."


# how long data takes from where it lands to each layer ----------------------------------------------------------------


LONG_S = 600  # from here on minutes are easier to read
DASHES = ("solid", "dash", "dot")  # so that layers differ without colour too
MEANING = "Age of the oldest data that has landed and is not in every {layer} table yet; 0 s: all that landed is there"


def build_latency_figures(layers: Sequence[LayerLatency]) -> list[KeyFigure]:
    """One a layer, in the order of the graph."""
    figures = []
    for layer in layers:
        age = UNKNOWN if layer.seconds is None else duration_text(layer.seconds)
        note = f"slowest: {markdown_safe(cut(layer.slowest, 24))}" if layer.slowest and layer.seconds else ""
        meaning = MEANING.format(layer=markdown_safe(layer.layer))
        if layer.unknown:
            more = f" and {len(layer.unknown) - 1} more" if len(layer.unknown) > 1 else ""
            who = f"{markdown_safe(layer.unknown[0])}{more}"
            meaning = f"Not known: nobody can tell how far {who} and what feeds it have read"
        figures.append(KeyFigure(f"Landing to {markdown_safe(layer.layer)}", age, meaning, note=note))
    return figures


def build_latency_figure(layers: Sequence[LayerLatency], look: FigureLook) -> FigureJson | None:
    """How old the oldest data is that a layer still lacks, over time, a line a layer; None where nothing is known."""
    drawn = [layer for layer in layers if any(seconds is not None for _, seconds in layer.past)]
    if not drawn:
        return None
    longest = max(seconds for each in drawn for _, seconds in each.past if seconds is not None)
    unit, unit_s = ("minutes", 60) if longest >= LONG_S else ("seconds", 1)
    figure = base_figure("From landing to each layer", f"{unit} behind", look)
    first = min(next(at for at, (_, seconds) in enumerate(each.past) if seconds is not None) for each in drawn)
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
