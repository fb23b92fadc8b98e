"""Versions: which can still be read, restored or followed, until when and why; and any number over them."""

import streamlit as st

from app import state
from app.errors import boundary
from app.ui.frame import table_header
from app.versions import widgets as versions
from app.versions.numbers import NUMBERS, numbers
from app.versions.pins import pin_dialog

opened = table_header("versions", versioned=False, otherwise=versions.of_broken)
# A link that names a number leads there.
default = NUMBERS if state.text(state.NUMBER) or state.text(state.SQL) else "Each version"
view = st.segmented_control(
    "Show", ["Each version", NUMBERS], default=default, required=True, key=state.VIEW, bind="query-params"
)
with boundary():
    retention = versions.judged(opened.ref)
    if view == NUMBERS:
        numbers(opened, retention)
    else:
        chosen = versions.strip(opened.ref, retention)
        versions.problems(retention)
        versions.answers(opened.ref, retention, chosen)
pin_dialog()
