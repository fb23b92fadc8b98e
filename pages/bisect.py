"""First bad version: which commit broke a condition that a good version satisfies, or mended it?"""

from app.bisect import widgets as bisect_panel
from app.errors import boundary
from app.ui.frame import table_header

opened = table_header("bisect", versioned=False)
with boundary():
    asked = bisect_panel.form(opened)
    bisect_panel.answer(opened, asked)
