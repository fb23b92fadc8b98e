"""Columns that a reader could stumble over: of odd types, evolved, called as an engine calls its own, named like SQL,
differing in case, with dots; and Hive's word for null as a value.

Rule: one column that a reader cannot take keeps nobody from the others.
"""

import json
from decimal import Decimal
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.changes.model import DiffMethod, NetCounts
from backend.errors import UnsupportedFeatureError
from backend.lake.files.stats import column_totals, columns_with_stats
from backend.lake.rows.filters import may_match
from backend.lake.rows.rows import RowQuery
from backend.lake.table.misreadings import lacking, perhaps_misspelled
from backend.lake.table.schema import columns as schema_columns
from backend.sql.filters import condition_text, parse_filter
from backend.sql.numbers import aggregates
from backend.sql.values import plain_name
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
)
from tests.worlds.lake.diff_lakes import ByDeltalake
from tests.worlds.lake.diffs import diff
from tests.worlds.lake.object_store import bucket_of, lake_on
from tests.worlds.lake.vectors import write_vector
from tests.worlds.terminal import home, weir

__all__ = ["home", "weir"]

BY_NAME = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "99"}


@pytest.fixture
def log(root) -> HandLog:
    return HandLog(root / "t")


def first_commit(log, described, *actions, reader=None):
    log.commit(reader or protocol(), described, *actions, commit_info())


def array_of(kind):
    return {"type": "array", "elementType": kind, "containsNull": True}


def map_of(kind):
    return {"type": "map", "keyType": "string", "valueType": kind}


def rows_at(lake, version=None, **options):
    return lake.read_files(lake.snapshot(lake.find("t"), version), **options).read_all().to_pylist()


# odd types ------------------------------------------------------------------------------------------------------------


def test_a_user_defined_type_is_read_as_it_is_stored(home, weir, log):
    vector = struct(column("type", "byte"), column("values", array_of("double") | {"containsNull": False}))
    udt = {"type": "udt", "class": "org.apache.spark.ml.linalg.VectorUDT", "sqlType": vector}
    stored = pa.struct({"type": pa.int8(), "values": pa.list_(pa.float64())})
    vectors = pa.array([{"type": 1, "values": [1.0, 2.0]}] * 2, stored)
    first_commit(log, metadata([column("id"), column("v", udt)]), put(log.table, "a", {"id": [1, 2], "v": vectors}))
    log.commit(commit_info(), put(log.table, "b", {"id": [3, 4], "v": vectors}))
    profile = weir("profile", "t", "--json").document
    assert [shown["nulls"] for shown in profile["columns"]] == [0, 0] and profile["left_out"] == []
    assert profile["columns"][1]["type"] == "struct<type:tinyint,values:array<double>>"
    weir("export", "t", "-o", str(home / "t.json"))
    assert {"id": 4, "v": {"type": 1, "values": [1.0, 2.0]}} in json.loads((home / "t.json").read_text())
    assert weir("diff", "t", "--from", "0", "--to", "1", "--json").document["net"]["inserted"] == 2


@pytest.mark.parametrize("odd", ["calendarinterval", struct(column("x", "calendarinterval"))], ids=["top", "inside"])
def test_a_type_that_nobody_knows_is_left_out_by_name(home, weir, log, odd):
    first_commit(log, metadata([column("odd", odd), column("id")]))
    log.commit(commit_info(), put(log.table, "a", {"odd": [5, 6], "id": [1, 2]}))
    profile = weir("profile", "t", "--json").document
    assert [shown["column"] for shown in profile["columns"]] == ["id"] and profile["left_out"] == ["odd"]
    for more in ([], ["--statistics"]):
        assert "Left out, of a type that cannot be read here: odd" in weir("profile", "t", *more).out
    out = home / "t.csv"
    assert weir("export", "t", "-o", str(out), "--json").document["left_out"] == ["odd"]
    assert "odd" in weir("export", "t", "-o", str(out)).out
    assert out.read_text(encoding="utf-8-sig").split() == ['"id"', "1", "2"]
    assert "cannot be read" in weir("export", "t", "-o", str(out), "--columns", "odd").err
    answer = weir("diff", "t", "--from", "0", "--to", "1", "--json").document
    assert answer["net"]["inserted"] == 2 and "left out of the comparison: odd" in answer["reasons"]
    assert weir("bisect", "t", "--assert", "id < 2").code == 0


def test_all_of_450_columns_are_profiled(weir, log):
    names = [f"c{number}" for number in range(450)]
    rows = {name: [number, number, None] for number, name in enumerate(names)}
    first_commit(log, metadata(dict.fromkeys(names, "long")), put(log.table, "a", rows))
    shown = weir("profile", "t", "--json").document["columns"]
    assert [(profile["column"], profile["lowest"], profile["nulls"]) for profile in shown] == [
        (name, number, 1) for number, name in enumerate(names)
    ]


# fields added within collections --------------------------------------------------------------------------------------

POINT, WIDE = pa.struct({"P": pa.int64()}), struct(column("p"), column("q", struct(column("r", "string"))))
KINDS = {
    "map": (pa.map_(pa.string(), POINT), map_of(WIDE)),
    "list": (pa.list_(POINT), array_of(WIDE)),
    "deep": (
        pa.struct({"m": pa.map_(pa.string(), pa.list_(POINT))}),
        struct(column("m", map_of(array_of(WIDE)))),
    ),
}


def drawn(random, kind):
    if random.random() < 0.2:
        return None
    if pa.types.is_map(kind):
        return [(f"k{n}", drawn(random, kind.item_type)) for n in range(random.randint(0, 3))]
    if pa.types.is_list(kind):
        return [drawn(random, kind.value_type) for _ in range(random.randint(0, 3))]
    if pa.types.is_struct(kind):
        return {part.name: drawn(random, part.type) for part in kind}
    return random.randint(-9, 9)


def widened(value):
    """What Spark reads: the field that a file lacks is null wherever its struct is there."""
    if isinstance(value, tuple):
        return value[0], widened(value[1])
    if isinstance(value, list):
        return [widened(item) for item in value]
    if isinstance(value, dict):
        return {"p": value["P"], "q": None} if "P" in value else {name: widened(item) for name, item in value.items()}
    return value


def test_a_field_that_a_file_lacks_is_null(tmp_path):
    random = Random(1)
    values = {name: [drawn(random, stored) for _ in range(1_500)] for name, (stored, _) in KINDS.items()}
    table = pa.table({name: pa.array(values[name], stored) for name, (stored, _) in KINDS.items()})
    pq.write_table(table, tmp_path / "old", row_group_size=7)
    schema_json = json.dumps(struct(*(column(name, kind) for name, (_, kind) in KINDS.items())))
    with pa.OSFile(str(tmp_path / "old")) as old:
        misreading = lacking(old, schema_json)
        assert misreading.why == "lacks fields within map, list, deep"
        misreading.write(tmp_path / "new")
    with pa.OSFile(str(tmp_path / "new")) as new:
        assert lacking(new, schema_json) is None
    filled = pq.read_table(tmp_path / "new")
    assert filled.to_pydict() == {name: [widened(value) for value in items] for name, items in values.items()}


@pytest.mark.parametrize("mapping", ["none", "name", "id"])
def test_an_evolved_map_is_read_profiled_and_compared(home, weir, log, mapping):
    ids = {"id": 1, "m": 2, "p": 3, "q": 4}

    def mapped(name, kind="long"):
        own = {} if mapping == "none" else {"number": ids[name], "physical": f"col-{name}"}
        return column(name, kind, **own)

    def described(*names):
        configuration = {} if mapping == "none" else BY_NAME | {"delta.columnMapping.mode": mapping}
        points = map_of(struct(*map(mapped, names)))
        return metadata([mapped("id"), mapped("m", points)], configuration=configuration)

    def stored(name, kind):
        number = {"PARQUET:field_id": str(ids[name])} if mapping == "id" else None
        return pa.field(name if mapping == "none" else f"col-{name}", kind, metadata=number)

    def rows(number, value):
        inner = pa.struct([stored(name, pa.int64()) for name in value])
        schema = pa.schema([stored("id", pa.int64()), stored("m", pa.map_(pa.string(), inner))])
        points = pa.array([[("k", tuple(value.values()))]], schema[1].type)
        return pa.Table.from_arrays([pa.array([number]), points], schema=schema)

    reader = protocol() if mapping == "none" else protocol(2, 5)
    first_commit(log, described("p"), put(log.table, "a", rows(1, {"p": 5})), reader=reader)
    log.commit(described("p", "q"), commit_info(), put(log.table, "b", rows(2, {"p": 6, "q": 7})))
    weir("export", "t", "-o", str(home / "t.parquet"))
    exported = pq.read_table(home / "t.parquet").sort_by("id").to_pylist()
    assert exported == [{"id": 1, "m": [("k", {"p": 5, "q": None})]}, {"id": 2, "m": [("k", {"p": 6, "q": 7})]}]
    assert [shown["nulls"] for shown in weir("profile", "t", "--json").document["columns"]] == [0, 0]
    net = weir("diff", "t", "--from", "0", "--to", "1", "--key", "id", "--json").document["net"]
    assert (net["inserted"], net["updated"], net["deleted"]) == (1, 0, 0)


# names that an engine or SQL could take for its own -------------------------------------------------------------------

MOVED = "_row-id-col-0"
TRACKED = {"delta.enableRowTracking": "true", "delta.rowTracking.materializedRowIdColumnName": MOVED}
OF_ENGINES = ("file_row_number", "FILE_INDEX", "filename", "rowid", "row_id", "c0", "n", "__index_level_0__", "sign")


@pytest.mark.parametrize("name", OF_ENGINES)
def test_a_column_called_as_an_engine_calls_its_own_changes_no_answer(log, lake, name):
    """Rows marked as deleted are those at their position, and rows go by the ids that follow from it."""
    columns = {"id": "long", name: "long", "v": "long"}
    log.commit(protocol(3, 7, ["deletionVectors"]), metadata(columns, configuration=TRACKED), commit_info())
    numbers, vector = list(range(6)), write_vector(log.table, [2])
    rows = {"id": numbers, name: [10 - n for n in numbers], "v": numbers}
    log.commit(put(log.table, "a", rows, dv=vector, baseRowId=0), commit_info())
    left = [n for n in numbers if n != 2]
    rows = {"id": left, name: [10 - n for n in left], "v": [0, 1, 3, 4, 50], MOVED: left}
    log.commit(remove("a", dv=vector), put(log.table, "b", rows, baseRowId=6), commit_info("UPDATE"))
    ref = lake.find("t")
    for options in ({}, {"key": ("id",)}, {"key": ("id",), "where": f'"{name}" = 5'}):
        changes = diff(lake, ref, 1, 2, **options).changes
        assert changes.net == NetCounts(0, 1, 0), options
        assert [(row.before["id"], row.after["v"]) for row in changes.rows if row.before and row.after] == [(5, 50)]
    assert diff(lake, ref, 1, 2).method is DiffMethod.ROW_ID
    [*_, last] = aggregates().over(lake, ref, f'sum("{name}")', [1])
    assert last.values[0].value == sum(10 - n for n in left)


TABLE = "t\"; x\n'é"
NAMES = [
    'a"b', "a'b", 'a"".b', "a\nb", "a\tb", "x\\", "ünï", "\u202erev", "日本", "😀", "a.b", "a`b", "a,b", "(x)", "{y}",
    "rows", "row_id", "value", "c0", "batch", "select", "filename", "$$", "=", " lead", "trail ", "x" * 300,
    '"; DROP TABLE rows; --', "'); --", "-- c", "/* c */", "\") FROM rows; ATTACH 'x'; --",
]  # fmt: skip


def test_a_name_is_a_name_whatever_a_log_calls_it(root, lake):
    """A column for each name, under column mapping; the number of a column is its only value."""
    mapped = [column(name, number=number + 1, physical=f"col-{number}") for number, name in enumerate(NAMES)]
    log, rows = HandLog(root / TABLE), {f"col-{number}": [number, None] for number in range(len(NAMES))}
    first_commit(log, metadata(mapped, configuration=BY_NAME), put(log.table, "f", rows), reader=protocol(2, 5))
    snapshot = lake.snapshot(lake.find(TABLE))
    for number, name in enumerate(NAMES):
        for text in (condition_text(name, "=", number), f"abs({plain_name(name)}) = {number}"):
            where = parse_filter(text, schema_columns(snapshot.metadata))
            assert lake.find_rows(snapshot, RowQuery((name,), where)).rows.to_pydict() == {name: [number]}
        (*_, last) = aggregates().over(lake, snapshot.ref, f"sum({plain_name(name)})", [0])
        assert (last.values[0].value, last.values[0].error) == (number, None), name


def test_a_comma_in_a_column_s_name_can_be_quoted(home, weir, log):
    rows = {"a,b": [1], "c": [2], "d": [3]}
    first_commit(log, metadata(dict.fromkeys(rows, "long")), put(log.table, "a", rows))
    for columns in ("`a,b`, d", '["a,b", "d"]'):
        assert weir("export", "t", "-o", str(home / "t.json"), "--columns", columns).code == 0
        assert json.loads((home / "t.json").read_text()) == [{"a,b": 1, "d": 3}]


def test_a_name_with_a_dot_is_no_path(log, lake):
    """Beside a struct `order` with a field `total` each has its own bounds, and a filter rules files out by its own."""
    adds = []
    for number in range(3):
        ends = {"order": {"total": number}, "order.total": 100 + number, "id": number}
        stats = json.dumps({"numRecords": 1, "minValues": ends, "maxValues": ends, "nullCount": {}})
        adds.append(put(log.table, f"{number}", {name: [end] for name, end in ends.items()}, rows=None, stats=stats))
    inner = struct(column("total"))
    first_commit(log, metadata([column("order", inner), column("order.total"), column("id")]), *adds)
    snapshot = lake.snapshot(lake.find("t"))
    names = columns_with_stats(snapshot.metadata)
    assert names == ("`order`.`total`", "order.total", "id")
    assert [(t.lowest, t.highest) for t in column_totals(snapshot, names)] == [(0, 2), (100, 102), (0, 2)]
    for text, files in (('"order.total" > 101', [2]), ('"order".total > 1', [2]), ('"order".total > 101', [])):
        where = parse_filter(text, schema_columns(snapshot.metadata))
        assert may_match(where.terms, snapshot, few_files=0).tolist() == files, text
        assert [row["id"] for row in rows_at(lake, where=where)] == files, text


def test_the_word_for_null_is_a_text_and_an_empty_text_is_none(log, open_lake):
    """As Spark 4.2 with Delta 4.4 reads them, tried."""
    values = dict(enumerate(["__HIVE_DEFAULT_PARTITION__", None, "", "x/%5F"]))
    files = []
    for number, value in values.items():
        partition = {"p": value, "day": value and "2026-01-01"}
        files.append(put(log.table, str(number), {"id": [number]}, partitionValues=partition))
    described = metadata({"id": "long", "p": "string", "day": "date"}, partition_by=["p", "day"])
    first_commit(log, described, *files)
    lake = open_lake()
    assert {row["id"]: row["p"] for row in rows_at(lake)} == values
    assert {row["id"] for row in rows_at(lake) if row["day"] is None} == {1, 2}
    log.commit(*(remove(str(n), partitionValues={"p": values[n]}) for n in (0, 1)), commit_info())
    for reader in (open_lake(), ByDeltalake(open_lake())):
        gone = diff(reader, reader.find("t"), 0, 1, key=("id",)).changes.rows
        assert {row.before["id"]: row.before["p"] for row in gone if row.before} == {0: values[0], 1: None}


def test_a_decimal_is_one_partition_however_it_is_written(log, open_lake):
    """And features that ask nothing of a reader of rows keep nobody from them."""
    texts = ["1", "1.0", "1.00", "-0.5", "1e1", None]
    files = [put(log.table, f"f{n}", {"id": [n]}, partitionValues={"d": text}) for n, text in enumerate(texts)]
    described = metadata({"id": "long", "d": "decimal(10,2)"}, partition_by=["d"])
    first_commit(log, described, *files, reader=protocol(3, 7, ["vacuumProtocolCheck", "geospatial"]))
    lake = open_lake()
    values = [text and Decimal(text) for text in texts]
    assert [row["d"] for row in sorted(rows_at(lake), key=lambda row: row["id"])] == values
    names = {"d=1.00", "d=-0.50", "d=10.00", "d=__HIVE_DEFAULT_PARTITION__"}
    assert set(lake.snapshot(lake.find("t")).partitions().to_pylist()) == names


# names that differ in case --------------------------------------------------------------------------------------------


def test_columns_that_differ_in_case_are_never_taken_for_one_another(log, open_lake):
    first_commit(log, metadata({"a": "long", "A": "long"}), put(log.table, "a", {"a": [1], "A": [10]}))
    log.commit(remove("a"), put(log.table, "b", {"a": [1], "A": [11]}), commit_info())
    answer = diff(open_lake(), open_lake().find("t"), 0, 1, key=("A",))
    assert answer.log.schema.is_empty and "key `A`: as given" in answer.reasons
    assert answer.method is DiffMethod.LOG_ONLY  # as Spark, no reader takes such a table's rows
    assert any("Duplicate field name" in reason for reason in answer.reasons)


@pytest.mark.parametrize("head", ["", "p_"], ids=["plain", "mapped"])
def test_columns_of_files_go_by_their_names_whatever_the_case(log, lake, head):
    """As Spark 4.2 reads such files, tried: nested fields and physical names too. deltalake alone gives nulls."""

    def mapped(name, number, kind="long"):
        return column(name, kind, **({"number": number, "physical": f"p_{name}"} if head else {}))

    inner = struct(mapped("x", 4), mapped("many", 6, array_of(struct(mapped("y", 5)))))
    columns = [mapped("id", 1), mapped("v", 2), mapped("s", 3, inner)]
    whole = {"id": 1, "v": 10, "s": {"x": 5, "many": [{"y": 7}, None]}}
    written = {f"{head}ID": 1, f"{head}v": 10, f"{head}S": {f"{head}X": 5, f"{head}many": [{f"{head}Y": 7}, None]}}
    first = put(log.table, "a", {name: [value] for name, value in written.items()})
    other = put(log.table, "b", {f"{head}id": [2]})
    described = metadata(columns, configuration=BY_NAME if head else {})
    first_commit(log, described, first, other, reader=protocol(2, 5) if head else None)
    changed = put(log.table, "c", {f"{head}Id": [1], f"{head}V": [11]})
    log.commit(remove("a"), changed, commit_info("UPDATE"))
    assert sorted(rows_at(lake, 0), key=lambda row: row["id"]) == [whole, {"id": 2, "v": None, "s": None}]
    for reader in (lake, ByDeltalake(lake)):
        [row] = diff(reader, reader.find("t"), 0, 1, key=("id",), columns=("id", "v")).changes.rows
        assert (row.before, row.after) == ({"id": 1, "v": 10}, {"id": 1, "v": 11})


def test_a_shredded_variant_keeps_nobody_from_the_other_columns(weir, log, lake):
    features = ["variantType", "variantShredding"]
    asked = protocol(3, 7, features)
    variant = [{"metadata": b"\x01\x00\x00", "value": None, "typed_value": 5}]
    files = [put(log.table, f"f{n}", {"id": [n], "v": variant}) for n in (1, 2)]
    first_commit(log, metadata([column("id"), column("v", "variant")]), files[0], reader=asked)
    log.commit(files[1], commit_info())
    assert weir("bisect", "t", "--assert", "id < 2", "--json").document["first_bad_version"] == 1
    with pytest.raises(UnsupportedFeatureError):
        rows_at(lake, columns=["v"])


def test_columns_of_files_go_by_field_ids_where_the_table_says_so(home, weir, log, lake):
    """The file's names are each other's, or nobody's, nested ones too. It keeps one of a column that is gone."""

    def numbered(name, number, kind):
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})

    def inner(first):
        return struct(column("x", number=first, physical="x"), column("y", number=first + 1, physical="y"))

    columns = [column(name, number=n, physical=name) for n, name in enumerate(("id", "a", "b"), 1)]
    columns += [
        column("s", inner(5), number=4, physical="col-s"),
        column("m", map_of(inner(8)), number=7, physical="m"),
    ]
    stored = [pa.struct([numbered("y", n, pa.int64()), numbered("p", n + 1, pa.int64())]) for n in (5, 8)]
    kinds = {"id": (1, pa.int64()), "b": (2, pa.int64()), "a": (3, pa.int64()), "other": (4, stored[0])}
    kinds |= {"m": (7, pa.map_(pa.string(), stored[1])), "col-s": (10, pa.string())}
    schema = pa.schema([numbered(name, *kind) for name, kind in kinds.items()])
    rows = [
        {"id": n, "b": n * 10, "a": n * 20, "other": {"y": n, "p": 7}, "m": [("k", {"y": n, "p": 8})], "col-s": "old"}
        for n in (1, 2)
    ]
    files = [put(log.table, f"f{row['id']}", pa.Table.from_pylist([row], schema)) for row in rows]
    mapped = metadata(columns, configuration=BY_NAME | {"delta.columnMapping.mode": "id"})
    first_commit(log, mapped, files[0], reader=protocol(2, 5))
    log.commit(files[1], commit_info())
    whole = [{"id": n, "a": n * 10, "b": n * 20, "s": {"x": n, "y": 7}, "m": [("k", {"x": n, "y": 8})]} for n in (1, 2)]
    assert sorted(rows_at(lake), key=lambda row: row["id"]) == whole
    found = weir("query", "SELECT a, b, s.x, s.y FROM t WHERE a > 10", "--json").document["rows"]
    assert found == [{"a": 20, "b": 40, "x": 2, "y": 7}]
    assert [c["highest"] for c in weir("profile", "t", "--json").document["columns"][1:3]] == [20, 40]
    [row] = diff(lake, lake.find("t"), 0, 1, key=("a",), columns=("a", "b")).changes.rows
    assert row.after == {"a": 20, "b": 40}
    assert weir("bisect", "t", "--assert", "b < 40", "--json").document["first_bad_version"] == 1
    footer = lake.footer(lake.snapshot(lake.find("t")), "f1")
    assert {c.path: c.maximum for c in footer.columns if c.path in ("a", "b")} == {"a": "10", "b": "20"}


def with_struct(kind, **options):
    return metadata([column("id"), column("s", struct(column("x", kind)))], **options)


@pytest.mark.ci
def test_columns_in_another_case_on_an_object_store(tmp_path):
    """v0 has a file that names its column ID and one that names it id; v1 has ids alone, v2 marks of the first."""
    log = HandLog(tmp_path / "t")
    files = [
        put(log.table, "a", {"ID": [1, 2], "s": [{"X": 1}, None]}),
        put(log.table, "b", {"id": [3], "s": [{"x": 3}]}),
    ]
    first_commit(log, with_struct("long", configuration=CHANGE_FEED), *files)
    log.commit(remove("a"), commit_info("DELETE"))
    changes = put(log.table, "c", {"iD": [4], "s": [None], "_change_type": ["insert"]})["add"]
    change = {"path": "c", "partitionValues": {}, "size": changes["size"], "dataChange": False}
    log.commit({"cdc": change}, put(log.table, "d", {"id": [4], "s": [{"x": None}]}), commit_info("MERGE"))
    lake = lake_on(f"s3://{bucket_of('cases', tmp_path, 'root/')}/root", tmp_path / "home")
    (ref,) = lake.tables()
    where = parse_filter("id < 3", schema_columns(lake.snapshot(ref, 0).metadata))
    rows = sorted(rows_at(lake, 0, columns=["id", "s"], where=where), key=lambda row: row["id"])
    assert rows == [{"id": 1, "s": {"x": 1}}, {"id": 2, "s": None}]
    assert lake.find_rows(lake.snapshot(ref, 0), RowQuery()).rows["id"].null_count == 0
    assert diff(lake, ref, 0, 1, key=("id",)).changes.net == NetCounts(0, 0, 2)
    with pytest.raises(UnsupportedFeatureError, match="c holds columns under other names"):
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
def test_statistics_that_name_columns_as_the_table_does_spare_a_look(log, open_lake, stats, is_open):
    given = {} if stats is None else {"stats": json.dumps(stats)}
    first_commit(log, with_struct("string"), add("a", rows=None, **given))
    assert list(perhaps_misspelled(open_lake().snapshot(open_lake().find("t")))) == [0] * is_open
