"""What a comparison finds is what a recount in plain Python finds: of a stream, and of files."""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backend.changes.compare import Read, Sides
from backend.changes.model import ApartCounts, Limits, NetCounts, RowChanges, RowKind, SetApart
from backend.errors import DiffError
from backend.sql.session import CancelToken
from backend.work import Stopped
from tests.worlds.cases import drawn
from tests.worlds.lake import diffs
from tests.worlds.lake.diffs import Asked, CountedReads, asked

Row = tuple[Any, ...]
COLUMNS = ("id", "part", "v", "f")
SCHEMA = pa.schema([("c0", pa.int64()), ("c1", pa.string()), ("c2", pa.string()), ("c3", pa.float64())])
NAN = float("nan")
BY_ID = asked(key=("id",), row_limit=100)


# ways to hand rows over ----------------------------------------------------------------------------------------------


def table_of(before: Sequence[Row], after: Sequence[Row], schema: pa.Schema) -> pa.Table:
    rows = [dict(zip(schema.names, row, strict=True)) for row in (*before, *after)]
    signs = pa.array([-1] * len(before) + [1] * len(after), pa.int8())
    return pa.Table.from_pylist(rows, schema).append_column("sign", signs)


def as_stream(table: pa.Table) -> Read:
    return lambda _: table.to_reader(3)


def as_files(table: pa.Table) -> Read:
    """As files that DuckDB reads."""
    names = ", ".join(table.schema.names[:-1])

    def read(connection: Any) -> Sides:
        connection.register("given", table)
        before, after = (f"SELECT {names}, sign AS n FROM given WHERE sign = {sign}" for sign in (-1, 1))
        return before, after

    return read


class Told(CountedReads):
    """Is ended when so many rows were read."""

    def __init__(self, rows: int | None = None, *, is_stopped: bool = True) -> None:
        super().__init__(None if is_stopped else 60.0)
        self._rows, self._is_stopped = rows, is_stopped

    def ending(self) -> Any:
        if self._rows is not None and self.rows_read >= self._rows:
            if self._is_stopped:
                self.stop()
            else:
                self.time_limit_s = 0.0
        return super().ending()


def compared(
    read: Read, query: Asked, token: CancelToken | None = None, columns: Sequence[str] = COLUMNS
) -> RowChanges:
    return diffs.compared(read, columns, query, token)[0]


# the recount ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recount:
    net: NetCounts
    apart: ApartCounts
    changes: Counter[tuple[Any, ...]]


def plain(row: Row | None) -> Row | None:
    """NaN as a text: it equals itself then, as 0.0 and -0.0 do."""
    return row and tuple("nan" if value != value else value + 0.0 if value == 0 else value for value in row)


Keep = Callable[[Row], bool]


def recounted(
    before: Sequence[Row], after: Sequence[Row], key: Sequence[int], *, keep: Keep | None = None, tolerance: float = 0.0
) -> Recount:
    """Rows that do not cancel, by their key; of which no row is kept, nothing of the key is."""
    more = Counter[Row]()
    for sign, rows in ((1, after), (-1, before)):
        for row in rows:
            more[plain(row)] += sign  # type: ignore[index]
    by_key = defaultdict[Any, list[tuple[Row, int]]](list)
    for row, n in more.items():
        if n:
            by_key[tuple(row[i] for i in key) if key else row].append((row, n))
    counts, apart, changes = Counter[str](), Counter[str](), Counter[tuple[Any, ...]]()
    for name, rows in by_key.items():
        added, removed = sum(max(n, 0) for _, n in rows), sum(max(-n, 0) for _, n in rows)
        sort = None if not key else SetApart.NULL_KEY if None in name else None
        if key and sort is None and max(added, removed) > 1:
            sort = SetApart.DUPLICATE_KEY
        is_update = bool(key) and sort is None and added == removed == 1
        old, new = ([row for row, n in rows if n * sign > 0] for sign in (-1, 1))
        if is_update and not diffs.differ(old[0], new[0], tolerance):
            continue
        if keep is not None and not any(keep(row) for row, _ in rows):
            continue
        if is_update:
            counts["updated"] += 1
            changes[RowKind.UPDATE, old[0], new[0], None, 1] += 1
            continue
        counts["inserted"] += added
        counts["deleted"] += removed
        if sort is not None:
            apart[f"{sort} +"] += added
            apart[f"{sort} -"] += removed
            apart[sort] += 1
        for row, n in rows:
            change = (RowKind.INSERT, None, row) if n > 0 else (RowKind.DELETE, row, None)
            changes[(*change, sort, abs(n))] += 1
    updated = counts["updated"] if key or not (counts["inserted"] and counts["deleted"]) else None
    twice, null = SetApart.DUPLICATE_KEY, SetApart.NULL_KEY
    return Recount(
        NetCounts(counts["inserted"], updated, counts["deleted"]),
        ApartCounts(apart[twice], apart[f"{twice} +"], apart[f"{twice} -"], apart[f"{null} +"], apart[f"{null} -"]),
        changes,
    )


def told(found: RowChanges) -> Recount:
    changes = Counter[tuple[Any, ...]]()
    for row in found.rows:
        cells = (None if side is None else plain(tuple(side.values())) for side in (row.before, row.after))
        changes[(row.kind, *cells, row.set_apart, row.copies)] += 1
    return Recount(found.net, found.apart, changes)


# random rows ---------------------------------------------------------------------------------------------------------


rows = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2, 3, 4, 5, None]),
        st.sampled_from(["a", "bb"]),
        st.sampled_from(["x", "y", None]),
        st.sampled_from([0.0, -0.0, 0.05, 1.0, NAN, None]),
    ),
    max_size=8,
)
keys = st.sampled_from([("id",), ("id", "part"), ()])
WANTED: tuple[tuple[dict[str, Any], Keep | None], ...] = (
    ({}, None),
    ({"tolerance": 0.1}, None),
    ({"where": "v = 'x'"}, lambda row: row[2] == "x"),
    ({"where": "id IN (1, 2) AND part <> 'a' OR f = 1"}, lambda r: (r[0] in (1, 2) and r[1] != "a") or r[3] == 1),
    ({"tolerance": 0.1, "where": "v = 'y'"}, lambda row: row[2] == "y"),
)


one, zero, other, two = (1, "a", "x", 0.0), (0, "a", "x", 0.0), (1, "a", "y", 0.0), (2, "a", "x", NAN)


@drawn(4)
@given(rows, rows, keys, st.integers(0, len(WANTED) - 1))
@example([one], [one], ("id",), 0)
@example([one, two, (3, "bb", None, None)], [other, two], ("id",), 0)
@example([(1, "a", None, NAN)], [(1, "a", "x", None)], ("id",), 0)
@example([one, one, two], [one, one], ("id",), 0)  # repeated, and cancels
@example([one, one], [one], ("id",), 0)  # one of two went
@example([one], [one, one, two], ("id",), 0)
@example([one, one, two], [one, two, two], ("id",), 0)  # one went, another came twice
@example([one, one], [], ("id",), 0)
@example([zero], [zero, zero], ("id",), 0)
@example([zero, zero, one], [zero, one, one], ("id",), 0)
@example([one], [one, other], ("id",), 0)  # beside an equal one
@example([one, (1, "bb", "x", 0.0)], [one, (1, "bb", "y", 0.0)], ("id",), 0)  # named by two columns
@example([(None, "a", "x", 0.0)], [(None, "a", "y", 0.0)], ("id",), 0)
@example([one, (5, None, "x", 0.0)], [one], ("id", "part"), 0)
@example([(None, "a", "x", 0.0)], [(None, "bb", "x", 0.0), (None, "a", "x", 0.0)], ("id",), 2)
@example([one, one, (1, "a", "x", 1.0)], [one, (1, "a", "x", 0.05)], ("id",), 4)
@example([one, one, one], [one, (1, "a", "x", 0.05), (1, "a", "x", 1.0)], ("id",), 0)  # as many pairs as rows
def test_what_is_found_is_what_a_recount_finds(
    before: list[Row], after: list[Row], key: tuple[str, ...], wanted: int
) -> None:
    options, keep = WANTED[wanted]
    table, query = table_of(before, after, SCHEMA), asked(key=key, row_limit=100, **options)
    numbers = [COLUMNS.index(name) for name in key]
    expected = recounted(before, after, numbers, keep=keep, tolerance=options.get("tolerance", 0.0) if key else 0.0)
    if not key and keep is not None and (expected.net.inserted or expected.net.deleted):
        expected = replace(expected, net=replace(expected.net, updated=None))  # its other half may be left out
    answers = [compared(way, query) for way in (as_stream(table), as_files(table))]
    for answer in answers:
        assert told(answer) == expected
        assert answer.arrow_schema.names == list(COLUMNS)
    seen = [(dict(answer.changed_cells), str(answer.common).replace("-0.0", "0.0")) for answer in answers]
    assert seen[0] == seen[1]


# values --------------------------------------------------------------------------------------------------------------


AT = datetime(2026, 1, 1, tzinfo=UTC)
INTS = pa.list_(pa.int32())
PAIR = pa.struct([("a", pa.int32()), ("b", pa.int32())])
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole numbers": (pa.int64(), [None, 0, -1, 1, 2**63 - 1, -(2**63)]),
    "yes or no": (pa.bool_(), [None, False, True]),
    "text": (pa.string(), [None, "", "\0", "\0\0", "a", "A", "é", "a\0", "abcdefghijklm", "abcdefghijklm\0"]),
    "bytes": (pa.binary(), [None, b"", b"\0", b"\0\0", b"a", b"\xff"]),
    "floats": (pa.float64(), [None, 0.0, NAN, float("inf"), 1e-320, -1.0]),
    "lists of floats": (pa.list_(pa.float64()), [None, [], [NAN], [NAN, 1.0], [0.0], [None]]),
    "times": (pa.timestamp("us", "UTC"), [None, *(AT + timedelta(microseconds=i) for i in range(3))]),
    "short decimals": (pa.decimal128(18, 2), [None, *map(Decimal, ("0.00", "-0.01", "0.01", "-1.00", "0.99"))]),
    "long decimals": (pa.decimal128(38, 2), [None, *map(Decimal, ("0.00", "-0.01", "0.01", "-1.00", "0.99", "2e18"))]),
    "lists": (INTS, [None, [], [None], [None, None], [0], [0, 0], [1], [0, 1], [1, 0], [1, None], [None, 1]]),
    "lists of lists": (pa.list_(INTS), [None, [], [None], [[]], [[], []], [[0]], [[0], []], [[1, 2]], [[1], [2]]]),
    "structs": (PAIR, [None, *({"a": a, "b": b} for a in (None, 0, 1) for b in (None, 0, 1))]),
    "lists of structs": (pa.list_(PAIR), [None, [], [None], [{"a": None, "b": None}], [{"a": 0, "b": 0}] * 2]),
    "maps": (pa.map_(pa.int32(), pa.int32()), [None, [], [(0, 0)], [(0, 1)], [(1, 0)], [(1, None)], [(0, 0), (1, 0)]]),
}


@pytest.mark.parametrize("name", VALUES)
def test_each_value_that_becomes_another_one_is_seen(name: str) -> None:
    """In a row of its own, also where the values share a hash in DuckDB."""
    kind, values = VALUES[name]
    pairs, schema = list(permutations(values, 2)), pa.schema([("c0", pa.int64()), ("c1", kind)])
    table = table_of(*([(i, pair[side]) for i, pair in enumerate(pairs)] for side in (0, 1)), schema)
    for read in (as_stream(table), as_files(table)):
        by_key = compared(read, asked(key=("id",), row_limit=1_000), columns=("id", "v"))
        assert (by_key.net, by_key.changed_cells) == (NetCounts(0, len(pairs), 0), {"v": len(pairs)})
    assert compared(as_stream(table), asked(), columns=("id", "v")).net == NetCounts(len(pairs), None, len(pairs))


@pytest.mark.parametrize("name", VALUES)
def test_rows_are_paired_by_a_key_of_any_type(name: str) -> None:
    kind, (null, first, *others, last) = VALUES[name]
    schema = pa.schema([("c0", kind), ("c1", pa.int32())])
    same = [(value, 1) for value in others]
    table = table_of([(first, 1), *same], [(first, 2), *same, (last, 1), (null, 1)], schema)
    twice = table_of([(first, 1), *same], [(first, 1), *same, (first, 3)], schema)
    for way in (as_stream,) if name == "maps" else (as_stream, as_files):
        found = compared(way(table), BY_ID, columns=("id", "v"))
        assert (found.net, found.apart) == (NetCounts(2, 1, 0), ApartCounts(null_inserted=1))
        assert compared(way(twice), BY_ID, columns=("id", "v")).net == NetCounts(1, 0, 0)


NESTED = pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.float32()))), ("s", pa.string())]))


def nested(*numbers: float | None, key: str = "k", text: str = "t") -> list[dict[str, Any]]:
    return [{"m": [(key, list(numbers))], "s": text}]


NEAR = [nested(1.0, None), nested(1.4, None), None, []]
FAR = [nested(1.6, None), nested(1.0, 1.0), nested(1.0), nested(1.0, None, key="q"), nested(1.0, None, text="u")]


def test_the_tolerance_reaches_every_float() -> None:
    schema = pa.schema([("c0", pa.int64()), ("c1", NESTED)])
    pairs = [*((NEAR[0], after) for after in [*NEAR[:2], *FAR, *NEAR[2:]]), (None, None), ([], [])]
    sides = [[(number, pair[side]) for number, pair in enumerate(pairs)] for side in (0, 1)]
    query = BY_ID | asked(tolerance=0.5)
    for read in (as_stream, as_files):
        found = compared(read(table_of(*sides, schema)), query, columns=("id", "nested"))
        assert found.net == NetCounts(0, len(FAR) + 2, 0)
        assert [row.key["id"] for row in found.rows if row.key] == list(range(2, 4 + len(FAR)))
        assert {row.changed for row in found.rows} == {("nested",)}


MAP = pa.map_(pa.string(), pa.int64())
AB, BA, AC, NULL = [("a", 1), ("b", 2)], [("b", 2), ("a", 1)], [("a", 1), ("b", 3)], [("a", 1), ("b", None)]
ODD = pa.struct([("a.b", MAP), ('q"', pa.int32())])
MAPS: dict[str, tuple[pa.DataType, Any]] = {
    "a map": (MAP, lambda m: m),
    "in a struct with odd names": (ODD, lambda m: {"a.b": m, 'q"': 3}),
    "deep": (
        pa.list_(pa.struct([("m", pa.map_(pa.int32(), pa.list_(pa.struct([("m", MAP)]))))])),
        lambda m: [None, {"m": [(2, [{"m": m}, None]), (1, None)]}],
    ),
}


@pytest.mark.parametrize("name", MAPS)
def test_the_order_of_a_map_s_entries_is_no_change_and_a_value_is(name: str) -> None:
    kind, wrapped = MAPS[name]

    def of(before: Any, after: Any, key: tuple[str, ...] = ("id",)) -> RowChanges:
        table = table_of([(1, before)], [(1, after)], pa.schema([("c0", pa.int64()), ("c1", kind)]))
        return compared(as_stream(table), asked(key=key, row_limit=10), columns=("id", "m"))

    for key in (("id",), ()):
        assert of(wrapped(AB), wrapped(BA), key).net == NetCounts(0, 0, 0)
        for changed in (AC, NULL, None, [], AB[:1]):
            assert of(wrapped(AB), wrapped(changed), key).net.total in (1, 2), changed
    found = of(wrapped(BA), wrapped(AC))
    assert (found.net, found.changed_cells) == (NetCounts(0, 1, 0), {"m": 1})
    (row,) = found.rows
    assert (row.changed, row.before) == (("m",), {"id": 1, "m": wrapped(AB)} if name != "deep" else row.before)
    assert found.arrow_schema.field("m").type == kind
    assert of(None, None).net.total == 0 and of(None, wrapped(None)).net.total == (kind != MAP)


# keys that name no row -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sharing", "passes"),
    [
        pytest.param([], 1, id="every key names a row"),
        pytest.param([20] * 200, 3, id="two hundred keys of twenty rows"),
        pytest.param([60_000], 3, id="one key of sixty thousand"),
        pytest.param([20_000] * 3, 3, id="three keys of twenty thousand"),
    ],
)
def test_a_join_makes_no_more_pairs_than_there_are_rows(sharing: list[int], passes: int) -> None:
    """Each key is in so many rows of a side, all the same but one: joined, it alone would make rows × rows pairs."""
    many = [(-1 - key, "a", "x" if n else "y", 0.0) for key, count in enumerate(sharing) for n in range(count)]
    before = [(i, "a", "x", 0.0) for i in range(50_000)]
    after = [(0, "a", "y", 0.0), *before[1:]]
    read, token = as_files(table_of(before + many, after + many[1:], SCHEMA)), Told()
    found = compared(read, BY_ID, token)
    assert len(token.read) == passes
    assert found.net == NetCounts(0, 1, len(sharing[:1])) and found.apart == ApartCounts()


def test_the_limit_is_shared_between_the_kinds() -> None:
    before = [(i, "a", "x", 0.0) for i in range(60)]
    after = [(i, "a", "y", 0.0) for i in range(20, 40)] + [(i, "a", "x", 0.0) for i in range(100, 140)]
    found = compared(as_files(table_of(before, after, SCHEMA)), asked(key=("id",), row_limit=12))
    assert found.truncated
    assert [row.key for row in found.rows if row.before and row.after] == [{"id": i} for i in range(20, 24)]
    assert Counter(row.kind for row in found.rows) == dict.fromkeys(RowKind, 4)


# part by part --------------------------------------------------------------------------------------------------------


def steps(first: int, count: int, v: str = "x") -> list[Row]:
    return [(i, "a", v, 0.0) for i in range(first, first + count)]


OLD = [row for n in range(4) for row in steps(100 * n, 10)]
NEW = [(i, p, "y" if i % 100 == 0 else v, f) for i, p, v, f in OLD] + steps(400, 2)
TABLE = table_of(OLD, NEW, SCHEMA)


@pytest.mark.parametrize("read", [as_stream(TABLE), as_files(TABLE)])
@pytest.mark.parametrize("query", [asked(key=(), row_limit=100), BY_ID])
def test_rows_that_are_compared_at_once_are_all_or_nothing(read: Read, query: Asked) -> None:
    with pytest.raises(Stopped):
        compared(read, query, Told(0))


class EndsLate(CancelToken):
    """Ended again and again from the moment when all rows are compared: the next thing is to fetch the first ones."""

    def __init__(self, *, is_stopped: bool) -> None:
        super().__init__(60.0)
        self._is_stopped, self._is_over, self.ended_times = is_stopped, threading.Event(), 0

    @contextmanager
    def sheltered(self) -> Iterator[None]:
        self.begin(60.0 if self._is_stopped else 0.0)
        ending = threading.Thread(target=self._end)
        ending.start()
        with super().sheltered():
            try:
                yield
            finally:
                self._is_over.set()
                ending.join()

    def _end(self) -> None:
        while not self._is_over.is_set():
            (self.stop if self._is_stopped else self.interrupt)()
            self.ended_times += 1


@pytest.mark.parametrize("is_stopped", [True, False])
def test_when_all_is_compared_an_end_loses_nothing(is_stopped: bool) -> None:
    token = EndsLate(is_stopped=is_stopped)
    assert compared(as_files(TABLE), BY_ID, token) == compared(as_files(TABLE), BY_ID)
    assert token.ending() is not None and token.ended_times


def test_what_breaks_the_rows_is_told_as_it_is() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches()
        raise DiffError("torn")

    with pytest.raises(DiffError, match="torn"):
        compared(lambda _: pa.RecordBatchReader.from_batches(TABLE.schema, broken()), BY_ID)


@pytest.mark.soak
@pytest.mark.parametrize("key", [(), ("id",)])
def test_random_rows_that_do_not_fit_into_memory_are_spilled(key: tuple[str, ...]) -> None:
    """Six million rows of 24 bytes in 100 MB; every other one differs."""
    count = 3_000_000
    values = "CAST(hash(i) >> 1 AS BIGINT) AS c0, CAST(hash(i, {}) >> 1 AS BIGINT) AS c1, i / 3 AS c2, {} AS n"
    side = f"SELECT {values} FROM range({{}}) t(i)"
    before, after = side.format(1, -1, count), side.format("1 + i % 2", 1, count)
    query = asked(key=key, row_limit=10, limits=Limits(memory_bytes=100_000_000))
    found = compared(lambda _: (before, after), query, columns=("id", "v", "f"))
    half = count // 2
    assert found.net == (NetCounts(0, half, 0) if key else NetCounts(half, None, half))
