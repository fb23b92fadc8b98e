"""Changed rows leave as CSV, JSON and Parquet: safe, whole and typed."""

import csv
import io
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.changes.export import exported, write_csv, write_json, write_parquet
from backend.changes.model import (
    ApartCounts,
    DiffMethod,
    FilesDiff,
    KeyChoice,
    KeySource,
    NetCounts,
    RowChange,
    RowKind,
    SchemaDiff,
    VersionDiff,
)
from backend.lake.model import TableRef

SCHEMA = pa.schema(
    [("id", pa.int64()), ("v", pa.string()), ("money", pa.decimal128(38, 4)), ("xs", pa.list_(pa.float64()))]
)


def diff_of(*rows: RowChange) -> VersionDiff:
    return VersionDiff(
        ref=TableRef("/lake/t", "t", "/lake"),
        from_version=0,
        to_version=1,
        method=DiffMethod.CHANGE_FEED,
        reasons=(),
        exact=True,
        key=KeyChoice(("id",), KeySource.GIVEN),
        net=NetCounts(0, 0, 0),
        apart=ApartCounts(),
        commits=(),
        rows=rows,
        truncated=False,
        changed_cells={},
        arrow_schema=SCHEMA,
        schema=SchemaDiff(),
        properties=(),
        files=FilesDiff(),
    )


def cells(v: str | None = "x", **more: Any) -> dict[str, Any]:
    return {"id": 2**63 - 1, "v": v, "money": Decimal("-1.5000"), "xs": [1.0, float("nan")]} | more


UPDATE = RowChange(RowKind.UPDATE, {"id": 1}, cells("old"), cells(None), ("v",))


def csv_rows(found: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(found.decode("utf-8-sig"), newline="")))


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd|'/C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "＝1", '=HYPERLINK("http://x","y")']
)
def test_csv_never_starts_a_formula(text: str) -> None:
    (row,) = csv_rows(exported(diff_of(RowChange(RowKind.INSERT, None, None, cells(text))), write_csv))
    assert row["after.v"] == f"'{text}"


def test_csv_column_names_are_safe_too() -> None:
    named = replace(diff_of(), arrow_schema=pa.schema([("=x", pa.int64())]))
    assert "before.=x" in exported(named, write_csv).decode("utf-8-sig").splitlines()[0].split(",")


def test_csv_keeps_digits_and_leaves_numbers_alone() -> None:
    (row,) = csv_rows(exported(diff_of(UPDATE), write_csv))
    assert (row["change"], row["before.id"], row["before.money"]) == ("update", str(2**63 - 1), "-1.5000")
    assert (row["before.v"], row["after.v"], row["changed_columns"]) == ("old", "", '["v"]')


def test_csv_keeps_line_breaks_commas_and_quotes_inside_a_cell() -> None:
    text = 'a,"b"\nc'
    (row,) = csv_rows(exported(diff_of(RowChange(RowKind.INSERT, None, None, cells(text))), write_csv))
    assert row["after.v"] == text


def test_json_never_prints_nan() -> None:
    found = exported(diff_of(UPDATE), write_json)
    assert b"NaN" not in found
    (row,) = json.loads(found)
    assert row["before"] == {"id": 2**63 - 1, "v": "old", "money": "-1.5000", "xs": [1.0, None]}
    assert (row["change"], row["key"], row["changed_columns"]) == ("update", {"id": 2**63 - 1}, ["v"])


def test_parquet_keeps_the_types() -> None:
    table = pq.read_table(
        pa.BufferReader(exported(diff_of(UPDATE, RowChange(RowKind.DELETE, None, cells(), None)), write_parquet))
    )
    assert table.schema.field("before.money").type == pa.decimal128(38, 4)
    assert table["before.id"].to_pylist() == [2**63 - 1] * 2
    assert table["after.v"].to_pylist() == [None, None]
    assert table["changed_columns"].to_pylist() == [["v"], []]


def test_nothing_changed_exports_headers_alone() -> None:
    assert csv_rows(exported(diff_of(), write_csv)) == []
    assert json.loads(exported(diff_of(), write_json)) == []
    assert pq.read_table(pa.BufferReader(exported(diff_of(), write_parquet))).num_rows == 0
