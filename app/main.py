"""The frame: page config, navigation, sidebar; then the chosen page."""

import streamlit as st

from app import navigation, viewer
from app.ui import frame
from app.ui.find import find_button

WAVES = """<g fill="none" stroke="#1F87B3" stroke-width="3" stroke-linecap="round">
<path d="M3 9c4-4 8 4 12 0s8 4 12 0"/><path d="M3 16c4-4 8 4 12 0s8 4 12 0"/>
<path d="M3 23c4-4 8 4 12 0s8 4 12 0"/></g>"""
ICON = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 30 32">{WAVES}</svg>'
MARK = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 112 32" role="img" aria-label="Weir">{WAVES}
<text x="37" y="24" font-family="sans-serif" font-size="24" font-weight="700" fill="#1F87B3">Weir</text></svg>"""

st.set_page_config(page_title="Weir", page_icon=ICON, layout="wide")
st.logo(MARK, size="large")
may_look = viewer.actor().may_look
page = st.navigation(  # expanded: else the last group is folded away
    navigation.pages(), expanded=True, position="sidebar" if may_look else "hidden"
)
frame.looks_as_band()
if not may_look:
    frame.no_role()
find_button()
frame.sidebar(on_table_page=page.url_path in navigation.table_pages())
page.run()
