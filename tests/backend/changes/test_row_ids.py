"""Rows paired by row tracking's ids, on a table whose every id is known: files and log are written by hand."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.changes.export import ChangedBatches, exported, file_of
from backend.changes.model import DiffMethod, KeySource, NetCounts, RowKind, SetApart, VersionDiff
from backend.errors import DiffError, TableError
from backend.lake.lake import Lake
from backend.sql.export import FORMATS
from tests.worlds.lake.builders import HandLog, add, commit_info, metadata, protocol, remove
from tests.worlds.lake.diffs import diff, lake_at, prepare
from tests.worlds.lake.vectors import write_vector

MOVED = "_row-id-col-0"
TRACKED = {"delta.enableRowTracking": "true", "delta.rowTracking.materializedRowIdColumnName": MOVED}
COLUMNS = {"id": "long", "v": "string"}


@dataclass
class Tracked:
    """A table at `root / "t"`; `ids` are those written beside the rows of a file, None for a row without."""

    root: Path
    columns: Mapping[str, str] = field(default_factory=lambda: COLUMNS)
    configuration: Mapping[str, str] = field(default_factory=lambda: TRACKED)

    def __post_init__(self) -> None:
        self.log = HandLog(self.root / "t")
        features = protocol(3, 7, ["deletionVectors"])
        self.log.commit(features, metadata(self.columns, configuration=self.configuration), commit_info())

    def file(self, name: str, rows: Sequence[tuple[Any, ...]], ids: Sequence[int | None] | None = None) -> None:
        columns = {c: pa.array([row[i] for row in rows]) for i, c in enumerate(self.columns)}
        if ids is not None:
            columns[MOVED] = pa.array(ids, pa.int64())
        pq.write_table(pa.table(columns), self.root / "t" / name)

    def diff(self, first: int, second: int, **options: Any) -> VersionDiff:
        lake = self.lake()
        return diff(lake, lake.find("t"), first, second, **options)

    def lake(self) -> Lake:
        return lake_at(self.root)


@pytest.fixture
def moved(tmp_path: Path) -> Tracked:
    """v1: rows 10 … 13, two of them alike; v2: row 11 marked as deleted, row 12 rewritten with its id, a fresh row
    whose id follows from its file."""
    table = Tracked(tmp_path)
    table.file("a", [(1, "x"), (1, "x"), (2, "y"), (3, "z")])
    table.log.commit(add("a", rows=4, baseRowId=10), commit_info())
    vector = write_vector(tmp_path / "t", [1, 2])
    table.file("b", [(2, "changed"), (9, "new")], ids=[12, None])
    table.log.commit(
        remove("a"), add("a", rows=4, dv=vector, baseRowId=10), add("b", rows=2, baseRowId=20), commit_info()
    )
    return table


def test_rows_without_a_key_are_paired_by_their_ids(moved: Tracked) -> None:
    found = moved.diff(1, 2)
    assert (found.method, found.exact, found.changes.net) == (DiffMethod.ROW_ID, True, NetCounts(1, 1, 1))
    assert found.key and (found.key.columns, found.key.source) == (("_row_id",), KeySource.ROW_TRACKING)
    rows = {row.kind: (row.before, row.after, row.changed) for row in found.changes.rows}
    assert rows == {
        RowKind.UPDATE: ({"id": 2, "v": "y", "_row_id": 12}, {"id": 2, "v": "changed", "_row_id": 12}, ("v",)),
        RowKind.DELETE: ({"id": 1, "v": "x", "_row_id": 11}, None, ()),
        RowKind.INSERT: (None, {"id": 9, "v": "new", "_row_id": 21}, ()),
    }
    assert found.changes.changed_cells == {"v": 1}
    assert not any(row.key for row in found.changes.rows), "no key to look up"
    assert moved.diff(2, 1).changes.net == NetCounts(1, 1, 1)
    assert moved.diff(1, 2, where="id = 9").changes.net == NetCounts(1, 0, 0)
    assert moved.diff(1, 2, columns=("id",)).changes.net == NetCounts(1, 0, 1)


def rewritten(root: Path, rows: Sequence[tuple[Any, ...]], configuration: Mapping[str, str]) -> Tracked:
    """v1: rows 0 and 1; v2: the same two rows with other values."""
    table = Tracked(root, configuration=TRACKED | configuration)
    table.file("a", [(1, "x"), (2, "y")])
    table.log.commit(add("a", rows=2, baseRowId=0), commit_info())
    table.file("b", rows, ids=[0, 1])
    table.log.commit(remove("a"), add("b", rows=2, baseRowId=2), commit_info())
    return table


def test_rows_go_by_the_key_of_the_table_where_it_has_one(tmp_path: Path) -> None:
    """The ids pair them all the same: an update of the key is an update."""
    table = rewritten(tmp_path, [(7, "x"), (2, "y")], {"weir.primaryKey": "id"})
    found = table.diff(1, 2)
    assert (found.method, found.changes.net) == (DiffMethod.ROW_ID, NetCounts(0, 1, 0))
    assert found.changes.columns == ("id", "v")
    [row] = found.changes.rows
    assert (row.key, row.before, row.after) == ({"id": 7}, {"id": 1, "v": "x"}, {"id": 7, "v": "x"})
    by_key = table.diff(1, 2, key=("id",))
    assert (by_key.method, by_key.changes.net) == (DiffMethod.KEY_JOIN, NetCounts(1, 0, 1))


@pytest.mark.parametrize("keyed", [False, True])
def test_all_rows_leave_as_the_answer_names_them(tmp_path: Path, keyed: bool) -> None:
    table = rewritten(tmp_path, [(7, "x"), (2, "z")], {"weir.primaryKey": "id"} if keyed else {})
    pieces: list[bytes] = []

    def take(changed: ChangedBatches) -> None:
        pieces.extend(piece for _, piece in file_of(changed, FORMATS["json"]))

    found = table.diff(1, 2, take=take)
    assert found.method is DiffMethod.ROW_ID
    rows = json.loads(b"".join(pieces))
    assert rows == json.loads(exported(found, FORMATS["json"]))
    assert [row["key"] for row in rows] == ([{"id": 7}, {"id": 2}] if keyed else [None, None])


def test_an_id_that_two_rows_have_is_set_apart(tmp_path: Path) -> None:
    table = Tracked(tmp_path)
    table.file("a", [(1, "x"), (2, "y")], ids=[5, 5])
    table.log.commit(add("a", rows=2, baseRowId=0), commit_info())
    found = table.diff(0, 1)
    assert (found.exact, found.changes.net, found.changes.apart.duplicate_keys) == (False, NetCounts(2, 0, 0), 1)
    assert {row.set_apart for row in found.changes.rows} == {SetApart.DUPLICATE_KEY}


def test_where_ids_cannot_be_read_the_next_method_answers_and_says_why(tmp_path: Path) -> None:
    late, wrong, other = (Tracked(tmp_path / name) for name in ("late", "wrong", "other"))
    for table in (late, wrong):
        table.file("a", [(1, "x")])
    late.log.commit(add("a", rows=1), commit_info())
    wrong.log.commit(add("a", rows=1, baseRowId=0), commit_info())
    pq.write_table(pa.table({"id": [1.5], "v": ["x"]}), tmp_path / "wrong" / "t" / "a")
    other.log.commit(metadata(COLUMNS, configuration=TRACKED | {"delta.rowTracking.materializedRowIdColumnName": "n"}))
    for table, reason in (
        (late, "not by row ids: 1 of 1 files of v1 without a base row id: tracking began later"),
        (wrong, "not by row ids: files hold DOUBLE for id, which is long"),
        (other, "not by Spark's CHANGES or row ids: row tracking was set up anew in between: rows got other ids"),
    ):
        found = table.diff(0, 1)
        assert found.method is not DiffMethod.ROW_ID and reason in found.reasons, found.reasons
    with pytest.raises(TableError, match="without a base row id"):
        late.diff(0, 1, method=DiffMethod.ROW_ID)
    with pytest.raises(DiffError, match="set up anew"):
        other.diff(0, 1, method=DiffMethod.ROW_ID)


def test_what_only_spark_reads_is_known_before(tmp_path: Path) -> None:
    nested = Tracked(tmp_path, columns={"id": "long", "_row_id": "long"})
    lake = nested.lake()
    nested.log.commit(add("a", rows=1, baseRowId=0), commit_info())
    nested.file("a", [(1, 2)])
    assert "a column _row_id of its own" in prepare(lake, lake.find("t"), 0, 1).plan.against[DiffMethod.ROW_ID]
    odd = Tracked(tmp_path / "odd", columns={"id": "long", "v": "variant"})
    odd.log.commit(add("a", rows=1, baseRowId=0), commit_info())
    odd.file("a", [(1, b"2")])
    lake = odd.lake()
    plans = [prepare(lake, lake.find("t"), 0, 1, on_host=on_host).plan for on_host in (False, True)]
    assert "column v is variant" in plans[0].against[DiffMethod.ROW_ID]
    assert plans[1].methods[:2] == (DiffMethod.SPARK_CHANGES, DiffMethod.ROW_ID)
