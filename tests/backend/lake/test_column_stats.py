"""Statistics per column, equal to what deltalake reads of the same log and to the data; how files' ranges overlap."""

import datetime as dt
import json
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from backend.changes.answer import outline
from backend.errors import ColumnNotFoundError
from backend.lake.files.clustering import clustering_columns, declared_clustering, overlap_of
from backend.lake.files.stats import ColumnStats, StatKind, column_stats, column_totals, columns_with_stats
from backend.lake.model import Commit, OperationMetrics, Snapshot
from backend.lake.rows.filters import FilterColumn, Test, may_match
from backend.lake.table.metadata_diff import PropertyChange
from tests.worlds.lake import builders
from tests.worlds.lake.builders import HandLog, column, metadata, struct
from tests.worlds.lake.diffs import prepare


@pytest.fixture
def snapshot_of(open_lake):
    def read(path: Path) -> Snapshot:
        lake = open_lake(path.parent)
        return lake.snapshot(lake.find(path.name))

    return read


@pytest.fixture
def column_of(root, snapshot_of):
    """The snapshot of a table with one column `c`, whose files carry these statistics."""
    return lambda texts, kind: snapshot_of(hand_table(root / "t", texts, {"c": kind}))


def everything(number: int) -> pa.Table:
    """Three rows of every type, others for every number; the second row is null where it can be."""
    day, moment = date(2024, 1, 1 + number), datetime(2024, 1, 1 + number, 1, 2, 3, 456_000)
    return pa.table(
        {
            "long": pa.array([number, None, number + 2**60], pa.int64()),
            "short": pa.array([-number, None, 7], pa.int16()),
            "double": pa.array([number + 0.25, None, -1.5e300], pa.float64()),
            "price": pa.array([Decimal(f"{number}.10"), None, Decimal("-2.55")], pa.decimal128(10, 2)),
            "day": pa.array([day, None, date(1, 1, 1)], pa.date32()),
            "at": pa.array([moment.replace(tzinfo=UTC), None, moment.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
            "local": pa.array([moment, None, moment], pa.timestamp("us")),
            "text": pa.array([f"é{number}", None, "zz"], pa.string()),
            "flag": pa.array([True, None, number % 2 == 0], pa.bool_()),
            "home": pa.array([{"city": "Ede", "no": number}, {"city": None, "no": 1}, {"city": "Oss", "no": 2}]),
            "tags": pa.array([["a"], None, []], pa.list_(pa.string())),
            "nothing": pa.nulls(3, pa.int32()),
            "a.b": pa.array([number, None, 3], pa.int32()),
            "part": pa.array([f"p/{number % 3}%"] * 3, pa.string()),
        }
    )


@pytest.fixture(scope="module")
def all_types(tmp_path_factory):
    """A table of four commits with every type."""
    path = tmp_path_factory.mktemp("types") / "t"
    for number in range(4):
        builders.write(path, everything(number), partition_by=["part"])
    return path


def test_every_type_equals_what_deltalake_reads(all_types, snapshot_of):
    path, snapshot = all_types, snapshot_of(all_types)
    actions = pa.table(DeltaTable(str(path)).get_add_actions(flatten=True))
    places = {unquote(file): place for place, file in enumerate(actions["path"].to_pylist())}
    actions = actions.take([places[file] for file in snapshot.columns(["path"])["path"].to_pylist()])
    names = [name for name in columns_with_stats(snapshot.metadata) if name not in ("part", "tags")]
    assert "home.city" in names and "home" not in names
    for name in names:
        statistics = column_stats(snapshot, name)
        for theirs, mine in {"min": statistics.min, "max": statistics.max, "null_count": statistics.null_count}.items():
            assert mine.to_pylist() == actions[f"{theirs}.{name}"].to_pylist(), (theirs, name)


def test_totals_equal_the_data(all_types, snapshot_of):
    snapshot = snapshot_of(all_types)
    rows = pa.concat_tables([everything(number) for number in range(4)])
    for name in ("long", "short", "double", "price", "day", "at", "local", "text", "flag", "a.b", "part"):
        (total,), column = column_totals(snapshot, [name]), rows[name]
        wanted = pc.min_max(column).as_py()
        assert (total.lowest, total.highest) == (wanted["min"], wanted["max"]), name
        assert (total.nulls, total.rows_with_nulls) == (column.null_count, 12), name
        assert total.files_with_bounds == total.files == 4, name
        assert total.lowest_is_exact is (name not in ("at", "local")), name
    (nothing, tags) = column_totals(snapshot, ["nothing", "tags"])
    assert (nothing.lowest, nothing.files_with_bounds, nothing.null_share) == (None, 4, 1.0)
    assert tags.kind is StatKind.OTHER and tags.files_with_bounds == 0


# by hand ---------------------------------------------------------------------------------------------------------


def hand_table(path: Path, texts: Sequence[Any], columns: dict[str, str], **options: Any) -> Path:
    """A table whose files carry these statistics: text as it is, anything else as JSON."""
    log = builders.HandLog(path).start(columns=columns, **options)
    adds = [builders.add(f"{place:03d}.parquet", rows=None) for place in range(len(texts))]
    for action, text in zip(adds, texts, strict=True):
        if text is not None:
            action["add"]["stats"] = text if isinstance(text, str) else json.dumps(text)
    log.commit(*adds, builders.commit_info())
    return path


def bounds(low: Any, high: Any, nulls: Any = 0, **more: Any) -> dict[str, Any]:
    return {"numRecords": 10, "minValues": {"c": low}, "maxValues": {"c": high}, "nullCount": {"c": nulls}} | more


@pytest.mark.parametrize(
    ("kind", "written", "want"),
    [
        ("double", ["NaN", "Infinity"], [None, float("inf")]),
        ("double", ["-Infinity", 3], [float("-inf"), 3.0]),
        ("long", [2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)]),
        ("long", [1.0, "2"], [1, None]),
        ("long", [True, {"x": 1}], [None, None]),
        ("decimal(38,2)", [12.345, "7.5"], [Decimal("12.34"), Decimal("7.50")]),
        ("decimal(38,2)", [1e3, 12], [Decimal("1000.00"), Decimal("12.00")]),
        ("decimal(4,2)", [12345, "x"], [None, None]),
        ("date", ["2024-02-29", "0001-01-01"], [date(2024, 2, 29), date(1, 1, 1)]),
        ("date", ["2024-02-30", 5], [None, None]),
        ("timestamp", ["2024-01-01T00:00:00.123+02:00"] * 2, [datetime(2023, 12, 31, 22, 0, 0, 123_000, UTC)] * 2),
        ("timestamp", ["2024-01-01 00:00:00", "soon"], [datetime(2024, 1, 1, tzinfo=UTC), None]),
        ("timestamp_ntz", ["2024-01-01T00:00:00.5", "2024-01-01 00:00:01Z"],
         [datetime(2024, 1, 1, 0, 0, 0, 500_000), datetime(2024, 1, 1, 0, 0, 1)]),
        ("timestamp_ntz", ["2024-01-01", None], [datetime(2024, 1, 1), None]),
        ("string", ["a\nb", "\u2028\\"], ["a\nb", "\u2028\\"]),
        ("boolean", [False, "true"], [False, None]),
    ],
)  # fmt: skip
def test_what_writers_write(column_of, kind, written, want):
    snapshot = column_of([bounds(*written)], kind)
    statistics = column_stats(snapshot, "c")
    if written[0] == "NaN":
        assert statistics.min.to_pylist()[0] != statistics.min.to_pylist()[0] and statistics.max.to_pylist() == want[1:]
    else:
        assert [statistics.min[0].as_py(), statistics.max[0].as_py()] == want
    assert statistics.null_count.to_pylist() == [0]


def test_one_odd_text_hides_only_itself(root, snapshot_of):
    texts = [
        bounds(1, 5, 1),
        None,
        "",
        "garbage",
        "[1]",
        '{"minValues":3}',
        bounds("x", 9),
        json.dumps(bounds(0, 7), indent=1),
    ]
    snapshot = snapshot_of(hand_table(root / "t", texts, {"c": "long", "d": "double"}))
    statistics = column_stats(snapshot, "c")
    assert statistics.min.to_pylist() == [1, None, None, None, None, None, None, 0]
    assert statistics.max.to_pylist() == [5, None, None, None, None, None, 9, 7]
    assert statistics.null_count.to_pylist() == [1, None, None, None, None, None, 0, 0]
    totals = statistics.totals
    assert (totals.lowest, totals.highest, totals.files_with_bounds, totals.files) == (0, 9, 2, 8)
    assert (totals.nulls, totals.rows_with_nulls, totals.files_with_nulls) == (1, 30, 3)


def test_not_a_number_is_the_highest(column_of):
    texts = [bounds(1, "NaN"), bounds("NaN", "NaN"), bounds(-1, 2)]
    snapshot = column_of(texts, "double")
    for step in (10, 1):
        (totals,) = column_totals(snapshot, ["c"], files_at_once=step)
        assert totals.lowest == -1 and totals.highest != totals.highest


def test_cut_text_and_long_decimals_are_bounds(column_of, tmp_path, snapshot_of):
    snapshot = column_of([bounds("a" * 32, "b")], "string")
    totals = column_stats(snapshot, "c").totals
    assert (totals.lowest_is_exact, totals.highest_is_exact) == (False, True)
    text = '{"numRecords":1,"minValues":{"c":1.2345678901234568e+16},"maxValues":{"c":20000000000000000000.5}}'
    snapshot = snapshot_of(hand_table(tmp_path / "other" / "t", [text], {"c": "decimal(38,2)"}))
    statistics = column_stats(snapshot, "c").totals
    assert (statistics.lowest, statistics.lowest_is_exact) == (Decimal("12345678901234568.00"), False)
    assert statistics.null_share is None


@pytest.mark.parametrize(
    ("kind", "texts", "signs"),
    [
        ("long", [(1, 5), (2, 3)], ("", "")),
        ("long", [(1, 5), (None, 3)], ("≤", "≥")),  # a file that does not say may reach beyond
        ("double", [(1, 5), (2, 3)], ("", "≥")),  # NaN is left out, and the highest
        ("double", [(1, "NaN"), (2, 3)], ("", "")),
        ("double", [(1, 2), (7, None)], ("≤", "≥")),  # infinity is left out
        ("string", [("a", "b" * 31)], ("", "")),
        ("string", [("a", "b" * 32)], ("", "≤")),
        ("string", [("a", "京" * 21)], ("", "≤")),  # of delta-rs, after 64 bytes
        ("string", [("a", "😀" * 14 + "bbbb")], ("", "≤")),  # of Spark, after 32 halves of a character
        ("timestamp", [("2026-01-01T00:00:00.123Z", "2026-01-01T00:00:00.123456Z")], ("≥", "")),
        ("timestamp", [("2026-01-01T00:00:00.123456Z", "2026-01-01T00:00:00.124Z")], ("", "≥")),
        ("timestamp_ntz", [(None, "2026-01-01T00:00:00.124")], ("", "≥")),
        ("date", [("2026-01-01", "2026-01-02")], ("", "")),
    ],
)
def test_a_bound_is_exact_only_where_it_must_be_a_value_and_the_outermost(column_of, kind, texts, signs):
    snapshot = column_of([bounds(*ends) for ends in texts], kind)
    for step in (10, 1):
        (totals,) = column_totals(snapshot, ["c"], files_at_once=step)
        assert (totals.lowest_sign, totals.highest_sign) == signs
        assert totals.lowest is None or (totals.lowest_is_exact, totals.highest_is_exact) == tuple(not s for s in signs)


def test_a_file_whose_bound_is_nan_is_opened_for_other_numbers(column_of):
    texts = [bounds(1.0, "NaN"), bounds("NaN", "NaN"), bounds(6.0, 7.0)]
    snapshot = column_of(texts, "double")
    for operator, files in (("=", [0, 1]), ("<=", [0, 1]), (">", [0, 1, 2])):
        test = Test(FilterColumn(("c",), "double"), operator, 5.0)
        assert may_match(test, snapshot, few_files=0).tolist() == files, operator


def test_deletion_vectors_leave_mere_bounds(root, snapshot_of):
    log = builders.HandLog(root / "t").start(columns={"c": "long"})
    vector = builders.deletion_vector("vBn[lx{q8@P<9BNH/isA", cardinality=2)
    written = json.dumps(bounds(1, 5))
    log.commit(
        builders.add("a.parquet", rows=None, stats=written),
        builders.add("b.parquet", rows=None, stats=written, dv=vector),
        builders.add("c.parquet", rows=None, stats=json.dumps(bounds(1, 5, tightBounds=False)), dv=vector),
        builders.add("d.parquet", rows=None, stats=json.dumps(bounds(1, 5, tightBounds=True)), dv=vector),
    )
    statistics = column_stats(snapshot_of(root / "t"), "c")
    assert statistics.is_tight.to_pylist() == [True, False, False, True]
    assert not statistics.totals.lowest_is_exact and not statistics.totals.is_tight


def test_mapped_columns_are_found_by_their_physical_names(root, snapshot_of):
    home = builders.struct(builders.column("city", "string", physical="col-3"))
    columns = [builders.column("id", physical="col-1"), builders.column("home", home, physical="col-2")]
    stats = {"numRecords": 1, "minValues": {"col-1": 4, "col-2": {"col-3": "Ede"}}, "nullCount": {"id": 9, "col-1": 0}}
    log = builders.HandLog(root / "t").start(columns=columns)
    log.commit(builders.add("a.parquet", rows=None, stats=json.dumps(stats)))
    snapshot = snapshot_of(root / "t")
    assert column_stats(snapshot, "id").min.to_pylist() == [4]
    assert column_stats(snapshot, "id").null_count.to_pylist() == [0]
    assert column_stats(snapshot, "home.city").min.to_pylist() == ["Ede"]


def test_partition_columns_have_their_values(root, snapshot_of):
    columns = {"id": "long", "day": "date", "n": "integer", "ok": "boolean"}
    log = builders.HandLog(root / "t").start(columns=columns, partition_by=["day", "n", "ok"])
    values = [("2026-01-02", "7", "true"), ("2026-01-01", "-3", "false"), (None, "x", None)]
    parts = [dict(zip(("day", "n", "ok"), value, strict=True)) for value in values]
    log.commit(*(builders.add(f"{place}", rows=5, partitionValues=part) for place, part in enumerate(parts)))
    snapshot = snapshot_of(root / "t")
    day = column_stats(snapshot, "day")
    assert day.min.to_pylist() == day.max.to_pylist() == [date(2026, 1, 2), date(2026, 1, 1), None]
    assert day.null_count.to_pylist() == [0, 0, 5] and day.is_partition
    assert column_stats(snapshot, "n").min.to_pylist() == [7, -3, None]
    assert column_stats(snapshot, "ok").min.to_pylist() == [True, False, None]
    assert column_stats(snapshot, "ok").totals.null_share == pytest.approx(1 / 3)


def test_an_empty_table_has_no_bounds(root, snapshot_of):
    builders.HandLog(root / "t").start(columns={"id": "long", "p": "string"}, partition_by=["p"])
    snapshot = snapshot_of(root / "t")
    for name in ("id", "p"):
        totals = column_stats(snapshot, name).totals
        assert (totals.files, totals.lowest, totals.null_share) == (0, None, None)
        assert column_totals(snapshot, [name]) == (totals,)


@pytest.mark.parametrize("name", ["nope", "home", "homes.element.city", ""])
def test_a_column_without_statistics_is_an_error(root, snapshot_of, name):
    home = pa.struct([("city", pa.string())])
    table = pa.table({"id": [1], "home": pa.array([{"city": "Ede"}], home), "homes": pa.array([[{"city": "Ede"}]])})
    builders.write(root / "t", table)
    with pytest.raises(ColumnNotFoundError):
        column_stats(snapshot_of(root / "t"), name)


# overlap and clustering -----------------------------------------------------------------------------------------------

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
    overlap = overlap_of(stats([value(n) for n in low], [value(n) for n in high], kind, of), np.array(codes), 4)
    depths = counted(low, high)
    assert overlap.average_files == pytest.approx(sum(depths) / len(depths))
    assert overlap.most_files == max(depths)
    apart = counted(low, high, codes)
    assert overlap.average_in_partition == pytest.approx(sum(apart) / len(apart))
    assert sorted(point.files for point in overlap.profile) == sorted(depths)


def test_files_without_bounds_are_always_read_and_those_of_nulls_never():
    made = stats([0, None, None, 5], [4, None, None, 9], nulls=[0, 0, 10, 0])
    overlap = overlap_of(made, np.array([0, 0, 1, 1]), 2)
    assert (overlap.files, overlap.files_with_bounds, overlap.files_without) == (4, 2, 1)
    assert (overlap.average_files, overlap.most_files) == (2.0, 2)


def test_nothing_known_is_nothing_said():
    for made in (stats([None], [None]), stats([], []), stats([None], [None], StatKind.OTHER, pa.null())):
        overlap = overlap_of(made, np.zeros(len(made.min), np.int64), 1)
        assert (overlap.average_files, overlap.most_files, overlap.profile) == (None, None, ())


def test_many_files_have_a_short_profile():
    low = list(range(5000))
    overlap = overlap_of(stats(low, [n + 2 for n in low]), np.zeros(5000, np.int64), 1)
    assert len(overlap.profile) <= 400 and overlap.profile[0].value == "0" and overlap.profile[-1].value == "5001"


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


# declared columns -----------------------------------------------------------------------------------------------------

WRITER_FEATURES = ["columnMapping", "clustering", "domainMetadata"]
FEATURES = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 7, "writerFeatures": WRITER_FEATURES}}


def clustered(*columns: list[str]) -> dict[str, Any]:
    text = json.dumps({"clusteringColumns": list(columns), "domainName": "delta.clustering"})
    return {"domainMetadata": {"domain": "delta.clustering", "configuration": text, "removed": False}}


def test_clustering_columns_go_by_their_names_and_their_change_is_told(root, lake):
    place = column("place", struct(column("city", "string", physical="c7")), physical="c2")
    mapped = {"delta.columnMapping.mode": "name"}
    schema = metadata([column("id", physical="c1"), place], configuration=mapped)
    log = HandLog(root / "t").commit(FEATURES, schema, clustered(["c1"]))
    log.commit(clustered(["c2", "c7"], ["c1"]))
    log.commit(clustered())
    log.raw(f"{3:020d}.json", json.dumps(clustered(["gone"]) | {"x": 1}) + "\n")
    ref = lake.find("t")
    declared = [declared_clustering(lake.snapshot(ref, version)) for version in range(4)]
    assert declared == [("id",), ("place.city", "id"), (), ("gone",)]
    for first, second, before, after in (
        (0, 1, "id", "place.city, id"),
        (1, 2, "place.city, id", None),
        (2, 0, None, "id"),
    ):
        answer = outline(prepare(lake, ref, first, second))
        assert answer.log.properties == (PropertyChange("clustered by", before, after),)
        assert answer.is_changed


def test_a_declaration_that_cannot_be_read_is_said(root, open_lake):
    odd = clustered()
    odd["domainMetadata"]["configuration"] = "[1"
    HandLog(root / "t").commit(FEATURES, metadata(), odd)
    assert declared_clustering(open_lake().snapshot(open_lake().find("t"))) == ("unreadable",)
