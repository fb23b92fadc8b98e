"""Changed rows leave as CSV, JSON and Parquet: safe, whole and typed."""

import csv
import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.changes.export import exported, row_document
from backend.changes.model import (
    KeyChoice,
    KeySource,
    RowChange,
    RowKind,
    VersionDiff,
)
from backend.sql.export import FORMATS
from tests.worlds.lake.diffs import answer_of, but

SCHEMA = pa.schema(
    [("id", pa.int64()), ("v", pa.string()), ("money", pa.decimal128(38, 4)), ("xs", pa.list_(pa.float64()))]
)


def diff_of(*rows: RowChange) -> VersionDiff:
    return answer_of(key=KeyChoice(("id",), KeySource.GIVEN), rows=rows, arrow_schema=SCHEMA)


def cells(v: str | None = "x", **more: Any) -> dict[str, Any]:
    return {"id": 2**63 - 1, "v": v, "money": Decimal("-1.5000"), "xs": [1.0, float("nan")]} | more


UPDATE = RowChange(RowKind.UPDATE, {"id": 1}, cells("old"), cells(None), ("v",))


def file_of(form: str, *rows: RowChange) -> bytes:
    return exported(diff_of(*rows), FORMATS[form])


def csv_rows(*rows: RowChange) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(file_of("csv", *rows).decode("utf-8-sig"), newline="")))


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        *((text, f"'{text}") for text in ("=1+1", "+cmd|'/C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "＝1")),
        ('=HYPERLINK("http://x","y")', '\'=HYPERLINK("http://x","y")'),
        ('a,"b"\nc', 'a,"b"\nc'),
        ("-1.50", "-1.50"),
    ],
)
def test_a_csv_cell_is_whole_and_starts_no_formula(text: str, cell: str) -> None:
    (row,) = csv_rows(RowChange(RowKind.INSERT, None, None, cells(text)))
    assert row["after.v"] == cell


def test_csv_keeps_digits_and_leaves_numbers_alone() -> None:
    (row,) = csv_rows(UPDATE)
    assert (row["change"], row["before.id"], row["before.money"]) == ("update", str(2**63 - 1), "-1.5000")
    assert (row["before.v"], row["after.v"], row["changed_columns"]) == ("old", "", '["v"]')


def test_csv_column_names_are_safe_too() -> None:
    named = but(diff_of(), arrow_schema=pa.schema([("=x", pa.int64())]))
    header = exported(named, FORMATS["csv"]).decode("utf-8-sig").splitlines()[0]
    assert next(csv.reader([header]))[-2:] == ["before.=x", "after.=x"]


def test_json_is_what_the_command_prints_and_tells_nan_from_null() -> None:
    gone = RowChange(RowKind.DELETE, {"id": 2**63 - 1}, cells(), None, copies=3)
    data = file_of("json", UPDATE, gone, RowChange(RowKind.INSERT, {"id": 2**63 - 1}, None, cells()))
    update, delete, insert = json.loads(data)
    assert update["before"] == {"id": 2**63 - 1, "v": "old", "money": "-1.5000", "xs": [1.0, "NaN"]}
    assert (update["change"], update["key"], update["changed_columns"]) == ("update", {"id": 2**63 - 1}, ["v"])
    assert delete == row_document(gone) and list(delete) == list(row_document(gone))
    assert insert["before"] is None and insert["key"] == delete["key"]
    (keyless,) = json.loads(file_of("json", RowChange(RowKind.INSERT, None, None, cells())))
    assert keyless["key"] is None


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_the_types_are_kept(form: str) -> None:
    data = pa.BufferReader(file_of(form, UPDATE, RowChange(RowKind.DELETE, None, cells(), None)))
    table = pq.read_table(data) if form == "parquet" else pa.ipc.open_file(data).read_all()
    assert table.schema.field("before.money").type == pa.decimal128(38, 4)
    assert table["before.id"].to_pylist() == [2**63 - 1] * 2
    assert table["after.v"].to_pylist() == [None, None]
    assert table["changed_columns"].to_pylist() == [["v"], []]


def test_nothing_changed_exports_headers_alone() -> None:
    assert csv_rows() == []
    assert json.loads(file_of("json")) == []
    assert pq.read_table(pa.BufferReader(file_of("parquet"))).num_rows == 0
