"""The search over the lake: opened from any page, it says what it found, where, and leads on."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.worlds.lake.builders import HandLog
from tests.worlds.pages.opened import again, home, open_page, plain, words
from tests.worlds.store import stream_store

__all__ = ["home"]


@pytest.fixture
def lake(home: Path) -> Path:
    root = home / "lake"
    HandLog(root / "silver" / "orders").start(columns={"order_id": "long", "customer_id": "string"})
    HandLog(root / "gold" / "sales").start(columns={"customer_id": "string"}, configuration={"source": "the CRM"})
    HandLog(root / "bronze" / "raw").start(columns={"payload": "string"})
    return root


def find(text: str, name: str = "overview", **params: str) -> AppTest:
    """The dialog with a text in it. A run of the test is one of the whole page, which would close an open dialog."""
    app = open_page(name, **params)
    app.session_state["lake_find_words"] = text
    app.button(key="lake_find").click()
    return again(app)


@pytest.mark.parametrize("name", ["overview", "table", "streams"])
def test_which_tables_hold_a_column(lake: Path, name: str) -> None:
    app = find("customer_id", name)
    assert app.button(key="lake_find").proto.shortcut == "ctrl+k"
    text = words(app)
    assert "2 of 3 tables hold “customer_id”" in text and "column customer_id string" in text
    labels = [link.label for link in app.get("page_link")]
    assert labels[-3:] == ["Open all 2 on Tables", "gold/sales", "silver/orders"]


def test_all_of_them_open_on_tables_with_where_it_was_found(lake: Path) -> None:
    (link,) = [link for link in find("customer_id").get("page_link") if link.label == "Open all 2 on Tables"]
    assert (link.proto.page, link.proto.query_string) == ("tables", "q=customer_id")
    app = open_page("tables", q="customer_id")
    frame = app.dataframe(key="catalog").value
    assert list(frame["Table"]) == ["gold/sales", "silver/orders"]
    assert set(frame["Found in"]) == {"column customer_id string"}
    assert "2 of 3 tables match" in words(app)
    assert "Found in" not in open_page("tables").dataframe(key="catalog").value


def test_streams_pages_and_acts_stand_beside_tables(home: Path, lake: Path) -> None:
    store = stream_store.open_store(home)
    stream_store.declare(store, "silver_orders", datetime.now(UTC))
    store.close()

    def led(text: str, **params: str) -> dict[str, tuple[str, str]]:
        links = {link.label: link.proto for link in find(text, **params).get("page_link")}
        return {plain(label): (proto.page, proto.query_string) for label, proto in links.items()}

    assert led("silver_orders")["Stream silver_orders"] == ("stream", "stream=silver_orders")
    assert led("first bad")["First bad version"] == ("bisect", "")
    assert led("undrop")["Undrop…"] == ("acts", "")
    assert led("restore", table="gold/sales")["Restore… gold/sales"] == ("versions", "table=gold%2Fsales")
    assert not [label for label in led("restore") if label.startswith("Restore")], "no table is chosen"


def test_a_property_leads_to_the_properties(lake: Path) -> None:
    app = find("crm")
    (link,) = [link for link in app.get("page_link") if link.label == "gold/sales"]
    assert link.proto.page == "properties" and "property source: the CRM" in words(app)


def test_nothing_found_says_how_many_were_looked_through(lake: Path) -> None:
    assert "0 of 3 tables hold “nowhere”" in words(find("nowhere"))
