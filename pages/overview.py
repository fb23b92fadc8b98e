"""Overview: is anything wrong, and where? What needs attention, then tables by layer, then streams; kept fresh."""

import streamlit as st

from app import state
from app.overview.page import overview
from app.ui.live import live_lake

state.keep_only()
st.title("Overview", anchor=False)
live_lake(overview)
