"""Tables: every table of the lake, searched, filtered and sorted, shown as it is read."""

import streamlit as st

from app import navigation
from app.errors import boundary
from app.tables import widgets as catalog


def region() -> None:
    with boundary():
        catalog.table_list()


st.title(navigation.title("tables"), anchor=False)
catalog.live_lake(region)
