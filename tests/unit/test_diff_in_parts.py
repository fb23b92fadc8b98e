"""Files go together where keys may stand in both; rows joined part by part are those joined at once, and what was
joined when time was over is told as no more than that.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from backend.diff import read_local as local_rows
from backend.diff import sieve
from backend.diff.compare import SIGN, NetAnswer, NetQuery, net_changes
from backend.diff.join import Part, SignedRows, join_sides
from backend.diff.model import WHOLE_ROWS, ApartCounts, NetCounts, Partial
from backend.diff.parts import FilesPart, KeyedFile, keyed_files, split
from backend.diff.read_local import signed_files
from backend.diff.rows import fetch_rows
from backend.duckdb_session import CancelToken, session
from backend.errors import DiffError
from backend.lake.model import Metadata
from backend.lake.rows.local_files import LocalFiles
from backend.work import Stopped

TYPES = {"id": "long", "part": "string", "v": "integer"}
FIELDS = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in TYPES.items()]
METADATA = Metadata("t", json.dumps({"type": "struct", "fields": FIELDS}))
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("v", pa.int32())])
COLUMNS = tuple(TYPES)
QUERY = NetQuery(("id",), 100)

Row = tuple[Any, ...]
Files = Sequence[Sequence[Row]]


def written(folder: Path, files: Files, schema: pa.Schema = SCHEMA) -> list[str]:
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


def nothing() -> pa.RecordBatchReader:
    """What a reader of Delta tables would give: DuckDB reads these files."""
    fields = [field.with_name(f"c{place}") for place, field in enumerate(SCHEMA)]
    return pa.schema([*fields, SIGN]).empty_table().to_reader()


def summed_up(sides: tuple[list[str], list[str]], query: NetQuery = QUERY) -> NetAnswer:
    """The answer without a join."""
    with (
        patch("backend.diff.compare._joined", lambda *_: None),
        patch("backend.diff.compare._joined_net", lambda *_: None),
    ):
        return compared(sides, query, at_once=0)[0]


def compared(
    sides: tuple[list[str], list[str]], query: NetQuery = QUERY, *, at_once: int, token: CancelToken | None = None
) -> tuple[NetAnswer, list[int]]:
    """The answer with at most so many rows joined at once, and the rows of the parts that were joined."""
    joined: list[int] = []
    token = token or CancelToken()

    def spied(connection: Any, parts: Sequence[Part], *args: Any) -> Any:
        found = join_sides(connection, parts, *args)
        joined.extend(part.num_rows for part in parts if found is not None)
        return found

    with (
        patch("backend.diff.compare.join_sides", spied),
        patch("backend.diff.compare.MANY_VALUES", at_once * len(COLUMNS)),
    ):
        found = net_changes(
            nothing, COLUMNS, query, token,
            local=lambda connection: signed_files(connection, (laid(sides[0]), laid(sides[1])), METADATA, COLUMNS),
        )  # fmt: skip
    return found, joined


ranges = st.tuples(st.integers(0, 30), st.integers(0, 6), st.sampled_from([0, 1]), st.integers(1, 4))


@settings(max_examples=200, deadline=None)
@given(st.lists(ranges, max_size=12), st.integers(1, 20))
def test_no_value_is_in_two_parts_and_no_file_is_lost(drawn: list[tuple[int, int, int, int]], most: int) -> None:
    files = [KeyedFile(n, side, rows, low, low + wide) for n, (low, wide, side, rows) in enumerate(drawn)]
    parts = split(files, most)
    if parts is None:
        every = split(files, 1_000) or []
        assert sum(part.num_rows for part in every) > most
        return
    assert sorted(file.place for part in parts for file in part.files) == list(range(len(files)))
    assert all(part.num_rows <= most for part in parts)
    assert all(one.high < two.low for one, two in pairwise(parts))


def test_small_groups_of_files_go_together() -> None:
    files = [KeyedFile(n, side, 2, 10 * n, 10 * n + 9) for n in range(4) for side in (0, 1)]
    assert [part.num_rows for part in split(files, 8) or []] == [8, 8]
    assert [part.num_rows for part in split(files, 7) or []] == [4, 4, 4, 4]
    assert split(files, 3) is None
    assert split([], 3) == []
    assert FilesPart(tuple(files)).places(1) == [0, 1, 2, 3]


rows = st.lists(
    st.lists(
        st.tuples(st.sampled_from([None, *range(13)]), st.sampled_from(["a", "b"]), st.integers(0, 2)), max_size=4
    ),
    max_size=4,
)


@settings(max_examples=25, deadline=None)
@given(rows, rows, st.integers(1, 12), st.sampled_from([2, 1 << 20]))
def test_part_by_part_is_the_same_as_at_once(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[list[Row]],
    after: list[list[Row]],
    at_once: int,
    places: int,
) -> None:
    folder = tmp_path_factory.mktemp("files")
    sides = written(folder / "a", before), written(folder / "b", after)
    with patch.object(sieve, "PLACES", places):
        for query in (QUERY, replace(QUERY, where="v = 1"), replace(QUERY, where="part = 'b' AND v < 2")):
            assert str(compared(sides, query, at_once=at_once)[0]) == str(summed_up(sides, query))


def steps(first: int, count: int, v: int = 0) -> list[Row]:
    return [(i, "a", v) for i in range(first, first + count)]


@pytest.fixture
def sides(tmp_path: Path) -> tuple[list[str], list[str]]:
    """Four files a side of ten rows each, ids in order: in each file one row is updated, in the last two are new."""
    before = [steps(100 * n, 10) for n in range(4)]
    after = [[(rows[0][0], "a", 1), *rows[1:]] for rows in before]
    after[-1] = [*after[-1], *steps(400, 2)]
    return written(tmp_path / "a", before), written(tmp_path / "b", after)


def test_files_far_apart_are_joined_apart(sides: tuple[list[str], list[str]]) -> None:
    found, joined = compared(sides, at_once=40)
    assert joined == [40, 20, 22]
    assert found.net == NetCounts(2, 4, 0) and found.partial is None
    assert str(summed_up(sides)) == str(found)


def test_where_files_share_keys_only_rows_that_can_differ_are_joined(sides: tuple[list[str], list[str]]) -> None:
    expected = str(summed_up(sides))
    found, joined = compared(sides, at_once=20)  # the last two files have 22 rows
    assert (joined, str(found)) == ([10], expected)
    found, joined = compared(sides, at_once=3)
    assert (len(joined), sum(joined), str(found)) == (4, 10, expected)


def test_of_rows_that_share_places_all_are_joined(sides: tuple[list[str], list[str]]) -> None:
    with patch.object(sieve, "PLACES", 8):
        found, joined = compared(sides, at_once=20)
    assert sum(joined) > 10 and str(found) == str(summed_up(sides))


def test_the_second_column_of_a_key_may_tell_files_apart(tmp_path: Path) -> None:
    before = [[(i, name, 0) for i in range(10)] for name in "pqr"]
    after = [[(i, name, int(name == "q" and i == 3)) for i in range(10)] for name in "pqr"]
    sides = written(tmp_path / "a", before), written(tmp_path / "b", after)
    found, joined = compared(sides, NetQuery(("id", "part"), 10), at_once=20)
    assert joined == [20, 20, 20]
    assert [row.key for row in found.rows] == [{"id": 3, "part": "q"}]


def test_footers_that_do_not_hold_are_not_believed(sides: tuple[list[str], list[str]]) -> None:
    expected = str(summed_up(sides))

    def lie(*args: Any) -> list[KeyedFile]:
        found = keyed_files(*args) or []
        return [KeyedFile(f.place, f.side, f.num_rows, f.low + 50 * f.side, f.high + 50 * f.side) for f in found]

    with patch.object(local_rows, "keyed_files", lie):
        found, joined = compared(sides, at_once=30)
    assert (joined, str(found)) == ([10], expected)  # not by the footers: all rows were summed up, ten differ


def test_a_column_that_only_newer_files_have_is_null_in_a_part_of_older_ones(tmp_path: Path) -> None:
    narrow = pa.schema([("id", pa.int64()), ("part", pa.string())])
    old = written(tmp_path / "old", [[(1, "a"), (2, "a")]], narrow)
    new = written(tmp_path / "new", [[(51, "a", 1), (52, "a", 2)]])
    came = written(tmp_path / "came", [[(1, "b", None), (2, "a", 7)], [(51, "a", 1), (52, "a", 3)]])
    found, joined = compared(([*old, *new], came), at_once=4)
    assert joined == [4, 4]
    assert found.net == NetCounts(0, 3, 0) and found.changed_cells == {"part": 1, "v": 2}


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


class EndsAfter(CancelToken):
    """Ended when so many rows were read."""

    def __init__(self, rows: int, *, is_stopped: bool) -> None:
        super().__init__(None if is_stopped else 60.0)
        self._rows, self._is_stopped = rows, is_stopped

    def ending(self) -> Any:
        if self.rows_read >= self._rows:
            if self._is_stopped:
                self.stop()
            else:
                self.time_limit_s = 0.0
        return super().ending()


@pytest.mark.parametrize("is_stopped", [True, False])
def test_what_was_compared_when_it_was_ended_is_told_as_that(
    sides: tuple[list[str], list[str]], is_stopped: bool
) -> None:
    token = EndsAfter(40, is_stopped=is_stopped)
    found, _ = compared(sides, at_once=22, token=token)
    ended = "cancelled" if is_stopped else "stopped at the time limit of 0 s"
    assert found.partial == Partial(ended, 40, 82)
    assert found.net == NetCounts(0, 2, 0)
    assert [row.key for row in found.rows] == [{"id": 0}, {"id": 100}]
    assert found.changed_cells == {"v": 2}


dirty = st.lists(st.tuples(st.sampled_from([None, 0, 1, 2]), st.just("a"), st.integers(0, 2)), min_size=0, max_size=6)


def recounted(before: Files, after: Files) -> tuple[NetCounts, ApartCounts]:
    """Of rows whose key is not null, key by key in plain Python."""
    states = [Counter(row for rows in side for row in rows if row[0] is not None) for side in (before, after)]
    rows_of: dict[Any, tuple[int, int]] = {}
    for row in {*states[0], *states[1]}:
        more = states[1][row] - states[0][row]
        came, went = rows_of.get(row[0], (0, 0))
        rows_of[row[0]] = came + max(0, more), went + max(0, -more)
    named = Counter(each for each in rows_of.values() if max(each) == 1)
    twice = [each for each in rows_of.values() if max(each) > 1]
    came, went = (sum(each[side] for each in twice) for side in (0, 1))
    return NetCounts(named[1, 0] + came, named[1, 1], named[0, 1] + went), ApartCounts(len(twice), came, went, 0, 0)


_TWICE = [([(1, "a", 0)], [(1, "a", 1)]), ([(0, "a", 0), (0, "a", 1)], [(1, "a", 0)])]


@settings(max_examples=60, deadline=None)
@example(_TWICE, 5)  # ended between the join of a part and what sets its repeated keys apart
@example(_TWICE, 12)
@given(st.lists(st.tuples(dirty, dirty), min_size=2, max_size=5), st.integers(1, 30))
def test_of_null_and_repeated_keys_no_more_is_told_than_what_was_compared_whole(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[list[Row], list[Row]]], read: int
) -> None:
    """Files of both sides go together in pairs; a null key may be in any of them."""
    both: tuple[list[list[Row]], list[list[Row]]] = ([], [])
    for pair, sides in enumerate(drawn):
        for rows, side in zip(sides, both, strict=True):
            at = 100 * pair
            side.append([(at + 9, "a", 0), *((None if i is None else at + i, p, v) for i, p, v in rows)])
    folder = tmp_path_factory.mktemp("files")
    paths = written(folder / "a", both[0]), written(folder / "b", both[1])
    sizes = [len(one) + len(two) for one, two in zip(*both, strict=True)]
    try:
        found, _ = compared(paths, at_once=max(sizes), token=EndsAfter(read, is_stopped=True))
    except Stopped:
        assert read <= max(sizes) * 3  # nothing was compared: a part is read up to three times
        return
    if found.partial is None:
        assert str(found) == str(summed_up(paths))
        return
    if found.partial.unit == WHOLE_ROWS:
        assert not found.rows  # keys named so little that whole rows were summed up
        return
    ends = {sum(sizes[:pairs]): pairs for pairs in range(1, len(sizes))}
    pairs = ends[found.partial.rows_read]
    assert (found.net, found.apart) == recounted(both[0][:pairs], both[1][:pairs])
    may_null = any(row[0] is None for side in both for rows in side[:pairs] for row in rows)
    assert may_null or found.partial.null_keys == 0


def test_of_a_null_key_what_cancels_it_may_be_still_to_come(tmp_path: Path) -> None:
    before = [[(1, "a", 0), (None, "a", 5)], [(101, "a", 0)], [(201, "a", 0)]]
    after = [[(1, "a", 1)], [(101, "a", 0), (None, "a", 5)], [(201, "a", 0)]]
    sides = written(tmp_path / "a", before), written(tmp_path / "b", after)
    found, _ = compared(sides, at_once=3, token=EndsAfter(9, is_stopped=True))
    assert (found.net, found.apart) == (NetCounts(0, 1, 0), ApartCounts())
    assert found.partial == Partial("cancelled", 3, 8, null_keys=1)
    found, _ = compared(sides, at_once=3)
    assert (found.net, found.apart, found.partial) == (NetCounts(0, 1, 0), ApartCounts(), None)


@pytest.mark.parametrize("is_stopped", [True, False])
def test_when_all_is_compared_an_end_loses_nothing(sides: tuple[list[str], list[str]], is_stopped: bool) -> None:
    whole, token, is_over = str(compared(sides, at_once=22)[0]), CancelToken(60.0), threading.Event()

    def end() -> None:
        while not is_over.is_set():
            (token.stop if is_stopped else token.interrupt)()

    def ended(*args: Any, **options: Any) -> Any:
        token.begin(60.0 if is_stopped else 0.0)
        ending = threading.Thread(target=end)
        ending.start()
        try:
            return fetch_rows(*args, **options)
        finally:
            is_over.set()
            ending.join()
            assert token.ending() is not None

    with patch("backend.diff.compare.fetch_rows", ended):
        assert str(compared(sides, at_once=22, token=token)[0]) == whole


@pytest.mark.parametrize(
    ("query", "net"),
    [
        (replace(QUERY, where="v = 1 AND id < 100"), NetCounts(0, 1, 0)),
        (replace(QUERY, where="v = 0 AND id > 400"), NetCounts(0, 0, 0)),
        (replace(QUERY, tolerance=0.5), NetCounts(0, 2, 0)),
    ],
)
def test_of_what_was_compared_only_what_is_wanted_is_told(
    sides: tuple[list[str], list[str]], query: NetQuery, net: NetCounts
) -> None:
    found, _ = compared(sides, query, at_once=22, token=EndsAfter(40, is_stopped=True))
    assert (found.partial, found.net) == (Partial("cancelled", 40, 82), net)
    assert len(found.rows) == net.total


def test_where_only_some_are_wanted_sums_do_not_tell_how_many(sides: tuple[list[str], list[str]]) -> None:
    query = replace(QUERY, where="v = 1")
    with pytest.raises(Stopped):  # after the sums
        compared(sides, query, at_once=3, token=EndsAfter(82, is_stopped=True))
    token = EndsAfter(83, is_stopped=True)  # after the first part
    partial = compared(sides, query, at_once=3, token=token)[0].partial
    assert partial is not None and partial.differing is None and 72 < partial.rows_read < 82


@pytest.mark.parametrize(
    ("read", "net", "compared_rows"),
    [
        pytest.param(82, NetCounts(0, 0, 0), 72, id="sums alone"),
        pytest.param(83, None, None, id="some of the rows that differ"),
    ],
)
def test_sums_tell_how_many_keys_differ_before_any_row_is_joined(
    sides: tuple[list[str], list[str]], read: int, net: NetCounts | None, compared_rows: int | None
) -> None:
    found, _ = compared(sides, at_once=3, token=EndsAfter(read, is_stopped=True))
    partial = found.partial
    assert partial is not None and (partial.ended, partial.rows_total, partial.differing) == ("cancelled", 82, 6)
    assert net is None or (found.net, partial.rows_read) == (net, compared_rows)
    assert net is not None or (0 < (found.net.total or 0) < 6 and 72 < partial.rows_read < 82)
    assert "about 6 keys differ in all" in partial.text


@pytest.mark.parametrize("read", [8, 11])
@pytest.mark.parametrize(
    ("query", "differing"),
    [
        pytest.param(NetQuery((), 100), 6, id="no key"),
        pytest.param(NetQuery(("id",), 100), 6, id="a key"),
    ],
)
def test_whole_rows_that_are_read_twice_leave_what_the_first_pass_told(
    query: NetQuery, differing: int, read: int
) -> None:
    found = read_rows(query, EndsAfter(read + 2, is_stopped=True))
    assert found.partial == Partial("cancelled", 4, 10, differing, WHOLE_ROWS)
    assert (found.net.total, found.rows, found.truncated) == (0, (), False)
    assert found.arrow_schema.names == list(COLUMNS)


def test_what_cannot_be_estimated_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for query in (NetQuery(("id",), 100, where="v > 1"), NetQuery(("id",), 100, tolerance=0.1)):
        with pytest.raises(Stopped):
            read_rows(query, EndsAfter(10, is_stopped=True))
    monkeypatch.setattr(sieve, "PLACES", 2)
    with pytest.raises(Stopped):
        read_rows(NetQuery((), 100), EndsAfter(10, is_stopped=True))


@pytest.mark.parametrize(
    ("read", "net"),
    [
        pytest.param(10, NetCounts(0, 0, 0), id="summed up"),
        pytest.param(11, None, id="a part joined"),
        pytest.param(16, NetCounts(2, 2, 0), id="all joined"),
    ],
)
def test_rows_that_are_read_once_leave_what_their_sums_told(read: int, net: NetCounts | None) -> None:
    with patch("backend.diff.compare._MANY_NET_VALUES", 3):
        found = read_rows(NetQuery(("id",), 100), EndsAfter(read, is_stopped=True), can_read_twice=False)
    partial = found.partial
    if read == 16:
        assert (partial, found.net) == (None, net)
        return
    assert partial is not None
    assert (partial.ended, partial.rows_total, partial.differing) == ("cancelled", 10, 6)
    assert "about 6 rows of either state differ in all" in partial.text
    assert net is None or (found.net, partial.rows_read) == (net, 4)
    assert net is not None or (0 < (found.net.total or 0) < 4 and 4 < partial.rows_read < 10)
    assert len(found.rows) == found.net.total


def test_rows_that_were_read_twice_are_told_once() -> None:
    """First for their sums, then those that differ; ended while these are joined."""
    with patch("backend.diff.compare._MANY_NET_VALUES", 3):
        partial = read_rows(NetQuery(("id",), 100), EndsAfter(20, is_stopped=True)).partial
    assert partial == Partial("cancelled", 4, 10, 6, WHOLE_ROWS)


def test_of_rows_that_are_read_once_only_what_is_wanted_is_told() -> None:
    with patch("backend.diff.compare._MANY_NET_VALUES", 3):
        for wanted in ({"where": "id > 2"}, {"tolerance": 0.5}):
            query = NetQuery(("id",), 100, **wanted)
            with pytest.raises(Stopped):  # before the first part
                read_rows(query, EndsAfter(10, is_stopped=True), can_read_twice=False)
            partial = read_rows(query, EndsAfter(11, is_stopped=True), can_read_twice=False).partial
            assert partial is not None and partial.differing is None and partial.rows_read < 10


def read_rows(query: NetQuery, token: CancelToken, *, can_read_twice: bool = True) -> NetAnswer:
    """Rows 0 and 1 are the same, 2 and 3 were updated, 4 and 5 came: 6 rows of either state differ."""
    rows = [(-1, i, "a", 0) for i in range(4)] + [(1, i, "a", int(i > 1)) for i in range(6)]
    table = pa.table(
        {"c0": [row[1] for row in rows], "c1": [row[2] for row in rows], "c2": [row[3] for row in rows]}
    ).append_column("sign", pa.array([row[0] for row in rows], pa.int8()))
    token.rows_total = len(rows)
    with patch("backend.diff.compare.MANY_ROWS", 0):
        return net_changes(lambda: table.to_reader(1), COLUMNS, query, token, can_read_twice=can_read_twice)


def test_where_hardly_a_place_is_left_how_many_keys_differ_is_not_told() -> None:
    assert [sieve.likely_keys(n) for n in (0, 1, 1000)] == [0, 1, 1000]
    assert sieve.likely_keys(sieve.PLACES) is None
    drawn = len(set(Random(5).choices(range(sieve.PLACES), k=300_000)))
    assert abs((sieve.likely_keys(drawn) or 0) - 300_000) < 3_000


@pytest.mark.parametrize("query", [QUERY, NetQuery(("id",), 100, take=lambda _: pytest.fail("not whole"))])
def test_nothing_is_told_of_what_was_ended_too_early(sides: tuple[list[str], list[str]], query: NetQuery) -> None:
    rows = 0 if query.take is None else 40
    with pytest.raises(Stopped):
        compared(sides, query, at_once=22, token=EndsAfter(rows, is_stopped=True))
    with pytest.raises(DiffError, match="longer than"):
        compared(sides, query, at_once=22, token=EndsAfter(rows, is_stopped=False))


ENDLESS = "SELECT count(*) FROM range(10000000000) a(i) WHERE hash(i) = 1"


def test_the_time_limit_ends_a_statement_that_runs() -> None:
    started = time.monotonic()
    with pytest.raises(DiffError, match="longer than"), session(CancelToken(time_limit_s=0.3)) as connection:
        connection.execute(ENDLESS)
    assert time.monotonic() - started < 5


def test_progress_is_told_while_a_statement_runs() -> None:
    token, seen = CancelToken(), list[int]()

    def look() -> None:
        while not seen or (seen[-1] < 1_000 and len(seen) < 500):
            time.sleep(0.01)
            seen.append(token.rows_so_far())
        token.stop()

    token.rows_read = 7
    with pytest.raises(Stopped), session(token) as connection:
        threading.Thread(target=look, daemon=True).start()
        with token.reading(10_000_000):
            connection.execute(ENDLESS)
    assert 7 <= seen[0] <= seen[-1] and seen[-1] >= 1_000
    assert token.rows_so_far() == token.rows_read == 7


def test_rows_that_duckdb_reads_need_not_be_told_apart() -> None:
    assert SignedRows("SELECT 1").parts((0,), 10) is None
