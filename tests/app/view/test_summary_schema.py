"""The schema as people read it: tree, search, traits, statistics with their signs."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from app.summary.view import schema as view
from backend.lake.files.stats import ColumnTotals, StatKind
from backend.lake.model import Metadata
from backend.lake.table.schema import Column, Constraint, columns, constraints


def column(name: str, kind: Any = "long", nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def read(*fields: dict[str, Any], **more: Any) -> tuple[Column, ...]:
    return columns(Metadata("t", json.dumps({"type": "struct", "fields": list(fields)}), **more))


HOME = {"type": "struct", "fields": [column("city", "string", comment="where"), column("no", "integer")]}
NESTED = read(column("id", nullable=False), column("home", HOME), column("day", "date"), partition_columns=("day",))


def totals(name: str = "id", **more: Any) -> ColumnTotals:
    fields = {"files": 4, "lowest": 1, "highest": 9, "files_with_bounds": 4, "files_with_nulls": 4} | more
    return ColumnTotals(name, "bigint", more.pop("kind", StatKind.INTEGER), False, **fields)


def test_the_tree_is_indented_and_empty_traits_are_left_out() -> None:
    frame = view.schema_frame(NESTED, {})
    assert frame["Column"].tolist() == ["id", "home", "\u2003\u2003city", "\u2003\u2003no", "day"]
    assert frame["Type"].tolist() == ["bigint", "struct", "string", "int", "date"]
    assert frame.columns.tolist() == ["Column", "Type", "Nullable", "Partition", "Comment"]
    sentence = "3 columns (1 not null), 2 fields inside, partitioned by day"
    assert view.schema_sentence(NESTED) == sentence


def test_a_search_keeps_what_a_match_lies_in() -> None:
    assert [c.path for c in view.matching(NESTED, "CITY")] == ["home", "home.city"]
    assert [c.path for c in view.matching(NESTED, "where string")] == ["home", "home.city"]
    deep = read(column("a", {"type": "struct", "fields": [column("b", HOME)]}))
    assert [c.path for c in view.matching(deep, "a.b.city")] == ["a", "a.b", "a.b.city"]
    assert view.matching(NESTED, "nowhere") == [] and view.matching(NESTED, " ") == list(NESTED)
    assert view.shown_sentence(2, 0, 2, 5) == "2 of 5 lines match."
    assert view.shown_sentence(100, 200, 3000, 3000) == "Lines 201–300 of 3,000."
    assert view.shown_sentence(100, 200, 900, 3000) == "Lines 201–300 of 900 that match, of 3,000."
    assert view.shown_sentence(5, 0, 5, 5) == ""


def test_traits_of_columns() -> None:
    identity = {"delta.identity.start": 1, "delta.identity.step": 2, "delta.identity.highWaterMark": 99}
    mapping = {"delta.columnMapping.id": 7, "delta.columnMapping.physicalName": "col-7"}
    widened = {"delta.typeChanges": [{"fromType": "integer", "toType": "long", "tableVersion": 3}, "odd"]}
    frame = view.schema_frame(
        read(
            column("a", **identity, **{"delta.identity.allowExplicitInsert": True}),
            column("b", **mapping, **widened),
            column("c", "date", **{"delta.generationExpression": "CAST(at AS DATE)"}),
            column("d", CURRENT_DEFAULT="42"),
            column("e", **{"delta.identity.start": "x", "delta.typeChanges": "odd", "comment": 5}),
        ),
        {},
    ).set_index("Column")
    assert frame["Identity"]["a"] == "from 1 by 2, last 99, values may be given"
    assert (frame["Id"]["b"], frame["Name in files"]["b"], frame["Widened"]["b"]) == (
        "7",
        "col-7",
        "int → bigint at v3",
    )
    assert frame["Generated as"]["c"] == "CAST(at AS DATE)" and frame["Default"]["d"] == "42"
    assert frame.loc["e"].drop(["Type", "Nullable"]).eq("").all()


def test_statistics_carry_their_signs() -> None:
    found = {
        "id": totals(nulls=3, rows_with_nulls=1000, lowest_is_value=False, highest_is_value=False, is_tight=False),
        "home.no": totals("home.no", lowest=None, highest=None, files_with_bounds=0, files_with_nulls=3),
        "day": totals("day", files_with_bounds=3, files_with_nulls=3, nulls=0, rows_with_nulls=30),
    }
    frame = view.schema_frame(NESTED, found).set_index("Column")
    names = ["Min", "Max", "Null share", "Known for"]
    assert frame.loc["id", names].tolist() == ["≥ 1", "≤ 9", "≈ 0.3 %", ""]
    assert frame.loc["\u2003\u2003no", names].tolist() == ["–", "–", "–", "bounds 0, nulls 3 of 4 files"]
    assert frame.loc["day", names].tolist() == ["≤ 1", "≥ 9", "0 %", "3 of 4 files"]
    assert frame.loc["home", names].tolist() == [""] * 4
    assert "Known for" not in view.schema_frame(NESTED, {"id": found["id"]}), "nothing to say where all files do"
    sentence = view.statistics_sentence(found.values())
    assert "4 files" in sentence and "≥, ≤ and ≈ are bounds" in sentence and "may lie beyond" in sentence
    assert view.statistics_sentence([totals()]) == "From the statistics of 4 files; no data was read."


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (True, "true"),
        (2**60, "1152921504606846976"),
        (0.1 + 0.2, "0.30000000000000004"),
        (3.0, "3"),
        (float("nan"), "NaN"),
        (Decimal("1E+3"), "1000"),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC), "2026-01-02 03:04:05.678 UTC"),
        (datetime(2026, 1, 2), "2026-01-02 00:00:00"),
        ("Ede", "Ede"),
    ],
)
def test_bounds_are_exact(value: Any, text: str) -> None:
    assert view.value_text(value) == text


def test_constraints_are_listed_by_name() -> None:
    found = constraints(Metadata("t", "{}", configuration={"delta.constraints.b": "x > 0", "delta.constraints.a": "y"}))
    assert found == (Constraint("a", "y"), Constraint("b", "x > 0"))
    assert view.constraints_frame(found)["Every row satisfies"].tolist() == ["y", "x > 0"]
