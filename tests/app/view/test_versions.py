"""Versions in words and figures: what can be done with one, the strip over all, and a number over some."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from app.ui.lists import list_frame
from app.ui.view.figures import TABLE_SERIES, VERSION_TICKS, Point, finding, notes, series_figure, table_points, thinned
from app.ui.view.theme import MAX_POINTS
from app.versions import text, view
from backend.lake.model import VersionTotals
from backend.lake.retention.answers import judge_version
from backend.lake.retention.runs import judge
from backend.sql.numbers import VersionValue
from tests.backend.lake.test_retention import NOW, facts


@pytest.mark.parametrize(
    ("version", "answer", "sentence"),
    [
        (20, "yes", "v20 is the latest version: readable."),
        (
            15,
            "yes, until Mon 10:30 UTC",
            "v15 can be read and restored until Mon 10:30 UTC, unless a VACUUM runs that keeps less.",
        ),
        (
            2,
            "no, since 10 Nov 2026 10:30 UTC",
            "Delta 4.1 and later refuse v2 since 10 Nov 2026 10:30 UTC. Readers without that rule may still read it.",
        ),
        (99, "no", "v99 cannot be read: there is no version 99; the latest is 20."),
    ],
)
def test_one_line_says_what_can_be_done(version: int, answer: str, sentence: str) -> None:
    judged = judge_version(judge(facts(), NOW), version)
    assert text.answer_text(judged.time_travel, "UTC", NOW) == answer
    words = text.verdict_text(judged, 20, "UTC", NOW)
    assert words.partition(" ")[2].replace("*", "").replace("\\", "") == sentence


def test_no_reason_is_given_twice() -> None:
    for version in range(21):
        answers = text.answers_once(judge_version(judge(facts(), NOW), version), "UTC", NOW)
        reasons = [line for _, _, reason in answers for line in reason.split(". ") if line]
        assert len(reasons) == len(set(reasons)) and len({label for label, _, _ in answers}) == len(answers), version


def test_a_log_full_of_holes_is_binned_and_says_so() -> None:
    holes = tuple((v, v) for v in range(0, 20_000, 2))
    found = judge(facts(latest=20_000, listed=(*holes, (20_000, 20_000)), spans=holes, checkpoints=(), times={}), NOW)
    figure = view.strip_figure(found, chosen=None)
    assert sum(len(trace.x) for trace in figure.data) <= MAX_POINTS and "mixed" in view.legend_sentence(found)
    assert all(sum(trace.x) == 20_001 for trace in figure.data)
    assert "mixed" not in view.legend_sentence(judge(facts(), NOW))
    marked = view.strip_figure(judge(facts(), NOW), chosen=3, pinned=(5, 9))
    assert [list(trace.x) for trace in marked.data if trace.type == "scatter"] == [[5, 9]], "pinned versions are seen"


# a number over versions ----------------------------------------------------------------------------------------------

START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = TABLE_SERIES["num_rows"]


def totals(count: int, *, rows: int | None = 10) -> tuple[VersionTotals, ...]:
    return tuple(
        VersionTotals(
            version=v, committed_at=START + timedelta(hours=v), operation="OPTIMIZE" if v % 50 == 7 else "WRITE",
            num_files=v, size_bytes=v * 1000, num_rows=None if rows is None else rows + v, small_files=0,
        )
        for v in range(count)
    )  # fmt: skip


def points(*values: Any) -> tuple[Point, ...]:
    return view.value_points([VersionValue(v, value) for v, value in enumerate(values)], totals(len(values)))


@pytest.mark.parametrize(
    ("values", "title"),
    [
        ([3, 5], "Rows grew from 3 to 5 over 2 versions"),
        ([3, 9, 3], "Rows: 3 again over 3 versions"),
        ([3, 3, None], "Rows stayed at 3 over 2 versions, v0 to v1"),
        ([None, 7], "Rows: 7 at v1"),
        ([None], "Rows: no value at any of 1 version"),
        ([], "Rows: no version to show"),
        ([Decimal("1204331.5"), 2], "Rows fell from 1.2 M to 2 over 2 versions"),
        ([START.date(), date(2026, 2, 1)], "Rows went from 2026-01-01 to 2026-02-01 over 2 versions"),
    ],
)
def test_the_title_is_the_finding(values: list[Any], title: str) -> None:
    assert finding(points(*values), ROWS) == title


def test_of_versions_that_were_chosen_the_ends_are_named() -> None:
    figure = series_figure(points(1, 2, 3)[1:], totals(20), ROWS)
    assert figure.layout.title.text == "Rows grew from 2 to 3 over 2 versions, v1 to v2"


def test_ten_thousand_versions_are_thinned_and_it_is_said() -> None:
    many = totals(10_000)
    drawn = table_points(many, "num_rows")
    figure = series_figure(drawn, many, ROWS, by_time=True, zone="Asia/Tokyo")
    assert sum(len(trace.x) for trace in figure.data) <= MAX_POINTS + VERSION_TICKS + 1
    assert figure.data[0].customdata[-1][0] == 9_999 and {t.name for t in figure.data[1:-1]} == {"WRITE", "OPTIMIZE"}
    assert "10,000 versions thinned" in notes(drawn, len(drawn), len(drawn))
    assert len(figure.to_json()) < 500_000


def test_unknown_values_are_gaps_with_a_reason() -> None:
    unknown = table_points(totals(3, rows=None), "num_rows")
    assert [p.value for p in unknown] == [None] * 3
    assert notes(unknown, 3, 30) == (
        "3 of 30 versions chosen, evenly spread. 3 versions without a value; v2: files lack statistics."
    )


def test_big_numbers_keep_every_digit_nothing_infinite_is_drawn_and_marks_are_of_the_chosen_versions() -> None:
    huge = 2**63 + 1
    figure = series_figure(points(huge), totals(1), ROWS, by_time=False)
    assert figure.data[0].customdata[0][2] == f"{huge:,}"
    assert list_frame(view.value_columns(ROWS), points(huge))["Value"].tolist() == [f"{huge:,}"]
    figure = series_figure(points(float("nan"), float("inf"), 1), totals(3), ROWS, by_time=False)
    assert list(figure.data[0].y) == [None, None, 1.0]
    figure = series_figure(points(1, 2, 3)[1:], totals(20), ROWS, by_time=False)
    assert [x for trace in figure.data[1:] for x in trace.x] == [1, 2]


def test_thinning_keeps_the_peak_the_last_and_the_only_known_value() -> None:
    spiked: list[float | None] = [float(number) for number in range(5_000)]
    spiked[2_345] = 1e6
    kept = thinned(spiked, 1_000)
    assert len(kept) <= 1_000 and {0, 2_345, 4_999} <= set(kept)
    gaps: list[float | None] = [None] * 3_000
    gaps[1_234] = 7.0
    kept = thinned(gaps, 100)
    assert len(kept) <= 100 and 1_234 in kept and thinned(gaps[:50], 100) == list(range(50))
