"""Batches as points of a chart, and until when each layer is complete: both against naive recounts."""

import random
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from random import Random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.lake.history.change_feed import Arrival
from backend.lake.model import Commit, OperationMetrics, StreamOrigin
from backend.stream_model.progress import phases_ms, versions_of
from backend.stream_model.rollup import (
    DAY_S,
    HOUR_S,
    MINUTE_S,
    Rollup,
    merged,
    plan_grain,
    points_of,
    points_over,
    rollup_of,
)
from backend.stream_model.stream import Progress, StreamInput, TopicEnds
from backend.streams.backlog import BatchEnd, Trail, topic_trail, trail_of
from backend.streams.latency import Trails
from backend.streams.unread import UNREAD
from tests.worlds.streams.values import ended_batch

START = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)


def event(number: int, *, run: str = "r1", rows: int = 10, dropped: int | None = None, **more: object) -> Progress:
    values: dict[str, object] = {
        "stream": "s",
        "query_id": "q",
        "run_id": run,
        "batch_id": number,
        "progressed_at": START + timedelta(seconds=5 * number),
        "num_input_rows": rows,
        "input_rows_per_s": rows / 5,
        "processed_rows_per_s": rows / 2,
        "batch_duration_ms": 2_000,
        "durations_ms": {"addBatch": 1_500, "walCommit": 100, "triggerExecution": 2_000},
        "rows_dropped_by_watermark": dropped,
    }
    return Progress(**(values | more))  # type: ignore[arg-type]


events = st.lists(
    st.tuples(st.integers(0, 500), st.sampled_from(["r1", "r2", "r3"]), st.none() | st.integers(0, 9)), max_size=120
).map(lambda seeds: [event(i, rows=rows, run=run, dropped=d) for i, (rows, run, d) in enumerate(seeds)])


@given(events, st.integers(1, 40))
def test_points_leave_out_no_batch_keep_each_mean_and_never_span_two_runs(found: list[Progress], most: int) -> None:
    points = points_of(found, most=most)

    assert sum(each.batches.batches for each in points.bins) == len(found) == points.batches
    assert points.mean_rows == (pytest.approx(fmean(each.num_input_rows for each in found)) if found else None)
    rows = sum(each.batches.mean_rows * each.batches.batches for each in points.bins)
    assert rows == pytest.approx(sum(each.num_input_rows for each in found))
    known = [each.rows_dropped_by_watermark for each in found if each.rows_dropped_by_watermark is not None]
    assert points.dropped_rows == (sum(known) if known else None)
    left = list(found)
    for drawn in (point.batches for point in points.bins):
        inside, left = left[: drawn.batches], left[drawn.batches :]
        assert {one.run_id for one in inside} == {drawn.run_id}
        assert (inside[0].batch_id, inside[-1].batch_id) == (drawn.first_batch, drawn.last_batch)


def test_two_runs_in_one_span_stand_apart() -> None:
    """At one place their bars would be stacked: twice as long a batch as there was."""
    found = [event(i, run="r1" if i < 40 else "r2") for i in range(180)]
    points = points_of(found, most=60)
    assert points.width_s == 30
    places = [each.at for each in points.bins]
    assert len(places) == len(set(places)) == 31 and places == sorted(places)


def test_spans_stand_still_while_time_goes_on() -> None:
    found = [event(i) for i in range(1_000)]

    before, after = points_of(found[:900], most=100).bins, points_of(found[5:], most=100).bins

    assert {each.at for each in before[1:]} < {each.at for each in after}
    assert before[1:-1] == after[1 : len(before) - 1]


@pytest.mark.parametrize("most", [1, 10_000])
def test_counts_are_of_batches_and_not_of_points(most: int) -> None:
    slow = [event(i, batch_duration_ms=9_000 if i % 4 == 0 else 1_000, rows=i % 3) for i in range(400)]

    points = points_of(slow, trigger_interval_ms=5_000, most=most)

    assert (points.over_trigger, points.batches) == (100, 400)
    assert points.mean_ms == 3_000
    assert points.mean_rows == pytest.approx(sum(i % 3 for i in range(400)) / 400)


def test_a_pause_breaks_a_line_and_a_slow_batch_does_not() -> None:
    down = [event(0), event(1), event(50), event(51)]  # four minutes between two
    slow = [event(0, batch_duration_ms=240_000), event(50), event(51)]

    assert [each.goes_on for each in points_of(down, trigger_interval_ms=5_000).bins] == [True, True, False, True]
    assert [each.goes_on for each in points_of(slow, trigger_interval_ms=5_000).bins] == [True, True, True]
    assert [each.goes_on for each in points_of(down, trigger_interval_ms=60_000).bins] == [True] * 4


def test_an_event_without_a_batch_is_no_point_and_rates_are_means_of_what_is_known() -> None:
    idle = event(1, rows=0, durations_ms={"latestOffset": 3, "triggerExecution": 3})
    assert [each.batches.first_batch for each in points_of([event(0), idle, event(2)]).bins] == [0, 2]
    (one,) = points_of([event(0, rows=10), event(1, rows=30), event(2, input_rows_per_s=None)], most=1).bins
    assert one.batches.input_rows_per_s.mean == pytest.approx((2 + 6) / 2)


def test_the_rate_of_a_window_is_its_rows_by_its_time() -> None:
    found = points_of([event(7, rows=10), event(8, rows=500, input_rows_per_s=10_000), event(9, rows=90)])
    until = event(9).progressed_at + timedelta(seconds=30)
    window = replace(found, since=until - timedelta(seconds=600), until=until)
    assert window.rows_per_s == pytest.approx(600 / 600), "not the mean of the batches' own rates"
    assert found.rows_per_s is None, "of no window"
    began = replace(points_of([event(0, rows=10), event(1, rows=20)]), since=window.since, until=until)
    assert began.rows_per_s == pytest.approx(30 / (until - event(0).progressed_at).total_seconds())


def test_phases_add_up_to_the_whole_trigger_and_a_missing_one_counts_as_nothing() -> None:
    phases = phases_ms(event(0))
    assert phases == {"addBatch": 1_500, "walCommit": 100, "other": 400}
    assert sum(phases.values()) == 2_000
    without_total = event(0, durations_ms={"addBatch": 7}, batch_duration_ms=None)
    assert phases_ms(without_total) == {"addBatch": 7}, "no rest is invented"

    with_commit = event(0, durations_ms={"addBatch": 100, "commitOffsets": 50}, batch_duration_ms=150)
    without = event(1, durations_ms={"addBatch": 200}, batch_duration_ms=200)
    (one,) = points_of([with_commit, without], most=1).bins
    assert one.batches.mean_phases_ms == {"addBatch": 150, "commitOffsets": 25}


@given(events, st.randoms())
def test_figures_added_up_in_any_parts_and_order_are_those_of_batches(found: list[Progress], chance: Random) -> None:
    left, parts = chance.sample(found, len(found)), []
    while left:
        size = chance.randint(1, len(left))
        parts, left = [*parts, rollup_of(left[:size])], left[size:]
    if parts:
        whole, added = rollup_of(found), merged(parts)
        rates = {"input_rows_per_s": whole.input_rows_per_s, "processed_rows_per_s": whole.processed_rows_per_s}
        assert replace(added, **rates) == whole, "all whole numbers exactly"
        assert added.input_rows_per_s.mean == pytest.approx(fmean(each.input_rows_per_s or 0 for each in found))


def hours_of(found: list[Progress]) -> list[Rollup]:
    by_hour = groupby(found, lambda each: each.progressed_at.replace(minute=0, second=0))
    return [rollup_of(batches) for _, batches in by_hour]


def test_a_long_window_has_two_hours_a_point_and_a_gap_where_nothing_ran() -> None:
    down = range(4 * 720, 7 * 720)  # three hours of five-second batches
    found = [event(i, rows=i % 7) for i in range(12 * 720) if i not in down]

    points = points_over(hours_of(found), window_s=30 * DAY_S, grain_s=HOUR_S, trigger_interval_ms=5_000)

    assert points.width_s == 7_200
    assert [each.batches.batches for each in points.bins] == [1_440, 1_440, 720, 1_440, 1_440]
    assert [each.at.hour for each in points.bins] == [11, 13, 17, 19, 21], "none from 14 to 16 o'clock"
    assert [each.goes_on for each in points.bins] == [True, True, False, True, True]
    assert points.batches == len(found) == 9 * 720
    assert points.mean_rows == pytest.approx(fmean(each.num_input_rows for each in found))
    assert points.over_trigger is None, "sums do not tell it"


def test_a_restart_within_a_point_of_a_long_window_is_no_gap() -> None:
    found = [event(i, run=f"r{i // 100}") for i in range(720)]
    (point,) = points_over([rollup_of([each]) for each in found], window_s=30 * DAY_S, grain_s=HOUR_S).bins
    drawn = point.batches
    assert (drawn.batches, drawn.first_batch, drawn.last_batch, drawn.run_id) == (720, 0, 719, "r7")


@pytest.mark.parametrize(
    ("days", "batches_days", "minutes_days", "grain_s"),
    [
        (1, 7, 3, None),
        (7, 7, 30, HOUR_S),
        (30, 60, 60, HOUR_S),
        (1, 0.25, 3, MINUTE_S),
        (1, 0.25, 0.5, HOUR_S),
        (0.25, 0.25, 0.1, None),
    ],
)
def test_a_window_is_drawn_from_what_is_kept_for_so_long(days, batches_days, minutes_days, grain_s) -> None:
    kept_s = {"batches_kept_s": batches_days * DAY_S, "minutes_kept_s": minutes_days * DAY_S}
    assert plan_grain(days * DAY_S, **kept_s) == grain_s


def test_a_batch_number_that_comes_again_after_a_reset_is_another_batch() -> None:
    def commit(version: int, query_id: str | None, batch_id: int | None) -> Commit:
        origin = StreamOrigin(None, query_id, None, batch_id) if query_id else None
        return Commit(version, START, "WRITE", {}, OperationMetrics(), {}, None, None, None, origin)

    by_others = [commit(2, None, None), commit(5, "new", None)]
    commits = [commit(3, "new", 0), commit(1, "old", 0), commit(4, "new", 0), *by_others]
    assert versions_of(commits) == {("old", 0): 1, ("new", 0): 3}


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FILES, TOPIC = StreamInput("files", "landing", "/landing"), StreamInput("kafka", "orders")
COMMIT_S = 0.2  # a commit is written this long before its batch ends


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


@dataclass
class Table:
    """What a simulated stream wrote: when each commit and its batch ended, and the landed files that it brought."""

    commits: list[tuple[float, float, list[int]]] = field(default_factory=list)

    def arrivals(self) -> list[Arrival]:
        return [Arrival(number, at(when), 1, 1, 1) for number, (when, _, _) in enumerate(self.commits)]

    def holds(self, when: float) -> set[int]:
        return {landed for _, ended, brought in self.commits if ended <= when for landed in brought}


def ended(seconds: float, offset: dict[str, object]) -> BatchEnd:
    return ended_batch(at(seconds), {"endOffset": offset})


def simulate(dice: random.Random, landed: list[float], lives_s: int) -> tuple[list[Table], Trails]:
    """Bronze reads the landed files, silver bronze, gold silver: as much as each likes, when it likes."""
    tables = [Table() for _ in range(3)]
    names, uris = ("bronze", "silver", "gold"), ("/b", "/s", "/g")
    read, ends = [0, 0, 0], [[ended(0, {"logOffset": -1})], *([ended(0, delta(0, -1))] for _ in range(2))]
    entry = [UNREAD] * len(landed)
    times = sorted(dice.sample(range(1, lives_s), lives_s // 4))
    for number, when in enumerate(times):
        level = dice.randrange(3)
        source = landed if level == 0 else [commit for commit, _, _ in tables[level - 1].commits]
        there = bisect_right(source, when - 0.5)
        to = dice.randint(read[level], max(read[level], there))
        if to == read[level]:
            continue
        taken = range(read[level], to)
        brought = list(taken) if level == 0 else [each for v in taken for each in tables[level - 1].commits[v][2]]
        tables[level].commits.append((when - COMMIT_S, when, brought))
        if level == 0:
            entry[read[0] : to] = [number] * len(taken)
            ends[0].append(ended(when, {"logOffset": number}))
        else:
            ends[level].append(ended(when, delta(to, -1) if dice.random() < 0.5 else delta(to - 1, 0)))
        read[level] = to
    files = [Arrival(of, at(when), 1, 1, None) for of, when in zip(entry, landed, strict=True)]
    trails = {"bronze": (trail_of(FILES, 0, ends[0], files),)}
    for level in (1, 2):
        source = StreamInput("table", names[level - 1], uris[level - 1])
        trails[names[level]] = (trail_of(source, 0, ends[level], tables[level - 1].arrivals()),)
    return tables, Trails(trails, {uri: (name,) for uri, name in zip(uris, names, strict=True)}, at(400))


def delta(version: int, index: int) -> dict[str, object]:
    return {"reservoirId": "t", "reservoirVersion": version, "index": index, "isStartingVersion": False}


@given(st.integers(0, 2**32))
def test_each_layer_is_complete_until_the_oldest_file_that_it_lacks(seed: int) -> None:
    dice = random.Random(seed)
    landed = sorted({round(dice.uniform(0, 300), 1) + 0.05 for _ in range(40)})
    tables, trails = simulate(dice, landed, lives_s=320)
    moments = [round(dice.uniform(1, 400), 1) + 0.01 for _ in range(20)]
    for name, table in zip(("bronze", "silver", "gold"), tables, strict=True):
        for when in moments:
            lacking = set(range(len(landed))) - table.holds(when)
            wanted = min([when, *(landed[each] for each in lacking)])
            found = trails.horizon(name, at(when))
            assert found is not None
            said = (found - NOON).total_seconds()
            assert said <= wanted + 1e-6, "more is never said than is there"
            if not any(c < when < e for each in tables for c, e, _ in each.commits):
                assert said == pytest.approx(wanted), (name, when)


def planned(ends_s: float, offset: int, latest: int, run: str = "r") -> BatchEnd:
    source = {"endOffset": {"orders": {"0": offset}}, "latestOffset": {"orders": {"0": latest}}}
    return ended_batch(at(ends_s), source, took_s=2, run_id=run)


def test_a_topic_is_read_while_triggers_find_no_more_than_the_batch_that_reached_its_end() -> None:
    five = timedelta(seconds=5)
    ends = [planned(10, 5, 9), planned(20, 9, 9), planned(60, 12, 40)]
    trail = topic_trail(TOPIC, 0, ends, None, trigger=five)
    # The third batch was planned at 58, so the trigger at 53 had found nothing new.
    assert [trail.until(at(s)) for s in (9, 15, 25, 57, 99)] == [None, None, at(25), at(53), at(53)]
    busy = topic_trail(TOPIC, 0, [planned(20, 9, 9), planned(24, 12, 12)], None, trigger=five)
    assert busy.until(at(23)) == at(18), "the next batch was planned as soon as this one had ended"
    restarted = topic_trail(TOPIC, 0, [*ends[:2], planned(60, 12, 40, run="later")], None, trigger=five)
    assert restarted.until(at(57)) == at(18), "nobody looked while it stood still"


def test_a_quiet_topic_is_read_until_its_broker_was_asked() -> None:
    def heard(end: int) -> TopicEnds:
        return TopicEnds("s", TOPIC.name, at(80), ends={"orders": {0: end}})

    ends, trigger = [planned(20, 9, 9)], timedelta(seconds=5)
    assert topic_trail(TOPIC, 0, ends, heard(9), trigger=trigger).until(at(90)) == at(80)
    assert topic_trail(TOPIC, 0, ends, heard(11), trigger=trigger).until(at(90)) == at(18)


def test_what_is_not_known_above_is_not_known_below() -> None:
    first = ended(5, {**delta(3, -1), "isStartingVersion": True})
    bronze, silver = StreamInput("table", "b", "/b"), StreamInput("table", "s", "/s")
    commits = [Arrival(version, at(version), 1, 1, 1) for version in range(4)]
    halfway = Trails({"silver": (trail_of(bronze, 0, [first], commits),)}, {}, at(9))
    assert halfway.horizon("silver", at(9)) is None, "it still reads the snapshot that it began with"
    caught = trail_of(silver, 0, [ended(5, delta(4, -1))], commits)
    assert Trails({"gold": (caught,)}, {}, at(9)).horizon("gold", at(9)) == at(9), "a table that no stream writes"
    assert (
        Trails({"gold": (caught,), "silver": (Trail(bronze),)}, {"/s": ("silver",)}, at(9)).horizon("gold", at(9))
        is None
    )
    both = Trails({"gold": (caught, Trail(bronze))}, {}, at(9))
    assert both.horizon("gold", at(9)) is None, "one of two sources"
    assert both.horizon("nobody", at(9)) is None


def test_a_circle_of_streams_ends() -> None:
    commits = [Arrival(0, at(1), 1, 1, 1)]
    a = trail_of(StreamInput("table", "a", "/a"), 0, [ended(5, delta(1, -1))], commits)
    b = trail_of(StreamInput("table", "b", "/b"), 0, [ended(5, delta(1, -1))], commits)
    circle = Trails({"one": (a,), "two": (b,)}, {"/a": ("two",), "/b": ("one",)}, at(9))
    assert circle.horizon("one", at(9)) is None
