"""Health as figures and lists, against naive recounts."""

from datetime import UTC, datetime, timedelta

import pytest

from app.health.view import (
    UnjudgedTable,
    build_lake_frame,
    build_offender_frame,
    build_trend_figure,
    by_urgency,
    lake_sentence,
    log_sentence,
    trend_finding,
)
from backend.health.model import (
    LogState,
    MaintenanceRun,
    Offender,
    Recommendation,
    Severity,
    SmallFileRule,
    TableHealth,
    TrendPoint,
)
from backend.lake.model import TableRef

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
RULE = SmallFileRule(1_000, "table size", 0.5, 500, 16, "A file is small below 500 B.")


def health(name: str, severity: Severity, *, files: int = 40, small: int = 30) -> TableHealth:
    points = tuple(
        TrendPoint(v, NOW - timedelta(minutes=10 - v), "OPTIMIZE" if v == 3 else "WRITE", v + 1, 0 if v == 3 else v)
        for v in range(5)
    )
    return TableHealth(
        ref=TableRef(f"/lake/{name}", name, "/lake"),
        version=4,
        num_files=files,
        size_bytes=10_000,
        small_files=small,
        rule=RULE,
        trend=points,
        trend_truncated=False,
        offenders=(Offender("stream", "s", 3, 6, 600), Offender("engine", "e", 9, 9, 90)),
        last_optimize=MaintenanceRun(3, NOW - timedelta(minutes=7)),
        last_vacuum=None,
        log=LogState(0, 4, NOW - timedelta(hours=2), None, None, 10),
        recommendations=(Recommendation("small files", severity, "Too many.", "OPTIMIZE."),),
    )


def test_the_sentence_counts_every_table_once() -> None:
    healths = [health("a", Severity.WARNING), health("b", Severity.FINE, small=0), health("c", Severity.NOTE, small=1)]

    said = lake_sentence(healths, [UnjudgedTable("d", "broken")])

    assert said == (
        "4 tables: 1 needs maintenance, 1 with a note, 1 in order, 1 could not be read · 31 small files of 120"
    )


def test_urgent_tables_come_first_then_those_with_most_small_files() -> None:
    healths = [
        health("a", Severity.FINE),
        health("b", Severity.WARNING, small=2),
        health("c", Severity.WARNING, small=9),
    ]

    assert [each.ref.name for each in by_urgency(healths)] == ["c", "b", "a"]


def test_an_unjudged_table_has_a_row_with_its_reason_and_no_numbers() -> None:
    frame = build_lake_frame([health("a", Severity.NOTE)], [UnjudgedTable("d", "broken")], now=NOW).set_index("Table")

    assert frame.loc["a", "Small share"] == pytest.approx(30 / 40)
    assert frame.loc["a", "Last OPTIMIZE"] == pytest.approx(7 * 60)
    assert frame.loc["d", "Finding"] == "broken"
    assert frame.isna().loc["d", ["Small share", "Small files", "Files", "Size", "Last VACUUM"]].all()


def test_the_trend_draws_each_version_and_marks_optimize() -> None:
    figure = build_trend_figure(health("a", Severity.WARNING))

    lines = {trace.name: list(trace.y) for trace in figure.data}
    assert lines["all files"] == [1, 2, 3, 4, 5]
    assert lines["small files"] == [0, 1, 2, 0, 4]
    assert lines["share"] == pytest.approx([0, 1 / 2, 2 / 3, 0, 4 / 5])
    marked = next(trace for trace in figure.data if "OPTIMIZE" in trace.name)
    assert list(marked.x) == [3]


def test_the_title_of_the_trend_is_its_finding() -> None:
    assert trend_finding(health("a", Severity.FINE)) == "Small files: 80 % of 5 files at v4, 0 % at v0"


def test_offenders_are_listed_worst_first() -> None:
    frame = build_offender_frame(health("a", Severity.FINE).offenders)

    assert list(frame["Name"]) == ["e", "s"]
    assert list(frame["Average file"]) == [10, 100]


def test_the_log_sentence_says_reach_and_checkpoint() -> None:
    said = log_sentence(health("a", Severity.FINE), now=NOW)

    assert said == "The log holds 5 versions over 2 h, since 2026-11-20 10:00:00 UTC; it has no checkpoint."
