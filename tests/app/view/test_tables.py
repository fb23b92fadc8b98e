"""Lists of tables in words and as they arrive; the first screen: totals, and where attention leads."""

import csv
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pandas as pd
import pytest

from app.overview import view as overview
from app.overview.page import GAP, Visit, visit_before
from app.overview.view import most_troubled
from app.tables import view
from app.ui.lake import LakeReader, LakeReading, Table, lake_totals, totals_sentence
from app.ui.lists import list_frame
from backend.errors import StorageError
from backend.health.attention import grouped
from backend.health.model import AttentionItem, Cause, Severity
from backend.jobs.model import Job, JobKind, JobState
from backend.lake.model import TableCard, TableRef, UnreadableTable
from tests.worlds.lake.made import NOW, REF
from tests.worlds.pages.arriving import ArrivingLake
from tests.worlds.processes import wait_until

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


def listed(tables: Sequence[Table]) -> pd.DataFrame:
    return list_frame(view.catalog_columns(tables, NOW, 0.5), tables)


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


def test_a_table_that_is_worth_merging_is_one_whose_readers_would_save_much() -> None:
    slow = card("slow", num_files=5_000, small_files=5_000, files_after_merge=1)
    assert view.select([*TABLES, slow], view.Query(shown=view.TO_MERGE), LIMITS) == [slow]
    assert "Problem" not in listed(TABLES[:3]), "there is none"
    assert "Rows" not in listed([BROKEN]) and "Problem" in listed([BROKEN])


def test_of_many_tables_those_in_trouble_then_the_stalest_are_short_listed() -> None:
    items = [
        AttentionItem(Severity.CRITICAL, Cause.UNREADABLE, "x", "Cannot be read", ""),
        AttentionItem(Severity.WARNING, Cause.SMALL_FILES, "people", "small files", ""),
        AttentionItem(Severity.NOTE, Cause.QUIET_TABLE, "people", "stale", ""),
    ]
    assert [t.ref.name for t in most_troubled(TABLES, grouped(items), 3)] == ["x", "people", "silver/orders"]


@pytest.mark.parametrize("tables", [TABLES, (BROKEN,), (card("=1+1", hours=None, num_rows=None),)])
def test_the_list_as_a_file_has_every_figure_and_no_formula(tables: tuple[TableCard | UnreadableTable, ...]) -> None:
    file = view.catalog_csv(view.catalog_columns(tables, NOW, 0.5), tables)
    rows = list(csv.DictReader(file.decode("utf-8-sig").splitlines()))
    assert [row["Table"].removeprefix("'") for row in rows] == [table.ref.name for table in tables]
    assert not any(value.startswith("=") for row in rows for value in row.values())
    if tables is TABLES:
        assert [row["Size"] for row in rows] == ["5", "9", "7", ""]
        assert [float(row["Last commit"] or -1) for row in rows] == [3_600, 50 * 3_600, -1, 0]


# The first screen: totals, what needs attention and where it leads, what is new --------------------------------------


def test_totals_say_what_they_could_not_count() -> None:
    known = TableCard(REF, 3, 10, 1000, 50, 9, NOW, "WRITE")
    rowless = TableCard(REF, 3, 10, 1000, None, 0, NOW, "WRITE")
    broken = UnreadableTable(REF, "cut off", "restore it")
    text = totals_sentence(lake_totals([known, rowless, broken]))
    assert text == "3 tables · 50 rows (unknown in 1 table) · 20 files · 2 kB · 1 unreadable"
    totals = lake_totals([rowless] * 3)
    assert totals_sentence(totals) == "3 tables · rows unknown · 30 files · 3 kB"
    figures = {figure.label: figure for figure in overview.key_figures(totals, [])}
    unknown = "Unknown in 3 tables whose files lack statistics."
    assert (figures["Rows"].value, figures["Rows"].help) == ("–", unknown), "and not nothing"
    assert {figure.value for figure in overview.key_figures(None, [])} == {"–"}, "before the first table is read"
    figures = {figure.label: figure for figure in overview.key_figures(lake_totals([broken]), [])}
    assert (figures["Tables"].value, figures["Tables"].help) == ("1", "0 can be read.")
    assert (figures["Rows"].value, figures["Rows"].help) == ("–", "No table can be read.")


@pytest.mark.parametrize(
    ("cause", "one", "many"),
    [
        (Cause.FAILED_STREAM, ("stream", {"stream": "a"}), ("streams", {})),
        (Cause.STOPPED_STREAM, ("stream", {"stream": "a"}), ("streams", {})),
        (Cause.UNREADABLE, ("table", {"table": "a"}), ("tables", {"show": "Cannot be read"})),
        (
            Cause.SMALL_FILES,
            ("health", {"table": "a"}),
            ("tables", {"show": "Worth merging", "sort": "Most to merge"}),
        ),
        (Cause.LAYOUT, ("health", {"table": "a"}), ("health", {})),
        (Cause.QUIET_TABLE, ("table", {"table": "a"}), ("tables", {"show": "Stale", "sort": "Stalest"})),
        (Cause.NO_HOST, ("streams", {}), ("streams", {})),
        (Cause.FAILING_WEBHOOK, ("streams", {}), ("streams", {})),
    ],
)
def test_one_thing_leads_to_its_page_and_several_to_their_list(
    cause: Cause, one: tuple[str, dict[str, str]], many: tuple[str, dict[str, str]]
) -> None:
    items = [AttentionItem(Severity.WARNING, cause, name, "what", "step") for name in "ab"]
    for wanted, number in ((one, 1), (many, 2)):
        (group,) = grouped(items[:number])
        found = overview.destinations(group)[0]
        assert (found.page, dict(found.params)) == wanted
    (waits,) = grouped([AttentionItem(Severity.NOTE, Cause.SMALL_FILES, name, "what", "step") for name in "ab"])
    assert overview.destinations(waits)[0].params["show"] == view.SMALL, "small files that can wait: all that have them"
    if "show" in many[1]:
        assert many[1]["show"] in view.SHOWN and many[1].get("sort", "Name") in view.ORDERS


def test_unusual_commits_to_several_tables_lead_to_each_that_is_named_in_its_order() -> None:
    ages = (("gold/b", 1), ("gold/a", 9), ("gold/b", 5), ("silver/b", 6), ("t_d", 3), ("t_c", 2), ("t_e", 7))
    commits = [
        AttentionItem(Severity.WARNING, Cause.UNUSUAL_COMMIT, name, "what", "step", NOW - timedelta(minutes=age))
        for name, age in ages
    ]
    (one,) = grouped(commits[:1])
    assert overview.destinations(one) == [overview.LinkTarget("table", "Open table", {"table": "gold/b"})]
    named = ["gold/b", "gold/a", "silver/b", "t_d"]
    for number, wanted in ((3, named[:2]), (4, named[:3]), (5, named), (7, named)):
        (group,) = grouped(commits[:number])
        links = overview.destinations(group)
        assert [link.label for link in links] == wanted, "whole: layers may have tables of one name"
        assert all((link.page, link.params) == ("table", {"table": link.label}) for link in links)
        places = [group.what.index(name) for name in wanted]
        assert places == sorted(places), "in the order in which the sentence names them"


def test_a_visit_ends_when_nobody_looked_for_half_an_hour() -> None:
    def cookie(*ends: tuple[float, int]) -> str:
        return ".".join(f"{(NOW - timedelta(minutes=minutes)).timestamp():.0f}.{tables}" for minutes, tables in ends)

    def ended(minutes: float, tables: int) -> Visit:
        return Visit((NOW - timedelta(minutes=minutes)).replace(microsecond=0), tables)

    assert visit_before(cookie((500, 3), (31, 5)), NOW) == ended(31, 5)
    assert visit_before(cookie((500, 3), (29, 5)), NOW) == ended(500, 3), "this visit goes on"
    assert visit_before(f"0.0.{cookie((29, 5))}", NOW) is None, "the first goes on"
    assert visit_before(f"0.0.{cookie((31, 5))}", NOW) == ended(31, 5)
    for odd in ("", "1.2.3", "1.2.3.x", "1.2.3.-4", "1..2.3", "9" * 400, "1.2.3.4.5"):
        assert visit_before(odd, NOW) is None
    assert timedelta(minutes=30) == GAP


def test_what_is_new_since_a_visit_leads_to_where_it_is_told() -> None:
    def item(cause: Cause, subject: str, minutes: int | None) -> AttentionItem:
        since = None if minutes is None else NOW - timedelta(minutes=minutes)
        return AttentionItem(Severity.WARNING, cause, subject, "what", "step", since)

    def act(state: JobState, minutes: int | None) -> Job:
        ended = None if minutes is None else NOW - timedelta(minutes=minutes)
        given = ("1", JobKind.OPTIMIZE, "t", "", "", "ana", "", 1.0, state, NOW)
        return Job(*given, ended_at=ended)

    groups = grouped(
        [
            item(Cause.UNUSUAL_COMMIT, "late", 5),
            item(Cause.UNUSUAL_COMMIT, "early", 50),
            item(Cause.UNUSUAL_COMMIT, "early", 50),
            item(Cause.UNUSUAL_COMMIT, "known", 61),
            item(Cause.STOPPED_STREAM, "s", 3),
            item(Cause.NO_HOST, "h", 3),
            item(Cause.SLOW_STREAM, "slow", 3),
            item(Cause.SMALL_FILES, "t", None),
        ]
    )
    acts = [act(JobState.DONE, 3), act(JobState.FAILED, 4), act(JobState.DONE, 60), act(JobState.RUNNING, None)]
    new = overview.news(NOW - timedelta(hours=1), -2, groups, acts)
    assert {(link.label, link.page, *link.params.values()) for link in new} == {
        ("2 unusual commits", "table", "late"),
        ("1 stopped stream", "stream", "s"),
        ("1 silent host", "streams"),
        ("2 acts, 1 failed", "acts"),
        ("2 tables fewer", "tables"),
    }
    assert overview.news(NOW, 0, groups, acts) == []
    assert [link.label for link in overview.news(NOW, 1, [], [])] == ["1 table more"]


# the reading in the background: nobody waits for a big lake, one reading serves all -----------------------------------


def reader(stub: ArrivingLake, *, refresh_s: float = 60.0) -> LakeReader:
    return LakeReader(stub, refresh_s=refresh_s, now=lambda: NOW)


def test_a_small_lake_is_whole_at_once_with_what_could_not_be_listed() -> None:
    stub = ArrivingLake(3)
    stub.problems = (UnreadableTable(TableRef("/lake/x", "x", "/lake"), "no permission", ""),)
    stub.more(3)
    found = reader(stub).reading()
    assert found.is_complete and found.names == ("t0000", "t0001", "t0002", "x") and found.num_read == 4


def test_viewers_share_one_reading() -> None:
    stub = ArrivingLake(5)
    lake = reader(stub)
    seen: list[LakeReading] = []
    viewers = [threading.Thread(target=lambda: seen.append(lake.reading())) for _ in range(8)]
    for viewer in viewers:
        viewer.start()
    stub.more(5)
    for viewer in viewers:
        viewer.join(60)
    assert stub.passes == 1 and len(seen) == 8 and all(each.is_complete for each in seen)


def test_a_later_pass_keeps_what_is_known_and_drops_what_is_gone() -> None:
    stub = ArrivingLake(3)
    stub.more(3)
    lake = reader(stub, refresh_s=0.0)
    assert lake.reading().num_read == 3
    del stub.refs[0]
    stub.more(1)
    wait_until(lambda: lake.reading() and stub.passes == 2, "the next pass, after the rest that the first one earned")
    kept = lake.reading()
    assert kept.is_complete and kept.names == ("t0001", "t0002")
    stub.more(1)


def test_a_pass_that_fails_is_told_and_tried_again() -> None:
    def is_read() -> bool:
        with suppress(StorageError):
            return lake.reading().num_read == 1
        return False

    stub = ArrivingLake(1)
    stub.error = StorageError("the bucket does not answer")
    lake = reader(stub, refresh_s=0.01)
    with pytest.raises(StorageError, match="does not answer"):
        lake.reading()
    stub.error = None
    stub.more(1)
    wait_until(is_read, "the next pass")
