"""Rows on the screen: exact values, what was cut and said, how far a search came."""

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from app.summary.view import data
from app.ui.view import exact_rows
from backend.cells import distinct_names
from backend.lake.rows.rows import RowPage


def cells(column: pa.Array) -> list[object]:
    return exact_rows.shown_rows(pa.table({"c": column})).frame["c"].tolist()


def test_values_are_shown_exactly() -> None:
    assert cells(pa.array([2**60, 1, None])) == ["1152921504606846976", "1", None]
    assert cells(pa.array([1, 2, None]))[:2] == [1, 2]
    price = pa.array([Decimal("12345678901234567890.12"), None, Decimal("0.10")], pa.decimal128(38, 2))
    assert cells(price) == ["12345678901234567890.12", None, "0.10"]
    raw = cells(pa.array([b"\x00\xff", None, b"x" * 40, b""]))
    assert raw[:2] == ["00 ff (2 bytes)", None] and raw[2].endswith(" … (40 bytes)") and raw[3] == "(0 bytes)"
    assert cells(pa.array([{"a": 2**60, "b": [b"\x01"]}, None])) == ['{"a": 1152921504606846976, "b": ["01"]}', None]
    assert cells(pa.array([float("nan"), 0.5, None, math.inf])) == ["nan", "0.5", None, "inf"]
    assert cells(pa.array([1.1, 0.1], pa.float32())) == [1.1, 0.1]
    assert cells(pa.array([True, None]))[0] is True
    assert cells(pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))) == ['[["k", 1]]']
    assert cells(pa.array([None, None])) == [None, None]


def test_times_with_and_without_a_zone_differ_and_any_year_is_shown() -> None:
    moment = dt.datetime(1850, 1, 1, 10, 0, 0, 1500)
    assert cells(pa.array([moment], pa.timestamp("us"))) == ["1850-01-01 10:00:00.0015"]
    assert cells(pa.array([moment], pa.timestamp("us", "UTC"))) == ["1850-01-01 10:00:00.0015 UTC"]
    assert cells(pa.array([moment.replace(microsecond=0)], pa.timestamp("us", "UTC"))) == ["1850-01-01 10:00:00 UTC"]
    far = pa.array([3_000_000, None], pa.int32()).cast(pa.date32())
    assert cells(far) == ["+10183-09-21", None]
    assert cells(pa.array([3 * 10**17]).cast(pa.timestamp("us", "UTC"))) == ["+11476-08-15T05:20:00Z"]
    assert cells(pa.StructArray.from_arrays([far], ["d"])) == ['{"d": "+10183-09-21"}', '{"d": null}']
    shown = exact_rows.shown_rows(pa.table({"a": pa.array([moment], pa.timestamp("us"))}))
    assert shown.types == {"a": "timestamp, without zone"}


def test_numbers_sent_as_text_stand_right() -> None:
    shown = exact_rows.shown_rows(pa.table({"big": [2**60], "small": [1], "name": ["x"], "odd": [float("nan")]}))
    assert shown.right == ("big", "odd")


def test_every_number_comes_with_its_own_digits() -> None:
    rows = pa.table({"n": [902, None], "f": [0.1 + 0.2, None], "t": ["x", None]})
    styled = exact_rows.exact_numbers(exact_rows.shown_rows(rows).frame)
    body = styled._translate(False, False)["body"]
    texts = [[cell["display_value"] for cell in row if cell["type"] == "td"] for row in body]
    assert texts[0][:2] == ["902", "0.30000000000000004"] and texts[1][:2] == ["NULL", "NULL"]
    assert styled.data["n"].tolist()[0] == 902


def test_a_row_of_a_megabyte_is_cut_and_said() -> None:
    shown = exact_rows.shown_rows(pa.table({"a": ["x" * 1_000_000], "b": ["y"]}))
    assert shown.frame["a"][0].endswith("… (1,000,000 characters)") and len(shown.frame["a"][0]) < 2_100
    assert exact_rows.cut_sentence(shown) == "1 long value cut after 2,000 characters."


@pytest.mark.parametrize(("rows", "columns"), [(200, 50), (800, 50)])
def test_the_message_stays_small_whatever_the_rows(rows: int, columns: int) -> None:
    table = pa.table({f"c{n}": ["ü" * 3_000] * rows for n in range(columns)})
    shown = exact_rows.shown_rows(table)
    sent = sum(len(str(cell).encode()) for name in shown.frame for cell in shown.frame[name])
    assert sent < 500_000 and shown.frame.shape[0] + shown.left_out == rows
    assert "cut after 30 characters" in exact_rows.cut_sentence(shown)


def page(rows: int, *, truncated: bool = False, total: int | None = None, files: tuple[int, int, int] = (9, 4, 4)):
    return RowPage(pa.table({"a": list(range(rows))}), truncated, total, *files)


def test_the_sentence_says_how_many_of_how_many_and_how_far() -> None:
    assert data.rows_sentence(page(2), 7, filtered=False) == "All 2 rows of v7."
    assert data.rows_sentence(page(1), 7, filtered=False) == "1 row of v7."
    assert data.rows_sentence(page(0), 7, filtered=False) == "v7 has no rows."
    cut = data.rows_sentence(page(2, truncated=True, total=1_111_930), 7, filtered=False)
    assert cut == "The first 2 rows of 1.11 M in v7."
    assert "there are more." in data.rows_sentence(page(2, truncated=True), 7, filtered=False)
    every = data.rows_sentence(page(2), 7, filtered=True)
    assert every == "All 2 rows of v7 that match. 4 files read, 5 ruled out without opening them."
    assert data.rows_sentence(page(0), 7, filtered=True).startswith("No row of v7 matches. 4 files read")
    left = data.rows_sentence(page(1, truncated=True, files=(9, 4, 1)), 7, filtered=True)
    assert "there may be more." in left and left.endswith("3 files may hold more.")


def test_each_column_has_a_name_of_its_own_also_where_one_looks_like_a_number() -> None:
    assert distinct_names(["a", "b", "a", "a"]) == ["a", "b", "a (2)", "a (3)"]
    assert distinct_names(["a", "a (2)", "a", "a"]) == ["a", "a (2)", "a (3)", "a (4)"]
    assert distinct_names(["n", "n"], "{}_{}") == ["n", "n_2"]
    assert len(set(distinct_names(["a"] * 25_000))) == 25_000
