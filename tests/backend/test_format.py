"""Numbers and times as people read them; and times as they say them, against clocks walked back by minutes."""

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from backend import format as f
from backend.errors import VersionFormatError
from backend.times import Clock, parse_time

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text_of", "values"),
    [
        (f.bytes_text, {None: "–", 0: "0 B", 999: "999 B", 1000: "1 kB", 1204: "1.2 kB", 38_214_551: "38.2 MB"}),
        (f.bytes_text, {999_499: "999 kB", 999_950: "1 MB", 128_000_000: "128 MB", 10**21: "1000 EB"}),
        (f.count_text, {None: "–", 0: "0", 1204: "1,204", 99_999: "99,999", 1_111_930: "1.11 M", -5: "-5"}),
        (f.count_text, {0.25: "0.25", 1456.4: "1,456"}),
        (f.percent, {None: "–", 0: "0 %", 0.003: "0.3 %", 0.92: "92 %", 1: "100 %"}),
        (f.percent, {0.0001: "< 0.1 %", 0.9997: "> 99.9 %"}),  # never none or all
        (f.duration_text, {None: "–", 0: "0 s", 0.85: "850 ms", 2.4: "2.4 s", 59.96: "1 min", 130: "2 min 10 s"}),
        (f.duration_text, {7800: "2 h 10 min", 3600: "1 h", 273_600: "3 d 4 h", -130: "−2 min 10 s"}),
        (f.span_text, {-3: "0 s", 0.42: "0.4 s", 9.96: "10 s", 59.9: "1 min", 7_800: "2 h 10 min", 300_000: "3 d"}),
        (f.signed, {None: "–", 0: "±0", 1204: "+1,204", -3: "−3"}),
        (f.signed_bytes, {-38_214_551: "−38.2 MB"}),
    ],
)
def test_sizes_counts_shares_and_durations(
    text_of: Callable[[float | None], str], values: dict[float | None, str]
) -> None:
    assert {value: text_of(value) for value in values} == values


def test_a_moment_is_relative_and_exact() -> None:
    moment = NOON - timedelta(hours=2, minutes=10)
    assert f.ago(moment, NOON) == "2 h 10 min ago"
    assert f.ago(NOON, NOON) == "just now"
    assert f.ago(None, NOON) == "–"
    assert f.ago(NOON + timedelta(minutes=5), NOON) == "in 5 min"  # a clock that is ahead is shown, not hidden
    assert f.moment_help(moment, "Europe/Berlin") == "2026-11-20 09:50:00 UTC · 2026-11-20 10:50:00 CET"
    assert f.moment_help(moment, "Mars/Olympus") == "2026-11-20 09:50:00 UTC"


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
    root = Path(f.__file__).parents[1]
    tops = ("app", "backend/health", "backend/jobs", "backend/streams")
    files = [path for top in tops for path in (root / top).rglob("*.py") if path.name != "figures.py"]
    found = [(path, line) for path in files for line in path.read_text().splitlines() if own.search(line)]
    assert len(files) > 100 and not found


MINUTE = timedelta(minutes=1)
NOW = datetime(2026, 11, 26, 18, 5, 30, tzinfo=UTC)  # a Thursday
BERLIN = ZoneInfo("Europe/Berlin")
# Each with a moment shortly after its clocks went forward, back, and one far from both.
ZONES = {
    "Europe/Berlin": ("2026-03-29T01:20", "2026-10-25T01:20", "2026-10-25T00:40", "2026-07-01T22:30"),
    "America/New_York": ("2026-03-08T07:10", "2026-11-01T06:15", "2026-11-01T05:45", "2026-01-01T04:59"),
    "Australia/Lord_Howe": ("2026-10-03T15:40", "2026-04-04T15:10", "2026-04-04T14:50"),  # by half an hour
    "America/Santiago": ("2026-09-06T04:30", "2026-04-05T03:30", "2026-04-05T02:30"),  # at midnight
    "Asia/Kathmandu": ("2026-05-05T18:20",),
    "UTC": ("2026-02-28T00:00", "2028-02-29T23:59"),
}
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def parsed(text: str, now: datetime = NOW, zone: ZoneInfo | None = BERLIN, *, end_of_day: bool = False) -> str:
    moment = parse_time(text, Clock(now, zone), end_of_day=end_of_day)
    assert moment.utcoffset() == timedelta()
    return moment.isoformat().removesuffix("+00:00")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2 h ago", "2026-11-26T16:05:30"),
        ("3 days ago", "2026-11-23T18:05:30"),
        ("2 h 10 min ago", "2026-11-26T15:55:30"),  # as pages say it
        ("1.5 hours ago", "2026-11-26T16:35:30"),
        ("90s", "2026-11-26T18:04:00"),
        ("2W", "2026-11-12T18:05:30"),
        ("5 m", "2026-11-26T18:00:30"),
        ("today", "2026-11-25T23:00:00"),
        ("Yesterday", "2026-11-24T23:00:00"),
        ("yesterday 14:30", "2026-11-25T13:30:00"),
        ("yesterday at 14:30:15", "2026-11-25T13:30:15"),
        ("yesterday, 14:30 UTC", "2026-11-25T14:30:00"),
        ("14:30", "2026-11-26T13:30:00"),
        ("19:05", "2026-11-26T18:05:00"),
        ("19:06", "2026-11-25T18:06:00"),
        ("18:30Z", "2026-11-25T18:30:00"),
        ("Monday 09:00", "2026-11-23T08:00:00"),
        ("mon", "2026-11-22T23:00:00"),
        ("Thursday 09:00", "2026-11-26T08:00:00"),
        ("Thursday 21:00", "2026-11-19T20:00:00"),
        ("friday", "2026-11-19T23:00:00"),
        ("2026-11-20", "2026-11-20T00:00:00"),
        ("2026-11-20 10:04:31 UTC", "2026-11-20T10:04:31"),
        ("2026-11-20T12:00+02:00", "2026-11-20T10:00:00"),
        (" 2031-01-01 ", "2031-01-01T00:00:00"),
    ],
)
def test_what_people_say(text: str, moment: str) -> None:
    assert parsed(text) == moment


def test_a_day_ends_where_the_next_begins() -> None:
    for text, moment in {
        "yesterday": "2026-11-25T22:59:59.999999",
        "today": "2026-11-26T22:59:59.999999",
        "Monday": "2026-11-23T22:59:59.999999",
        "2026-11-20": "2026-11-20T23:59:59.999999",
        "yesterday 14:30": "2026-11-25T13:30:00",
        "2 d ago": "2026-11-24T18:05:30",
    }.items():
        assert parsed(text, end_of_day=True) == moment


@pytest.mark.parametrize(
    "text",
    [
        *("", ",", "soon", "tomorrow", "in 2 h", "mo 09:00", "last week", "Monday 9", "25:00", "14:60", "2 months ago"),
        *("3", "2026", "ago", "2 h ago ago", "noon", "2026-13-01", "200000 w", "900000 d", "Mondays", "14:30 CET"),
    ],
)
def test_what_is_no_time_is_refused_with_the_forms_that_are(text: str) -> None:
    with pytest.raises(VersionFormatError, match="not a time") as caught:
        parsed(text)
    assert "`Monday 09:00`" in caught.value.hint and "2 h ago" in caught.value.hint


def test_a_time_of_today_that_has_yet_to_come_is_refused() -> None:
    with pytest.raises(VersionFormatError, match="today 19:06 has yet to come"):
        parsed("today 19:06")


@pytest.mark.parametrize(("zone", "now"), [(zone, now) for zone, nows in ZONES.items() for now in nows])
def test_the_last_time_that_a_clock_showed_it(zone: str, now: str) -> None:
    """Every quarter of an hour, alone and with each weekday, by walking back until a clock in that zone shows it."""
    here, start = ZoneInfo(zone), datetime.fromisoformat(now).replace(tzinfo=UTC)
    last: dict[tuple[str, str], datetime] = {}  # by day or none, and clock
    shown: dict[str, set[str]] = {}
    for back in range(9 * 24 * 60):
        moment = start - back * MINUTE
        local = moment.astimezone(here)
        clock = f"{local:%H:%M}"
        shown.setdefault(f"{local:%Y-%m-%d}", set()).add(clock)
        for day in ("", DAYS[local.weekday()]):
            last.setdefault((day, clock), moment)
    today, *whole_days, _ = shown.values()
    for clock in (f"{hour:02}:{minute:02}" for hour in range(24) for minute in range(0, 60, 15)):
        if all(clock in day for day in whole_days) and (clock in today or clock > max(today)):  # no day skipped it
            for day in ("", *DAYS):
                assert parse_time(f"{day} {clock}", Clock(start, here)) == last[day, clock], (day, clock)


def test_nights_that_skip_or_repeat_an_hour() -> None:
    for text, now, moment in (
        ("02:30", "2026-03-29T06:00", "2026-03-29T01:30:00"),  # 03:30 of summer: an hour after 02:30 was skipped
        ("yesterday 02:30", "2026-03-30T06:00", "2026-03-29T01:30:00"),
        ("02:30", "2026-03-29T01:10", "2026-03-28T01:30:00"),  # not yet as much later
        ("02:30", "2026-10-25T06:00", "2026-10-25T01:30:00"),  # twice: the later one
        ("02:30", "2026-10-25T01:10", "2026-10-25T00:30:00"),  # which has yet to come
    ):
        assert parsed(text, datetime.fromisoformat(now).replace(tzinfo=UTC)) == moment


@pytest.mark.parametrize("zone", ZONES)
def test_no_zone_is_that_of_the_process(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        with monkeypatch.context() as patch:
            patch.setenv("TZ", zone)
            time.tzset()
            for now in ZONES[zone]:
                start = datetime.fromisoformat(now).replace(tzinfo=UTC)
                for text in ("today", "yesterday 02:15", "sunday 02:30", *(f"{hour}:45" for hour in range(24))):
                    assert parsed(text, start, None) == parsed(text, start, ZoneInfo(zone)), (now, text)
    finally:
        time.tzset()
