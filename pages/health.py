"""Health: what should be maintained, what does it gain, and why? Without a table it is the list of all tables."""

from app import navigation, state
from app.health.page import table_health
from app.ui.frame import table_header
from app.ui.lake import MOST_TO_MERGE

if state.table() is None:
    navigation.go("tables", {state.SORT: MOST_TO_MERGE})
table_health(table_header("health", versioned=False))
