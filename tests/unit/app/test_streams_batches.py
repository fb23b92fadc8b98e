"""Progress binned for drawing, against naive recounts."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.streams.view.batches import bin_progress, dropped_rows, expectation_totals, phases_ms, runs_of
from backend.streams.model import ExpectationCount, Progress

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
def test_binning_keeps_every_sum(found: list[Progress], max_bins: int) -> None:
    bins = bin_progress(found, max_bins=max_bins)

    assert sum(each.input_rows for each in bins) == sum(each.num_input_rows for each in found)
    assert sum(each.events for each in bins) == len(found)
    known = [each.rows_dropped_by_watermark for each in found if each.rows_dropped_by_watermark is not None]
    assert sum(each.dropped_rows or 0 for each in bins) == sum(known)
    assert dropped_rows(found) == (sum(known) if known else None)


@given(events, st.integers(1, 40))
def test_a_bin_never_spans_two_runs(found: list[Progress], max_bins: int) -> None:
    left = list(found)
    for each in bin_progress(found, max_bins=max_bins):
        inside, left = left[: each.events], left[each.events :]
        assert {one.run_id for one in inside} == {each.run_id}
    assert not left


def test_few_events_stay_one_bin_each_and_many_become_few() -> None:
    assert len(bin_progress([event(i) for i in range(50)], max_bins=50)) == 50
    assert len(bin_progress([event(i) for i in range(51)], max_bins=50)) == 26
    assert bin_progress([]) == []


def test_rates_are_means_of_what_is_known() -> None:
    (one,) = bin_progress([event(0, rows=10), event(1, rows=30), event(2, input_rows_per_s=None)], max_bins=1)

    assert one.input_rows_per_s == pytest.approx((2 + 6) / 2)


def test_phases_add_up_to_the_whole_trigger() -> None:
    phases = phases_ms(event(0))

    assert phases == {"addBatch": 1_500, "walCommit": 100, "other": 400}
    assert sum(phases.values()) == 2_000


def test_phases_without_a_total_invent_no_rest() -> None:
    assert phases_ms(event(0, durations_ms={"addBatch": 7}, batch_duration_ms=None)) == {"addBatch": 7}


def test_mean_phases_of_a_bin_count_a_missing_phase_as_nothing() -> None:
    with_commit = event(0, durations_ms={"addBatch": 100, "commitOffsets": 50}, batch_duration_ms=150)
    without = event(1, durations_ms={"addBatch": 200}, batch_duration_ms=200)

    (one,) = bin_progress([with_commit, without], max_bins=1)

    assert one.phases_ms == {"addBatch": 150, "commitOffsets": 25}


@given(events)
def test_runs_share_out_all_rows(found: list[Progress]) -> None:
    runs = runs_of(found)

    assert {run.run_id for run in runs} == {each.run_id for each in found}
    for run in runs:
        own = [each for each in found if each.run_id == run.run_id]
        assert run.input_rows == sum(each.num_input_rows for each in own)
        assert (run.first_at, run.last_at) == (own[0].progressed_at, own[-1].progressed_at)
    assert [run.first_at for run in runs] == sorted((run.first_at for run in runs), reverse=True)


def test_expectations_add_up_and_the_uncounted_stay_unknown() -> None:
    found = [
        event(0, expectations=(ExpectationCount("amount", 8, 2), ExpectationCount("type", None, None))),
        event(1, expectations=(ExpectationCount("amount", 10, 0),)),
    ]

    amount, never, kind = expectation_totals(found, ("amount", "never"))

    assert (amount.passed, amount.failed, amount.failed_share) == (18, 2, 0.1)
    assert amount.last_failed_at == found[0].progressed_at
    assert (never.passed, never.failed, never.failed_share) == (None, None, None)
    assert (kind.name, kind.passed) == ("type", None)
