"""History: what happened, who did it? One commit opens its detail, two commits lead to their difference."""

from app.history.page import commits_alone, history
from app.ui.frame import table_header

history(table_header("history", otherwise=commits_alone))
