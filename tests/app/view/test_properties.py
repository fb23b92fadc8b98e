"""Properties by subject, and the search in them."""

from app.properties import view as properties
from backend.lake.model import Metadata
from backend.lake.table.properties import explain_properties


def test_a_set_value_stands_beside_its_default() -> None:
    rows = explain_properties(Metadata("id", "{}", configuration={"delta.logRetentionDuration": "interval 3 days"}))
    shown = properties.set_frame([row for row in rows if row.is_set])
    assert shown["Value"].tolist() == ["interval 3 days"] and shown["Default"].tolist() == ["interval 30 days"]
    rest = properties.defaults_frame([row for row in rows if not row.is_set])
    assert "delta.logRetentionDuration" not in rest["Property"].tolist() and len(rest) == len(rows) - 1


def test_every_property_has_one_subject_and_search_finds_words() -> None:
    rows = explain_properties(Metadata("id", "{}", configuration={"catalog.team_name": "Data"}))
    groups = properties.grouped(rows)
    assert sum(len(g.rows) for g in groups) == len(rows)
    assert [row.key for row in properties.matching(rows, "TEAM_NAME")] == ["catalog.team_name"]


def test_a_question_ends_with_its_own_mark() -> None:
    wrong = explain_properties(Metadata("id", "{}", configuration={"delta.apendOnly": "true"}))[0]
    assert properties.problem_sentence(wrong)[0].endswith("did you mean delta.appendOnly?")
