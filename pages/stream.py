"""One stream: how does it flow, since when, why, and what now."""

import streamlit as st

from app import cache, navigation, state
from app.errors import boundary, show
from app.streams.controls import act_dialog
from app.streams.requeue import requeue_dialog
from app.streams.reset import reset_dialog
from app.streams.stream_list import say_why_none
from app.streams.widgets import stream_panel
from app.ui.badges import layer_badge
from app.ui.live import live
from app.ui.view.words import markdown_safe
from backend.errors import StreamNotFoundError

with boundary():
    reading = cache.streams_reading()
    declared = {status.declaration.name: status.declaration for status in reading.streams}
    chosen = state.stream() or min(declared, default="")
    if reading.problem or not declared:
        st.title(navigation.title("stream"), anchor=False)
        say_why_none(reading)
    elif chosen not in declared:
        st.title(markdown_safe(chosen), anchor=False)
        show(StreamNotFoundError(f"no stream is called {chosen!r}", hint="open one of these"))
        for name in sorted(declared):
            navigation.page_link("stream", name, {state.STREAM: name})
    else:
        state.choose_stream(chosen)
        declaration = declared[chosen]
        st.set_page_config(page_title=f"{chosen} · Weir")
        with st.container(horizontal=True, key="stream_links"):
            navigation.page_link("streams", "All streams")
            st.session_state["stream_switch"] = chosen  # not bound to the URL: links could not set it then
            st.selectbox(
                "Stream",
                sorted(declared),
                key="stream_switch",
                label_visibility="collapsed",
                width=260,
                on_change=lambda: state.choose_stream(st.session_state["stream_switch"]),
            )
            if table := declaration.sink_table or next(iter(declaration.source_tables), None):
                navigation.table_link(table, "Timeline", page="timeline")
        with st.container(horizontal=True, vertical_alignment="center"):
            st.title(markdown_safe(chosen), anchor=False, width="content")
            layer_badge(declaration.layer)
        outside = f"Writes {declaration.writes_to}." if declaration.outside else ""
        st.caption(markdown_safe(" · ".join(filter(None, (declaration.description, outside)))))
        act_dialog()
        requeue_dialog()
        reset_dialog()
        live(lambda: stream_panel(chosen), key="stream_live")
