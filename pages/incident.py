"""Incidents: what went wrong, which tables and rows it hurt, and what is done about it?"""

from app import state
from app.incidents.page import incidents

state.keep_only(state.INCIDENT, state.TABLE, state.FROM, state.TO)
incidents()
