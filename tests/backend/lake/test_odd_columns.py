"""One column that a reader cannot take keeps nobody from the others: it is read as stored, or left out by name."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.lake.rows.evolved import collections, lacks, write_filled
from tests.app.cli.test_commands import Weir, home, weir
from tests.worlds.lake import builders

__all__ = ["home", "weir"]


def field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def metadata(*fields: dict[str, Any]) -> dict[str, Any]:
    action = builders.metadata()
    action["metaData"]["schemaString"] = json.dumps(struct(*fields))
    return action


def put(table: Path, name: str, rows: pa.Table) -> dict[str, Any]:
    table.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, table / name)
    return builders.add(name, size=(table / name).stat().st_size)


VECTOR = struct(
    field("type", "byte"), field("values", {"type": "array", "elementType": "double", "containsNull": False})
)
UDT = {"type": "udt", "class": "org.apache.spark.ml.linalg.VectorUDT", "sqlType": VECTOR}
VECTORS = pa.array(
    [{"type": 1, "values": [1.0, 2.0]}] * 2, pa.struct({"type": pa.int8(), "values": pa.list_(pa.float64())})
)


def test_a_user_defined_type_is_read_as_it_is_stored(home: Path, weir: Weir) -> None:
    log = builders.HandLog(home / "lake" / "t")
    first = put(log.table, "a", pa.table({"id": [1, 2], "v": VECTORS}))
    log.commit(builders.protocol(), metadata(field("id", "long"), field("v", UDT)), builders.commit_info(), first)
    log.commit(builders.commit_info(), put(log.table, "b", pa.table({"id": [3, 4], "v": VECTORS})))
    profile = weir("profile", "t", "--json").document
    assert [column["nulls"] for column in profile["columns"]] == [0, 0] and profile["left_out"] == []
    assert profile["columns"][1]["type"] == "struct<type:tinyint,values:array<double>>"
    out = home / "t.json"
    weir("export", "t", "-o", str(out))
    assert {"id": 4, "v": {"type": 1, "values": [1.0, 2.0]}} in json.loads(out.read_text())
    assert weir("diff", "t", "--from", "0", "--to", "1", "--json").document["net"]["inserted"] == 2


@pytest.mark.parametrize("inside", [False, True])
def test_a_type_that_nobody_knows_is_left_out_by_name(home: Path, weir: Weir, inside: bool) -> None:
    odd = struct(field("x", "calendarinterval")) if inside else "calendarinterval"
    log = builders.HandLog(home / "lake" / "t")
    log.commit(builders.protocol(), metadata(field("odd", odd), field("id", "long")), builders.commit_info())
    log.commit(builders.commit_info(), put(log.table, "a", pa.table({"odd": [5, 6], "id": [1, 2]})))
    profile = weir("profile", "t", "--json").document
    assert [column["column"] for column in profile["columns"]] == ["id"] and profile["left_out"] == ["odd"]
    assert "Left out, of a type that cannot be read here: odd" in weir("profile", "t").out
    assert "Left out, of a type that cannot be read here: odd" in weir("profile", "t", "--statistics").out
    out = home / "t.csv"
    assert weir("export", "t", "-o", str(out), "--json").document["left_out"] == ["odd"]
    assert "odd" in weir("export", "t", "-o", str(out)).out
    assert out.read_text(encoding="utf-8-sig").split() == ['"id"', "1", "2"]
    assert "cannot be read" in weir("export", "t", "-o", str(out), "--columns", "odd").err
    diff = weir("diff", "t", "--from", "0", "--to", "1", "--json").document
    assert diff["net"]["inserted"] == 2 and "left out of the comparison: odd" in diff["reasons"]
    assert weir("bisect", "t", "--assert", "id < 2").code == 0


def test_all_of_450_columns_are_profiled(home: Path, weir: Weir) -> None:
    log = builders.HandLog(home / "lake" / "wide")
    rows = pa.table({f"c{number}": [number, number, None] for number in range(450)})
    fields = [field(f"c{number}", "long") for number in range(450)]
    log.commit(builders.protocol(), metadata(*fields), builders.commit_info(), put(log.table, "a", rows))
    columns = weir("profile", "wide", "--json").document["columns"]
    assert [(each["column"], each["lowest"], each["nulls"]) for each in columns] == [
        (f"c{n}", n, 1) for n in range(450)
    ]


def test_a_comma_in_a_column_s_name_can_be_quoted(home: Path, weir: Weir) -> None:
    log = builders.HandLog(home / "lake" / "t")
    rows = pa.table({"a,b": [1], "c": [2], "d": [3]})
    fields = [field(name, "long") for name in rows.column_names]
    log.commit(builders.protocol(), metadata(*fields), builders.commit_info(), put(log.table, "a", rows))
    for columns in ("`a,b`, d", '["a,b", "d"]'):
        assert weir("export", "t", "-o", str(home / "t.json"), "--columns", columns).code == 0
        assert json.loads((home / "t.json").read_text()) == [{"a,b": 1, "d": 3}]


# fields added within collections ---------------------------------------------------------------------------------

POINT, WIDE = pa.struct({"P": pa.int64()}), struct(field("p", "long"), field("q", struct(field("r", "string"))))
KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "map": (pa.map_(pa.string(), POINT), {"type": "map", "keyType": "string", "valueType": WIDE}),
    "list": (pa.list_(POINT), {"type": "array", "elementType": WIDE}),
    "deep": (
        pa.struct({"m": pa.map_(pa.string(), pa.list_(POINT))}),
        struct(field("m", {"type": "map", "keyType": "string", "valueType": {"type": "array", "elementType": WIDE}})),
    ),
}


def drawn(random: Random, kind: pa.DataType) -> Any:
    if random.random() < 0.2:
        return None
    if pa.types.is_map(kind):
        return [(f"k{n}", drawn(random, kind.item_type)) for n in range(random.randint(0, 3))]
    if pa.types.is_list(kind):
        return [drawn(random, kind.value_type) for _ in range(random.randint(0, 3))]
    if pa.types.is_struct(kind):
        return {part.name: drawn(random, part.type) for part in kind}
    return random.randint(-9, 9)


def widened(value: Any) -> Any:
    """What Spark reads: the field that a file lacks is null wherever its struct is there."""
    if isinstance(value, tuple):
        return value[0], widened(value[1])
    if isinstance(value, list):
        return [widened(each) for each in value]
    if isinstance(value, dict):
        return {"p": value["P"], "q": None} if "P" in value else {name: widened(each) for name, each in value.items()}
    return value


@pytest.mark.parametrize("seed", range(30))
def test_a_field_that_a_file_lacks_is_null(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    values = {name: [drawn(random, stored) for _ in range(50)] for name, (stored, _) in KINDS.items()}
    table = pa.table({name: pa.array(values[name], stored) for name, (stored, _) in KINDS.items()})
    pq.write_table(table, tmp_path / "old", row_group_size=7)
    kinds = collections(json.dumps(struct(*(field(name, kind) for name, (_, kind) in KINDS.items()))))
    assert set(kinds) == set(KINDS)
    assert all(lacks(stored, kinds[name]) for name, (stored, _) in KINDS.items())
    write_filled(pq.ParquetFile(tmp_path / "old"), tmp_path / "new", kinds)
    filled = pq.read_table(tmp_path / "new")
    assert not any(lacks(filled.schema.field(name).type, kinds[name]) for name in kinds)
    assert filled.to_pydict() == {name: [widened(value) for value in column] for name, column in values.items()}


@pytest.mark.parametrize("mapping", ["none", "name", "id"])
def test_an_evolved_map_is_read_profiled_and_compared(home: Path, weir: Weir, mapping: str) -> None:
    ids = {"id": 1, "m": 2, "p": 3, "q": 4}

    def column(name: str, kind: Any) -> dict[str, Any]:
        own = {"delta.columnMapping.id": ids[name], "delta.columnMapping.physicalName": f"col-{name}"}
        return {**field(name, kind), "metadata": {} if mapping == "none" else own}

    def table(*names: str) -> dict[str, Any]:
        kind = {"type": "map", "keyType": "string", "valueType": struct(*(column(name, "long") for name in names))}
        action = metadata(column("id", "long"), column("m", kind))
        mapped = {"delta.columnMapping.mode": mapping, "delta.columnMapping.maxColumnId": "4"}
        action["metaData"]["configuration"] = {} if mapping == "none" else mapped
        return action

    def stored(name: str, kind: pa.DataType) -> pa.Field:
        number = {"PARQUET:field_id": str(ids[name])} if mapping == "id" else None
        return pa.field(name if mapping == "none" else f"col-{name}", kind, metadata=number)

    def rows(number: int, value: dict[str, int]) -> pa.Table:
        inner = pa.struct([stored(name, pa.int64()) for name in value])
        schema = pa.schema([stored("id", pa.int64()), stored("m", pa.map_(pa.string(), inner))])
        return pa.Table.from_arrays([pa.array([number]), pa.array([[("k", tuple(value.values()))]], schema[1].type)],
                                    schema=schema)  # fmt: skip

    log = builders.HandLog(home / "lake" / "t")
    reader = builders.protocol() if mapping == "none" else builders.protocol(2, 5)
    log.commit(reader, table("p"), builders.commit_info(), put(log.table, "a", rows(1, {"p": 5})))
    log.commit(table("p", "q"), builders.commit_info(), put(log.table, "b", rows(2, {"p": 6, "q": 7})))
    weir("export", "t", "-o", str(home / "t.parquet"))
    found = pq.read_table(home / "t.parquet").sort_by("id").to_pylist()
    assert found == [{"id": 1, "m": [("k", {"p": 5, "q": None})]}, {"id": 2, "m": [("k", {"p": 6, "q": 7})]}]
    assert [column["nulls"] for column in weir("profile", "t", "--json").document["columns"]] == [0, 0]
    diff = weir("diff", "t", "--from", "0", "--to", "1", "--key", "id", "--json").document
    assert (diff["net"]["inserted"], diff["net"]["updated"], diff["net"]["deleted"]) == (1, 0, 0)
