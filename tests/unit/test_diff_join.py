"""The join of two sides by key says what summing up whole rows says, or says nothing.

Rule: counts are held against plain Python, everything else against the way that the join stands in for.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.diff.compare import NetAnswer, NetQuery, net_changes
from backend.diff.join import SignedRows, _Join, join_sides
from backend.diff.model import NetCounts
from backend.duckdb_session import CancelToken

Row = tuple[Any, ...]
COLUMNS = ("id", "part", "v", "f")
SCHEMA = pa.schema([("c0", pa.int64()), ("c1", pa.string()), ("c2", pa.string()), ("c3", pa.float64())])
NAN = float("nan")


def compare(
    before: Sequence[Row], after: Sequence[Row], query: NetQuery, schema: pa.Schema = SCHEMA
) -> tuple[NetAnswer, bool | None]:
    """The answer, and whether the join found that keys name its rows (None: it was not asked)."""
    rows = [*(dict(zip(schema.names, row, strict=True)) for row in (*before, *after))]
    signs = pa.array([-1] * len(before) + [1] * len(after), pa.int8())
    table = pa.Table.from_pylist(rows, schema).append_column("sign", signs)
    token, gave = CancelToken(), []
    token.rows_total = len(rows)

    def spied(*args: Any) -> Any:
        found = join_sides(*args)
        gave.append(found is not None and not found.has_apart)
        return found

    def local(connection: Any) -> SignedRows:
        connection.register("given", table)
        return SignedRows("SELECT * FROM given")

    columns = COLUMNS[: len(schema)]
    with patch("backend.diff.compare.join_sides", spied):
        found = net_changes(lambda: table.to_reader(), columns, query, token, local=local)
    return found, gave[0] if gave else None


def summed_up(*args: Any) -> NetAnswer:
    with (
        patch("backend.diff.compare._joined", lambda *_: None),
        patch("backend.diff.compare._joined_net", lambda *_: None),
    ):
        found, is_joined = compare(*args)
    assert is_joined is None
    return found


def joined_late(*args: Any) -> tuple[NetAnswer, bool | None]:
    """What is joined after whole rows were summed up."""
    with patch("backend.diff.compare._joined", lambda *_: None):
        return compare(*args)


def counted(before: Sequence[Row], after: Sequence[Row], key: tuple[str, ...]) -> NetCounts | None:
    """A recount in plain Python; None where the key names no row, or several."""
    old, new = ({str([row[COLUMNS.index(n)] for n in key]): str(row) for row in side} for side in (before, after))
    if (len(old), len(new)) != (len(before), len(after)) or any("None" in name for name in old | new):
        return None
    updated = sum(old[name].replace("-0.0", "0.0") != new[name].replace("-0.0", "0.0") for name in old.keys() & new)
    return NetCounts(len(new.keys() - old), updated, len(old.keys() - new))


def text(answer: NetAnswer) -> str:
    """NaN does not equal itself; which of two equal zeros stands for a common change is nobody's matter."""
    return str(answer).replace("-0.0", "0.0")


rows = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2, 3, 4, None]),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["x", "y", None]),
        st.sampled_from([0.0, -0.0, 0.05, 1.0, NAN, None]),
    ),
    max_size=6,
)
one = (1, "a", "x", 0.0)
zero = (0, "a", "x", 0.0)


@settings(max_examples=20, deadline=None)
@given(rows, rows, st.sampled_from([("id",), ("id", "part")]))
def test_the_join_says_what_summing_up_says_or_nothing(
    before: list[Row], after: list[Row], key: tuple[str, ...]
) -> None:
    found, is_joined = compare(before, after, NetQuery(key, 100))
    late, is_joined_late = joined_late(before, after, NetQuery(key, 100))
    assert text(found) == text(late) == text(summed_up(before, after, NetQuery(key, 100)))
    expected = counted(before, after, key)
    assert expected is None or (is_joined, is_joined_late, found.net) == (True, True, expected)


WANTED = (
    {"tolerance": 0.1},
    {"where": "v = 'x'"},
    {"where": "id IN (1, 2) AND part <> 'a' OR f > 0.5"},
    {"tolerance": 0.1, "where": "f < 0.1"},
)


@settings(max_examples=40, deadline=None)
@given(rows, rows, st.sampled_from([("id",), ("id", "part")]), st.sampled_from(WANTED))
def test_of_what_differs_the_same_is_wanted(
    before: list[Row], after: list[Row], key: tuple[str, ...], wanted: dict[str, Any]
) -> None:
    found, is_joined = compare(before, after, query := NetQuery(key, 100, **wanted))
    late, is_joined_late = joined_late(before, after, query)
    assert text(found) == text(late) == text(summed_up(before, after, query))
    assert (is_joined and is_joined_late) or counted(before, after, key) is None


def test_rows_that_were_joined_are_left_out_by_what_they_are_before_and_after() -> None:
    before = [(1, "a", "x", 0.0), (2, "a", "x", 0.0), (3, "a", "y", 0.0), (4, "b", "y", 1.0), (5, "b", "y", 1.0)]
    after = [(1, "a", "y", 0.0), (2, "a", "x", 0.05), (4, "b", "z", 1.0), (5, "b", "y", 1.2), (6, "a", "x", 0.0)]
    for wanted, net in (
        ({"tolerance": 0.1}, NetCounts(1, 3, 1)),
        ({"where": "v = 'x'"}, NetCounts(1, 2, 0)),
        ({"where": "v = 'z'"}, NetCounts(0, 1, 0)),
        ({"where": "f > 1.1"}, NetCounts(0, 1, 0)),
        ({"tolerance": 0.1, "where": "v = 'x'"}, NetCounts(1, 1, 0)),
        ({"where": "id > 100"}, NetCounts(0, 0, 0)),
    ):
        found, is_joined = compare(before, after, NetQuery(("id",), 100, **wanted))
        assert (is_joined, found.net) == (True, net), wanted


other, two = (1, "a", "y", 0.0), (2, "a", "x", NAN)


@pytest.mark.parametrize(
    ("before", "after", "joined_by_id", "joined_by_both"),
    [
        pytest.param([one, two, (3, "b", None, None)], [other, two], True, True, id="each key once"),
        pytest.param([(1, "a", None, NAN)], [(1, "a", "x", NAN)], True, True, id="null became a value"),
        pytest.param([(1, "a", "x", NAN)], [(1, "a", "x", None)], True, True, id="NaN became null"),
        pytest.param([], [one, two], True, True, id="only inserts"),
        pytest.param([one], [one], True, True, id="nothing"),
        pytest.param([one, one, two], [one, one], True, True, id="repeated, and cancels"),
        pytest.param([one, one], [one], False, False, id="one of two went"),
        pytest.param([one], [one, one, two], False, False, id="one more came"),
        pytest.param([one, one, two], [one, two, two], False, False, id="one went, another came twice"),
        pytest.param([one, one], [], False, False, id="both went"),
        pytest.param([zero], [zero, zero], False, False, id="one more came, of a key whose hash is 0"),
        pytest.param([zero, zero, one], [zero, one, one], False, False, id="went, another came"),
        pytest.param([one], [one, other], False, False, id="beside an equal one"),
        pytest.param([one, (1, "b", "x", 0.0)], [one, (1, "b", "y", 0.0)], False, True, id="named by two columns"),
        pytest.param([(None, "a", "x", 0.0)], [(None, "a", "y", 0.0)], False, False, id="null"),
        pytest.param([one, (5, None, "x", 0.0)], [one], True, False, id="null beside"),
        pytest.param([one, (None, "a", "x", 0.0)], [one], False, False, id="null went"),
        pytest.param([one], [one, (None, "a", "x", 0.0)], False, False, id="null came"),
    ],
)
def test_the_join_knows_when_a_key_names_its_rows(
    before: list[Row], after: list[Row], joined_by_id: bool, joined_by_both: bool
) -> None:
    for key, expected in ((("id",), joined_by_id), (("id", "part"), joined_by_both)):
        found, is_joined = compare(before, after, NetQuery(key, 100))
        late, _ = joined_late(before, after, NetQuery(key, 100))
        assert is_joined is expected
        assert text(found) == text(late) == text(summed_up(before, after, NetQuery(key, 100)))


KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a", "A", "", "é"]),
    "decimal": (
        pa.decimal128(20, 2),
        [Decimal("0.10"), Decimal("-0.10"), Decimal("123456789012345678.90"), Decimal(0)],
    ),
    "time": (
        pa.timestamp("us", "UTC"),
        [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=i) for i in range(4)],
    ),
    "binary": (pa.binary(), [b"", b"\x00", b"\x00\x00", b"\xff"]),
    "float": (pa.float64(), [0.0, NAN, float("inf"), 1.5]),
    "yes or no": (pa.bool_(), [True, False]),
    "struct": (pa.struct([("a", pa.int64())]), [{"a": 1}, {"a": None}, {"a": 2}, {"a": 3}]),
    "list": (pa.list_(pa.string()), [["a"], [None], [], ["a", "b"]]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [("a", None)], [], [("a", 1), ("b", 2)]]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_of_any_type_is_joined_by(kind: str) -> None:
    arrow, values = KEYS[kind]
    schema = pa.schema([("c0", arrow), ("c1", pa.int32())])
    before = [(value, 1) for value in values[:-1]]
    after = [(value, 2 if place == 0 else 1) for place, value in enumerate(values) if place != 1]
    found, is_joined = compare(before, after, NetQuery(("id",), 10), schema)
    deleted = 1 if len(values) > 2 else 0
    assert (is_joined, found.net) == (True, NetCounts(deleted, 1, deleted))
    late, is_joined_late = joined_late(before, after, NetQuery(("id",), 10), schema)
    assert str(found) == str(late) == str(summed_up(before, after, NetQuery(("id",), 10), schema)) and is_joined_late
    twice = [*after, (values[0], 3)]
    found, is_joined = compare(before, twice, NetQuery(("id",), 10), schema)
    assert (is_joined, found.apart.duplicate_keys) == (False, 1)


@pytest.mark.parametrize(
    ("query", "width"),
    [
        (NetQuery(), 2),
        (NetQuery(("id",)), 9),
    ],
)
def test_what_the_join_cannot_answer_it_is_not_asked(query: NetQuery, width: int) -> None:
    with patch("backend.diff.compare.MANY_COLUMNS", 8 if width > 8 else 4):
        wide = pa.schema([(f"c{i}", pa.int32()) for i in range(width)])
        with patch(f"{__name__}.COLUMNS", ("id", *(f"n{i}" for i in range(1, width)))):
            _, is_joined = compare([(1,) * width], [(2,) * width], query, wide)
    assert is_joined is None


@pytest.mark.parametrize(
    "repeated",
    [
        pytest.param([(0, "a", str(i), 0.0) for i in range(300)], id="one key for all"),
        pytest.param([(max(0, i - 40), "a", str(i), 0.0) for i in range(300)], id="one key for some"),
    ],
)
def test_a_key_that_many_rows_share_does_not_multiply_them(repeated: list[Row]) -> None:
    before, after = repeated[:150], repeated[:40] + repeated[150:]
    found, is_joined = compare(before, after, NetQuery(("id",), 1_000))
    assert is_joined is False
    assert str(found) == str(summed_up(before, after, NetQuery(("id",), 1_000)))


@pytest.mark.parametrize(
    ("sharing", "is_multiplied"),
    [
        pytest.param([], False, id="every key names a row"),
        pytest.param([20] * 200, False, id="two hundred keys of twenty rows"),
        pytest.param([5_000], True, id="one key of five thousand"),
        pytest.param([2_000] * 3, True, id="three keys of two thousand"),
    ],
)
def test_before_a_join_multiplies_rows_their_keys_are_set_apart(sharing: list[int], is_multiplied: bool) -> None:
    """Each is in so many rows of a side, all the same but one: a join finds rows × rows pairs of it."""
    many = [(-1 - key, "a", "x" if n else "y", 0.0) for key, count in enumerate(sharing) for n in range(count)]
    before = [(i, "a", "x", 0.0) for i in range(50_000)]
    after = [(0, "a", "y", 0.0), *before[1:]]
    told: list[bool] = []

    def spied(join: Any, *args: Any) -> Any:
        sums = sum_up(join, *args)
        told.append(sums.is_multiplied)
        return sums

    query, sum_up = NetQuery(("id",), 100), _Join._sum_up
    with patch.object(_Join, "_sum_up", spied):
        found, is_joined = compare(before + many, after + many[1:], query)
    assert (told, is_joined) == ([is_multiplied], not sharing)
    assert found.net == NetCounts(0, 1, len(sharing[:1]))
    assert str(found) == str(summed_up(before + many, after + many[1:], query))


def test_the_limit_is_shared_between_the_kinds() -> None:
    before = [(i, "a", "x", 0.0) for i in range(60)]
    after = [(i, "a", "y", 0.0) for i in range(20, 40)] + [(i, "a", "x", 0.0) for i in range(100, 140)]
    query = NetQuery(("id",), 12)
    found, is_joined = compare(before, after, query)
    assert is_joined and found.truncated
    assert [row.key for row in found.rows if row.before and row.after] == [{"id": i} for i in range(20, 24)]
    assert str(found) == str(summed_up(before, after, query))
