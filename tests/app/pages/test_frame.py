"""The frame: navigation, table picker, state line, head of every table page, and the search over the lake."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from streamlit.testing.v1 import AppTest

from app import navigation
from app.ui.live import VIEWERS
from backend.store.store import ControlStore
from tests.worlds.lake import builders
from tests.worlds.lake.builders import HandLog
from tests.worlds.pages.opened import again, forget_caches, open_page, plain, press, words
from tests.worlds.store import stream_store

TABLE_PAGES = ("table", "history", "timeline", "files", "properties", "versions", "changes", "bisect")


@pytest.mark.parametrize("name", TABLE_PAGES)
def test_a_page_without_its_table_offers_those_there_are(lake: Path, name: str) -> None:
    app = open_page(name)
    assert "No table chosen" in words(app)
    assert "silver/orders" in [link.label for link in app.main.page_link]
    app = open_page(name, table="silver/ordres")
    assert "silver/ordres" in app.title[0].value
    assert "moved or deleted" in words(app) and "silver/orders" in words(app)
    assert app.selectbox(key="table_picker").value == "silver/ordres"


@pytest.mark.parametrize("name", [*TABLE_PAGES, "health", "tables", "overview"])
def test_an_empty_lake_teaches_the_command_that_fills_it(home: Path, name: str) -> None:
    text = words(open_page(name))
    assert "No Delta tables here yet" in text and "weir up" in text and str(home / "lake") in text


@pytest.mark.parametrize("name", ["table", "history", "files", "properties"])
def test_a_link_pins_a_version_and_the_band_leads_back(lake: Path, name: str) -> None:
    app = open_page(name, table="silver/orders", version=1)
    assert "You look at v1" in words(app).replace("*", "")
    press(app, "back_to_latest")
    assert "You look at" not in words(app)
    assert "version" not in app.query_params and app.query_params["table"] == "silver/orders"


def test_a_version_is_chosen_by_a_number_or_by_the_word_latest(lake: Path) -> None:
    app = open_page("table", table="silver/orders", version=99)
    assert len(app.error) == 1, "it never was"
    app.button(key="back_to_latest").click()
    assert not again(app).error
    app.text_input(key="version_input").set_value("2")
    again(app)
    assert app.query_params["version"] == "2" and "You look at v2" in words(app).replace("*", "")
    app = open_page("table", table="silver/orders", version="latest")
    assert not app.error and not app.warning and "You look at" not in words(app)


@pytest.mark.parametrize("version", ["-1", "1.5", "abc", "9" * 30, "٣"])
def test_a_version_that_is_none_means_the_latest_and_is_said_until_one_is_chosen(lake: Path, version: str) -> None:
    app = open_page("table", table="silver/orders", version=version)
    assert not app.error and version in app.warning[0].value.replace("\\", "")
    assert "the latest, v3" in again(app).warning[0].value
    app.text_input(key="version_input").set_value("2")
    assert not again(app).warning and "You look at v2" in words(app).replace("*", "")


def test_the_way_to_a_table_leads_to_the_tables_of_its_root_and_layer(lake: Path) -> None:
    builders.HandLog(lake / "silver" / "shop" / "deep").start()
    links = {link.label: link.proto for link in open_page("table", table="silver/shop/deep").main.page_link}
    assert (links["lake"].page, links["silver"].page) == ("tables", "tables")
    found = {name: parse_qs(links[name].query_string) for name in ("lake", "silver", "shop")}
    assert found == {"lake": {}, "silver": {"layer": ["silver"]}, "shop": {"q": ["shop/"]}}


def test_the_pages_of_a_table_stand_under_its_title(lake: Path) -> None:
    pages = [navigation.title(name) for name in navigation.table_pages()]
    app = open_page("files", table="silver/orders", version=1)
    strip = [link for link in app.main.page_link if link.label in pages]
    assert [link.label for link in strip] == pages, "a telephone hides the menu"
    assert {link.proto.query_string for link in strip} == {"table=silver%2Forders&version=1"}


def test_a_page_of_no_table_drops_the_parameters_of_others_and_the_table_stays_chosen(lake: Path) -> None:
    app = open_page("overview", table="silver/orders", version=1, from_=0, q="x")
    assert app.query_params == {} and app.selectbox(key="table_picker").value == "silver/orders"
    app = open_page("tables", table="silver/orders", q="gold", view="Data")
    assert app.query_params == {"q": "gold"}


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
        ("bisect", {"condition": "amount > 20", "good": "1"}),
        ("changes", {"rows_where": "amount > 20", "rows_page": "2", "key_of": "{}"}),
        ("changes", {"key": "order_id", "without": "status", "method": "key_join"}),
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


def test_the_picker_marks_what_cannot_be_read_and_opens_a_summary_from_overview(lake: Path) -> None:
    builders.HandLog(lake / "gold" / "broken").raw(f"{0:020d}.json", "{\n")
    app = open_page("overview")
    assert "⚠ gold/broken" in app.selectbox(key="table_picker").options
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


def test_the_state_line_says_host_streams_lake_and_viewers_or_that_the_host_is_silent(
    lake: Path, home: Path, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stream_store.open_store(home)
    stream_store.declare(store, "silver_orders", now)
    stream_store.beat(store, now - timedelta(hours=1))
    warning = open_page("overview").sidebar.warning[0].value
    assert "No host since" in warning and "weir host" in warning
    stream_store.beat(store, now)
    store.close()
    forget_caches()
    monkeypatch.setattr(VIEWERS, "count", 60)
    line = next(caption.value for caption in open_page("overview").sidebar.caption if "lake read" in caption.value)
    assert "host up 3 h" in line and "1 stream" in line and "3 tables" in line
    assert line.endswith(" · 60 viewers: live pages every 6 s")


# What every page keeps to ----------------------------------------------------------------


def test_where_the_store_does_not_answer_pages_say_so_and_tables_stay_in_reach(
    lake: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "not_a_folder").write_text("")
    monkeypatch.setenv("WEIR_STORE__URL", f"sqlite:///{home}/not_a_folder/weir.db")
    app = open_page("table", table="silver/orders")
    assert app.title[0].value == "orders" and "does not answer" in app.sidebar.warning[0].value
    app = open_page("overview")
    assert "Not known: streams could not be read" in words(app)
    assert len(app.dataframe(key="overview_tables").value) == 3
    for name in ("streams", "pipeline", "stream"):
        app = open_page(name)
        assert "control store does not answer" in words(app).lower() and not app.dataframe, name


@pytest.mark.parametrize(
    ("name", "link", "buttons"),
    [
        ("stream", {"stream": "silver_orders"}, {"one_start", "one_stop", "one_restart"}),
        ("versions", {"table": "silver/orders", "at": "1"}, {"pin"}),
        ("query", {"query": 'SELECT 1 FROM "silver/orders"', "versions": "3"}, {"query_save"}),
    ],
)
def test_served_beyond_loopback_without_a_login_nobody_acts(
    lake: Path, store: ControlStore, now: datetime, monkeypatch: pytest.MonkeyPatch, name: str, link: dict[str, str],
    buttons: set[str],
) -> None:  # fmt: skip
    stream_store.flowing(store, "silver_orders", now)
    monkeypatch.setenv("WEIR_UI__ADDRESS", "::1")
    assert not open_page(name, **link).sidebar.info, "on loopback nothing is said"
    monkeypatch.setenv("WEIR_UI__ADDRESS", "0.0.0.0")
    forget_caches()
    app = open_page(name, **link)
    assert "read-only" in app.sidebar.info[0].value
    app = press(app, "query_run_linked") if name == "query" else app
    assert {button.key for button in app.button if button.disabled} >= buttons


# The search over the lake: opened from any page, it says what it found, where, and leads on --------------------------


@pytest.fixture
def customers(home: Path) -> Path:
    root = home / "lake"
    HandLog(root / "silver" / "orders").start(columns={"order_id": "long", "customer_id": "string"})
    HandLog(root / "gold" / "sales").start(columns={"customer_id": "string"}, configuration={"source": "the CRM"})
    HandLog(root / "bronze" / "raw").start(columns={"payload": "string"})
    return root


def search(text: str, name: str = "overview", **params: str) -> AppTest:
    """The dialog with a text in it. A run of the test is one of the whole page, which would close an open dialog."""
    app = open_page(name, **params)
    app.session_state["lake_find_words"] = text
    app.button(key="lake_find").click()
    return again(app)


@pytest.mark.parametrize("name", ["overview", "table", "streams"])
def test_which_tables_hold_a_column(customers: Path, name: str) -> None:
    app = search("customer_id", name)
    assert app.button(key="lake_find").proto.shortcut == "ctrl+k"
    text = words(app)
    assert "2 of 3 tables hold “customer_id”" in text and "column customer_id string" in text
    found = [(link.label, link.proto.page, link.proto.query_string) for link in app.get("page_link")][-3:]
    assert [label for label, *_ in found] == ["Open all 2 on Tables", "gold/sales", "silver/orders"]
    assert found[0][1:] == ("tables", "q=customer_id")


def test_tables_says_where_it_was_found_a_property_leads_to_properties_and_nothing_is_said(customers: Path) -> None:
    app = open_page("tables", q="customer_id")
    frame = app.dataframe(key="catalog").value
    assert list(frame["Table"]) == ["gold/sales", "silver/orders"]
    assert set(frame["Found in"]) == {"column customer_id string"} and "2 of 3 tables match" in words(app)
    assert "Found in" not in open_page("tables").dataframe(key="catalog").value
    app = search("crm")
    (link,) = [link for link in app.get("page_link") if link.label == "gold/sales"]
    assert link.proto.page == "properties" and "property source: the CRM" in words(app)
    assert "0 of 3 tables hold “nowhere”" in words(search("nowhere"))


def test_streams_pages_and_acts_stand_beside_tables(home: Path, customers: Path) -> None:
    store = stream_store.open_store(home)
    stream_store.declare(store, "silver_orders", datetime.now(UTC))
    store.close()

    def led(text: str, **params: str) -> dict[str, tuple[str, str]]:
        links = {link.label: link.proto for link in search(text, **params).get("page_link")}
        return {plain(label): (proto.page, proto.query_string) for label, proto in links.items()}

    assert led("silver_orders")["Stream silver_orders"] == ("stream", "stream=silver_orders")
    assert led("first bad")["First bad version"] == ("bisect", "")
    assert led("undrop")["Undrop…"] == ("acts", "")
    assert led("stop silver")["Stop silver_orders…"] == ("stream", "stream=silver_orders")
    assert led("optimize raw")["Optimize bronze/raw…"] == ("health", "table=bronze%2Fraw")
    offered = [label for label in led("restore", table="silver/orders") if label.startswith("Restore")]
    assert offered[0] == "Restore silver/orders…", "the chosen table comes first"
    (page, statement) = led("svc-fx")["Commits of writers and jobs named “svc-fx”"]
    assert page == "query" and "%25svc-fx%25" in statement
    assert led("customer_id")["silver/orders"] == ("table", "table=silver%2Forders&find=customer_id")
