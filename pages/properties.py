"""Properties: how is this table configured, what does that mean, what is unusual, what was different before?"""

from app.errors import boundary
from app.properties import widgets as properties
from app.ui.frame import table_header

opened = table_header("properties")
with boundary():
    properties.problems(opened)
    properties.table(opened.snapshot.metadata)
with boundary():
    properties.comparison(opened)
with boundary():
    properties.features(opened.snapshot.protocol)
