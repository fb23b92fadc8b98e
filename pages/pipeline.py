"""Pipeline: what feeds what, how fast, and where it stopped."""

import streamlit as st

from app import navigation, state
from app.errors import boundary
from app.pipeline.page import pipeline_graph
from app.ui.live import live

state.keep_only(state.PIPELINE)
st.title(navigation.title("pipeline"), anchor=False)
with boundary():
    live(pipeline_graph, key="pipeline_live")
