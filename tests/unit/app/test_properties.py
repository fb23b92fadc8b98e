"""Properties by subject, and the search in them."""

from app.properties import view as properties
from backend.lake.model import Metadata
from backend.lake.table.properties import explain_properties


def test_set_properties_stand_first_in_their_subject() -> None:
    rows = explain_properties(Metadata("id", "{}", configuration={"delta.logRetentionDuration": "interval 3 days"}))
    group = next(g for g in properties.grouped(rows) if g.subject == "Retention")
    assert group.rows[0].key == "delta.logRetentionDuration" and group.num_set == 1
    shown = properties.properties_frame(group.rows)
    assert shown["Value"][0] == "interval 3 days" and shown["Default"][0] == "interval 30 days"


def test_every_property_has_one_subject_and_search_finds_words() -> None:
    rows = explain_properties(Metadata("id", "{}", configuration={"catalog.team_name": "Data"}))
    groups = properties.grouped(rows)
    assert sum(len(g.rows) for g in groups) == len(rows)
    assert [row.key for row in properties.matching(rows, "TEAM", set_only=True)] == ["catalog.team_name"]
