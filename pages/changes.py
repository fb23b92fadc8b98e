"""Changes: what is different between these two versions, and how do we know?"""

import streamlit as st

from app.changes.options import options_popover, other_table, where_input
from app.changes.widgets import answer, what_helps
from app.errors import boundary
from app.ui.frame import table_header
from app.ui.version_range import offer_others, version_range

opened = table_header("changes", versioned=False)
with st.container(horizontal=True, vertical_alignment="bottom", key="asked"):
    pickers = st.container(width=620, key="pickers")
    where_input(opened)
    how = options_popover(opened)
with boundary():
    against = other_table(opened)
    with pickers:
        chosen = version_range(opened, against)
    if against is None:
        offer_others(opened)
    found = answer(opened, against, chosen, how)
    if against is None:
        what_helps(opened, chosen, found)
