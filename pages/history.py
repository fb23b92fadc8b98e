"""History: what happened, who did it? One commit opens its detail, two commits lead to their difference."""

from app import errors
from app.components import history
from app.components.frame import table_header

opened = table_header("history")
with errors.boundary():
    history.chart(opened)
with errors.boundary():
    history.commits(opened)
