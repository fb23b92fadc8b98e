"""Properties: how is this table configured, what does that mean, what is unusual, what was different before?"""

from app.properties.page import properties
from app.ui.frame import table_header

properties(table_header("properties"))
