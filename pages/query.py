"""Query: what does the data say, at which versions?"""

import streamlit as st

from app import navigation, state
from app.query.page import query

state.keep_only(
    state.QUERY, state.VERSIONS, state.ON, state.VIEW, state.CHART, state.CHART_X, state.CHART_Y, state.CHART_COLOUR,
    state.CHART_TITLE,
)  # fmt: skip
st.title(navigation.title("query"), anchor=False)
query()
