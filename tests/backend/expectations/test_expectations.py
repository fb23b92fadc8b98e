"""Expectations on tables: rules on values beside pandas, and looks at real tables beside naive recounts of the rows."""

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from backend.expectations import looks as in_looks
from backend.expectations.looks import Hindsight, Looks, hindsight_text, judge_past, last_data, rows_by_day
from backend.expectations.model import (
    ExpectationKind,
    Finding,
    Judgement,
    LastData,
    State,
    TableExpectation,
    added_rows,
    found_text,
    judge_fresh,
    judge_rows,
    settle,
)
from backend.lake.lake import Lake
from backend.lake.model import Commit, OperationMetrics, TableRef
from backend.settings import load_settings
from backend.sql.session import CancelToken
from backend.work import Stopped
from tests.worlds.lake import builders

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)  # a Monday
DAY = date(2026, 3, 1)
MINUTE = timedelta(minutes=1)
ORDERS = TableExpectation("/lake/gold/orders", "gold_orders", ExpectationKind.UNIQUE, columns=("order_id",))
FRESH = TableExpectation("/lake/gold/orders", "gold_orders", ExpectationKind.FRESH, within_s=900)


def test_data_is_fresh_up_to_its_limit_exactly() -> None:
    for last, state, since in (
        (LastData(7, NOW - 15 * MINUTE), State.MET, None),
        (LastData(7, NOW - 16 * MINUTE), State.BROKEN, NOW - MINUTE),
        (LastData(7, NOW + MINUTE), State.MET, None),  # a writer whose clock is ahead
        (LastData(None, None, NOW - 10 * MINUTE), State.UNKNOWN, None),  # made lately, no data yet
        (LastData(None, None, NOW - 20 * MINUTE), State.BROKEN, NOW - 5 * MINUTE),
        (LastData(7, None), State.UNKNOWN, None),
    ):
        found = judge_fresh(900, last, NOW)
        assert (found.state, found.since) == (state, since)
        assert bool(found.reason) == (state is State.UNKNOWN)


def commit(operation: str | None, inserted: int | None = None) -> Commit:
    return Commit(1, NOW, operation, {}, OperationMetrics(rows_inserted=inserted), {}, None, None, None)


def test_new_rows_by_a_commit_whose_files_do_not_tell() -> None:
    for made, removes, expected in (
        (commit("STREAMING UPDATE", 10), False, 10),
        (commit("WRITE"), False, None),
        (commit("MERGE", 3), True, 3),
        (commit("MERGE"), True, None),
        (commit("UPDATE"), True, 0),
        (commit("DELETE"), True, 0),
        (commit("WRITE", 50), True, None),  # an overwrite
        (commit("RESTORE"), False, None),
        (commit(None), True, None),
    ):
        assert added_rows(made, removes=removes) == expected, made.operation


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


def test_days_that_are_all_alike_allow_a_fifth_and_only_the_last_four_weeks_count() -> None:
    for rows, state in ((80, State.MET), (79, State.BROKEN), (120, State.MET), (121, State.BROKEN)):
        found = judge_rows(days([*[100] * 7, rows], WEEKDAY), WEEKDAY)
        assert (found.state, found.usual) == (state, (80, 120))
    long = judge_rows(days([*[9_000] * 40, *[100] * 28, 100], WEEKDAY), WEEKDAY)
    assert (long.state, long.usual, long.days) == (State.MET, (80, 120), 20)  # 20 of Monday to Friday


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


def test_what_cannot_be_judged_is_unknown_with_its_reason() -> None:
    for rows, reason, is_early in (
        ([5] * 7, "6 of 7 full days before 2026-02-27 are known", True),
        ([5, 5, None, 5, 5, 5, 5, 5], "6 of 7 full days", True),
        ([*[5] * 7, None], "a commit of 2026-02-27 does not say", False),
        ([0, 0, 0, 0, 9, 9, 0, 9], "fewer than half of the days", False),
        ([], "the log does not hold 2026-02-27 as a whole", True),
    ):
        found = judge_rows(days(rows, WEEKDAY), WEEKDAY)
        assert found.state is State.UNKNOWN and reason in found.reason and found.is_early is is_early


def broken(since: datetime | None = None) -> Finding:
    return Finding(State.BROKEN, since=since, broken_keys=3)


MET, UNKNOWN = Finding(State.MET), Finding(State.UNKNOWN, "storage is away")


def kept(expectation: TableExpectation, *findings: Finding) -> Judgement:
    """One finding after the other, a minute apart, the last one now."""
    before: Judgement | None = None
    for back, finding in zip(range(len(findings) - 1, -1, -1), findings, strict=True):
        before = settle(expectation, finding, before, host_id="host-a", now=NOW - back * MINUTE)
    return before


def test_since_when_it_is_broken_outlives_looks_that_could_not_tell() -> None:
    first, later = NOW - 9 * MINUTE, NOW - 5 * MINUTE
    assert kept(ORDERS, broken(first), broken(later)).broken_since == first
    assert kept(ORDERS, broken(first), UNKNOWN, broken(later)).broken_since == first
    assert kept(ORDERS, broken(first), MET, broken(later)).broken_since == later
    assert kept(ORDERS, broken(first), MET).broken_since is None
    assert kept(ORDERS, broken()).broken_since == NOW
    assert kept(FRESH, broken(first), broken(later)).broken_since == later, "data came in between, unseen"


@pytest.fixture
def looks(tmp_path: Path, months: Path) -> Looks:
    settings = load_settings(lake={"roots": [str(tmp_path), str(months)], "refresh_s": 0.001})
    return Looks(Lake(settings), max_bytes=10**9)


@pytest.fixture
def sales(tmp_path: Path) -> Path:
    """Two rows of one id."""
    return builders.write(tmp_path / "lake" / "sales", {"id": [1, 1]})


def expectation(path: Path, kind: ExpectationKind, **more: object) -> TableExpectation:
    return TableExpectation(str(path), path.name, kind, **more)  # type: ignore[arg-type]


Look = Callable[..., Finding]


@pytest.fixture
def look(looks: Looks) -> Look:
    def once(expected: TableExpectation, before: Finding | None = None, now: datetime = NOW) -> Finding:
        return looks.look(expected, before, CancelToken(), now=now)

    return once


def ref(path: Path) -> TableRef:
    return TableRef(str(path), path.name, str(path.parent))


def redate(table: Path, version: int, at: datetime) -> None:
    """Make a commit as old as a test needs it."""
    file = table / "_delta_log" / f"{version:020d}.json"
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["timestamp"] = int(at.timestamp() * 1_000)
    file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    builders.stamp_file(file, actions)


@pytest.fixture(scope="module")
def months(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("months")


@pytest.fixture(scope="module")
def month(months: Path) -> Path:
    """Thirty days of appends, with a MERGE, UPDATE, DELETE and OPTIMIZE among them; an overwrite on the ninth."""
    path, random_rows = months / "events", random.Random(5)
    at, next_id = datetime(2026, 1, 31, 9, tzinfo=UTC), 0

    def rows(count: int) -> pa.Table:
        nonlocal next_id
        next_id += count
        return pa.table({"id": range(next_id - count, next_id), "amount": [1.0] * count})

    for number in range(90):
        day, turn = divmod(number, 3)
        table = DeltaTable(str(path)) if number else None
        if number == 25:
            builders.write(path, rows(40), mode="overwrite")
        elif table and number % 30 == 10:
            seen = pa.table({"id": [0, next_id, next_id + 1], "amount": [2.0] * 3})
            next_id += 2
            merge = table.merge(seen, "s.id = t.id", source_alias="s", target_alias="t")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
        elif table and number % 30 == 11:
            table.update(updates={"amount": "3.0"}, predicate="id % 7 = 0")
        elif table and number % 30 == 13:
            table.delete("id % 11 = 3")
        elif table and number % 30 == 14:
            table.optimize.compact()
        else:
            builders.write(path, rows(random_rows.randint(10, 30)))
        redate(path, DeltaTable(str(path)).version(), at + timedelta(days=day, hours=turn))
    return path


def recount(path: Path) -> dict[date, int]:
    """Ids that a version has and the one before has not, by the day of its commit, from the rows themselves."""
    found: Counter[date] = Counter()
    before: set[int] = set()
    table = DeltaTable(str(path))
    for entry in sorted(table.history(), key=lambda entry: entry["version"]):
        table.load_as_version(entry["version"])
        now = set(pd.DataFrame(pa.table(table.scan().read_all()).to_pydict())["id"])
        found[datetime.fromtimestamp(entry["timestamp"] / 1_000, UTC).date()] += len(now - before)
        before = now
    return dict(found)


def test_rows_of_each_day_are_those_that_a_recount_of_the_rows_finds(month: Path, looks: Looks) -> None:
    found = rows_by_day(looks.lake, ref(month), date(2026, 1, 1), DAY)
    counted = recount(month)
    overwritten = date(2026, 2, 8)
    assert found.pop(overwritten) is None and counted.pop(overwritten) > 0
    assert min(counted) == date(2026, 1, 31) and counted.pop(min(counted)), "its first day is not a whole one"
    assert found == counted and len(found) == 28
    some = rows_by_day(looks.lake, ref(month), date(2026, 2, 20), date(2026, 2, 22))
    assert set(some.values()) <= set(counted.values())


def test_a_day_of_few_rows_is_broken_and_is_looked_at_once(month: Path, look: Look, looks: Looks) -> None:
    rule = expectation(month, ExpectationKind.ROWS_PER_DAY)
    last = look(rule)
    counted = recount(month)
    assert (last.state, last.rows, last.day) == (State.MET, counted[DAY], "2026-03-01")
    tomorrow = NOW + timedelta(days=1)  # and nothing came on 2026-03-02
    found = look(rule, last, tomorrow)
    assert (found.state, found.rows, found.since) == (State.BROKEN, 0, datetime(2026, 3, 3, tzinfo=UTC))
    low, high = found.usual
    text = f"0 rows on 2026-03-02, usual are {low} to {high} (by {found.days} days before)"
    assert found_text(kept(rule, found), tomorrow) == text
    assert look(rule, found, tomorrow + timedelta(hours=3)) is found


def test_a_day_that_was_read_before_is_not_read_again(month: Path, look: Look, tmp_path: Path) -> None:
    rule = expectation(month, ExpectationKind.ROWS_PER_DAY)
    read = look(rule)
    assert isinstance(read.seen["days"], dict)
    told = replace(read, seen={**read.seen, "days": dict.fromkeys(read.seen["days"], 1_000)})
    found = look(rule, told, NOW + timedelta(days=1))
    assert (found.usual, found.rows) == ((800, 1_200), 0)
    another = replace(told, seen={**told.seen, "table": "the one before"})
    assert look(rule, another, NOW + timedelta(days=1)).usual != (800, 1_200)
    failed = look(replace(rule, uri=str(tmp_path / "lake" / "none")), read)
    assert failed.state is State.UNKNOWN and failed.seen == read.seen
    assert look(rule, failed) == read


def test_maintenance_and_properties_are_no_fresh_data(tmp_path: Path, look: Look, looks: Looks) -> None:
    path = builders.orders_table(tmp_path / "lake" / "orders")
    deleted_at = last_data(looks.lake, ref(path))
    assert deleted_at.version == 3, "a DELETE changes rows"
    table = DeltaTable(str(path))
    table.optimize.compact()
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert DeltaTable(str(path)).version() > 5
    assert last_data(looks.lake, ref(path)) == deleted_at
    rule = expectation(path, ExpectationKind.FRESH, within_s=60.0)
    assert look(rule, None, deleted_at.at + timedelta(seconds=59)).state is State.MET
    late = look(rule, None, deleted_at.at + timedelta(seconds=61))
    assert (late.state, late.since, late.version) == (State.BROKEN, deleted_at.at + timedelta(seconds=60), 3)
    builders.write(path, {"order_id": [9], "status": ["new"], "amount": [1.0]})
    assert look(rule, late, datetime.now(UTC)).state is State.MET


def test_data_far_behind_much_maintenance_is_found(tmp_path: Path, looks: Looks) -> None:
    log = builders.HandLog(tmp_path / "lake" / "quiet").start()
    log.commit(builders.add("a.parquet"), builders.commit_info(timestamp=1_700_000_000_000))
    for number in range(200):
        log.commit(builders.commit_info("SET TBLPROPERTIES", timestamp=1_700_000_001_000 + number))
    found = last_data(looks.lake, ref(log.table))
    assert (found.version, found.at) == (1, datetime(2023, 11, 14, 22, 13, 20, 1000, tzinfo=UTC))  # after v0's


# keys ------------------------------------------------------------------------------------------------------------


def test_repeated_keys_are_counted_with_examples_and_nulls_are_not_judged(tmp_path: Path, look: Look) -> None:
    rows = {"shop": [*"aabbccddeeffgg", "z", None, None], "nr": [*[1, 1] * 5, 1, 1, 2, 3, 4, 4, 4]}
    path = builders.write(tmp_path / "lake" / "sales", rows)
    builders.write(path, {"shop": ["a", "z"], "nr": [1, 5]})
    found = look(expectation(path, ExpectationKind.UNIQUE, columns=("shop", "nr")))
    frame = pd.DataFrame(pa.table(DeltaTable(str(path)).scan().read_all()).to_pydict()).dropna()
    counts = frame.groupby(["shop", "nr"]).size()
    assert (found.broken_keys, found.broken_rows) == ((counts > 1).sum(), counts[counts > 1].sum()) == (6, 13)
    assert found.state is State.BROKEN and found.examples == ("a, 1", "b, 1", "c, 1", "d, 1", "e, 1")
    assert (found.version, found.since) == (1, Lake(load_settings(home=tmp_path)).snapshot(ref(path)).committed_at)


def test_keys_are_judged_anew_only_when_rows_changed(tmp_path: Path, look: Look) -> None:
    path = builders.write(tmp_path / "lake" / "sales", {"id": [1, 2, 3]})
    builders.write(path, {"id": [4]})
    rule = expectation(path, ExpectationKind.UNIQUE, columns=("ID",))
    first = look(rule)
    assert (first.state, first.broken_keys) == (State.MET, 0)
    DeltaTable(str(path)).optimize.compact()
    assert look(rule, first) is first
    builders.write(path, {"id": [3]})
    second = look(rule, first)
    assert (second.state, second.broken_keys, second.broken_rows, second.examples) == (State.BROKEN, 1, 2, ("3",))
    DeltaTable(str(path)).delete("id = 3")
    assert look(rule, second).state is State.MET


def test_keys_of_a_table_without_rows_are_not_known_and_are_judged_once_rows_came(tmp_path: Path, look: Look) -> None:
    path = builders.write(tmp_path / "lake" / "sales", {"id": pa.array([], pa.int64())})
    rule = expectation(path, ExpectationKind.UNIQUE, columns=("id",))
    empty = look(rule)
    assert (empty.state, empty.reason, empty.is_early) == (State.UNKNOWN, "v0 holds no rows", True)
    builders.write(path, {"id": [1, 2]})
    judged = look(rule, empty)
    assert (judged.state, judged.version) == (State.MET, 1)
    DeltaTable(str(path)).delete()
    assert look(rule, judged).reason == "v2 holds no rows"


def test_keys_that_another_table_lacks(tmp_path: Path, look: Look) -> None:
    lake = tmp_path / "lake"
    orders = builders.write(lake / "orders", {"customer": [1, 2, 2, 7, 8, 8, None]})
    customers = builders.write(lake / "customers", {"id": pa.array([1, 2, 3], pa.int32()), "name": [*"abc"]})
    other = {"other": "customers", "other_uri": str(customers), "other_column": "id"}
    rule = expectation(orders, ExpectationKind.REFERENCES, columns=("customer",), **other)
    found = look(rule)
    assert (found.state, found.broken_keys, found.broken_rows, found.examples) == (State.BROKEN, 2, 3, ("8", "7"))
    assert found_text(kept(rule, found), NOW) == "2 keys are not there, in 3 rows: 8 · 7"
    builders.write(customers, {"id": pa.array([7, 8], pa.int32()), "name": ["d", "e"]})
    mended = look(rule, found)
    assert (mended.state, mended.version, mended.other_version) == (State.MET, 0, 1), "the other table moved on"
    DeltaTable(str(customers)).delete()
    emptied = look(rule, mended)
    assert (emptied.broken_keys, emptied.broken_rows) == (4, 6)


def test_keys_of_partition_columns_are_judged_like_any_other(tmp_path: Path, look: Look) -> None:
    path = builders.partitioned_table(tmp_path / "lake" / "days", days=3, files_per_day=2)
    assert look(expectation(path, ExpectationKind.UNIQUE, columns=("id", "day"))).state is State.MET
    by_day = look(expectation(path, ExpectationKind.UNIQUE, columns=("day",)))
    assert (by_day.broken_keys, by_day.broken_rows) == (3, 12)


# what cannot be judged -------------------------------------------------------------------------------------------


def test_a_table_that_is_too_large_says_so(sales: Path, looks: Looks) -> None:
    size = looks.lake.snapshot(ref(sales)).size_bytes
    rule = expectation(sales, ExpectationKind.UNIQUE, columns=("id",))
    found = replace(looks, max_bytes=size - 1).look(rule, None, CancelToken(), now=NOW)
    assert (found.state, found.reason) == (State.UNKNOWN, f"{size} B, limit {size - 1} B")
    assert replace(looks, max_bytes=size).look(rule, found, CancelToken(), now=NOW).state is State.BROKEN


def test_what_does_not_fit_is_a_reason(tmp_path: Path, sales: Path, look: Look) -> None:
    other = builders.write(tmp_path / "lake" / "other", {"name": ["a", "b"]})

    def reason(kind: ExpectationKind, **more: object) -> str:
        found = look(expectation(sales, kind, **more))
        assert found.state is State.UNKNOWN
        return found.reason

    assert "sales has no column nr" in reason(ExpectationKind.UNIQUE, columns=("nr",))
    refers = {"columns": ("id",), "other": "o", "other_column": "name"}
    assert "outside" in reason(ExpectationKind.REFERENCES, other_uri="/lake/none", **refers)
    assert "Conversion" in reason(ExpectationKind.REFERENCES, other_uri=str(other), **refers)


@pytest.mark.parametrize("kind", list(ExpectationKind))
def test_a_table_that_is_not_there_or_damaged_is_a_reason(tmp_path: Path, look: Look, kind: ExpectationKind) -> None:
    path, more = tmp_path / "lake" / "gone", {}
    if kind in (ExpectationKind.UNIQUE, ExpectationKind.REFERENCES):
        more = {"columns": ("id",), "other": "o", "other_uri": str(path), "other_column": "id"}
    missing = look(expectation(path, kind, **more))
    assert missing.state is State.UNKNOWN and str(path) in missing.reason
    builders.HandLog(path).raw(f"{0:020d}.json", "{not json\n")
    assert look(expectation(path, kind, **more)).state is State.UNKNOWN


def test_a_check_that_takes_too_long_says_so_and_is_not_tried_at_the_same_version(sales: Path, looks: Looks) -> None:
    rule = expectation(sales, ExpectationKind.UNIQUE, columns=("id",))
    found = looks.look(rule, None, CancelToken(time_limit_s=1e-9), now=NOW)
    assert found.state is State.UNKNOWN and "it took longer than" in found.reason
    assert looks.look(rule, found, CancelToken(), now=NOW) is found


def test_a_check_ends_when_its_host_ends(sales: Path, looks: Looks) -> None:
    token = CancelToken()
    token.stop()
    unique = expectation(sales, ExpectationKind.UNIQUE, columns=("id",))
    for rule in (unique, expectation(sales, ExpectationKind.ROWS_PER_DAY), condition(sales, "id > 0")):
        with pytest.raises(Stopped):
            looks.look(rule, None, token, now=NOW)


def test_without_statistics_the_writer_is_believed_or_a_day_is_not_known(tmp_path: Path, looks: Looks) -> None:
    log = builders.HandLog(tmp_path / "lake" / "bare").start()
    for day, said in ((1, "30"), (2, "12"), (2, "5"), (3, None), (4, "7")):
        at = datetime(2026, 2, day, 8, tzinfo=UTC)
        metrics = {"operationMetrics": {"numOutputRows": said}} if said else {}
        info = builders.commit_info("STREAMING UPDATE", timestamp=int(at.timestamp() * 1_000), **metrics)
        log.commit(info, builders.add(f"{log.next_version}.parquet", rows=None))
    found = rows_by_day(looks.lake, ref(log.table), date(2026, 1, 25), date(2026, 2, 5))
    assert {day.isoformat()[5:]: rows for day, rows in found.items() if day.month == 2} == {
        "02-01": 30, "02-02": 17, "02-03": None, "02-04": 7, "02-05": 0,
    }  # fmt: skip


# conditions, which people expect ---------------------------------------------------------------------------------


def condition(path: Path, text: str) -> TableExpectation:
    return expectation(path, ExpectationKind.HOLDS, condition=text, by="ann", why="a bad batch")


def test_a_condition_counts_the_rows_that_a_recount_finds_and_follows_the_table(tmp_path: Path, look: Look) -> None:
    path = builders.orders_table(tmp_path / "lake" / "orders")
    rule = condition(path, "amount <= 30")

    def violations() -> int:
        return sum(amount > 30 for amount in DeltaTable(str(path)).to_pyarrow_table()["amount"].to_pylist())

    found = look(rule)
    assert (found.state, found.version, found.broken_rows) == (State.BROKEN, 3, violations()) and violations() == 2
    assert found.reason == "2 of 4 rows violate it" and found.since is not None
    builders.write(path, {"order_id": [6, 7], "status": ["new"] * 2, "amount": [31.0, 1.0]})
    more = look(rule, found)
    assert (more.version, more.broken_rows, more.reason) == (4, violations(), "3 of 6 rows violate it")
    DeltaTable(str(path)).optimize.compact()
    assert look(rule, more) is more, "the rows are the same"
    DeltaTable(str(path)).delete("amount > 30")
    mended = look(rule, more)
    assert (mended.state, mended.broken_rows, mended.since, violations()) == (State.MET, 0, None, 0)


def test_a_condition_on_the_whole_table_and_what_cannot_be_judged(tmp_path: Path, look: Look) -> None:
    path = builders.orders_table(tmp_path / "lake" / "orders")
    whole = look(condition(path, "count(*) >= 5"))
    assert (whole.state, whole.reason) == (State.BROKEN, "count(*) is 4")
    assert look(condition(path, "(order_id, status)")).state is State.MET
    odd = look(condition(path, "price > 0"))
    assert odd.state is State.UNKNOWN and "price" in odd.reason
    DeltaTable(str(path)).delete()
    assert look(condition(path, "count(*) >= 5")).state is State.BROKEN, "all rows are gone"
    none = look(condition(path, "amount > 0"))
    assert (none.state, none.is_early, none.reason) == (State.UNKNOWN, True, "v4 holds no rows")


def test_what_a_condition_would_have_done_is_what_its_versions_would_have_been_judged(
    tmp_path: Path, looks: Looks
) -> None:
    path = tmp_path / "lake" / "sales"
    for amount in (10, 900, 20, 30, 950):  # v1 stays in the table until it is deleted
        builders.write(path, {"id": [amount], "amount": [amount]})
    DeltaTable(str(path)).delete("amount >= 900")
    at = {version: looks.lake.snapshot(ref(path), version).committed_at for version in range(6)}
    now = at[5] + timedelta(minutes=3)
    past = looks.hindsight(condition(path, "amount <= 40"), CancelToken(), now=now)
    assert past == Hindsight(1, (at[5] - at[1]).total_seconds(), 6, 6, at[0])
    assert looks.hindsight(condition(path, "amount <= 1000"), CancelToken(), now=now).fired == 0
    late = looks.hindsight(condition(path, "amount > 10"), CancelToken(), now=now)
    assert (late.fired, late.longest_s) == (1, (now - at[0]).total_seconds()), "it is broken still"
    assert looks.hindsight(condition(path, "price > 0"), CancelToken(), now=now) is None, "no version has that column"
    assert looks.hindsight(expectation(path, ExpectationKind.FRESH, within_s=60.0), CancelToken(), now=now) is None
    assert looks.hindsight(condition(tmp_path / "lake" / "gone", "id > 0"), CancelToken(), now=now) is None
    assert looks.hindsight(condition(path, "id > 0"), CancelToken(1e-9), now=now) is None, "no time for any"
    week = looks.hindsight(condition(path, "amount <= 40"), CancelToken(), now=at[5] + timedelta(days=8))
    assert (week.fired, week.judged, week.versions, week.since) == (0, 1, 1, at[5] + timedelta(days=1))


def test_of_many_versions_some_are_tried_evenly_and_it_is_said(
    tmp_path: Path, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_looks, "MOST_PAST", 3)
    path = tmp_path / "lake" / "sales"
    for amount in (1, 2, 900, 4, 5):
        builders.write(path, {"amount": [amount]}, mode="overwrite")
    past = looks.hindsight(condition(path, "amount <= 40"), CancelToken(), now=datetime.now(UTC))
    assert (past.fired, past.judged, past.versions) == (1, 3, 5)
    assert hindsight_text(past, datetime.now(UTC)).startswith("would have fired at least once in ")
    assert hindsight_text(past, datetime.now(UTC)).endswith(" (by 3 of 5 versions)")


def test_each_time_that_it_broke_counts_once_and_an_unknown_end_is_now() -> None:
    met, broken = State.MET, State.BROKEN
    states = [(0, met), (10, broken), (20, broken), (50, met), (60, broken), (65, met), (90, broken)]
    findings = [(NOW + minutes * MINUTE, state) for minutes, state in states]
    past = judge_past(findings, 7, since=NOW - timedelta(days=6, minutes=60), now=NOW + 100 * MINUTE)
    assert (past.fired, past.longest_s, past.since) == (3, 2_400.0, NOW)
    whole = replace(past, since=NOW + 100 * MINUTE - timedelta(days=7))
    assert hindsight_text(whole, NOW + 100 * MINUTE) == "would have fired 3 times in 7 d, longest 40 min"
    assert hindsight_text(replace(whole, fired=0), NOW + 100 * MINUTE) == "would never have fired in 7 d"
    assert hindsight_text(None, NOW).endswith("no former version can be judged")
    began = judge_past([(NOW - 30 * MINUTE, broken), (NOW, met)], 2, since=NOW - 10 * MINUTE, now=NOW)
    assert (began.fired, began.longest_s) == (1, 600.0), "of what began before, the part since then"
