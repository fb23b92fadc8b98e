"""The graph drawn in the browser by Graphviz, laid out anew only when its structure changes.

Rule: words, colours and links are set as text and attributes on what is drawn, never as markup. A plain click opens
the node in this session; any other click is the browser's own.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from app.ui.scripts import Script, packed

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
