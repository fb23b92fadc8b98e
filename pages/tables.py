"""Tables: every table of the lake, searched, filtered and sorted, shown as it is read."""

import streamlit as st

from app import navigation, state
from app.errors import boundary
from app.tables.widgets import table_list
from app.ui.live import live_lake


def region() -> None:
    with boundary():
        table_list()


state.keep_only(state.SEARCH, state.LAYER, state.OWNER, state.SHOW, state.SORT, state.PAGE)
st.title(navigation.title("tables"), anchor=False)
live_lake(region)
