"""A filter as a person types it: what it becomes, what is refused and where, what a click writes, and its end."""

import threading
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.errors import QueryError
from backend.lake.lake import Lake
from backend.lake.rows.filters import All, AnyOf, RowFilter
from backend.lake.rows.filters import Test as OneTest
from backend.lake.table.schema import SchemaColumn, columns
from backend.sql.export import FORMATS, Exports, exported_rows
from backend.sql.filters import condition_text, narrowed, operators, parse_filter
from backend.work import Stopped, Work
from tests.worlds.lake import builders
from tests.worlds.lake.diff_lakes import LakeWith

KINDS: dict[str, st.SearchStrategy[Any]] = {
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "decimal(38,2)": st.decimals(-(10**30), 10**30, places=2),
    "string": st.text(st.characters(codec="utf-8", exclude_characters="\x00")),
    "boolean": st.booleans(),
    "binary": st.binary(),
    "date": st.dates(),
    "timestamp": st.datetimes(
        timezones=st.sampled_from([UTC, timezone(timedelta(hours=2))]), min_value=datetime(2, 1, 1)
    ),
    "timestamp_ntz": st.datetimes(),
}
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1)


def field(name: str, kind: str, depth: int = 0) -> SchemaColumn:
    names = tuple(name.split(".")) if depth else (name,)
    return SchemaColumn(name, names, kind, kind, nullable=True, physical=names)


SCHEMA = [
    field("id", "bigint"), field("small", "tinyint"), field("name", "string"), field("price", "decimal(38,2)"),
    field("date", "date"), field("timestamp", "timestamp"), field("local", "timestamp_ntz"), field("flag", "boolean"),
    field("raw", "binary"), field("score", "double"), field("ratio", "float"), field("s", "struct<a:int,b c:string>"),
    field("at", "timestamp"), field("order", "bigint"), field("s.a", "int", 1), field("s.b c", "string", 1),
    field("xs", "array<int>"),
]  # fmt: skip


def parsed(text: str, schema: Sequence[SchemaColumn] = SCHEMA) -> RowFilter:
    where = parse_filter(text, schema)
    assert where is not None
    return where


@pytest.mark.parametrize(
    ("text", "predicate"),
    [
        ("date >= '2020-01-01'", "\"date\" >= CAST('2020-01-01' AS DATE)"),
        ("date = DATE '2020-01-01'", "\"date\" = CAST('2020-01-01' AS DATE)"),
        (
            "TIMESTAMP < TIMESTAMP '2020-01-01 10:00'",
            "\"timestamp\" < arrow_cast('2020-01-01T10:00:00+00:00', 'Timestamp(Microsecond, Some(\"UTC\"))')",
        ),
        ("id BETWEEN 1 AND 2.5", '("id" >= 1 AND "id" <= CAST(\'2.5\' AS DECIMAL(38, 1)))'),
        ("id NOT IN (1, -2)", 'NOT (("id" = 1 OR "id" = -2))'),
        ("1e3 > rows.id", '"id" < 1000'),
        ("at IS NULL AND Order > 5 -- at", '("at" IS NULL AND "order" > 5)'),
        ("id = small OR `flag`", '("id" = "small" OR "flag" = TRUE)'),
        ("score IS NAN", 'isnan("score")'),
        ("score IS NOT NAN OR name = 'is nan'", '(NOT (isnan("score")) OR "name" = \'is nan\')'),
        ("isnan(ratio) AND raw = X'00ff'", '(isnan("ratio") AND "raw" = X\'00ff\')'),
        ("score < 1.5", '("score" < CAST(\'1.5\' AS DOUBLE) AND NOT isnan("score"))'),
        ("name NOT ILIKE 'x%' AND xs IS NULL", '(NOT ("name" ILIKE \'x%\') AND "xs" IS NULL)'),
        ("s.A = 1 AND s.\"b c\" <> 'y'", "(\"s\"['a'] = 1 AND NOT (\"s\"['b c'] = 'y'))"),
        ("(" * 60 + "NOT flag" + ")" * 60, 'NOT ("flag" = TRUE)'),
    ],
)
def test_what_compares_a_column_with_a_constant_becomes_terms(text: str, predicate: str) -> None:
    where = parsed(text)
    assert where.predicate() == predicate and where.check is None


@pytest.mark.parametrize(
    ("text", "predicate"),
    [
        ("lower(name) = 'a'", None),
        ("id > 3 AND abs(id) < 9", '"id" > 3'),
        ("id > 3 OR abs(id) < 9", None),
        ("ratio < score", None),  # NaN has no place for every reader that it has for DuckDB
        ("ratio = 1.1e0", None),  # compared as a double
        ("name = 5", None),
        ("id = '5.4'", None),  # DuckDB rounds the text
        ("name LIKE 'a\\%'", None),  # no escape to DuckDB
        ("id IN (1, NULL)", None),
        ("id = 99999999999999999999", None),
        ("score = 'infinity' OR flag = 1", None),
    ],
)
def test_what_is_more_is_computed_on_the_rows_that_the_terms_let_through(text: str, predicate: str | None) -> None:
    where = parsed(text)
    assert where.predicate() == predicate
    assert where.check is not None and where.check.text == text and where.check.columns


@pytest.mark.parametrize(
    ("text", "says", "position"),
    [
        ("id = ", "syntax error", 4),
        ("nope = 1", "no column 'nope' (character 1)", 0),
        ("id = 'x'", "'x' is no number that fits bigint (character 6)", 5),
        ("id = (SELECT 1)", "a subquery is not allowed", 5),
        ("id = 1) AS value FROM rows; DROP TABLE rows; SELECT (1", "only one expression", None),
        ("name = 'a", "unterminated", 7),
        ("id = NULL", "nothing compares with NULL", None),
        ("id LIKE 'a%'", "cannot be computed", 3),
        ("local = '2020-01-01T00:00:00Z'", "without a zone", 8),
        ("date = '2020-13-01'", "'2020-13-01' is no date", 7),
        ("date = '2020-06-31'", "'2020-06-31' is no date", 7),
        ("timestamp IN ('yesterday')", "no time", 14),
        ("name > id", "Cannot compare", 0),
        ("date", "gives DATE, not true or false", None),
        ("sum(id) > 1", "has an aggregate", None),
        ("(" * 4000 + "flag" + ")" * 4000, "too deeply", None),
        ("NOT " * 2000 + "flag", "too deeply", None),
        ("id" + " + 1" * 2000 + " = 1", "too deeply", None),
        ("[" * 500 + "1" + "]" * 500 + " = [id]", "too deeply", None),
    ],
)
def test_a_filter_that_is_none_says_where(text: str, says: str, position: int | None) -> None:
    with pytest.raises(QueryError) as caught:
        parsed(text)
    assert says in caught.value.message and caught.value.hint and caught.value.exit_code == 2
    assert caught.value.position == position
    assert "max_expression_depth" not in caught.value.message


@pytest.mark.parametrize("text", ['"~~"(name)', "\"~~\"(name, 'a', 'b')", '"!~~"(name)', '"~~*"()'])
def test_an_operator_called_as_a_function_is_no_crash(text: str) -> None:
    with pytest.raises(QueryError):
        parsed(text)


@pytest.mark.parametrize("operator", ["LIKE", "ILIKE", "NOT LIKE", "NOT ILIKE"])
def test_a_long_pattern_is_refused(operator: str) -> None:
    assert parsed(f"name {operator} '{'_' * 1_000}'")
    with pytest.raises(QueryError, match=r"more than 1,000 characters \(character \d+\)"):
        parsed(f"name {operator} '{'_' * 1_001}'")


# what a click on a value, or a typed box, writes --------------------------------------------------------------------


@given(data=st.data(), name=NAMES, kind=st.sampled_from(sorted(KINDS)))
def test_a_filter_reads_the_value_that_was_written(data: st.DataObject, name: str, kind: str) -> None:
    value = data.draw(KINDS[kind])
    test = parsed(condition_text(name, "=", value), [field(name, kind)]).terms
    assert isinstance(test, OneTest) and test.column.path == (name,) and test.operator == "="
    assert test.value == value
    assert type(test.value) is type(value)


@pytest.mark.parametrize(
    ("name", "operator", "value", "text"),
    [
        ("a", "=", None, "a IS NULL"),
        ("a", "<>", None, "a IS NOT NULL"),
        ("a", "=", float("nan"), "a IS NAN"),
        ("a", "<>", float("nan"), "a IS NOT NAN"),
        ("date", ">=", date(2026, 1, 31), "date >= '2026-01-31'"),
        ("timestamp", "<", datetime(2026, 1, 31, tzinfo=UTC), "timestamp < '2026-01-31 00:00:00'"),
        ("order", "=", 1, '"order" = 1'),
        ("null", "=", 1, '"null" = 1'),
        ('a "b"', "<", 1, '"a ""b""" < 1'),
    ],
)
def test_a_condition_is_written_as_a_person_would(name: str, operator: str, value: Any, text: str) -> None:
    assert condition_text(name, operator, value) == text
    kind = {int: "bigint", date: "date", datetime: "timestamp"}.get(type(value), "double")
    assert parsed(text, [field(name, kind)]).terms


@pytest.mark.parametrize("value", [float("inf"), [1], {"a": 1}])
def test_what_no_filter_can_name_is_said(value: Any) -> None:
    with pytest.raises(QueryError):
        condition_text("a", "=", value)


def test_a_filter_is_narrowed_down_whatever_it_was() -> None:
    schema = [field("a", "bigint"), field("b", "string")]
    assert parse_filter(" ", schema) is None and narrowed("", "a = 1", schema) == "a = 1"
    assert isinstance(parsed(narrowed("a = 1 AND b = 'x'", "a < 5", schema), schema).terms, All)
    for text in ("a = 1 OR b = 'x'", "a = 1 OR b = 'x' -- either"):
        either = parsed(narrowed(text, "a < 5", schema), schema).terms
        assert isinstance(either, All) and isinstance(either.operands[0], AnyOf)
    assert (
        parsed(narrowed("a = 1 -- one", "b = 'x'", schema), schema).terms == parsed("a = 1 AND b = 'x'", schema).terms
    )
    with pytest.raises(QueryError):
        narrowed("a >> 1", "a = 1", schema)


@pytest.mark.parametrize("kind", [*KINDS, "struct<a:int>", "array<int>", "map<string,int>"])
def test_every_operator_that_is_offered_can_be_read(kind: str) -> None:
    value = {"bigint": 1, "double": 1.5, "decimal(38,2)": Decimal("1.5"), "string": "x%", "boolean": True,
             "binary": b"x",
             "date": date(2026, 1, 1), "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
             "timestamp_ntz": datetime(2026, 1, 1)}.get(kind)  # fmt: skip
    for operator in operators(kind):
        assert parsed(condition_text("a", operator, value), [field("a", kind)]).terms


# one that takes long --------------------------------------------------------------------------------------------------


SLOW = f"lower(text) LIKE '%{'_' * 900}b%'"  # DuckDB begins anew at each character of a megabyte: minutes


def test_an_export_that_is_cancelled_ends_its_filter(root: Path, lake: Lake) -> None:
    builders.write(root / "t", pa.table({"id": list(range(40)), "text": ["a" * 1_000_000] * 40}))
    snapshot, exports, begun = lake.snapshot(lake.find("t")), Exports(), threading.Event()
    where = parse_filter(SLOW, columns(snapshot.metadata))

    def read_files(*args: Any, **options: Any) -> pa.RecordBatchReader:
        begun.set()
        return lake.read_files(*args, **options)

    rows = exported_rows(LakeWith(lake, read_files=read_files), snapshot, ("id",), where, FORMATS["csv"])
    export = exports.take(exports.offer(rows).ticket)
    with Work(lambda: list(export.pieces()), export.stop) as work:
        assert begun.wait(60) and not work.ended(0.1)
    assert work.ended(60)
    with pytest.raises(Stopped):
        work.result()
