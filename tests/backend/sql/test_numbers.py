"""Numbers and profiles over versions, against deltalake and pandas: from rows, and from statistics alone."""

import math
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from backend.errors import QueryError
from backend.lake.lake import Lake
from backend.sql.numbers import Profile, aggregates, column_numbers, profiles, readable, spread
from tests.worlds.lake import builders
from tests.worlds.lake.diff_lakes import LakeWith
from tests.worlds.lake.diffs import lake_at


def rows_at(path: Path, version: int) -> pa.Table:
    return pa.RecordBatchReader.from_stream(DeltaTable(str(path), version=version).scan()).read_all()


@pytest.fixture
def orders(root: Path) -> Path:
    return builders.orders_table(root / "orders")


def values(progress: Iterator[object]) -> list[object]:
    *_, last = progress
    assert last.is_done
    return [value.value for value in last.values]


def test_an_aggregate_is_that_of_the_rows_at_each_version(orders: Path, lake: Lake) -> None:
    ref, found = lake.find("orders"), aggregates()
    rows = [rows_at(orders, version) for version in range(4)]
    assert values(found.over(lake, ref, "sum(amount)", range(4))) == [pc.sum(r["amount"]).as_py() for r in rows]
    assert values(found.over(lake, ref, "count(*)", range(4))) == [r.num_rows for r in rows]
    paid = "count(*) FILTER (WHERE status = 'paid')"
    assert values(found.over(lake, ref, paid, range(4))) == [r["status"].to_pylist().count("paid") for r in rows]
    assert values(found.over(lake, ref, "count(DISTINCT status)", [3, 1, 1])) == [1, 2]


class CountedLake(LakeWith):
    """A lake that counts what is read of it."""

    scans = 0

    def read_files(self, *asked: Any, **more: Any) -> pa.RecordBatchReader:
        self.scans += 1
        return self._lake.read_files(*asked, **more)


def test_a_value_is_computed_once(orders: Path, lake: Lake) -> None:
    lake, found = CountedLake(lake), aggregates()
    ref = lake.find("orders")
    first = values(found.over(lake, ref, "sum(amount)", range(4)))
    assert lake.scans == 4
    assert values(found.over(lake, ref, "sum(amount)", range(4))) == first and lake.scans == 4
    known = found.known(lake.snapshot(ref), "sum(amount)", [1, 3, 9])
    assert [(value.version, value.value) for value in known] == [(1, first[1]), (3, first[3])]


def test_a_version_that_cannot_be_computed_hides_no_other(orders: Path, lake: Lake) -> None:
    builders.write(orders, {"order_id": [9], "status": ["new"], "amount": [1.0], "tip": [2]}, schema_mode="merge")
    gone = DeltaTable(str(orders), version=1).file_uris()
    Path(next(iter(set(gone) - set(DeltaTable(str(orders)).file_uris())))).unlink()
    *_, last = aggregates().over(lake, lake.find("orders"), "sum(tip)", [3, 4])
    assert [value.value for value in last.values] == [None, 2] and "no column 'tip'" in str(last.values[0].problem)
    *_, last = aggregates().over(lake, lake.find("orders"), "sum(amount)", [1, 4])
    assert "is gone" in str(last.values[0].problem) and last.values[1].value is not None


def test_a_wrong_expression_is_said_before_anything_is_read(orders: Path, lake: Lake) -> None:
    lake = CountedLake(lake)
    with pytest.raises(QueryError, match="no column"):
        aggregates().over(lake, lake.find("orders"), "sum(nothing)", range(4))
    assert lake.scans == 0


def test_a_columns_numbers_come_from_statistics_alone(orders: Path, lake: Lake) -> None:
    expected = [rows_at(orders, version)["amount"].to_pylist() for version in range(4)]
    for file in orders.rglob("*.parquet"):
        file.unlink()
    totals = values(column_numbers().over(lake, lake.find("orders"), "amount", range(4)))
    assert [(t.lowest, t.highest, t.nulls) for t in totals] == [(min(e), max(e), 0) for e in expected]


def test_a_columns_name_may_begin_with_a_space(root: Path, lake: Lake) -> None:
    builders.write(root / "odd", {" amount": [3, 5]})
    (totals,) = values(column_numbers().over(lake, lake.find("odd"), " amount", [0]))
    assert (totals.lowest, totals.highest) == (3, 5)


# profiles -------------------------------------------------------------------------------------------------------------


ROWS = 4_000


def rows(seed: int) -> pa.Table:
    numbers = [(seed * 7_919 + 104_729 * number) % 10_007 for number in range(ROWS)]
    day = [date(2026, 1, 1) + timedelta(days=number % 30) for number in numbers]
    return pa.table(
        {
            "id": pa.array(range(seed * ROWS, (seed + 1) * ROWS), pa.int64()),
            "status": pa.array([None if n % 5 == 0 else ("paid", "new", "it's", "new")[n % 4] for n in numbers]),
            "amount": pa.array([None if n % 11 == 0 else n / 7 for n in numbers], pa.float64()),
            "price": pa.array([Decimal(n) / 100 for n in numbers], pa.decimal128(12, 2)),
            "day": pa.array(day, pa.date32()),
            "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=n) for n in numbers]),
            "few": pa.array([n % 3 for n in numbers], pa.int32()),
            "ok": pa.array([n % 2 == 0 for n in numbers]),
            "none": pa.array([None] * ROWS, pa.string()),
            "odd name": pa.array([f"v{n % 7}" for n in numbers]),
            "tags": pa.array([[str(n)] if n % 2 else None for n in numbers]),
            "raw": pa.array([bytes([n % 256]) for n in numbers]),
        }
    )


class Mixed:
    """The table `mixed` with what pandas holds of it, beside others of the same lake."""

    def __init__(self, root: Path) -> None:
        self.root, self.lake, self.frame = root, lake_at(root), cache(self._frame)

    def profile(self, version: int, name: str = "mixed") -> Profile:
        *_, last = profiles().over(self.lake, self.lake.find(name), "", [version])
        (profile,) = readable(last.values).values()
        return profile

    def _frame(self, version: int) -> pd.DataFrame:
        return DeltaTable(self.root / "mixed", version=version).to_pandas()


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Mixed:
    """v0 and v1 are written, v2 deletes rows, v3 makes a third of `amount` null."""
    root = tmp_path_factory.mktemp("profiles")
    path = root / "mixed"
    for seed in range(2):
        builders.write(path, rows(seed))
    DeltaTable(str(path)).delete("few = 1 AND id < 2000")
    DeltaTable(str(path)).update(updates={"amount": "NULL"}, predicate="few = 2")
    odd = pa.table({"f": pa.array([math.nan, math.inf, 1.0, None, 2.0]), "s": pa.array(["x\x00y", "", None, "é", "é"])})
    builders.write(root / "odd", odd)
    DeltaTable(str(root / "odd")).delete()
    keys = {f"k{number}": range(number * 10**6, number * 10**6 + 300) for number in range(24)}
    builders.write(root / "keys", pa.table({name: pa.array(values) for name, values in keys.items()}))
    return Mixed(root)


@pytest.mark.parametrize("version", [0, 2, 3])
def test_counts_and_bounds_are_those_of_pandas(mixed: Mixed, version: int) -> None:
    found, frame = mixed.profile(version), mixed.frame(version)
    assert found.rows == len(frame) and found.is_read
    for column in found.columns:
        values = frame[column.column]
        assert (column.rows, column.nulls) == (len(frame), int(values.isna().sum())), column.column
        held = values.dropna()
        if column.type.startswith(("array", "binary")):
            assert column.lowest is None and not column.top
            continue
        if not len(held):
            assert column.lowest is None and column.distinct == 0 and not column.top
            continue
        assert (column.lowest, column.highest) == (plain(held.min()), plain(held.max())), column.column
        assert column.distinct == pytest.approx(held.nunique(), rel=0.1)
        assert column.distinct <= len(held), "approximate, and never above the rows that hold a value"


def plain(value: Any) -> Any:
    return value.to_pydatetime() if isinstance(value, pd.Timestamp) else getattr(value, "item", lambda: value)()


def test_the_commonest_values_are_counted_exactly(mixed: Mixed) -> None:
    found, frame = mixed.profile(3), mixed.frame(3)
    by_name = {column.column: column for column in found.columns}
    for name in ("status", "few", "ok", "odd name"):
        wanted = Counter(frame[name].dropna())
        got = {top.value: top.rows for top in by_name[name].top}
        assert sorted(got.values(), reverse=True) == sorted(wanted.values(), reverse=True)[:5], name
        assert all(wanted[value] == count for value, count in got.items()), name
    assert by_name["status"].top[0].value == "new" and not by_name["id"].top  # each its own: nothing is common


def test_bins_hold_every_value_between_their_edges(mixed: Mixed) -> None:
    found, frame = mixed.profile(3), mixed.frame(3)
    by_name = {column.column: column for column in found.columns}
    for name in ("id", "amount", "price", "few"):
        bins, values = by_name[name].bins, frame[name].dropna().astype(float)
        assert sum(each.rows for each in bins) == len(values)
        inside = [
            int(((values > each.low) & (values <= each.high)).sum() + (values == each.low).sum() * (not number))
            for number, each in enumerate(bins)
        ]
        assert [each.rows for each in bins] == inside, name
    assert [each.rows for each in by_name["few"].bins] == frame["few"].value_counts().sort_index().tolist()
    assert sum(each.rows for each in by_name["day"].bins) == len(frame)
    assert sum(each.rows for each in by_name["at"].bins) == len(frame)


def test_numbers_that_are_none_and_empty_tables(mixed: Mixed) -> None:
    number, text = mixed.profile(0, "odd").columns
    assert number.nulls == 1 and sum(each.rows for each in number.bins) in (0, 2)
    assert text.top[0].value == "é" and text.top[0].rows == 2
    empty = mixed.profile(1, "odd")
    assert empty.rows == 0 and [column.nulls for column in empty.columns] == [0, 0]


def test_distinct_values_are_never_more_than_rows_that_hold_one(mixed: Mixed) -> None:
    """The estimate of a key lies above its rows about as often as below."""
    distinct = [column.distinct or 0 for column in mixed.profile(0, "keys").columns]
    assert max(distinct) == 300 and min(distinct) > 250, distinct


# which versions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spans", "most", "within", "chosen"),
    [
        ([(0, 9)], 20, None, tuple(range(10))),
        ([(0, 9)], 4, None, (0, 3, 6, 9)),
        ([(0, 2), (10, 12)], 3, None, (0, 2, 12)),
        ([(5, 5), (8, 20)], 3, (6, 12), (8, 10, 12)),
        ([(0, 10_000)], 1, None, (10_000,)),
        ([], 5, None, ()),
    ],
)
def test_versions_are_chosen_evenly(
    spans: list[tuple[int, int]], most: int, within: tuple[int, int] | None, chosen: tuple[int, ...]
) -> None:
    assert spread(spans, most, within=within) == chosen
