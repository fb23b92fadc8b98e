"""Files go together where keys may stand in both; rows joined part by part are those joined at once."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.changes.model import Limits, NetCounts, RowChanges
from backend.changes.read_local import KeyedFile, file_rows, keyed_files, split
from backend.lake.model import Metadata
from backend.lake.rows.local_files import LocalFiles
from backend.sql.session import CancelToken
from tests.worlds.cases import drawn
from tests.worlds.lake import diffs
from tests.worlds.lake.diffs import Asked, asked

TYPES = {"id": "long", "part": "string", "v": "integer"}
FIELDS = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in TYPES.items()]
METADATA = Metadata("t", json.dumps({"type": "struct", "fields": FIELDS}))
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("v", pa.int32())])
COLUMNS = tuple(TYPES)
QUERY = asked(key=("id",), row_limit=100)

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


class Joins(CancelToken):
    """Remembers the rows of each join."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int | None] = []

    @contextmanager
    def reading(self, rows: int | None) -> Iterator[None]:
        self.rows.append(rows)
        with super().reading(rows):
            yield


def compared(paths: Paths, query: Asked = QUERY, *, at_once: int) -> tuple[RowChanges, list[int | None]]:
    """The answer with parts of about so many rows, and the rows of the parts that were joined."""
    files, token = (laid(paths[0]), laid(paths[1])), Joins()
    query = query | asked(limits=Limits(values_at_once=at_once * len(COLUMNS)))
    read = partial(file_rows, files=files, metadata=METADATA, columns=COLUMNS)
    return diffs.compared(read, COLUMNS, query, token).changes, token.rows


ranges = st.tuples(st.integers(0, 30), st.integers(0, 6), st.sampled_from([0, 1]), st.integers(1, 4))


@drawn(100)
@given(st.lists(ranges, max_size=12), st.integers(1, 20))
def test_no_value_is_in_two_parts_and_no_file_is_lost(drawn: list[tuple[int, int, int, int]], most: int) -> None:
    files = [KeyedFile(n, side, rows, low, low + wide) for n, (low, wide, side, rows) in enumerate(drawn)]
    groups = split(files, most)
    assert sorted(file.index for group in groups for file in group) == list(range(len(files)))
    assert all(max(a.high for a in one) < min(b.low for b in two) for one, two in pairwise(groups))
    for group in groups:
        small = sum(file.num_rows for file in group) <= most
        assert small or len(split(group, 0)) == 1, "more only where files share values"


def test_small_groups_of_files_go_together() -> None:
    files = [KeyedFile(n, side, 2, 10 * n, 10 * n + 9) for n in range(4) for side in (0, 1)]
    for most, sizes in ((8, [8, 8]), (7, [4, 4, 4, 4]), (3, [4, 4, 4, 4])):
        assert [sum(file.num_rows for file in group) for group in split(files, most)] == sizes
    assert split([], 3) == []


rows = st.lists(
    st.lists(
        st.tuples(st.sampled_from([None, *range(13)]), st.sampled_from(["a", "b"]), st.integers(0, 2)), max_size=4
    ),
    max_size=4,
)


@drawn(4)
@given(rows, rows, st.integers(1, 12))
def test_part_by_part_is_the_same_as_at_once(
    tmp_path_factory: pytest.TempPathFactory, before: list[list[Row]], after: list[list[Row]], at_once: int
) -> None:
    folder = tmp_path_factory.mktemp("files")
    sides = written(folder / "a", before), written(folder / "b", after)
    for query in (QUERY, QUERY | asked(where="part = 'b' AND v < 2")):
        whole = compared(sides, query, at_once=1_000)[0]
        assert str(compared(sides, query, at_once=at_once)[0]) == str(whole)


def steps(first: int, count: int, v: int = 0) -> list[Row]:
    return [(i, "a", v) for i in range(first, first + count)]


@pytest.fixture
def sides(tmp_path: Path) -> Paths:
    """Four files a side of ten rows each, ids in order: in each file one row is updated, in the last two are new."""
    before = [steps(100 * n, 10) for n in range(4)]
    after = [[(rows[0][0], "a", 1), *rows[1:]] for rows in before]
    after[-1] = [*after[-1], *steps(400, 2)]
    return written(tmp_path / "a", before), written(tmp_path / "b", after)


def test_files_far_apart_are_joined_apart(sides: Paths) -> None:
    for at_once, sizes in ((40, [40, 20, 22]), (20, [20, 20, 20, 22]), (100, [None])):  # not told before
        found, joined = compared(sides, at_once=at_once)
        assert joined == sizes
        assert found.net == NetCounts(2, 4, 0) and found.partial is None


def test_files_that_share_keys_are_joined_at_once(tmp_path: Path) -> None:
    before, after = ([[(i, "a", v) for i in range(n, 60, 4)] for n in range(4)] for v in (0, 1))
    apart = [steps(100, 10)]
    sides = written(tmp_path / "a", [*before, *apart]), written(tmp_path / "b", [*after, *apart])
    found, joined = compared(sides, at_once=20)
    assert (joined, found.net) == ([120, 20], NetCounts(0, 60, 0))


def test_the_second_column_of_a_key_may_tell_files_apart(tmp_path: Path) -> None:
    before = [[(i, name, 0) for i in range(10)] for name in "pqr"]
    after = [[(i, name, int(name == "q" and i == 3)) for i in range(10)] for name in "pqr"]
    sides = written(tmp_path / "a", before), written(tmp_path / "b", after)
    found, joined = compared(sides, asked(key=("id", "part"), row_limit=10), at_once=20)
    assert joined == [20, 20, 20]
    assert [row.key for row in found.rows] == [{"id": 3, "part": "q"}]


def test_a_column_that_only_newer_files_have_is_null_in_a_part_of_older_ones(tmp_path: Path) -> None:
    narrow = pa.schema([("id", pa.int64()), ("part", pa.string())])
    old = written(tmp_path / "old", [[(1, "a"), (2, "a")]], narrow)
    new = written(tmp_path / "new", [[(51, "a", 1), (52, "a", 2)]])
    came = written(tmp_path / "came", [[(1, "b", None), (2, "a", 7)], [(51, "a", 1), (52, "a", 3)]])
    found, joined = compared(([*old, *new], came), at_once=4)
    assert joined == [4, 4]
    assert found.net == NetCounts(0, 3, 0) and found.changed_cells == {"part": 1, "v": 2}


def test_a_side_without_files_has_no_rows(tmp_path: Path) -> None:
    paths = written(tmp_path / "a", [steps(0, 3), steps(10, 3)])
    for key in (("id",), ()):
        for at_once in (3, 100):
            assert compared(([], paths), asked(key=key), at_once=at_once)[0].net == NetCounts(6, 0, 0)
            assert compared((paths, []), asked(key=key), at_once=at_once)[0].net == NetCounts(0, 0, 6)
        found = compared(([], []), asked(key=key), at_once=3)[0]
        assert (found.net, found.arrow_schema) == (NetCounts(0, 0, 0), SCHEMA)


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(pa.array([None, None], pa.int64()), id="nothing but nulls"),
        pytest.param(pa.array([0.5, float("nan")]), id="floats"),
        pytest.param(pa.array([True, False]), id="yes or no"),
        pytest.param(pa.array([b"a", b"b"]), id="bytes"),
    ],
)
def test_what_has_no_plain_order_is_not_split(tmp_path: Path, column: pa.Array) -> None:
    path = str(tmp_path / "f.parquet")
    pq.write_table(pa.table({"id": column}), path)
    assert keyed_files([[path], []], "id") is None
    assert keyed_files([[path], []], "other") is None


def test_without_statistics_nothing_is_split_and_files_without_rows_are_left_out(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "silent.parquet", write_statistics=False)
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "empty.parquet")
    pq.write_table(pa.table({"id": [None, *range(9)]}), tmp_path / "full.parquet", row_group_size=2)
    silent, empty, full = (str(tmp_path / f"{name}.parquet") for name in ("silent", "empty", "full"))
    assert keyed_files([[silent], []], "id") is None
    assert keyed_files([[empty], [full]], "id") == [KeyedFile(0, 1, 10, 0, 8)]
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 no")
    for name in ("torn.parquet", "gone.parquet", ""):
        assert keyed_files([[full, str(tmp_path / name)], []], "id") is None
