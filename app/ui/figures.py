"""What pages draw: key figures side by side, and charts in Weir's own template.

Rule: a figure without data shows a dash, and its help says why; a chart says in words what it shows.
"""

from collections.abc import Callable, Sequence
from html import unescape

import plotly.graph_objects as go
import streamlit as st

from app.ui.view.words import KeyFigure, markdown_safe

NARROWEST_PX = 160  # two beside each other on a telephone, and none cut in a narrow window
# Streamlit's grid leaves a hole in a row that is not full.
_FULL_ROWS = """<style>.st-key-{key} {{ display: flex; flex-wrap: wrap; }}
.st-key-{key} > .stGridCell {{
  flex: 1 1 {narrowest}px; min-width: 0; max-width: 520px; align-self: stretch; height: auto;
}}
.st-key-{key} .stElementContainer {{ flex: 1; }}</style>"""
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
