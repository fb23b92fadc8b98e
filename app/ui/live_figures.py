"""Charts of live regions: drawn anew in the same node, so they are never blank and keep zoom and hover.

Rule: `st.plotly_chart` takes its identity from the figure and is torn down at each change; this component has its key.
Its script comes from our own server. Where another one serves the pages, Streamlit's chart stands in.
"""

import gzip
import json
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Any

import plotly
import plotly.graph_objects as go
import streamlit as st

from app.ui.figures import CHART_CONFIG, chart

_LIBRARY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
# Called at each refresh. What is drawn already is left alone. A finger scrolls the page, so only a mouse zooms.
_DRAW = """
const unpacked = (data) => new Response(new Blob([data]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
const made = (parent) => {
  const node = document.createElement("div");
  node.className = "weir-figure";
  node.setAttribute("role", "img");
  parent.append(node);
  new ResizeObserver(() => node.layout && Plotly.Plots.resize(node)).observe(node);
  return node;
};
export default async ({ data, parentElement }) => {
  const node = parentElement.querySelector(".weir-figure") ?? made(parentElement);
  node.newest = data;
  const text = await unpacked(data);
  if (node.newest === data && node.drawn !== text) {
    node.drawn = text;
    const { alt, config, figure } = JSON.parse(text);
    if (matchMedia("(pointer: coarse)").matches) figure.layout.dragmode = false;
    node.style.height = `${figure.layout.height}px`;
    node.setAttribute("aria-label", alt);
    await Plotly.react(node, figure.data, figure.layout, config);
  }
  return () => node.isConnected || Plotly.purge(node);
};
"""
_VERSION = f"{plotly.__version__}-{sha256(_DRAW.encode()).hexdigest()[:8]}"
PATH = f"/live/figure-{_VERSION}.js"
# On one line, Streamlit would take it for the name of a file.
_IMPORT = f"""
const drawer = import(new URL("{PATH[1:]}", document.baseURI));
export default async (component) => (await drawer).default(component);
"""
_component = st.components.v2.component("weir.live_figure", js=_IMPORT, isolate_styles=False)
_served = Event()


def serve() -> str:
    """The path at which this process serves `script()`; from now on live charts use it."""
    _served.set()
    return PATH


@cache
def script() -> bytes:
    """The library and our few lines as one JavaScript module, gzipped once: 1.5 MB instead of 4.8."""
    return gzip.compress(_LIBRARY.read_bytes() + _DRAW.encode(), 6, mtime=0)


def live_chart(figure: Mapping[str, Any], *, key: str, alt: str) -> None:
    """A chart in a live region, as Plotly's JSON. It names its height; its `uirevision` keeps what a viewer zoomed."""
    if not _served.is_set():
        chart(go.Figure(figure), key=key, alt=alt)
        return
    message = json.dumps({"alt": alt, "config": CHART_CONFIG, "figure": figure}, separators=(",", ":"))
    _component(key=key, data=gzip.compress(message.encode(), 1, mtime=0), height=figure["layout"]["height"])
