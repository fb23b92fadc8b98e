"""Timeline: what happened around this moment, here and up- and downstream?"""

from app.errors import boundary
from app.timeline.page import timeline
from app.ui.frame import table_header

opened = table_header("timeline", versioned=False, otherwise=timeline)
with boundary():
    timeline(opened.ref)
