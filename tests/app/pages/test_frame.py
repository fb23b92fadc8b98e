"""The frame: navigation, table picker, state line, and the head of every table page."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from streamlit.testing.v1 import AppTest

from tests.worlds.lake import builders
from tests.worlds.pages.opened import again, home, metrics, open_page, plain, press, words
from tests.worlds.store import stream_store

__all__ = ["home"]

TABLE_PAGES = ("table", "history", "files", "properties")


@pytest.fixture
def lake(home: Path) -> Path:
    return builders.medallion_lake(home / "lake")


@pytest.mark.parametrize("name", TABLE_PAGES)
def test_without_a_table_a_page_offers_those_there_are(lake: Path, name: str) -> None:
    app = open_page(name)
    assert "No table chosen" in words(app)
    assert "silver/orders" in [link.label for link in app.main.page_link]


@pytest.mark.parametrize("name", TABLE_PAGES)
def test_an_empty_lake_teaches_the_command_that_fills_it(home: Path, name: str) -> None:
    text = words(open_page(name))
    assert "No Delta tables here yet" in text
    assert "weir up" in text and str(home / "lake") in text


@pytest.mark.parametrize("name", TABLE_PAGES)
def test_a_vanished_table_is_said_to_be_gone_with_the_others_at_hand(lake: Path, name: str) -> None:
    app = open_page(name, table="silver/ordres")
    text = words(app)
    assert "silver/ordres" in app.title[0].value
    assert "moved or deleted" in text and "silver/orders" in text
    assert app.selectbox(key="table_picker").value == "silver/ordres"


@pytest.mark.parametrize("name", TABLE_PAGES)
def test_an_unreadable_table_says_why_and_shows_no_figure(lake: Path, name: str) -> None:
    log = lake / "silver" / "broken" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("{not json\n")
    app = open_page(name, table="silver/broken")
    assert "00000000000000000000.json" in app.error[0].value.replace("\\", "")
    assert not metrics(app)


@pytest.mark.parametrize("name", TABLE_PAGES)
def test_a_link_pins_a_version_and_the_band_leads_back(lake: Path, name: str) -> None:
    app = open_page(name, table="silver/orders", version=1)
    assert "You look at v1" in words(app).replace("*", "")
    press(app, "back_to_latest")
    assert "You look at" not in words(app)
    assert "version" not in app.query_params and app.query_params["table"] == "silver/orders"


def test_a_version_that_never_was_is_refused_with_a_way_back(lake: Path) -> None:
    app = open_page("table", table="silver/orders", version=99)
    assert len(app.error) == 1
    app.button(key="back_to_latest").click()
    assert not again(app).error


@pytest.mark.parametrize("version", ["-1", "1.5", "abc", "9" * 30, "٣"])
def test_a_version_that_is_none_means_the_latest_and_is_said_until_one_is_chosen(lake: Path, version: str) -> None:
    app = open_page("table", table="silver/orders", version=version)
    assert not app.error and version in app.warning[0].value.replace("\\", "")
    assert "the latest, v3" in again(app).warning[0].value
    app.text_input(key="version_input").set_value("2")
    assert not again(app).warning and "You look at v2" in words(app).replace("*", "")


def test_the_latest_may_be_asked_for_by_its_word(lake: Path) -> None:
    app = open_page("table", table="silver/orders", version="latest")
    assert not app.error and not app.warning and "You look at" not in words(app)


def test_the_way_to_a_table_leads_to_the_tables_of_its_root_and_layer(lake: Path) -> None:
    builders.HandLog(lake / "silver" / "shop" / "deep").start()
    links = {link.label: link.proto for link in open_page("table", table="silver/shop/deep").main.page_link}
    assert (links["lake"].page, links["silver"].page) == ("tables", "tables")
    found = {name: parse_qs(links[name].query_string) for name in ("lake", "silver", "shop")}
    assert found == {"lake": {}, "silver": {"layer": ["silver"]}, "shop": {"q": ["shop/"]}}
    assert "· First bad version" in words(open_page("bisect", table="silver/shop/deep")), "a telephone hides the menu"


def test_a_page_of_no_table_drops_the_parameters_of_others_and_the_table_stays_chosen(lake: Path) -> None:
    app = open_page("overview", table="silver/orders", version=1, from_=0, q="x")
    assert app.query_params == {} and app.selectbox(key="table_picker").value == "silver/orders"
    app = open_page("tables", table="silver/orders", q="gold", view="Data")
    assert app.query_params == {"q": "gold"}


def test_the_version_control_pins(lake: Path) -> None:
    app = open_page("table", table="silver/orders")
    app.text_input(key="version_input").set_value("2")
    again(app)
    assert app.query_params["version"] == "2" and "You look at v2" in words(app).replace("*", "")


def test_picking_a_table_keeps_the_page_and_forgets_the_other_tables_range(lake: Path) -> None:
    app = open_page("history", table="silver/orders", version=1, from_=0, to=2)
    app.selectbox(key="table_picker").select("gold/orders_by_status")
    again(app)
    assert plain(app.title[0].value) == "orders_by_status"
    assert app.query_params == {"table": "gold/orders_by_status"}


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("table", {"view": "Data", "where": "amount > 20", "columns": "amount", "order": "amount ↓", "search": "90"}),
        ("history", {"commit": "2", "look": "5000"}),
        ("files", {"view": "By partition", "partition": "x", "bucket": "1", "file": "x.parquet", "files_page": "2"}),
        ("versions", {"at": "1", "number": "SQL aggregate", "sql": "sum(amount)"}),
        ("bisect", {"condition": "amount > 20", "good": "1", "run": "x"}),
        ("changes", {"rows_where": "amount > 20", "rows_page": "2", "key_of": "{}"}),
        ("properties", {"compare": "2"}),
    ],
)
def test_what_was_asked_of_one_table_is_not_asked_of_the_next(lake: Path, name: str, asked: dict[str, str]) -> None:
    kept = {key: value for key, value in asked.items() if key in ("view", "number")}
    app = open_page(name, table="silver/orders", **asked)
    assert app.query_params.keys() > kept.keys() | {"table"}
    app.selectbox(key="table_picker").select("gold/orders_by_status")
    again(app)
    assert app.query_params == {"table": "gold/orders_by_status", **kept} and not app.error


def test_a_link_to_another_table_leads_to_all_of_its_rows_or_to_those_that_it_names(lake: Path) -> None:
    app = open_page("table", table="silver/orders", view="Data", where="amount > 20")
    lead_to(app, "tables")
    lead_to(app, "table", table="gold/orders_by_status", view="Data")
    assert app.text_input(key="where").value == "" and not app.error
    lead_to(app, "tables")
    lead_to(app, "table", table="silver/orders", view="Data", where="order_id = 2")
    assert app.text_input(key="where").value == "order_id = 2"


def lead_to(app: AppTest, name: str, **params: str) -> None:
    app.query_params = params
    app.switch_page(f"../pages/{name}.py")
    again(app)


def test_picking_a_table_on_the_overview_opens_its_summary(lake: Path) -> None:
    app = open_page("overview")
    app.selectbox(key="table_picker").select("silver/orders")
    again(app)
    assert app.title[0].value == "orders" and app.query_params["table"] == "silver/orders"


def test_the_navigation_carries_the_table_on(lake: Path) -> None:
    app = open_page("table", table="silver/orders", version=1)
    app.query_params.clear()  # a click on the navigation has no parameters
    app.switch_page("../pages/history.py")
    again(app)
    assert app.title[0].value == "orders"
    assert app.query_params["table"] == "silver/orders" and app.query_params["version"] == "1"


def test_the_picker_marks_what_cannot_be_read(lake: Path) -> None:
    (lake / "gold" / "broken" / "_delta_log").mkdir(parents=True)
    (lake / "gold" / "broken" / "_delta_log" / "00000000000000000000.json").write_text("{\n")
    assert "⚠ gold/broken" in open_page("overview").selectbox(key="table_picker").options


def test_owner_and_classification_stand_at_the_head(home: Path) -> None:
    tags = {"catalog.team_name": "Data Platform", "catalog.table.classification": "pii"}
    builders.HandLog(home / "lake" / "people").start(configuration=tags)
    text = words(open_page("table", table="people"))
    assert "Data Platform" in text and "pii" in text


def test_names_of_others_stay_words(home: Path) -> None:
    tags = {"catalog.team_name": "<script>alert(1)</script> *bold*"}
    builders.HandLog(home / "lake" / "odd_[x](y)").start(configuration=tags)
    app = open_page("table", table="odd_[x](y)")
    assert "<script>" not in "".join(html.proto.body for html in app.get("html"))


# state line ------------------------------------------------------------------------------------------------------


def test_the_state_line_says_host_streams_and_lake(lake: Path, home: Path) -> None:
    now = datetime.now(UTC)
    store = stream_store.open_store(home)
    stream_store.declare(store, "silver_orders", now)
    stream_store.beat(store, now)
    store.close()
    line = next(caption.value for caption in open_page("overview").sidebar.caption if "lake read" in caption.value)
    assert "host up 3 h" in line and "1 stream" in line and "3 tables" in line


def test_the_state_line_turns_amber_when_the_host_is_silent(lake: Path, home: Path) -> None:
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    store = stream_store.open_store(home)
    stream_store.declare(store, "silver_orders", long_ago)
    stream_store.beat(store, long_ago)
    store.close()
    warning = open_page("overview").sidebar.warning[0].value
    assert "No host since" in warning and "weir host" in warning


def test_a_store_that_does_not_answer_leaves_the_tables_in_reach(
    lake: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "not_a_folder").write_text("")
    monkeypatch.setenv("WEIR_STORE__URL", f"sqlite:///{home}/not_a_folder/weir.db")
    app = open_page("table", table="silver/orders")
    assert app.title[0].value == "orders"
    assert "does not answer" in app.sidebar.warning[0].value


def test_beyond_loopback_the_frame_says_that_nobody_may_act(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_UI__ADDRESS", "0.0.0.0")
    assert "read-only" in open_page("overview").sidebar.info[0].value


def test_on_loopback_or_where_allowed_the_frame_is_silent_about_it(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_UI__ADDRESS", "::1")
    assert not open_page("overview").sidebar.info
