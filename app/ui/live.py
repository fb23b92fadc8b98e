"""Live regions: parts of a page that are drawn anew by themselves, the more rarely the more people watch.

Rule: a live region reads and draws; it owns nothing and opens no dialog, which the next run would close. It draws the
same elements in the same order each time, so that values change and nothing flickers.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import streamlit as st
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.scriptrunner_utils.script_run_context import ThreadState

from app import cache, services, state, viewer
from app.errors import boundary
from app.ui.lake import LakeReading, OpenTable
from app.ui.view.words import markdown_safe
from backend.errors import LakehouseError
from backend.format import count_text, things
from backend.lake.model import TableRef

LAKE_EVERY_S = 5.0
ARRIVING_EVERY_S = 1.0  # while tables are still being read
VIEWERS_AT_FULL_PACE = 25  # so many take less than half of a core (bench/ui.md), and a process draws on one
_LAKE = "lake_live"


class Viewers:
    """How many browsers are connected to this process, as its server counts them; another server counts none."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """For as long as a connection is open. The server has one thread for all of them."""
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


VIEWERS = Viewers()
# Streamlit fades what waits for a rerun; in a region that reruns all the time that is a flicker.
_STEADY = "<style>.st-key-{key} [data-stale=true] {{ opacity: 1 !important; transition: none !important; }}</style>"


def live(region: Callable[[], None], *, key: str, every_s: float | None = None) -> None:
    """Draws `region` every `every_s`, by default `ui.live_interval_s`. An error is shown in its stead, and the next
    run may recover."""

    def run() -> None:
        with st.container(key=key), boundary():
            region()

    st.html(_STEADY.format(key=key))
    redrawn(run, every_s=lambda: every_s or services.settings().ui.live_interval_s)


def redrawn(region: Callable[[], None], *, every_s: Callable[[], float]) -> None:
    """Draws `region` now and every so often, or more rarely while many watch."""

    def run() -> None:
        _set_timer(paced(every_s(), VIEWERS.count))  # others came and went since the page was opened
        region()

    st.fragment(run, run_every=paced(every_s(), VIEWERS.count))()


def paced(every_s: float, viewers: int) -> float:
    """The pause for so many viewers, so that their regions together leave a core half idle."""
    return every_s * max(1, math.ceil(viewers / VIEWERS_AT_FULL_PACE))


def _set_timer(every_s: float) -> None:
    """Has the browser ask in this pace for the fragment that is being drawn; a pace that it has changes nothing."""
    script, fragment = get_script_run_ctx(), ThreadState.get().fragment_id
    if script is not None and fragment is not None:
        message = ForwardMsg()
        message.auto_rerun.fragment_id, message.auto_rerun.interval = fragment, every_s
        script.enqueue(message)


def newest(ref: TableRef, shown: int) -> OpenTable:
    """A table as it is now, by the one look at its log that all viewers share; a version that is pinned stays.

    Given no snapshot, of which a region would keep one for each viewer.
    """
    lake = viewer.lake()
    latest = lake.latest_version(ref)
    return OpenTable(ref, lake.snapshot(ref, shown if shown == state.version() else latest), latest)


def live_lake(region: Callable[[], None], *, awaits: Callable[[LakeReading], bool] = lambda _: False) -> None:
    """Draws `region` every second while tables, or what it awaits of them, arrive; then every few seconds."""

    def run() -> None:
        with st.container(key=_LAKE):
            region()

    def every_s() -> float:
        try:
            reading = cache.lake_reading()
            return LAKE_EVERY_S if reading.is_complete and not awaits(reading) else ARRIVING_EVERY_S
        except LakehouseError:  # the region shows it
            return LAKE_EVERY_S

    st.html(_STEADY.format(key=_LAKE))
    redrawn(run, every_s=every_s)


def reading_progress(reading: LakeReading) -> None:
    """How far the reading is, while it is under way."""
    slot = st.empty()  # always there: one element less would give those below another identity
    if not reading.is_complete:
        text = f"{count_text(reading.num_read)} of {things(reading.num_found, 'table')} read …"
        slot.progress(
            reading.num_read / reading.num_found if reading.num_found else 0.0,
            text if reading.is_listed else "Looking for tables below the roots …",
        )


def no_streams(reading: cache.StreamsReading) -> None:
    """Why there is no stream to show: the store is silent, or no host has declared one."""
    if reading.problem:
        st.error(f"**The control store does not answer.** {markdown_safe(reading.problem)}", icon=":material/error:")
        return
    st.info("**No stream is declared yet.** Declare a pipeline, then start its host:", icon=":material/water:")
    st.code("weir up     # UI, host and demo\nweir host   # the host alone", language=None)
    st.caption("`docs/pipelines.md` shows how a pipeline is declared.")


def empty_lake() -> None:
    """What to do when no root holds a table."""
    roots = "\n".join(services.settings().roots)
    st.info("**No Delta tables here yet.** Weir looked under:", icon=":material/database:")
    st.code(roots, language=None, wrap_lines=True)
    st.markdown("Fill the lake with the demo pipeline, or point Weir at tables you have:")
    st.code("weir up\nWEIR_LAKE__ROOTS='[\"s3://bucket/lake\"]' weir ui", language="bash", wrap_lines=True)
