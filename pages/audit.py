"""Audit: who did what, as what role, by which grant, and what came of it?"""

import streamlit as st

from app import errors, navigation, state
from app.acts.trail import trail

state.keep_only(state.SINCE, state.BY, state.OPERATION, state.ACTED_ON, state.AUDIT_ROW)
st.title(navigation.title("audit"), anchor=False)
with errors.boundary():
    trail()
