"""The summary's figures with their trend."""

from datetime import timedelta

from app.summary.view import summary as table
from backend.lake.model import Timeline, VersionTotals
from tests.unit.app.made import NOW


def test_the_trend_compares_with_a_day_before() -> None:
    old = VersionTotals(0, NOW - timedelta(hours=30), "WRITE", 1, 10, 5, 0)
    new = VersionTotals(1, NOW, "WRITE", 2, 20, 12, 0)
    assert table.trend(Timeline((old, new), 0), "num_rows", NOW).change == 7
    assert table.trend(Timeline((new,), 1), "num_rows", NOW).change is None
