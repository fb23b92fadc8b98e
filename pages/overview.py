"""Overview: is anything wrong, and where? What needs attention, then tables by layer, then streams; kept fresh."""

import streamlit as st

from app import state
from app.overview.page import overview

state.keep_only()
st.title("Overview", anchor=False)
overview()
