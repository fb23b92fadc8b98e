"""The graph of what feeds what: its picture, and the same as a list.

Rule: everything comes from the store, so the graph is still there after the host is gone. Graphviz lays it out in the
browser, anew only when its structure changes. Words, colours and links are set as text and attributes on what is drawn,
never as markup. A plain click opens the node in this session; any other click is the browser's own.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from app import cache, navigation, services, state, viewer
from app.pipeline import view
from app.services import once
from app.ui import lists
from app.ui.figures import key_figures, live_chart, prepared
from app.ui.live import no_streams
from app.ui.scripts import Script, packed
from app.ui.view.figures import FigureLook
from backend.stream_model.stream import Progress
from backend.streams.graph import build_graph
from backend.streams.latency import LayerLatency, Trails, layer_latencies
from backend.streams.status import RecentBatches
from backend.streams.verdict import StreamStatus

ALL = "All"
LATENCY = "Age of the oldest data that has landed and is not in a layer's tables yet, over the last 30 minutes"


def pipeline_graph() -> None:
    """The whole live region."""
    reading = cache.streams_reading()
    if reading.problem or not reading.streams:
        no_streams(reading)
    else:
        chosen = _chosen(reading.streams)
        layers = latencies(tuple(status.declaration.name for status in chosen), cache.trails())
        if layers:
            key_figures(view.build_latency_figures(layers), key="latency")
        _graph(chosen)
        look = FigureLook(viewer.mode(), viewer.timezone())
        if figure := view.build_latency_figure(layers, look):
            live_chart(prepared(figure, key="latency_chart", alt=LATENCY))


def _chosen(statuses: Sequence[StreamStatus]) -> list[StreamStatus]:
    """The streams of the pipeline that the viewer chose, where there are several."""
    names = sorted({status.declaration.pipeline for status in statuses} - {""})
    if len(names) < 2:
        return list(statuses)
    chosen = st.segmented_control(
        "Pipeline", [ALL, *names], default=ALL, required=True, key=state.PIPELINE, bind="query-params"
    )
    return [status for status in statuses if chosen in (None, ALL, status.declaration.pipeline)]


def _graph(statuses: Sequence[StreamStatus]) -> None:
    recent = recent_batches()
    graph = build_graph(statuses, recent, now=services.now())
    shown = view.boxes(graph, statuses, recent)
    sentence = view.sentence(graph, shown)
    st.markdown(sentence)
    st.caption("Click a node to open its stream or table. Rows per minute are of the last 5 minutes; “–” is unknown.")
    opened = graph_picture(
        view.build_layout(graph, shown),
        view.build_marks(graph, shown, mode=viewer.mode()),
        alt=f"Graph: {sentence} The list below says the same.",
        key="pipeline_picture",
    )
    by_name = {box.node.name: box for box in shown}
    alt = "Sources, streams and tables, and what each reads"
    row = lists.choose(
        view.box_columns(graph), shown, key="pipeline_list", names=list(by_name), row_px=lists.TWO_LINES_PX, alt=alt
    )
    if opened is None and (box := by_name.get(row or "")) and box.page and box.chosen:
        opened = box.page, box.chosen  # the row leads where its node does
    if opened is not None:
        page, name = opened
        navigation.go(page, {state.STREAM if page == "stream" else state.TABLE: name})


@st.cache_resource(show_spinner=False, ttl=cache.RECENT_TTL_S, max_entries=1)
def recent_batches() -> dict[str, list[Progress]]:
    """Each stream's batches of the graph's window."""
    declared = [status.declaration for status in cache.streams_reading().streams]
    return _recent().read(services.store(), declared, now=services.now())


_recent = once(RecentBatches)


@st.cache_resource(
    show_spinner=False, max_entries=cache.WINDOWS_KEPT, hash_funcs={Trails: lambda trails: str(trails.read_at)}
)
def latencies(streams: tuple[str, ...], trails: Trails) -> list[LayerLatency]:
    """How long data takes from where it lands to the layers of these streams."""
    statuses = [status for status in cache.streams_reading().streams if status.declaration.name in streams]
    return layer_latencies(statuses, trails)


# the picture, drawn in the browser ------------------------------------------------------------------------------------


_LIBRARY = Path(__file__).parents[1] / "ui" / "vendor" / "viz-3.31.0.js"
_DRAW = """
const drawing = instance();
const svgPart = (name) => document.createElementNS("http://www.w3.org/2000/svg", name);
const made = (parent) => {
  const node = document.createElement("div");
  node.className = "weir-graph";
  const part = document.createElement("div");
  part.className = "weir-graph-scroll";
  part.tabIndex = 0;
  part.setAttribute("role", "group");
  const button = document.createElement("button");
  button.hidden = true;  // until it is known whether the graph fits, and what the button says
  button.onclick = () => { node.classList.toggle("whole"); sized(node); };
  node.append(button, part);
  parent.append(node);
  new ResizeObserver(() => sized(node)).observe(node);
  return node;
};
// A graph that is larger than its place is scrolled, and seen whole at the press of a button.
const sized = (node) => {
  const part = node.lastChild, svg = part.firstChild, button = node.firstChild;
  if (!svg) return;
  const { width, height } = svg.viewBox.baseVal;
  const fits = part.clientWidth / width;
  const readable = fits < 0.85 ? 1 : Math.min(1.15, fits);
  const whole = Math.min(readable, fits, (MOST_PX - 4) / height);
  const scale = node.classList.contains("whole") ? whole : readable;
  svg.setAttribute("width", width * scale);
  svg.setAttribute("height", height * scale);
  button.hidden = whole >= readable;
  button.textContent = node.classList.contains("whole") ? "Readable size" : "Whole graph";
};
const drawn = (node, viz, layout) => {
  const svg = viz.renderSVGElement(layout);
  svg.querySelectorAll("title").forEach((title) => title.remove());
  svg.querySelectorAll("g.node").forEach((group) => {
    const link = svgPart("a");
    link.append(svgPart("title"), ...group.children);
    link.onclick = (event) => {
      if (event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || !link.opens) return;
      event.preventDefault();
      node.open(link.opens);
    };
    group.replaceChildren(link);
  });
  svg.querySelectorAll("g.edge").forEach((group) => group.prepend(svgPart("title")));
  node.lastChild.replaceChildren(svg);
  sized(node);
};
const put = (element, name, value) => { if (element.getAttribute(name) !== value) element.setAttribute(name, value); };
const say = (element, text) => { if (element && element.textContent !== text) element.textContent = text; };
const marked = (node, { surface, nodes, edges, layers }) => {
  const part = (id) => node.querySelector(`#${id}`);
  for (const [name, colour] of Object.entries(surface)) node.style.setProperty(`--${name}`, colour);
  for (const [id, { lines, colour, title, page, chosen }] of Object.entries(nodes)) {
    const link = part(id).firstElementChild, texts = link.querySelectorAll("text");
    link.style.setProperty("--state", colour);
    lines.forEach((line, place) => { say(texts[place], line.text); texts[place].style.fill = line.colour; });
    say(link.firstChild, title);
    link.opens = page && [page, chosen];
    if (page) {
      put(link, "href", `${page}?${new URLSearchParams({ [page]: chosen })}`);
      put(link, "aria-label", title);
    }
  }
  for (const [id, { text, flow, title }] of Object.entries(edges)) {
    put(part(id), "class", `edge ${flow}`);
    say(part(id).querySelector("text"), text);
    say(part(id).firstChild, title);
  }
  for (const [id, { text, colour }] of Object.entries(layers)) {
    part(id).style.setProperty("--layer", colour);
    say(part(id).querySelector("text"), text);
  }
};
export default async ({ data, parentElement, setTriggerValue }) => {
  const node = parentElement.querySelector(".weir-graph") ?? made(parentElement);
  node.open = (opens) => setTriggerValue("opened", opens);
  node.newest = data;
  const [text, viz] = await Promise.all([unpacked(data), drawing]);
  if (node.newest !== data || node.shown === text) return;
  node.shown = text;
  const { alt, layout, marks } = JSON.parse(text);
  const structure = JSON.stringify(layout);
  if (node.structure !== structure) drawn(node, viz, layout);
  node.structure = structure;
  node.lastChild.setAttribute("aria-label", alt);
  marked(node, marks);
};
"""
MOST_PX = 620
_STYLE = """
.weir-graph { color: var(--text); }
.weir-graph-scroll { overflow: auto; max-height: MOST_PXpx; border: 1px solid var(--grid); border-radius: 0.5rem; }
.weir-graph-scroll:focus-visible { outline: 2px solid var(--text); }
.weir-graph button { display: block; margin: 0 0 0.4rem auto; padding: 0.1rem 0.6rem; cursor: pointer;
  font: inherit; font-size: 0.85rem; color: var(--text); background: var(--panel); border: 1px solid var(--muted);
  border-radius: 0.5rem; }
.weir-graph button[hidden] { display: none; }
.weir-graph svg { display: block; margin: auto; }
.weir-graph text { font-family: inherit; }
.weir-graph .node :is(path, polygon, polyline) { stroke: var(--state); stroke-width: 1.5; fill: var(--background); }
.weir-graph .node polygon + polygon { fill: none; }
.weir-graph .node text:first-of-type { font-weight: 600; }
.weir-graph .node a { text-decoration: none; }
.weir-graph .node a[href]:is(:hover, :focus-visible) :is(path, polygon, polyline) { stroke-width: 3; }
.weir-graph .node a:focus-visible { outline: 2px solid var(--text); outline-offset: 2px; }
.weir-graph .edge path { stroke: var(--muted); }
.weir-graph .edge polygon { stroke: var(--muted); fill: var(--muted); }
.weir-graph .edge text { fill: var(--muted); }
.weir-graph .edge.flowing path { stroke-width: 2; }
.weir-graph .edge.flowing text { fill: var(--text); }
.weir-graph .edge.unknown path { stroke-dasharray: 4 3; }
.weir-graph .cluster polygon { stroke: var(--grid); fill: none; stroke-width: 1.5; }
.weir-graph .cluster text { fill: var(--layer); font-weight: 600; }
"""
SCRIPT = Script("graph", "3.31.0", _LIBRARY, _DRAW.replace("MOST_PX", str(MOST_PX)))
_component = st.components.v2.component(
    "weir.graph", js=SCRIPT.importer, css=_STYLE.replace("MOST_PX", str(MOST_PX)), isolate_styles=False
)


def graph_picture(layout: Mapping[str, Any], marks: Mapping[str, Any], *, alt: str, key: str) -> tuple[str, str] | None:
    """The picture. Returns the page and the name of the node that was opened in this run."""
    if not SCRIPT.is_served:
        st.caption("The picture is drawn where `weir ui` serves the pages; the list says the same.")
        return None
    data = packed({"alt": alt, "layout": layout, "marks": marks})
    # The component wants a callback for its trigger; to run the page is enough.
    opened = _component(key=key, data=data, on_opened_change=lambda: None).opened
    return (str(opened[0]), str(opened[1])) if opened else None
