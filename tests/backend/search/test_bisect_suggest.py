"""Suggested conditions hold at the good end and not at the bad one; what always grows suggests nothing."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from backend.lake.files.stats import ColumnTotals, StatKind
from backend.search.notice import Measure
from backend.search.suggest import Held, suggest
from backend.sql.expression import sql_name


def held(name: str, kind: StatKind, bounds: Sequence[tuple[Any, Any]], nulls: Sequence[int] = ()) -> list[Held]:
    counts = nulls or [0] * len(bounds)
    return [
        Held(
            version,
            100 * (version + 1),
            {name: ColumnTotals(name, "", kind, False, 1, low, high, nulls=count, rows_with_nulls=100)},
        )
        for version, ((low, high), count) in enumerate(zip(bounds, counts, strict=True))
    ]


def test_a_jump_of_the_highest_value_suggests_a_bound_between() -> None:
    (found,) = suggest(held("amount", StatKind.FLOAT, [(1.0, 1_990.0), (1.0, 1_998.4), (1.0, 1_284_900.0)]))

    assert (found.condition, found.measure, found.last, found.first) == ("amount <= 2200", Measure.HIGHEST, 1, 2)
    assert (found.before, found.after) == (1_998.4, 1_284_900.0)


def test_a_lowest_value_that_turned_negative_suggests_zero() -> None:
    (found,) = suggest(held("amount", StatKind.DECIMAL, [(Decimal(1), Decimal(90)), (Decimal(-3), Decimal(90))]))

    assert (found.condition, found.measure) == ("amount >= 0", Measure.LOWEST)


@pytest.mark.parametrize("kind", [StatKind.INTEGER, StatKind.TIMESTAMP])
def test_what_grows_with_every_commit_suggests_nothing(kind: StatKind) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    values = [100 * number if kind is StatKind.INTEGER else start + timedelta(hours=number) for number in range(1, 12)]

    assert suggest(held("grows", kind, [(values[0], value) for value in values])) == ()


def test_what_was_mended_before_the_bad_end_suggests_nothing() -> None:
    assert suggest(held("amount", StatKind.FLOAT, [(1.0, 10.0), (1.0, 900.0), (1.0, 10.0)])) == ()


def test_a_column_that_was_made_anew_with_another_type_has_not_jumped() -> None:
    numbers, days = [(1, 90), (1, 91)], [(date(2026, 1, 1), date(2026, 1, 11)), (date(2026, 1, 1), date(2026, 1, 12))]
    was, became = held("c", StatKind.INTEGER, numbers), held("c", StatKind.DATE, days)
    assert suggest([*was, *(replace(each, version=each.version + 2, num_rows=200) for each in became)]) == ()
    (found,) = suggest([*was, *held("c", StatKind.FLOAT, [(1.0, 9e5)])])  # numbers stay numbers
    assert found.condition == "c <= 100"


def test_a_day_far_ahead_suggests_a_day_between() -> None:
    first, far = date(2026, 1, 1), date(2206, 5, 1)
    (found,) = suggest(
        held("day", StatKind.DATE, [(first, date(2026, 1, 11)), (first, date(2026, 1, 12)), (first, far)])
    )

    assert found.condition == "day <= DATE '2026-01-14'"


def test_nulls_that_came_suggest_none_or_as_few_as_before() -> None:
    bounds = [("a", "b")] * 3
    (none,) = suggest(held("email", StatKind.STRING, bounds, (0, 0, 31)))
    (few,) = suggest(held("email", StatKind.STRING, bounds, (1, 1, 31)))

    assert none.condition == "email IS NOT NULL"
    assert (few.condition, few.before, few.after) == ("count(email) >= 0.84 * count(*)", 0.01, 0.31)


def test_nulls_that_come_with_each_version_since_one_suggest_none() -> None:
    shares = (0, 0, 0, 0, 0, 6, 11, 16, 20)
    (none,) = suggest(held("email", StatKind.STRING, [("a", "b")] * len(shares), shares))
    assert (none.condition, none.last, none.first, none.after) == ("email IS NOT NULL", 4, 5, 0.06)
    assert suggest(held("email", StatKind.STRING, [("a", "b")] * 6, (0, 0, 6, 11, 16, 20))) == ()


def test_rows_that_went_suggest_as_many_as_before() -> None:
    states = [Held(version, rows, {}) for version, rows in enumerate((1_000, 1_100, 400))]

    (found,) = suggest(states)

    assert found.condition == "count(*) >= 900" and (found.before, found.after) == (1_100, 400)


def test_a_name_is_quoted_only_where_it_must_be() -> None:
    assert [sql_name(name) for name in ("amount", "odd name", "order", "a\"b")] == [
        "amount", '"odd name"', '"order"', '"a""b"',
    ]  # fmt: skip
