"""Changed rows as a file: those that the answer holds, by every method; safe, whole and typed in every format."""

import csv
import io
import json
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from backend.changes.export import ChangedBatches, exported, file_of, row_document
from backend.changes.model import KeyChoice, KeySource, Limits, RowChange, RowKind, VersionDiff
from backend.lake.lake import Lake
from backend.sql.export import FORMATS, Format
from backend.sql.session import CancelToken
from backend.work import Stopped
from tests.worlds.cases import few
from tests.worlds.lake.diffs import answer_of, diff, prepare
from tests.worlds.lake.histories import History

FEW = 3  # rows in an answer, so that a file must have more
SMALL = Limits(batch_rows=2)


class Taken:
    """What a file of one format would hold."""

    def __init__(self, form: Format) -> None:
        self._form, self.times, self.content = form, 0, b""

    def __call__(self, changed: ChangedBatches) -> None:
        self.content = b"".join(piece for _, piece in file_of(changed, self._form))
        self.times += 1


def both(lake: Lake, pair: tuple[int, int], **options: Any) -> tuple[VersionDiff, list[Any]]:
    """An answer that holds all rows, and the rows of a file beside an answer that holds few."""
    (ref,) = lake.tables()
    whole = diff(lake, ref, *pair, row_limit=100_000, **options)
    taken = Taken(FORMATS["json"])
    few = diff(lake, ref, *pair, row_limit=FEW, take=taken, **({"limits": SMALL} | options))
    assert (few.changes.net, few.changes.apart) == (whole.changes.net, whole.changes.apart)
    assert (few.method, taken.times) == (whole.method, 1)
    return whole, json.loads(taken.content)


def in_order(rows: list[Any]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


@pytest.mark.parametrize("seed", few(3, range(8)))
def test_every_method_gives_all_rows(root: Path, lake: Lake, seed: int) -> None:
    random = Random(1_000 + seed)
    history = History(root, random, has_key=seed % 3 != 0)
    for _ in range(random.randint(2, 5)):
        history.grow()
    last = DeltaTable(history.path).version()
    (ref,) = lake.tables()
    pair = (0, last) if seed % 2 else (last, 0)
    key = ("id",) if history.has_key else None
    for method in prepare(lake, ref, *pair, key=key).plan.methods[:-1]:
        whole, rows = both(lake, pair, key=key, method=method)
        held = json.loads(exported(whole, FORMATS["json"]))
        assert in_order(rows) == in_order(held), method
        if whole.key and not whole.changes.apart.rows:
            assert rows == held, "in the order of the key"


def test_too_many_to_be_sorted_leave_as_they_come(root: Path, lake: Lake) -> None:
    write_deltalake(root / "t", pa.table({"id": range(30), "v": range(30)}))
    DeltaTable(root / "t").update(updates={"v": "v + 1"}, predicate="id < 10")
    DeltaTable(root / "t").delete("id > 24")
    whole, rows = both(lake, (0, 2), key=("id",), limits=Limits(batch_rows=2, sorted_rows=9))
    held = json.loads(exported(whole, FORMATS["json"]))
    assert in_order(rows) == in_order(held) and len(rows) == 15
    assert rows[10:] == held[10:], "the few are sorted all the same"


@pytest.mark.parametrize("options", [{"tolerance": 0.2}, {"where": "v > 3"}, {"columns": ("v",)}], ids=str)
def test_what_is_left_out_of_the_answer_is_left_out_of_the_file(
    root: Path, lake: Lake, options: dict[str, Any]
) -> None:
    write_deltalake(root / "t", pa.table({"id": range(40), "v": [n / 4 for n in range(40)], "s": ["a"] * 40}))
    new = pa.table({"id": range(5, 45), "v": [n / 4 + 0.1 * (n % 3) for n in range(40)], "s": ["b"] * 40})
    write_deltalake(root / "t", new, mode="overwrite")
    whole, rows = both(lake, (0, 1), key=("id",), **options)
    assert len(rows) > FEW
    assert rows == json.loads(exported(whole, FORMATS["json"]))


def test_each_format_holds_the_same_rows(root: Path, lake: Lake) -> None:
    write_deltalake(root / "t", pa.table({"id": range(20), "s": [f"=v{n}" for n in range(20)]}))
    DeltaTable(root / "t").update(updates={"s": "'x'"}, predicate="id > 4")
    (ref,) = lake.tables()
    taken = {name: Taken(form) for name, form in FORMATS.items()}
    for take in taken.values():
        diff(lake, ref, 0, 1, key=("id",), row_limit=FEW, take=take, limits=SMALL)
    table = pq.read_table(io.BytesIO(taken["parquet"].content))
    lines = list(csv.DictReader(io.StringIO(taken["csv"].content.decode("utf-8-sig"), newline="")))
    documents = json.loads(taken["json"].content)
    assert table["before.id"].to_pylist() == [int(line["after.id"]) for line in lines] == list(range(5, 20))
    assert table["before.s"].to_pylist() == [each["before"]["s"] for each in documents]
    assert [line["before.s"] for line in lines] == [f"'=v{n}" for n in range(5, 20)]
    assert {tuple(each["changed_columns"]) for each in documents} == {("s",)}


def test_nothing_changed_is_a_file_without_rows(root: Path, lake: Lake) -> None:
    for number in (1, 2):
        write_deltalake(root / "t", pa.table({"id": [number]}), mode="append")
    DeltaTable(root / "t").optimize.compact()
    whole, rows = both(lake, (1, 2))
    assert (whole.changes.net.total, rows) == (0, [])


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
        diff(lake, ref, 0, 1, take=take, limits=SMALL, token=token)
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
