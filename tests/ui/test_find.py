"""The search over the lake: opened from any page, it says what it found, where, and leads on."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.builders import HandLog
from tests.ui.opened import again, home, open_page, words

__all__ = ["home"]


@pytest.fixture
def lake(home: Path) -> Path:
    root = home / "lake"
    HandLog(root / "silver" / "orders").start(columns={"order_id": "long", "customer_id": "string"})
    HandLog(root / "gold" / "sales").start(columns={"customer_id": "string"}, configuration={"source": "the CRM"})
    HandLog(root / "bronze" / "raw").start(columns={"payload": "string"})
    return root


def find(text: str, name: str = "overview") -> AppTest:
    """The dialog with a text in it. A run of the test is one of the whole page, which would close an open dialog."""
    app = open_page(name)
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
    assert labels[-2:] == ["gold/sales", "silver/orders"]


def test_a_property_leads_to_the_properties(lake: Path) -> None:
    app = find("crm")
    (link,) = [link for link in app.get("page_link") if link.label == "gold/sales"]
    assert link.proto.page == "properties" and "property source: the CRM" in words(app)


def test_nothing_found_says_how_many_were_looked_through(lake: Path) -> None:
    assert "0 of 3 tables hold “nowhere”" in words(find("nowhere"))
