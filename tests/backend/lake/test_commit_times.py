"""Which version held at a time: Delta's rule, whatever the writers' clocks said, for every one who asks."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from backend.changes.versions import resolve_version
from backend.errors import VersionNotFoundError
from backend.lake.lake import Lake
from backend.times import Clock
from tests.app.cli.test_commands import Weir, home, weir
from tests.worlds.lake import builders

__all__ = ["home", "weir"]
T0, HOUR = 1_750_000_000_000, 3_600_000
LATE = (0, 3, 1, 4)  # hours: the clock behind v2 is two hours late
START = datetime.fromtimestamp(T0 / 1000, UTC)


def table(path: Path, hours: tuple[float, ...], *, reported: tuple[float, ...] | None = None) -> builders.HandLog:
    """One commit for each file time; `reported`: what the writers' own clocks said."""
    log = builders.HandLog(path)
    for version, (hour, said) in enumerate(zip(hours, reported or hours, strict=True)):
        first = [builders.protocol(), builders.metadata()] if version == 0 else []
        log.commit(*first, builders.commit_info(timestamp=T0 + int(said * HOUR)))
        stamp(path, version, T0 + int(hour * HOUR))
    return log


def stamp(path: Path, version: int, millis: int) -> None:
    os.utime(path / "_delta_log" / f"{version:020d}.json", ns=(millis * 10**6, millis * 10**6))


def at(lake: Lake, path: Path, hour: float) -> int | None:
    return lake.version_at(lake.find(path.name), START + timedelta(hours=hour))


@pytest.mark.parametrize(("hour", "version"), [(-0.1, None), (0, 0), (0.5, 0), (2.5, 0), (3, 1), (3.5, 2), (4.5, 3)])
def test_a_late_clock_takes_no_version_away(
    root: Path, open_lake: Callable[..., Lake], hour: float, version: int | None
) -> None:
    table(root / "t", LATE)
    assert at(open_lake(), root / "t", hour) == version


def test_a_writer_s_clock_is_reported_and_no_more(root: Path, open_lake: Callable[..., Lake]) -> None:
    table(root / "t", (0, 1, 2), reported=(500, -500, 0))
    lake = open_lake()
    assert [at(lake, root / "t", hour) for hour in (0.5, 1.5, 9)] == [0, 1, 2]
    commits = lake.history(lake.find("t"))
    assert [commit.committed_at for commit in commits] == [START + timedelta(hours=h) for h in (2, 1, 0)]
    assert [commit.reported_at for commit in commits] == [START + timedelta(hours=h) for h in (0, -500, 500)]


@pytest.mark.parametrize("seed", range(20))
def test_every_way_to_a_commit_gives_the_same_time(root: Path, open_lake: Callable[..., Lake], seed: int) -> None:
    random = Random(seed)
    hours = tuple(random.choice((version, random.randint(0, 60))) for version in range(60))
    table(root / "t", hours)
    right: list[datetime] = []
    for hour in hours:
        own = START + timedelta(hours=hour)
        right.append(max(own, right[-1] + timedelta(milliseconds=1)) if right else own)
    lake, ref = open_lake(), open_lake().find("t")
    low = random.randint(0, 59)
    page = lake.history(ref, starting_version=low, ending_version=min(59, low + 5))
    assert [commit.committed_at for commit in page] == right[low : low + 6][::-1]
    assert [commit.committed_at for commit in lake.history(ref)] == right[::-1]
    assert [total.committed_at for total in lake.timeline(ref).totals] == right
    assert [arrival.committed_at for arrival in lake.arrivals(ref, 0, 59, feed=False)] == right
    assert lake.snapshot(ref, low).committed_at == right[low]
    for moment in [*right, *(time - timedelta(milliseconds=1) for time in right)]:
        held = [version for version, time in enumerate(right) if time <= moment]
        assert lake.version_at(ref, moment) == (held[-1] if held else None)


def test_in_commit_timestamps_count_from_the_version_that_enabled_them(
    root: Path, open_lake: Callable[..., Lake]
) -> None:
    log = table(root / "t", (0, 3, 1))  # v2's file is of 1 h: it counts as 3 h and 1 ms
    on = {"delta.enableInCommitTimestamps": "true", "delta.inCommitTimestampEnablementVersion": "3"}
    on["delta.inCommitTimestampEnablementTimestamp"] = str(T0 + 5 * HOUR)
    for version, hour, more in ((3, 5, [builders.metadata(configuration=on)]), (4, 6, []), (5, 7, [])):
        log.commit(builders.commit_info(timestamp=T0 + 90 * HOUR, inCommitTimestamp=T0 + hour * HOUR), *more)
        stamp(root / "t", version, T0)  # copied since: the files say nothing
    lake = open_lake()
    asked = (-1, 0, 2.9, 3, 3.1, 4.9, 5, 5.5, 6, 6.9, 7, 99)
    assert [at(lake, root / "t", hour) for hour in asked] == [None, 0, 0, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert [c.committed_at.hour - START.hour for c in lake.history(lake.find("t"), limit=3) if c.committed_at] == [
        7,
        6,
        5,
    ]


def test_a_time_before_the_first_commit_is_refused_with_what_there_is(
    root: Path, open_lake: Callable[..., Lake]
) -> None:
    table(root / "t", LATE)
    lake = open_lake()
    with pytest.raises(VersionNotFoundError, match="its log begins with v0 of 2025-06-15 15:06:40"):
        resolve_version(lake, lake.find("t"), "2025-06-15T15:00Z", Clock())


def test_who_asks_for_a_time_gets_the_same_version_everywhere(home: Path, weir: Weir) -> None:
    table(home / "lake" / "t", LATE)
    when = (START + timedelta(hours=2.5)).isoformat()
    assert weir("table", "t", "--version", when, "--json").document["version"] == 0
    assert weir("versions", "t", "--at", when, "--json").document["at"]["version"] == 0
    assert weir("diff", "t", "--from", when, "--to", "latest", "--json").document["from_version"] == 0
    since = weir("history", "t", "--since", when, "--json").document
    assert [commit["version"] for commit in since] == [3, 2, 1]
    until = weir("history", "t", "--until", when, "--json").document
    assert [commit["version"] for commit in until] == [0]


def test_a_terminal_takes_times_as_people_say_them(home: Path, weir: Weir) -> None:
    now = datetime.now(UTC)
    hours = [(now - timedelta(hours=back) - START) / timedelta(hours=1) for back in (50, 30, 23, 1)]
    table(home / "lake" / "t", tuple(hours))
    for text, version in (("24 h ago", 1), ("2 days ago", 0), ("30 min ago", 3), ("22.5 hours ago", 2)):
        assert weir("table", "t", "--version", text, "--json").document["version"] == version
        assert weir("versions", "t", "--at", text, "--json").document["at"]["version"] == version
        assert weir("diff", "t", "--from", text, "--to", "latest", "--json").document["from_version"] == version
    assert [each["version"] for each in weir("history", "t", "--since", "24 h ago", "--json").document] == [3, 2]
    local = (now - timedelta(hours=2)).astimezone()  # of this process
    assert weir("table", "t", "--version", f"{local:%H:%M}", "--json").document["version"] == 2
    refused = weir("table", "t", "--version", "tomorrow")
    assert refused.code == 2 and "not a version: 'tomorrow'" in refused.err and "`Monday 09:00`" in refused.err
    assert weir("table", "t", "--version", "3 days ago").code == 3
