"""Changes: what is different between these two versions, and how do we know?"""

from app.changes.page import changes
from app.ui.frame import table_header

changes(table_header("changes", versioned=False))
