"""Sights, batches and backlogs as hosts report them, read by few statements; figures beside a naive recount."""

import hashlib
import random
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.store import batches as batch_rows
from backend.store.batches import pack, unpack
from backend.store.store import ControlStore
from backend.stream_model.backlog import Backlog, DataLoss, Lag, SourceBacklog
from backend.stream_model.progress import WORK_PHASE
from backend.stream_model.rollup import GRAINS_S, HOUR_S, MINUTE_S, Rollup, Sum, merged
from backend.stream_model.stream import ExpectationCount, HostHeartbeat, InputKind, Progress, StreamState
from backend.streams.graph import WINDOW
from backend.streams.status import RECENT, ByStream, RecentBatches, statuses
from tests.worlds.store import stream_store
from tests.worlds.store.statements import statements
from tests.worlds.store.values import DECLARATION, NOW, OBSERVED, held, leased, observed, progress
from tests.worlds.streams.values import Looks, waits


def test_an_observation_round_trips_and_touch_moves_forward_only(store: ControlStore) -> None:
    seen, token = observed(next_start_at=NOW), held(store).token
    store.observe(seen, token=token)
    assert store.observed() == {"silver_orders": seen}
    store.touch("silver_orders", at=NOW)
    store.touch("silver_orders", at=NOW - timedelta(seconds=9))
    store.observe(observed(state=StreamState.STOPPING), token=token)
    after = store.observed()["silver_orders"]
    assert (after.state, after.last_trigger_at) == (StreamState.STOPPING, NOW)


def test_progress_round_trips_oldest_first_and_limited_to_the_newest(store: ControlStore) -> None:
    batches = [progress(number) for number in range(5)]
    store.add_progress(batches)
    assert store.progress("silver_orders") == batches
    assert store.progress("silver_orders", limit=2) == batches[3:]
    assert store.progress("silver_orders", raw=False) == [replace(batch, raw_json="") for batch in batches]
    assert store.progress("silver_orders", since=batches[2].progressed_at) == batches[2:]


def test_progress_twice_is_kept_once_and_retention_takes_what_is_added_up(store: ControlStore) -> None:
    store.add_progress([progress(1, stream="a")])
    store.add_progress([progress(number, stream=name) for name in ("a", "b", "c") for number in range(4)])
    assert sorted(item.batch_id for item in store.progress("a")) == [0, 1, 2, 3]
    assert store.prune_progress(before=progress(3).progressed_at, keep=100) == 0, "none is added up yet"
    assert store.roll_up(store.not_rolled_up()) == 12
    assert store.prune_progress(before=progress(3).progressed_at, keep=100) == 9
    assert [item.batch_id for item in store.progress("a")] == [3]


LATER = NOW + timedelta(seconds=5)
SOURCE = SourceBacklog(
    "bronze/orders",
    InputKind.TABLE,
    versions=3,
    files=4,
    size_bytes=2**40,
    rows=None,
    oldest_unread_at=NOW,
    lost=1,
    data_loss=DataLoss(LATER, "the log entry of v3", "delta.logRetentionDuration"),
    unknown="some files do not say how many rows they hold",
)
BACKLOG = Backlog((SOURCE,), NOW, (Lag(NOW, 1.5, 7), Lag(LATER, None, None)), has_planned=True)


def test_a_backlog_comes_back_as_it_was_seen_and_the_later_look_stays(store: ControlStore) -> None:
    store.note_backlogs({"silver_orders": BACKLOG, "gold_orders": Backlog((), NOW)})
    assert store.backlogs() == {"silver_orders": BACKLOG, "gold_orders": Backlog((), NOW)}
    later = replace(BACKLOG, seen_at=LATER, has_planned=False)
    store.note_backlogs({"silver_orders": later})
    store.note_backlogs({"silver_orders": BACKLOG})  # of a host that lost the stream meanwhile
    assert store.backlogs(["silver_orders"]) == {"silver_orders": later}


def test_the_newest_batches_of_all_streams_are_those_of_each(store: ControlStore) -> None:
    names = ["silver_orders", "gold_orders", "never_ran"]
    store.declare([replace(DECLARATION, name=name) for name in names], now=NOW)
    at_once = replace(progress(8), run_id="r2", batch_id=99)  # begins when another one does
    store.add_progress([progress(number) for number in range(9)] + [at_once])
    store.add_progress([progress(number, stream="gold_orders") for number in range(2)])
    store.add_progress([progress(1, stream="nobody_declared_it")])
    each = {name: store.progress(name, limit=5) for name in names[:2]}
    assert store.recent(limit=5, raw=True) == each
    assert store.recent(["gold_orders"], limit=5, raw=True) == {"gold_orders": each["gold_orders"]}
    assert [len(batches) for batches in each.values()] == [5, 2]
    older, newest = store.recent(limit=5)["gold_orders"]
    assert newest == each["gold_orders"][1], "what takes long to read the newest batch alone has"
    assert older == replace(each["gold_orders"][0], durations_ms={}, expectations=(), raw_json="")


STREAM = DECLARATION.name
AT = NOW + timedelta(seconds=30)


def run(store: ControlStore, *names: str, batches: int = RECENT + 2) -> None:
    """Streams that a live host runs, with so many batches each."""
    store.declare([replace(DECLARATION, name=name) for name in names], now=NOW)
    store.beat(HostHeartbeat("host-a", "machine", 1, NOW, AT, None, None))
    for name in names:
        store.observe(replace(OBSERVED, name=name), token=leased(store, f"stream/{name}").token)
        store.add_progress([progress(number, stream=name) for number in range(batches)])


def test_many_streams_take_as_many_statements_as_one(store: ControlStore) -> None:
    def count(backlogs: Looks) -> int:
        with statements(store) as sent:
            statuses(store, backlogs, now=AT, heartbeat_stale_s=60)
        return len(sent)

    run(store, "s0")
    count(Looks())  # the store knows the host from now on
    one = count(Looks())
    run(store, *(f"s{number}" for number in range(1, 12)))
    looks = Looks()
    assert count(looks) == one
    assert len(looks.at) == 12


def test_only_what_changed_is_read_again(store: ControlStore) -> None:
    asked: list[str] = []

    def recent(store: ControlStore, names: Collection[str]) -> dict[str, list[Progress]]:
        asked.extend(names)
        return store.recent(names, limit=RECENT)

    def backlogs(store: ControlStore, names: Collection[str]) -> dict[str, Backlog]:
        asked.extend(names)
        return store.backlogs(names)

    batches, waiting = ByStream(ControlStore.newest_batches, recent), ByStream(ControlStore.backlogs_seen_at, backlogs)

    def read() -> list[str]:
        asked.clear()
        assert batches.read(store) == store.recent(limit=RECENT)
        assert waiting.read(store) == store.backlogs()
        return sorted(asked)

    run(store, "s1", "s2")
    store.note_backlogs({"s1": waits(NOW), "s2": waits(NOW)})
    assert read() == ["s1", "s1", "s2", "s2"]
    assert read() == []
    store.add_progress([progress(20, stream="s2")])
    assert read() == ["s2"]
    store.note_backlogs({"s1": waits(AT)})
    assert read() == ["s1"]
    run(store, "s3")
    assert read() == ["s3"]


@pytest.mark.parametrize(
    ("seen_after_s", "idle_after_s", "now_after_s", "looked"),
    [
        (0, None, 59, False),
        (0, None, 61, True),  # older than a minute
        (-1, None, 30, True),  # before the run that is observed began
        (5, 25, 30, True),  # then a batch ended, after which there was nothing to read
        (5, 11.9, 30, False),  # the last sign is that batch itself: it goes on
        (12, 25, 30, False),
    ],
)
def test_a_look_of_the_host_counts_while_it_tells_of_now(
    store: ControlStore, seen_after_s: float, idle_after_s: float | None, now_after_s: float, looked: bool
) -> None:
    run(store, STREAM)  # its last batch ends 11.9 s after it began to run
    if idle_after_s is not None:
        store.touch(STREAM, at=NOW + timedelta(seconds=idle_after_s))
    store.note_backlogs({STREAM: waits(NOW + timedelta(seconds=seen_after_s))})
    looks = Looks()
    (status,) = statuses(store, looks, now=NOW + timedelta(seconds=now_after_s), heartbeat_stale_s=60)
    assert looks.at == ([STREAM] if looked else [])
    assert status.backlog is not None and status.backlog.files == (7 if looked else 3)


def test_rows_of_each_batch_since_a_moment(store: ControlStore) -> None:
    run(store, "s1", "s2", batches=4)
    store.add_progress([replace(progress(9, stream="s1"), num_input_rows=77)])
    assert store.input_rows(["s1", "unknown"], since=NOW + timedelta(seconds=2)) == {"s1": [10, 10, 77]}


EVENTS = "silver_events"


def test_a_second_reading_adds_what_is_new_and_drops_what_is_old(tmp_path: Path) -> None:
    now, recent = datetime.now(UTC), RecentBatches()
    store = stream_store.open_store(tmp_path)
    stream_store.flowing(store, EVENTS, now)
    declared = list(store.declarations().values())

    def numbers(at: datetime) -> list[int]:
        read = recent.read(store, declared, now=at)[EVENTS]
        whole = [batch for batch in store.progress(EVENTS, raw=False) if batch.progressed_at > at - WINDOW]
        assert read == whole
        return [batch.batch_id for batch in read]

    assert numbers(now) == list(range(36))
    later = now + timedelta(minutes=3)
    store.add_progress([stream_store.batch(EVENTS, 36, later, run_id="r")])
    assert numbers(later) == list(range(13, 37))  # 12 is as old as the window
    assert numbers(later) == list(range(13, 37))
    assert recent.read(store, [], now=later) == {}
    store.close()


@given(st.text())
def test_spark_json_comes_out_as_it_went_in_whoever_packed_it(text: str) -> None:
    assert unpack(pack(text)) == text
    assert unpack(zlib.compress(text.encode(errors="replace"), 6)) == text.encode(errors="replace").decode()


def test_spark_json_is_packed_by_words_that_no_release_may_change() -> None:
    words = "0a9ebfe18f634228971240b4b1d63c6eb717a88289f7ff08fc5e30f1f42670ea"
    assert hashlib.sha256(batch_rows._WORDS).hexdigest() == words, "else older stores cannot be read"
    batch = '{"name":"gold","batchId":7,"sources":[{"description":"DeltaSource[file:/l]","endOffset":{}}]}'
    assert len(pack(batch)) < 0.7 * len(zlib.compress(batch.encode(), 6))


NAME = DECLARATION.name
LONG_AGO = NOW - timedelta(days=4_000)
FAR_OFF = NOW + timedelta(days=4_000)


def history(chance: random.Random, count: int = 90) -> list[Progress]:
    """Batches of three hours and three runs, of which not all say everything, and idle events."""
    found, at = [], NOW
    for number in range(count):
        at += timedelta(seconds=chance.choice([7, 31, 200, 250]))
        took = chance.randint(100, 9_000)
        told = chance.random() < 0.7
        one = replace(
            progress(number),
            run_id=f"r{number * 3 // count}",
            progressed_at=at,
            num_input_rows=chance.randint(0, 10**9),
            processed_rows_per_s=chance.choice([None, chance.random() * 1e6]),
            batch_duration_ms=took,
            durations_ms={WORK_PHASE: took // 2, **({"walCommit": 5} if told else {}), "triggerExecution": took},
            output_rows=chance.randint(0, 99) if told else None,
            rows_dropped_by_watermark=None,
            expectations=(ExpectationCount("b", took, None), ExpectationCount("a", 3, took % 3)) if told else (),
        )
        idle = chance.random() < 0.1
        found.append(replace(one, num_input_rows=0, durations_ms={"latestOffset": 3}) if idle else one)
    return found


def counted_again(found: Iterable[Progress], grain_s: int) -> dict[tuple[datetime, str], dict[str, Any]]:
    """By begin and run: the same figures counted without the code that is tested."""
    groups: dict[tuple[datetime, str], list[Progress]] = {}
    for each in sorted(found, key=lambda each: each.progressed_at):
        if WORK_PHASE in each.durations_ms:
            begin = datetime.fromtimestamp(int(each.progressed_at.timestamp()) // grain_s * grain_s, UTC)
            groups.setdefault((begin, each.run_id), []).append(each)
    return {key: _figures(batches) for key, batches in groups.items()}


def _figures(batches: Sequence[Progress]) -> dict[str, Any]:
    phases, passed, failed = Counter(), Counter(), Counter()
    for batch in batches:
        known = {name: ms for name, ms in batch.durations_ms.items() if name != "triggerExecution"}
        phases.update(known | {"other": batch.durations_ms["triggerExecution"] - sum(known.values())})
        passed.update({count.name: count.passed for count in batch.expectations})
        failed.update({count.name: count.failed or 0 for count in batch.expectations})
    first, last = batches[0], batches[-1]
    written = [batch.output_rows for batch in batches if batch.output_rows is not None]
    took_ms = [batch.batch_duration_ms or 0 for batch in batches]
    return {
        "batches": len(batches),
        "first_at": first.progressed_at,
        "first_batch": first.batch_id,
        "last_at": last.progressed_at,
        "last_batch": last.batch_id,
        "watermark": last.watermark,
        "state_rows": last.state_rows,
        "ended_at": max(batch.ended_at for batch in batches),
        "input_rows": sum(batch.num_input_rows for batch in batches),
        "output_rows": Sum(sum(written), len(written)),
        "dropped_rows": Sum(0, 0),
        "duration_ms": Sum(sum(took_ms), len(batches)),
        "longest_ms": max(took_ms),
        "phases_ms": dict(phases),
        "expectations": {name: (passed[name], failed[name] if name == "a" else None) for name in sorted(passed)},
    }


def kept(store: ControlStore, grain_s: int) -> dict[tuple[datetime, str], Rollup]:
    by_place: dict[tuple[datetime, str], list[Rollup]] = {}
    for rollup in store.rollups(NAME, grain_s=grain_s, since=LONG_AGO):
        begin = datetime.fromtimestamp(int(rollup.first_at.timestamp()) // grain_s * grain_s, UTC)
        by_place.setdefault((begin, rollup.run_id), []).append(rollup)
    return {place: merged(rollups) for place, rollups in by_place.items()}


def add_up(store: ControlStore, *, most: int = 2_000) -> int:
    return store.roll_up(store.not_rolled_up(most=most))


def check(store: ControlStore, batches: Iterable[Progress]) -> None:
    every = list(batches)
    for grain_s in GRAINS_S:
        expected, found = counted_again(every, grain_s), kept(store, grain_s)
        assert found.keys() == expected.keys()
        for place, figures in expected.items():
            rollup = found[place]
            counts = {total.name: (total.passed, total.failed) for total in rollup.expectations}
            assert {name: getattr(rollup, name) for name in figures} | {"expectations": counts} == figures


@pytest.mark.parametrize("seed", range(6))
def test_whatever_comes_twice_or_late_each_batch_counts_once(store: ControlStore, seed: int) -> None:
    chance = random.Random(seed)
    found = history(chance)
    told = [*found, *chance.sample(found, 30)]
    chance.shuffle(told)  # late by hours, and thirty of them twice
    while told:
        size = chance.randint(1, 25)
        store.add_progress(told[:size])
        told = told[size:]
        add_up(store, most=chance.randint(1, 40))
    while add_up(store, most=11):
        pass
    check(store, found)
    assert add_up(store) == 0
    check(store, found)
    ran = [each for each in found if WORK_PHASE in each.durations_ms]
    rates = [each.processed_rows_per_s for each in ran if each.processed_rows_per_s is not None]
    sums = [each.processed_rows_per_s for each in store.rollups(NAME, grain_s=HOUR_S, since=LONG_AGO)]
    assert sum(each.total for each in sums) == pytest.approx(sum(rates))
    assert sum(each.known for each in sums) == len(rates)


def test_hosts_that_do_it_at_once_count_nothing_twice(store: ControlStore, store_url: str) -> None:
    batches = history(random.Random(2), count=400)
    store.add_progress(batches)
    hosts = [ControlStore(store_url) for _ in range(3)]

    def work(host: ControlStore) -> int:
        return sum(iter(lambda: add_up(host, most=20), 0))

    with ThreadPoolExecutor(len(hosts)) as pool:
        assert sum(pool.map(work, hosts)) <= len(batches)
    for host in hosts:
        host.close()
    while add_up(store, most=20):  # a host that found the rows of the first gone may have ended early
        pass
    check(store, batches)


def test_a_reading_holds_what_is_not_added_up_yet(store: ControlStore) -> None:
    found = history(random.Random(3))
    store.add_progress(found)
    check(store, found)
    runs = store.runs(NAME)
    add_up(store, most=40)
    check(store, found)
    assert store.runs(NAME) == runs
    add_up(store)
    assert store.runs(NAME) == runs
    since = found[45].progressed_at
    later = store.rollups(NAME, grain_s=MINUTE_S, since=since)
    assert 0 < len(later) < len(store.rollups(NAME, grain_s=MINUTE_S, since=LONG_AGO))
    assert min(each.first_at for each in later) >= since


def test_figures_and_runs_outlive_their_batches_and_late_ones_are_added(store: ControlStore) -> None:
    found = history(random.Random(4))
    late = found[10:20]
    store.add_progress([*found[:10], *found[20:]])
    add_up(store)
    assert store.prune_progress(before=FAR_OFF, keep=1_000) == len(found) - len(late)
    store.add_progress(late)
    add_up(store)
    check(store, found)
    assert store.prune_progress(before=FAR_OFF, keep=1_000) == len(late)
    check(store, found)
    newest, *older = store.runs(NAME)
    assert store.runs(NAME, limit=1) == [newest]
    runs = {run.run_id: run for run in (newest, *older)}
    assert list(runs) == ["r2", "r1", "r0"]
    for run_id in runs:
        own = [each for each in found if each.run_id == run_id and WORK_PHASE in each.durations_ms]
        run = runs[run_id]
        assert (run.first_batch, run.last_batch) == (own[0].batch_id, own[-1].batch_id)
        assert (run.first_at, run.last_at) == (own[0].progressed_at, own[-1].progressed_at)
        assert run.input_rows == sum(each.num_input_rows for each in own)


def test_no_more_batches_are_kept_than_are_wanted_and_the_newest_of_a_declared_stream(store: ControlStore) -> None:
    batches = history(random.Random(5), count=60)
    store.declare([DECLARATION], now=NOW)
    store.add_progress(batches)
    add_up(store)
    assert store.prune_progress(before=LONG_AGO, keep=25) == 35
    assert [each.batch_id for each in store.progress(NAME)] == [each.batch_id for each in batches[35:]]
    check(store, batches)
    store.add_progress([progress(number, stream="gone") for number in range(4)])
    add_up(store)
    assert store.prune_progress(before=FAR_OFF, keep=100) == 24 + 4
    assert [batch.batch_id for batch in store.progress(NAME)] == [59] and store.progress("gone") == []
