"""A map is the same whatever the order of its entries, wherever it lies."""

from typing import Any

import pyarrow as pa
import pytest

from backend.diff.compare import SIGN, NetAnswer, NetQuery, net_changes
from backend.diff.maps import with_sorted_maps
from backend.diff.model import NetCounts
from backend.duckdb_session import CancelToken

MAP = pa.map_(pa.string(), pa.int64())
AB, BA, AC, NULL = [("a", 1), ("b", 2)], [("b", 2), ("a", 1)], [("a", 1), ("b", 3)], [("a", 1), ("b", None)]
ODD = pa.struct([("a.b", MAP), ('q"', pa.int32())])


def compare(kind: pa.DataType, before: Any, after: Any, key: tuple[str, ...] = ("id",)) -> NetAnswer:
    """One row whose column `m` went from one value to another."""
    schema = pa.schema([("c0", pa.int64()), ("c1", kind), SIGN])
    rows = [{"c0": 1, "c1": before, "sign": -1}, {"c0": 1, "c1": after, "sign": 1}]
    table = pa.Table.from_pylist(rows, schema)
    return net_changes(lambda: table.to_reader(), ("id", "m"), NetQuery(key, 10), CancelToken())


KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "a map": (MAP, lambda m: m),
    "in a struct": (pa.struct([("n", pa.int32()), ("m", MAP)]), lambda m: {"n": None, "m": m}),
    "in a struct with odd names": (ODD, lambda m: {"a.b": m, 'q"': 3}),
    "in a list": (pa.list_(MAP), lambda m: [None, m, []]),
    "in a map": (pa.map_(pa.string(), MAP), lambda m: [("x", m), ("y", None)]),
    "deep": (
        pa.list_(pa.struct([("m", pa.map_(pa.int32(), pa.list_(pa.struct([("m", MAP)]))))])),
        lambda m: [None, {"m": [(2, [{"m": m}, None]), (1, None)]}],
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_order_of_entries_is_no_change_and_a_value_is(name: str) -> None:
    kind, wrapped = KINDS[name]
    for key in (("id",), ()):
        assert compare(kind, wrapped(AB), wrapped(BA), key).net == NetCounts(0, 0, 0)
        for other in (AC, NULL, None, [], AB[:1]):
            assert compare(kind, wrapped(AB), wrapped(other), key).net.total in (1, 2), other
    found = compare(kind, wrapped(BA), wrapped(AC))
    assert (found.net, found.changed_cells) == (NetCounts(0, 1, 0), {"m": 1})
    (row,) = found.rows
    assert (row.changed, row.before) == (("m",), {"id": 1, "m": wrapped(AB)} if name != "deep" else row.before)
    assert found.arrow_schema.field("m").type == kind


def test_null_stays_null() -> None:
    for kind, wrapped in KINDS.values():
        assert compare(kind, None, None).net.total == 0
        assert compare(kind, None, wrapped(None)).net.total == (kind != MAP)


def test_what_holds_no_map_is_left_alone() -> None:
    for kind in (pa.int64(), pa.list_(pa.int64()), pa.struct([("a", pa.string())]), pa.large_list(pa.binary())):
        assert with_sorted_maps(kind, "c0") is None
