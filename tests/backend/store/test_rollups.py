"""Figures per minute and per hour: equal to a naive recount, whatever comes twice, late, or half-way through."""

import random
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from backend.store import rollups
from backend.store.engine import Database
from backend.store.store import ControlStore
from backend.stream_model.batches import WORK_PHASE
from backend.stream_model.rollup import GRAINS_S, HOUR_S, MINUTE_S, Rollup, Sum, merged
from backend.stream_model.stream import ExpectationCount, Progress
from tests.worlds.store.values import DECLARATION, NOW, progress

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
    for each in batches:
        known = {name: ms for name, ms in each.durations_ms.items() if name != "triggerExecution"}
        phases.update(known | {"other": each.durations_ms["triggerExecution"] - sum(known.values())})
        passed.update({count.name: count.passed for count in each.expectations})
        failed.update({count.name: count.failed or 0 for count in each.expectations})
    written = [each.output_rows for each in batches if each.output_rows is not None]
    return {
        "batches": len(batches),
        "first": (batches[0].progressed_at, batches[0].batch_id),
        "last": (batches[-1].progressed_at, batches[-1].batch_id, batches[-1].watermark, batches[-1].state_rows),
        "ended_at": max(each.ended_at for each in batches),
        "rows": sum(each.num_input_rows for each in batches),
        "written": Sum(sum(written), len(written)),
        "dropped": Sum(0, 0),
        "ms": Sum(sum(each.batch_duration_ms or 0 for each in batches), len(batches)),
        "longest": max(each.batch_duration_ms or 0 for each in batches),
        "phases": dict(phases),
        "expectations": {name: (passed[name], failed[name] if name == "a" else None) for name in sorted(passed)},
    }


def kept(store: ControlStore, grain_s: int) -> dict[tuple[datetime, str], dict[str, Any]]:
    found = store.rollups(NAME, grain_s=grain_s, since=LONG_AGO)
    by_place: dict[tuple[datetime, str], list[Rollup]] = {}
    for each in found:
        begin = datetime.fromtimestamp(int(each.first_at.timestamp()) // grain_s * grain_s, UTC)
        by_place.setdefault((begin, each.run_id), []).append(each)
    return {place: _told(merged(of)) for place, of in by_place.items()}


def _told(each: Rollup) -> dict[str, Any]:
    return {
        "batches": each.batches,
        "first": (each.first_at, each.first_batch),
        "last": (each.last_at, each.last_batch, each.watermark, each.state_rows),
        "ended_at": each.ended_at,
        "rows": each.input_rows,
        "written": each.output_rows,
        "dropped": each.dropped_rows,
        "ms": each.duration_ms,
        "longest": each.longest_ms,
        "phases": each.phases_ms,
        "expectations": {total.name: (total.passed, total.failed) for total in each.expectations},
    }


def add_up(store: ControlStore, *, most: int = 2_000) -> int:
    return store.roll_up(store.not_rolled_up(most=most))


def check(store: ControlStore, found: Iterable[Progress]) -> None:
    every = list(found)
    for grain_s in GRAINS_S:
        assert kept(store, grain_s) == counted_again(every, grain_s)


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


def test_a_host_that_is_killed_amid_it_leaves_nothing_half_done(store: ControlStore, store_url: str) -> None:
    found = history(random.Random(1))
    store.add_progress(found)
    database = Database(store_url)
    with pytest.raises(KeyboardInterrupt), database.writing() as connection:
        ids = rollups.waiting(connection, most=50)
        assert rollups.roll_up(connection, ids=ids, lags=rollups.NO_LAGS) == 50
        raise KeyboardInterrupt
    database.dispose()
    assert add_up(store) == len(found), "nothing was marked"
    check(store, found)


def test_hosts_that_do_it_at_once_count_nothing_twice(store: ControlStore, store_url: str) -> None:
    found = history(random.Random(2), count=400)
    store.add_progress(found)
    others = [ControlStore(store_url) for _ in range(3)]
    done: list[int] = []

    def work(one: ControlStore) -> None:
        while size := add_up(one, most=20):
            done.append(size)

    threads = [threading.Thread(target=work, args=(one,)) for one in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for one in others:
        one.close()
    while add_up(store, most=20):  # a host that found the rows of the first gone may have ended early
        pass
    assert sum(done) <= len(found)
    check(store, found)


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
    runs = {run.run_id: run for run in store.runs(NAME)}
    for run_id in ("r0", "r1", "r2"):
        own = [each for each in found if each.run_id == run_id and WORK_PHASE in each.durations_ms]
        run = runs[run_id]
        assert (run.first_batch, run.last_batch) == (own[0].batch_id, own[-1].batch_id)
        assert (run.first_at, run.last_at) == (own[0].progressed_at, own[-1].progressed_at)
        assert run.input_rows == sum(each.num_input_rows for each in own)


def test_the_newest_batch_of_a_declared_stream_stays(store: ControlStore) -> None:
    store.declare([DECLARATION], now=NOW)
    store.add_progress([progress(number, stream=name) for name in (NAME, "gone") for number in range(4)])
    add_up(store)
    assert store.prune_progress(before=FAR_OFF, keep=100) == 7
    assert [len(store.progress(name)) for name in (NAME, "gone")] == [1, 0] and store.progress(NAME)[0].batch_id == 3


def test_no_more_batches_are_kept_than_are_wanted(store: ControlStore) -> None:
    found = history(random.Random(5), count=60)
    store.add_progress(found)
    add_up(store)
    assert store.prune_progress(before=LONG_AGO, keep=25) == 35
    assert [each.batch_id for each in store.progress(NAME)] == [each.batch_id for each in found[35:]]
    check(store, found)
