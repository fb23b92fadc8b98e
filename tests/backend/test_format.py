"""Numbers and times as people read them."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from backend import format as f

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "–"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1204, "1.2 kB"),
        (38_214_551, "38.2 MB"),
        (999_499, "999 kB"),
        (999_950, "1 MB"),  # never "1000 kB"
        (128_000_000, "128 MB"),
        (10**21, "1000 EB"),
    ],
)
def test_sizes_are_1000_based_with_three_digits(size: int | None, text: str) -> None:
    assert f.bytes_text(size) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "–"),
        (0, "0"),
        (1204, "1,204"),
        (99_999, "99,999"),
        (1_111_930, "1.11 M"),
        (-5, "-5"),
        (0.25, "0.25"),
        (1456.4, "1,456"),
    ],
)
def test_counts_are_grouped_and_rounded_only_when_big(count: float | None, text: str) -> None:
    assert f.count_text(count) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (None, "–"),
        (0, "0 %"),
        (0.0001, "< 0.1 %"),
        (0.003, "0.3 %"),
        (0.92, "92 %"),
        (0.9997, "> 99.9 %"),
        (1, "100 %"),
    ],
)
def test_a_share_never_rounds_to_none_or_all(share: float | None, text: str) -> None:
    assert f.percent(share) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0 s"),
        (0.85, "850 ms"),
        (2.4, "2.4 s"),
        (59.96, "1 min"),
        (130, "2 min 10 s"),
        (7800, "2 h 10 min"),
        (3600, "1 h"),
        (273_600, "3 d 4 h"),
        (-130, "−2 min 10 s"),
    ],
)
def test_durations_have_their_two_largest_units(seconds: float | None, text: str) -> None:
    assert f.duration_text(seconds) == text


def test_a_moment_is_relative_and_exact() -> None:
    moment = NOW - timedelta(hours=2, minutes=10)
    assert f.ago(moment, NOW) == "2 h 10 min ago"
    assert f.ago(NOW, NOW) == "just now"
    assert f.ago(None, NOW) == "–"
    assert f.ago(NOW + timedelta(minutes=5), NOW) == "in 5 min"  # a clock that is ahead is shown, not hidden
    assert f.moment_help(moment, "Europe/Berlin") == "2026-11-20 09:50:00 UTC · 2026-11-20 10:50:00 CET"
    assert f.moment_help(moment, "Mars/Olympus") == "2026-11-20 09:50:00 UTC"


def test_an_age_is_the_same_from_a_moment_and_in_a_list() -> None:
    for seconds in (0, 0.4, 4.2, 59.6, 7_800, 300_000, -0.5, -90):
        assert f.ago_text(seconds) == f.ago(NOW - timedelta(seconds=seconds), NOW)
        assert f.ago_short_text(seconds) == f.ago_short(NOW - timedelta(seconds=seconds), NOW)
    assert [f.ago_text(s) for s in (0.4, 4.2, -90)] == ["just now", "4 s ago", "in 1 min 30 s"]
    assert [f.ago_short_text(s) for s in (0.4, 4.2, 7_800)] == ["just now", "4 s ago", "2 h ago"]


def test_a_moment_of_a_sentence_is_on_the_viewers_clock() -> None:
    now = datetime(2026, 11, 4, 10, 30, tzinfo=UTC)
    assert f.clock_text(now - timedelta(days=3), "Asia/Tokyo", now) == "1 Nov 2026 19:30"
    assert f.clock_text(now - timedelta(days=3), "no/zone", now).startswith("1 Nov 2026 10:30")
    assert f.clock_text(now + timedelta(days=1), None, now) == "Thu 10:30 UTC"


def test_a_timestamp_of_a_row_is_exact_and_in_utc() -> None:
    tokyo = datetime(2026, 1, 2, 12, 4, 5, 500_000, ZoneInfo("Asia/Tokyo"))
    assert f.datetime_text(tokyo) == "2026-01-02 03:04:05.5 UTC" == f.value_text(tokyo)
    assert f.datetime_text(datetime(2026, 1, 2)) == "2026-01-02 00:00:00"


def test_moments_and_ages_are_written_by_these_functions_alone() -> None:
    """What writes a time of its own is for a machine: SQL, a figure's axis, a name of a file."""
    own = re.compile(r"strftime|:%[a-zA-Z]|\.isoformat\(|\} s ago|\} (days|hours|minutes|seconds)\b")
    for_machines = {"snippets.py", "figures.py", "figure_json.py", "axes.py"}
    root = Path(f.__file__).parents[1]
    files = [
        path
        for top in ("app", "backend/health", "backend/jobs", "backend/streams")
        for path in sorted((root / top).rglob("*.py"))
    ]
    found = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in files
        if path.name not in for_machines
        for line in path.read_text().splitlines()
        if own.search(line)
    ]
    assert len(files) > 100 and not found


def test_changes_carry_their_sign() -> None:
    assert [f.signed(n) for n in (None, 0, 1204, -3)] == ["–", "±0", "+1,204", "−3"]
    assert f.signed_bytes(-38_214_551) == "−38.2 MB"
