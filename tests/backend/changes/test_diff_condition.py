"""Which rows satisfy a condition, without the table they come from."""

import math
import re

import pyarrow as pa
import pytest

from backend.errors import QueryError
from backend.sql.condition import check_row_condition, check_value, computed, fields_of, require_fit, satisfied
from tests.worlds.lake import diffs

COLUMNS = pa.schema(
    [("row_id", pa.int64()), ("f", pa.float64()), ("v", pa.string()), ("rows", pa.struct([("a b", pa.int8())]))]
)
ROWS = [
    {"row_id": 1, "f": math.nan, "v": "x", "rows": {"a b": 1}},
    {"row_id": 2, "f": 1.0, "v": "7", "rows": {"a b": None}},
    {"row_id": None, "f": None, "v": None, "rows": None},
]


def asked(text: str) -> list[bool]:
    condition = check_row_condition(text, COLUMNS.names)
    table = pa.Table.from_pylist(ROWS, COLUMNS).select(condition.columns)
    rows = table.combine_chunks().to_struct_array().combine_chunks()
    batches = [rows[:0], rows[:1], rows[1:]]
    return [answer for batch in satisfied(condition, batches) for answer in batch.to_pylist()]


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("row_id = 1", [True, False, False]),
        ("rows.row_id = 2", [False, True, False]),
        ("NOT row_id = 1", [False, True, False]),  # unknown is not satisfied
        ("row_id IS NULL", [False, False, True]),
        ("f > 1e300", [True, False, False]),  # as NaN is for DuckDB, and is not for Arrow
        ("row_id = 1 OR v = '7' -- and no more", [True, True, False]),
        ('rows.rows."a b" = 1', [True, False, False]),
        ("TRY_CAST(V AS INTEGER) = 7", [False, True, False]),
        ("NULL AND f > 0", [False, False, False]),
    ],
)
def test_rows_are_answered_in_their_order_over_batches(text: str, answers: list[bool]) -> None:
    assert asked(text) == answers


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("CAST(v AS INTEGER) > 1", "Could not convert string 'x' to INT32", "TRY_CAST"),
        ("row_id > DATE '2026-01-01'", "Cannot compare values of type BIGINT and type DATE", "look at the types"),
        ("regexp_matches(v, v || '(')", "missing ): x(", "try a part of it"),
        ("f + 1", "the condition gives DOUBLE, not true or false", "compare it"),
    ],
)
def test_what_cannot_be_computed_is_the_condition_s_fault(text: str, said: str, hint: str) -> None:
    with pytest.raises(QueryError) as caught:
        asked(text)
    assert said in caught.value.message and caught.value.hint.startswith(hint)


def valued(text: str, target: str) -> list[object]:
    value = check_value(text, COLUMNS.names)
    table = pa.Table.from_pylist(ROWS, COLUMNS).select(fields_of(value, target))
    rows = table.combine_chunks().to_struct_array().combine_chunks()
    found = list(computed(value, target, [rows[:0], rows[:1], rows[1:]]))
    assert {answer.type for answer in found} == {COLUMNS.field(target).type}
    return [each for answer in found for each in answer.to_pylist()]


@pytest.mark.parametrize(
    ("text", "target", "values"),
    [
        ("coalesce(row_id, 0) + 1", "row_id", [2, 3, 1]),
        ("'unknown' -- of no column", "v", ["unknown"] * 3),
        ("NULL", "rows", [None] * 3),
        ("TRY_CAST(v AS DOUBLE)", "f", [None, 7.0, None]),
        ("rows.row_id * 1.5", "v", ["1.5", "3.0", None]),
        ("CASE WHEN v = 'x' THEN f ELSE row_id END", "f", [pytest.approx(math.nan, nan_ok=True), 2.0, None]),
    ],
)
def test_a_value_for_each_row_has_the_type_of_its_column(text: str, target: str, values: list[object]) -> None:
    assert valued(text, target) == values


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sum(row_id)", "has an aggregate"),
        ("(SELECT 1)", "a subquery is not allowed"),
        ("v", "the value cannot be computed: Could not convert string 'x' to INT64"),
        ("random()", "'random' is not allowed"),
    ],
)
def test_what_is_no_value_of_a_column_is_refused(text: str, said: str) -> None:
    with pytest.raises(QueryError, match=re.escape(said)):
        valued(text, "row_id")


def test_types_are_looked_at_before_there_is_a_row() -> None:
    require_fit(check_row_condition("f > 0", COLUMNS.names), COLUMNS)
    for text in ("f + 1", "row_id > DATE '2026-01-01'"):
        with pytest.raises(QueryError):
            require_fit(check_row_condition(text, COLUMNS.names), COLUMNS)


def test_an_error_does_not_depend_on_the_bounds_of_all_rows() -> None:
    """A batch of a worker has none: what is always true of a table would be asked there and left out here."""
    rows = pa.table({"c0": [7, 8], "c1": ["x", "y"], "sign": pa.array([1, 1], pa.int8())})
    query = diffs.asked(key=("id",), where="id >= 0 OR CAST(v AS INTEGER) > 1")
    with pytest.raises(QueryError, match="Could not convert string"):
        diffs.compared(lambda _: rows.to_reader(), ["id", "v"], query)


def test_a_column_called_as_the_rows_numbers_are_is_no_such_number() -> None:
    rows = pa.table({"c0": [7, 8, 9], "sign": pa.array([1, 1, 1], pa.int8())})
    found = diffs.compared(
        lambda _: rows.to_reader(), ["row_id"], diffs.asked(key=("row_id",), where="row_id >= 8")
    ).changes
    assert [row.after for row in found.rows] == [{"row_id": 8}, {"row_id": 9}]
