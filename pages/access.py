"""Access: who may do what, by which grant, and what do others see?"""

import streamlit as st

from app import navigation, state
from app.access.page import access

state.keep_only(state.SEARCH, state.ROLE_ON)
st.title(navigation.title("access"), anchor=False)
access()
