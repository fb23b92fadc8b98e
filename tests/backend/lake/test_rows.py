"""Rows of chosen files are those that deltalake reads from the whole table, and a filter loses or adds none."""

import datetime as dt
import itertools
import struct
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from backend.errors import DataFileMissingError, PathRefusedError
from backend.lake.model import FILE_COLUMNS
from backend.lake.rows.rows import RowQuery
from backend.lake.table.schema import columns
from backend.sql.filters import parse_filter
from tests.worlds.lake.builders import (
    HandLog,
    add,
    column,
    commit_info,
    metadata,
    partitioned_table,
    protocol,
    put,
    write,
)
from tests.worlds.lake.vectors import write_vector

U = dt.UTC
ODD = ["a b", "c/d", None, "x=y", "ü%20", "it's"]


def plain_rows(path: Path) -> list[str]:
    table = pa.RecordBatchReader.from_stream(DeltaTable(str(path)).scan()).read_all()
    return sorted(map(repr, table.to_pylist()))


def search(lake, name: str, where: str = "", **query):
    snapshot = lake.snapshot(lake.find(name))
    row_filter = parse_filter(where, columns(snapshot.metadata))
    return lake.find_rows(snapshot, RowQuery(where=row_filter, **{"limit": 10_000} | query))


def found_rows(lake, name: str, where: str = "", **query) -> list[str]:
    return sorted(map(repr, search(lake, name, where, **query).rows.to_pylist()))


def mapped_table(path: Path, mode: str, physical: tuple[str, str]) -> Path:
    """Columns `id` and the partition `p q`, mapped; the file names its column `physical[0]`."""
    columns = [column("id", number=1, physical=physical[1]), column("p q", "string", number=2, physical="col-2")]
    settings = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "2"}
    made = metadata(columns, partition_by=["p q"], configuration=settings)
    schema = pa.schema([pa.field(physical[0], pa.int64(), metadata={b"PARQUET:field_id": b"1"})])
    rows = pa.table([pa.array([1, 2, 3])], schema=schema)
    put(path, "f 1.parquet", rows)
    size = (path / "f 1.parquet").stat().st_size
    file = add("f%201.parquet", size=size, rows=3, partitionValues={"col-2": "A/B %20="}, dv=write_vector(path, [1]))
    HandLog(path).commit(protocol(3, 7, ["columnMapping", "deletionVectors"]), made, file, commit_info())
    return path


@pytest.mark.parametrize(("kind", "folder"), [("u", ""), ("u", "ab"), ("p", ""), ("i", "")])
def test_rows_under_a_deletion_vector_of_each_kind(root, open_lake, kind, folder):
    path = root / "t"
    vector = write_vector(path, [0, 5, 9], kind=kind, folder=folder)
    log = HandLog(path).commit(protocol(3, 7, ["deletionVectors"]), metadata(), commit_info())
    log.commit(put(path, "f.parquet", {"id": list(range(10))}, dv=vector), commit_info())
    page = search(open_lake(), "t")
    assert sorted(page.rows["id"].to_pylist()) == [1, 2, 3, 4, 6, 7, 8]
    assert found_rows(open_lake(), "t") == plain_rows(path)
    assert (page.truncated, page.total_rows) == (False, 7)
    assert search(open_lake(), "t", "id >= 5").rows.num_rows == 3


def test_partitions_with_nulls_and_special_characters(root, lake):
    for number in range(2):
        write(root / "t", {"id": [number] * 6, "p": ODD, "q": [1, 2, 3, 4, 5, None]}, partition_by=["p", "q"])
    assert found_rows(lake, "t") == plain_rows(root / "t")
    for value in ODD[:2] + ODD[3:]:
        text = value.replace("'", "''")
        page = search(lake, "t", f"p = '{text}'")
        assert page.rows["p"].to_pylist() == [value] * 2
        assert (page.candidates, page.files) == (2, 12)
    assert search(lake, "t", "p IS NULL AND q = 3").candidates == 2
    assert search(lake, "t", "NOT (q < 3) AND id = 0").rows.num_rows == 3


def test_evolved_schema_has_nulls_in_old_files(root, lake):
    write(root / "t", {"id": [1, 2]})
    write(root / "t", {"id": [3], "late": ["x"], "deep": [{"a": 1}]}, schema_mode="merge")
    assert found_rows(lake, "t") == plain_rows(root / "t")
    assert search(lake, "t", "late IS NULL").rows["id"].sort().to_pylist() == [1, 2]
    assert search(lake, "t", "deep.a = 1").rows["id"].to_pylist() == [3]


def test_mapped_columns_by_name(root, lake):
    path = mapped_table(root / "t", "name", ("col-1", "col-1"))
    want = [{"id": 1, "p q": "A/B %20="}, {"id": 3, "p q": "A/B %20="}]
    assert search(lake, "t").rows.sort_by("id").to_pylist() == want
    assert found_rows(lake, "t") == plain_rows(path)
    assert search(lake, "t", "\"p q\" = 'A/B %20=' AND id > 1").rows["id"].to_pylist() == [3]
    assert search(lake, "t", "\"p q\" = 'other'").candidates == 0


@pytest.mark.parametrize("in_file", ["col-1", "a1"])
def test_mapped_columns_by_id_are_read_whatever_a_file_calls_them(root, lake, in_file):
    path = mapped_table(root / "t", "id", (in_file, "col-1"))
    assert search(lake, "t").rows["id"].sort().to_pylist() == [1, 3]
    assert search(lake, "t", "id = 3").rows.num_rows == 1
    assert ("None" in plain_rows(path)[0]) == (in_file == "a1"), "deltalake goes by ids now: Weir need not"


def test_files_of_another_allowed_table_and_chosen_files_alone(root, lake):
    other = write(root / "other", {"id": [1, 2]})
    own = write(root / "t", {"id": [3]})
    (data,) = other.glob("*.parquet")
    HandLog(own, next_version=1).commit(add(str(data), size=data.stat().st_size, rows=2), commit_info())
    assert found_rows(lake, "t") == plain_rows(own)
    snapshot = lake.snapshot(lake.find("t"))
    for index in range(2):
        want = {2: [1, 2], 1: [3]}[snapshot.columns(["num_records"])["num_records"][index].as_py()]
        files = snapshot.rows_at([index], FILE_COLUMNS)
        assert lake.read_files(snapshot, files, columns=["id"]).read_all()["id"].to_pylist() == want
    assert lake.read_files(snapshot, snapshot.rows_at([], FILE_COLUMNS)).read_all().num_rows == 0


def typed_rows() -> pa.Table:
    morning, old, next_day = dt.datetime(2020, 1, 1, 10, 0, 0, 1500), dt.datetime(1850, 1, 1), dt.datetime(2020, 1, 2)
    zoned = [moment.replace(tzinfo=U) for moment in (morning, old, next_day)]
    prices = [Decimal("1.50"), Decimal("12345678901234567890.12"), Decimal(0), None]
    return pa.table(
        {
            "id": pa.array([1, 2**60, -5, None], pa.int64()),
            "name": ["a", "b%_'x", "", None],
            "price": pa.array(prices, pa.decimal128(38, 2)),
            "day": [dt.date(2020, 1, 1), dt.date(1850, 1, 1), dt.date(2020, 1, 2), None],
            "at": pa.array([*zoned, None], pa.timestamp("us", "UTC")),
            "local": pa.array([morning.replace(microsecond=0), old, next_day, None], pa.timestamp("us")),
            "flag": [True, False, True, None],
            "raw": pa.array([b"\x00\x01", b"zz", b"", None], pa.binary()),
            "score": [1.5, float("nan"), -2.0, None],
            "ratio": pa.array([1.1, 2.2, 0.0, None], pa.float32()),
        }
    )


CASES = [
    ("id = 1152921504606846976", [1]),
    ("id > 0.5", [0, 1]),
    ("id BETWEEN -5 AND 1", [0, 2]),
    ("id <> 1", [1, 2]),
    ("name LIKE 'b%'", [1]),
    ("name = 'b%_''x'", [1]),
    ("name IN ('a', '')", [0, 2]),
    ("name NOT IN ('a')", [1, 2]),
    ("name IS NULL", [3]),
    ("price = 12345678901234567890.12", [1]),
    ("price > 1.495 AND price < 2", [0]),
    ("day = '2020-01-01'", [0]),
    ("day < DATE '1900-01-01'", [1]),
    ("at = '2020-01-01T11:00:00.0015+01:00'", [0]),
    ("at > TIMESTAMP '2020-01-01 10:00:00'", [0, 2]),
    ("local <= '2020-01-01 10:00'", [0, 1]),
    ("flag", [0, 2]),
    ("NOT flag", [1]),
    ("flag = false OR raw = X'0001'", [0, 1]),
    ("score IS NAN", [1]),
    ("score < 2", [0, 2]),
    ("ratio = 1.1", [0]),
    ("\"day\" IS NOT NULL and not (Name = 'a' or id < 0)", [1]),
    ("day IS NULL OR id = 1", [0, 3]),
    ("ratio < score", [0, 1]),  # NaN counts as the highest number, as in Spark
    ("score > 1", [0, 1]),
    ("abs(id) = 5", [2]),
    ("id > 0 AND length(name) > 1", [1]),
    ("price = 1.5 OR day < '2020-1-1'", [0, 1]),
    ("at = 'epoch' OR id = '1152921504606846976'", [1]),
]


@pytest.fixture
def typed(root):
    """The typed rows, one a file, with statistics."""
    rows = typed_rows()
    for number in range(rows.num_rows):
        write(root / "t", rows.slice(number, 1).append_column("place", pa.array([number])))
    return root / "t"


def test_filters_find_exactly_their_rows(typed, lake):
    pruned = 0
    for where, want in CASES:
        page = search(lake, "t", where, few_files=0)  # statistics may rule out all but those it must find
        assert sorted(page.rows["place"].to_pylist()) == want, where
        assert page.total_rows == len(want)
        pruned += page.candidates < 4
    assert pruned >= 16, "statistics rule files out"


def test_every_nan_is_the_highest_number_and_a_filter_sees_columns_that_are_not_shown(root, lake):
    signed = struct.unpack("d", struct.pack("Q", 0xFFF8 << 48))[0]  # as 0.0 / 0.0 gives on most processors
    write(root / "t", {"id": [1, 2, 3, 4], "x": [signed, float("nan"), -0.0, 5.0], "y": ["a", "b", "a", "b"]})
    for where, ids in {"x > 1": [1, 2, 4], "NOT x > 1": [3], "x <= 5": [3, 4], "x >= 0": [1, 2, 3, 4]}.items():
        assert sorted(search(lake, "t", where, columns=("id",)).rows["id"].to_pylist()) == ids, where
        assert search(lake, "t", f"({where}) AND y || 'c' = 'ac'", columns=("id",)).rows["id"].to_pylist() == [
            number for number in ids if number in (1, 3)
        ]
    assert search(lake, "t", "y || 'c' = 'ac'", columns=("id",), limit=1).rows.schema.names == ["id"]


def test_negated_and_joined_filters_agree_with_reading_every_file(typed, lake):
    texts = [where for where, _ in CASES]
    pairs = list(itertools.pairwise(texts))
    joined = [f"({a}) AND NOT ({b})" for a, b in pairs[::2]] + [f"NOT (({a}) OR ({b}))" for a, b in pairs[1::2]]
    for where in joined:
        every_file = search(lake, "t", where)  # there are few
        assert every_file.candidates == every_file.files == 4
        assert found_rows(lake, "t", where, few_files=0) == sorted(map(repr, every_file.rows.to_pylist())), where


def test_only_the_files_that_the_limit_needs_are_opened(root, lake):
    path = partitioned_table(root / "t", days=2, files_per_day=5)
    assert search(lake, "t", limit=3).files_read == 2
    ref = lake.find("t")
    for gone in lake.snapshot(ref).columns(["path"])["path"].to_pylist()[4:]:
        (path / gone).unlink()
    page = search(lake, "t", limit=5)
    assert (page.rows.num_rows, page.truncated, page.total_rows) == (5, True, 20)
    with pytest.raises(DataFileMissingError):
        search(lake, "t", limit=10)


def test_a_search_that_stops_early_says_how_far_it_came(root, lake):
    for number in range(10):
        write(root / "t", {"id": [number], "same": [1]})
    page = search(lake, "t", "id = same", search_files=3)
    assert (page.files_read, page.files_left, page.truncated, page.total_rows) == (3, 7, True, None)
    assert search(lake, "t", "id = same", search_files=None).total_rows == 1


def test_a_symlinked_deletion_vector_is_refused(root, open_lake, tmp_path):
    path = root / "t"
    vector = write_vector(path, [0])
    action = put(path, "f.parquet", {"id": [1, 2]}, dv=vector)
    (file,) = path.glob("*.bin")
    file.rename(tmp_path / "away.bin")
    file.symlink_to(tmp_path / "away.bin")
    HandLog(path).commit(protocol(3, 7, ["deletionVectors"]), metadata(), action, commit_info())
    with pytest.raises(PathRefusedError):
        search(open_lake(), "t")
    file.unlink()
    with pytest.raises(DataFileMissingError):
        search(open_lake(), "t")
