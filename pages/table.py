"""Summary: what is this table, how fresh, how big, who writes it, can I trust it? Then its schema and its rows."""

from app.summary.page import summary
from app.ui.frame import table_header

summary(table_header("table"))
