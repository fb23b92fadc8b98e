"""Properties: how is this table configured, what does that mean, what is unusual?"""

from app import errors
from app.components import properties
from app.components.frame import table_header

opened = table_header("properties")
with errors.boundary():
    properties.ownership_card(opened.snapshot.metadata)
    properties.problems(opened.snapshot.metadata)
    properties.table(opened.snapshot.metadata)
    properties.features(opened.snapshot.protocol)
