"""Live regions: parts of a page that are drawn anew by themselves.

Rule: a live region reads and draws; it owns nothing and opens no dialog, which the next run would close. It draws the
same elements in the same order each time, so that values change and nothing flickers.
"""

from collections.abc import Callable

import streamlit as st

from app import cache, context
from app.errors import boundary
from app.ui.lake import LakeReading
from backend.errors import LakehouseError

LAKE_EVERY_S = 5.0
ARRIVING_EVERY_S = 1.0  # while tables are still being read
_LAKE = "lake_live"
# Streamlit fades what waits for a rerun; in a region that reruns all the time that is a flicker.
_STEADY = "<style>.st-key-{key} [data-stale=true] {{ opacity: 1 !important; transition: none !important; }}</style>"


def live(region: Callable[[], None], *, key: str, every_s: float | None = None) -> None:
    """Draws `region` every `every_s`, by default `ui.live_interval_s`. An error is shown in its stead, and the next
    run may recover."""

    def run() -> None:
        with st.container(key=key), boundary():
            region()

    st.html(_STEADY.format(key=key))
    st.fragment(run, run_every=every_s or context.settings().ui.live_interval_s)()


def live_lake(region: Callable[[], None], *, awaits: Callable[[LakeReading], bool] = lambda _: False) -> None:
    """Draws `region` every second while tables, or what it awaits of them, arrive; then every few seconds."""
    arriving = _is_arriving(awaits)

    def run() -> None:
        if arriving and not _is_arriving(awaits):
            st.rerun()  # only a run of the whole page sets the longer interval
        with st.container(key=_LAKE):
            region()

    st.html(_STEADY.format(key=_LAKE))
    st.fragment(run, run_every=ARRIVING_EVERY_S if arriving else LAKE_EVERY_S)()


def _is_arriving(awaits: Callable[[LakeReading], bool]) -> bool:
    try:
        reading = cache.lake_reading()
        return not reading.is_complete or awaits(reading)
    except LakehouseError:  # the region shows it
        return False


def reading_progress(reading: LakeReading) -> None:
    """How far the reading is, while it is under way."""
    slot = st.empty()  # always there: one element less would give those below another identity
    if not reading.is_complete:
        slot.progress(reading.share_read, reading.progress_sentence)
