"""Health: what should be maintained, what does it gain, and why?"""

from app import state
from app.health.page import lake_health, table_health
from app.ui.frame import table_header

if state.table() is None:
    lake_health()
else:
    table_health(table_header("health", versioned=False))
