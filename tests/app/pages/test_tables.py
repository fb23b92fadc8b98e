"""Tables: the whole lake as it arrives, searched, filtered and sorted, all of it in the URL; long lists."""

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app import cache, services
from app.server.metrics import health
from app.ui.lake import LakeReader
from app.ui.view.words import PAGE_ROWS
from tests.worlds.lake import builders
from tests.worlds.lake.builders import HandLog
from tests.worlds.pages.arriving import ArrivingLake
from tests.worlds.pages.fixtures import Place
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.opened import again, click, open_page, words
from tests.worlds.processes import wait_until


def shown(app: AppTest) -> list[str]:
    return list(app.dataframe(key="catalog").value["Table"])


@pytest.fixture
def lake(lake: Path) -> Path:
    """Three tables of the medallion, one with an owner, one that cannot be read but whose history can."""
    tags = {"catalog.team_name": "Growth", "catalog.table.classification": "pii"}
    HandLog(lake / "people").start(configuration=tags).commit(builders.add("a.parquet", size=7_000_000_000, rows=5))
    HandLog(lake / "gold" / "ahead").commit(
        builders.protocol(3, 7, ["fancyFeature"]), builders.metadata(), builders.commit_info("CREATE TABLE")
    )
    return lake


def test_every_table_is_listed_and_one_that_fails_says_why_and_what_its_history_tells(lake: Path) -> None:
    app = open_page("tables")
    assert shown(app) == ["bronze/orders_raw", "gold/ahead", "gold/orders_by_status", "people", "silver/orders"]
    assert "5 tables · 14 rows · 5 files · 7 GB" in words(app) and "1 unreadable" in words(app)
    assert not app.get("progress")
    frame = app.dataframe(key="catalog").value.set_index("Table")
    row = frame.loc["gold/ahead"]
    assert row["Version"] == "unreadable v0" and "fancyFeature" in row["Problem"] and row["What to do"]
    assert row["Operation"] == "CREATE TABLE" and row["Committed at"] == "2023-11-14 22:13:20 UTC"
    assert frame.loc["people"]["Owner"] == "Growth"


def test_a_link_opens_the_same_list_and_a_row_its_table(lake: Path) -> None:
    for link, found in (
        ({"q": "GROWTH"}, ["people"]),
        ({"q": "orders gold"}, ["gold/orders_by_status"]),
        ({"q": "fancyfeature"}, ["gold/ahead"]),
        ({"q": "PII"}, ["people"]),
        ({"q": "order_id"}, ["silver/orders"]),
        ({"layer": "no layer"}, ["people"]),
        ({"owner": "Growth"}, ["people"]),
        ({"show": "Cannot be read"}, ["gold/ahead"]),
        ({"sort": "Rows"}, ["people", "silver/orders", "bronze/orders_raw", "gold/orders_by_status", "gold/ahead"]),
    ):
        app = open_page("tables", **link)
        assert shown(app) == found and [each.key for each in app.pills] == ["layer"], link
    click(app, "catalog", 0, "Table")
    assert app.title[0].value == "people" and app.query_params == {"table": "people"}


def test_a_search_without_a_result_says_so_and_can_be_cleared(lake: Path) -> None:
    app = open_page("tables", owner="Nobody")
    assert "No table matches" in words(app) and app.query_params["owner"] == "Nobody", "though no table has it"
    app = open_page("tables", layer="gold")
    app.text_input(key="q").set_value("nowhere")
    assert "No table matches" in words(again(app))
    app.button(key="clear").click()
    assert len(shown(again(app))) == 5


def test_settings_that_fail_are_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_LAKE__ROOTS", '["s3://bucket/../up"]')
    assert "climbs out" in open_page("tables").error[0].value


# arriving --------------------------------------------------------------------------------------------------------


@pytest.fixture
def arriving(home: Path, now: datetime, monkeypatch: pytest.MonkeyPatch) -> Iterator[ArrivingLake]:
    """200 tables, of which 40 are there."""
    lake = ArrivingLake(200, now)
    lake.more(40)
    reader = LakeReader(lake, refresh_s=600, now=services.now)
    monkeypatch.setattr(cache, "lake_reader", lambda: reader)
    wait_until(lambda: reader.reading().num_read == 40, "the first tables have arrived")
    yield lake
    lake.more(160)


def test_while_tables_arrive_pages_show_those_that_are_there_and_how_many_are_to_come(arriving: ArrivingLake) -> None:
    app, overview = open_page("tables"), open_page("overview")
    assert len(shown(app)) == 40 and "So far: 40 tables" in words(app)
    assert len(app.selectbox(key="table_picker").options) == 200, "every table found is offered"
    for page in (app, overview):
        bar = page.get("progress")[0].proto
        assert "40 of 200 tables read" in bar.text and bar.value == 20
    assert "Not known yet" in words(overview) and "Nothing" not in words(overview) and "fresh" not in words(overview)
    search = open_page("tables", q="t0039")
    assert shown(search) == ["t0039"] and "1 of 40 tables match" in words(search)
    assert "No table matches" not in words(open_page("tables", q="t0150"))
    part = {"status": "reading", "tables": 40, "tables_found": 200, "unreadable_tables": 0}
    assert (health()["lake"], health()["status"]) == (part, "ok"), "a page that still reads is no failure"
    arriving.more(160)
    wait_until(lambda: cache.lake_reading().is_complete, "all have arrived")
    again(app)
    assert not app.get("progress") and "Rows 1 to 100 of 200" in words(app)
    assert health()["lake"] == part | {"status": "ok", "tables": 200}


# Lists beyond their first page: what leads to another table, or to other rows, begins at the first page --------------


@pytest.fixture
def many(place: Place) -> Path:
    return place(two_pages, "")


def two_pages(root: Path) -> Path:
    """A table of two pages of commits, and so many empty ones that the lake has two pages of tables."""
    log = HandLog(root / "many").start()
    for _ in range(PAGE_ROWS + 4):
        log.commit(builders.commit_info())
    for number in range(PAGE_ROWS):
        HandLog(root / f"t{number:03d}").start()
    return root


def open_second_page(name: str, **link: str) -> AppTest:
    open_page(name, **link)
    wait_until(lambda: cache.lake_reading().is_complete, "the lake is not read")
    return open_page(name, page_=2, **link)


def test_a_long_list_comes_in_pages_and_search_finds_the_rest(many: Path) -> None:
    second = open_second_page("tables")
    assert shown(second) == ["t099"] and "Rows 101 to 101 of 101" in words(second)
    assert shown(open_page("tables", q="t099")) == ["t099"]
    first = open_page("tables", page_=99)
    assert len(shown(first)) == PAGE_ROWS and "Rows 1 to 100 of 101" in words(first), "of a page that is not there"
    assert not first.pills and "Layer" not in first.dataframe(key="catalog").value, "no table has a layer"


@pytest.mark.parametrize("name", ["history", "tables"])
def test_another_table_is_picked(many: Path, name: str) -> None:
    app = open_second_page(name, **({"table": "many"} if name == "history" else {}))
    app.selectbox(key="table_picker").select("t007")
    again(app)
    assert app.title[0].value == "t007" and app.query_params == {"table": "t007"}


def test_a_table_that_a_later_page_of_the_list_led_to_shows_its_newest_commits(many: Path) -> None:
    app = open_second_page("tables")
    for name in ("table", "history"):
        app.query_params = {"table": "many"}
        app.switch_page(f"../pages/{name}.py")
        again(app)
    assert len(frame_with(app, "Version", "Operation")) == PAGE_ROWS and app.query_params == {"table": "many"}


@pytest.mark.parametrize(
    ("act", "link"),
    [
        (lambda app: app.toggle(key="filter").set_value(True), {}),
        (lambda app: app.toggle(key="filter").set_value(False), {"filter": "true"}),
        (lambda app: app.multiselect(key="pick_operation").set_value(["WRITE"]), {"filter": "true"}),
    ],
    ids=["filter on", "filter off", "an operation chosen"],
)
def test_the_filter_of_a_history_changes(many: Path, act: Callable[[AppTest], object], link: dict[str, str]) -> None:
    app = open_second_page("history", table="many", **link)
    act(app)
    again(app)
    assert len(frame_with(app, "Version", "Operation")) == PAGE_ROWS and "page" not in app.query_params
