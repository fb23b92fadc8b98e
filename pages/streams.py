"""Streams: which flow and which do not; start, stop and restart them."""

import streamlit as st

from app import navigation, state
from app.streams.page import streams

state.keep_only(state.SEARCH, state.PAGE)
st.title(navigation.title("streams"), anchor=False)
streams()
