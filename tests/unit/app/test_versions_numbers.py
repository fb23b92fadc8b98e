"""A number over versions: its title, its points, what it leaves out."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from app.ui.view.theme import MAX_POINTS
from app.versions.view import numbers as view
from backend.lake.model import VersionTotals
from backend.sql.numbers import VersionValue

START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = view.TABLE_NUMBERS["Rows"][1]


def totals(count: int, *, rows: int | None = 10) -> list[VersionTotals]:
    return [
        VersionTotals(
            version=v, committed_at=START + timedelta(hours=v), operation="OPTIMIZE" if v % 50 == 7 else "WRITE",
            num_files=v, size_bytes=v * 1000, num_rows=None if rows is None else rows + v, small_files=0,
        )
        for v in range(count)
    ]  # fmt: skip


def points(*values: Any) -> list[view.Point]:
    return view.value_points([VersionValue(v, value) for v, value in enumerate(values)], totals(len(values)))


@pytest.mark.parametrize(
    ("values", "title"),
    [
        ([3, 5], "Rows: 3 to 5 over 2 versions, v0 to v1"),
        ([3, 9, 3], "Rows is again 3 over 3 versions, v0 to v2"),
        ([3, 3], "Rows stayed at 3 over 2 versions, v0 to v1"),
        ([None, 7], "Rows: 7 at v1"),
        ([None], "Rows: no value at any of 1 version"),
        ([Decimal("1204331.5"), 2], "Rows: 1.2 M to 2 over 2 versions, v0 to v1"),
    ],
)
def test_the_title_is_the_finding(values: list[Any], title: str) -> None:
    assert view.finding(points(*values), ROWS) == title


def test_what_is_no_number_is_not_drawn() -> None:
    assert view.can_be_drawn(points(1, 2.5, Decimal(3), None))
    assert view.can_be_drawn(points(START, START))
    assert not view.can_be_drawn(points("a", 1)) and not view.can_be_drawn(points(True)) and not view.can_be_drawn([])
    assert not view.can_be_drawn(points(START, 1))


def test_big_numbers_keep_every_digit_in_hover_and_list() -> None:
    huge = 2**63 + 1
    figure = view.number_figure(points(huge), totals(1), ROWS, by_time=False)
    assert figure.data[0].customdata[0][2] == f"{huge:,}"
    assert view.value_frame(points(huge), ROWS)["Value"].tolist() == [f"{huge:,}"]


def test_ten_thousand_versions_are_thinned_and_it_is_said() -> None:
    many = totals(10_000)
    drawn = view.table_points(many, "Rows")
    figure = view.number_figure(drawn, many, ROWS, by_time=True, zone="Asia/Tokyo")
    assert sum(len(trace.x) for trace in figure.data) <= MAX_POINTS
    assert figure.data[0].customdata[-1][0] == 9_999 and {t.name for t in figure.data[1:]} == {"WRITE", "OPTIMIZE"}
    assert "10,000 versions thinned" in view.notes(drawn, len(drawn), len(drawn))
    assert len(figure.to_json()) < 500_000


def test_operations_are_marked_between_the_chosen_versions_alone() -> None:
    figure = view.number_figure(points(1, 2, 3)[1:], totals(20), ROWS, by_time=False)
    assert [x for trace in figure.data[1:] for x in trace.x] == [1, 2]


def test_unknown_values_are_gaps_with_a_reason() -> None:
    unknown = view.table_points(totals(3, rows=None), "Rows")
    assert [p.value for p in unknown] == [None] * 3
    assert view.notes(unknown, 3, 30) == (
        "3 of 30 versions chosen, evenly spread. 3 versions without a value; v2: files lack statistics."
    )


def test_nothing_infinite_reaches_the_figure() -> None:
    figure = view.number_figure(points(float("nan"), float("inf"), 1), totals(3), ROWS, by_time=False)
    assert list(figure.data[0].y) == [None, None, 1.0]
