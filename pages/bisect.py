"""First bad version: which commit broke a condition that a good version satisfies, or mended it?"""

from app.errors import boundary
from app.search.page import answer, findings, form
from app.ui.frame import table_header

opened = table_header("bisect", versioned=False)
with boundary():
    findings(opened)
    answer(opened, form(opened))
