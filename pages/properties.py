"""Properties: how is this table configured, what does that mean, what is unusual, what was different before?"""

from app import errors
from app.properties import comparison as property_comparison
from app.properties import widgets as properties
from app.ui.frame import table_header

opened = table_header("properties")
with errors.boundary():
    properties.ownership_card(opened.snapshot.metadata)
    properties.problems(opened.snapshot.metadata)
with errors.boundary():
    property_comparison.comparison(opened)
with errors.boundary():
    properties.table(opened.snapshot.metadata)
    properties.features(opened.snapshot.protocol)
