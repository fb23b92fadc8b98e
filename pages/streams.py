"""Streams: which flow and which do not; start, stop and restart them."""

import streamlit as st

from app import navigation, state
from app.streams.controls import act_dialog, operation_log
from app.streams.stream_list import stream_list
from app.ui.live import live

LOG_EVERY_S = 5.0

state.keep_only(state.SEARCH, state.PAGE)
st.title(navigation.title("streams"), anchor=False)
act_dialog()
live(stream_list, key="streams_live")
st.subheader("Operation log", anchor=False)
live(operation_log, key="log_live", every_s=LOG_EVERY_S)
