"""Acts: what was done to tables, what is under way, and did it keep its promise?"""

import streamlit as st

from app import navigation
from app.acts.page import acts

st.title(navigation.title("acts"), anchor=False)
acts()
