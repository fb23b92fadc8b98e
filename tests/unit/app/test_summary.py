"""The summary's figures with their trend."""

from datetime import timedelta

from app.summary.view import summary as table
from backend.lake.model import Timeline, VersionTotals
from tests.unit.app.made import NOW, snapshot


def test_the_trend_compares_with_a_day_before() -> None:
    old = VersionTotals(0, NOW - timedelta(hours=30), "WRITE", 1, 10, 5, 0)
    new = VersionTotals(1, NOW, "WRITE", 2, 20, 12, 0)
    assert table.trend(Timeline((old, new), 0), "num_rows", NOW).change == 7
    assert table.trend(Timeline((new,), 1), "num_rows", NOW).change is None


def test_figures_say_what_changed_with_a_sign_that_streamlit_reads() -> None:
    old = VersionTotals(0, NOW - timedelta(hours=30), "WRITE", 9, 10, 5, 0)
    new = VersionTotals(1, NOW, "WRITE", 2, 2_000_010, 5, 0)
    figures = table.key_figures(snapshot([10, 20]), 2, Timeline((old, new), 0), NOW)
    assert [figure.change for figure in figures] == [0, "-7", "+2 MB", 0]
    assert [figure.trend for figure in figures][1] == (9, 2)
    still = table.key_figures(snapshot([10, 20]), 0, None, NOW)
    assert [(figure.value, figure.change) for figure in still] == [
        ("10", None),
        ("2", None),
        ("30 B", None),
        ("0 %", None),
    ]
