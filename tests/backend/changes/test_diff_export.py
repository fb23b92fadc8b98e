"""Changed rows as a file: those that the answer holds, by every method; safe, whole and typed in every format."""

import csv
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from backend.changes.changed_rows import ChangedBatches, exported, row_document
from backend.changes.model import KeyChoice, KeySource, Limits, RowChange, RowKind, VersionDiff
from backend.lake.lake import Lake
from backend.sql.export import FORMATS
from backend.sql.session import CancelToken
from backend.work import Stopped
from tests.worlds.lake.diffs import Asked, answer_of, asked, diff, in_a_file


def test_too_many_to_be_sorted_leave_as_they_come(root: Path, lake: Lake) -> None:
    write_deltalake(root / "t", pa.table({"id": range(30), "v": range(30)}))
    DeltaTable(root / "t").update(updates={"v": "v + 1"}, predicate="id < 10")
    DeltaTable(root / "t").delete("id > 24")
    options: Asked = asked(key=("id",), limits=Limits(batch_rows=2, sorted_rows=9))
    _, rows = in_a_file(lake, lake.find("t"), (0, 2), **options)
    whole = diff(lake, lake.find("t"), 0, 2, **options)
    held = json.loads(exported(whole, FORMATS["json"]))
    assert sorted(map(json.dumps, rows)) == sorted(map(json.dumps, held)) and len(rows) == 15
    assert rows[10:] == held[10:], "the few are sorted all the same"


@pytest.mark.parametrize("options", [{"tolerance": 0.2}, {"where": "v > 3"}, {"columns": ("v",)}], ids=str)
def test_what_is_left_out_of_the_answer_is_left_out_of_the_file(
    root: Path, lake: Lake, options: dict[str, Any]
) -> None:
    write_deltalake(root / "t", pa.table({"id": range(40), "v": [n / 4 for n in range(40)], "s": ["a"] * 40}))
    new = pa.table({"id": range(5, 45), "v": [n / 4 + 0.1 * (n % 3) for n in range(40)], "s": ["b"] * 40})
    write_deltalake(root / "t", new, mode="overwrite")
    few, rows = in_a_file(lake, lake.find("t"), (0, 1), key=("id",), **options)
    whole = diff(lake, lake.find("t"), 0, 1, key=("id",), row_limit=100, **options)
    assert rows == json.loads(exported(whole, FORMATS["json"])) and len(rows) > len(few.changes.rows)
    assert (few.changes.net, few.changes.apart) == (whole.changes.net, whole.changes.apart)


def test_writing_ends_when_it_is_cancelled(root: Path, lake: Lake) -> None:
    write_deltalake(root / "t", pa.table({"id": range(50)}))
    write_deltalake(root / "t", pa.table({"id": range(50)}), mode="append")
    token, seen = CancelToken(), list[int]()
    (ref,) = lake.tables()

    def take(changed: ChangedBatches) -> None:
        for batch in changed.batches:
            seen.append(batch.num_rows)
            token.stop()

    with pytest.raises(Stopped):
        diff(lake, ref, 0, 1, take=take, limits=Limits(batch_rows=2), token=token)
    assert seen == [2]


# in every format ------------------------------------------------------------------------------------------------------


SCHEMA = pa.schema(
    [("id", pa.int64()), ("v", pa.string()), ("money", pa.decimal128(38, 4)), ("xs", pa.list_(pa.float64()))]
)


def diff_of(*rows: RowChange) -> VersionDiff:
    return answer_of(key=KeyChoice(("id",), KeySource.GIVEN), rows=rows, arrow_schema=SCHEMA)


def cells(v: str | None = "x", **more: Any) -> dict[str, Any]:
    return {"id": 2**63 - 1, "v": v, "money": Decimal("-1.5000"), "xs": [1.0, float("nan")]} | more


UPDATE = RowChange(RowKind.UPDATE, {"id": 1}, cells("old"), cells(None), ("v",))


def saved(form: str, *rows: RowChange) -> bytes:
    return exported(diff_of(*rows), FORMATS[form])


def csv_rows(*rows: RowChange) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(saved("csv", *rows).decode("utf-8-sig"), newline="")))


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


def test_json_is_what_the_command_prints_and_tells_nan_from_null() -> None:
    gone = RowChange(RowKind.DELETE, {"id": 2**63 - 1}, cells(), None, copies=3)
    inserted = RowChange(RowKind.INSERT, {"id": 2**63 - 1}, None, cells())
    update, delete, insert = json.loads(saved("json", UPDATE, gone, inserted))
    assert update["before"] == {"id": 2**63 - 1, "v": "old", "money": "-1.5000", "xs": [1.0, "NaN"]}
    assert (update["change"], update["key"], update["changed_columns"]) == ("update", {"id": 2**63 - 1}, ["v"])
    assert delete == row_document(gone) and list(delete) == list(row_document(gone))
    assert insert["before"] is None and insert["key"] == delete["key"]
    (keyless,) = json.loads(saved("json", RowChange(RowKind.INSERT, None, None, cells())))
    assert keyless["key"] is None


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_the_types_are_kept(form: str) -> None:
    data = pa.BufferReader(saved(form, UPDATE, RowChange(RowKind.DELETE, None, cells(), None)))
    table = pq.read_table(data) if form == "parquet" else pa.ipc.open_file(data).read_all()
    assert table.schema.field("before.money").type == pa.decimal128(38, 4)
    assert table["before.id"].to_pylist() == [2**63 - 1] * 2
    assert table["after.v"].to_pylist() == [None, None]
    assert table["changed_columns"].to_pylist() == [["v"], []]


def test_nothing_changed_exports_headers_alone() -> None:
    assert csv_rows() == []
    assert json.loads(saved("json")) == []
    assert pq.read_table(pa.BufferReader(saved("parquet"))).num_rows == 0
