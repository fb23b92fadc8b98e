"""Changes: what is different between these two versions, and how do we know?"""

import streamlit as st

from app import cache
from app.components.diff_panel import diff_panel
from app.components.frame import table_header
from app.components.version_range import version_range
from app.errors import boundary

opened = table_header("changes", versioned=False)
with boundary():
    chosen = version_range(opened)
    with st.spinner(f"Comparing v{chosen.from_version} with v{chosen.to_version} …", show_time=True):
        difference = cache.difference(opened.snapshot, chosen.from_version, chosen.to_version)
    diff_panel(difference)
