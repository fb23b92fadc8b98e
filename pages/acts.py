"""Acts: what was done to tables, what is under way, and did it keep its promise?"""

import streamlit as st

from app import navigation
from app.acts.widgets import acts_list, planned_by_policies
from app.errors import boundary

st.title(navigation.title("acts"), anchor=False)
with boundary():
    acts_list()
with boundary():
    planned_by_policies()
