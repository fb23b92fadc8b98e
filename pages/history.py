"""History: what happened, who did it? One commit opens its detail, two commits lead to their difference."""

import streamlit as st

from app import errors
from app.history import widgets as history
from app.ui.frame import table_header

opened = table_header("history", otherwise=history.commits_alone)
figure = st.container(key="history_figure")
with errors.boundary():
    history.commits(opened)  # first: the list reads a page of commits, the figure all of them
with figure, errors.boundary():
    history.chart(opened)
