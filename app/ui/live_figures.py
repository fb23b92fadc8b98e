"""Charts of live regions: drawn anew in the same node, so they are never blank and keep zoom and hover.

Rule: `st.plotly_chart` takes its identity from the figure and is torn down at each change; this component has its key.
Where another server than ours serves the pages, Streamlit's chart stands in.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import plotly
import plotly.graph_objects as go
import streamlit as st

from app.ui.figures import CHART_CONFIG, chart
from app.ui.scripts import Script, packed

_LIBRARY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
# Called at each refresh. What is drawn already is left alone. A finger scrolls the page, so only a mouse zooms.
_DRAW = """
const made = (parent) => {
  const node = document.createElement("div");
  node.className = "weir-figure";
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
    node.setAttribute("role", "img");
    node.setAttribute("aria-label", alt);
    await Plotly.react(node, figure.data, figure.layout, config);
  }
  return () => node.isConnected || Plotly.purge(node);
};
"""
SCRIPT = Script("figure", plotly.__version__, _LIBRARY, _DRAW)
_component = st.components.v2.component("weir.live_figure", js=SCRIPT.importer, isolate_styles=False)


class LiveChart(NamedTuple):
    """A chart of a live region, ready to be sent to every viewer."""

    figure: Mapping[str, Any]
    key: str
    alt: str
    data: bytes | None  # what the component is sent


def prepared(figure: Mapping[str, Any], *, key: str, alt: str) -> LiveChart:
    """A figure as Plotly's JSON. It names its height; its `uirevision` keeps what a viewer zoomed."""
    message = {"alt": alt, "config": CHART_CONFIG, "figure": figure}
    return LiveChart(figure, key, alt, packed(message) if SCRIPT.is_served else None)


def live_chart(ready: LiveChart) -> None:
    """Draws a chart in a live region."""
    if ready.data is None:
        chart(go.Figure(ready.figure), key=ready.key, alt=ready.alt)
        return
    _component(key=ready.key, data=ready.data, height=ready.figure["layout"]["height"])
