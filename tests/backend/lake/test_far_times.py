"""Times far from ours, each read as Spark shows it for the same file: INT96 beyond nanoseconds, days beyond Python's
calendar, and days counted in the calendar before 1582, which are read right or refused by name."""

import json
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import compute as pc

from backend.cells import cell
from backend.changes.model import DiffMethod, NetCounts
from backend.errors import UnsupportedFeatureError
from backend.lake.files.stats import column_totals
from backend.lake.table.misreadings import OLD_DAYS, OLD_INT96, may_be_old, old_calendar
from backend.lake.table.schema import columns as schema_columns
from backend.search.key_history import key_history
from backend.sql.export import FORMATS, encoded
from backend.sql.filters import condition_text, parse_filter
from backend.sql.numbers import Reading, profiles, readable
from tests.worlds.lake.builders import (
    CHANGE_FEED,
    HandLog,
    add,
    column,
    commit_info,
    metadata,
    protocol,
    put,
    remove,
    struct,
    write_checkpoint_file,
)
from tests.worlds.lake.diffs import diff
from tests.worlds.lake.object_store import bucket_of, lake_on
from tests.worlds.lake.vectors import write_vector

END = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
FIRST = datetime(1, 1, 1, tzinfo=UTC)
OURS = datetime(2024, 6, 1, 12, tzinfo=UTC)
MOMENT = pa.timestamp("us", "UTC")
NESTED = pa.struct([("at", MOMENT), ("all", pa.list_(MOMENT)), ("by", pa.map_(pa.string(), MOMENT))])
SPARK = {"use_deprecated_int96_timestamps": True, "store_schema": False}  # as its default encoding has them


def ids(lake, snapshot, text):
    """The ids of the rows that a filter keeps."""
    where = parse_filter(text, schema_columns(snapshot.metadata))
    return sorted(lake.read_files(snapshot, columns=["id"], where=where).read_all()["id"].to_pylist())


def only_table(lake, version=None):
    (ref,) = lake.tables()
    return lake.snapshot(ref, version)


def spans(*ends):
    """Rows with a moment at the top and in all that holds others."""
    nested = [{"at": end, "all": [end, OURS], "by": [("x", end)]} for end in ends]
    columns = {"id": pa.array(range(len(ends)), pa.int64()), "at": pa.array(ends, MOMENT)}
    return pa.table(columns | {"n": pa.array(nested, NESTED)})


def spans_table(table, *versions, **options):
    """Each version takes the file of the one before away and adds one of such rows."""
    moments = {"type": "array", "elementType": "timestamp", "containsNull": True}
    by = {"type": "map", "keyType": "string", "valueType": "timestamp", "valueContainsNull": True}
    nested = struct(column("at", "timestamp"), column("all", moments), column("by", by))
    columns = [column("id"), column("at", "timestamp"), column("n", nested), column("p", "string")]
    log = HandLog(table).commit(protocol(1, 4), metadata(columns, partition_by=["p"], **options), commit_info())
    values = {"partitionValues": {"p": "a"}}
    for number, ends in enumerate(versions):
        gone = [remove(f"{number - 1}.parquet", **values)] if number else []
        log.commit(*gone, put(table, f"{number}.parquet", spans(*ends), parquet=SPARK, **values), commit_info())
    return log


def test_every_reader_of_rows_gives_int96_as_it_was_written(lake, root):
    spans_table(root / "t", [END, FIRST, OURS])
    snapshot = only_table(lake)
    rows = lake.read_files(snapshot).read_all().sort_by("id")
    assert rows.select(["id", "at", "n"]).to_pylist() == spans(END, FIRST, OURS).to_pylist()
    assert rows["p"].to_pylist() == ["a", "a", "a"]
    assert ids(lake, snapshot, "at > '2030-01-01'") == [0]


def test_int96_that_changed_is_one_update_whoever_reads_it(lake, root):
    later = FIRST + timedelta(days=1)
    spans_table(root / "t", [END, FIRST, OURS], [END, later, OURS])
    for columns in (("id", "at"), None):  # by DuckDB, and with nested columns by deltalake
        answer = diff(lake, lake.find("t"), 1, 2, key=("id",), columns=columns)
        assert answer.changes.net == NetCounts(0, 1, 0)
        (row,) = answer.changes.rows
        assert (row.before["at"], row.after["at"]) == (FIRST, later)


def test_a_feed_that_its_reader_would_misread_is_not_read(lake, root):
    log = spans_table(root / "t", [OURS], configuration=CHANGE_FEED)
    for number, end in ((0, OURS + timedelta(days=1)), (1, END)):
        rows = spans(OURS, end).append_column("_change_type", [["update_preimage", "update_postimage"]])
        values = {"partitionValues": {"p": "a"}}
        size = put(root / "t", f"{number}.cdc", rows, parquet=SPARK)["add"]["size"]
        change = {"path": f"{number}.cdc", "size": size, "dataChange": False} | values
        fresh = put(root / "t", f"{number + 1}.parquet", spans(end), parquet=SPARK, **values)
        log.commit({"cdc": change}, remove(f"{number}.parquet", **values), fresh, commit_info("UPDATE"))
    ref = lake.find("t")
    assert lake.changes(ref, 1, 2, columns=["at"]).read_all()["at"].to_pylist()
    with pytest.raises(UnsupportedFeatureError, match=r"1\.cdc holds times before 1677 or after 2262 as INT96"):
        lake.changes(ref, 2, 3)
    answer = diff(lake, ref, 2, 3, key=("id",))
    assert (answer.method, answer.changes.net) == (DiffMethod.KEY_JOIN, NetCounts(0, 1, 0))
    assert any("misreads" in reason for reason in answer.reasons)
    *_, last = key_history(lake, ref, (2, 3), {"id": 0})
    assert not last.result.by_feed
    assert [(step.change.before or {})["at"] for step in last.result.steps] == [OURS + timedelta(days=1)]


@pytest.mark.ci
def test_int96_on_an_object_store(tmp_path):
    spans_table(tmp_path / "t", [END, FIRST, OURS], [END, FIRST + timedelta(days=1), OURS])
    lake = lake_on(f"s3://{bucket_of('far', tmp_path, 'root/')}/root", tmp_path / "home")
    rows = lake.read_files(only_table(lake, 1)).read_all().sort_by("id")
    assert rows.select(["id", "at", "n"]).to_pylist() == spans(END, FIRST, OURS).to_pylist()
    assert diff(lake, lake.tables()[0], 1, 2, key=("id",)).changes.net == NetCounts(0, 1, 0)


# days beyond Python's calendar ----------------------------------------------------------------------------------------

FAR, FARTHER, BEFORE = "+10000-01-01", "+10000-01-02", "-0044-03-15"
FAR_DAYS = {day: int(np.datetime64(day.lstrip("+")).astype(int)) for day in (FAR, FARTHER, BEFORE, "2024-01-01")}
FAR_COLUMNS = {"id": "long", "day": "date", "at": "timestamp", "p": "date"}


def with_noons(days):
    """A table of these days and their noons."""
    noons = pc.add(days.cast(pa.timestamp("us")).cast(pa.int64()), 43_200 * 10**6).cast(MOMENT)
    return pa.table({"id": pa.array(range(len(days)), pa.int64()), "day": days, "at": noons})


def far_rows(*days):
    return with_noons(pa.array([FAR_DAYS[day] for day in days], pa.int32()).cast(pa.date32()))


@pytest.fixture
def far(open_lake, root):
    """v1 and v2 of a table: the second of three rows moves on by a day."""
    log = HandLog(root / "t").commit(protocol(), metadata(FAR_COLUMNS, partition_by=["p"]), commit_info())
    for number, days in enumerate(((BEFORE, FAR, "2024-01-01"), (BEFORE, FARTHER, "2024-01-01"))):
        low, high, _ = ({"day": day, "at": f"{day}T12:00:00.000Z"} for day in days)
        stats = {"numRecords": 3, "minValues": low, "maxValues": high, "nullCount": {"day": 0, "at": 0}}
        more = {"partitionValues": {"p": FAR}, "parquet": SPARK, "stats": json.dumps(stats)}
        fresh = put(root / "t", f"{number}.parquet", far_rows(*days), **more)
        gone = [remove(f"{number - 1}.parquet", partitionValues={"p": FAR})] if number else []
        log.commit(*gone, fresh, commit_info("UPDATE"))
    return open_lake()


def test_far_days_are_compared_and_shown_as_text(far):
    for method in (DiffMethod.KEY_JOIN, DiffMethod.MULTISET):
        changes = diff(far, far.find("t"), 1, 2, key=("id",), method=method).changes
        assert (changes.net.inserted or 0) + (changes.net.updated or 0) == 1
        afters = [row.after for row in changes.rows if row.after]
        assert [(row["day"], row["at"], row["p"]) for row in afters] == [(FARTHER, f"{FARTHER}T12:00:00Z", FAR)]


def test_far_days_are_bounds_by_the_log_and_by_the_rows(far):
    snapshot = only_table(far)
    moments = (f"{BEFORE}T12:00:00Z", f"{FARTHER}T12:00:00Z")
    for name, ends in {"day": (BEFORE, FARTHER), "at": moments, "p": (FAR, FAR)}.items():
        (totals,) = column_totals(snapshot, [name])
        assert (totals.lowest, totals.highest) == ends
        assert Reading(far).run(f'SELECT min("{name}") FROM rows', far.read_files(snapshot, columns=[name])) == ends[0]
    *_, last = profiles().over(far, snapshot.ref, "", [2])
    (profile,) = readable(last.values).values()
    assert {c.column: (c.lowest, c.highest) for c in profile.columns}["day"] == (BEFORE, FARTHER)


@pytest.mark.parametrize(
    ("name", "operator", "value", "wanted"),
    [("day", ">", FAR, [1]), ("day", "=", BEFORE, [0]), ("at", "<", f"{BEFORE}T12:00:00.5Z", [0]),
     ("at", "=", f"{FARTHER}T12:00:00Z", [1]), ("p", "=", FAR, [0, 1, 2]), ("p", "<", FAR, [])],
)  # fmt: skip
def test_a_click_on_a_far_value_filters_by_it(far, name, operator, value, wanted):
    snapshot = only_table(far)
    kind = next(field.type for field in schema_columns(snapshot.metadata) if field.path == name)
    assert ids(far, snapshot, condition_text(name, operator, value, kind=kind)) == wanted


def test_far_days_leave_in_every_format(far):
    def exported(form):
        rows = far.read_files(only_table(far), columns=["day", "at"])
        return b"".join(piece for _, piece in encoded(rows, FORMATS[form]))

    days = far_rows(BEFORE, FARTHER, "2024-01-01").select(["day", "at"])
    assert pq.read_table(pa.BufferReader(exported("parquet"))).equals(days)
    assert pa.ipc.open_file(exported("arrow")).read_all().equals(days)
    assert [row["day"] for row in json.loads(exported("json"))] == [BEFORE, FARTHER, "2024-01-01"]
    assert [row["at"] for row in json.loads(exported("json"))][1] == f"{FARTHER}T12:00:00Z"
    assert f"{BEFORE},{BEFORE} 12:00:00.000000Z" in exported("csv").decode()


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


def partitioned(table, kind):
    """A file of one row, its number, for each partition."""
    values = enumerate(PARTITIONS[kind])
    adds = [put(table, f"{number}", {"id": [number]}, partitionValues={"p": text}) for number, text in values]
    reader = protocol(3, 7, ["timestampNtz"]) if kind == "timestamp_ntz" else protocol()
    HandLog(table).commit(reader, metadata({"id": "long", "p": kind}, partition_by=["p"]), *adds, commit_info())


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
@pytest.mark.parametrize(("operator", "wanted"), [("=", [1]), ("<", [0, 2])])
def test_a_click_on_a_far_partition_filters_by_it(lake, root, kind, operator, wanted):
    partitioned(root / "t", kind)
    snapshot = only_table(lake)
    far = lake.read_files(snapshot).read_all().sort_by("id")["p"][1]
    assert ids(lake, snapshot, condition_text("p", operator, cell(far), kind=kind)) == wanted


def test_a_filter_finds_the_partitions_whose_value_satisfies_it(lake, root):
    """Of a reader's own look at partition values nothing is left out."""
    for kind in PARTITIONS:
        partitioned(root / kind, kind)
    for kind, asked, wanted in ASKED:
        assert ids(lake, lake.snapshot(lake.find(kind)), asked) == wanted, (kind, asked)


@pytest.mark.ci
def test_the_same_filters_on_an_object_store(tmp_path):
    for kind in PARTITIONS:
        partitioned(tmp_path / kind, kind)
    bounds = {"numRecords": 1, "minValues": {"p": -0.0}, "maxValues": {"p": -0.0}, "nullCount": {"p": 0}}
    zero = put(tmp_path / "zero", "a", {"id": [0], "p": [-0.0]}, parquet=SPARK, stats=json.dumps(bounds))
    HandLog(tmp_path / "zero").commit(protocol(), metadata({"id": "long", "p": "double"}), zero, commit_info())
    partitioned(tmp_path / "gone", "date")
    (tmp_path / "gone" / "1").unlink()
    lake = lake_on(f"s3://{bucket_of('partitions', tmp_path)}", tmp_path / "home")
    zeros = [("zero", f"p {sign} 0", [0]) for sign in ("=", "<=", ">=")]
    for table, asked, wanted in [*ASKED, *zeros, ("gone", "p = '2024-06-01'", [0])]:
        assert ids(lake, lake.snapshot(lake.find(table)), asked) == wanted, (table, asked)


@pytest.mark.parametrize(
    ("marks", "highest"),
    [
        pytest.param({}, {"day": FAR, "at": f"{FAR}T12:00:00Z"}, id="as Spark writes them"),
        pytest.param({OLD_DAYS: b""}, {"day": None, "at": None}, id="of the calendar before 1582, which are unknown"),
    ],
)
def test_parsed_statistics_of_a_checkpoint_hold_such_bounds(open_lake, root, marks, highest):
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
    write_marked(log.log / f"{1:020d}.checkpoint.parquet", table, marks)
    (log.log / f"{0:020d}.json").unlink()
    snapshot = only_table(open_lake())
    assert {totals.column: totals.highest for totals in column_totals(snapshot, ["day", "at"])} == highest
    assert snapshot.files["num_records"].to_pylist() == [1]


# the calendar before 1582 ---------------------------------------------------------------------------------------------

MARKS = {b"org.apache.spark.version": b"4.2.0", OLD_DAYS: b"", OLD_INT96: b"", b"org.apache.spark.timeZone": b"UTC"}
DAYS = pa.array([date(1500, 3, 1), date(1, 1, 1), date(2024, 2, 29), None], pa.date32())
STORED_SHIFTS = pa.array([10, -2, 0, 0], pa.int32())  # the first of March 1500 was the eleventh to an old writer
COLUMNS = {"id": "long", "day": "date", "at": "timestamp"}
SWITCHES = (-719_164, -682_945, -646_420, -609_895, -536_845, -500_320, -463_795, -390_745, -354_220, -317_695,
            -244_645, -208_120, -171_595, -141_427)  # fmt: skip
SHIFTS = (2, 1, 0, -1, -2, -3, -4, -5, -6, -7, -8, -9, -10, 0)  # Spark's own table, RebaseDateTime.scala
ROWS = with_noons(DAYS)
STORED = with_noons(pc.add(DAYS.cast(pa.int32()), STORED_SHIFTS).cast(pa.date32()))


def write_marked(path, content, marks):
    with pq.ParquetWriter(path, content.schema, **SPARK) as writer:
        writer.write_table(content)
        writer.add_key_value_metadata(marks)


def put_marked(table, marks=MARKS, **more):
    """A file of an old writer, and the action that adds it."""
    table.mkdir(parents=True, exist_ok=True)
    write_marked(table / "old.parquet", STORED, marks)
    return add("old.parquet", size=(table / "old.parquet").stat().st_size, rows=4, **more)


def old_table(table, marks=MARKS):
    """v1 an old file, v2 the same rows in a new one."""
    log = HandLog(table).commit(protocol(), metadata(COLUMNS), commit_info()).commit(put_marked(table, marks))
    return log.commit(remove("old.parquet"), put(table, "new.parquet", ROWS, parquet=SPARK), commit_info("OPTIMIZE"))


def test_old_files_are_read_as_spark_reads_them_and_a_compaction_changed_nothing(lake, root):
    old_table(root / "t")
    for version in (1, 2):
        snapshot = only_table(lake, version)
        assert lake.read_files(snapshot).read_all().sort_by("id").equals(ROWS)
        assert ids(lake, snapshot, "day < DATE '1500-03-05' AND at < '1500-03-05'") == [0, 1]
    answer = diff(lake, lake.find("t"), 1, 2, key=("id",))
    assert (answer.method, answer.changes.net) == (DiffMethod.KEY_JOIN, NetCounts(0, 0, 0))


def test_rows_that_a_vector_deletes_are_the_same_in_the_copy(lake, root):
    log = HandLog(root / "t").commit(protocol(3, 7, ["deletionVectors"]), metadata(COLUMNS), commit_info())
    log.commit(put_marked(root / "t", dv=write_vector(root / "t", [1, 2])), commit_info())
    assert lake.read_files(only_table(lake)).read_all().sort_by("id").to_pylist() == ROWS.take([0, 3]).to_pylist()


@pytest.mark.parametrize(
    ("marks", "is_old"),
    [
        ({b"org.apache.spark.version": b"2.4.8", b"org.apache.spark.timeZone": b"Etc/UTC"}, True),
        ({b"org.apache.spark.version": b"4.2.0"}, False),
        ({b"org.apache.spark.version": b"3.1.0"}, False),
        ({}, False),
    ],
)
def test_a_version_before_the_marks_tells_it_too(lake, root, marks, is_old):
    old_table(root / "t", marks)
    rows = lake.read_files(only_table(lake, 1)).read_all().sort_by("id")
    assert rows.equals(ROWS if is_old else STORED)
    with pa.OSFile(str(root / "t" / "old.parquet")) as source:
        assert may_be_old(source) is is_old


@pytest.mark.parametrize("zone", [b"Europe/Amsterdam", b""])
def test_moments_by_another_clock_are_refused_by_name(lake, root, zone):
    old_table(root / "t", MARKS | {b"org.apache.spark.timeZone": zone})
    with pytest.raises(UnsupportedFeatureError, match=r"old\.parquet of .* column at in the calendar before 1582"):
        lake.read_files(only_table(lake, 1))
    answer = diff(lake, lake.find("t"), 1, 2, key=("id",))
    assert answer.method is DiffMethod.LOG_ONLY
    assert any("old.parquet" in reason for reason in answer.reasons)


def test_old_days_inside_of_others_are_refused_by_name(tmp_path):
    inner = pa.StructArray.from_arrays([STORED["day"].combine_chunks()], ["day"])
    write_marked(tmp_path / "n.parquet", pa.table({"id": range(4), "n": inner}), MARKS)
    with pa.OSFile(str(tmp_path / "n.parquet")) as source, pytest.raises(UnsupportedFeatureError, match="column n "):
        old_calendar(source, "n.parquet").write(tmp_path / "copy")


@pytest.mark.ci
def test_old_days_on_an_object_store(tmp_path):
    old_table(tmp_path / "t")
    lake = lake_on(f"s3://{bucket_of('old', tmp_path, 'root/')}/root", tmp_path / "home")
    for version in (1, 2):
        assert lake.read_files(only_table(lake, version)).read_all().sort_by("id").equals(ROWS)
    assert diff(lake, lake.tables()[0], 1, 2, key=("id",)).changes.net == NetCounts(0, 0, 0)


def test_each_day_of_the_old_calendar_is_counted_as_by_spark(tmp_path):
    days = np.arange(SWITCHES[0], -141_000, dtype=np.int32)
    right = days + np.array(SHIFTS)[np.searchsorted(SWITCHES, days, side="right") - 1]
    write_marked(tmp_path / "days.parquet", pa.table({"day": pa.array(days).cast(pa.date32())}), MARKS)
    with pa.OSFile(str(tmp_path / "days.parquet")) as source:
        old_calendar(source, "days.parquet").write(tmp_path / "copy")
    rebased = pq.read_table(tmp_path / "copy")["day"].combine_chunks().cast(pa.int32()).to_numpy()
    assert np.array_equal(rebased, right)
