"""Every row of a version as a file: the rows that deltalake reads, in each format; cancelled, refused."""

import csv
import io
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from backend.errors import DataFileMissingError, ExportError, PathRefusedError
from backend.lake.lake import Lake
from backend.lake.model import Snapshot
from backend.lake.rows.filters import RowFilter
from backend.lake.table.schema import columns
from backend.sql.export import FORMATS, Exports, ExportState, encoded, exported_rows
from backend.sql.filters import parse_filter
from backend.sql.values import json_value, same
from backend.work import Stopped
from tests.worlds.lake.builders import write
from tests.worlds.lake.diffs import lake_at

MOMENT = datetime(2026, 1, 3, 10, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """`t` of three versions: every type that deltalake writes, nulls and texts that a file could spoil."""
    root = tmp_path_factory.mktemp("odd")
    path = root / "t"
    rows = pa.table(
        {
            "id": [1, 2, 3],
            "text": ['=1+1 "a", b\nc', "", None],
            "price": pa.array([Decimal("12345678901234567.89"), Decimal("-0.01"), None], pa.decimal128(38, 2)),
            "at": [MOMENT, datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), None],
            "local": [MOMENT.replace(tzinfo=None), None, None],
            "day": [date(2026, 1, 3), date(1, 1, 1), None],
            "share": [0.1, float("inf"), None],
            "short": pa.array([1.1, 2.5, None], pa.float32()),
            "ok": [True, False, None],
            "raw": [b"\x01\xff", b"", None],
            "home": [{"city": "ü", "zip": Decimal("1.50")}, {"city": None, "zip": None}, None],
            "tags": [["a", None], [], None],
            "by": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    write(path, rows)
    write(path, rows.set_column(0, "id", [[4, 5, 6]]))
    DeltaTable(str(path)).delete("id = 2")
    return lake_at(root)


def opened(lake, version: int | None = None, where: str = "") -> tuple[Snapshot, tuple[str, ...], RowFilter | None]:
    snapshot = lake.snapshot(lake.find("t"), version)
    schema = columns(snapshot.metadata)
    return snapshot, tuple(field.path for field in schema if field.depth == 0), parse_filter(where, schema)


def file_of(lake, form: str, version: int | None = None, where: str = "") -> bytes:
    return b"".join(piece for _, piece in encoded(rows_of(lake, version, where), FORMATS[form]))


def rows_of(lake, version: int | None = None, where: str = "") -> pa.RecordBatchReader:
    snapshot, columns, row_filter = opened(lake, version, where)
    return lake.read_files(snapshot, columns=columns, where=row_filter)


def by_deltalake(lake: Lake, version: int, predicate: str | None = None) -> list[dict[str, Any]]:
    reader = DeltaTable(lake.find("t").uri, version=version).scan(predicate=predicate)
    return pa.RecordBatchReader.from_stream(reader).read_all().to_pylist()


@pytest.mark.parametrize(("version", "where"), [(0, ""), (1, ""), (2, ""), (2, "id > 3 AND ok IS NOT NULL")])
def test_parquet_and_arrow_hold_the_rows_that_deltalake_reads(odd: Lake, version: int, where: str) -> None:
    wanted = by_deltalake(odd, version, where or None)
    parquet = pq.read_table(io.BytesIO(file_of(odd, "parquet", version, where)))
    arrow = pa.ipc.open_file(file_of(odd, "arrow", version, where)).read_all()
    for table in (parquet, arrow):
        assert sorted(map(repr, table.to_pylist())) == sorted(map(repr, wanted))
        assert table.schema.field("price").type == pa.decimal128(38, 2)
        assert table.schema.field("at").type == pa.timestamp("us", "UTC")


def test_json_and_csv_hold_the_same_rows(odd: Lake) -> None:
    wanted = {row["id"]: row for row in by_deltalake(odd, 2)}
    rows = {row["id"]: row for row in orjson.loads(file_of(odd, "json", 2))}
    assert rows == {key: json_value(row) for key, row in wanted.items()}
    text = file_of(odd, "csv", 2).decode("utf-8-sig")
    lines = {int(row["id"]): row for row in csv.DictReader(io.StringIO(text, newline=""))}
    assert lines.keys() == wanted.keys()
    for key, row in lines.items():
        assert_same(row, wanted[key])
    assert ',"",' in text.splitlines()[-1] or ',"",' in text, "an empty text is no null"


def test_values_leave_as_json_without_losing_digits() -> None:
    assert [json_value(float(text)) for text in ("nan", "inf", "-inf")] == ["NaN", "Infinity", "-Infinity"]
    assert json_value({"x": [float("inf"), None, 2**63 - 1]}) == {"x": ["Infinity", None, 2**63 - 1]}
    assert str(json_value(-0.0)) == "-0.0" and json_value(0.0) == 0.0
    assert json_value(datetime(2026, 1, 1, 2, tzinfo=UTC)) == "2026-01-01T02:00:00Z"
    assert json_value(b"\x00\xff") == "AP8=" and json_value([2**64 - 1, 2**64]) == [2**64 - 1, str(2**64)]
    assert same({"x": [float("nan")]}, {"x": [float("nan")]}) and not same(None, 0.0)


def test_a_time_beyond_pythons_calendar_is_written_whole() -> None:
    """Arrow writes some as another day, or as none. 2**63 - 1 is DuckDB's infinity."""
    rows = pa.table({"at": pa.array([2**62, 2**63 - 1, 0, None], pa.timestamp("us", "UTC"))})
    texts = ["+148108-07-06T14:00:27.387904Z", "infinity"]
    written = b"".join(piece for _, piece in encoded(rows.to_reader(), FORMATS["csv"])).decode("utf-8-sig")
    lines = [["at"], *([text] for text in texts), ["1970-01-01 00:00:00.000000Z"], []]
    assert list(csv.reader(io.StringIO(written))) == lines
    pieces = b"".join(piece for _, piece in encoded(rows.to_reader(), FORMATS["json"]))
    assert [row["at"] for row in orjson.loads(pieces)] == [*texts, "1970-01-01T00:00:00Z", None]
    assert list(encoded(rows.to_reader(), FORMATS["parquet"]))


def assert_same(row: dict[str, str], wanted: dict[str, Any]) -> None:
    assert row["text"] == {'=1+1 "a", b\nc': '\'=1+1 "a", b\nc', None: ""}.get(wanted["text"], wanted["text"])
    read = {
        "price": Decimal, "day": date.fromisoformat, "share": float, "ok": {"true": True, "false": False}.get,
        "at": lambda text: datetime.fromisoformat(text), "local": datetime.fromisoformat,
    }  # fmt: skip
    for name, of in read.items():
        assert (None if row[name] == "" else of(row[name])) == wanted[name], name
    assert row["short"] == {1.100000023841858: "1.1", 2.5: "2.5", None: ""}[wanted["short"]]
    assert row["raw"] == {b"\x01\xff": "Af8=", b"": "", None: ""}[wanted["raw"]]
    home = None if row["home"] == "" else orjson.loads(row["home"])
    assert home == (wanted["home"] and {**wanted["home"], "zip": {"ü": "1.50", None: None}[wanted["home"]["city"]]})
    assert (None if row["tags"] == "" else orjson.loads(row["tags"])) == wanted["tags"]
    assert (None if row["by"] == "" else [tuple(each) for each in orjson.loads(row["by"])]) == wanted["by"]


@pytest.mark.parametrize("form", FORMATS)
def test_no_row_is_a_file_with_the_columns(odd: Lake, form: str) -> None:
    data = file_of(odd, form, 0, "id > 99")
    assert data == b"[]\n" if form == "json" else b"price" in data
    if form == "parquet":
        assert pq.read_table(io.BytesIO(data)).num_rows == 0


def test_many_rows_come_in_pieces_of_bounded_size(root, lake: Lake):
    text = ["x" * 1_000] * 100_000
    write(root / "t", {"id": list(range(100_000)), "text": text})
    pieces = list(encoded(rows_of(lake), FORMATS["arrow"]))
    assert sum(rows for rows, _ in pieces) == 100_000 and max(len(piece) for _, piece in pieces) < 20_000_000


# links -------------------------------------------------------------------------------------------------------------


def offered(lake, exports: Exports, form: str = "csv", **asked):
    return exports.offer(exported_rows(lake, *opened(lake, **asked), FORMATS[form]))


def test_a_link_works_once_and_not_for_ever(odd: Lake) -> None:
    now = [0.0]
    exports = Exports(clock=lambda: now[0])
    first, second = offered(odd, exports), offered(odd, exports)
    assert exports.take(first.ticket) is first
    now[0] = 601.0
    for ticket in (first.ticket, second.ticket, "", "t", "../../etc/passwd", first.ticket[:-1]):
        with pytest.raises(ExportError):
            exports.take(ticket)


def test_so_many_run_at_once_and_no_more(odd: Lake) -> None:
    exports = Exports(at_once=1)
    first, second = offered(odd, exports), offered(odd, exports)
    exports.take(first.ticket)
    with pytest.raises(ExportError, match="1 exports run already"):
        exports.take(second.ticket)
    assert list(first.pieces()) and first.state is ExportState.DONE and first.num_rows == 5
    assert exports.take(second.ticket) is second


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_whoever_cancels_or_leaves_ends_it_between_two_pieces(root, lake: Lake, is_cancelled: bool) -> None:
    write(root / "t", {"id": list(range(200_000))})
    exports = Exports()
    export = exports.take(offered(lake, exports).ticket)
    pieces = export.pieces()
    next(pieces)
    if is_cancelled:
        export.stop()
        with pytest.raises(Stopped):
            next(pieces)
    else:
        pieces.close()
    assert export.state is ExportState.CANCELLED and 0 < export.num_rows < 200_000


@pytest.mark.parametrize(("is_linked", "fault"), [(False, DataFileMissingError), (True, PathRefusedError)])
def test_a_file_that_was_vacuumed_or_leads_outside_is_the_problem_before_the_first_byte(
    root, lake: Lake, tmp_path, is_linked: bool, fault: type[Exception]
) -> None:
    write(root / "t", {"id": [1]})
    exports = Exports()
    export = exports.take(offered(lake, exports).ticket)
    (file,) = (root / "t").glob("*.parquet")
    file.rename(tmp_path / "away.parquet")
    if is_linked:
        file.symlink_to(tmp_path / "away.parquet")
    with pytest.raises(fault):
        next(export.pieces())
    assert export.state is ExportState.FAILED
