"""How often a table is written, and when that is late, against gaps counted by hand."""

from datetime import UTC, datetime, timedelta

from backend.lake.history.unusual import rhythm, silences

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def test_a_table_is_late_against_its_own_gaps() -> None:
    moments = [NOW - timedelta(seconds=12 * number + 4) for number in range(20)]
    found = rhythm(moments, NOW)
    assert found is not None and (found.gap_s, found.since_s, found.is_late) == (12.0, 4.0, False)
    late = rhythm(moments, NOW + timedelta(minutes=5))
    assert late is not None and late.is_late
    nightly = rhythm([NOW - timedelta(days=n) for n in range(1, 9)], NOW)
    assert nightly is not None and nightly.gap_s == 86_400 and not nightly.is_late
    weekend = [NOW - timedelta(days=n) for n in (0, 3, 4, 5, 6, 7, 10)]  # a pause as long as one before is not late
    assert not rhythm(weekend, NOW + timedelta(days=3)).is_late  # type: ignore[union-attr]
    assert rhythm([NOW, None, None, None], NOW) is None
    burst = [NOW - timedelta(milliseconds=20 * number) for number in range(20)]
    assert rhythm(burst, NOW + timedelta(days=1)) is None


def test_silence_is_told_after_an_hour_and_five_times_the_longest_gap_before() -> None:
    def at(*minutes: int) -> list[datetime]:
        return [NOW + timedelta(minutes=minute) for minute in minutes]

    regular = at(*range(0, 200, 10))  # the last at 190
    assert silences(regular, NOW + timedelta(minutes=250)) == []
    assert silences(regular, NOW + timedelta(minutes=251)) == [(19, NOW + timedelta(minutes=250))]
    paused = [*regular, *at(230)]  # a gap of 40 minutes: 200 are needed now
    assert silences(paused, NOW + timedelta(minutes=430)) == []
    assert silences(paused, NOW + timedelta(minutes=431)) == [(20, NOW + timedelta(minutes=430))]
    ended = [*regular, *at(300)]  # 110 minutes: told at 250, over at 300, and more than that is needed from now on
    assert silences(ended, NOW + timedelta(minutes=800)) == [(19, NOW + timedelta(minutes=250))]
    assert silences(at(0), NOW + timedelta(days=9)) == [] == silences([], NOW)
