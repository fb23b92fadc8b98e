"""Widgets of the timeline page: the time that is asked for, the figure, and the events as a list.

Rule: what is asked stands in the URL. A range that is drawn becomes the time that is asked for, and is what *Changes*
compares.
"""

from dataclasses import replace

import streamlit as st

from app import cache, errors, navigation, services, state, viewer
from app.timeline import view
from app.timeline.text import counts_sentence, event_columns
from app.ui import lists
from app.ui.figures import CHART_CONFIG
from app.ui.view.figures import FigureLook
from app.ui.view.words import markdown_safe
from app.ui.work import spinner
from backend.errors import StoreError
from backend.lake.model import TableRef
from backend.streams.timeline import load_timeline
from backend.times import FORMS, parse_time

DEFAULT = "3 h ago"
# A finger scrolls the page: only a mouse draws a range.
_SCROLLS = "<style>@media (pointer: coarse) { .st-key-timeline { pointer-events: none } }</style>"


def timeline(ref: TableRef) -> None:
    """Of a table, whether its state can be read or not."""
    with st.container(horizontal=True, key="asked"):
        since, until = (
            st.text_input(
                label, key=key, bind="query-params", placeholder=otherwise, width=190, help=f"A time is {FORMS}.",
                on_change=state.first_page,
            )
            for key, label, otherwise in ((state.SINCE, "Since", DEFAULT), (state.UNTIL, "Until", "now"))
        )  # fmt: skip
    clock, streams = viewer.clock(), cache.streams_reading()
    if streams.problem:
        errors.show(StoreError(streams.problem))
    begin, end = parse_time(since or DEFAULT, clock), parse_time(until, clock, end_of_day=True) if until else None
    store = None if streams.problem else services.store()
    with spinner("Reading what happened …", of=f"timeline {ref.uri}"):
        happened = load_timeline(viewer.lake(), store, streams.streams, ref, since=begin, until=end, now=clock.now)
    for words in happened.left_out:
        st.caption(f":material/info: Left out: {markdown_safe(words)}.")
    if not happened.events:
        st.info("**Nothing happened in this time.** Ask for a longer one.", icon=":material/timeline:")
        return
    first, last = happened.versions or (0, 0)
    if last > first:
        label, range_ = f"What changed: v{first} → v{last}", {state.FROM: first, state.TO: last}
        navigation.table_link(ref.name, label, range_, page="changes")
    key = f"timeline_{since}_{until}"  # of another time: another figure, on which nothing is drawn yet
    drawn = happened if since else replace(happened, since=max(begin, happened.events[0].at))  # of a young table
    figure = view.build_timeline_figure(drawn, FigureLook(viewer.mode(), viewer.timezone()))
    counts = counts_sentence(happened)
    st.markdown(f"**{counts}**")
    st.html(_SCROLLS)
    with st.container(key="timeline"):
        st.plotly_chart(
            figure, theme=None, key=key, on_select=lambda: _on_drawn(key), selection_mode="box", alt=counts,
            config=CHART_CONFIG,
        )  # fmt: skip
    slot, events, which = lists.paged(happened.events[::-1], key="events_page")
    with slot:
        st.caption(f"Drag across the figure for a shorter time; *What changed* then compares its commits. {which}")
        lists.show(event_columns(clock.now), events, key="events", alt="Events, newest first")


def _on_drawn(key: str) -> None:
    for box in st.session_state[key].get("selection", {}).get("box", [])[:1]:
        drawn = view.drawn_range(box["x"], viewer.timezone())
        st.session_state[state.SINCE], st.session_state[state.UNTIL] = drawn
        state.first_page()
