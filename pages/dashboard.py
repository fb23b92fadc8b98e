"""Dashboard: what does the data say now, and how fresh is it?"""

import streamlit as st

from app import navigation, state
from app.errors import boundary
from app.query.dashboard import dashboard

state.keep_only(state.DASHBOARD, state.TILE)
st.title(navigation.title("dashboard"), anchor=False)
with boundary():
    dashboard()
