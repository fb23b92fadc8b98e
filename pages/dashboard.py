"""Dashboard: what does the data say now, and how fresh is it?"""

from app import state
from app.errors import boundary
from app.query.dashboard import dashboard

state.keep_only(state.DASHBOARD, state.TILE, state.WINDOW)
with boundary():
    dashboard()
