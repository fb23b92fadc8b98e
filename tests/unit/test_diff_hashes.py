"""Different values have different hashes, also where DuckDB's own are the same; sums of them overlook no change."""

from decimal import Decimal
from itertools import permutations
from typing import Any
from unittest.mock import patch

import duckdb
import pyarrow as pa
import pytest

from backend.diff.compare import SIGN, NetQuery, net_changes
from backend.diff.hashes import row_hash
from backend.duckdb_session import CancelToken

NAN = float("nan")
INTS = pa.list_(pa.int32())
PAIR = pa.struct([("a", pa.int32()), ("b", pa.int32())])
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole numbers": (pa.int64(), [None, 0, -1, 1, 2**63 - 1, -(2**63)]),
    "yes or no": (pa.bool_(), [None, False, True]),
    "text": (pa.string(), [None, "", "\0", "\0\0", "a", "a\0", "abcdefghijklm", "abcdefghijklm\0"]),
    "bytes": (pa.binary(), [None, b"", b"\0", b"\0\0", b"a"]),
    "floats": (pa.float64(), [None, 0.0, NAN, float("inf"), 1e-320, -1.0]),
    "short decimals": (pa.decimal128(18, 2), [None, *map(Decimal, ("0.00", "-0.01", "0.01", "-1.00", "0.99"))]),
    "long decimals": (pa.decimal128(38, 2), [None, *map(Decimal, ("0.00", "-0.01", "0.01", "-1.00", "0.99", "2e18"))]),
    "lists": (INTS, [None, [], [None], [None, None], [0], [0, 0], [1], [0, 1], [1, 0], [1, None], [None, 1]]),
    "lists of lists": (pa.list_(INTS), [None, [], [None], [[]], [[], []], [[0]], [[0], []], [[1, 2]], [[1], [2]]]),
    "structs": (PAIR, [None, *({"a": a, "b": b} for a in (None, 0, 1) for b in (None, 0, 1))]),
    "lists of structs": (pa.list_(PAIR), [None, [], [None], [{"a": None, "b": None}], [{"a": 0, "b": 0}] * 2]),
    "maps": (pa.map_(pa.int32(), pa.int32()), [None, [], [(0, 0)], [(0, 1)], [(1, 0)], [(1, None)], [(0, 0), (1, 0)]]),
}


@pytest.mark.parametrize("name", VALUES)
def test_different_values_have_different_hashes(name: str) -> None:
    kind, values = VALUES[name]
    with duckdb.connect() as connection:
        connection.register("given", pa.table({"c0": pa.array(values, kind), "c1": pa.array(range(len(values)))}))
        connection.execute("CREATE TABLE rows AS SELECT * FROM given")
        hashed = row_hash(connection, "rows", ["c0"])
        ((hashes,),) = connection.execute(f"SELECT count(DISTINCT {hashed}) FROM rows").fetchall()
        ((distinct,),) = connection.execute("SELECT count(*) FROM (SELECT DISTINCT c0 FROM rows)").fetchall()
        assert hashes == distinct == len(values)
        both, turned = (row_hash(connection, "rows", names) for names in (["c0", "c1"], ["c1", "c0"]))
        ((hashes,),) = connection.execute(
            f"SELECT count(DISTINCT h) FROM (SELECT unnest([{both}, {turned}]) AS h FROM rows)"
        ).fetchall()
        assert hashes == 2 * len(values)


def test_equal_values_have_equal_hashes() -> None:
    with duckdb.connect() as connection:
        for kind in ("DOUBLE", "DOUBLE[]", "STRUCT(a DOUBLE)"):
            value = {"DOUBLE": "{}", "DOUBLE[]": "[{}]", "STRUCT(a DOUBLE)": "{{'a': {}}}"}[kind]
            rows = " UNION ALL ".join(
                f"SELECT CAST({value.format(f'{x}::DOUBLE')} AS {kind}) AS c0" for x in ("0.0", "'-0.0'", "-0.0")
            )
            hashed = row_hash(connection, f"({rows})", ["c0"])
            assert len(connection.execute(f"SELECT DISTINCT {hashed} FROM ({rows})").fetchall()) == 1


@pytest.mark.parametrize("key", [(), ("id",)])
@pytest.mark.parametrize("name", VALUES)
def test_many_rows_are_sieved_and_no_change_is_overlooked(name: str, key: tuple[str, ...]) -> None:
    """Each value becomes each other one, in a row of its own."""
    kind, values = VALUES[name]
    pairs = list(permutations(values, 2))
    before, after = (
        [*(pa.array(range(len(pairs))), pa.array([pair[side] for pair in pairs], kind))] for side in (0, 1)
    )
    schema = pa.schema([("c0", pa.int64()), ("c1", kind), SIGN])

    def read() -> pa.RecordBatchReader:
        sides = ((before, -1), (after, 1))
        batches = [pa.record_batch([*rows, pa.array([n] * len(pairs), pa.int8())], schema=schema) for rows, n in sides]
        return pa.RecordBatchReader.from_batches(schema, batches)

    token = CancelToken()
    token.rows_total = 2 * len(pairs)
    with patch("backend.diff.compare.MANY_ROWS", 0):
        found = net_changes(read, ("id", "v"), NetQuery(key), token, can_read_twice=True)
    assert token.rows_read >= 4 * len(pairs)  # that is, they were sieved
    assert (found.net.updated, found.net.deleted) == ((len(pairs), 0) if key else (None, len(pairs)))
