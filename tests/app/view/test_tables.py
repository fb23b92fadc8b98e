"""The list of all tables: what a query finds, in which order, in which words; and the overview's short list."""

import csv
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.overview.view import attention_sentence, most_troubled
from app.tables import view
from app.ui.lake import LakeReading
from app.ui.view import words
from backend.health.groups import grouped
from backend.health.model import AttentionItem, Cause, Severity
from backend.lake.model import TableCard, TableRef, UnreadableTable

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
LIMITS = view.ListLimits(NOW, stale_after_s=86_400)


def card(name: str, layer: str | None = None, *, hours: float | None = 1, **values: object) -> TableCard:
    at = None if hours is None else NOW - timedelta(hours=hours)
    made = TableCard(TableRef(f"/lake/{name}", name, "/lake", layer), 3, 20, 1_000, 50, 0, at, "WRITE")
    return replace(made, **values)  # type: ignore[arg-type]


BROKEN = UnreadableTable(TableRef("/lake/x", "x", "/lake"), "commit 3 is missing", "restore it", 7, NOW, "MERGE")
TABLES = (
    card("bronze/Orders", "bronze", size_bytes=5, num_rows=None, owner="Growth", small_files=20, files_after_merge=1),
    card("silver/orders", "silver", hours=50, size_bytes=9, num_files=0),
    card("people", hours=None, size_bytes=7, classification="pii", small_files=5),
    BROKEN,
)


def names(**query: object) -> list[str]:
    return [table.ref.name for table in view.select(TABLES, view.Query(**query), LIMITS)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, ["bronze/Orders", "people", "silver/orders", "x"]),
        ({"layers": ("silver", "no layer")}, ["people", "silver/orders", "x"]),
        ({"owners": ("Growth",)}, ["bronze/Orders"]),
        ({"shown": view.UNREADABLE}, ["x"]),
        ({"shown": view.STALE}, ["silver/orders"]),
        ({"shown": view.SMALL}, ["bronze/Orders"]),
        ({"shown": view.TO_MERGE}, []),
        ({"order": "Size"}, ["silver/orders", "people", "bronze/Orders", "x"]),
        ({"order": "Rows"}, ["people", "silver/orders", "bronze/Orders", "x"]),
        ({"order": "Stalest"}, ["silver/orders", "bronze/Orders", "x", "people"]),
        ({"order": "Newest commit"}, ["x", "bronze/Orders", "silver/orders", "people"]),
        ({"order": "Most to merge"}, ["bronze/Orders", "people", "silver/orders", "x"]),
    ],
)
def test_a_query_finds_and_orders_with_the_unknown_last(query: dict[str, object], found: list[str]) -> None:
    assert names(**query) == found


def test_progress_and_totals_say_what_is_still_to_come() -> None:
    partial = LakeReading(TABLES[:2], NOW, ("a",) * 2_300)
    assert partial.progress_sentence == "2 of 2,300 tables read …"
    assert view.found_sentence(TABLES[:2], partial, view.Query()).startswith("So far: 2 tables · ")
    assert "Looking" in replace(partial, is_listed=False).progress_sentence
    whole = LakeReading(TABLES, NOW, ("a",) * 4)
    narrow = view.found_sentence(TABLES[:1], whole, view.Query(words="orders"))
    assert narrow.startswith("1 of 4 tables match · ")
    unread = view.found_sentence([BROKEN], whole, view.Query(shown=view.UNREADABLE))
    assert unread == "1 of 4 tables match · 1 unreadable"


def test_a_table_that_is_worth_merging_is_one_whose_readers_would_save_much() -> None:
    slow = card("slow", num_files=5_000, small_files=5_000, files_after_merge=1)
    found = view.select([*TABLES, slow], view.Query(shown=view.TO_MERGE), LIMITS)
    assert found == [slow]


def test_a_page_says_what_it_leaves_out() -> None:
    assert words.page_sentence(1, words.PAGE_ROWS) == ""
    assert words.page_sentence(3, 250).startswith("Rows 201 to 250 of 250")
    assert [words.num_pages(count) for count in (0, 100, 101)] == [1, 1, 2]


def test_a_row_of_an_unreadable_table_holds_reason_step_and_what_is_known() -> None:
    row = view.catalog_frame([*TABLES], NOW).iloc[3]
    assert (row["Version"], row["Problem"], row["What to do"]) == (
        "unreadable v7",
        "commit 3 is missing",
        "restore it",
    )
    assert (row["By"], row["Committed at"]) == ("MERGE", "2026-11-20 12:00:00 UTC")
    assert "Problem" not in view.catalog_frame(TABLES[:3], NOW)
    assert "Rows" not in view.catalog_frame([BROKEN], NOW) and "Problem" in view.catalog_frame([BROKEN], NOW)


def test_of_many_tables_those_in_trouble_then_the_stalest_are_short_listed() -> None:
    items = [
        AttentionItem(Severity.CRITICAL, Cause.UNREADABLE, "x", "Cannot be read", ""),
        AttentionItem(Severity.WARNING, Cause.SMALL_FILES, "people", "small files", ""),
        AttentionItem(Severity.NOTE, Cause.QUIET_TABLE, "people", "stale", ""),
    ]
    assert [t.ref.name for t in most_troubled(TABLES, grouped(items), 3)] == ["x", "people", "silver/orders"]


def test_nothing_is_praised_before_all_is_read() -> None:
    assert attention_sentence([], partial=True) == "Nothing needs attention so far"


@pytest.mark.parametrize("tables", [TABLES, (BROKEN,), (card("=1+1", hours=None, num_rows=None),)])
def test_the_list_as_a_file_has_every_figure_and_no_formula(tables: tuple[TableCard | UnreadableTable, ...]) -> None:
    frame = view.catalog_frame(tables, NOW)
    rows = list(csv.DictReader(view.catalog_csv(frame).decode("utf-8-sig").splitlines()))
    assert [row["Table"].removeprefix("'") for row in rows] == [table.ref.name for table in tables]
    assert not any(value.startswith("=") for row in rows for value in row.values())
    if tables is TABLES:
        assert [row["Size"] for row in rows] == ["5", "9", "7", ""]
        assert [float(row["Last commit"] or -1) for row in rows] == [3_600, 50 * 3_600, -1, 0]
