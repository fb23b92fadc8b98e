"""Tables: the whole lake as it arrives, searched, filtered and sorted, all of it in the URL."""

import json
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app import cache, services
from app.server.metrics import health
from app.tables.widgets import TABLES
from app.ui.lake import LakeReader
from app.ui.view.words import PAGE_ROWS
from backend.lake.catalog import Listing
from backend.lake.model import TableCard, TableRef
from tests.worlds.lake import builders
from tests.worlds.lake.builders import HandLog
from tests.worlds.pages.opened import again, home, open_page, words

__all__ = ["home"]


@pytest.fixture
def lake(home: Path) -> Path:
    """Three tables of the medallion, one with an owner, one that cannot be read but whose history can."""
    root = builders.medallion_lake(home / "lake")
    tags = {"catalog.team_name": "Growth", "catalog.table.classification": "pii"}
    HandLog(root / "people").start(configuration=tags).commit(builders.add("a.parquet", size=7_000_000_000, rows=5))
    HandLog(root / "gold" / "ahead").commit(
        builders.protocol(3, 7, ["fancyFeature"]), builders.metadata(), builders.commit_info("CREATE TABLE")
    )
    return root


def shown(app: AppTest) -> list[str]:
    return list(app.dataframe(key="catalog").value["Table"])


def test_every_table_is_listed_with_totals_in_words(lake: Path) -> None:
    app = open_page("tables")
    assert shown(app) == ["bronze/orders_raw", "gold/ahead", "gold/orders_by_status", "people", "silver/orders"]
    assert "5 tables · 14 rows · 5 files · 7 GB" in words(app) and "1 unreadable" in words(app)
    assert not app.get("progress")


def test_a_table_that_fails_shows_reason_hint_and_what_its_history_tells(lake: Path) -> None:
    frame = open_page("tables").dataframe(key="catalog").value.set_index("Table")
    row = frame.loc["gold/ahead"]
    assert row["Version"] == "unreadable v0" and "fancyFeature" in row["Problem"] and row["What to do"]
    assert row["By"] == "CREATE TABLE" and row["Committed at"] == "2023-11-14 22:13:20 UTC"
    assert frame.loc["people"]["Owner"] == "Growth"


@pytest.mark.parametrize(
    ("link", "found"),
    [
        ({"q": "GROWTH"}, ["people"]),
        ({"q": "orders gold"}, ["gold/orders_by_status"]),
        ({"q": "fancyfeature"}, ["gold/ahead"]),
        ({"q": "PII"}, ["people"]),
        ({"q": "order_id"}, ["silver/orders"]),
        ({"layer": "no layer"}, ["people"]),
        ({"owner": "Growth"}, ["people"]),
        ({"show": "Cannot be read"}, ["gold/ahead"]),
        ({"sort": "Rows"}, ["people", "silver/orders", "bronze/orders_raw", "gold/orders_by_status", "gold/ahead"]),
    ],
)
def test_a_link_opens_the_same_list(lake: Path, link: dict[str, str], found: list[str]) -> None:
    assert shown(open_page("tables", **link)) == found


def test_a_search_without_a_result_says_so_and_can_be_cleared(lake: Path) -> None:
    app = open_page("tables", layer="gold")
    app.text_input(key="q").set_value("nowhere")
    again(app)
    assert "No table matches" in words(app)
    app.button(key="clear").click()
    assert len(shown(again(app))) == 5


def test_an_owner_of_a_link_stays_chosen_though_no_table_has_it(lake: Path) -> None:
    app = open_page("tables", owner="Nobody")
    assert "No table matches" in words(app) and app.query_params["owner"] == "Nobody"


def test_an_empty_lake_teaches(home: Path) -> None:
    assert "No Delta tables here yet" in words(open_page("tables"))


def test_settings_that_fail_are_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_LAKE__ROOTS", '["s3://bucket/../up"]')
    assert "climbs out" in open_page("tables").error[0].value


def test_a_row_opens_its_table(lake: Path) -> None:
    app = open_page("tables", sort="Size")
    app.session_state["catalog"] = {"selection": {"rows": [], "columns": [], "cells": [(0, "Table")]}}
    again(app)
    assert app.title[0].value == "people" and app.query_params == {"table": "people"}


def test_a_long_list_comes_in_pages_and_search_finds_the_rest(home: Path) -> None:
    for number in range(PAGE_ROWS + 20):
        HandLog(home / "lake" / f"t{number:03d}").start()
    app = open_page("tables")
    wait_until_read()
    again(app)
    assert len(shown(app)) == PAGE_ROWS and "Rows 1 to 100 of 120" in words(app)
    app = open_page("tables", page_=2)
    assert shown(app)[0] == "t100" and len(shown(app)) == 20
    assert shown(open_page("tables", q="t119")) == ["t119"]
    assert len(shown(open_page("tables", page_=99))) == PAGE_ROWS  # a page that is not there: the first


# arriving --------------------------------------------------------------------------------------------------------


class HeldLake:
    """A stand-in of 200 tables of which 40 arrive at once and the rest when the test says so."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.refs = tuple(TableRef(f"/lake/t{n:03d}", f"t{n:03d}", "/lake") for n in range(200))

    def found(self) -> Listing:
        return Listing(self.refs)

    def read_cards(self, refs: Sequence[TableRef]) -> Iterator[TableCard]:
        for number, ref in enumerate(refs):
            if number == 40:
                self.go_on.wait(120)
            yield TableCard(ref, 3, 2, 1_000, 7, 0, datetime.now(UTC), "WRITE")


@pytest.fixture
def held(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldLake]:
    lake = HeldLake()
    reader = LakeReader(lake, refresh_s=60, now=services.now)
    monkeypatch.setattr(cache, "lake_reader", lambda: reader)
    while reader.reading().num_read < 40:
        pass
    yield lake
    lake.go_on.set()


def wait_until_read() -> None:
    while not cache.lake_reading().is_complete:
        pass


def test_tables_are_shown_as_they_arrive_with_progress(held: HeldLake) -> None:
    app = open_page("tables")
    assert len(shown(app)) == 40 and "So far: 40 tables" in words(app)
    bar = app.get("progress")[0].proto
    assert "40 of 200 tables read" in bar.text and bar.value == 20
    held.go_on.set()
    wait_until_read()
    again(app)
    assert not app.get("progress") and "Rows 1 to 100 of 200" in words(app)


def test_the_health_of_the_server_says_while_tables_arrive(held: HeldLake) -> None:
    part = {"status": "reading", "tables": 40, "tables_found": 200, "unreadable_tables": 0}
    assert (health()["lake"], health()["status"]) == (part, "ok"), "a page that still reads is no failure"
    held.go_on.set()
    wait_until_read()
    assert health()["lake"] == part | {"status": "ok", "tables": 200}


def test_a_search_while_tables_arrive_looks_through_those_that_are_there(held: HeldLake) -> None:
    app = open_page("tables", q="t039")
    assert shown(app) == ["t039"] and "1 of 40 tables match" in words(app)
    assert "No table matches" not in words(open_page("tables", q="t150"))


def test_the_overview_says_that_its_counts_are_partial(held: HeldLake) -> None:
    app = open_page("overview")
    assert "40 of 200 tables read" in app.get("progress")[0].proto.text
    assert "Nothing needs attention so far" in words(app) and "fresh" not in words(app)


def test_the_picker_offers_every_table_found(held: HeldLake) -> None:
    assert len(open_page("tables").selectbox(key="table_picker").options) == 200


@pytest.mark.parametrize(("name", "key"), [("tables", "catalog"), ("overview", "overview_tables")])
def test_small_files_name_the_rule_that_is_set(
    lake: Path, name: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_HEALTH__SMALL_FILE_RATIO", "0.25")
    monkeypatch.setenv("WEIR_HEALTH__MIN_FILES", "7")
    columns = json.loads(open_page(name).dataframe(key=key).proto.columns)
    rule = "below 25 % of the target size, in partitions with at least 7 files"
    assert rule in columns["Small files"]["help"]


def test_numbers_stand_to_the_right() -> None:
    for name in ("Rows", "Files", "Size", "Last commit"):
        assert TABLES.config[name]["alignment"] == "right"
