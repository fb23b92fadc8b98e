"""Suggested conditions hold at the good end and not at the bad one; what always grows suggests nothing."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from app.search.text import cause_texts, suggestion_text, where_broken
from backend.lake.files.stats import ColumnTotals, StatKind
from backend.lake.model import TableRef
from backend.search.notice import Measure
from backend.search.search import Bisection, BisectRequest, bisect
from backend.search.suggest import Held, held_numbers, load_held, suggest
from tests.worlds.lake import builders
from tests.worlds.lake.diffs import diff, lake_at


def held(name: str, kind: StatKind, bounds: Sequence[tuple[Any, Any]], nulls: Sequence[int] = ()) -> list[Held]:
    counts = nulls or [0] * len(bounds)
    states = []
    for version, ((low, high), count) in enumerate(zip(bounds, counts, strict=True)):
        totals = ColumnTotals(name, "", kind, False, 1, low, high, nulls=count, rows_with_nulls=100)
        states.append(Held(version, 100 * (version + 1), {name: totals}))
    return states


def test_a_jump_of_the_highest_value_suggests_a_bound_between() -> None:
    (found,) = suggest(held("amount", StatKind.FLOAT, [(1.0, 1_990.0), (1.0, 1_998.4), (1.0, 1_284_900.0)]))
    assert (found.condition, found.measure, found.last, found.first) == ("amount <= 2200", Measure.HIGHEST, 1, 2)
    assert (found.before, found.after) == (1_998.4, 1_284_900.0)


def test_a_lowest_value_that_turned_negative_suggests_zero() -> None:
    (found,) = suggest(held("amount", StatKind.DECIMAL, [(Decimal(1), Decimal(90)), (Decimal(-3), Decimal(90))]))
    assert (found.condition, found.measure) == ("amount >= 0", Measure.LOWEST)


@pytest.mark.parametrize("kind", [StatKind.INTEGER, StatKind.TIMESTAMP])
def test_what_grows_with_every_commit_suggests_nothing(kind: StatKind) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    values = [100 * number if kind is StatKind.INTEGER else start + timedelta(hours=number) for number in range(1, 12)]
    assert suggest(held("grows", kind, [(values[0], value) for value in values])) == ()


def test_what_was_mended_before_the_bad_end_suggests_nothing() -> None:
    assert suggest(held("amount", StatKind.FLOAT, [(1.0, 10.0), (1.0, 900.0), (1.0, 10.0)])) == ()


def test_a_column_that_was_made_anew_with_another_type_has_not_jumped() -> None:
    numbers, days = [(1, 90), (1, 91)], [(date(2026, 1, 1), date(2026, 1, 11)), (date(2026, 1, 1), date(2026, 1, 12))]
    was, became = held("c", StatKind.INTEGER, numbers), held("c", StatKind.DATE, days)
    assert suggest([*was, *(replace(each, version=each.version + 2, num_rows=200) for each in became)]) == ()
    (found,) = suggest([*was, *held("c", StatKind.FLOAT, [(1.0, 9e5)])])  # numbers stay numbers
    assert found.condition == "c <= 100"


def test_a_day_far_ahead_suggests_a_day_between() -> None:
    first, far = date(2026, 1, 1), date(2206, 5, 1)
    (found,) = suggest(
        held("day", StatKind.DATE, [(first, date(2026, 1, 11)), (first, date(2026, 1, 12)), (first, far)])
    )
    assert found.condition == "day <= DATE '2026-01-14'"


def test_nulls_that_came_suggest_none_or_as_few_as_before() -> None:
    bounds = [("a", "b")] * 3
    (none,) = suggest(held("email", StatKind.STRING, bounds, (0, 0, 31)))
    (few,) = suggest(held("email", StatKind.STRING, bounds, (1, 1, 31)))
    assert none.condition == "email IS NOT NULL"
    assert (few.condition, few.before, few.after) == ("count(email) >= 0.84 * count(*)", 0.01, 0.31)


def test_nulls_that_come_with_each_version_since_one_suggest_none() -> None:
    shares = (0, 0, 0, 0, 0, 6, 11, 16, 20)
    (none,) = suggest(held("email", StatKind.STRING, [("a", "b")] * len(shares), shares))
    assert (none.condition, none.last, none.first, none.after) == ("email IS NOT NULL", 4, 5, 0.06)
    assert suggest(held("email", StatKind.STRING, [("a", "b")] * 6, (0, 0, 6, 11, 16, 20))) == ()


def test_rows_that_went_suggest_as_many_as_before() -> None:
    states = [Held(version, rows, {}) for version, rows in enumerate((1_000, 1_100, 400))]
    (found,) = suggest(states)
    assert found.condition == "count(*) >= 900" and (found.before, found.after) == (1_100, 400)


# on tables ------------------------------------------------------------------------------------------------------------


def found_by(lake: Any, ref: TableRef, condition: str) -> Bisection:
    *_, last = bisect(lake, ref, BisectRequest(condition))
    assert last.result is not None
    return last.result


def test_a_key_that_was_unique_is_suggested_and_its_repeated_rows_are_shown(tmp_path: Path) -> None:
    path, kinds = tmp_path / "t", {"sku": pa.string(), "site": pa.int64(), "stock": pa.int64()}
    builders.write(path, pa.table({name: pa.array([], kind) for name, kind in kinds.items()}))  # v0 is empty
    for version in range(1, 7):
        numbers = range(10, 15) if version == 4 else range(version * 10, version * 10 + 10)  # v4 repeats five of v1
        rows = {"sku": [f"s{n // 2}" for n in numbers], "site": [n % 2 for n in numbers], "stock": [*numbers]}
        builders.write(path, rows)
    lake = lake_at(tmp_path)
    ref = lake.find("t")
    states = [DeltaTable(str(path), version=v).to_pandas() for v in range(7)]
    repeats = [int(state.duplicated(["sku", "site"]).sum()) for state in states]
    held = load_held(held_numbers(), lake, ref, (0, 6), ("sku", "site"))
    found, *_ = suggest(held, ("sku", "site"))
    bisected = found_by(lake, ref, found.condition)
    assert [each.version for each in held] == [1, 2, 3, 4, 5, 6]
    assert (found.condition, found.measure) == ("(sku, site)", Measure.REPEATS)
    assert (found.before, found.after) == (0, repeats[6]) == (repeats[1], 5)
    assert bisected.culprit == next(v for v in range(7) if repeats[v]) == 4
    twice = states[4][states[4].duplicated(["sku", "site"], keep=False)]
    assert len(bisected.examples.rows) == 5
    shown = {(row["sku"], row["site"]) for row in bisected.examples.rows}
    assert shown <= set(zip(twice["sku"], twice["site"], strict=True)) and len(shown) == 3
    written = found_by(lake, ref, "count(*) = count(DISTINCT (sku, site))")
    assert (written.culprit, written.examples) == (4, bisected.examples)
    one, *_ = suggest(load_held(held_numbers(), lake, ref, (0, 6), ("stock",)), ("stock",))
    assert one.condition == "count(*) = count(DISTINCT stock)"


@pytest.mark.parametrize("has_copies", [True, False])
def test_that_no_row_is_there_twice_is_suggested_where_no_key_is_known(tmp_path: Path, has_copies: bool) -> None:
    path = tmp_path / "t"
    for version in range(8):
        day = 2 if version == 5 and has_copies else version  # v5 loads the day of v2 again
        builders.write(
            path, {"day": [day] * 20, "hour": [*range(20)], "kWh use": [day * 31 % 7 + n / 10 for n in range(20)]}
        )
    lake = lake_at(tmp_path)
    ref = lake.find("t")
    states = [DeltaTable(str(path), version=v).to_pandas() for v in range(8)]
    copies = [int(state.duplicated().sum()) for state in states]
    assert any(copies) is has_copies
    found = [each for each in suggest(load_held(held_numbers(), lake, ref, (0, 7))) if each.measure is Measure.REPEATS]
    if not has_copies:
        assert found == []
        return
    (one,) = found
    assert (one.condition, one.before, one.after) == ('(day, hour, "kWh use")', 0, copies[7])
    assert suggestion_text(one) == f"rows that are there twice: 0 at v0, {copies[7]} at v7"
    assert found_by(lake, ref, one.condition).culprit == next(v for v in range(8) if copies[v]) == 5


def of_rows(version: int, fault: str) -> dict[str, list[Any]]:
    """Eighty rows of four shops; from v4 on one of them has the fault."""
    numbers, start = range(version * 80, version * 80 + 80), datetime(2026, 3, 1, tzinfo=UTC)
    is_bad = [version >= 4 and number % 4 == 3 for number in numbers]
    sold = [
        start + timedelta(minutes=number, hours=2 * (bad and fault == "order"))
        for number, bad in zip(numbers, is_bad, strict=True)
    ]
    prices = [
        float(number % 7) if bad and fault == "whole" else number % 7 + 0.25
        for number, bad in zip(numbers, is_bad, strict=True)
    ]
    rows = {
        "id": [*numbers], "shop": [f"shop's {number % 4}" for number in numbers], "price": prices, "sold at": sold,
        "landed_at": [start + timedelta(minutes=number + 3) for number in numbers],
    }  # fmt: skip
    keep = [not (bad and fault == "gone") for bad in is_bad]
    return {name: [value for value, stays in zip(values, keep, strict=True) if stays] for name, values in rows.items()}


@pytest.mark.parametrize("fault", ["order", "whole", "gone", "none"])
def test_what_rows_of_both_ends_tell_is_suggested(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "t"
    for version in range(7):
        builders.write(path, of_rows(version, fault), mode="overwrite" if fault in ("gone", "whole") else "append")
    lake = lake_at(tmp_path)
    ref = lake.find("t")
    first, last = (DeltaTable(str(path), version=version).to_pandas() for version in (0, 6))
    found = suggest(load_held(held_numbers(), lake, ref, (0, 6)))
    if fault == "none":
        assert not {Measure.WHERE, Measure.WHOLE} & {each.measure for each in found}
        return
    one, *more = [each for each in found if each.measure in (Measure.WHERE, Measure.WHOLE)]
    late, rounded = last["sold at"] > last["landed_at"], last["price"] % 1 == 0
    condition, words = {
        "order": ('"sold at" <= landed_at', f'rows where `"sold at" > landed_at`: 0 at v0, {late.sum()} at v6'),
        "whole": (
            "count(*) FILTER (price = trunc(price)) <= 0.125 * count(*)",
            f"whole numbers in `price`: 0 % at v0, {rounded.mean():.0%} at v6".replace("25%", "25 %"),
        ),
        "gone": (
            "count(*) FILTER (shop = 'shop''s 3') > 0",
            f"rows where `shop = 'shop''s 3'`: {first['shop'].str.endswith('3').sum()} at v0, 0 at v6",
        ),
    }[fault]
    assert (one.condition, suggestion_text(one), more) == (condition, words, [])
    bisected = found_by(lake, ref, one.condition)
    assert bisected.culprit == 4
    where = {"order": f"NOT ({condition})", "whole": "price = trunc(price)", "gone": None}[fault]
    assert where_broken(bisected) == where
    if where:
        broken = diff(lake, ref, 3, 4, where=where)
        *_, cause = cause_texts(diff(lake, ref, 3, 4), broken, by_row=bisected.by_row)
        which = "that it counts" if fault == "whole" else "that break it"
        assert re.match(rf"Of those {which}: All 20 inserted rows have .*`shop` = shop's 3", cause)


def test_what_was_done_to_all_rows_is_said_once(tmp_path: Path) -> None:
    path, prices = tmp_path / "t", [number + 0.25 for number in range(100)]
    rows = {"id": [*range(100)], "shop": [f"s{number % 4}" for number in range(100)], "price": prices, "run": [1] * 100}
    builders.write(path, rows)
    later = [number * (1 + number * 37 % 11 / 29) + 1.37 for number in range(100)]
    rounded = [float(round(price)) if number % 4 == 3 else price for number, price in enumerate(later)]
    source = pa.table(rows | {"price": rounded, "run": [2] * 100})
    merge = DeltaTable(str(path)).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().execute()
    lake = lake_at(tmp_path)
    ref = lake.find("t")
    changed, broken = (diff(lake, ref, 0, 1, where=where) for where in (None, "price = trunc(price)"))
    lines = cause_texts(changed, broken, by_row=False)
    assert [line for line in lines if "`run`" in line] == ["All 100 updates changed `run` from 1 to 2."]
    assert any(line.startswith("Of those that it counts: All 25 updated rows have `shop` = s3") for line in lines)
