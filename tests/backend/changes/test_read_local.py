"""Local files as DuckDB reads them: partitions, mapped names, deleted rows."""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from backend.changes.compare import Sides
from backend.changes.model import DiffMethod, NetCounts, RowChanges, VersionDiff
from backend.lake.model import Metadata
from backend.lake.rows.log_subset import LocalFiles
from backend.sql.parquet_rows import numbered_rows
from tests.worlds.cases import few
from tests.worlds.lake import diffs
from tests.worlds.lake.builders import (
    HandLog,
    add,
    commit_info,
    mapped_metadata,
    metadata,
    protocol,
    remove,
    schema_json,
)
from tests.worlds.lake.diff_lakes import ByDeltalake, Told
from tests.worlds.lake.diffs import Asked, asked, diff, lake_at
from tests.worlds.lake.vectors import write_vector

TYPES = {"id": "long", "part": "string", "v": "integer"}
METADATA = Metadata("t", schema_json(TYPES))
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("v", pa.int32())])
COLUMNS = tuple(TYPES)

Row = tuple[Any, ...]
Paths = tuple[list[str], list[str]]


def written(folder: Path, files: Sequence[Sequence[Row]], schema: pa.Schema = SCHEMA) -> list[str]:
    folder.mkdir()
    paths = []
    for number, rows in enumerate(files):
        table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
        pq.write_table(table, folder / f"{number}.parquet")
        paths.append(str(folder / f"{number}.parquet"))
    return paths


def laid(paths: list[str]) -> LocalFiles:
    """Files with nothing beside them."""
    none = pa.nulls(len(paths), pa.int64())
    deleted = pa.schema([("file", pa.int64()), ("position", pa.int64())]).empty_table()
    return LocalFiles(pa.table({"path": pa.array(paths, pa.string()), "base_row_id": none}), deleted)


def compared(paths: Paths, query: Asked) -> RowChanges:
    """The answer of rows as DuckDB reads them."""

    def read(connection: Any) -> Sides:
        before, after = (
            numbered_rows(connection, laid(side), METADATA, COLUMNS, prefix=f"side_{number}_")
            for number, side in enumerate(paths)
        )
        return f"SELECT *, -1 AS n FROM ({before})", f"SELECT *, 1 AS n FROM ({after})"

    return diffs.compared(read, COLUMNS, query)[0]


def steps(first: int, count: int, v: int = 0) -> list[Row]:
    return [(i, "a", v) for i in range(first, first + count)]


def test_a_side_without_files_has_no_rows(tmp_path: Path) -> None:
    paths = written(tmp_path / "a", [steps(0, 3), steps(10, 3)])
    for key in (("id",), ()):
        assert compared(([], paths), asked(key=key)).net == NetCounts(6, 0, 0)
        assert compared((paths, []), asked(key=key)).net == NetCounts(0, 0, 6)
        found = compared(([], []), asked(key=key))
        assert (found.net, found.arrow_schema) == (NetCounts(0, 0, 0), SCHEMA)


# on tables ------------------------------------------------------------------------------------------------------------


def agrees(root: Path, first: int, second: int, *, is_read: bool = True, key: tuple[str, ...] = ("id",)) -> VersionDiff:
    """The answer that DuckDB's reading and deltalake's have in common."""
    found: list[VersionDiff] = []
    for method in (DiffMethod.MULTISET, DiffMethod.KEY_JOIN):
        told = Told(lake_at(root))
        found = [diff(told, told.find("t"), first, second, key=key, method=method)]
        assert told.by_deltalake is not is_read
        lake = ByDeltalake(lake_at(root))
        found.append(diff(lake, lake.find("t"), first, second, key=key, method=method))
        assert len(set(map(str, found))) == 1
    return found[0]


def test_plain_values_are_what_deltalake_gives(tmp_path: Path) -> None:
    path = tmp_path / "t"
    at = datetime(2026, 1, 1, 12, 30, 0, 123456, tzinfo=UTC)
    rows = {
        "id": pa.array(range(6), pa.int64()),
        'odd "name': pa.array(["a", None, "", "é", "'", '"']),
        "n": pa.array([1, -1, None, 126, 0, 5], pa.int8()),
        "f": pa.array([float("nan"), -0.0, None, 1.5, float("inf"), 0.0], pa.float32()),
        "raw": pa.array([b"", b"\xff", None, b"a", b"b", b"c"]),
        "day": pa.array([at.date()] * 5 + [None]),
        "at": pa.array([at, None, at, at, at, at], pa.timestamp("us", "UTC")),
        "local": pa.array([at.replace(tzinfo=None)] * 6, pa.timestamp("us")),
        "yes": pa.array([True, False, None, True, True, True]),
    }
    write_deltalake(path, pa.table(rows))
    DeltaTable(path).update(updates={"n": "n + 1", "f": "0.0"}, predicate="id > 1 AND id < 5")
    DeltaTable(path).delete("id = 5")
    assert agrees(tmp_path, 0, 2).changes.net == NetCounts(0, 3, 1)


PARTITIONS: dict[str, list[Any]] = {
    "text": ["a b", "50%/é", "", None, "x=y"],
    "integer": [1, -7, None, 0, 2_000_000_000],
    "yes or no": [True, False, None, True, False],
    "day": [date(2026, 1, 1), date(1969, 12, 31), None, date(2026, 1, 1), date(9999, 12, 31)],
}


@pytest.mark.parametrize("kind", few(2, ["text", "day", "integer", "yes or no"]))
def test_partition_values_stand_beside_the_files(tmp_path: Path, kind: str) -> None:
    values = PARTITIONS[kind]
    rows = pa.table({"id": range(20), "p": [values[i % 5] for i in range(20)], "v": [float(i) for i in range(20)]})
    write_deltalake(tmp_path / "t", rows, partition_by=["p"])
    DeltaTable(tmp_path / "t").update(updates={"v": "v + 1"}, predicate="id IN (3, 8, 11)")
    DeltaTable(tmp_path / "t").delete("id = 4")
    moved = pa.table({"id": [12], "p": rows["p"].slice(1, 1), "v": [0.0]})
    DeltaTable(tmp_path / "t").delete("id = 12")
    write_deltalake(tmp_path / "t", moved, mode="append")
    assert agrees(tmp_path, 0, 4).changes.net == NetCounts(0, 4, 1)
    assert agrees(tmp_path, 4, 1).changes.net == NetCounts(1, 1, 0)
    agrees(tmp_path, 0, 4, key=("id", "p"))


def test_a_partition_value_that_duckdb_reads_otherwise_is_left_to_deltalake(tmp_path: Path) -> None:
    at = pa.array([1_000_000, 2_000_000], pa.timestamp("us", "UTC"))
    write_deltalake(tmp_path / "t", pa.table({"id": [1, 2], "p": at}), partition_by=["p"])
    write_deltalake(tmp_path / "t", pa.table({"id": [3, 4], "p": at}), mode="append")
    assert agrees(tmp_path, 0, 1, is_read=False).changes.net == NetCounts(2, 0, 0)


Files = Callable[[str, Sequence[tuple[int, str]]], None]


def here(root: Path, name: str, rows: int, **more: Any) -> dict[str, Any]:
    """A file of the table, with its size: deltalake looks for the footer there."""
    return add(quote(name), size=(root / "t" / name).stat().st_size, rows=rows, **more)


@pytest.fixture
def put(tmp_path: Path) -> Files:
    def write(name: str, rows: Sequence[tuple[int, str]]) -> None:
        (tmp_path / "t").mkdir(exist_ok=True)
        columns = {"id": [row[0] for row in rows], "v": [row[1] for row in rows]}
        pq.write_table(pa.table(columns), tmp_path / "t" / name, row_group_size=3)

    return write


@pytest.mark.parametrize("a", few(1, ["a b%41é#&+.parquet", "a", "a%20b", "ü:;'$.parquet"]))
def test_deleted_rows_are_none(tmp_path: Path, put: Files, a: str) -> None:
    """Of one file other rows are deleted at each version, of another all, and one is far in a part of its own."""
    log = HandLog(tmp_path / "t")
    put(a, [(i, "x") for i in range(8)])
    put("b", [(i, "x") for i in range(20, 24)])
    put("c", [(i, "x") for i in range(40, 44)])
    log.commit(protocol(3, 7, ["deletionVectors"]), metadata({"id": "long", "v": "string"}), commit_info())
    log.commit(*(here(tmp_path, name, rows) for name, rows in ((a, 8), ("b", 4), ("c", 4))), commit_info())
    put("d", [(2, "y"), (41, "y")])
    one = write_vector(tmp_path / "t", [2, 5])
    log.commit(
        remove(quote(a)), here(tmp_path, a, rows=8, dv=one), remove("c"),
        here(tmp_path, "c", rows=4, dv=write_vector(tmp_path / "t", [1])), here(tmp_path, "d", rows=2), commit_info(),
    )  # fmt: skip
    log.commit(
        remove(quote(a), dv=one), here(tmp_path, a, rows=8, dv=write_vector(tmp_path / "t", [0, 2, 5])), remove("b"),
        here(tmp_path, "b", rows=4, dv=write_vector(tmp_path / "t", range(4))), commit_info(),
    )  # fmt: skip
    assert agrees(tmp_path, 1, 2).changes.net == NetCounts(0, 2, 1)
    assert agrees(tmp_path, 2, 3).changes.net == NetCounts(0, 0, 5)
    assert agrees(tmp_path, 1, 3).changes.net == NetCounts(0, 2, 6)
    assert agrees(tmp_path, 3, 1).changes.net == NetCounts(6, 2, 0)


def mapped_table(root: Path, mode: str, columns: dict[str, list[list[Any]]]) -> None:
    """v1 a file, v2 another in its place; `columns` by their names in the files, their ids in that order."""
    names = {"id": ("c-1", "long", 1), "v": ("c-2", "string", 2)}
    log = HandLog(root / "t").commit(protocol(2, 5), mapped_metadata(names, mode=mode), commit_info())
    (root / "t").mkdir(exist_ok=True)
    for place, name in enumerate("ab"):
        table = pa.table({stored: values[place] for stored, values in columns.items()})
        fields = [f.with_metadata({"PARQUET:field_id": str(i)}) for i, f in enumerate(table.schema, 1)]
        pq.write_table(table.cast(pa.schema(fields)), root / "t" / name)
    log.commit(here(root, "a", 4), commit_info())
    log.commit(remove("a"), here(root, "b", 4), commit_info())


IDS, OLD, NEW = [list(range(4))] * 2, [["x"] * 4] * 2, [["1"] * 4, ["2"] * 4]


def test_columns_go_by_their_names_in_the_files(tmp_path: Path) -> None:
    """Column `v` of the files was dropped, another one is called so now."""
    mapped_table(tmp_path, "name", {"c-1": IDS, "c-2": NEW, "v": OLD})
    assert agrees(tmp_path, 1, 2).changes.changed_cells == {"v": 4}


def test_columns_that_go_by_ids_are_left_to_deltalake(tmp_path: Path) -> None:
    mapped_table(tmp_path, "id", {"c-1": IDS, "c-2": NEW})
    assert agrees(tmp_path, 1, 2, is_read=False).changes.net == NetCounts(0, 4, 0)


def test_files_that_hold_other_types_are_left_to_deltalake(tmp_path: Path, put: Files) -> None:
    log = HandLog(tmp_path / "t")
    log.commit(protocol(), metadata({"id": "long", "v": "string"}), commit_info())
    put("a", [(1, "x"), (2, "x")])
    pq.write_table(pa.table({"id": [1.0, 2.0], "v": ["x", "y"]}), tmp_path / "t" / "b")
    log.commit(here(tmp_path, "a", rows=2), commit_info())
    log.commit(remove("a"), here(tmp_path, "b", rows=2), commit_info())
    assert agrees(tmp_path, 1, 2, is_read=False).changes.net == NetCounts(0, 1, 0)


def test_timestamps_are_instants_however_the_file_holds_them(tmp_path: Path) -> None:
    """Spark writes INT96, others 64 bits; a table may have both."""
    log = HandLog(tmp_path / "t")
    log.commit(protocol(), metadata({"id": "long", "v": "timestamp"}), commit_info())
    for name, late, is_old in (("a", 0, True), ("b", 1, True), ("c", 1, False)):
        at = [datetime(2026, 3, 29, 1, 30, 0, 123456, UTC), datetime(1912, 6, 23, tzinfo=UTC), None]
        at[0] = datetime(2026, 3, 29, 1, 30, late, 123456, UTC)
        table = pa.table({"id": [1, 2, 3], "v": pa.array(at, pa.timestamp("us", "UTC"))})
        pq.write_table(table, tmp_path / "t" / name, use_deprecated_int96_timestamps=is_old)
    log.commit(here(tmp_path, "a", 3), commit_info())
    log.commit(remove("a"), here(tmp_path, "b", 3), commit_info())
    log.commit(remove("b"), here(tmp_path, "c", 3), commit_info())
    assert agrees(tmp_path, 1, 2).changes.net == NetCounts(0, 1, 0)
    assert agrees(tmp_path, 2, 3).changes.net == NetCounts(0, 0, 0)
    assert agrees(tmp_path, 1, 3).changes.net == NetCounts(0, 1, 0)
