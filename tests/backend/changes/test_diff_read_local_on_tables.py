"""Rows of the files of this machine as DuckDB reads them are those that deltalake reads: partition values, names under
column mapping and deletion vectors are applied, at once and part by part, or nothing is said.
"""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from backend.changes.model import DiffMethod, Limits, NetCounts, VersionDiff
from backend.lake.lake import Lake
from backend.settings import load_settings
from tests.worlds.cases import few
from tests.worlds.lake.builders import HandLog, add, commit_info, metadata, protocol, remove
from tests.worlds.lake.diff_lakes import ByDeltalake, Told
from tests.worlds.lake.diffs import diff
from tests.worlds.lake.vectors import write_vector

KEY = ("id",)


def lake_at(root: Path) -> Lake:
    return Lake(load_settings(home=root / "home", lake={"roots": [str(root)], "refresh_s": 0.001}))


def compare(root: Path, first: int, second: int, lake: Any = None, **options: Any) -> VersionDiff:
    lake = lake or lake_at(root)
    return diff(lake, lake.find("t"), first, second, **options)


def is_read_by_duckdb(root: Path, first: int, second: int) -> bool:
    told = Told(lake_at(root))
    compare(root, first, second, told, key=KEY, method=DiffMethod.KEY_JOIN)
    return not told.by_deltalake


def agrees(root: Path, first: int, second: int, *, is_read: bool = True, key: tuple[str, ...] = KEY) -> VersionDiff:
    """The answer that DuckDB's reading, at once and part by part, and deltalake's have in common."""
    found: list[VersionDiff] = []
    for method in (DiffMethod.MULTISET, DiffMethod.KEY_JOIN):
        found = []
        for values in (16_000_000, 12, 0) if method is DiffMethod.KEY_JOIN else (0,):
            told, limits = Told(lake_at(root)), Limits(values_at_once=values)
            found.append(compare(root, first, second, told, key=key, method=method, limits=limits))
            assert told.by_deltalake is not is_read
        found.append(compare(root, first, second, ByDeltalake(lake_at(root)), key=key, method=method))
        assert len(set(map(str, found))) == 1
    return found[0]


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
    assert compare(tmp_path, 0, 1, key=KEY, method=DiffMethod.KEY_JOIN).changes.net == NetCounts(2, 0, 0)
    assert not is_read_by_duckdb(tmp_path, 0, 1)


Files = Callable[[str, Sequence[tuple[int, str]]], None]


def here(root: Path, name: str, rows: int, **more: Any) -> dict[str, Any]:
    """A file of the table, with its size: deltalake looks for the footer there."""
    return add(quote(name), size=(root / "t" / name).stat().st_size, rows=rows, **more)


@pytest.fixture
def written(tmp_path: Path) -> Files:
    def write(name: str, rows: Sequence[tuple[int, str]]) -> None:
        (tmp_path / "t").mkdir(exist_ok=True)
        columns = {"id": [row[0] for row in rows], "v": [row[1] for row in rows]}
        pq.write_table(pa.table(columns), tmp_path / "t" / name, row_group_size=3)

    return write


@pytest.mark.parametrize("a", few(1, ["a b%41é#&+.parquet", "a", "a%20b", "ü:;'$.parquet"]))
def test_deleted_rows_are_none(tmp_path: Path, written: Files, a: str) -> None:
    """Of one file other rows are deleted at each version, of another all, and one is far in a part of its own."""
    log = HandLog(tmp_path / "t")
    written(a, [(i, "x") for i in range(8)])
    written("b", [(i, "x") for i in range(20, 24)])
    written("c", [(i, "x") for i in range(40, 44)])
    log.commit(protocol(3, 7, ["deletionVectors"]), metadata({"id": "long", "v": "string"}), commit_info())
    log.commit(*(here(tmp_path, name, rows) for name, rows in ((a, 8), ("b", 4), ("c", 4))), commit_info())
    written("d", [(2, "y"), (41, "y")])
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


def mapped(names: dict[str, str], mode: str) -> dict[str, Any]:
    fields = [
        {
            "name": name, "type": "long" if name == "id" else "string", "nullable": True,
            "metadata": {"delta.columnMapping.id": place, "delta.columnMapping.physicalName": stored},
        }
        for place, (name, stored) in enumerate(names.items(), 1)
    ]  # fmt: skip
    made = metadata(configuration={"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "9"})
    made["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": fields})
    return made


def mapped_table(root: Path, mode: str, columns: dict[str, list[list[Any]]]) -> None:
    """v1 a file, v2 another in its place; `columns` by their names in the files, their ids in that order."""
    log = HandLog(root / "t")
    log.commit(protocol(2, 5), mapped({"id": "c-1", "v": "c-2"}, mode), commit_info())
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
    assert compare(tmp_path, 1, 2, key=KEY, method=DiffMethod.KEY_JOIN).changes.net == NetCounts(0, 4, 0)
    assert not is_read_by_duckdb(tmp_path, 1, 2)


def test_files_that_hold_other_types_are_left_to_deltalake(tmp_path: Path, written: Files) -> None:
    log = HandLog(tmp_path / "t")
    log.commit(protocol(), metadata({"id": "long", "v": "string"}), commit_info())
    written("a", [(1, "x"), (2, "x")])
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


@pytest.mark.parametrize("seed", few(1, range(4)))
def test_random_rows_partitions_and_files_agree(tmp_path: Path, seed: int) -> None:
    draw = np.random.default_rng(seed)
    for version in range(4):
        first = int(draw.integers(0, 50))
        ids, values = range(100 * version + first, 100 * version + 60), draw.integers(0, 9, 60 - first)
        rows = pa.table({"id": ids, "p": ["ab"[version % 2]] * len(ids), "v": values})
        write_deltalake(tmp_path / "t", rows, mode="append", partition_by=["p"])
    for _ in range(4):
        low = int(draw.integers(0, 350))
        table = DeltaTable(tmp_path / "t")
        if draw.integers(0, 2):
            table.update(updates={"v": "v + 1"}, predicate=f"id BETWEEN {low} AND {low + 60}")
        else:
            table.delete(f"id BETWEEN {low} AND {low + 9}")
    last = DeltaTable(tmp_path / "t").version()
    agrees(tmp_path, 3, last)
    agrees(tmp_path, last, 0)
