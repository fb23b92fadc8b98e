"""Summary in words: growth and lineage, exact rows, how far an export is, the schema with its statistics, a profile."""

import datetime as dt
import json
import math
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from app.summary import text as words
from app.summary.view import data
from app.summary.view import summary as table
from app.summary.view import summary as view
from app.summary.view.data import export_command
from app.ui.lists import list_frame
from app.ui.view import frames as exact_rows
from backend.cells import distinct_names
from backend.format import value_text
from backend.lake.files.stats import ColumnTotals, StatKind
from backend.lake.model import Metadata, Timeline, VersionTotals
from backend.lake.rows.rows import RowPage
from backend.lake.table.schema import SchemaColumn, columns
from backend.sql.numbers import ColumnProfile, Profile
from tests.worlds.lake.made import NOW


def test_growth_is_of_a_day_or_of_all_that_is_known() -> None:
    first = VersionTotals(3, NOW - timedelta(hours=3), "WRITE", 1, 1_000, 5, 0)
    last = VersionTotals(4, NOW, "WRITE", 2, 3_000, 6, 0)
    assert table.growth_sentence(Timeline((first, last), 3), NOW) == "Since v3, 3 h ago: +1 row, +2 kB."
    old = VersionTotals(2, NOW - timedelta(hours=30), "WRITE", 1, 500, None, 0)
    assert table.growth_sentence(Timeline((old, first, last), 2), NOW) == "In 24 h: +2.5 kB."
    assert table.growth_sentence(Timeline((last,), 4), NOW) == ""


# Rows ----------------------------------------------------------------


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


def test_a_row_of_a_megabyte_is_cut_and_said() -> None:
    shown = exact_rows.shown_rows(pa.table({"a": ["x" * 1_000_000], "b": ["y"]}))
    assert shown.frame["a"][0].endswith("… (1,000,000 characters)") and len(shown.frame["a"][0]) < 2_100
    assert exact_rows.cut_sentence(shown) == "1 long value cut after 2,000 characters."


@pytest.mark.parametrize("rows", [200, 800])
def test_the_message_stays_small_whatever_the_rows(rows: int) -> None:
    table = pa.table({f"c{n}": ["ü" * 3_000] * rows for n in range(50)})
    shown = exact_rows.shown_rows(table)
    sent = sum(len(str(cell).encode()) for name in shown.frame for cell in shown.frame[name])
    assert sent < 500_000 and shown.frame.shape[0] + shown.left_out == rows
    assert "cut after 30 characters" in exact_rows.cut_sentence(shown)


def test_each_column_has_a_name_of_its_own_also_where_one_looks_like_a_number() -> None:
    assert distinct_names(["a", "b", "a", "a"]) == ["a", "b", "a (2)", "a (3)"]
    assert distinct_names(["a", "a (2)", "a", "a"]) == ["a", "a (2)", "a (3)", "a (4)"]
    assert distinct_names(["n", "n"], "{}_{}") == ["n", "n_2"]
    assert len(set(distinct_names(["a"] * 25_000))) == 25_000


def test_the_sentence_says_how_far_a_search_came() -> None:
    def said(rows: int, *, total: int | None = None, files_open: int = 4) -> str:
        page = RowPage(pa.table({"a": list(range(rows))}), rows == 1, total, 9, 4, files_open)
        return data.rows_sentence(page, 7, filtered=total is None)

    assert said(2) == "All 2 rows of v7 that match. 4 files read, 5 ruled out without opening them."
    assert said(1, total=1_111_930) == "The first 1 row of 1.11 M in v7."
    left = said(1, files_open=1)
    assert "there may be more." in left and left.endswith("3 files may hold more.")


# An export ----------------------------------------------------------------


def test_the_command_is_safe_to_paste() -> None:
    assert export_command("silver/it's", 3, "it's_v3.csv", columns=("a b",), where="x = 'y'") == (
        """weir export 'silver/it'"'"'s' --version 3 --columns 'a b' --where 'x = '"'"'y'"'"'' -o 'it'"'"'s_v3.csv'"""
    )


# The schema ----------------------------------------------------------------


def column(name: str, kind: Any = "long", nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def read(*fields: dict[str, Any], **more: Any) -> tuple[SchemaColumn, ...]:
    return columns(Metadata("t", json.dumps({"type": "struct", "fields": list(fields)}), **more))


HOME = {"type": "struct", "fields": [column("city", "string", comment="where"), column("no", "integer")]}
NESTED = read(column("id", nullable=False), column("home", HOME), column("day", "date"), partition_columns=("day",))


def column_totals(name: str = "id", **more: Any) -> ColumnTotals:
    fields = {"files": 4, "lowest": 1, "highest": 9, "files_with_bounds": 4, "files_with_nulls": 4} | more
    return ColumnTotals(name, "bigint", more.pop("kind", StatKind.INTEGER), False, **fields)


def test_traits_of_columns() -> None:
    identity = {"delta.identity.start": 1, "delta.identity.step": 2, "delta.identity.highWaterMark": 99}
    mapping = {"delta.columnMapping.id": 7, "delta.columnMapping.physicalName": "col-7"}
    widened = {"delta.typeChanges": [{"fromType": "integer", "toType": "long", "tableVersion": 3}, "odd"]}
    frame = list_frame(
        view.schema_columns({}),
        read(
            column("a", **identity, **{"delta.identity.allowExplicitInsert": True}),
            column("b", **mapping, **widened),
            column("c", "date", **{"delta.generationExpression": "CAST(at AS DATE)"}),
            column("d", CURRENT_DEFAULT="42"),
            column("e", **{"delta.identity.start": "x", "delta.typeChanges": "odd", "comment": 5}),
        ),
    ).set_index("Column")
    assert frame["Identity"]["a"] == "from 1 by 2, last 99, values may be given"
    assert (frame["Id"]["b"], frame["Name in files"]["b"], frame["Widened"]["b"]) == (
        "7",
        "col-7",
        "int → bigint at v3",
    )
    assert frame["Generated as"]["c"] == "CAST(at AS DATE)" and frame["Default"]["d"] == "42"
    assert frame.loc["e"].drop(["Type", "Nullable"]).eq("").all()


def test_statistics_carry_their_signs() -> None:
    found = {
        "id": column_totals(
            nulls=3, rows_with_nulls=1000, lowest_is_value=False, highest_is_value=False, is_tight=False
        ),
        "home.no": column_totals("home.no", lowest=None, highest=None, files_with_bounds=0, files_with_nulls=3),
        "day": column_totals("day", files_with_bounds=3, files_with_nulls=3, nulls=0, rows_with_nulls=30),
    }
    frame = list_frame(view.schema_columns(found), NESTED).set_index("Column")
    names = ["Min", "Max", "Null share", "Known for"]
    assert frame.loc["id", names].tolist() == ["≥ 1", "≤ 9", "≈ 0.3 %", ""]
    assert frame.loc["\u2003\u2003no", names].tolist() == ["–", "–", "–", "bounds 0, nulls 3 of 4 files"]
    assert frame.loc["day", names].tolist() == ["≤ 1", "≥ 9", "0 %", "3 of 4 files"]
    assert frame.loc["home", names].tolist() == [""] * 4
    assert "Known for" not in list_frame(view.schema_columns({"id": found["id"]}), NESTED), (
        "nothing to say where all files do"
    )
    sentence = view.statistics_sentence(found.values())
    assert "4 files" in sentence and "≥, ≤ and ≈ are bounds" in sentence and "may lie beyond" in sentence
    assert view.statistics_sentence([column_totals()]) == "From the statistics of 4 files; no data was read."


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (True, "true"),
        (2**60, "1152921504606846976"),
        (0.1 + 0.2, "0.30000000000000004"),
        (3.0, "3"),
        (float("nan"), "NaN"),
        (Decimal("1E+3"), "1000"),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC), "2026-01-02 03:04:05.678 UTC"),
        (datetime(2026, 1, 2), "2026-01-02 00:00:00"),
        ("Ede", "Ede"),
    ],
)
def test_values_are_exact(value: Any, text: str) -> None:
    assert value_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(-0.0, "0"), (Decimal("-0.00"), "0"), (Decimal("47189.00"), "47,189"), (-15496, "-15,496"), (math.nan, "NaN")],
)
def test_bounds_are_figures_without_a_negative_zero(value: Any, text: str) -> None:
    assert words.bound_text(ColumnProfile("n", "double", 1, 0, value, value, is_exact=True), "lowest") == text


# A profile, and against another version's ----------------------------------------------------------------------------


def profile(version: int, *columns: ColumnProfile) -> Profile:
    return Profile(version, 1_000, is_read=True, columns=columns)


def test_what_differs_is_told_by_column_and_the_rest_is_silent() -> None:
    same = ColumnProfile("id", "bigint", 1_000, 0, 1, 1_000, is_exact=True, distinct=1_000)
    emails = ColumnProfile("email", "string", 1_000, 2, "a", "z", is_exact=True, distinct=900)
    before = profile(3, emails, same, ColumnProfile("gone", "string", 1_000, 0))
    fewer = replace(emails, nulls=310, distinct=600)
    after = profile(9, fewer, replace(same, distinct=1_090), ColumnProfile("new", "string", 1_000, 0))
    assert words.differences(before, after) == {
        "gone": "not in v9",
        "email": "null share 0.2 % → 31 %; distinct ≈ 900 → 600",
        "new": "not in v3",
    }
    assert words.differing_sentence(before, after) == "3 columns differ from v3; no longer there: gone."
    assert words.difference_lines(before, before) == ["No column of v3 stands out against v3."]


def test_a_bound_that_the_log_cut_does_not_differ_from_the_true_one() -> None:
    cut = profile(3, ColumnProfile("a", "string", 10, 0, "aaa", "b", lowest_sign="≥", highest_sign="≤"))
    read = profile(4, ColumnProfile("a", "string", 10, 0, "aaab", "azz", is_exact=True))
    assert words.differences(cut, read) == {} == words.differences(read, cut)
    assert words.differences(read, profile(5, ColumnProfile("a", "string", 10, 0, "aaab", "c"))) == {
        "a": "highest azz → c"
    }
