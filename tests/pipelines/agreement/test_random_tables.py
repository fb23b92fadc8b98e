"""What Weir reads of random tables that Spark wrote, and says of their bounds and differences, is what Spark says."""

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from backend.cells import cell as value_of
from backend.cells import far_number
from backend.changes.model import DiffMethod, NetCounts
from backend.errors import UnsupportedFeatureError
from backend.lake.files.stats import column_totals
from backend.lake.lake import Lake
from backend.lake.model import Snapshot
from backend.lake.table.schema import fields
from backend.settings import load_settings
from backend.sql.filters import condition_text, parse_filter
from backend.sql.profile import profiles, readable
from tests.worlds.cases import few
from tests.worlds.lake.diffs import diff
from tests.worlds.spark.random_tables import (
    FLAT,
    RandomTable,
    Values,
    arrow_rows,
    of_arrow,
    random_table,
    spark_ends,
    spark_rows,
    without_zero_signs,
    write,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.parametrize("seed", few(3, range(500)))
def test_a_random_table_is_read_as_by_spark(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    agrees(spark, tmp_path, random_table(seed, tmp_path / "lake" / "t"))


def agrees(spark: SparkSession, home: Path, table: RandomTable) -> None:
    write(spark, table)
    lake = Lake(load_settings(home=home, lake={"roots": [str(home / "lake")]}))
    newest = lake.snapshot(lake.find("t"))
    versions = (2, newest.version)
    theirs = [spark_rows(spark, home / "lake" / "t", version, table.columns) for version in versions]
    try:
        for version, rows in zip(versions, theirs, strict=True):
            found = lake.read_files(lake.snapshot(newest.ref, version)).read_all()
            ours = arrow_rows(found, table.columns)
            assert ours == rows, (
                f"v{version}: {[(key, ours.get(key), row) for key, row in rows.items() if row != ours.get(key)]}"
            )
        ends = spark_ends(spark, home / "lake" / "t", newest.version, table.columns)
        _same_bounds(lake, newest, ends, table)
        _same_differences(lake, newest, versions, (theirs[0], theirs[1]))
        _same_filtered(lake, newest, table, theirs[1])
    except UnsupportedFeatureError as exc:  # nested, or by another clock
        if not (table.is_old and "in the calendar before 1582" in exc.message):
            raise


def _same_bounds(lake: Lake, snapshot: Snapshot, ends: Mapping[str, tuple[Any, Any]], table: RandomTable) -> None:
    *_, last = profiles().over(lake, snapshot.ref, "", [snapshot.version])
    (profile,) = readable(last.values).values()
    for column in profile.columns:
        if column.column in ends:
            found = tuple(_number(value, table.columns[column.column]) for value in (column.lowest, column.highest))
            assert _zeros(found) == _zeros(ends[column.column]), f"{column} of the rows"
    for name, (low, high) in ends.items():
        (totals,) = column_totals(snapshot, [name])
        for is_exact, found, right in (
            (totals.lowest_is_exact, totals.lowest, low),
            (totals.highest_is_exact, totals.highest, high),
        ):
            if is_exact and found is not None:
                assert _zeros(_number(found, table.columns[name])) == _zeros(right), f"{totals} of the log"


def _number(value: Any, kind: str) -> Any:
    """A value of Weir's as `spark_rows` has it."""
    if value is not None and kind.startswith(("DATE", "TIMESTAMP")):
        return far_number(value if isinstance(value, str) else value.isoformat())
    if isinstance(value, float):  # of a FLOAT the log has the shortest text, 0.1
        return repr(float(np.float32(value)) if kind == "FLOAT" else value)
    return value


def _zeros(value: Any) -> Any:
    (without,) = without_zero_signs({0: value if isinstance(value, tuple) else (value,)}).values()
    return without


def _same_differences(lake: Lake, newest: Snapshot, versions: tuple[int, int], theirs: tuple[Values, Values]) -> None:
    before, after = (without_zero_signs(rows) for rows in theirs)
    updated = sum(before[key] != after[key] for key in before.keys() & after.keys())
    net = NetCounts(len(after.keys() - before.keys()), updated, len(before.keys() - after.keys()))
    whole = Counter(after.items()) - Counter(before.items()), Counter(before.items()) - Counter(after.items())
    answer = diff(lake, newest.ref, *versions, key=("id",))
    assert answer.changes.net == net, answer.reasons
    answer = diff(lake, newest.ref, *versions, method=DiffMethod.KEY_JOIN, key=("id",))
    assert answer.changes.net == net, answer.reasons
    answer = diff(lake, newest.ref, *versions, method=DiffMethod.MULTISET)
    found = answer.changes.net.inserted, answer.changes.net.deleted
    assert found == (whole[0].total(), whole[1].total()), answer.reasons


def _same_filtered(lake: Lake, snapshot: Snapshot, table: RandomTable, rows: Values) -> None:
    """A click on each value of a cell finds the rows that hold it."""
    schema = fields(snapshot.metadata)
    shown = lake.read_files(snapshot).read_all()
    for number, (name, kind) in enumerate(table.columns.items()):
        if kind not in FLAT or not rows:
            continue
        cell = shown[name][0]
        if pa.types.is_floating(cell.type) and cell.is_valid and math.isinf(cell.as_py()):
            continue  # which no filter can name
        where = parse_filter(condition_text(name, "=", value_of(cell), kind=kind.lower()), schema)
        found = lake.read_files(snapshot, columns=["id"], where=where).read_all()["id"].to_pylist()
        wanted = _zeros(of_arrow(cell))
        right = [key for key, row in rows.items() if _zeros(row[number]) == wanted]
        assert sorted(found) == sorted(right), f"{name} = {value_of(cell)!r}"
