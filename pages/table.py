"""Summary: what is this table, how fresh, how big, who writes it, can I trust it? Then its schema and its rows."""

import streamlit as st

from app import errors, services, state
from app.profile.widgets import profile
from app.summary import data, notices, schema
from app.summary import widgets as summary
from app.ui.frame import table_header

opened = table_header("table")
with errors.boundary():
    notices.notices(opened)
with errors.boundary():
    summary.about(opened)
    summary.key_figures(opened)
view = st.segmented_control(
    "Show",
    ["Schema", "Data", "Profile", "Details"],
    default="Schema",
    required=True,
    key=state.VIEW,
    bind="query-params",
)
with errors.boundary():
    if view == "Data":
        data.rows(opened, limit=services.settings().lake.preview_rows)
    elif view == "Profile":
        profile(opened)
    elif view == "Details":
        summary.details(opened)
    else:
        summary.trust(opened)
        summary.expectations(opened)
        schema.schema(opened)
