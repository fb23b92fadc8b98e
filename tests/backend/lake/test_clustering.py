"""Overlap of files' ranges: equal to counting them one by one, whatever the type; columns from the history."""

import datetime as dt
import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from backend.lake.files.clustering import clustering_columns, overlap_of
from backend.lake.files.stats import ColumnStats
from backend.lake.files.stats_text import StatKind
from backend.lake.model import Commit, OperationMetrics

KINDS = [
    (StatKind.INTEGER, pa.int64(), lambda n: n),
    (StatKind.STRING, pa.string(), lambda n: f"{n:04d}"),
    (StatKind.DATE, pa.date32(), lambda n: dt.date(2000, 1, 1) + dt.timedelta(n)),
    (StatKind.TIMESTAMP, pa.timestamp("us", "UTC"), lambda n: dt.datetime(1950, 1, 1, tzinfo=dt.UTC) + dt.timedelta(n)),
    (StatKind.FLOAT, pa.float64(), lambda n: n / 3),
    (StatKind.DECIMAL, pa.decimal128(20, 2), lambda n: Decimal(n)),
]


def stats(low, high, kind=StatKind.INTEGER, of=None, nulls=None) -> ColumnStats:
    of = of or pa.int64()
    count = len(low)
    nulls = pa.array(nulls or [0] * count, pa.int64())
    rows, tight = pa.array([10] * count, pa.int64()), pa.array([True] * count)
    return ColumnStats("c", "x", kind, False, pa.array(low, of), pa.array(high, of), nulls, rows, tight)


def counted(low, high, partitions=None) -> list[int]:
    """How many ranges hold each bound, one by one."""
    count = len(low)
    partitions = partitions or [0] * count
    return [
        sum(low[m] <= value <= high[m] and partitions[m] == partitions[n] for m in range(count))
        for ends in (low, high)
        for n, value in enumerate(ends)
    ]


@pytest.mark.parametrize(("kind", "of", "value"), KINDS, ids=[kind.value for kind, _, _ in KINDS])
def test_the_overlap_equals_counting_range_by_range(kind, of, value):
    chance = random.Random(11)
    low = [chance.randrange(200) for _ in range(60)]
    high = [n + chance.randrange(40) for n in low]
    codes = [n % 4 for n in range(60)]
    found = overlap_of(stats([value(n) for n in low], [value(n) for n in high], kind, of), np.array(codes), 4)
    depths = counted(low, high)
    assert found.average_files == pytest.approx(sum(depths) / len(depths))
    assert found.most_files == max(depths)
    apart = counted(low, high, codes)
    assert found.average_in_partition == pytest.approx(sum(apart) / len(apart))
    assert sorted(point.files for point in found.profile) == sorted(depths)


def test_sorted_files_are_read_alone_and_shared_borders_twice():
    found = overlap_of(stats([0, 10, 20], [9, 19, 29]), np.zeros(3, np.int64), 1)
    assert (found.average_files, found.most_files, found.average_in_partition) == (1.0, 1, None)
    assert overlap_of(stats([0, 10, 20], [10, 20, 30]), np.zeros(3, np.int64), 1).most_files == 2
    assert overlap_of(stats([0] * 5, [9] * 5), np.zeros(5, np.int64), 1).average_files == 5.0


def test_files_without_bounds_are_always_read_and_those_of_nulls_never():
    made = stats([0, None, None, 5], [4, None, None, 9], nulls=[0, 0, 10, 0])
    found = overlap_of(made, np.array([0, 0, 1, 1]), 2)
    assert (found.files, found.files_with_bounds, found.files_without) == (4, 2, 1)
    assert (found.average_files, found.most_files) == (2.0, 2)


def test_nothing_known_is_nothing_said():
    for made in (stats([None], [None]), stats([], []), stats([None], [None], StatKind.OTHER, pa.null())):
        found = overlap_of(made, np.zeros(len(made.min), np.int64), 1)
        assert (found.average_files, found.most_files, found.profile) == (None, None, ())


def test_many_files_have_a_short_profile():
    low = list(range(5000))
    found = overlap_of(stats(low, [n + 2 for n in low]), np.zeros(5000, np.int64), 1)
    assert len(found.profile) <= 400 and found.profile[0].value == "0" and found.profile[-1].value == "5001"


def commit(**parameters) -> Commit:
    return Commit(1, None, "OPTIMIZE", parameters, OperationMetrics(), {}, None, None, None)


@pytest.mark.parametrize(
    ("commits", "want"),
    [
        ([commit(zOrderBy='["a","b"]')], ("a", "b")),
        ([commit(), commit(clusterBy="c, d"), commit(zOrderBy='["a"]')], ("c", "d")),
        ([commit(zOrderBy="[]"), commit(newClusteringColumns="e")], ("e",)),
        ([commit(zOrderBy="[broken"), commit(zOrderBy=["x"])], ("x",)),
        ([commit(zOrderBy={"a": 1}, clusterBy=3)], ()),
        ([], ()),
    ],
)
def test_columns_that_the_history_sorts_by(commits, want):
    assert clustering_columns(commits) == want
