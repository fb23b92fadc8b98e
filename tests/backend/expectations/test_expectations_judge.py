"""The rules of expectations on tables, from values alone; every figure beside a reckoning by pandas."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pandas as pd
import pytest

from backend.expectations.judge import (
    LastData,
    added_rows,
    away,
    judge_fresh,
    judge_rows,
    not_as_expected,
    settle,
    standing,
)
from backend.expectations.model import ExpectationKind, Finding, Judgement, Standing, State, TableExpectation
from backend.expectations.text import expected_text, found_text, judged_text
from backend.lake.model import Commit, OperationMetrics
from backend.stream_model.stream import HostHeartbeat

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)  # a Monday
DAY = date(2026, 3, 1)
MINUTE = timedelta(minutes=1)
ORDERS = TableExpectation("/lake/gold/orders", "gold_orders", ExpectationKind.UNIQUE, columns=("order_id",))
FRESH = TableExpectation("/lake/gold/orders", "gold_orders", ExpectationKind.FRESH, within_s=900)
HOST = HostHeartbeat("host-a", "box", 1, NOW - MINUTE, NOW)


@pytest.mark.parametrize(
    ("last", "state", "since"),
    [
        (LastData(7, NOW - 15 * MINUTE), State.MET, None),
        (LastData(7, NOW - 16 * MINUTE), State.BROKEN, NOW - MINUTE),
        (LastData(7, NOW + MINUTE), State.MET, None),  # a writer whose clock is ahead
        (LastData(None, None, NOW - 10 * MINUTE), State.UNKNOWN, None),  # made lately, no data yet
        (LastData(None, None, NOW - 20 * MINUTE), State.BROKEN, NOW - 5 * MINUTE),
        (LastData(7, None), State.UNKNOWN, None),
    ],
)
def test_data_is_fresh_up_to_its_limit_and_the_moment_it_broke_is_exact(
    last: LastData, state: State, since: datetime | None
) -> None:
    found = judge_fresh(900, last, NOW)
    assert (found.state, found.since) == (state, since)
    assert bool(found.reason) == (state is State.UNKNOWN)


def commit(operation: str | None, inserted: int | None = None) -> Commit:
    return Commit(1, NOW, operation, {}, OperationMetrics(rows_inserted=inserted), {}, None, None, None)


@pytest.mark.parametrize(
    ("made", "removes", "expected"),
    [
        (commit("STREAMING UPDATE", 10), False, 10),
        (commit("WRITE"), False, None),
        (commit("MERGE", 3), True, 3),
        (commit("MERGE"), True, None),
        (commit("UPDATE"), True, 0),
        (commit("DELETE"), True, 0),
        (commit("WRITE", 50), True, None),  # an overwrite
        (commit("RESTORE"), False, None),
        (commit(None), True, None),
    ],
)
def test_rows_that_are_new_by_a_commit_whose_files_do_not_tell(
    made: Commit, removes: bool, expected: int | None
) -> None:
    assert added_rows(made, removes=removes) == expected


def days(rows: list[int | None], last: date = DAY) -> dict[date, int | None]:
    return {last - timedelta(days=len(rows) - 1 - place): each for place, each in enumerate(rows)}


WEEKDAY = date(2026, 2, 27)  # a Friday


@pytest.mark.parametrize(("rows", "state"), [(1_000, State.MET), (100, State.BROKEN), (5_000, State.BROKEN)])
def test_a_day_is_held_against_the_median_and_spread_of_the_days_before(rows: int, state: State) -> None:
    before = [900, 1_010, 1_100, 1_500, 880, 1_060, 1_020, 1_200]
    found = judge_rows(days([*before, rows], WEEKDAY), WEEKDAY)
    series = pd.Series(before)
    spread = 1.4826 * (series - series.median()).abs().median()
    assert found.usual == (int(series.median() - 4 * spread), int(series.median() + 4 * spread + 1))
    assert (found.state, found.rows, found.days) == (state, rows, 8)
    assert found.since == (datetime(2026, 2, 28, tzinfo=UTC) if state is State.BROKEN else None)


@pytest.mark.parametrize(
    ("rows", "state"), [(80, State.MET), (79, State.BROKEN), (120, State.MET), (121, State.BROKEN)]
)
def test_days_that_are_all_alike_allow_a_fifth(rows: int, state: State) -> None:
    found = judge_rows(days([*[100] * 7, rows], WEEKDAY), WEEKDAY)
    assert (found.state, found.usual) == (state, (80, 120))


def test_a_weekend_is_held_against_weekends_once_enough_are_known() -> None:
    """Four weeks of 1,000 rows, 100 on Saturdays and Sundays."""
    sunday = DAY
    rows = [100 if (sunday - timedelta(days=back)).weekday() > 4 else 1_000 for back in range(28, -1, -1)]
    four_weeks = judge_rows(days(rows), sunday)
    assert (four_weeks.state, four_weeks.usual, four_weeks.days) == (State.MET, (80, 120), 8)
    first_weekend = judge_rows(days(rows[-9:]), sunday)
    assert (first_weekend.state, first_weekend.days) == (State.BROKEN, 8), "till then against all days"
    friday = sunday - timedelta(days=2)
    assert judge_rows(days(rows), friday).usual == (800, 1_200)


@pytest.mark.parametrize(
    ("rows", "reason", "is_early"),
    [
        ([5] * 7, "6 of 7 full days before 2026-02-27 are known", True),
        ([5, 5, None, 5, 5, 5, 5, 5], "6 of 7 full days", True),
        ([*[5] * 7, None], "a commit of 2026-02-27 does not say", False),
        ([0, 0, 0, 0, 9, 9, 0, 9], "fewer than half of the days", False),
        ([], "the log does not hold 2026-02-27 as a whole", True),
    ],
)
def test_what_cannot_be_judged_is_unknown_with_its_reason(rows: list[int | None], reason: str, is_early: bool) -> None:
    found = judge_rows(days(rows, WEEKDAY), WEEKDAY)
    assert found.state is State.UNKNOWN and reason in found.reason and found.is_early is is_early


def test_only_the_last_four_weeks_count() -> None:
    long = judge_rows(days([*[9_000] * 40, *[100] * 28, 100], WEEKDAY), WEEKDAY)
    assert (long.state, long.usual, long.days) == (State.MET, (80, 120), 20)  # 20 of Monday to Friday


def broken(since: datetime | None = None) -> Finding:
    return Finding(State.BROKEN, since=since, broken_keys=3)


MET, UNKNOWN = Finding(State.MET), Finding(State.UNKNOWN, "storage is away")


def kept(expectation: TableExpectation, *findings: Finding) -> Judgement:
    """One finding after the other, a minute apart, the last one now."""
    before: Judgement | None = None
    for back, finding in zip(range(len(findings) - 1, -1, -1), findings, strict=True):
        before = settle(expectation, finding, before, host_id="host-a", now=NOW - back * MINUTE)
    assert before is not None
    return before


def test_since_when_it_is_broken_outlives_looks_that_could_not_tell() -> None:
    first, later = NOW - 9 * MINUTE, NOW - 5 * MINUTE
    assert kept(ORDERS, broken(first), broken(later)).broken_since == first
    assert kept(ORDERS, broken(first), UNKNOWN, broken(later)).broken_since == first
    assert kept(ORDERS, broken(first), MET, broken(later)).broken_since == later
    assert kept(ORDERS, broken(first), MET).broken_since is None
    assert kept(ORDERS, broken()).broken_since == NOW
    assert kept(FRESH, broken(first), broken(later)).broken_since == later, "data came in between, unseen"


def test_a_silent_host_judges_nothing_any_more() -> None:
    live, dead = kept(ORDERS, MET), replace(kept(FRESH, MET), host_id="host-b")
    silent = away([live, dead], [HOST, replace(HOST, host_id="host-b", beat_at=NOW - MINUTE)], now=NOW, stale_s=15)
    assert silent == [dead]
    assert not_as_expected([live], []) == frozenset()
    assert not_as_expected([live, dead], silent) == {"/lake/gold/orders"}
    young = kept(ORDERS, Finding(State.UNKNOWN, "not judged yet", is_early=True))
    assert not_as_expected([young], []) == frozenset() and not_as_expected([kept(ORDERS, UNKNOWN)], [])
    known = [live, dead, young, kept(ORDERS, UNKNOWN), kept(ORDERS, broken())]
    assert [standing(each, silent).value for each in known] == [
        "met",
        "not known",
        "too early to tell",
        "not known",
        "broken",
    ]
    assert standing(known[-1], [known[-1]]) is Standing.BROKEN, "nobody has seen it mended"


def test_words() -> None:
    refers = replace(
        ORDERS, kind=ExpectationKind.REFERENCES, columns=("customer_id",), other="silver_customers", other_column="id"
    )
    rows = replace(ORDERS, kind=ExpectationKind.ROWS_PER_DAY, columns=())
    assert [expected_text(each) for each in (FRESH, rows, ORDERS, replace(ORDERS, columns=("a", "b")), refers)] == [
        "new data every 15 min",
        "as many new rows a day as usual",
        "order_id is unique",
        "(a, b) is unique",
        "customer_id is in silver_customers.id",
    ]
    assert [each.name for each in (FRESH, rows, ORDERS, refers)] == [
        "fresh",
        "rows_per_day",
        "unique(order_id)",
        "references(customer_id, silver_customers.id)",
    ]
    many = Finding(State.BROKEN, broken_keys=7, broken_rows=15, examples=("1", "2", "3", "4", "5"), version=131)
    said = kept(ORDERS, many)
    assert found_text(said, NOW) == "7 keys are repeated, in 15 rows: 1 · 2 · 3 · 4 · 5 and 2 more"
    assert judged_text(said, NOW + MINUTE) == "judged at v131, 1 min ago"
    lone = Finding(State.BROKEN, broken_keys=1, broken_rows=1, examples=("9",))
    assert found_text(kept(refers, lone), NOW) == "1 key is not there, in 1 row: 9"
    assert found_text(kept(ORDERS, Finding(State.MET, broken_keys=0)), NOW) == "no key breaks it"
    a_day = Finding(State.BROKEN, day="2026-03-01", rows=12, usual=(800, 1_200), days=20)
    assert found_text(kept(rows, a_day), NOW) == "12 rows on 2026-03-01, usual are 800 to 1,200 (by 20 days before)"
    assert (
        found_text(kept(FRESH, judge_fresh(900, LastData(7, NOW - 4 * MINUTE), NOW)), NOW) == "the last came 4 min ago"
    )
