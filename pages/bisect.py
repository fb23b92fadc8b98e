"""First bad version: which commit broke a condition that a good version satisfies, or mended it?"""

from app.components import bisect_panel
from app.components.frame import table_header
from app.errors import boundary

opened = table_header("bisect", versioned=False)
with boundary():
    asked = bisect_panel.form(opened)
    bisect_panel.answer(opened, asked)
