"""What a writer always did, and what is noticed once it does otherwise: logs judged as they come and in replay."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from backend.lake.history.conditions import condition_shape
from backend.lake.lake import Lake
from backend.search.notice import Measure, notice_text
from backend.search.notices import NoticeLooks
from tests.backend.search.test_notices import LATER, LONG_AGO, NOW, lake, noticed, table
from tests.worlds.lake.builders import HandLog, add, commit_info, metadata, protocol, remove

__all__ = ["lake", "table"]

NIGHTLY = {"userMetadata": json.dumps({"job": "nightly load"})}
STREAM = {"userMetadata": json.dumps({"stream": "s", "batch_id": 1})}
DAILY = {"userMetadata": json.dumps({"job": "daily load"})}


def start(log: HandLog, by: str = "day") -> None:
    log.commit(protocol(), metadata({"id": "long", "day": "date", "country": "string"}, partition_by=[by]))


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


@pytest.mark.parametrize("before", [5, 37, 200])
def test_a_merge_on_another_condition_is_noticed_once(lake: Lake, table: Path, before: int) -> None:
    log = HandLog(table)
    start(log)
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
    log = HandLog(table)
    start(log)
    for number in range(150):
        who, key = (NIGHTLY, "id") if number % 25 == 0 else (STREAM, "sku")
        by_condition(log, "MERGE", f"t.{key} = s.{key}", who)
    by_condition(log, "MERGE", "t.sku = s.sku", NIGHTLY)
    since = NOW - timedelta(days=1) + timedelta(minutes=150)
    (notice,) = NoticeLooks(lake).look(lake.find(str(table)), since, LATER)
    assert (notice.version, notice.before) == (151, "t.id = s.id (6 times)")


def test_a_clause_that_lost_its_condition_is_noticed(lake: Lake, table: Path) -> None:
    log, newer = HandLog(table), '[{"actionType":"update","predicate":"s.at > t.at"}]'
    start(log)
    for _ in range(6):
        by_condition(log, "MERGE", "t.id = s.id", NIGHTLY, matchedPredicates=newer)
    by_condition(log, "MERGE", "t.id = s.id", NIGHTLY, matchedPredicates='[{"actionType":"update"}]')
    (text,) = habits_broken(lake, table)
    assert "update if s.at > t.at (6 times) → update at v7" in text


def test_a_delete_of_every_row_is_noticed(lake: Lake, table: Path) -> None:
    log = HandLog(table)
    start(log)
    for number in range(6):
        by_condition(log, "DELETE", json.dumps([f"(customer#{number} = c {number})"]), NIGHTLY)
    by_condition(log, "DELETE", "[]", NIGHTLY)
    (text,) = habits_broken(lake, table)
    assert "DELETE on another condition than before: (customer = c 5) (6 times) → every row at v7" in text


def too_few(log: HandLog) -> None:
    for _ in range(4):
        by_condition(log, "MERGE", "t.id = s.id", NIGHTLY)


def by_three(log: HandLog) -> None:
    for number in range(30):
        by_condition(log, "MERGE", f"t.key{number % 3} = s.key{number % 3}", NIGHTLY)


def by_others(log: HandLog) -> None:
    for _ in range(9):
        by_condition(log, "MERGE", "t.id = s.id", DAILY)


def of_other_kinds(log: HandLog) -> None:
    for _ in range(9):
        by_condition(log, "DELETE", "id = 5", NIGHTLY)


def the_same(log: HandLog) -> None:
    for _ in range(9):
        by_condition(log, "MERGE", "target.sku = source.sku", NIGHTLY)


@pytest.mark.parametrize("history", [too_few, by_three, by_others, of_other_kinds, the_same])
def test_without_a_habit_no_condition_is_noticed(lake: Lake, table: Path, history: Callable[[HandLog], None]) -> None:
    log = HandLog(table)
    start(log)
    for number in range(6):
        load(log, "2026-05-01", who={"userName": f"analyst {number % 2}"})
    history(log)
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
def test_conditions_that_differ_in_values_alone_have_one_shape(table: Path, one: str, other: str, lake: Lake) -> None:
    assert len(set(shapes(lake, table, one, other))) == 1


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
def test_conditions_on_something_else_have_another_shape(table: Path, one: str, other: str, lake: Lake) -> None:
    assert len(set(shapes(lake, table, one, other))) == 2


def shapes(lake: Lake, table: Path, *conditions: str) -> list[str | None]:
    log = HandLog(table)
    for condition in conditions:
        by_condition(log, "DELETE", condition, NIGHTLY)
    return [condition_shape(commit) for commit in lake.history(lake.find(str(table)))]


# days ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [5, 60])
def test_a_day_that_a_job_writes_twice_is_noticed_until_it_is_undone(lake: Lake, table: Path, before: int) -> None:
    log = HandLog(table)
    start(log)
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


def a_stream(log: HandLog) -> None:
    days(log, 9, who=STREAM)


def a_query(log: HandLog) -> None:
    days(log, 9, who=BY_QUERY)


def nobody_named(log: HandLog) -> None:
    days(log, 9, who=UNNAMED)


def another_job(log: HandLog) -> None:
    days(log, 9, who=NIGHTLY)


def few(log: HandLog) -> None:
    days(log, 4)


def deleted_before(log: HandLog) -> None:
    days(log, 9)
    load(log, "2026-05-03", who={"userName": "eve"}, operation="DELETE", undo=True)


def emptied_before(log: HandLog) -> None:
    days(log, 9)
    committed(log, "DELETE", *(remove(f"{n}.parquet") for n in range(120)), userName="eve")


def overwritten_before(log: HandLog) -> None:
    days(log, 9)
    day = {"day": "2026-05-03"}
    files = remove("3-0.parquet", partitionValues=day), add("new.parquet", partitionValues=day)
    committed(log, "WRITE", *files, userName="eve")


def compacted(log: HandLog) -> None:
    days(log, 2)
    load(log, "2026-05-03", operation="OPTIMIZE")
    for day in (4, 5, 6, 7):
        load(log, f"2026-05-{day:02d}")


BY_QUERY: dict[str, Any] = {"operationParameters": {"queryId": "q", "epochId": "1"}}
UNNAMED: dict[str, Any] = {"engineInfo": "delta-rs:py-1.6.6"}


@pytest.mark.parametrize(
    ("history", "who"),
    [(a_stream, STREAM), (a_query, BY_QUERY), (nobody_named, UNNAMED)]
    + [(each, DAILY) for each in (another_job, few, deleted_before, emptied_before, overwritten_before, compacted)],
)
def test_a_day_that_may_well_be_written_is_not_noticed(
    lake: Lake, table: Path, history: Callable[[HandLog], None], who: dict[str, Any]
) -> None:
    log = HandLog(table)
    start(log)
    history(log)
    load(log, "2026-05-03", who=who)
    assert habits_broken(lake, table) == []


def test_a_job_that_comes_back_to_its_days_is_not_noticed(lake: Lake, table: Path) -> None:
    log = HandLog(table)
    start(log)
    for day in range(1, 9):
        load(log, f"2026-05-{day:02d}", f"2026-05-{day + 1:02d}")
    load(log, "2026-05-02")
    assert habits_broken(lake, table) == []


def test_a_job_that_broke_its_habit_has_none_until_that_is_undone(lake: Lake, table: Path) -> None:
    log = HandLog(table)
    start(log)
    days(log, 9)
    for day in ("2026-05-09", "2026-05-03"):
        load(log, day)
    assert [text[:14] for text in habits_broken(lake, table)] == ["day=2026-05-09"]


def test_partitions_that_are_no_time_may_be_written_again(lake: Lake, table: Path) -> None:
    log = HandLog(table)
    start(log, "country")
    for country in ("DE", "ES", "FR", "IT", "NL", "PT", "DE", "ES"):
        load(log, country, by="country")
    assert habits_broken(lake, table) == []


def test_a_first_load_of_many_days_counts_for_each(lake: Lake, table: Path) -> None:
    log = HandLog(table)
    start(log)
    load(log, *(f"2026-04-{day:02d}" for day in range(1, 31)))
    days(log, 5)
    load(log, "2026-04-30")
    (text,) = habits_broken(lake, table)
    assert text.startswith("day=2026-04-30 written a second time at v7, ") and text.endswith("each of 35 before once")
