"""Acts: what was done to tables and streams, what is under way, and did it keep its promise?"""

import streamlit as st

from app import navigation, state
from app.acts.page import acts

state.keep_only(state.SEARCH, state.ACTS_OF, state.ACT)
st.title(navigation.title("acts"), anchor=False)
acts()
