"""What pages draw: key figures side by side, badges, and charts in Weir's own template; live ones in one node.

Rule: a figure without data shows a dash, and its help says why; a chart says in words what it shows. A colour always
comes with a word; words of users are escaped. A live chart is drawn anew in the same node, so it is never blank and
keeps zoom and hover: `st.plotly_chart` takes its identity from the figure and is torn down at each change. Where
another server than ours serves the pages it stands in.
"""

from collections.abc import Callable, Mapping, Sequence
from html import escape, unescape
from pathlib import Path
from typing import Any, NamedTuple

import plotly
import plotly.graph_objects as go
import streamlit as st

from app.ui.scripts import Script, packed
from app.ui.view.theme import LAYER_COLOURS, state_style, state_word
from app.ui.view.words import KeyFigure, markdown_safe

NARROWEST_PX = 160  # two beside each other on a telephone, and none cut in a narrow window
# Streamlit's grid leaves a hole in a row that is not full.
_FULL_ROWS = """<style>.st-key-{key} {{ display: flex; flex-wrap: wrap; }}
.st-key-{key} > .stGridCell {{
  flex: 1 1 {narrowest}px; min-width: 0; max-width: 520px; align-self: stretch; height: auto;
}}
.st-key-{key} .stElementContainer {{ flex: 1; }}</style>"""
_SENSITIVE = ("pii", "confidential", "restricted", "secret", "sensitive")
CHART_CONFIG = {"displayModeBar": False, "responsive": True}


def key_figures(figures: Sequence[KeyFigure], *, key: str, columns: int | None = None) -> None:
    """Bordered figures in a row; in a narrow window they fill several. `columns`: so many in each row, all equal."""
    if columns is None:
        st.html(_FULL_ROWS.format(key=key, narrowest=NARROWEST_PX))
    with st.grid(columns or len(figures), min_column_width=NARROWEST_PX, key=key):
        for figure in figures:
            st.metric(
                figure.label,
                figure.value,
                delta=figure.note or None,
                delta_color="off",
                delta_arrow="off",
                help=figure.help,
                border=True,
                height="stretch",
            )


def key_line(figures: Sequence[KeyFigure]) -> None:
    """The same in one line of words, and what they mean on hover."""
    words = (
        f"{each.label} **{markdown_safe(each.value)}**{f' ({each.note})' if each.note else ''}" for each in figures
    )
    meaning = "  \n".join(f"{each.label}: {markdown_safe(each.help)}" for each in figures if each.help)
    st.markdown(" · ".join(words), help=meaning)


def chart(figure: go.Figure, *, key: str, alt: str | None = None, on_select: Callable[[], None] | None = None) -> None:
    """A chart; `alt` says what it shows where its title does not. `on_select` is called for a click on a point."""
    st.plotly_chart(
        figure,
        theme=None,
        key=key,
        on_select=on_select or "ignore",
        selection_mode="points",
        config=CHART_CONFIG,
        alt=alt or unescape(figure.layout.title.text or ""),
    )


# badges ------------------------------------------------------------------------------------------------------------


def layer_badge(layer: str | None) -> None:
    """The medallion layer in its own colour; nothing when a table has none."""
    if layer:
        colour = LAYER_COLOURS.get(layer, "#8592A0")
        st.html(
            f'<span style="background:{colour};color:#0E1418;border-radius:0.5rem;padding:0.1rem 0.55rem;'
            f'font-size:0.85rem;font-weight:600">{escape(layer)}</span>',
            width="content",
        )


def owner_badges(classification: str | None, team: str | None) -> None:
    """The table's classification tag, of which sensitive ones stand out, and who owns it."""
    if classification:
        sensitive = any(word in classification.lower() for word in _SENSITIVE)
        icon = ":material/lock:" if sensitive else ":material/label:"
        colour = "orange" if sensitive else "gray"
        _badge(classification, icon=icon, colour=colour, help="`catalog.table.classification`")
    if team:
        _badge(team, icon=":material/group:", colour="gray", help="Owner: `catalog.team_name`")


def _badge(words: str, *, icon: str, colour: str, help: str) -> None:
    # `st.badge` puts a backslash before brackets alone, and so takes back one that stands there already.
    st.markdown(f":{colour}-badge[{icon} {markdown_safe(words)}]", help=help, width="content")


def state_mark(state: str) -> str:
    """A stream state, verdict or severity for the middle of a Markdown line: icon, word and colour."""
    style = state_style(state)
    return f":{style.badge}-badge[{style.icon} {state_word(state)}]"


def state_badge(state: str, *, help: str | None = None) -> None:
    """A stream state, verdict or severity: icon, word and colour."""
    style = state_style(state)
    st.badge(state_word(state), icon=style.icon, color=style.badge, help=help)


# charts of live regions: those of one group have one time axis, one zoom and one crosshair ----------------------------

# Called at each refresh. What is drawn already is left alone. A finger scrolls the page, so only a mouse zooms.
# The zoom is handed on here, not left to `uirevision`: that keeps only what a viewer did to this very chart.
_DRAW = """
const group = (node) => [...document.querySelectorAll(".weir-figure")].filter((one) =>
  one._fullLayout && one.dataset.group === node.dataset.group);
const zoom = ({ layout: { xaxis } }) => xaxis.autorange === false ? { range: [...xaxis.range], autorange: false } : {};
const pointAll = (source) => {
  const { _fullLayout: { xaxis }, pointer } = source;
  const across = pointer - source.getBoundingClientRect().left - xaxis._offset;
  for (const node of group(source)) {
    if (node === source) continue;
    if (across < 0 || across > xaxis._length) Plotly.Fx.unhover(node);
    else Plotly.Fx.hover(node, { xpx: node._fullLayout.xaxis.c2p(xaxis.p2c(across)) }, "xy", true);
  }
};
const zoomAll = (source) => {
  const wanted = zoom(source);
  for (const node of group(source)) {
    if (JSON.stringify(zoom(node)) !== JSON.stringify(wanted)) {
      Plotly.relayout(node, wanted.range ? { "xaxis.range": wanted.range } : { "xaxis.autorange": true });
    }
  }
};
const made = (parent) => {
  const node = document.createElement("div");
  node.className = "weir-figure";
  parent.append(node);
  new ResizeObserver(() => node.layout && Plotly.Plots.resize(node)).observe(node);
  node.addEventListener("mousemove", ({ clientX }) => {
    node.pointer = clientX;
    if (node._fullLayout) pointAll(node);
  });
  node.addEventListener("mouseleave", () => {
    node.pointer = undefined;
    group(node).forEach((one) => Plotly.Fx.unhover(one));
  });
  return node;
};
export default async ({ data, parentElement }) => {
  const node = parentElement.querySelector(".weir-figure") ?? made(parentElement);
  node.newest = data;
  const text = await unpacked(data);
  if (node.newest === data && node.drawn !== text) {
    node.drawn = text;
    const { alt, config, figure, group: name } = JSON.parse(text);
    node.dataset.group = name;
    if (matchMedia("(pointer: coarse)").matches) figure.layout.dragmode = false;
    node.style.height = `${figure.layout.height}px`;
    node.setAttribute("role", "img");
    node.setAttribute("aria-label", alt);
    Object.assign(figure.layout.xaxis, group(node).map(zoom).find(({ range }) => range));
    const isFirst = !node._fullLayout;
    await Plotly.react(node, figure.data, figure.layout, config);
    if (isFirst) node.on("plotly_relayout", () => zoomAll(node));
    group(node).filter(({ pointer }) => pointer !== undefined).forEach(pointAll);
  }
  return () => node.isConnected || Plotly.purge(node);
};
"""
SCRIPT = Script("figure", plotly.__version__, Path(plotly.__file__).parent / "package_data" / "plotly.min.js", _DRAW)
_component = st.components.v2.component("weir.live_figure", js=SCRIPT.importer, isolate_styles=False)


class LiveChart(NamedTuple):
    """A chart of a live region, ready to be sent to every viewer."""

    figure: Mapping[str, Any]
    key: str
    alt: str
    data: bytes | None  # what the component is sent


def prepared(figure: Mapping[str, Any], *, key: str, alt: str, group: str = "") -> LiveChart:
    """A figure over time as Plotly's JSON. It names its height; what a viewer zoomed stays, in the whole group."""
    message = {"alt": alt, "config": CHART_CONFIG, "figure": figure, "group": group or key}
    return LiveChart(figure, key, alt, packed(message) if SCRIPT.is_served else None)


def live_chart(ready: LiveChart) -> None:
    """Draws a chart in a live region."""
    if ready.data is None:
        chart(go.Figure(ready.figure), key=ready.key, alt=ready.alt)
        return
    _component(key=ready.key, data=ready.data, height=ready.figure["layout"]["height"])
