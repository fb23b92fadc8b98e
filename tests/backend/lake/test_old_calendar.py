"""Days and moments that Spark counted in the calendar before 1582: read as Spark reads them, or refused by name."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import compute as pc

from backend.changes.model import DiffMethod, NetCounts
from backend.errors import UnsupportedFeatureError
from backend.lake.lake import Lake
from backend.lake.table.file_times import OLD_DAYS, OLD_INT96, may_be_old, opened, write_rebased
from backend.lake.table.schema import fields
from backend.settings import load_settings
from backend.sql.filters import parse_filter
from tests.worlds.lake.builders import HandLog, add, commit_info, metadata, protocol, remove
from tests.worlds.lake.diffs import diff
from tests.worlds.lake.object_store import client, make_bucket, server_url, storage_options
from tests.worlds.lake.vectors import write_vector

OpenLake = Callable[..., Lake]
MARKS = {b"org.apache.spark.version": b"4.2.0", OLD_DAYS: b"", OLD_INT96: b"", b"org.apache.spark.timeZone": b"UTC"}
DAYS = [date(1500, 3, 1), date(1, 1, 1), date(2024, 2, 29), None]
COLUMNS = {"id": "long", "day": "date", "at": "timestamp"}
SWITCHES = (-719_164, -682_945, -646_420, -609_895, -536_845, -500_320, -463_795, -390_745, -354_220, -317_695,
            -244_645, -208_120, -171_595, -141_427)  # fmt: skip
SHIFTS = (2, 1, 0, -1, -2, -3, -4, -5, -6, -7, -8, -9, -10, 0)  # Spark's own table, RebaseDateTime.scala


def stored_days() -> pa.Array:
    """`DAYS` as an old writer counts them: the first of March 1500 was the eleventh, the first day of all two early."""
    days = pa.array(DAYS, pa.date32()).cast(pa.int32()).to_pylist()
    return pa.array([days[0] + 10, days[1] - 2, *days[2:]], pa.int32()).cast(pa.date32())


def rows(*, is_stored: bool) -> pa.Table:
    days = stored_days() if is_stored else pa.array(DAYS, pa.date32())
    noon = pc.add(days.cast(pa.timestamp("us")).cast(pa.int64()), 43_200 * 10**6)
    moments = noon.cast(pa.timestamp("us", "UTC"))
    return pa.table({"id": pa.array(range(4), pa.int64()), "day": days, "at": moments})


def write_marked(path: Path, content: pa.Table, marks: dict[bytes, bytes] = MARKS) -> None:
    options = {"use_deprecated_int96_timestamps": True, "store_schema": False}
    with pq.ParquetWriter(path, content.schema, **options) as writer:
        writer.write_table(content)
        writer.add_key_value_metadata(marks)


def put(table: Path, name: str, *, marks: dict[bytes, bytes] | None, **more: Any) -> dict[str, Any]:
    table.mkdir(parents=True, exist_ok=True)
    write_marked(table / name, rows(is_stored=marks is not None), marks or {})
    return add(name, size=(table / name).stat().st_size, rows=4, **more)


def old_table(table: Path, marks: dict[bytes, bytes] = MARKS) -> HandLog:
    """v1 an old file, v2 the same rows in a new one."""
    log = HandLog(table).commit(protocol(), metadata(COLUMNS), commit_info())
    log.commit(put(table, "old.parquet", marks=marks), commit_info())
    return log.commit(remove("old.parquet"), put(table, "new.parquet", marks=None), commit_info("OPTIMIZE"))


def test_old_files_are_read_as_spark_reads_them_and_a_compaction_changed_nothing(
    open_lake: OpenLake, root: Path
) -> None:
    old_table(root / "t")
    lake = open_lake(root)
    ref = lake.find("t")
    for version in (1, 2):
        snapshot = lake.snapshot(ref, version)
        assert lake.read_files(snapshot).read_all().sort_by("id").equals(rows(is_stored=False))
        where = parse_filter("day < DATE '1500-03-05' AND at < '1500-03-05'", fields(snapshot.metadata))
        found = lake.read_files(snapshot, columns=["id"], where=where).read_all()
        assert sorted(found["id"].to_pylist()) == [0, 1]
    answer = diff(lake, ref, 1, 2, key=("id",))
    assert (answer.method, answer.changes.net) == (DiffMethod.KEY_JOIN, NetCounts(0, 0, 0))


def test_rows_that_a_vector_deletes_are_the_same_in_the_copy(open_lake: OpenLake, root: Path) -> None:
    log = HandLog(root / "t").commit(protocol(3, 7, ["deletionVectors"]), metadata(COLUMNS), commit_info())
    log.commit(put(root / "t", "old.parquet", marks=MARKS, dv=write_vector(root / "t", [1, 2])), commit_info())
    lake = open_lake(root)
    found = lake.read_files(lake.snapshot(lake.find("t"))).read_all().sort_by("id")
    assert found.to_pylist() == rows(is_stored=False).take([0, 3]).to_pylist()


@pytest.mark.parametrize(
    ("marks", "is_old"),
    [
        ({b"org.apache.spark.version": b"2.4.8", b"org.apache.spark.timeZone": b"Etc/UTC"}, True),
        ({b"org.apache.spark.version": b"4.2.0"}, False),
        ({b"org.apache.spark.version": b"3.1.0"}, False),
        ({}, False),
    ],
)
def test_a_version_before_the_marks_tells_it_too(
    open_lake: OpenLake, root: Path, marks: dict[bytes, bytes], is_old: bool
) -> None:
    old_table(root / "t", marks)
    lake = open_lake(root)
    found = lake.read_files(lake.snapshot(lake.find("t"), 1)).read_all().sort_by("id")
    assert found.equals(rows(is_stored=not is_old))
    with pa.OSFile(str(root / "t" / "old.parquet")) as source:
        assert may_be_old(source) is is_old


@pytest.mark.parametrize("zone", [b"Europe/Amsterdam", b""])
def test_moments_by_another_clock_are_refused_by_name(open_lake: OpenLake, root: Path, zone: bytes) -> None:
    old_table(root / "t", MARKS | {b"org.apache.spark.timeZone": zone})
    lake = open_lake(root)
    with pytest.raises(UnsupportedFeatureError, match=r"old\.parquet of .* column at in the calendar before 1582"):
        lake.read_files(lake.snapshot(lake.find("t"), 1))
    answer = diff(lake, lake.find("t"), 1, 2, key=("id",))
    assert answer.method is DiffMethod.LOG_ONLY
    assert any("old.parquet" in reason for reason in answer.reasons)


def test_old_days_inside_of_others_are_refused_by_name(tmp_path: Path) -> None:
    inner = pa.StructArray.from_arrays([stored_days()], ["day"])
    write_marked(tmp_path / "n.parquet", pa.table({"id": range(4), "n": inner}))
    with pa.OSFile(str(tmp_path / "n.parquet")) as source, pytest.raises(UnsupportedFeatureError, match="column n "):
        write_rebased(opened(source), tmp_path / "copy", "n.parquet")


def test_old_days_on_an_object_store(tmp_path: Path) -> None:
    options = storage_options(server_url())
    make_bucket("old")
    old_table(tmp_path / "t")
    for path in (tmp_path / "t").rglob("*.*"):
        client().upload_file(str(path), "old", f"root/t/{path.relative_to(tmp_path / 't')}")
    given = {"roots": ["s3://old/root"], "storage_options": {"s3://old/root/": options}}
    lake = Lake(load_settings(home=tmp_path, lake=given))
    (ref,) = lake.tables()
    for version in (1, 2):
        found = lake.read_files(lake.snapshot(ref, version)).read_all().sort_by("id")
        assert found.equals(rows(is_stored=False))
    assert diff(lake, ref, 1, 2, key=("id",)).changes.net == NetCounts(0, 0, 0)


def test_each_day_of_the_old_calendar_is_counted_as_by_spark(tmp_path: Path) -> None:
    days = np.arange(SWITCHES[0], -141_000, dtype=np.int32)
    right = days + np.array(SHIFTS)[np.searchsorted(SWITCHES, days, side="right") - 1]
    write_marked(tmp_path / "days.parquet", pa.table({"day": pa.array(days).cast(pa.date32())}))
    with pa.OSFile(str(tmp_path / "days.parquet")) as source:
        write_rebased(opened(source), tmp_path / "copy", "days.parquet")
    found = pq.read_table(tmp_path / "copy")["day"].combine_chunks().cast(pa.int32()).to_numpy()
    assert np.array_equal(found, right)
