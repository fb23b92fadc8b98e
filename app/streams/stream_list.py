"""The list of streams: live, most urgent first, with the buttons that act on the ticked ones.

Rule: the browser names a chosen row by its place, so nothing moves while a row is chosen.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import streamlit as st

from app import cache, navigation, services, state
from app.streams.acts import act_buttons, act_dialog, blocked_caption, operation_log
from app.streams.text import host_sentence
from app.streams.view.lists import TICKED, build_stream_columns, in_order, matches, scopes
from app.ui.lists import TWO_LINES_PX, chosen_page, show
from app.ui.live import live
from app.ui.states import by_urgency, summary_sentence
from app.ui.view.words import PAGE_ROWS, markdown_safe, num_pages, page_sentence
from backend.format import things
from backend.streams.acts import choose
from backend.streams.graph import in_graph_order
from backend.streams.verdict import StreamStatus

RECENT_S = 300
LOG_EVERY_S = 5.0
SCOPE, SCOPE_WIDTH = "act_scope", 210
SCOPE_HELP = "Untick the rows to choose a layer, a tag or all"
LIST, SHOWN = "stream_list", "_shown_streams"


def _as_shown(streams: Sequence[StreamStatus], key: str) -> list[StreamStatus]:
    """Most urgent first, or as the viewer saw them when a row was chosen."""
    selection = st.session_state.get(key, {}).get("selection", {})
    chosen = selection.get("rows") or selection.get("cells")
    statuses = in_order(streams, st.session_state.get(SHOWN, ())) if chosen else by_urgency(streams)
    st.session_state[SHOWN] = [status.declaration.name for status in statuses]
    return statuses


def _search(streams: Sequence[StreamStatus]) -> str:
    """What the viewer looks for, where the list has pages."""
    if num_pages(len(streams)) == 1:
        return ""
    words = st.text_input(
        "Search", key=state.SEARCH, bind="query-params", live="200ms", width=280, on_change=state.first_page,
        type="search", placeholder="Name, layer, tag, verdict", icon=":material/search:",
    )  # fmt: skip
    return (words or "").strip()


def say_why_none(reading: cache.StreamsReading) -> None:
    """Why there is no stream to show: the store is silent, or no host has declared one."""
    if reading.problem:
        st.error(f"**The control store does not answer.** {markdown_safe(reading.problem)}", icon=":material/error:")
    else:
        st.info(
            "**No stream is declared yet.** A stream host declares its streams when it starts:", icon=":material/water:"
        )
        st.code("weir up     # UI, host and demo\nweir host   # the host alone", language="bash")


def streams() -> None:
    """The list of streams, and what was asked of them."""
    act_dialog()
    live(_stream_list, key="streams_live")
    st.subheader("Operation log", anchor=False)
    live(operation_log, key="log_live", every_s=LOG_EVERY_S)


def _stream_list() -> None:
    """Every stream, or why there is none."""
    reading = cache.streams_reading()
    if reading.problem or not reading.streams:
        say_why_none(reading)
        return
    silent = host_sentence(reading.hosts, now=reading.read_at, stale_s=services.settings().host.heartbeat_stale_s)
    if silent and any(not status.declaration.is_attached for status in reading.streams):
        st.warning(f"{silent} Start one with `weir host`.", icon=":material/cloud_off:")
    st.markdown(summary_sentence(reading.streams))
    words = _search(reading.streams)
    matching = matches(reading.streams, words)
    slot, page = st.container(), chosen_page(len(matching))
    # Ticks are places in a list: another page, and what else is looked for, are other lists.
    key = LIST if page == 1 and not words else f"{LIST}_{page}_{words}"
    shown = _as_shown(matching, key)[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    with slot:
        found = f"{things(len(matching), 'stream')} found. " if words else ""
        how = (
            "Click a cell to open a stream. Tick rows, or choose a layer, a tag or all, to start, stop or restart them."
        )
        st.caption(f"{found}{page_sentence(page, len(matching))} {how}".strip())
        picked = _rows(shown, key, now=reading.read_at)
    names = [status.declaration.name for status in shown]
    with st.container(horizontal=True, vertical_alignment="bottom", key="acts"):
        chosen = _acted_on([names[row] for row in picked if row < len(names)], reading.streams, now=reading.read_at)
        act_buttons(chosen, key="many")
    blocked_caption(chosen)


def _rows(statuses: Sequence[StreamStatus], key: str, *, now: datetime) -> Sequence[int]:
    """A page of the list; the places of the rows that are ticked."""
    names = [status.declaration.name for status in statuses]
    recent = services.store().input_rows(names, since=services.now() - timedelta(seconds=RECENT_S))
    picked = show(
        build_stream_columns(now, recent), statuses, key=key, row_px=TWO_LINES_PX,
        alt="Streams with desired and observed state, verdict and rate",
        on_select="rerun", selection_mode=["multi-row", "single-cell"],
    )["selection"]  # fmt: skip
    if picked["cells"]:
        row, _ = picked["cells"][0]
        navigation.go("stream", {state.STREAM: names[row]})
    rows: Sequence[int] = picked["rows"]
    return rows


def _acted_on(ticked: Sequence[str], statuses: Sequence[StreamStatus], *, now: datetime) -> list[StreamStatus]:
    """The ticked streams, or those of the layer or tag that the viewer chose; sources first."""
    offered = scopes(statuses)
    if ticked:  # a tick wins, and the choice says so: nobody stops a layer when they mean a row
        st.session_state[SCOPE] = TICKED
    scope = st.selectbox("Act on", list(offered), key=SCOPE, width=SCOPE_WIDTH, help=SCOPE_HELP, disabled=bool(ticked))
    selection = offered[scope]
    if selection:
        return choose(selection, statuses, now=now)
    return (
        [status for status in in_graph_order(statuses, now=now) if status.declaration.name in ticked] if ticked else []
    )
