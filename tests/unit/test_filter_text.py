"""Conditions that a click or a typed box writes: a filter finds just the value that was given."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.errors import FilterError
from backend.lake.model import SchemaField
from backend.lake.rows.filter_text import condition, joined, operators
from backend.lake.rows.filters import All, AnyOf, Not, parse_filter
from backend.lake.rows.filters import Test as OneTest

KINDS: dict[str, st.SearchStrategy[Any]] = {
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "decimal(38,2)": st.decimals(-(10**30), 10**30, places=2),
    "string": st.text(),
    "boolean": st.booleans(),
    "binary": st.binary(),
    "date": st.dates(),
    "timestamp": st.datetimes(
        timezones=st.sampled_from([UTC, timezone(timedelta(hours=2))]), min_value=datetime(2, 1, 1)
    ),
    "timestamp_ntz": st.datetimes(),
}


def field(name: str, kind: str) -> SchemaField:
    return SchemaField(name, kind, nullable=True, comment=None, is_partition=False, depth=0)


@given(data=st.data(), name=st.text(min_size=1), kind=st.sampled_from(sorted(KINDS)))
def test_a_filter_reads_the_value_that_was_written(data: st.DataObject, name: str, kind: str) -> None:
    value = data.draw(KINDS[kind])
    found = parse_filter(condition(name, "=", value), [field(name, kind)])
    assert isinstance(found, OneTest) and found.column.path == (name,) and found.operator == "="
    assert found.value == value
    assert type(found.value) is type(value)


def test_null_and_nan_are_asked_for_by_name() -> None:
    assert condition("a", "=", None) == "a IS NULL" and condition("a", "<>", None) == "a IS NOT NULL"
    assert condition("a", "=", float("nan")) == "a IS NAN" and condition("a", "<>", float("nan")) == "a IS NOT NAN"
    assert isinstance(parse_filter(condition("a", "<>", float("nan")), [field("a", "double")]), Not)


@pytest.mark.parametrize("value", [float("inf"), [1], {"a": 1}])
def test_what_no_filter_can_name_is_said(value: Any) -> None:
    with pytest.raises(FilterError):
        condition("a", "=", value)


def test_names_that_are_words_or_odd_are_quoted() -> None:
    assert condition("order", "=", 1) == "order = 1"
    assert condition("null", "=", 1) == '"null" = 1' and condition('a "b"', "<", date(2026, 1, 31)).startswith(
        '"a ""b""" <'
    )


def test_a_filter_is_narrowed_down_whatever_it_was() -> None:
    schema = [field("a", "bigint"), field("b", "string")]
    assert joined("", "a = 1", schema) == "a = 1"
    assert isinstance(parse_filter(joined("a = 1 AND b = 'x'", "a < 5", schema), schema), All)
    either = parse_filter(joined("a = 1 OR b = 'x'", "a < 5", schema), schema)
    assert isinstance(either, All) and isinstance(either.operands[0], AnyOf)
    with pytest.raises(FilterError):
        joined("a >> 1", "a = 1", schema)


@pytest.mark.parametrize("kind", [*KINDS, "struct<a:int>", "array<int>", "map<string,int>"])
def test_every_operator_that_is_offered_can_be_read(kind: str) -> None:
    value = {"bigint": 1, "double": 1.5, "decimal(38,2)": Decimal("1.5"), "string": "x%", "boolean": True,
             "binary": b"x",
             "date": date(2026, 1, 1), "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
             "timestamp_ntz": datetime(2026, 1, 1)}.get(kind)  # fmt: skip
    for operator in operators(kind):
        assert parse_filter(condition("a", operator, value), [field("a", kind)]) is not None
