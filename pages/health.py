"""Health: what should be maintained, what does it gain, and why?"""

import streamlit as st

from app import state
from app.errors import boundary
from app.health.widgets import being_judged, lake_health, table_health
from app.ui.frame import table_header
from app.ui.live import live, live_lake


def region() -> None:
    with boundary():
        lake_health()


if state.table() is None:
    st.title("Health of the lake", anchor=False)
    live_lake(region, awaits=being_judged)
else:
    opened = table_header("health", versioned=False)
    st.button("Whole lake", icon=":material/arrow_back:", key="whole_lake", on_click=state.choose_table, args=(None,))
    live(lambda: table_health(opened.ref), key="health_live")
