"""Acts: what was done to tables, what is under way, and did it keep its promise?"""

import streamlit as st

from app import navigation
from app.acts.widgets import acts_list, dropped_list, planned_by_policies
from app.errors import boundary
from app.ui.table_acts import act_dialog

st.title(navigation.title("acts"), anchor=False)
act_dialog()
with boundary():
    acts_list()
with boundary():
    dropped_list()
with boundary():
    planned_by_policies()
