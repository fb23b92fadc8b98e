"""Health: what should be maintained, what does it gain, and why?"""

import streamlit as st

from app import state
from app.components.frame import table_header
from app.components.health_panel import lake_health, table_health
from app.errors import boundary

if state.table() is None:
    st.title("Health of the lake", anchor=False)
    with boundary():
        lake_health()
else:
    opened = table_header("health", versioned=False)
    st.button("Whole lake", icon=":material/arrow_back:", key="whole_lake", on_click=state.choose_table, args=(None,))
    with boundary():
        table_health(opened)
