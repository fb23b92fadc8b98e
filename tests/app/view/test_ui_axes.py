"""Axes: whole ticks for counts and versions, no milliseconds, small numbers as they are."""

from datetime import UTC, datetime, timedelta

import pytest

from app.ui.view import axes

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(("values", "ends"), [([], 1.08), ([None, 0], 1.08), ([1, 0], 1.08), ([5, None], 5.4)])
def test_a_few_things_are_counted_one_by_one(values: list[int | None], ends: float) -> None:
    found = axes.count_axis(values)
    assert found["dtick"] == 1 and found["range"] == [0, pytest.approx(ends)]


def test_many_things_are_rounded_and_begin_at_zero() -> None:
    assert axes.count_axis([6, 2_000]) == {"tickformat": "~s", "exponentformat": "SI", "rangemode": "tozero"}


def test_small_values_are_not_written_with_milli() -> None:
    assert axes.value_axis([0.003, None]) == {"exponentformat": "none"}
    assert axes.value_axis([0.5, -1_000])["tickformat"] == "~s"


def test_versions_are_whole() -> None:
    assert axes.version_axis(0, 0)["dtick"] == 1 and axes.version_axis(0, 0)["range"] == [-0.5, 0.5]
    assert "dtick" not in axes.version_axis(3, 300)


def test_moments_close_together_get_a_minute() -> None:
    assert axes.time_range([NOON]) == [NOON - timedelta(seconds=30), NOON + timedelta(seconds=30)]
    assert axes.time_range([NOON, NOON + timedelta(seconds=2)]) is None and axes.time_range([]) is None
