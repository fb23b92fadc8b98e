"""Query: what does the data say, at which versions?"""

import streamlit as st

from app import navigation, state
from app.errors import boundary
from app.query.saved import saved, saved_dialogs
from app.query.widgets import answer, earlier, editor

state.keep_only(
    state.QUERY, state.VERSIONS, state.ON, state.VIEW, state.CHART, state.CHART_X, state.CHART_Y, state.CHART_COLOUR
)  # fmt: skip
st.title(navigation.title("query"), anchor=False)
with boundary():
    answer(editor())
saved_dialogs()
with st.container(horizontal=True, key="query_lists"):
    saved()
    earlier()
