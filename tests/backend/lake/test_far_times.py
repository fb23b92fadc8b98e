"""Times far from ours: Spark's INT96 beyond nanoseconds, days beyond Python's calendar. Each value is one that Spark
shows for the same file."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.cells import cell
from backend.changes.model import DiffMethod, NetCounts
from backend.errors import UnsupportedFeatureError
from backend.lake.files.stats import column_totals
from backend.lake.lake import Lake
from backend.lake.table.file_times import OLD_DAYS
from backend.lake.table.schema import fields
from backend.search.key_history import key_history
from backend.settings import load_settings
from backend.sql.export import FORMATS, encoded
from backend.sql.filters import condition_text, parse_filter
from backend.sql.numbers import Reading
from backend.sql.profile import profiles, readable
from tests.worlds.lake.builders import (
    CHANGE_FEED,
    HandLog,
    add,
    commit_info,
    metadata,
    protocol,
    remove,
    write_checkpoint_file,
)
from tests.worlds.lake.diffs import diff
from tests.worlds.lake.object_store import client, make_bucket, server_url, storage_options

END = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
FIRST = datetime(1, 1, 1, tzinfo=UTC)
OURS = datetime(2024, 6, 1, 12, tzinfo=UTC)
MOMENT = pa.timestamp("us", "UTC")
NESTED = pa.struct([("at", MOMENT), ("all", pa.list_(MOMENT)), ("by", pa.map_(pa.string(), MOMENT))])
COLUMNS = {"id": "long", "at": "timestamp", "p": "string"}
OpenLake = Callable[..., Lake]


def spans(*ends: datetime | None) -> pa.Table:
    """Rows with a moment at the top and in all that holds others."""
    nested = [{"at": end, "all": [end, OURS], "by": [("x", end)]} for end in ends]
    columns = {"id": pa.array(range(len(ends)), pa.int64()), "at": pa.array(ends, MOMENT)}
    return pa.table(columns | {"n": pa.array(nested, NESTED)})


def put(table: Path, name: str, rows: pa.Table, *, kind: str = "add", **more: Any) -> dict[str, Any]:
    """A data file as Spark's default encoding has it, and its action."""
    table.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, table / name, use_deprecated_int96_timestamps=True, store_schema=False)
    size = (table / name).stat().st_size
    if kind == "cdc":
        return {"cdc": {"path": name, "partitionValues": {}, "size": size, "dataChange": False} | more}
    return add(name, size=size, rows=len(rows), **more)


def spans_schema() -> str:
    moment = {"type": "array", "elementType": "timestamp", "containsNull": True}
    by = {"type": "map", "keyType": "string", "valueType": "timestamp", "valueContainsNull": True}
    inner = [("at", "timestamp"), ("all", moment), ("by", by)]
    nested = {"type": "struct", "fields": [_field(name, kind) for name, kind in inner]}
    outer = [("id", "long"), ("at", "timestamp"), ("n", nested), ("p", "string")]
    return json.dumps({"type": "struct", "fields": [_field(name, kind) for name, kind in outer]})


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def spans_table(table: Path, *versions: Sequence[datetime | None], **options: Any) -> HandLog:
    """Each version takes the file of the one before away and adds one of such rows."""
    described = metadata(COLUMNS, partition_by=["p"], **options)
    described["metaData"]["schemaString"] = spans_schema()
    log = HandLog(table).commit(protocol(1, 4), described, commit_info())
    values = {"partitionValues": {"p": "a"}}
    for number, ends in enumerate(versions):
        gone = [remove(f"{number - 1}.parquet", partitionValues={"p": "a"})] if number else []
        log.commit(*gone, put(table, f"{number}.parquet", spans(*ends), **values), commit_info())
    return log


def test_every_reader_of_rows_gives_int96_as_it_was_written(open_lake: OpenLake, root: Path) -> None:
    spans_table(root / "t", [END, FIRST, OURS])
    lake = open_lake(root)
    snapshot = lake.snapshot(lake.find("t"))
    rows = lake.read_files(snapshot).read_all().sort_by("id")
    assert rows.select(["id", "at", "n"]).to_pylist() == spans(END, FIRST, OURS).to_pylist()
    assert rows["p"].to_pylist() == ["a", "a", "a"]
    where = parse_filter("at > '2030-01-01'", fields(snapshot.metadata))
    assert lake.read_files(snapshot, columns=["id"], where=where).read_all()["id"].to_pylist() == [0]


def test_int96_that_changed_is_one_update_whoever_reads_it(open_lake: OpenLake, root: Path) -> None:
    later = FIRST + timedelta(days=1)
    spans_table(root / "t", [END, FIRST, OURS], [END, later, OURS])
    lake = open_lake(root)
    for columns in (("id", "at"), None):  # by DuckDB, and with nested columns by deltalake
        answer = diff(lake, lake.find("t"), 1, 2, key=("id",), columns=columns)
        assert answer.changes.net == NetCounts(0, 1, 0)
        (row,) = answer.changes.rows
        assert row.before is not None and row.after is not None
        assert (row.before["at"], row.after["at"]) == (FIRST, later)


def test_a_feed_that_its_reader_would_misread_is_not_read(open_lake: OpenLake, root: Path) -> None:
    spans_table(root / "t", [OURS], configuration=CHANGE_FEED)
    log = HandLog(root / "t", next_version=2)
    for kind, end in ((0, OURS + timedelta(days=1)), (1, END)):
        rows = spans(OURS, end).append_column("_change_type", [["update_preimage", "update_postimage"]])
        values = {"partitionValues": {"p": "a"}}
        change = put(root / "t", f"{kind}.cdc", rows, kind="cdc", **values)
        fresh = put(root / "t", f"{kind + 1}.parquet", spans(end), **values)
        log.commit(change, remove(f"{kind}.parquet", partitionValues={"p": "a"}), fresh, commit_info("UPDATE"))
    lake = open_lake(root)
    assert lake.changes(lake.find("t"), 1, 2, columns=["at"]).read_all()["at"].to_pylist()
    with pytest.raises(UnsupportedFeatureError, match=r"1\.cdc holds times before 1677 or after 2262 as INT96"):
        lake.changes(lake.find("t"), 2, 3)
    answer = diff(lake, lake.find("t"), 2, 3, key=("id",))
    assert (answer.method, answer.changes.net) == (DiffMethod.KEY_JOIN, NetCounts(0, 1, 0))
    assert any("misreads" in reason for reason in answer.reasons)
    *_, last = key_history(lake, lake.find("t"), (2, 3), {"id": 0})
    assert last.result is not None and not last.result.by_feed
    assert [(step.change.before or {})["at"] for step in last.result.steps] == [OURS + timedelta(days=1)]


def test_int96_on_an_object_store(tmp_path: Path) -> None:
    options = storage_options(server_url())
    make_bucket("far")
    spans_table(tmp_path / "t", [END, FIRST, OURS], [END, FIRST + timedelta(days=1), OURS])
    for path in (tmp_path / "t").rglob("*.*"):
        client().upload_file(str(path), "far", f"root/t/{path.relative_to(tmp_path / 't')}")
    given = {"roots": ["s3://far/root"], "storage_options": {"s3://far/root/": options}}
    lake = Lake(load_settings(home=tmp_path, lake=given))
    (ref,) = lake.tables()
    rows = lake.read_files(lake.snapshot(ref, 1)).read_all().sort_by("id")
    assert rows.select(["id", "at", "n"]).to_pylist() == spans(END, FIRST, OURS).to_pylist()
    assert diff(lake, ref, 1, 2, key=("id",)).changes.net == NetCounts(0, 1, 0)


# days beyond Python's calendar ----------------------------------------------------------------------------------------

FAR, FARTHER, BEFORE = "+10000-01-01", "+10000-01-02", "-0044-03-15"
FAR_DAYS = {day: int(np.datetime64(day.lstrip("+")).astype(int)) for day in (FAR, FARTHER, BEFORE, "2024-01-01")}
NOON_US = 43_200 * 10**6
FAR_COLUMNS = {"id": "long", "day": "date", "at": "timestamp", "p": "date"}


def far_rows(*days: str) -> pa.Table:
    numbers = pa.array([FAR_DAYS[day] for day in days], pa.int32())
    at = pa.array([FAR_DAYS[day] * 86_400 * 10**6 + NOON_US for day in days]).cast(MOMENT)
    return pa.table({"id": pa.array(range(len(days)), pa.int64()), "day": numbers.cast(pa.date32()), "at": at})


def far_table(table: Path) -> None:
    """v1 and v2: the second of three rows moves on by a day."""
    log = HandLog(table).commit(protocol(), metadata(FAR_COLUMNS, partition_by=["p"]), commit_info())
    for number, days in enumerate(((BEFORE, FAR, "2024-01-01"), (BEFORE, FARTHER, "2024-01-01"))):
        low, high, _ = ({"day": day, "at": f"{day}T12:00:00.000Z"} for day in days)
        stats = {"numRecords": 3, "minValues": low, "maxValues": high, "nullCount": {"day": 0, "at": 0}}
        values = {"partitionValues": {"p": FAR}}
        fresh = put(table, f"{number}.parquet", far_rows(*days), stats=json.dumps(stats), **values)
        gone = [remove(f"{number - 1}.parquet", **values)] if number else []
        log.commit(*gone, fresh, commit_info("UPDATE"))


def test_far_days_are_compared_and_shown_as_text(open_lake: OpenLake, root: Path) -> None:
    far_table(root / "t")
    lake = open_lake(root)
    for method in (DiffMethod.KEY_JOIN, DiffMethod.MULTISET):
        answer = diff(lake, lake.find("t"), 1, 2, key=("id",), method=method)
        assert (answer.changes.net.inserted or 0) + (answer.changes.net.updated or 0) == 1
        afters = [row.after for row in answer.changes.rows if row.after]
        assert [(row["day"], row["at"], row["p"]) for row in afters] == [(FARTHER, f"{FARTHER}T12:00:00Z", FAR)]


def test_far_days_are_bounds_by_the_log_and_by_the_rows(open_lake: OpenLake, root: Path) -> None:
    far_table(root / "t")
    lake = open_lake(root)
    snapshot = lake.snapshot(lake.find("t"))
    moments = (f"{BEFORE}T12:00:00Z", f"{FARTHER}T12:00:00Z")
    for column, ends in {"day": (BEFORE, FARTHER), "at": moments, "p": (FAR, FAR)}.items():
        (totals,) = column_totals(snapshot, [column])
        assert (totals.lowest, totals.highest) == ends
        held = Reading(lake).run(f'SELECT min("{column}") FROM rows', lake.read_files(snapshot, columns=[column]))
        assert held == ends[0]
    *_, last = profiles().over(lake, snapshot.ref, "", [2])
    (profile,) = readable(last.values).values()
    assert {c.column: (c.lowest, c.highest) for c in profile.columns}["day"] == (BEFORE, FARTHER)


@pytest.mark.parametrize(
    ("column", "operator", "value", "ids"),
    [("day", ">", FAR, [1]), ("day", "=", BEFORE, [0]), ("at", "<", f"{BEFORE}T12:00:00.5Z", [0]),
     ("at", "=", f"{FARTHER}T12:00:00Z", [1]), ("p", "=", FAR, [0, 1, 2]), ("p", "<", FAR, [])],
)  # fmt: skip
def test_a_click_on_a_far_value_filters_by_it(
    open_lake: OpenLake, root: Path, column: str, operator: str, value: str, ids: list[int]
) -> None:
    far_table(root / "t")
    lake = open_lake(root)
    snapshot = lake.snapshot(lake.find("t"))
    schema = fields(snapshot.metadata)
    kind = next(field.type for field in schema if field.path == column)
    where = parse_filter(condition_text(column, operator, value, kind=kind), schema)
    found = lake.read_files(snapshot, columns=["id"], where=where).read_all()
    assert sorted(found["id"].to_pylist()) == ids


NOON = "2024-06-01 12:00:00.123456"
PARTITIONS = {
    "timestamp": ["2024-06-01T12:00:00.123456Z", "+10000-01-01T00:00:00.000000Z", "-0044-03-15T00:00:00.000000Z", None],
    "timestamp_ntz": [NOON, "+10000-01-01 00:00:00", "-0044-03-15 00:00:00", None],
    "date": ["2024-06-01", FAR, BEFORE, None],
    "double": ["0.0", "NaN", "-0.0", None],
    "float": ["-0.0", "Infinity", "0.0", None],
}
ASKED = [
    *((kind, f"p = '{NOON[:10] if kind == 'date' else NOON}'", [0]) for kind in ("timestamp", "timestamp_ntz", "date")),
    *((kind, f"p > '{NOON[:10]}' AND p <> '2025-01-01'", [0, 1]) for kind in ("timestamp", "timestamp_ntz")),
    ("timestamp", "p IS NULL OR id = 2", [2, 3]),
    ("timestamp", f"NOT p >= '{NOON}'", [2]),
    *((kind, "p = 0", [0, 2]) for kind in ("double", "float")),
    *((kind, "p > -0.0", [1]) for kind in ("double", "float")),
    *((kind, "p BETWEEN 0 AND -0.0", [0, 2]) for kind in ("double", "float")),
]


def partitioned(table: Path, kind: str) -> None:
    """A file of one row, its number, for each partition."""
    table.mkdir(parents=True)
    adds = []
    for number, text in enumerate(PARTITIONS[kind]):
        pq.write_table(pa.table({"id": [number]}), table / f"{number}")
        size = (table / f"{number}").stat().st_size
        adds.append(add(f"{number}", size=size, rows=1, partitionValues={"p": text}))
    reader = protocol(3, 7, ["timestampNtz"]) if kind == "timestamp_ntz" else protocol()
    described = metadata({"id": "long", "p": kind}, partition_by=["p"])
    HandLog(table).commit(reader, described, *adds, commit_info())


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
@pytest.mark.parametrize(("operator", "ids"), [("=", [1]), ("<", [0, 2])])
def test_a_click_on_a_far_partition_filters_by_it(
    open_lake: OpenLake, root: Path, kind: str, operator: str, ids: list[int]
) -> None:
    partitioned(root / "t", kind)
    lake = open_lake(root)
    snapshot = lake.snapshot(lake.find("t"))
    far = lake.read_files(snapshot).read_all().sort_by("id")["p"][1]
    where = parse_filter(condition_text("p", operator, cell(far), kind=kind), fields(snapshot.metadata))
    assert sorted(lake.read_files(snapshot, where=where).read_all()["id"].to_pylist()) == ids


@pytest.mark.parametrize(("kind", "asked", "ids"), ASKED)
def test_a_filter_finds_the_partitions_whose_value_satisfies_it(
    open_lake: OpenLake, root: Path, kind: str, asked: str, ids: list[int]
) -> None:
    """Of a reader's own look at partition values nothing is left out."""
    partitioned(root / "t", kind)
    lake = open_lake(root)
    snapshot = lake.snapshot(lake.find("t"))
    where = parse_filter(asked, fields(snapshot.metadata))
    assert where is not None and where.predicate() is not None
    assert sorted(lake.read_files(snapshot, columns=["id"], where=where).read_all()["id"].to_pylist()) == ids


def test_the_same_filters_on_an_object_store(tmp_path: Path) -> None:
    for kind in PARTITIONS:
        partitioned(tmp_path / kind, kind)
    bounds = {"numRecords": 1, "minValues": {"p": -0.0}, "maxValues": {"p": -0.0}, "nullCount": {"p": 0}}
    zero = put(tmp_path / "zero", "a", pa.table({"id": [0], "p": [-0.0]}), stats=json.dumps(bounds))
    HandLog(tmp_path / "zero").commit(protocol(), metadata({"id": "long", "p": "double"}), zero, commit_info())
    partitioned(tmp_path / "gone", "date")
    (tmp_path / "gone" / "1").unlink()
    files = (path for path in tmp_path.rglob("*") if path.is_file())
    make_bucket("partitions", {f"root/{path.relative_to(tmp_path)}": path.read_bytes() for path in files})
    options = {"s3://partitions/root/": storage_options(server_url())}
    lake = Lake(load_settings(home=tmp_path, lake={"roots": ["s3://partitions/root"], "storage_options": options}))
    zeros = [("zero", f"p {sign} 0", [0]) for sign in ("=", "<=", ">=")]
    for table, asked, ids in [*ASKED, *zeros, ("gone", "p = '2024-06-01'", [0])]:
        snapshot = lake.snapshot(lake.find(f"s3://partitions/root/{table}"))
        where = parse_filter(asked, fields(snapshot.metadata))
        assert sorted(lake.read_files(snapshot, columns=["id"], where=where).read_all()["id"].to_pylist()) == ids


def test_far_days_leave_in_every_format(open_lake: OpenLake, root: Path) -> None:
    far_table(root / "t")
    lake = open_lake(root)
    snapshot = lake.snapshot(lake.find("t"))

    def exported(form: str) -> bytes:
        rows = lake.read_files(snapshot, columns=["day", "at"])
        return b"".join(piece for _, piece in encoded(rows, FORMATS[form]))

    days = far_rows(BEFORE, FARTHER, "2024-01-01").select(["day", "at"])
    assert pq.read_table(pa.BufferReader(exported("parquet"))).equals(days)
    assert pa.ipc.open_file(exported("arrow")).read_all().equals(days)
    assert [row["day"] for row in json.loads(exported("json"))] == [BEFORE, FARTHER, "2024-01-01"]
    assert [row["at"] for row in json.loads(exported("json"))][1] == f"{FARTHER}T12:00:00Z"
    assert f"{BEFORE},{BEFORE} 12:00:00.000000Z" in exported("csv").decode()


@pytest.mark.parametrize(
    ("marks", "highest"),
    [
        pytest.param({}, {"day": FAR, "at": f"{FAR}T12:00:00Z"}, id="as Spark writes them"),
        pytest.param({OLD_DAYS: b""}, {"day": None, "at": None}, id="of the calendar before 1582, which are unknown"),
    ],
)
def test_parsed_statistics_of_a_checkpoint_hold_such_bounds(
    open_lake: OpenLake, root: Path, marks: dict[bytes, bytes], highest: dict[str, str | None]
) -> None:
    """Without the text; moments are INT96."""
    log = HandLog(root / "t").commit(protocol(), metadata(FAR_COLUMNS), commit_info())
    log.commit(add("a.parquet"), commit_info())
    bounds = far_rows(FAR)
    low = pa.StructArray.from_arrays([bounds["day"].combine_chunks(), bounds["at"].combine_chunks()], ["day", "at"])
    stats = pa.StructArray.from_arrays([pa.array([1], pa.int64()), low, low], ["numRecords", "minValues", "maxValues"])
    action = add("a.parquet", rows=None)["add"]
    names = ["path", "size", "modificationTime", "dataChange"]
    added = pa.StructArray.from_arrays([*(pa.array([action[name]]) for name in names), stats], [*names, "stats_parsed"])
    write_checkpoint_file(root / "head.parquet", [protocol(), metadata(FAR_COLUMNS)])
    head = pq.read_table(root / "head.parquet").select(["protocol", "metaData"])
    table = pa.concat_tables([head, pa.table({"add": added})], promote_options="default")
    path = root / "t" / "_delta_log" / f"{1:020d}.checkpoint.parquet"
    with pq.ParquetWriter(path, table.schema, use_deprecated_int96_timestamps=True, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(marks)
    (root / "t" / "_delta_log" / f"{0:020d}.json").unlink()
    snapshot = open_lake(root).snapshot(open_lake(root).find("t"))
    found = {totals.column: totals.highest for totals in column_totals(snapshot, ["day", "at"])}
    assert found == highest
    assert snapshot.files["num_records"].to_pylist() == [1]
