"""Tables: every table of the lake, searched, filtered and sorted, shown as it is read."""

import streamlit as st

from app import navigation, state
from app.tables.page import tables

state.keep_only(state.SEARCH, state.LAYER, state.OWNER, state.SHOW, state.SORT, state.PAGE)
st.title(navigation.title("tables"), anchor=False)
tables()
