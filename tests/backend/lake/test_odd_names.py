"""Names and words that a reader could take for its own: columns called as an engine calls what it adds, names that
differ in case or hold a dot, and Hive's word for null as a value.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.changes.model import DiffMethod, NetCounts, VersionDiff
from backend.errors import UnsupportedFeatureError
from backend.lake.files.file_names import perhaps_misspelled
from backend.lake.files.stats import column_totals, columns_with_stats
from backend.lake.lake import Lake
from backend.lake.rows.pruning import may_match
from backend.lake.rows.rows import RowQuery
from backend.lake.table.schema import fields as fields_of
from backend.settings import load_settings
from backend.sql.filters import parse_filter
from backend.sql.numbers import aggregates
from tests.worlds.lake.builders import CHANGE_FEED, HandLog, add, commit_info, metadata, protocol, remove
from tests.worlds.lake.diff_lakes import ByDeltalake
from tests.worlds.lake.diffs import diff
from tests.worlds.lake.object_store import make_bucket, server_url, storage_options
from tests.worlds.lake.vectors import write_vector

MOVED = "_row-id-col-0"
TRACKED = {"delta.enableRowTracking": "true", "delta.rowTracking.materializedRowIdColumnName": MOVED}
OF_ENGINES = ("file_row_number", "FILE_INDEX", "filename", "rowid", "row_id", "c0", "n", "__index_level_0__", "sign")


def lake_at(root: Path) -> Lake:
    return Lake(load_settings(home=root / "home", lake={"roots": [str(root)], "refresh_s": 0.001}))


def compare(root: Path, first: int, second: int, lake: Any = None, **options: Any) -> VersionDiff:
    lake = lake or lake_at(root)
    return diff(lake, lake.find("t"), first, second, **options)


def rows_at(root: Path, version: int | None = None) -> list[dict[str, Any]]:
    lake = lake_at(root)
    rows: list[dict[str, Any]] = lake.read_files(lake.snapshot(lake.find("t"), version)).read_all().to_pylist()
    return rows


def data_file(root: Path, name: str, **columns: Any) -> None:
    (root / "t").mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), root / "t" / name)


def placed(root: Path, name: str, **more: Any) -> dict[str, Any]:
    return add(name, size=(root / "t" / name).stat().st_size, **more)


@pytest.mark.parametrize("name", OF_ENGINES)
def test_a_column_called_as_an_engine_calls_its_own_changes_no_answer(tmp_path: Path, name: str) -> None:
    """Rows marked as deleted are those at their position, and rows go by the ids that follow from it."""
    log = HandLog(tmp_path / "t")
    columns = {"id": "long", name: "long", "v": "long"}
    log.commit(protocol(3, 7, ["deletionVectors"]), metadata(columns, configuration=TRACKED), commit_info())
    numbers = list(range(6))
    data_file(tmp_path, "a", **{"id": numbers, name: [10 - n for n in numbers], "v": numbers})
    vector = write_vector(tmp_path / "t", [2])
    log.commit(placed(tmp_path, "a", rows=6, dv=vector, baseRowId=0), commit_info())
    left = [n for n in numbers if n != 2]
    data_file(tmp_path, "b", **{"id": left, name: [10 - n for n in left], "v": [0, 1, 3, 4, 50], MOVED: left})
    log.commit(remove("a", dv=vector), placed(tmp_path, "b", rows=5, baseRowId=6), commit_info("UPDATE"))
    for options in ({}, {"key": ("id",)}, {"key": ("id",), "where": f'"{name}" = 5'}):
        changes = compare(tmp_path, 1, 2, **options).changes
        assert changes.net == NetCounts(0, 1, 0), options
        assert [(row.before["id"], row.after["v"]) for row in changes.rows if row.before and row.after] == [(5, 50)]
    assert compare(tmp_path, 1, 2).method is DiffMethod.ROW_ID
    lake = lake_at(tmp_path)
    [*_, last] = aggregates().over(lake, lake.find("t"), f'sum("{name}")', [1])
    assert last.values[0].value == sum(10 - n for n in left)


def test_columns_that_differ_in_case_are_never_taken_for_one_another(tmp_path: Path) -> None:
    log = HandLog(tmp_path / "t")
    data_file(tmp_path, "a", a=[1], A=[10])
    data_file(tmp_path, "b", a=[1], A=[11])
    log.commit(protocol(), metadata({"a": "long", "A": "long"}), placed(tmp_path, "a", rows=1), commit_info())
    log.commit(remove("a"), placed(tmp_path, "b", rows=1), commit_info())
    changed = compare(tmp_path, 0, 1, key=("A",))
    assert changed.log.schema.is_empty and "key `A`: as given" in changed.reasons
    assert changed.method is DiffMethod.LOG_ONLY  # as Spark, no reader takes such a table's rows
    assert any("Duplicate field name" in reason for reason in changed.reasons)


def test_a_rename_is_told_by_the_whole_name(tmp_path: Path) -> None:
    def column(name: str, number: int, kind: Any = "long") -> dict[str, Any]:
        mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c{number}"}
        return {"name": name, "type": kind, "nullable": True, "metadata": mapping}

    def renamed(total: str, inner: str) -> dict[str, Any]:
        struct = {"type": "struct", "fields": [column(inner, 4)]}
        table = metadata(configuration={"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "4"})
        fields = [column("id", 1), column(total, 2), column("order", 3, struct)]
        table["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": fields})
        return table

    log = HandLog(tmp_path / "t")
    data_file(tmp_path, "a", c1=[1], c2=[10], c3=[{"c4": 20}])
    log.commit(protocol(2, 5), renamed("order.total", "total"), placed(tmp_path, "a", rows=1), commit_info())
    log.commit(renamed("order.sum", "total"), commit_info("RENAME COLUMN"))
    log.commit(renamed("sale.sum", "sum"), commit_info("RENAME COLUMN"))
    assert compare(tmp_path, 0, 1).log.schema.renamed == (("order.total", "order.sum"),)
    assert compare(tmp_path, 1, 2).log.schema.renamed == (("order.sum", "sale.sum"), ("order.total", "order.sum"))
    assert rows_at(tmp_path, 0) == [{"id": 1, "order.total": 10, "order": {"total": 20}}]


def test_the_word_for_null_is_a_text_and_an_empty_text_is_none(tmp_path: Path) -> None:
    """As Spark 4.2 with Delta 4.4 reads them, tried."""
    log = HandLog(tmp_path / "t")
    values = ["__HIVE_DEFAULT_PARTITION__", None, "", "x/%5F"]
    files = []
    for number, value in enumerate(values):
        data_file(tmp_path, str(number), id=[number])
        values_of = {"p": value, "day": value and "2026-01-01"}
        files.append(placed(tmp_path, str(number), rows=1, partitionValues=values_of))
    log.commit(protocol(), metadata({"id": "long", "p": "string", "day": "date"}, partition_by=["p", "day"]), *files)
    first = {row["id"]: row["p"] for row in rows_at(tmp_path)}
    assert first == dict(enumerate(values))
    assert {row["id"] for row in rows_at(tmp_path) if row["day"] is None} == {1, 2}
    log.commit(remove("1", partitionValues={"p": None}), remove("0", partitionValues={"p": values[0]}), commit_info())
    for lake in (lake_at(tmp_path), ByDeltalake(lake_at(tmp_path))):
        gone = compare(tmp_path, 0, 1, lake, key=("id",)).changes.rows
        assert {row.before["id"]: row.before["p"] for row in gone if row.before} == {0: values[0], 1: None}


@pytest.mark.parametrize("is_mapped", [False, True])
def test_columns_of_files_go_by_their_names_whatever_the_case(tmp_path: Path, is_mapped: bool) -> None:
    """As Spark 4.2 reads such files, tried: nested fields and physical names too. deltalake alone gives nulls."""

    def column(name: str, number: int, kind: Any = "long") -> dict[str, Any]:
        mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"p_{name}"}
        return {"name": name, "type": kind, "nullable": True, "metadata": mapping if is_mapped else {}}

    def struct(*fields: dict[str, Any]) -> dict[str, Any]:
        return {"type": "struct", "fields": list(fields)}

    head = "p_" if is_mapped else ""
    configuration = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}
    table = metadata(configuration=configuration if is_mapped else {})
    many = {"type": "array", "elementType": struct(column("y", 5)), "containsNull": True}
    fields = [column("id", 1), column("v", 2), column("s", 3, struct(column("x", 4), column("many", 6, many)))]
    table["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": fields})
    log = HandLog(tmp_path / "t")
    whole = {"id": 1, "v": 10, "s": {"x": 5, "many": [{"y": 7}, None]}}
    written = {f"{head}ID": 1, f"{head}v": 10, f"{head}S": {f"{head}X": 5, f"{head}many": [{f"{head}Y": 7}, None]}}
    data_file(tmp_path, "a", **{name: [value] for name, value in written.items()})
    data_file(tmp_path, "b", **{f"{head}id": [2]})
    reader = protocol(2, 5) if is_mapped else protocol()
    log.commit(reader, table, placed(tmp_path, "a", rows=1), placed(tmp_path, "b", rows=1), commit_info())
    data_file(tmp_path, "c", **{f"{head}Id": [1], f"{head}V": [11]})
    log.commit(remove("a"), placed(tmp_path, "c", rows=1), commit_info("UPDATE"))
    assert sorted(rows_at(tmp_path, 0), key=lambda row: row["id"]) == [whole, {"id": 2, "v": None, "s": None}]
    for lake in (lake_at(tmp_path), ByDeltalake(lake_at(tmp_path))):
        [row] = compare(tmp_path, 0, 1, lake, key=("id",), columns=("id", "v")).changes.rows
        assert (row.before, row.after) == ({"id": 1, "v": 10}, {"id": 1, "v": 11})


def with_struct(kind: str, **options: Any) -> dict[str, Any]:
    """Metadata of a table with a column `id` and a struct `s` of one field `x`."""
    table, inner = metadata(**options), {"type": "struct", "fields": [nullable("x", kind)]}
    fields = [nullable("id", "long"), nullable("s", inner)]
    table["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": fields})
    return table


def nullable(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


@pytest.fixture
def bucket(tmp_path: Path) -> str:
    """v0 has a file that names its column ID and one that names it id; v1 has ids alone, v2 marks of the first."""
    log = HandLog(tmp_path / "t")
    data_file(tmp_path, "a", ID=[1, 2], s=[{"X": 1}, None])
    data_file(tmp_path, "b", id=[3], s=[{"x": 3}])
    log.commit(
        protocol(),
        with_struct("long", configuration=CHANGE_FEED),
        placed(tmp_path, "a", rows=2),
        placed(tmp_path, "b", rows=1),
        commit_info(),
    )
    log.commit(remove("a"), commit_info("DELETE"))
    data_file(tmp_path, "c", iD=[4], s=[None], _change_type=["insert"])
    change = {"path": "c", "partitionValues": {}, "size": (tmp_path / "t" / "c").stat().st_size, "dataChange": False}
    data_file(tmp_path, "d", id=[4], s=[{"x": None}])
    log.commit({"cdc": change}, placed(tmp_path, "d", rows=1), commit_info("MERGE"))
    files = (path for path in (tmp_path / "t").rglob("*") if path.is_file())
    return make_bucket("cases", {f"root/{path.relative_to(tmp_path)}": path.read_bytes() for path in files})


def test_columns_in_another_case_on_an_object_store(tmp_path: Path, bucket: str) -> None:
    options = {f"s3://{bucket}/root/": storage_options(server_url())}
    given = {"roots": [f"s3://{bucket}/root"], "storage_options": options}
    lake = Lake(load_settings(home=tmp_path / "home", lake=given))
    (ref,) = lake.tables()
    where = parse_filter("id < 3", fields_of(lake.snapshot(ref, 0).metadata))
    rows = lake.read_files(lake.snapshot(ref, 0), columns=["id", "s"], where=where).read_all().sort_by("id")
    assert rows.to_pylist() == [{"id": 1, "s": {"x": 1}}, {"id": 2, "s": None}]
    assert lake.find_rows(lake.snapshot(ref, 0), RowQuery()).rows["id"].null_count == 0
    assert diff(lake, ref, 0, 1, key=("id",)).changes.net == NetCounts(0, 0, 2)
    with pytest.raises(UnsupportedFeatureError, match="c holds columns whose names differ in case alone"):
        lake.changes(ref, 1, 2)
    assert diff(lake, ref, 1, 2, key=("id",)).changes.net == NetCounts(1, 0, 0)


@pytest.mark.parametrize(
    ("stats", "is_open"),
    [
        (None, True),
        ({"numRecords": 1}, True),
        ({"numRecords": 1, "nullCount": {"ID": 0}}, True),
        ({"numRecords": 1, "minValues": {"id": 1}, "nullCount": {"id": 0, "s": {"X": 1}}}, True),
        ({"numRecords": 1, "minValues": {"s": {"x": '"ID": {'}}, "nullCount": {"id": 0, "s": {"x": 1}}}, False),
        ({"numRecords": 1, "nullCount": {"id": 0, "other": 1}}, False),
    ],
)
def test_statistics_that_name_columns_as_the_table_does_spare_a_look(tmp_path: Path, stats: Any, is_open: bool) -> None:
    given = {} if stats is None else {"stats": json.dumps(stats)}
    HandLog(tmp_path / "t").commit(protocol(), with_struct("string"), add("a", rows=None, **given), commit_info())
    lake = lake_at(tmp_path)
    assert list(perhaps_misspelled(lake.snapshot(lake.find("t")))) == [0] * is_open


def test_a_name_with_a_dot_is_no_path(tmp_path: Path) -> None:
    """Beside a struct `order` with a field `total` each has its own bounds, and a filter rules files out by its own."""
    table, log = metadata(), HandLog(tmp_path / "t")
    inner = {"type": "struct", "fields": [{"name": "total", "type": "long", "nullable": True, "metadata": {}}]}
    fields = [("order", inner), ("order.total", "long"), ("id", "long")]
    table["metaData"]["schemaString"] = json.dumps(
        {"type": "struct", "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in fields]}
    )
    adds = []
    for number in range(3):
        data_file(
            tmp_path, f"{number}", **{"order": [{"total": number}], "order.total": [100 + number], "id": [number]}
        )
        ends = {"order": {"total": number}, "order.total": 100 + number, "id": number}
        stats = {"numRecords": 1, "minValues": ends, "maxValues": ends, "nullCount": {}}
        adds.append(placed(tmp_path, f"{number}", rows=None, stats=json.dumps(stats)))
    log.commit(protocol(), table, *adds, commit_info())
    lake = lake_at(tmp_path)
    snapshot = lake.snapshot(lake.find("t"))
    names = columns_with_stats(snapshot.metadata)
    assert names == ("`order`.`total`", "order.total", "id")
    assert [(t.lowest, t.highest) for t in column_totals(snapshot, names)] == [(0, 2), (100, 102), (0, 2)]
    for text, files in (('"order.total" > 101', [2]), ('"order".total > 1', [2]), ('"order".total > 101', [])):
        where = parse_filter(text, fields_of(snapshot.metadata))
        assert where and where.terms and may_match(where.terms, snapshot, few_files=0).tolist() == files, text
        rows = lake.read_files(snapshot, where=where).read_all().to_pylist()
        assert [row["id"] for row in rows] == files, text
