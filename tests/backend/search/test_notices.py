"""What is noticed of commits, and what is not: values, writers, rhythms and habits, judged from the log."""

import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from backend.lake.history.history import condition_shape
from backend.lake.lake import Lake
from backend.search.notice import FIRSTS, Measure, Notice, notice_text
from backend.search.notices import MOST_BEFORE, NoticeLooks
from tests.worlds.cases import few
from tests.worlds.lake import builders
from tests.worlds.lake.builders import HandLog, add, commit_info, metadata, protocol, remove
from tests.worlds.lake.watched import (
    COLUMNS,
    LATER,
    LONG_AGO,
    NOW,
    PYTHON,
    SPARK,
    aggregate,
    appended,
    every_ten_minutes,
    grown,
    orders,
    write,
)


@pytest.fixture
def table(root: Path) -> Path:
    return root / "orders"


def noticed(lake: Lake, table: Path) -> list[Notice]:
    return NoticeLooks(lake).look(lake.find(str(table)), LONG_AGO, LATER)


def test_a_bad_batch_is_noticed_once_and_until_it_is_mended(lake: Lake, table: Path) -> None:
    dice = random.Random(7)
    write(table, [orders(dice) for _ in range(12)])
    ref, looks = lake.find(str(table)), NoticeLooks(lake)
    assert looks.look(ref, LONG_AGO, LATER) == []
    highest = max(DeltaTable(table).to_pyarrow_table()["amount"].to_pylist())
    write(table, [{**orders(dice), "amount": [47_189.0] * 20}])
    (notice,) = looks.look(ref, LONG_AGO, LATER)
    assert (notice.version, notice.kind, notice.subject) == (12, Measure.HIGHEST, "amount")
    assert notice_text(notice) == f"highest amount {highest:,.2f} → 47,189 at v12, WRITE"
    assert notice.is_open and notice.condition.startswith("amount <= ")
    write(table, [{**orders(dice), "amount": [50_000.0] * 20}, orders(dice)])
    assert looks.look(ref, LONG_AGO, LATER) == [], "no more than was told"
    DeltaTable(table).delete("amount > 500")
    (mended,) = looks.look(ref, LONG_AGO, LATER)
    assert (mended.key, mended.mended_at, mended.is_open) == (notice.key, 15, False)
    assert noticed(lake, table) == [mended], "in replay as it was live"


def test_nulls_lost_rows_and_the_first_negative_are_noticed(lake: Lake, table: Path) -> None:
    dice = random.Random(7)
    write(table, [orders(dice) for _ in range(8)])
    write(table, [{**orders(dice), "email": [None] * 20}])
    write(table, [{**orders(dice), "amount": [-300.0, *[5.0] * 19]}])
    DeltaTable(table).delete("amount > 100")
    found = [(notice.version, notice.kind, notice.subject, notice.before) for notice in noticed(lake, table)]
    assert found[:2] == [(8, Measure.NULLS, "email", "0 %"), (9, Measure.LOWEST, "amount", found[1][3])]
    assert (10, Measure.DELETED, "", "none before") in found


def ids(dice: random.Random) -> Iterator[dict[str, list[object]]]:
    """Of batches that become fifty times as large."""
    start = 0
    for rows in [20] * 10 + [1_000] + [20] * 3:
        yield {"id": list(range(start, start + rows)), "offset": list(range(10**9 + start, 10**9 + start + rows))}
        start += rows


def times(dice: random.Random) -> Iterator[dict[str, list[object]]]:
    """Of now, some of it some hours late."""
    for minute in range(14):
        at = NOW - timedelta(minutes=14 - minute)
        late = timedelta(hours=dice.choice([0, 0, 5, 20]))
        yield {"at": [at, at - late], "day": [at.date(), (at - late).date()]}


def steady(dice: random.Random) -> Iterator[dict[str, list[object]]]:
    for _ in range(60):
        yield {
            "uniform": [dice.uniform(1, 500) for _ in range(20)],
            "nearly": [dice.choice([86, 87, 88, 140])] * 20,
            "normal": [dice.gauss(1_000, 50) for _ in range(20)],
            "status": [dice.choice(["new", "paid"]) for _ in range(20)],
            "some": [None if dice.random() < 0.3 else 1 for _ in range(20)],
        }


@pytest.mark.parametrize("batches", [ids, times, steady])
@pytest.mark.parametrize("seed", few(1, range(3)))
def test_what_always_grows_or_varies_is_not_noticed(
    lake: Lake, table: Path, batches: Callable[[random.Random], Iterator[dict[str, list[object]]]], seed: int
) -> None:
    write(table, list(batches(random.Random(seed))))
    assert noticed(lake, table) == []


def test_a_far_future_and_a_default_time_are_noticed(lake: Lake, table: Path) -> None:
    days: list[dict[str, list[object]]] = [{"day": [date.today() - timedelta(days=9 - n)]} for n in range(9)]
    write(table, [*days, {"day": [date(9999, 12, 31)]}])
    other = table.with_name("other")
    write(other, [*days, {"day": [date(1970, 1, 1)]}])
    assert [(each.kind, each.after) for each in noticed(lake, table)] == [(Measure.HIGHEST, "9999-12-31")]
    assert [(each.kind, each.after) for each in noticed(lake, other)] == [(Measure.LOWEST, "1970-01-01")]


def test_sums_of_an_aggregate_may_rest_and_catch_up(lake: Lake, table: Path) -> None:
    """The same two rows, overwritten: a sum that grows, and after three hours by as much as in three hours."""
    log = HandLog(table)
    total, at = 0, NOW - timedelta(days=1)
    for version in range(14):
        gap = timedelta(hours=3) if version == 10 else timedelta(minutes=1)
        at, total = at + gap, total + int(gap.total_seconds())
        stats = {"numRecords": 2, "minValues": {"id": total // 2}, "maxValues": {"id": total}, "nullCount": {"id": 0}}
        begin = [protocol(), metadata()] if version == 0 else [remove(f"{version - 1}.parquet")]
        info = commit_info(timestamp=int(at.timestamp() * 1_000))
        log.commit(*begin, add(f"{version}.parquet", stats=json.dumps(stats)), info)
    assert noticed(lake, table) == []


def test_an_overwrite_by_something_else_is_noticed(lake: Lake, table: Path) -> None:
    dice = random.Random(7)
    write(table, [orders(dice) for _ in range(MOST_BEFORE)])
    ref, looks = lake.find(str(table)), NoticeLooks(lake)
    assert looks.look(ref, LONG_AGO, LATER) == []
    builders.write(table, {"amount": [9e9], "email": ["x"]}, mode="overwrite")
    assert {each.kind for each in looks.look(ref, LONG_AGO, LATER)} == {Measure.HIGHEST, Measure.ROWS}


def test_a_step_of_a_table_that_is_written_anew_is_told_when_it_has_stood(lake: Lake, table: Path) -> None:
    """An average over the first rows of an hour, which the next batch takes back; then one that stays."""
    log, begin, gap = HandLog(table), NOW - timedelta(hours=1), timedelta(seconds=40)
    for version, lowest in enumerate([98.0, 97.5, 98.4, 98.1, 97.9, 98.2, 40.7, 95.0]):
        aggregate(log, lowest, begin + version * gap)
    ref, looks = lake.find(str(table)), NoticeLooks(lake)
    assert looks.look(ref, LONG_AGO, NOW) == [] and not looks.is_waiting(ref)
    at = begin + 8 * gap
    aggregate(log, 12.0, at)
    assert looks.look(ref, LONG_AGO, at + gap) == [] and looks.is_waiting(ref)
    aggregate(log, 14.0, at + gap)
    assert looks.look(ref, LONG_AGO, at + 2 * gap) == [] and looks.is_waiting(ref)
    (notice,) = looks.look(ref, LONG_AGO, at + 3 * gap)
    assert (notice.version, notice.kind, notice.after) == (8, Measure.LOWEST, "12") and not looks.is_waiting(ref)
    assert looks.look(ref, LONG_AGO, at + 4 * gap) == [], "once"
    aggregate(log, 97.0, at + 5 * gap)
    (mended,) = looks.look(ref, LONG_AGO, at + 5 * gap)
    assert (mended.key, mended.mended_at) == (notice.key, 10)
    assert noticed(lake, table) == [mended], "in replay as it was live"


def test_a_step_of_a_merge_that_copies_rows_is_told_at_once(lake: Lake, table: Path) -> None:
    log = HandLog(table)
    for version, lowest in enumerate([98.0, 97.5, 98.4, 98.1, 97.9, 98.2, 40.7]):
        aggregate(log, lowest, NOW + timedelta(seconds=40 * version), copied=4)
    (notice,) = NoticeLooks(lake).look(lake.find(str(table)), LONG_AGO, NOW + timedelta(seconds=241))
    assert (notice.version, notice.after) == (6, "40.7")


def test_commits_before_the_time_asked_for_are_not_told(lake: Lake, table: Path) -> None:
    dice = random.Random(7)
    write(table, [*[orders(dice) for _ in range(8)], {**orders(dice), "amount": [47_189.0] * 20}])
    later = datetime.now(UTC) + timedelta(hours=1)
    assert noticed(lake, table) and NoticeLooks(lake).look(lake.find(str(table)), later, later) == []


def firsts(lake: Lake, table: Path) -> list[str]:
    found = [each for each in noticed(lake, table) if each.kind in FIRSTS]
    assert all(each.is_open and not each.condition for each in found)
    return [notice_text(each) for each in found]


def test_a_column_and_a_property_that_were_never_there_are_noticed_once(lake: Lake, table: Path) -> None:
    log = HandLog(table)
    grown(log, 8)
    more = metadata({**COLUMNS, "amount": "string", "note": "string"}, configuration={"delta.appendOnly": "true"})
    appended(log, more, operation="MERGE")
    assert firsts(lake, table) == [
        "column note none → string at v8, MERGE",
        "column amount double → string at v8, MERGE",
        "property delta.appendOnly none → true at v8, MERGE",
    ]
    appended(log, metadata(COLUMNS))
    appended(log, more)
    assert len(firsts(lake, table)) == 3, "so it was before"
    appended(log, metadata({"id": "long"}))
    assert firsts(lake, table)[3:] == ["column amount string → none at v11, WRITE"]


def test_what_a_table_begins_with_or_delta_sets_is_not_noticed(lake: Lake, table: Path) -> None:
    log = HandLog(table)
    grown(log, 3)
    appended(log, metadata({**COLUMNS, "note": "string"}, configuration={"delta.enableChangeDataFeed": "true"}))
    grown(log, 5)
    own = {"delta.enableChangeDataFeed": "true", "delta.columnMapping.maxColumnId": "4"}
    appended(log, metadata({**COLUMNS, "note": "string"}, configuration=own))
    assert firsts(lake, table) == []


def run(number: int) -> dict[str, Any]:
    return {"userName": "etl", "job": {"jobName": "nightly", "runId": str(number)}}


@pytest.mark.parametrize(
    ("usual", "other", "named"),
    [
        ({}, {"engineInfo": PYTHON}, "Apache-Spark Delta-Lake → delta-rs"),
        (run(1), {"userName": "eve"}, "etl, job nightly, Apache-Spark Delta-Lake → eve, Apache-Spark Delta-Lake"),
        ({"operationParameters": {"queryId": "q", "epochId": "1"}}, {"userName": "eve"}, "a streaming query → eve, "),
    ],
)
def test_a_writer_that_never_wrote_before_is_noticed(
    lake: Lake, table: Path, usual: dict[str, Any], other: dict[str, Any], named: str
) -> None:
    log = HandLog(table)
    grown(log, 21, **usual)
    appended(log, **other)
    appended(log, **other)
    (told,) = firsts(lake, table)
    assert told.startswith(f"writer {named}") and "at v21, WRITE" in told


def test_whoever_wrote_long_ago_is_not_new(lake: Lake, table: Path) -> None:
    log = HandLog(table)
    grown(log, 2, engineInfo=PYTHON)
    grown(log, 60)
    appended(log, engineInfo=PYTHON)
    since = NOW - timedelta(days=1) + timedelta(minutes=61)
    assert NoticeLooks(lake).look(lake.find(str(table)), since, LATER) == []


def by_many(log: HandLog) -> None:
    for number in range(60):
        grown(log, 1, userName=f"analyst {number if number % 3 else 0}")


def by_few(log: HandLog) -> None:
    grown(log, 15)
    appended(log, userName="eve")


def by_runs(log: HandLog) -> None:
    """Another run, another version of the engine, a query begun anew: the same writer."""
    for number in range(40):
        engine = SPARK.replace("4.2.0", f"4.{number // 10}.0")
        grown(log, 1, engineInfo=engine, **run(number))


def by_queries(log: HandLog) -> None:
    for number in range(40):
        grown(log, 1, operationParameters={"queryId": f"q{number // 25}", "epochId": str(number)})
        if number % 8 == 7:
            log.commit(remove(f"{number // 8}.parquet", dataChange=False), commit_info("OPTIMIZE", userName="weir"))


@pytest.mark.parametrize("history", [by_many, by_few, by_runs, by_queries])
def test_writers_that_come_and_go_are_not_noticed(lake: Lake, table: Path, history: Callable[[HandLog], None]) -> None:
    history(HandLog(table))
    assert firsts(lake, table) == []


def test_a_rhythm_that_stops_is_noticed_after_an_hour_and_ends_with_the_next_commit(lake: Lake, table: Path) -> None:
    log = HandLog(table)
    last = every_ten_minutes(log, 20)[-1]
    ref, looks = lake.find(str(table)), NoticeLooks(lake)
    hour = timedelta(hours=1)
    assert looks.silences(ref, last, last + hour) == []
    (notice,) = looks.silences(ref, last, last + hour + timedelta(seconds=1))
    assert notice_text(notice) == "commits every 10 min → none since v19, WRITE"
    assert (notice.committed_at, notice.is_open) == (last, True)
    assert looks.silences(ref, last + 2 * hour, last + 3 * hour) == [], "it was silent before the time asked for"
    back = last + 2 * hour - timedelta(minutes=30)
    appended(log, timestamp=int(back.timestamp() * 1_000))
    (mended,) = NoticeLooks(lake).silences(ref, back, back)
    assert (mended.key, mended.mended_at) == (notice.key, 20)
    assert looks.silences(ref, back + timedelta(seconds=1), back + 4 * hour) == [], "90 minutes are a gap known by now"


@pytest.mark.parametrize(
    ("commits", "info"),
    [
        (18, {}),
        (20, {"operationParameters": {"queryId": "q", "epochId": "1"}}),
        (20, {"userMetadata": json.dumps({"stream": "s", "batch_id": 1})}),
    ],
)
def test_few_commits_and_those_of_known_streams_are_no_rhythm(
    lake: Lake, table: Path, commits: int, info: dict[str, Any]
) -> None:
    last = every_ten_minutes(HandLog(table), commits, **info)[-1]
    ref, looks = lake.find(str(table)), NoticeLooks(lake, lambda: {"q": "s"})
    assert looks.silences(ref, last, last + timedelta(hours=9)) == []


def test_a_load_of_many_commits_is_no_rhythm_and_streams_of_others_are(lake: Lake, table: Path) -> None:
    log, query = HandLog(table), {"operationParameters": {"queryId": "q", "epochId": "1"}}
    grown(log, 150)  # a minute apart
    ref, night = lake.find(str(table)), timedelta(hours=12)
    last = NOW - timedelta(days=1) + timedelta(minutes=149)
    assert NoticeLooks(lake).silences(ref, last, last + night) == []
    grown(log, 50, **query)
    (notice,) = NoticeLooks(lake).silences(ref, last, last + night)
    assert notice_text(notice).startswith("commits every 1 min → none since v199, ")


NIGHTLY = {"userMetadata": json.dumps({"job": "nightly load"})}
STREAM = {"userMetadata": json.dumps({"stream": "s", "batch_id": 1})}
DAILY = {"userMetadata": json.dumps({"job": "daily load"})}


def started(table: Path, by: str = "day") -> HandLog:
    columns = {"id": "long", "day": "date", "country": "string"}
    return HandLog(table).commit(protocol(), metadata(columns, partition_by=[by]))


def committed(log: HandLog, operation: str, *actions: dict[str, Any], **info: Any) -> None:
    """One more commit, a minute later."""
    at = NOW - timedelta(days=1) + timedelta(minutes=log.next_version)
    log.commit(*actions, commit_info(operation, timestamp=int(at.timestamp() * 1_000), **info))


def by_condition(log: HandLog, operation: str, condition: str, who: dict[str, Any], **parameters: Any) -> None:
    parameters = {"predicate": condition, **parameters}
    committed(log, operation, add(f"{log.next_version}.parquet"), operationParameters=parameters, **who)


def load(
    log: HandLog, *days: str, who: dict[str, Any] = DAILY, operation: str = "WRITE", by: str = "day", undo: bool = False
) -> None:
    """Appends a file of each day, or removes one of each."""
    made = remove if undo else add
    files = [made(f"{log.next_version}-{n}.parquet", partitionValues={by: day}) for n, day in enumerate(days)]
    committed(log, operation, *files, **who)


def days(log: HandLog, number: int, **how: Any) -> None:
    """So many days, each loaded once."""
    for day in range(1, number + 1):
        load(log, f"2026-05-{day:02d}", **how)


def habits_broken(lake: Lake, table: Path) -> list[str]:
    return [notice_text(each) for each in noticed(lake, table) if each.kind in (Measure.CONDITION, Measure.TWICE)]


# conditions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", few(2, [5, 37, 200]))
def test_a_merge_on_another_condition_is_noticed_once(lake: Lake, table: Path, before: int) -> None:
    log = started(table)
    for _ in range(before):
        by_condition(log, "MERGE", "t.id = s.id", NIGHTLY)
    looks = NoticeLooks(lake)
    assert looks.look(lake.find(str(table)), LONG_AGO, LATER) == []
    by_condition(log, "MERGE", "t.sku = s.sku", NIGHTLY)
    by_condition(log, "MERGE", "t.sku  = s.sku", NIGHTLY)
    (notice,) = looks.look(lake.find(str(table)), LONG_AGO, LATER)
    assert notice_text(notice) == (
        f"MERGE on another condition than before: t.id = s.id ({before} times) → t.sku = s.sku at v{before + 1}, "
        "MERGE by job nightly load"
    )
    assert notice.is_open and noticed(lake, table) == [notice], "in replay as it was live"


def test_what_was_usual_before_the_time_looked_at_counts(lake: Lake, table: Path) -> None:
    """A job that merges once among many commits of a stream: its own five lie far back."""
    log = started(table)
    for number in range(150):
        who, key = (NIGHTLY, "id") if number % 25 == 0 else (STREAM, "sku")
        by_condition(log, "MERGE", f"t.{key} = s.{key}", who)
    by_condition(log, "MERGE", "t.sku = s.sku", NIGHTLY)
    since = NOW - timedelta(days=1) + timedelta(minutes=150)
    (notice,) = NoticeLooks(lake).look(lake.find(str(table)), since, LATER)
    assert (notice.version, notice.before) == (151, "t.id = s.id (6 times)")


def test_a_clause_that_lost_its_condition_is_noticed(lake: Lake, table: Path) -> None:
    log, newer = started(table), '[{"actionType":"update","predicate":"s.at > t.at"}]'
    for _ in range(6):
        by_condition(log, "MERGE", "t.id = s.id", NIGHTLY, matchedPredicates=newer)
    by_condition(log, "MERGE", "t.id = s.id", NIGHTLY, matchedPredicates='[{"actionType":"update"}]')
    (text,) = habits_broken(lake, table)
    assert "update if s.at > t.at (6 times) → update at v7" in text


def test_a_delete_of_every_row_is_noticed(lake: Lake, table: Path) -> None:
    log = started(table)
    for number in range(6):
        by_condition(log, "DELETE", json.dumps([f"(customer#{number} = c {number})"]), NIGHTLY)
    by_condition(log, "DELETE", "[]", NIGHTLY)
    (text,) = habits_broken(lake, table)
    assert "DELETE on another condition than before: (customer = c 5) (6 times) → every row at v7" in text


def touches(table: Path, *counts: int, operation: str = "DELETE", **info: Any) -> HandLog:
    """A table of 1,000 rows, and how many of them each statement of a nightly job touched."""
    log = HandLog(table)
    log.commit(protocol(), metadata({"id": "long"}), add("0.parquet", stats='{"numRecords": 1000}'), commit_info())
    metric = "numDeletedRows" if operation == "DELETE" else "numUpdatedRows"
    for number, count in enumerate(counts, 1):
        rows = 1_000 - (sum(counts[:number]) if operation == "DELETE" else 0)
        files = remove(f"{number - 1}.parquet"), add(f"{number}.parquet", stats=f'{{"numRecords": {rows}}}')
        about = {**NIGHTLY, "operationMetrics": {metric: str(count)}, **info}
        log.commit(commit_info(operation, timestamp=int(NOW.timestamp() * 1_000) + number, **about), *files)
    return log


@pytest.mark.parametrize("operation", ["DELETE", "UPDATE"])
def test_a_statement_that_touches_far_more_rows_than_its_writer_ever_did_is_noticed(
    lake: Lake, table: Path, operation: str
) -> None:
    touches(table, 3, 2, 3, 3, 1, 3, 160, 3, operation=operation)
    (notice,) = noticed(lake, table)
    rows, share = f"{operation.lower().rstrip('e')}ed rows", "16 %"
    by = notice_text(notice).partition(" at v7, ")[0]
    assert by == f"{rows} at most 3 by each before → 160 ({share} of the table)", notice
    assert notice.is_open and notice.kind not in FIRSTS


def test_a_large_delete_is_mended_by_a_restore_and_not_by_new_rows(lake: Lake, table: Path) -> None:
    log = touches(table, *[3] * 6, 700)
    log.commit(commit_info("WRITE"), add("8.parquet", stats='{"numRecords": 700}'))
    log.commit(
        commit_info("RESTORE"), remove("7.parquet"), remove("8.parquet"), add("9.parquet", stats='{"numRecords": 982}')
    )
    (notice,) = noticed(lake, table)
    assert (notice.kind, notice.version, notice.mended_at) == (Measure.DELETED, 7, 9)


FEW_TOUCHED = {
    "a small share": {"counts": [0, 0, 0, 0, 0, 0, 9]},
    "too few before": {"counts": [3, 3, 3, 3, 160]},
    "as many as before": {"counts": [40, 60, 20, 40, 55, 40, 120]},
    "nobody counted": {"counts": [3, 3, 3, 3, 3, 3, 160], "operationMetrics": {}},
}


@pytest.mark.parametrize("history", FEW_TOUCHED)
def test_a_statement_that_may_well_touch_so_many_rows_is_not_noticed(lake: Lake, table: Path, history: str) -> None:
    about = dict(FEW_TOUCHED[history])
    touches(table, *about.pop("counts"), **about)  # type: ignore[arg-type]
    assert noticed(lake, table) == []


NO_HABIT = {
    "too few": [("MERGE", "t.id = s.id", NIGHTLY)] * 4,
    "by three": [("MERGE", f"t.key{number % 3} = s.key{number % 3}", NIGHTLY) for number in range(30)],
    "by others": [("MERGE", "t.id = s.id", DAILY)] * 9,
    "of other kinds": [("DELETE", "id = 5", NIGHTLY)] * 9,
    "the same": [("MERGE", "target.sku = source.sku", NIGHTLY)] * 9,
}


@pytest.mark.parametrize("history", NO_HABIT)
def test_without_a_habit_no_condition_is_noticed(lake: Lake, table: Path, history: str) -> None:
    log = started(table)
    for number in range(6):
        load(log, "2026-05-01", who={"userName": f"analyst {number % 2}"})
    for operation, condition, who in NO_HABIT[history]:
        by_condition(log, operation, condition, who)
    by_condition(log, "MERGE", "t.sku = s.sku", NIGHTLY)
    assert habits_broken(lake, table) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("t.id = s.id", "target.id  =  source.id"),
        ("id IN (1, 2)", "id in (3)"),
        ("id = -1.5e3", "(ID = 7)"),
        ("name = 'it''s AND' AND day > DATE '2026-01-01'", "name = 'no' AND day > DATE '2026-02-01'"),
        ("id = 1 OR id = 2", "id = 1 OR id = 2 OR id = 3"),
        ('["(name#40 = Dennis)"]', '["(name#7 = Ann Marie)"]'),
        ('["((day#1 >= 2026-05-01) AND id#2L IN (5,6,7))"]', '["((day#9 >= 2026-06-01) AND id#8L IN (5))"]'),
        ('["(t.`order id`#1 = s.`order id`#2)"]', '["(a.`order id`#3 = b.`order id`#4)"]'),
    ],
)
def test_conditions_that_differ_in_values_alone_have_one_shape(lake: Lake, table: Path, one: str, other: str) -> None:
    assert len(shapes(lake, table, one, other)) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("t.id = s.id", "t.id = s.sku"),
        ("t.id = s.id AND t.day = s.day", "t.id = s.id"),
        ("t.id = s.id AND t.day = s.day", "t.id = s.id OR t.day = s.day"),
        ("day < '2026-01-01'", "day > '2026-01-01'"),
        ("lower(name) = 'x'", "name = 'x'"),
        ('["(name#40 = Dennis)"]', '["(city#40 = Dennis)"]'),
        ('["(id#1 = id#2)"]', '["(sku#1 = sku#2)"]'),
        ("id IS NULL", "id IS NOT NULL"),
    ],
)
def test_conditions_on_something_else_have_another_shape(lake: Lake, table: Path, one: str, other: str) -> None:
    assert len(shapes(lake, table, one, other)) == 2


def shapes(lake: Lake, table: Path, *conditions: str) -> set[str | None]:
    log = HandLog(table)
    for condition in conditions:
        by_condition(log, "DELETE", condition, NIGHTLY)
    return {condition_shape(commit) for commit in lake.history(lake.find(str(table)))}


# days ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", few(1, [5, 60]))
def test_a_day_that_a_job_writes_twice_is_noticed_until_it_is_undone(lake: Lake, table: Path, before: int) -> None:
    log = started(table)
    for number in range(before):
        load(log, f"2026-{number // 28 + 1:02d}-{number % 28 + 1:02d}")
    ref, looks = lake.find(str(table)), NoticeLooks(lake)
    assert looks.look(ref, LONG_AGO, LATER) == []
    load(log, "2026-01-03")
    load(log, "2026-01-03")
    (notice,) = looks.look(ref, LONG_AGO, LATER)
    assert notice_text(notice) == (
        f"day=2026-01-03 written a second time at v{before + 1}, WRITE by job daily load; each of {before} before once"
    )
    since = NOW - timedelta(days=1) + timedelta(minutes=before + 1)
    assert NoticeLooks(lake).look(ref, since, LATER) == [notice], "in replay as it was live"
    load(log, "2026-01-03", operation="RESTORE", undo=True)
    (mended,) = looks.look(ref, LONG_AGO, LATER)
    assert (mended.key, mended.mended_at) == (notice.key, before + 3) and noticed(lake, table) == [mended]


BY_QUERY: dict[str, Any] = {"operationParameters": {"queryId": "q", "epochId": "1"}}
UNNAMED: dict[str, Any] = {"engineInfo": "delta-rs:py-1.6.6"}
EVE = {"userName": "eve"}


def deleted_before(log: HandLog) -> None:
    days(log, 9)
    load(log, "2026-05-03", who=EVE, operation="DELETE", undo=True)


def emptied_before(log: HandLog) -> None:
    days(log, 9)
    committed(log, "DELETE", *(remove(f"{n}.parquet") for n in range(120)), **EVE)


def overwritten_before(log: HandLog) -> None:
    days(log, 9)
    day = {"day": "2026-05-03"}
    committed(log, "WRITE", remove("3-0.parquet", partitionValues=day), add("new.parquet", partitionValues=day), **EVE)


def compacted(log: HandLog) -> None:
    days(log, 2)
    load(log, "2026-05-03", operation="OPTIMIZE")
    for day in (4, 5, 6, 7):
        load(log, f"2026-05-{day:02d}")


MAY_BE_WRITTEN: dict[str, tuple[Callable[[HandLog], None], dict[str, Any]]] = {
    "a stream": (lambda log: days(log, 9, who=STREAM), STREAM),
    "a query": (lambda log: days(log, 9, who=BY_QUERY), BY_QUERY),
    "nobody named": (lambda log: days(log, 9, who=UNNAMED), UNNAMED),
    "another job": (lambda log: days(log, 9, who=NIGHTLY), DAILY),
    "few": (lambda log: days(log, 4), DAILY),
    "deleted before": (deleted_before, DAILY),
    "emptied before": (emptied_before, DAILY),
    "overwritten before": (overwritten_before, DAILY),
    "compacted": (compacted, DAILY),
}


@pytest.mark.parametrize("history", MAY_BE_WRITTEN)
def test_a_day_that_may_well_be_written_is_not_noticed(lake: Lake, table: Path, history: str) -> None:
    log, (made, who) = started(table), MAY_BE_WRITTEN[history]
    made(log)
    load(log, "2026-05-03", who=who)
    assert habits_broken(lake, table) == []


def test_a_job_that_comes_back_to_its_days_is_not_noticed(lake: Lake, table: Path) -> None:
    log = started(table)
    for day in range(1, 9):
        load(log, f"2026-05-{day:02d}", f"2026-05-{day + 1:02d}")
    load(log, "2026-05-02")
    assert habits_broken(lake, table) == []


def test_a_job_that_broke_its_habit_has_none_until_that_is_undone(lake: Lake, table: Path) -> None:
    log = started(table)
    days(log, 9)
    for day in ("2026-05-09", "2026-05-03"):
        load(log, day)
    assert [text[:14] for text in habits_broken(lake, table)] == ["day=2026-05-09"]


def test_partitions_that_are_no_time_may_be_written_again(lake: Lake, table: Path) -> None:
    log = started(table, "country")
    for country in ("DE", "ES", "FR", "IT", "NL", "PT", "DE", "ES"):
        load(log, country, by="country")
    assert habits_broken(lake, table) == []


def test_a_first_load_of_many_days_counts_for_each(lake: Lake, table: Path) -> None:
    log = started(table)
    load(log, *(f"2026-04-{day:02d}" for day in range(1, 31)))
    days(log, 5)
    load(log, "2026-04-30")
    (text,) = habits_broken(lake, table)
    assert text.startswith("day=2026-04-30 written a second time at v7, ") and text.endswith("each of 35 before once")


def invoices(dice: random.Random, number: int) -> dict[str, list[object]]:
    loaded = [NOW + timedelta(minutes=number)] * 20
    return {"id": list(range(20 * number, 20 * number + 20)), **orders(dice), "loaded_at": list(loaded)}


def test_a_batch_that_is_appended_twice_is_noticed_until_it_is_gone(lake: Lake, table: Path) -> None:
    """Whatever column says when it was loaded."""
    dice = random.Random(7)
    batches = [invoices(dice, number) for number in range(12)]
    again = {**batches[5], "loaded_at": [NOW + timedelta(days=1)] * 20}
    write(table, [*batches, again, invoices(dice, 12)])
    (notice,) = noticed(lake, table)
    assert notice_text(notice) == "rows that are there twice none → 20 of 20 rows, as of v5 at v12, WRITE"
    assert notice.is_open and notice.kind not in FIRSTS
    DeltaTable(table).optimize.compact()  # they are in one file now, twice as before
    DeltaTable(table).delete("id = 3")
    assert noticed(lake, table) == [notice]
    DeltaTable(table).delete(f"loaded_at = '{again['loaded_at'][0]}'")
    (mended,) = noticed(lake, table)
    assert (mended.key, mended.mended_at) == (notice.key, 16)


@pytest.mark.parametrize("rows", ["a snapshot each day", "few different values", "nothing twice"])
def test_what_is_no_copy_is_not_noticed(lake: Lake, table: Path, rows: str) -> None:
    dice = random.Random(7)
    same, written = orders(dice), list[dict[str, list[object]]]()
    for number in range(14):
        day: list[object] = [date(2026, 1, 1) + timedelta(days=number)] * 20
        if rows == "a snapshot each day":
            written.append({"day": day, "id": list(range(20)), **same})
        elif rows == "few different values":
            written.append({"day": day, "status": ["new", "paid"] * 10, "hour": [number % 7] * 20})
        else:
            written.append(invoices(dice, number))
    write(table, written)
    assert noticed(lake, table) == []
