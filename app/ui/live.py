"""Live regions: a fragment that reruns alone, every `ui.live_interval_s`, and keeps its place.

Rule: a live region reads and draws; it owns nothing, opens no dialog (the next run would close it) and draws the same
elements in the same order each time, so that values change and nothing flickers.
"""

from collections.abc import Callable

import plotly.graph_objects as go
import streamlit as st

from app import context
from app.errors import boundary
from app.ui.key_figure import KeyFigure

# Streamlit fades what waits for a rerun; in a region that reruns all the time that is a flicker.
STEADY = "<style>.st-key-{key} [data-stale=true] {{ opacity: 1 !important; transition: none !important; }}</style>"
CHART_CONFIG = {"displayModeBar": False, "responsive": True}


def live(region: Callable[[], None], *, key: str) -> None:
    """Draws `region` now and again each interval; an error is shown in its place and the next run may recover."""

    def run() -> None:
        with st.container(key=key), boundary():
            region()

    st.html(STEADY.format(key=key))
    st.fragment(run, run_every=context.settings().ui.live_interval_s)()


def chart(figure: go.Figure, *, key: str, alt: str) -> None:
    """A figure in Weir's own template. `alt` says in words what it shows."""
    st.plotly_chart(figure, theme=None, key=key, config=CHART_CONFIG, alt=alt)


def key_figures(figures: list[KeyFigure], *, key: str) -> None:
    """Bordered metrics side by side, wrapping on narrow screens."""
    with st.container(horizontal=True, key=key):
        for figure in figures:
            st.metric(
                figure.label,
                figure.value,
                delta=figure.note or None,
                delta_color="off",
                delta_arrow="off",
                help=figure.help,
                border=True,
                width="stretch",
                height="stretch",
            )
