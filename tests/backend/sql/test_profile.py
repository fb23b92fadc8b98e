"""Profiles of real tables against pandas: counts, bounds, commonest values and bins, from rows and from the log."""

import math
import os
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from backend.lake.files.stats import column_totals
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.settings import load_settings
from backend.sql.profile import Profile, from_log, profiles, readable, with_statistics
from tests.worlds.lake import builders

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


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("WEIR_HOME", str(tmp_path))
    monkeypatch.setenv("WEIR_CONFIG", os.devnull)
    (tmp_path / "lake").mkdir()
    return Lake(load_settings())


@pytest.fixture
def table(lake: Lake, tmp_path: Path) -> TableRef:
    """0 and 1 are written, 2 deletes rows, 3 makes a third of `amount` null."""
    path = tmp_path / "lake" / "mixed"
    for seed in range(2):
        builders.write(path, rows(seed))
    DeltaTable(str(path)).delete("few = 1 AND id < 2000")
    DeltaTable(str(path)).update(updates={"amount": "NULL"}, predicate="few = 2")
    return lake.find("mixed")


def read(lake: Lake, ref: TableRef, *versions: int) -> list[Profile]:
    *_, last = profiles().over(lake, ref, "", versions)
    return list(readable(last.values).values())


def peer(lake: Lake, version: int) -> pd.DataFrame:
    return DeltaTable(lake.find("mixed").uri, version=version).to_pandas()


@pytest.mark.parametrize("version", [0, 2, 3])
def test_counts_and_bounds_are_those_of_pandas(lake: Lake, table: TableRef, version: int) -> None:
    (found,) = read(lake, table, version)
    frame = peer(lake, version)
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


def test_the_commonest_values_are_counted_exactly(lake: Lake, table: TableRef) -> None:
    (found,) = read(lake, table, 3)
    frame = peer(lake, 3)
    by_name = {column.column: column for column in found.columns}
    for name in ("status", "few", "ok", "odd name"):
        wanted = Counter(frame[name].dropna())
        got = {top.value: top.rows for top in by_name[name].top}
        assert sorted(got.values(), reverse=True) == sorted(wanted.values(), reverse=True)[:5], name
        assert all(wanted[value] == count for value, count in got.items()), name
    assert by_name["status"].top[0].value == "new" and not by_name["id"].top  # each its own: nothing is common


def test_bins_hold_every_value_between_their_edges(lake: Lake, table: TableRef) -> None:
    (found,) = read(lake, table, 3)
    frame = peer(lake, 3)
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


def test_the_log_tells_nulls_and_bounds_at_once(lake: Lake, table: TableRef) -> None:
    snapshot = lake.snapshot(table, 1)
    found = from_log(snapshot, column_totals(snapshot, with_statistics(snapshot)))
    frame = peer(lake, 1)
    assert not found.is_read and found.rows == len(frame)
    for column in found.columns:
        if column.nulls is not None:
            assert column.nulls == int(frame[column.column].isna().sum()), column.column
    by_name = {column.column: column for column in found.columns}
    assert (by_name["id"].lowest, by_name["id"].highest) == (0, 2 * ROWS - 1)
    assert by_name["amount"].null_share == pytest.approx(frame["amount"].isna().mean())


def test_numbers_that_are_none_and_empty_tables(lake: Lake, tmp_path: Path) -> None:
    odd = pa.table({"f": pa.array([math.nan, math.inf, 1.0, None, 2.0]), "s": pa.array(["x\x00y", "", None, "é", "é"])})
    builders.write(tmp_path / "lake" / "odd", odd)
    ref = lake.find("odd")
    (found,) = read(lake, ref, 0)
    number, text = found.columns
    assert number.nulls == 1 and sum(each.rows for each in number.bins) in (0, 2)
    assert text.top[0].value == "é" and text.top[0].rows == 2
    DeltaTable(ref.uri).delete()
    (gone,) = read(lake, ref, 1)
    assert gone.rows == 0 and [column.nulls for column in gone.columns] == [0, 0]


def test_a_profile_is_read_once_and_two_versions_differ(lake: Lake, table: TableRef) -> None:
    numbers = profiles()
    *_, last = numbers.over(lake, table, "", [0, 3])
    assert last.is_done and len(numbers.known(lake.snapshot(table), "", [0, 1, 3])) == 2
    *_, again = numbers.over(lake, table, "", [3])
    assert again.values[0].value is last.values[1].value


def test_distinct_values_are_never_more_than_rows_that_hold_one(lake: Lake, tmp_path: Path) -> None:
    """The estimate of a key lies above its rows about as often as below."""
    keys = {f"k{number}": range(number * 10**6, number * 10**6 + 300) for number in range(24)}
    builders.write(tmp_path / "lake" / "keys", pa.table({name: pa.array(values) for name, values in keys.items()}))
    (found,) = read(lake, lake.find("keys"), 0)
    distinct = [column.distinct or 0 for column in found.columns]
    assert max(distinct) == 300 and min(distinct) > 250, distinct
