"""What a person types about rows: an aggregate over them, a condition on each, a value for each; what is refused."""

import math
import re
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from backend.errors import QueryError
from backend.sql.expression import check_expression, check_row_condition, check_value
from backend.sql.filters import computed, fields_of, satisfied
from backend.sql.session import Computation
from tests.worlds.lake import diffs

# an aggregate --------------------------------------------------------------------------------------------------------


COLUMNS = ["id", "amount", "status", "Customer", "odd name", "address", "ts", "body"]
ROWS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "amount": pa.array([Decimal("1.10"), Decimal("2.20"), None, Decimal("4.00")], pa.decimal128(10, 2)),
        "status": ["open", "open", "paid", None],
        "Customer": ["a", "b", "a", "a"],
        "odd name": [2**62, 2**62, 2**62, 5],
        "address": [{"city": "x"}, {"city": "y"}, None, {"city": "x"}],
        "ts": pa.array([datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4)], pa.timestamp("us", "UTC")),
        "body": ['{"n": 1}', '{"n": 2}', "{}", "null"],
    }
)


REFUSED_CALLS = [
    *("getenv('HOME')", "current_setting('temp_directory')", "read_text('/etc/passwd')", "nextval('s')", "random()"),
    *("repeat(status, 1000000000)", "range(1000000000)", "lpad(status, 2000000000, 'x')"),
]


def compute(text: str) -> object:
    expression = check_expression(text, COLUMNS)
    rows = ROWS.select(list(expression.columns) or ["id"])
    return Computation().run(expression.sql, rows.to_reader(max_chunksize=1))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("sum(amount)", Decimal("7.30")),
        ("count(*)", 4),
        ("count(*) filter (where status = 'open')", 2),
        ("count(DISTINCT customer)", 2),
        ('sum("odd name")', 3 * 2**62 + 5),
        ("max(address.city)", "y"),
        ("max(rows.id)", 4),
        ("min(ts)", datetime(2026, 1, 1, tzinfo=UTC)),
        ("avg(id) -- of all", 2.5),
        ("round(100.0 * count(*) FILTER (WHERE amount IS NULL) / count(*), 1)", 25.0),
        ("sum(CASE WHEN status IN ('open', 'paid') THEN 1 ELSE 0 END)", 3),
        ("sum(TRY_CAST(body->>'$.n' AS INTEGER))", 3),
        ("max(date_trunc('month', ts))", datetime(2026, 1, 1, tzinfo=UTC)),
        ("count(*) FILTER (WHERE ts >= TIMESTAMPTZ '2026-01-03 00:00:00+00')", 2),
        ("count(*) FILTER (WHERE status LIKE 'op%' AND NOT id BETWEEN 2 AND 3)", 1),
        ("quantile_cont(id, 0.5)", 2.5),
        ("max(coalesce(status, '–'))", "–"),
        ("sum(id)::VARCHAR || ' rows'", "10 rows"),
    ],
)
def test_an_aggregate_is_computed_exactly(text: str, value: object) -> None:
    assert compute(text) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "there is no expression"),
        ("amount", "no aggregate"),
        ("1", "no aggregate"),
        ("sum(amount", "syntax error"),
        ("sum(amount)) AS value FROM rows; DROP TABLE rows; SELECT (1", "only one expression"),
        ("sum(amount)) AS value FROM rows UNION ALL SELECT (1", "only one expression"),
        ("sum(amount)) AS value FROM read_csv('/etc/passwd') --", "syntax error"),
        ("(SELECT count(*) FROM duckdb_settings())", "a subquery is not allowed"),
        ("max(id) FILTER (WHERE EXISTS (SELECT 1))", "a subquery is not allowed"),
        ("sum(amount) OVER ()", "a window (OVER) is not allowed"),
        ("max(COLUMNS(*))", "a star outside count(*) is not allowed"),
        ("sum($1)", "a parameter is not allowed"),
        *((f"max({call})", f"'{call.partition('(')[0]}' is not allowed") for call in REFUSED_CALLS),
        ("max(main.lower(status))", "'main.lower' is not allowed"),
        ("list(id)", "'list' is not allowed"),
        ("max(list_transform([id], x -> x + 1))", "not allowed"),
        ("sum(amuont)", "no column 'amuont'"),
        ("sum(status)", "cannot be computed"),
        ("sum(amount) + id", "cannot be computed"),
        ("(" * 900 + "sum(id)" + ")" * 900, ""),
        ("sum(" + "1+" * 950 + "1)", ""),
        ("x" * 10_001, "more than 10,000"),
        ("sum(id)\x00", "null character"),
        ("max(" + "||".join(["status"] * 40) + ")", "more than 8 texts"),
    ],
)
def test_what_is_no_aggregate_over_the_rows_is_refused_in_words(text: str, says: str) -> None:
    try:
        compute(text)
    except QueryError as exc:
        assert says in exc.message and "\n" not in exc.message
    else:
        assert not says  # deep nesting may be read or refused, but never crash


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("sum(amuont)", 4),
        ("sum(id) + summ(id)", 10),
        ("max('é') || sum(nope)", 16),
        ("sum(id) +", 9),
        ("sum(id) + (SELECT 1)", 10),
        ("  sum(status)  ", 0),
    ],
)
def test_an_error_names_its_place(text: str, position: int) -> None:
    with pytest.raises(QueryError) as error:
        compute(text)
    assert error.value.position == position


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("sum(amuont)", "did you mean amount?"),
        ("main.sum(amount)", "such as amount >= 0"),
        ("sum(status::INTEGER)", "TRY_CAST"),
        ('sum("odd name" * 4)', "wider type"),
        ("sum(address)", "look at the types"),
        ("max(ts > 5)", "look at the types"),
    ],
)
def test_what_the_rows_make_impossible_has_a_way_on(text: str, hint: str) -> None:
    with pytest.raises(QueryError) as error:
        compute(text)
    assert hint in error.value.hint


# a condition, a value ------------------------------------------------------------------------------------------------


SCHEMA = pa.schema(
    [("row_id", pa.int64()), ("f", pa.float64()), ("v", pa.string()), ("rows", pa.struct([("a b", pa.int8())]))]
)
SOME_ROWS = [
    {"row_id": 1, "f": math.nan, "v": "x", "rows": {"a b": 1}},
    {"row_id": 2, "f": 1.0, "v": "7", "rows": {"a b": None}},
    {"row_id": None, "f": None, "v": None, "rows": None},
]


def answers_to(text: str) -> list[bool]:
    condition = check_row_condition(text, SCHEMA.names)
    table = pa.Table.from_pylist(SOME_ROWS, SCHEMA).select(condition.columns)
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
    assert answers_to(text) == answers


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("CAST(v AS INTEGER) > 1", "Could not convert string 'x' to INT32", "TRY_CAST"),
        ("row_id > DATE '2026-01-01'", "Cannot compare values of type BIGINT and type DATE", "look at the types"),
        ("regexp_matches(v, v || '(')", "missing ): x(", "run a part of it"),
        ("f + 1", "the condition gives DOUBLE, not true or false", "compare it"),
    ],
)
def test_what_cannot_be_computed_is_the_condition_s_fault(text: str, message: str, hint: str) -> None:
    with pytest.raises(QueryError) as caught:
        answers_to(text)
    assert message in caught.value.message and caught.value.hint.startswith(hint)


def valued(text: str, target: str) -> list[object]:
    value = check_value(text, SCHEMA.names)
    table = pa.Table.from_pylist(SOME_ROWS, SCHEMA).select(fields_of(value, target))
    rows = table.combine_chunks().to_struct_array().combine_chunks()
    found = list(computed(value, target, [rows[:0], rows[:1], rows[1:]]))
    assert {answer.type for answer in found} == {SCHEMA.field(target).type}
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
    ("text", "message"),
    [
        ("sum(row_id)", "has an aggregate"),
        ("(SELECT 1)", "a subquery is not allowed"),
        ("v", "the value cannot be computed: Could not convert string 'x' to INT64"),
        ("random()", "'random' is not allowed"),
    ],
)
def test_what_is_no_value_of_a_column_is_refused(text: str, message: str) -> None:
    with pytest.raises(QueryError, match=re.escape(message)):
        valued(text, "row_id")


def test_an_error_does_not_depend_on_the_bounds_of_all_rows() -> None:
    """A batch of a worker has none: what is always true of a table would be asked there and left out here."""
    rows = pa.table({"c0": [7, 8], "c1": ["x", "y"], "sign": pa.array([1, 1], pa.int8())})
    query = diffs.asked(key=("id",), where="id >= 0 OR CAST(v AS INTEGER) > 1")
    with pytest.raises(QueryError, match="Could not convert string"):
        diffs.compared(lambda _: rows.to_reader(), ["id", "v"], query)


def test_a_column_called_as_the_rows_numbers_are_is_no_such_number() -> None:
    rows = pa.table({"c0": [7, 8, 9], "sign": pa.array([1, 1, 1], pa.int8())})
    query = diffs.asked(key=("row_id",), where="row_id >= 8")
    found, _ = diffs.compared(lambda _: rows.to_reader(), ["row_id"], query)
    assert [row.after for row in found.rows] == [{"row_id": 8}, {"row_id": 9}]
